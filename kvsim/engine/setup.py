"""What both steppers are given: the run as settled before it starts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvsim import _kernels as k
from kvsim.allocators import Allocator, ContiguousAllocator, PagedAllocator
from kvsim.engine.foreign import ForeignAllocator
from kvsim.errors import ConfigError
from kvsim.latency import Built, LatencyModel
from kvsim.requests import IntArray, RequestStream
from kvsim.scheduler import Scheduler

KnownAllocator = PagedAllocator | ContiguousAllocator | ForeignAllocator


@dataclass
class Setup:
    """A run as settled before it starts.

    Attributes
    ----------
    stream : RequestStream
        Requests known beforehand; clients may submit more.
    allocator : PagedAllocator, ContiguousAllocator or ForeignAllocator
        The pool, empty.
    scheduler : Scheduler
        When requests run.
    latency : callable
        How long an iteration lasts.
    max_model_len : int
        Longest request, prompt and output.
    backlog : bool
        All requests wait at time 0.
    awaited : bool
        Someone waits for completions.
    marks_ns : list of int
        Instants at which the accounts are copied.
    check : int
        0: the end only; 1: the ledger every iteration; 2: ``verify()`` after every operation too.
    digesting : bool
        Hash every block table or extent that is ever held.
    bins : int
        Most bins of the timeline.
    observe : callable, optional
        Called by the step engine with itself when an iteration has begun.
    """

    stream: RequestStream
    allocator: KnownAllocator
    scheduler: Scheduler
    latency: LatencyModel
    max_model_len: int
    backlog: bool = False
    awaited: bool = False
    marks_ns: list[int] = field(default_factory=list)
    check: int = 0
    digesting: bool = False
    bins: int = 512
    observe: Callable[[Any], None] | None = None

    def __post_init__(self) -> None:
        allocator = self.allocator
        if not isinstance(self.latency, Built):
            self.latency = checked_latency(self.latency)
        if isinstance(allocator, ForeignAllocator):
            return
        rows, longest = allocator.state.rows.shape[1], int(allocator.state.counts[k.MAX_LEN])
        together = self.max_seqs if self.awaited else min(self.max_seqs, len(self.stream))
        if together > rows:
            raise ConfigError(f"up to {together} sequences may run together, the allocator has {rows} rows")
        if self.max_model_len > longest:
            raise ConfigError(f"max_model_len is {self.max_model_len}, the allocator was made for {longest}")
        if allocator.free_slots != allocator.capacity - allocator.lost_slots:
            raise ConfigError("the allocator holds something already: a run starts with an empty pool")

    @property
    def max_seqs(self) -> int:
        """Most sequences in an iteration."""
        return self.scheduler.sequences(self.allocator.capacity, self.max_model_len)

    @property
    def max_batched(self) -> int:
        """Token budget of an iteration."""
        return self.scheduler.batched_tokens(self.max_model_len)

    @property
    def keep_free(self) -> int:
        """Slots of the watermark."""
        if isinstance(self.allocator, ContiguousAllocator):
            return 0
        return self.scheduler.kept_free(self.allocator.capacity, self.allocator.block_size)

    @property
    def headroom(self) -> int:
        """Slots kept free at admission for every sequence that runs already."""
        if isinstance(self.allocator, ContiguousAllocator):
            return 0
        return self.scheduler.headroom * self.allocator.block_size

    def statuses(self) -> IntArray:
        """Status of every request on arrival, shape (n,): pending, or rejected and why."""
        stream = self.stream
        total = stream.prompt + stream.output
        status = np.full(len(stream), k.PENDING, dtype=np.int64)
        servable = self.allocator.servable(stream.prompt, total - 1)
        status[~servable] = k.TOO_LARGE
        status[total > self.max_model_len] = k.TOO_LONG
        return status

    def status_of(self, prompt: int, output: int) -> int:
        """Status on arrival of one request that a client submits."""
        if prompt < 1 or output < 1:
            return k.MALFORMED
        if prompt + output > self.max_model_len:
            return k.TOO_LONG
        return k.PENDING if self.allocator.can_serve(prompt, prompt + output - 1) else k.TOO_LARGE


def checked_latency(latency: LatencyModel) -> LatencyModel:
    """Return a latency model of the user's own that is held to whole nanoseconds, at least 1."""

    @functools.wraps(latency, updated=())
    def held(batch: int, prefill_tokens: int, context_tokens: int) -> int:
        ns = latency(batch, prefill_tokens, context_tokens)
        if not isinstance(ns, int | float | np.number) or not 1 <= ns < k.FOREVER:
            found = f"latency({batch}, {prefill_tokens}, {context_tokens}) is {ns!r}"
            raise ConfigError(f"{found}; nanoseconds, at least 1, are expected")
        return round(float(ns)) if not isinstance(ns, int) else ns

    return held


def wrapped(allocator: Allocator | KnownAllocator, capacity: int | None) -> KnownAllocator:
    """Return a built-in allocator as it is, and one of the user's own in a wrapper that derives the ledger."""
    if isinstance(allocator, PagedAllocator | ContiguousAllocator | ForeignAllocator):
        return allocator
    return ForeignAllocator(allocator, capacity)
