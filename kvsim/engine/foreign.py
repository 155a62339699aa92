"""A user's own allocator, seen through the contract."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvsim.allocators import OK, Allocator
from kvsim.errors import ConfigError, InvariantError
from kvsim.requests import IntArray

REQUIRED = ("reserve", "append", "free", "held", "can_serve")


class ForeignAllocator:
    """Wraps an allocator that keeps to the contract and derives the ledger from what it says it holds.

    Parameters
    ----------
    inner : object
        With ``reserve``, ``append``, ``free``, ``held`` and ``can_serve``.
    capacity : int, optional
        Slots of the pool; taken from ``inner.capacity`` if not given.

    Raises
    ------
    ConfigError
        A method is missing, or the capacity is not known.
    InvariantError
        Later, when an answer breaks the contract.
    """

    placement = "own"
    lost_slots = 0

    def __init__(self, inner: Allocator, capacity: int | None = None) -> None:
        missing = [name for name in REQUIRED if not callable(getattr(inner, name, None))]
        if missing:
            raise ConfigError(f"{type(inner).__name__} has no {', '.join(missing)}: an allocator needs {REQUIRED}")
        found = getattr(inner, "capacity", None) if capacity is None else capacity
        if found is None:
            raise ConfigError(f"{type(inner).__name__} has no capacity: set the attribute or pass capacity=")
        self.inner = inner
        self.capacity = int(found)
        self.reservation = type(inner).__name__
        self.block_size = int(getattr(inner, "block_size", 1))
        self._tokens: dict[int, int] = {}
        self._final: dict[int, int] = {}

    @property
    def free_slots(self) -> int:
        """Slots that no row holds."""
        return self.capacity - sum(self.held(row) for row in self._tokens)

    @property
    def largest_request(self) -> int:
        """Most slots that one request could be given, as far as the allocator says."""
        return int(getattr(self.inner, "largest_request", self.capacity))

    def reserve(self, row: int, num_tokens: int, final_tokens: int, keep_free: int = 0) -> int:
        """Admit a request."""
        verdict = int(self.inner.reserve(row, num_tokens, final_tokens, keep_free))
        if verdict == OK:
            self._tokens[row], self._final[row] = num_tokens, final_tokens
            self._check_room(row)
        return verdict

    def append(self, rows: IntArray, steps: int = 1) -> int:
        """Grow every row."""
        done = int(self.inner.append(rows, steps))
        if not 0 <= done <= steps:
            raise InvariantError("append", expected=f"0..{steps} whole iterations", found=done)
        for row in rows.tolist():
            self._tokens[row] += done
            self._check_room(row)
        return done

    def free(self, row: int) -> int:
        """Take everything back."""
        held = self.held(row)
        slots = int(self.inner.free(row))
        if slots != held:
            raise InvariantError("slots given back", expected=held, found=slots, row=row)
        del self._tokens[row], self._final[row]
        return slots

    def held(self, row: int) -> int:
        """Slots that the row occupies."""
        return int(self.inner.held(row))

    def requested(self, row: int) -> int:
        """Slots that the row asked for, where the allocator tells them apart."""
        asked = getattr(self.inner, "requested", None)
        return self.held(row) if asked is None else int(asked(row))

    def can_serve(self, num_tokens: int, final_tokens: int) -> bool:
        """Whether an empty pool could serve this request to its end."""
        return bool(self.inner.can_serve(num_tokens, final_tokens))

    def servable(self, prompt: IntArray, final: IntArray) -> npt.NDArray[np.bool_]:
        """Whether an empty pool could serve each request, shape (n,)."""
        pairs = zip(prompt.tolist(), final.tolist(), strict=True)
        return np.array([self.can_serve(p, f) for p, f in pairs], dtype=bool)

    def blocked(self, num_tokens: int, final_tokens: int) -> bool:
        """Whether enough slots are free for a request and yet no extent serves it.

        Only an allocator that says its ``largest_free`` can be found out.
        """
        largest = getattr(self.inner, "largest_free", None)
        return largest is not None and int(largest) < num_tokens <= self.free_slots

    def totals(self) -> tuple[int, int, int, int]:
        """Slots used, promised, requested and held, over all rows."""
        used = promised = requested = held = 0
        for row, tokens in self._tokens.items():
            asked = self.requested(row)
            used += tokens
            promised += min(asked, self._final[row])
            requested += asked
            held += self.held(row)
        return used, promised, requested, held

    def verify(self) -> None:
        """Verify the inner allocator, if it can, and that it holds no more than the pool."""
        check = getattr(self.inner, "verify", None)
        if check is not None:
            check()
        if self.free_slots < 0:
            raise InvariantError(
                "slots held", expected=f"at most {self.capacity}", found=self.capacity - self.free_slots
            )

    def _check_room(self, row: int) -> None:
        if self.held(row) < self._tokens[row]:
            raise InvariantError("slots held", expected=f"at least {self._tokens[row]}", found=self.held(row), row=row)
