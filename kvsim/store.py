"""Results on disk: one SQLite file, a row a simulation, written as they finish.

The file is in write-ahead mode: a process that is killed loses at most what it had not written, several processes may
write to it, and a reader never sees half a row. A key is a hash of everything that a simulation depends on. What was
computed by another version of kvsim is not mixed with this one's.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import kvsim
from kvsim.errors import ConfigError, KvsimError

BUSY_SECONDS = 60.0
_APPLICATION = 0x6B767369  # "kvsi": what the header of the file says it belongs to
_AT_ONCE = 500

Answer = TypeVar("Answer")


class StoreError(KvsimError, OSError):
    """The file cannot be written or read; what was in it before is still there."""


class Store:
    """Rows by key, in a file.

    Parameters
    ----------
    path : str or Path
        Made if it is not there; its folder has to be.

    Raises
    ------
    ConfigError
        The file is something else, or another version of kvsim wrote it.
    StoreError
        It cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise ConfigError(f"store {self.path}: a file in a folder that exists is expected")
        try:
            self._connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"store {self.path}: {error}") from None
        try:
            self._guarded(self._open)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the rows that are there, by key."""
        wanted = list(keys)
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            part = wanted[start : start + _AT_ONCE]
            marks = ",".join("?" * len(part))
            query = f"SELECT key, row FROM results WHERE key IN ({marks})"
            found.update((key, json.loads(row)) for key, row in self._guarded(self._rows, query, part))
        return found

    def put(self, key: str, row: dict[str, Any]) -> None:
        """Write a row for good, over one that is there.

        Raises
        ------
        StoreError
            The disk is full, or cannot be written to.
        """
        text = json.dumps(row, allow_nan=False)
        self._guarded(self._connection.execute, "INSERT OR REPLACE INTO results VALUES (?, ?)", (key, text))

    def __len__(self) -> int:
        return int(self._guarded(self._rows, "SELECT count(*) FROM results", [])[0][0])

    def _rows(self, query: str, values: list[str]) -> list[tuple[Any, ...]]:
        with closing(self._connection.execute(query, values)) as cursor:
            return cursor.fetchall()

    def _open(self) -> None:
        """Make the tables where there are none, and hold the file to having been written by this version."""
        connection = self._connection
        connection.execute("BEGIN")  # both are read from one state: another process may be making the tables right now
        empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        connection.execute("COMMIT")
        if not empty and application != _APPLICATION:
            raise ConfigError(f"store {self.path}: a database, but none of kvsim's; name another file")
        self._write_ahead()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute("CREATE TABLE IF NOT EXISTS made_by (version TEXT NOT NULL)")
            connection.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, row TEXT NOT NULL)")
            made_by = connection.execute("SELECT version FROM made_by").fetchone()
            if made_by is None:
                connection.execute("INSERT INTO made_by VALUES (?)", (kvsim.__version__,))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if made_by is not None and made_by[0] != kvsim.__version__:
            raise ConfigError(
                f"store {self.path} was written by kvsim {made_by[0]}, this is {kvsim.__version__}: name another file, "
                f"or go on with that version"
            )

    def _write_ahead(self) -> None:
        """Switch to write-ahead mode, which SQLite refuses without waiting while another process does the same."""
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > until:
                    raise
                time.sleep(0.05)
            else:
                return

    def _guarded(self, operation: Callable[..., Answer], *arguments: Any) -> Answer:
        """Do something to the file; say what went wrong in one line."""
        try:
            return operation(*arguments)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "") in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
                raise ConfigError(f"store {self.path}: not a database of kvsim's ({error})") from None
            raise StoreError(f"store {self.path}: {error}; what it held is still there") from None
