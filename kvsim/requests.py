"""What is served: a stream of requests, as columns.

A ``RequestStream`` is the one thing that the engine takes, whether it was read from a trace or drawn from a
workload. It is sorted by arrival; ties keep the order in which they came, and the position in the stream is the
request's index everywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from kvsim.errors import ConfigError, TraceError

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

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PrefixIds):
            return NotImplemented
        same = self.block_size == other.block_size and np.array_equal(self.offsets, other.offsets)
        return same and np.array_equal(self.ids, other.ids)

    __hash__ = None  # type: ignore[assignment]

    def take(self, order: IntArray) -> PrefixIds:
        """Return the ids of the requests ``order``, in that order."""
        counts = np.diff(self.offsets)[order]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return PrefixIds(self.ids[np.repeat(self.offsets[order], counts) + within], offsets, self.block_size)


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
    timed : bool
        False where the trace has no timestamps: ``arrival_ns`` is all 0 then, and means nothing.
    skipped : dict of str to int
        Rows of the file that are not here, by reason.
    """

    arrival_ns: IntArray
    prompt: IntArray
    output: IntArray
    source: str = "columns"
    notices: tuple[str, ...] = field(default=())
    prefix: PrefixIds | None = None
    timed: bool = True
    skipped: dict[str, int] = field(default_factory=dict)

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
        if self.prefix is not None and len(self.prefix) != len(self):
            raise TraceError(f"{len(self.prefix)} rows of prefix ids for {len(self)} requests", file=self.source)

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def span_ns(self) -> int:
        """Time from the first arrival to the last, in nanoseconds."""
        return int(self.arrival_ns[-1] - self.arrival_ns[0]) if len(self) else 0

    def as_backlog(self) -> RequestStream:
        """Return the same requests in the same order, all waiting at time 0."""
        return replace(self, arrival_ns=np.zeros(len(self), dtype=np.int64), timed=True)

    def at_rate(self, rate_per_s: float, seed: int = 0) -> RequestStream:
        """Return the same requests at another mean rate.

        Parameters
        ----------
        rate_per_s : float
            Requests a second over the whole span.
        seed : int
            Of the Poisson arrivals that requests without timestamps get; timestamps are stretched instead.

        Raises
        ------
        ConfigError
            The rate is not positive, or all requests arrive at the same time.
        """
        if not 0 < rate_per_s < float("inf"):
            raise ConfigError(f"the rate must be a positive number of requests/s, not {rate_per_s}")
        if not self.timed:
            gaps = np.random.default_rng(seed).standard_exponential(len(self))
            times = np.cumsum(gaps) / rate_per_s * NS_PER_S
        elif self.span_ns:
            scale = len(self) / rate_per_s * NS_PER_S / self.span_ns
            times = (self.arrival_ns - self.arrival_ns[0]) * scale
        else:
            raise ConfigError(f"{self.source}: all requests arrive at once: no factor gives them a rate")
        return replace(self, arrival_ns=np.rint(times).astype(np.int64), timed=True)

    def first_seconds(self, duration_s: float) -> RequestStream:
        """Return the requests that arrive in the first seconds, counted from the first arrival."""
        if not len(self):
            return self
        last = int(self.arrival_ns[0]) + round(duration_s * NS_PER_S)
        return self.head(int(np.searchsorted(self.arrival_ns, last, side="right")))

    def head(self, num_requests: int) -> RequestStream:
        """Return the first ``num_requests`` requests."""
        n = min(num_requests, len(self))
        prefix = self.prefix
        if prefix is not None:
            prefix = prefix.take(np.arange(n))
        return replace(
            self,
            arrival_ns=self.arrival_ns[:n],
            prompt=self.prompt[:n],
            output=self.output[:n],
            prefix=prefix,
        )
