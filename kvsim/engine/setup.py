"""What both steppers are given: the run as settled before it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvsim import _kernels as k
from kvsim.allocators import Allocator, ContiguousAllocator, PagedAllocator
from kvsim.engine.foreign import ForeignAllocator
from kvsim.latency import LatencyModel
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


def wrapped(allocator: Allocator | KnownAllocator, capacity: int | None) -> KnownAllocator:
    """Return a built-in allocator as it is, and one of the user's own in a wrapper that derives the ledger."""
    if isinstance(allocator, PagedAllocator | ContiguousAllocator | ForeignAllocator):
        return allocator
    return ForeignAllocator(allocator, capacity)
