"""The step engine: an iteration a turn, in plain Python.

This is the readable statement of what an iteration is, the host of allocators, policies and latency models of the
user's own, and the recorder of block tables. The leap engine must agree with it to the bit.
"""

from __future__ import annotations

from bisect import insort

import numpy as np

from kvsim import _kernels as k
from kvsim.accounts import Accounts, Totals, check_ledger, ledger
from kvsim.allocators import OK, ContiguousAllocator, PagedAllocator
from kvsim.engine.keeper import Keeper
from kvsim.engine.setup import Setup
from kvsim.errors import InvariantError, StalledError
from kvsim.requests import IntArray

_FIELD = {name: index for index, name in enumerate(Totals._fields)}
_ITERATIONS, _SEQUENCES, _GENERATED = _FIELD["iterations"], _FIELD["sequences"], _FIELD["generated"]
_BOUND_TO = {k.BY_ARRIVALS: -1, k.BY_MEMORY: _FIELD["by_memory"], k.BY_SEQS: _FIELD["by_seqs"]}
_BOUND_TO[k.BY_BUDGET] = _FIELD["by_budget"]

# slots used, promised, requested, held, blocked; requests running
IDLE_RATES = (0,) * 6


class Seat:
    """A running request. In iteration i it holds ``offset + i`` tokens; its last token comes in iteration ``last``."""

    __slots__ = ("_step", "final", "last", "offset", "request", "row")

    def __init__(self, step: Step, request: int, row: int, tokens: int, final: int) -> None:
        self._step = step
        self.request = request
        self.row = row
        self.final = final
        self.offset = tokens - step.iteration
        self.last = final - self.offset

    def __lt__(self, other: Seat) -> bool:
        return self.request < other.request

    @property
    def tokens(self) -> int:
        """Tokens held in the present iteration."""
        return min(self.final, self.offset + self._step.iteration)


class Step:
    """A server that is run an iteration at a time.

    Parameters
    ----------
    setup : Setup
        The run as settled before it starts.
    """

    name = "step"

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.allocator = setup.allocator
        self.scheduler = setup.scheduler
        self.now = self.until = self.iteration = 0
        self.busy = False
        stream = setup.stream
        self.arrival: list[int] = stream.arrival_ns.tolist()
        self.prompt: list[int] = stream.prompt.tolist()
        self.output: list[int] = stream.output.tolist()
        self.status: list[int] = setup.statuses().tolist()
        self.outcome: list[list[int]] = [self._blank() for _ in self.arrival]
        self.head = self.arrived = self.waiting = 0
        self.next_arrival = self.arrival[0] if self.arrival else k.FOREVER
        self.preempted: list[int] = []
        self.running: list[Seat] = []
        self.admitted: list[Seat] = []
        self.completed: list[int] = []
        self.free_rows = list(range(setup.max_seqs - 1, -1, -1))
        self.prefill = self.context = 0
        self.next_last = self.batch_end = k.FOREVER
        self.rates = IDLE_RATES
        self.bound = k.BY_ARRIVALS
        self.digests: IntArray = np.zeros(2, dtype=np.int64)
        self.keeper = Keeper(self, setup.marks_ns, setup.bins)
        self._backlog = k.BEFORE_WINDOW if setup.backlog else k.NO_BACKLOG
        self._target = -(-self.status.count(k.PENDING) // 10)
        self._max_seqs, self._max_batched = setup.max_seqs, setup.max_batched
        self._keep_free = setup.keep_free
        self._headroom = setup.headroom
        self._rows: IntArray | None = None
        self._static = setup.scheduler.is_static

    @property
    def finished(self) -> int:
        """Requests finished so far."""
        return self.keeper.values[_FIELD["finished"]]

    # --- the loop ---

    def advance(self, horizon: int, budget: int) -> int:
        """Run up to a time, or until someone has to be told something; say which (see ``_kernels.advance``)."""
        while True:
            if self.busy:
                if self.until > horizon:
                    return k.SLEEPING
                self.end()
                if self.completed:
                    return k.COMPLETED
            if budget <= 0:
                return k.PAUSED
            if self.now >= horizon:
                return k.REACHED
            budget -= 1
            if not self.begin():
                if self.head == len(self.arrival):
                    return k.IDLE
                if self.arrival[self.head] > horizon:
                    return k.REACHED
                self.now = self.arrival[self.head]
                self.keeper.accrue(self.now, self.rates, -1)

    def begin(self) -> bool:
        """Begin an iteration: growth, admission, and how long it will last. False: there is nothing to do."""
        if self.next_arrival <= self.now:
            self.arrive(self.now)
        evicted = self.grow()
        self.admitted = []
        padded = self.context + self.prefill + len(self.running)
        self.prefill = 0
        if evicted:
            self.bound = k.BY_MEMORY
        if evicted or (self._static and self.running):
            head = self.waiting_head() if self.waiting else None
        else:
            head = self.admit()
        if not self.running:
            return self._nothing_runs(evicted)
        if head is None:
            self._queue_empty()
        used, promised, requested, held = self.allocator.totals()
        if self._static:
            self.context = 0 if self.admitted else padded
        else:
            self.context = used - self.prefill
        batch = len(self.running)
        if self._static:
            self.bound = self._static_bound(head)
        self.rates = (used, promised, requested, held, self._blocked(head), batch)
        self.until = self.now + self.setup.latency(batch, self.prefill, self.context)
        self.busy = True
        if self.setup.check:
            self._check(used)
        if self.setup.observe is not None:
            self.setup.observe(self)
        return True

    def _static_bound(self, head: int | None) -> int:
        """What keeps the head out of a static batch: the pool, or the size that was asked for."""
        if head is None:
            return k.BY_ARRIVALS
        return k.BY_MEMORY if self.scheduler.static_batch is None else k.BY_SEQS

    def _nothing_runs(self, evicted: int) -> bool:
        """Begin again if the last running request has just been evicted; rest if nobody waits.

        Raises
        ------
        StalledError
            Somebody waits, and the empty pool does not take them.
        """
        self.rates = IDLE_RATES
        head = self.waiting_head()
        if head is None:
            return False
        if evicted:
            return self.begin()
        needed = self.prompt[head] + self.outcome[head][k.PROGRESS]
        raise StalledError(head, needed=needed, free=self.allocator.free_slots)

    def end(self) -> None:
        """End an iteration: accounts, first tokens, completions."""
        keeper = self.keeper
        keeper.accrue(self.until, self.rates, _BOUND_TO[self.bound])
        self.now = self.until
        self.busy = False
        values = keeper.values
        values[_ITERATIONS] += 1
        values[_SEQUENCES] += len(self.running)
        values[_GENERATED] += len(self.growing()) if self._static else len(self.running)
        for seat in self.admitted:
            if self.outcome[seat.request][k.PROGRESS] == 0:
                self.outcome[seat.request][k.FIRST_TOKEN] = self.now
        if self.iteration == self.next_last:
            self.complete()
        self.iteration += 1

    # --- growth ---

    def growing(self) -> list[Seat]:
        """Running requests that get a token in this iteration: all but the finished members of a static batch."""
        if not self._static:
            return self.running
        return [seat for seat in self.running if seat.last >= self.iteration]

    def grow(self) -> int:
        """Give every running request the slot that it needs in this iteration; return how many had to go for it."""
        evicted = 0
        while self.running:
            before = self._digest_before() if self.setup.digesting else []
            if self.allocator.append(self.rows(), 1):
                self._verify()
                self._digest_growth(before)
                break
            self.evict(self.running[self.scheduler.victim(self.running)])
            evicted += 1
        return evicted

    def rows(self) -> IntArray:
        """Rows of the growing requests in (arrival, index) order."""
        if self._rows is None or self._static:
            self._rows = np.array([seat.row for seat in self.growing()], dtype=np.int64)
        return self._rows

    def evict(self, seat: Seat) -> None:
        """Evict a running request: its blocks are freed, its progress is kept, it waits to be recomputed."""
        self.running.remove(seat)
        self._rows = None
        outcome = self.outcome[seat.request]
        outcome[k.PREEMPTED] += 1
        outcome[k.PROGRESS] = seat.offset + self.iteration - self.prompt[seat.request]
        self.keeper.values[_FIELD["preemptions"]] += 1
        insort(self.preempted, seat.request)
        self.waiting += 1
        self._release(seat)
        self._find_next_last()

    # --- admission ---

    def waiting_head(self) -> int | None:
        """The request at the head of the queue. Preempted ones, being older, lead."""
        if self.preempted:
            return self.preempted[0]
        while self.head < len(self.status) and self.status[self.head] != k.PENDING:
            self.head += 1
        if self.head < len(self.arrival) and self.arrival[self.head] <= self.now:
            return self.head
        return None

    def admit(self) -> int | None:
        """Admit from the head of the queue, without skipping, while memory and the caps allow it; return who is left.

        A static batch is formed in the same way from what waits now, and padded to its longest prompt.
        """
        decoding, longest = len(self.running), 0
        self.bound = k.BY_ARRIVALS
        request = self.waiting_head() if self.waiting else None
        while request is not None:
            tokens = self.prompt[request] + self.outcome[request][k.PROGRESS]
            if len(self.running) >= self._max_seqs:
                self.bound = k.BY_SEQS
                break
            over = decoding + self.prefill + tokens > self._max_batched
            if over and self.running and not self._static:
                self.bound = k.BY_BUDGET
                break
            if not self.seat(request, tokens):
                self.bound = k.BY_MEMORY
                break
            self.prefill += tokens
            longest = max(longest, tokens)
            request = self.waiting_head() if self.waiting else None
        if self._static:
            self.prefill = len(self.running) * longest
            self.batch_end = max((seat.last for seat in self.running), default=k.FOREVER)
        return request

    def seat(self, request: int, tokens: int) -> bool:
        """Admit a request if there is memory for it."""
        row = self.free_rows[-1]
        final = self.prompt[request] + self.output[request] - 1
        running = len(self.running)
        keep_free = self._keep_free + self._headroom * running if running else 0
        if self.allocator.reserve(row, tokens, final, keep_free) != OK:
            return False
        self.free_rows.pop()
        seat = Seat(self, request, row, tokens, final)
        insort(self.running, seat)
        self._rows = None
        self.admitted.append(seat)
        self.next_last = min(self.next_last, seat.last)
        self._leave_queue(request, tokens)
        self._verify()
        self._digest_admission(seat)
        return True

    def _leave_queue(self, request: int, tokens: int) -> None:
        self.waiting -= 1
        self.keeper.values[_FIELD["admissions"]] += 1
        if self.preempted:
            self.preempted.pop(0)
            self.outcome[request][k.RECOMPUTED_TOKENS] += tokens
            self.keeper.values[_FIELD["recomputed"]] += tokens
        else:
            self.head += 1
            self.outcome[request][k.ADMITTED] = self.now

    # --- completion ---

    def complete(self) -> None:
        """Let go of the requests whose last token has come; in a static batch, of all when the longest is done."""
        kept = []
        for seat in self.running:
            if self.iteration == (self.batch_end if self._static else seat.last):
                self.outcome[seat.request][k.FINISH] = self.now
                self.status[seat.request] = k.DONE
                self.keeper.values[_FIELD["finished"]] += 1
                self._release(seat)
                if self.setup.awaited:
                    self.completed.append(seat.request)
            else:
                kept.append(seat)
        self.running = kept
        self._rows = None
        self._find_next_last(after=self.iteration)
        if self._backlog == k.BEFORE_WINDOW and self.keeper.values[_FIELD["finished"]] >= self._target:
            self._backlog = k.IN_WINDOW
            self.keeper.mark()

    def _release(self, seat: Seat) -> None:
        self.allocator.free(seat.row)
        self.free_rows.append(seat.row)
        self._verify()

    def _find_next_last(self, after: int = -1) -> None:
        self.next_last = min((seat.last for seat in self.running if seat.last > after), default=k.FOREVER)

    # --- arrivals ---

    def submit(self, prompt: int, output: int, at: int) -> int:
        """Enter a request that a client sends at a time; return its index."""
        self.arrival.append(at)
        self.prompt.append(prompt)
        self.output.append(output)
        self.status.append(self.setup.status_of(prompt, output))
        self.outcome.append(self._blank())
        self.next_arrival = self.arrival[self.arrived]
        return len(self.arrival) - 1

    def arrive(self, until: int) -> int:
        """Count the requests that came by a time as waiting; return how long they have waited in all, in ns."""
        waited = 0
        while self.next_arrival <= until:
            if self.status[self.arrived] == k.PENDING:
                self.waiting += 1
                waited += until - self.next_arrival
            self.arrived += 1
            self.next_arrival = self.arrival[self.arrived] if self.arrived < len(self.arrival) else k.FOREVER
        return waited

    @staticmethod
    def _blank() -> list[int]:
        return [-1, -1, -1, 0, 0, 0]

    # --- accounts and checks ---

    def close(self, until: int) -> Accounts:
        """Bring the accounts forward to the end of the run and return them."""
        busy = self.busy
        self.keeper.accrue(until, self.rates if busy else IDLE_RATES, _BOUND_TO[self.bound] if busy else -1)
        return self.keeper.close()

    def columns(self) -> tuple[IntArray, IntArray]:
        """Arrivals and lengths, shape (3, n), and outcomes, shape (7, n), as in ``_kernels.Run``."""
        outcome = np.array(self.outcome, dtype=np.int64).reshape(len(self.arrival), 6).T
        requests = np.array([self.arrival, self.prompt, self.output], dtype=np.int64)
        return requests, np.vstack([outcome, np.array(self.status, dtype=np.int64)])

    def _blocked(self, head: int | None) -> int:
        """Free slots lost to external fragmentation: all, if they would do for the head but for their place."""
        if head is None or isinstance(self.allocator, PagedAllocator):
            return 0
        final = self.prompt[head] + self.output[head] - 1
        tokens = self.prompt[head] + self.outcome[head][k.PROGRESS]
        return self.allocator.free_slots if self.allocator.blocked(tokens, final) else 0

    def _queue_empty(self) -> None:
        """Note the first instant at which the queue of a backlog is empty."""
        if self._backlog == k.IN_WINDOW:
            self.keeper.mark()
        if self._backlog:
            self._backlog = k.AFTER_WINDOW

    def _check(self, used: int) -> None:
        """Hold the ledger to its sum, and the slots used to the tokens of the running requests."""
        totals = Totals(*self.rates, *[0] * 11)
        allocator = self.allocator
        check_ledger(
            ledger(totals, capacity=allocator.capacity, lost=allocator.lost_slots), capacity=allocator.capacity
        )
        tokens = sum(seat.tokens for seat in self.running)
        if tokens != used:
            raise InvariantError("slots used", expected=tokens, found=used)

    def _verify(self) -> None:
        if self.setup.check >= 2:
            self.allocator.verify()

    # --- the hash of all tables ---

    def _digest(self, request: int, first: int, entries: IntArray) -> None:
        """Hash the entries of a row's table from logical block ``first`` on (or one extent)."""
        k.digest_entries(self.digests, self.iteration, request, first, entries)

    def _digest_before(self) -> list[int]:
        return self._blocks_held(self.allocator) if isinstance(self.allocator, PagedAllocator) else []

    def _blocks_held(self, pool: PagedAllocator) -> list[int]:
        """Blocks of every running request."""
        held: list[int] = pool.state.rows[k.BLOCKS, [seat.row for seat in self.running]].tolist()
        return held

    def _digest_growth(self, before: list[int]) -> None:
        if before and isinstance(self.allocator, PagedAllocator):
            for seat, have, now in zip(self.running, before, self._blocks_held(self.allocator), strict=True):
                if now > have:
                    self._digest(seat.request, have, self.allocator.table(seat.row)[have:])

    def _digest_admission(self, seat: Seat) -> None:
        if not self.setup.digesting:
            return
        if isinstance(self.allocator, PagedAllocator):
            self._digest(seat.request, 0, self.allocator.table(seat.row))
        elif isinstance(self.allocator, ContiguousAllocator):
            start, size = self.allocator.extent(seat.row)
            self._digest(seat.request, size, np.array([start]))
