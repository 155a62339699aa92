"""The columns that a reader fills, and the request stream that they become."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from kvsim.errors import TraceError
from kvsim.requests import NS_PER_S, IntArray, PrefixIds, RequestStream

EPOCH_NS = 10**9 * NS_PER_S  # later than this (2001) a time counts from 1970, not from the start of the trace

BATCH = 1000  # rows that are held as Python objects at a time
Row = tuple[int, int, int, Sequence[int]]  # arrival in ns, prompt, output, prefix ids

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
    overlaid : bool
        Rows are not meant to come in order of time: sorting them is worth no notice.
    """

    def __init__(self, source: str, *, timed: bool, block_size: int | None = None, overlaid: bool = False) -> None:
        self.source, self.timed, self.block_size, self.overlaid = source, timed, block_size, overlaid
        self.arrival, self.prompt, self.output = Growing(), Growing(), Growing()
        self.ids, self.id_counts = Growing(), Growing()
        self.skipped: Counter[str] = Counter()
        self.notices: list[str] = []

    def skip(self, why: str, count: int = 1) -> None:
        """Count rows that are left out."""
        if count:
            self.skipped[why] += count

    def add(
        self,
        arrival_ns: npt.ArrayLike,
        prompt: npt.ArrayLike,
        output: npt.ArrayLike,
        ids: npt.ArrayLike = (),
        id_counts: npt.ArrayLike | None = None,
    ) -> None:
        """Append rows; those without a prompt or without an answer are left out and counted.

        Parameters
        ----------
        arrival_ns, prompt, output : int array, shape (n,)
            The rows.
        ids : int array
            Prefix ids of all rows, one row after the other.
        id_counts : int array, shape (n,), optional
            How many ids each row has; none where absent.
        """
        numbers = [np.asarray(column, dtype=np.int64) for column in (arrival_ns, prompt, output)]
        silent, empty = numbers[2] < 1, (numbers[2] >= 1) & (numbers[1] < 1)
        keep = ~(silent | empty)
        self.skip(NO_OUTPUT, int(silent.sum()))
        self.skip(NO_PROMPT, int(empty.sum()))
        whole = bool(keep.all())
        for column, values in zip((self.arrival, self.prompt, self.output), numbers, strict=True):
            column.extend(values if whole else values[keep])
        if self.block_size is not None:
            counts = np.zeros(len(keep), dtype=np.int64) if id_counts is None else np.asarray(id_counts)
            all_ids = np.asarray(ids, dtype=np.int64)
            self.ids.extend(all_ids if whole else all_ids[np.repeat(keep, counts)])
            self.id_counts.extend(counts if whole else counts[keep])

    def fill(self, rows: Iterable[Row]) -> None:
        """Append rows that come one at a time."""
        rows = iter(rows)
        while piece := list(itertools.islice(rows, BATCH)):
            arrival, prompt, output, ids = zip(*piece, strict=True)
            flat = np.fromiter(itertools.chain.from_iterable(ids), dtype=np.int64)
            self.add(arrival, prompt, output, flat, [len(row) for row in ids])

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
            if not self.overlaid:
                self.notices.append(f"timestamps go backwards at {backwards:,} rows: sorted by time")
        if len(arrival) and arrival[0] >= EPOCH_NS:
            arrival = arrival - arrival[0]
        return arrival, order

    def _prefix(self, order: IntArray | None) -> PrefixIds | None:
        if self.block_size is None:
            return None
        prefix = PrefixIds(self.ids.values, np.concatenate([[0], np.cumsum(self.id_counts.values)]), self.block_size)
        return prefix if order is None else prefix.take(order)
