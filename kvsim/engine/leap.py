"""The leap engine: the same server as the step engine's, compiled, and jumping over mere growth."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kvsim import _kernels as k
from kvsim.accounts import Accounts, Ledger, Totals, check_ledger, ledger
from kvsim.allocators import ContiguousAllocator, PagedAllocator
from kvsim.engine.keeper import FIRST_WIDTH_NS
from kvsim.engine.setup import Setup
from kvsim.errors import ConfigError, StalledError
from kvsim.latency import Built
from kvsim.requests import IntArray
from kvsim.scheduler import latest


def can_leap(setup: Setup) -> str | None:
    """Return why a run needs the step engine, or None if it does not."""
    if not isinstance(setup.allocator, PagedAllocator | ContiguousAllocator):
        return "the allocator is not built in"
    if not isinstance(setup.latency, Built):
        return "the latency model is not built in"
    if setup.scheduler.victim is not latest:
        return "the victim policy is not built in"
    if setup.observe is not None:
        return "every iteration is observed"
    return None


class Leap:
    """A server run by compiled code.

    Parameters
    ----------
    setup : Setup
        The run as settled before it starts.

    Raises
    ------
    ConfigError
        Something in the run is not built in.
    """

    name = "leap"

    def __init__(self, setup: Setup) -> None:
        reason = can_leap(setup)
        if reason is not None:
            raise ConfigError(f"engine 'leap' cannot run this: {reason}; use 'step' or 'auto'")
        assert isinstance(setup.latency, Built)
        self.setup = setup
        allocator = setup.allocator
        self._blocks = allocator.state if isinstance(allocator, PagedAllocator) else _no_blocks()
        self._extents = allocator.state if isinstance(allocator, ContiguousAllocator) else _no_extents()
        rows = setup.max_seqs
        stream = setup.stream
        outcome = np.zeros((7, len(stream)), dtype=np.int64)
        outcome[: k.FINISH + 1] = -1
        outcome[k.STATUS] = setup.statuses()
        marks = setup.marks_ns or ([k.FOREVER] * 2 if setup.backlog else [])
        self._run = k.Run(
            clock=np.zeros(k.CLOCK_LENGTH, dtype=np.int64),
            latency=setup.latency.parameters,
            requests=np.array([stream.arrival_ns, stream.prompt, stream.output], dtype=np.int64).reshape(3, -1),
            outcome=outcome,
            order=np.zeros(rows, dtype=np.int64),
            seats=np.zeros((5, rows), dtype=np.int64),
            free_rows=np.arange(rows - 1, -1, -1, dtype=np.int64),
            preempted=np.zeros(rows, dtype=np.int64),
            completed=np.zeros(rows, dtype=np.int64),
            due=self._empty_lists(),
            account=np.zeros(k.ACCOUNT_LENGTH, dtype=np.int64),
            timeline=np.zeros((setup.bins + 1, k.ACCOUNT_LENGTH), dtype=np.int64),
            marks=np.array(marks, dtype=np.int64),
            marked=np.zeros((len(marks), k.ACCOUNT_LENGTH), dtype=np.int64),
            digests=np.zeros(2, dtype=np.int64),
        )
        self._set_clock(rows)

    def _empty_lists(self) -> IntArray:
        """Lists of the rows that need a block in iterations of each phase, shape (3, block size), all empty."""
        allocator = self.setup.allocator
        phases = allocator.block_size if isinstance(allocator, PagedAllocator) else 1
        due = np.full((3, phases), k.NIL, dtype=np.int64)
        due[k.NUM_DUE] = 0
        return due

    def _set_clock(self, rows: int) -> None:
        setup, clock = self.setup, self._run.clock
        allocator = setup.allocator
        clock[k.PLACED] = int(not isinstance(allocator, PagedAllocator))
        clock[k.GROWS] = int(allocator.reservation == "on-demand")
        if setup.scheduler.is_static:
            clock[k.STATIC] = k.BY_MEMORY if setup.scheduler.static_batch is None else k.BY_SEQS
        clock[k.MAX_SEQS] = rows
        clock[k.MAX_BATCHED] = setup.max_batched
        clock[k.KEEP_FREE] = setup.keep_free // (allocator.block_size if isinstance(allocator, PagedAllocator) else 1)
        clock[k.HEADROOM] = setup.scheduler.headroom
        clock[k.AWAITED] = int(setup.awaited)
        clock[k.DIGESTING] = int(setup.digesting)
        clock[k.NEXT_LAST] = k.FOREVER
        clock[k.KNOWN] = self._run.requests.shape[1]
        clock[k.FREE_ROWS] = rows
        clock[k.WIDTH] = FIRST_WIDTH_NS
        clock[k.BACKLOG] = k.BEFORE_WINDOW if setup.backlog else k.NO_BACKLOG
        clock[k.NEXT_MARK] = len(self._run.marks) if setup.backlog else 0
        clock[k.TARGET] = -(-int(np.count_nonzero(self._run.outcome[k.STATUS] == k.PENDING)) // 10)
        k.next_edge(self._run)

    @property
    def now(self) -> int:
        """End of the last iteration, in ns."""
        return int(self._run.clock[k.NOW])

    @property
    def until(self) -> int:
        """End of the present iteration, in ns."""
        return int(self._run.clock[k.UNTIL])

    @property
    def finished(self) -> int:
        """Requests finished so far."""
        return int(self._run.account[k.FINISHED])

    @property
    def busy(self) -> bool:
        """Whether an iteration has begun and not ended."""
        return bool(self._run.clock[k.BUSY])

    @property
    def completed(self) -> list[int]:
        """Requests that are done and waited for, not told yet."""
        return [int(request) for request in self._run.completed[: self._run.clock[k.NUM_COMPLETED]]]

    @completed.setter
    def completed(self, requests: list[int]) -> None:
        assert not requests
        self._run.clock[k.NUM_COMPLETED] = 0

    @property
    def digests(self) -> list[int]:
        """The two halves of the hash of every table or extent ever held."""
        return [int(half) for half in self._run.digests]

    def advance(self, horizon: int, budget: int) -> int:
        """Run up to a time, or until someone has to be told something; say which (see ``_kernels.advance``)."""
        if self.setup.check:
            budget = 1
        with _said_if_it_takes_long():
            state = int(k.advance(self._blocks, self._extents, self._run, horizon, budget))
        if state == k.STALLED:
            self._stalled()
        if self.setup.check:
            self._check()
        return state

    def submit(self, prompt: int, output: int, at: int) -> int:
        """Enter a request that a client sends at a time; return its index."""
        run, request = self._run, int(self._run.clock[k.KNOWN])
        if request == run.requests.shape[1]:
            more = max(64, request)
            run = run._replace(
                requests=np.pad(run.requests, ((0, 0), (0, more))), outcome=np.pad(run.outcome, ((0, 0), (0, more)))
            )
            self._run = run
        run.requests[:, request] = at, prompt, output
        run.outcome[: k.FINISH + 1, request] = -1
        run.outcome[k.STATUS, request] = self.setup.status_of(prompt, output)
        run.clock[k.KNOWN] += 1
        return request

    def close(self, until: int) -> Accounts:
        """Bring the accounts forward to the end of the run and return them."""
        k.sync(self._blocks, self._extents, self._run)
        paged = self._run.clock[k.PLACED] == k.PAGED
        k.accrue((self._blocks if paged else self._extents).counts, self._run, until)
        if self._run.clock[k.EDGE] == self._run.clock[k.ACCOUNTED]:
            k.copy_accounts(self._run)
        return _accounts(self._run)

    def columns(self) -> tuple[IntArray, IntArray]:
        """Arrivals and lengths, shape (3, n), and outcomes, shape (7, n), as in ``_kernels.Run``."""
        known = int(self._run.clock[k.KNOWN])
        return self._run.requests[:, :known], self._run.outcome[:, :known]

    def _stalled(self) -> None:
        request = int(k.waiting_head(self._run))
        needed = int(self._run.requests[k.PROMPT, request] + self._run.outcome[k.PROGRESS, request])
        raise StalledError(request, needed=needed, free=self.setup.allocator.free_slots)

    def _check(self) -> None:
        """Hold the ledger of this instant to its sum; at level 2 the whole state to its invariants."""
        k.sync(self._blocks, self._extents, self._run)
        allocator = self.setup.allocator
        blocked = int(self._run.clock[k.BLOCKED]) if self.busy else 0
        totals = Totals(*allocator.totals(), blocked, *[0] * 12)
        split: Ledger = ledger(totals, capacity=allocator.capacity, lost=allocator.lost_slots)
        check_ledger(split, capacity=allocator.capacity)
        if self.setup.check >= 2:
            allocator.verify()


@contextmanager
def _said_if_it_takes_long() -> Iterator[None]:
    """Say on stderr what the first call in a process is doing, where it has to compile the kernels."""
    if not hasattr(k.advance, "signatures") or k.advance.signatures:
        yield
        return
    text = "kvsim: compiling kernels, which takes some seconds and happens once"
    timer = threading.Timer(1.0, lambda: print(text, file=sys.stderr, flush=True))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _no_blocks() -> k.Blocks:
    """Stand in for a paged pool in a run that has none: kernels take both kinds, so that there is one of each."""
    return PagedAllocator(1, 1, max_model_len=1, num_rows=1).state


def _no_extents() -> k.Extents:
    """Stand in for a contiguous pool in a run that has none."""
    return ContiguousAllocator(1, reservation="max", max_model_len=1, num_rows=1).state


def _accounts(run: k.Run) -> Accounts:
    """Read the accounts of a compiled run."""
    clock = run.clock
    bins = int(clock[k.NUM_BINS_DONE])
    num_marked = int(clock[k.NEXT_MARK])
    if clock[k.BACKLOG]:
        num_marked = int(np.count_nonzero(run.marks != k.FOREVER))
    paged = clock[k.PLACED] == k.PAGED
    return Accounts(
        end_ns=int(clock[k.ACCOUNTED]),
        total=_totals(run.account, paged),
        width_ns=int(clock[k.WIDTH]),
        timeline=[_totals(row, paged) for row in run.timeline[: bins + 1]],
        marks_ns=[int(mark) for mark in run.marks[:num_marked]],
        marked=[_totals(row, paged) for row in run.marked[:num_marked]],
    )


def _totals(row: Any, paged: bool) -> Totals:
    """Join the limbs of a row of accounts; a paged pool holds just what is requested."""
    values = row.tolist()
    counters = 2 * k.NUM_INTEGRALS
    integrals = [values[i] * k.LIMB + values[i + 1] for i in range(0, counters, 2)]
    totals = Totals(*integrals, *values[counters:])
    return totals._replace(requested=totals.held) if paged else totals
