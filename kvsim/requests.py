"""What is served: a stream of requests, as columns.

A ``RequestStream`` is the one thing that the engine takes, whether it was read from a trace or drawn from a
workload. It is sorted by arrival; ties keep the order in which they came, and the position in the stream is the
request's index everywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from kvsim.errors import TraceError

IntArray = npt.NDArray[np.int64]

NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class PrefixIds:
    """Prefix-block ids of every request, as one ragged column.

    Attributes
    ----------
    ids : int64 array, shape (total ids,)
        Ids of all requests, one after the other.
    offsets : int64 array, shape (n + 1,)
        Request ``i`` has ``ids[offsets[i]:offsets[i + 1]]``.
    block_size : int
        Tokens that one id stands for; the last block of a prompt may be partial.
    """

    ids: IntArray
    offsets: IntArray
    block_size: int


@dataclass(frozen=True)
class RequestStream:
    """Requests in order of arrival.

    Attributes
    ----------
    arrival_ns : int64 array, shape (n,)
        Arrival times in nanoseconds, not decreasing.
    prompt, output : int64 array, shape (n,)
        Lengths in tokens, at least 1. The output length counts the first token.
    source : str
        Where the requests come from, for people.
    notices : tuple of str
        What a reader should know: rows skipped, times sorted.
    prefix : PrefixIds or None
        Prefix-block ids, where the trace has them.
    """

    arrival_ns: IntArray
    prompt: IntArray
    output: IntArray
    source: str = "columns"
    notices: tuple[str, ...] = field(default=())
    prefix: PrefixIds | None = None

    def __post_init__(self) -> None:
        for name in ("arrival_ns", "prompt", "output"):
            column = np.ascontiguousarray(getattr(self, name), dtype=np.int64)
            column.setflags(write=False)
            object.__setattr__(self, name, column)
        if not len(self.arrival_ns) == len(self.prompt) == len(self.output):
            lengths = (len(self.arrival_ns), len(self.prompt), len(self.output))
            raise TraceError(f"columns differ in length: {lengths}", file=self.source)
        if len(self) and (self.arrival_ns[0] < 0 or np.any(np.diff(self.arrival_ns) < 0)):
            raise TraceError("arrival times must not decrease, nor start below 0", file=self.source)
        for name in ("prompt", "output"):
            column = getattr(self, name)
            if len(column) and column.min() < 1:
                where = int(np.argmax(column < 1))
                message = f"request {where} has {column[where]} tokens; at least 1 is expected"
                raise TraceError(message, file=self.source, field=name)

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def span_ns(self) -> int:
        """Time from the first arrival to the last, in nanoseconds."""
        return int(self.arrival_ns[-1] - self.arrival_ns[0]) if len(self) else 0

    def as_backlog(self) -> RequestStream:
        """Return the same requests in the same order, all waiting at time 0."""
        return replace(self, arrival_ns=np.zeros(len(self), dtype=np.int64))

    def head(self, num_requests: int) -> RequestStream:
        """Return the first ``num_requests`` requests."""
        n = min(num_requests, len(self))
        prefix = self.prefix
        if prefix is not None:
            prefix = PrefixIds(prefix.ids[: prefix.offsets[n]], prefix.offsets[: n + 1], prefix.block_size)
        return replace(
            self,
            arrival_ns=self.arrival_ns[:n],
            prompt=self.prompt[:n],
            output=self.output[:n],
            prefix=prefix,
        )
