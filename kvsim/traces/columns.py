"""The columns that a reader fills, and the request stream that they become."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from kvsim.errors import TraceError
from kvsim.requests import NS_PER_S, IntArray, PrefixIds, RequestStream

EPOCH_NS = 10**9 * NS_PER_S  # later than this (2001) a time counts from 1970, not from the start of the trace

NO_OUTPUT, NO_PROMPT, MALFORMED = "no output tokens", "no prompt tokens", "malformed row"


class Growing:
    """An int64 array that grows at its end: room is doubled, so that appending costs O(1) a number."""

    def __init__(self) -> None:
        self._room: IntArray = np.empty(1024, dtype=np.int64)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def extend(self, values: npt.ArrayLike) -> None:
        """Append numbers."""
        new = np.asarray(values, dtype=np.int64)
        end = self._size + len(new)
        if end > len(self._room):
            larger = np.empty(max(end, 2 * len(self._room)), dtype=np.int64)
            larger[: self._size] = self._room[: self._size]
            self._room = larger
        self._room[self._size : end] = new
        self._size = end

    @property
    def values(self) -> IntArray:
        """The numbers so far, not copied."""
        return self._room[: self._size]


class Columns:
    """What is read from a trace, row by row or many rows at a time.

    Parameters
    ----------
    source : str
        The file, for messages.
    timed : bool
        The trace says when requests arrive.
    block_size : int, optional
        Tokens that one prefix id stands for, where the trace has ids.
    """

    def __init__(self, source: str, *, timed: bool, block_size: int | None = None) -> None:
        self.source, self.timed, self.block_size = source, timed, block_size
        self.arrival, self.prompt, self.output = Growing(), Growing(), Growing()
        self.ids, self.id_counts = Growing(), Growing()
        self.skipped: Counter[str] = Counter()
        self.notices: list[str] = []

    def skip(self, why: str, count: int = 1) -> None:
        """Count rows that are left out."""
        if count:
            self.skipped[why] += count

    def add(self, arrival_ns: npt.ArrayLike, prompt: npt.ArrayLike, output: npt.ArrayLike) -> None:
        """Append rows; those without a prompt or without an answer are left out and counted."""
        arrival, prompt, output = np.atleast_1d(arrival_ns), np.atleast_1d(prompt), np.atleast_1d(output)
        silent, empty = output < 1, (output >= 1) & (prompt < 1)
        keep = ~(silent | empty)
        self.skip(NO_OUTPUT, int(silent.sum()))
        self.skip(NO_PROMPT, int(empty.sum()))
        whole = bool(keep.all())
        for column, values in ((self.arrival, arrival), (self.prompt, prompt), (self.output, output)):
            column.extend(values if whole else values[keep])

    def add_one(self, arrival_ns: int, prompt: int, output: int, ids: list[int] | None = None) -> None:
        """Append one row with its prefix ids."""
        before = len(self.prompt)
        self.add(arrival_ns, prompt, output)
        if self.block_size is not None and len(self.prompt) > before:
            self.ids.extend(ids or [])
            self.id_counts.extend([len(ids or [])])

    def stream(self) -> RequestStream:
        """Return the rows as a stream: sorted by time, with notices of what was done to them."""
        if not len(self.prompt):
            left_out = "; ".join(f"{count:,} rows: {why}" for why, count in self.skipped.items())
            raise TraceError(f"holds no request{f' ({left_out})' if left_out else ''}", file=self.source)
        arrival, order = self._sorted_times()
        prompt, output, prefix = self.prompt.values, self.output.values, self._prefix(order)
        if order is not None:
            prompt, output = prompt[order], output[order]
        notices = [f"{count:,} rows skipped: {why}" for why, count in self.skipped.items()] + self.notices
        return RequestStream(
            arrival,
            prompt,
            output,
            source=self.source,
            notices=tuple(notices),
            prefix=prefix,
            timed=self.timed,
            skipped=dict(self.skipped),
        )

    def _sorted_times(self) -> tuple[IntArray, IntArray | None]:
        arrival = self.arrival.values
        order = None
        backwards = int(np.count_nonzero(np.diff(arrival) < 0))
        if backwards:
            order = np.argsort(arrival, kind="stable")
            arrival = arrival[order]
            self.notices.append(f"timestamps go backwards at {backwards:,} rows: sorted by time")
        if len(arrival) and arrival[0] >= EPOCH_NS:
            arrival = arrival - arrival[0]
            self.notices.append("times count from the first request")
        return arrival, order

    def _prefix(self, order: IntArray | None) -> PrefixIds | None:
        if self.block_size is None:
            return None
        prefix = PrefixIds(self.ids.values, np.concatenate([[0], np.cumsum(self.id_counts.values)]), self.block_size)
        return prefix if order is None else prefix.take(order)
