"""What can go wrong, and how it is said.

``KvsimError`` covers everything that kvsim raises on purpose::

    KvsimError
    ├── ConfigError     (ValueError)      a setting that cannot be meant
    ├── TraceError      (ValueError)      a file of requests that cannot be read as one
    ├── InvariantError  (AssertionError)  state that contradicts itself: a bug, kvsim's or a plug-in's
    └── StalledError    (RuntimeError)    a request waits for memory that nobody will ever free

Running out of blocks is not among them: that is a value (``LATER``), not an error. The arguments of every error are all
of its state, so that it survives being sent to another process or being raised again by SimPy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KvsimError(Exception):
    """Anything that kvsim raises on purpose."""


class ConfigError(KvsimError, ValueError):
    """A setting that cannot be meant."""


class TraceError(KvsimError, ValueError):
    """A file of requests that cannot be read as one.

    Parameters
    ----------
    message : str
        What was found and what was expected.
    file : str, optional
        Path of the file.
    line : int, optional
        Line number, from 1, the header counted.
    field : str, optional
        Column or key.
    """

    def __init__(
        self, message: str, file: str | None = None, line: int | None = None, field: str | None = None
    ) -> None:
        super().__init__(message, file, line, field)
        self.message, self.file, self.line, self.field = message, file, line, field

    def __str__(self) -> str:
        place = [str(self.file)] if self.file is not None else []
        if self.line is not None:
            place.append(f"line {self.line}")
        if self.field is not None:
            place.append(f"field {self.field!r}")
        return f"{', '.join(place)}: {self.message}" if place else self.message


class InvariantError(KvsimError, AssertionError):
    """State that contradicts itself.

    Parameters
    ----------
    operation : str
        What had just been done, or which identity was checked.
    expected, found : object
        The two sides that should have been equal.
    row : int, optional
        The row of the block table, where one is to blame.
    """

    def __init__(self, operation: str, expected: object, found: object, row: int | None = None) -> None:
        super().__init__(operation, expected, found, row)
        self.operation, self.row, self.expected, self.found = operation, row, expected, found

    def __str__(self) -> str:
        where = "" if self.row is None else f" (row {self.row})"
        return f"{self.operation}{where}: expected {self.expected}, found {self.found}"


class StalledError(KvsimError, RuntimeError):
    """The request at the head of the queue waits for memory that nobody will ever free.

    Parameters
    ----------
    request : int
        Index of that request.
    needed, free : int
        Slots that it asks for, and slots that are free.
    """

    def __init__(self, request: int, needed: int, free: int) -> None:
        super().__init__(request, needed, free)
        self.request, self.needed, self.free = request, needed, free

    def __str__(self) -> str:
        return (
            f"request {self.request} needs {self.needed} slots and is never given them: "
            f"nothing runs, {self.free} slots are free, and the allocator says LATER"
        )


def unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a name that is not known, with the nearest that is.

    Parameters
    ----------
    kind : str
        What was named: "workload", "model", ...
    name : str
        The name that was given.
    known : iterable of str
        The names that would have been understood.
    """
    names = sorted(known)
    folded = {candidate.casefold(): candidate for candidate in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    hint = f"did you mean {folded[near[0]]!r}?" if near else f"known: {', '.join(names)}"
    return ConfigError(f"unknown {kind} {name!r}; {hint}")
