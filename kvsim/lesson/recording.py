"""What the step engine did, kept as stays: who was where, from which step to which.

No state is stored. A request that is admitted, grows by a token an iteration and leaves is one ``Stay``; the state of
any step follows from the stays that cover it, without the steps before. That keeps a page small, and makes a step back
the same picture as the step forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kvsim import _kernels as k
from kvsim.accounts import ZERO, Ledger, ledger
from kvsim.allocators import ContiguousAllocator, PagedAllocator
from kvsim.engine import simulate
from kvsim.engine.step import Seat, Step
from kvsim.errors import ConfigError
from kvsim.latency import Affine, LatencyModel
from kvsim.requests import IntArray, RequestStream
from kvsim.scheduler import Scheduler

# What a slot may be, as the parts of the ledger are ordered.
KINDS = Ledger._fields
USED, RESERVED, INTERNAL, EXTERNAL, FREE = range(len(KINDS))
NOBODY = -1

# What a page holds and an eye can follow.
MAX_SLOTS = 32_768
MAX_STEPS = 5_000
MAX_REQUESTS = 1_000

# In a lesson every iteration lasts one tick: it looks at memory, not at time, and so pools stay side by side.
TICK_NS = 1_000_000_000
ONE_TICK = Affine(float(TICK_NS), 0, 0, 0, source="the lesson: every iteration lasts one tick")


def slots_of(table: IntArray, block_size: int) -> IntArray:
    """Translate every logical slot of a sequence through its block table.

    Parameters
    ----------
    table : int64 array, shape (blocks,)
        Physical block of each logical block.
    block_size : int
        Slots a block.

    Returns
    -------
    int64 array, shape (blocks * block_size,)
        Physical slot of each logical slot: ``table[i // block_size] * block_size + i % block_size``.
    """
    return np.asarray(np.add.outer(np.asarray(table, dtype=np.int64) * block_size, np.arange(block_size)).ravel())


def kinds_of(tokens: int, final: int, requested: int, held: int) -> IntArray:
    """Say what each slot of a request is, in logical order, shape (held,).

    Parameters
    ----------
    tokens : int
        Slots that hold a token.
    final : int
        Slots that will hold one at the end.
    requested, held : int
        Slots asked for, and occupied.
    """
    promised = min(final, requested)
    counts = [tokens, promised - tokens, requested - promised, held - requested]
    return np.repeat(np.array([USED, RESERVED, INTERNAL, EXTERNAL], dtype=np.int64), counts)


@dataclass
class Stay:
    """A request in memory, from the step of its admission to the one at which it has gone.

    Attributes
    ----------
    request : int
        Its index.
    first, end : int
        The first step at which it is there, and the first at which it no longer is; ``end`` is -1 while it stays.
    tokens, final : int
        Slots that hold a token at the first step, and that will at the end.
    requested : int
        Slots asked for, unrounded; where blocks come on demand, 0: what is held is what was asked for.
    extent : tuple of int, optional
        First slot and length (contiguous placement).
    blocks, taken : list of int
        Physical blocks in logical order, and the step at which each was taken (paged placement).
    finished : bool
        It left because it was done.
    """

    request: int
    first: int
    tokens: int
    final: int
    requested: int = 0
    extent: tuple[int, int] | None = None
    blocks: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    end: int = -1
    finished: bool = False

    def covers(self, step: int) -> bool:
        """Whether the request is in memory at a step."""
        return self.first <= step and (self.end < 0 or step < self.end)

    def tokens_at(self, step: int) -> int:
        """Slots that hold a token at a step."""
        return min(self.final, self.tokens + step - self.first)

    def table_at(self, step: int) -> list[int]:
        """Physical blocks in logical order at a step."""
        return [block for block, taken in zip(self.blocks, self.taken, strict=True) if taken <= step]


@dataclass(frozen=True)
class State:
    """One step of a recording, slot by slot.

    Attributes
    ----------
    step : int
        Its index.
    owner, kind : int64 arrays, shape (capacity,)
        Request that holds each slot (-1: nobody), and what the slot is (index into ``KINDS``).
    tables : dict of int to list of int
        Block table of each running request; with contiguous placement its first slot and length.
    waiting : list of int
        The queue, its head first.
    ledger : Ledger
        The five parts, in slots, as the engine had them.
    """

    step: int
    owner: IntArray
    kind: IntArray
    tables: dict[int, list[int]]
    waiting: list[int]
    ledger: Ledger


@dataclass(frozen=True)
class Recording:
    """A run of the step engine that can be looked at step by step.

    Attributes
    ----------
    allocator, placement : str
        What ran.
    capacity, lost, block_size : int
        Slots of the pool; those that fill no whole block; slots a block (0 for contiguous placement).
    arrivals_ns, prompts, outputs : list of int
        A request each.
    rejected : set of int
        Requests that were refused on arrival.
    starts_ns : list of int
        When each step begins. A step is an iteration, or a time of rest.
    stays : list of Stay
        In the order of admission.
    ledgers : list of Ledger
        One a step.
    blocked : list of bool
        Whether free slots are lost because no extent serves the head of the queue.
    events : list of list of tuple
        What happened as each step began: (what, numbers ...). See ``Recorder``.
    """

    allocator: str
    placement: str
    capacity: int
    lost: int
    block_size: int
    arrivals_ns: list[int]
    prompts: list[int]
    outputs: list[int]
    rejected: set[int]
    starts_ns: list[int]
    stays: list[Stay]
    ledgers: list[Ledger]
    blocked: list[bool]
    events: list[list[tuple[str | int, ...]]]

    def __len__(self) -> int:
        return len(self.starts_ns)

    def running(self, step: int) -> list[Stay]:
        """Stays that cover a step, by request."""
        return sorted((stay for stay in self.stays if stay.covers(step)), key=lambda stay: stay.request)

    def waiting(self, step: int) -> list[int]:
        """Return the queue at a step, its head first: who has arrived, is not in memory and not done."""
        now = self.starts_ns[step]
        gone = {stay.request for stay in self.stays if stay.finished and stay.end <= step}
        gone |= {stay.request for stay in self.running(step)} | self.rejected
        return [i for i, arrival in enumerate(self.arrivals_ns) if arrival <= now and i not in gone]

    def slots(self, stay: Stay, step: int) -> IntArray:
        """Physical slots of a stay in logical order, shape (held,)."""
        if stay.extent is not None:
            return np.arange(stay.extent[0], sum(stay.extent))
        return slots_of(np.array(stay.table_at(step), dtype=np.int64), self.block_size)

    def state(self, step: int) -> State:
        """Return a step, slot by slot.

        Parameters
        ----------
        step : int
            From 0 to ``len(self) - 1``.
        """
        owner = np.full(self.capacity, NOBODY, dtype=np.int64)
        kind = np.full(self.capacity, EXTERNAL if self.blocked[step] else FREE, dtype=np.int64)
        kind[self.capacity - self.lost :] = EXTERNAL
        tables = {}
        for stay in self.running(step):
            slots = self.slots(stay, step)
            owner[slots] = stay.request
            kind[slots] = kinds_of(stay.tokens_at(step), stay.final, stay.requested or len(slots), len(slots))
            tables[stay.request] = stay.table_at(step) if stay.extent is None else list(stay.extent)
        return State(step, owner, kind, tables, self.waiting(step), self.ledgers[step])


class Recorder:
    """Watches a step engine (``simulate(..., observe=recorder)``) and keeps what changes.

    Events are tuples of a word and numbers: ``arrive r``, ``reject r``, ``admit r slots``, ``readmit r tokens``,
    ``block r physical logical``, ``evict asked evicted free`` (asked: -1 where no single request did), ``finish r
    slots``, ``short r needed free``, ``external r needed free largest``, ``kept r needed free``, ``cap r``,
    ``budget r``, ``after r`` (nobody is admitted when somebody was evicted), ``rest``.

    Parameters
    ----------
    most_steps : int
        Steps after which the run is too long to draw.
    observe : callable, optional
        Called with the step engine after each of its iterations has been taken down.
    """

    def __init__(self, most_steps: int = MAX_STEPS, observe: Callable[[Step], None] | None = None) -> None:
        self.most_steps = most_steps
        self._observe = observe
        self.starts_ns: list[int] = []
        self.stays: list[Stay] = []
        self.ledgers: list[Ledger] = []
        self.blocked: list[bool] = []
        self.events: list[list[tuple[str | int, ...]]] = []
        self._open: dict[int, Stay] = {}
        self._until = self._arrived = 0
        self._head: tuple[int, str] | None = None
        self._step: Step | None = None

    def __call__(self, step: Step) -> None:
        """Take down the iteration that has just begun."""
        self._step = step
        if self._until < step.now:
            self._rest(self._until)
        self._begin(step.now)
        self._leave(step)
        self._grow(step)
        for seat in step.admitted:
            self._admit(step, seat)
        self._wait(step)
        self._until = step.until
        used, promised, requested, held, blocked = step.rates[:5]
        totals = ZERO._replace(used=used, promised=promised, requested=requested, held=held, blocked=blocked)
        self.ledgers.append(ledger(totals, capacity=step.allocator.capacity, lost=step.allocator.lost_slots))
        self.blocked.append(blocked > 0)
        if self._observe is not None:
            self._observe(step)

    def close(self) -> None:
        """Take down the rest after the last iteration, if the run came to its end."""
        if self._step is not None and not self._step.running:
            self._rest(self._until)

    def _say(self, *event: str | int) -> None:
        self.events[-1].append(event)

    def _begin(self, now: int) -> None:
        if len(self.starts_ns) == self.most_steps:
            raise ConfigError(
                f"the run takes more than {self.most_steps:,} iterations, the most that can be drawn: "
                "lower requests, or set stop_at"
            )
        self.starts_ns.append(now)
        self.events.append([])
        self._arrive(now)

    def _rest(self, now: int) -> None:
        """Take down that nothing runs."""
        self._begin(now)
        for stay in list(self._open.values()):
            self._finish(stay)
        self._say("rest")
        assert self._step is not None
        capacity, lost = self._step.allocator.capacity, self._step.allocator.lost_slots
        self.ledgers.append(Ledger(0, 0, 0, lost, capacity - lost))
        self.blocked.append(False)

    def _arrive(self, now: int) -> None:
        step = self._step
        assert step is not None
        while self._arrived < len(step.arrival) and step.arrival[self._arrived] <= now:
            rejected = step.status[self._arrived] in (k.TOO_LONG, k.TOO_LARGE, k.MALFORMED)
            self._say("reject" if rejected else "arrive", self._arrived)
            self._arrived += 1

    def _end(self, stay: Stay) -> None:
        stay.end = len(self.starts_ns) - 1
        del self._open[stay.request]

    def _held(self, stay: Stay) -> int:
        assert self._step is not None
        return stay.extent[1] if stay.extent else len(stay.blocks) * _block_size(self._step.allocator)

    def _finish(self, stay: Stay) -> None:
        self._end(stay)
        stay.finished = True
        self._say("finish", stay.request, self._held(stay))

    def _leave(self, step: Step) -> None:
        """Close the stays of who has gone: the finished first, as the engine does, then the evicted."""
        again = {seat.request for seat in step.admitted}
        seated = {seat.request for seat in step.running} - again
        gone = [stay for request, stay in sorted(self._open.items()) if request not in seated]
        for stay in gone:
            if step.status[stay.request] == k.DONE:
                self._finish(stay)
        self._evict(step, [stay for stay in gone if not stay.finished])

    def _evict(self, step: Step, evicted: list[Stay]) -> None:
        """Say for each evicted request, the latest first, who asked for a block that was not there."""
        if not evicted or not isinstance(step.allocator, PagedAllocator):
            return
        last, size = len(self.starts_ns) - 2, step.allocator.block_size
        held = {request: len(stay.blocks) for request, stay in self._open.items()}
        full = [i for i, stay in sorted(self._open.items()) if stay.tokens_at(last) == held[i] * size]
        free = step.allocator.capacity // size - sum(held.values())
        for stay in reversed(evicted):
            asked = full[free] if free < len(full) else NOBODY
            self._say("evict", asked, stay.request, free)
            free += held[stay.request]
            full = [request for request in full if request != stay.request]
            self._end(stay)

    def _grow(self, step: Step) -> None:
        if not isinstance(step.allocator, PagedAllocator):
            return
        for seat in step.running:
            stay = self._open.get(seat.request)
            if stay is None:
                continue
            for block in step.allocator.table(seat.row).tolist()[len(stay.blocks) :]:
                self._say("block", seat.request, block, len(stay.blocks))
                stay.blocks.append(block)
                stay.taken.append(len(self.starts_ns) - 1)

    def _admit(self, step: Step, seat: Seat) -> None:
        now = len(self.starts_ns) - 1
        stay = Stay(seat.request, now, seat.tokens, seat.final)
        if isinstance(step.allocator, PagedAllocator):
            stay.blocks = step.allocator.table(seat.row).tolist()
            stay.taken = [now] * len(stay.blocks)
        elif isinstance(step.allocator, ContiguousAllocator):
            stay.extent = step.allocator.extent(seat.row)
            stay.requested = step.allocator.requested(seat.row)
        self.stays.append(stay)
        self._open[seat.request] = stay
        if seat.tokens > step.prompt[seat.request]:
            self._say("readmit", seat.request, seat.tokens)
        else:
            self._say("admit", seat.request, self._held(stay))

    def _wait(self, step: Step) -> None:
        """Say why the head of the queue waits, when that is news."""
        head = step.waiting_head()
        if head is None:
            self._head = None
            return
        event = self._why(step, head)
        if (head, event[0]) != self._head:
            self._say(*event)
        self._head = (head, str(event[0]))

    def _why(self, step: Step, head: int) -> tuple[str | int, ...]:
        if any(event[0] == "evict" for event in self.events[-1]):
            return ("after", head)
        if step.bound != k.BY_MEMORY:
            return ("cap" if step.bound == k.BY_SEQS else "budget", head)
        allocator, free = step.allocator, step.allocator.free_slots
        assert isinstance(allocator, PagedAllocator | ContiguousAllocator)
        tokens = step.prompt[head] + step.outcome[head][k.PROGRESS]
        final = step.prompt[head] + step.output[head] - 1
        if isinstance(allocator, ContiguousAllocator):
            needed = allocator.asked(tokens, final)
            if step.rates[4]:
                return ("external", head, needed, free, allocator.largest_free)
            return ("short", head, needed, free)
        size, counts = _block_size(allocator), allocator.state.counts
        asked = int(k.reservation(counts[k.RESERVATION], tokens, final, counts[k.MAX_LEN]))
        needed = -(-asked // size) * size
        return ("short" if needed > free else "kept", head, needed, free)


def _block_size(allocator: object) -> int:
    return allocator.block_size if isinstance(allocator, PagedAllocator) else 0


def record(
    stream: RequestStream,
    allocator: PagedAllocator | ContiguousAllocator,
    *,
    latency: LatencyModel = ONE_TICK,
    scheduler: Scheduler | None = None,
    max_model_len: int = 2048,
    backlog: bool = False,
    stop_at_s: float | None = None,
    most_steps: int = MAX_STEPS,
    check: int = 0,
    observe: Callable[[Step], None] | None = None,
) -> Recording:
    """Run requests through an allocator with the step engine and keep every step.

    Parameters
    ----------
    stream : RequestStream
        At most ``MAX_REQUESTS``.
    allocator : PagedAllocator or ContiguousAllocator
        An empty pool of at most ``MAX_SLOTS``.
    latency : callable
        How long an iteration lasts; one tick of a second by default.
    scheduler, max_model_len, backlog, stop_at_s, check
        As in ``simulate``.
    most_steps : int
        Steps after which the run is too long to draw.
    observe : callable, optional
        Called with the step engine after each of its iterations has been taken down.

    Raises
    ------
    ConfigError
        There is too much to draw; the message says what to lower.
    """
    if not isinstance(allocator, PagedAllocator | ContiguousAllocator):
        raise ConfigError(
            f"{type(allocator).__name__} does not say where a request lies: only kvsim's own can be drawn"
        )
    if allocator.capacity > MAX_SLOTS:
        raise ConfigError(f"{allocator.capacity:,} slots are too many to draw: at most {MAX_SLOTS:,}; lower the pool")
    if len(stream) > MAX_REQUESTS:
        raise ConfigError(f"{len(stream):,} requests are too many to draw: at most {MAX_REQUESTS:,}; lower requests")
    recorder = Recorder(most_steps, observe)
    result = simulate(
        stream,
        allocator,
        latency=latency,
        scheduler=scheduler,
        max_model_len=max_model_len,
        backlog=backlog,
        stop_at_s=stop_at_s,
        engine="step",
        check=check,
        observe=recorder,
    )
    recorder.close()
    if not recorder.starts_ns:
        raise ConfigError("nothing ran, so there is nothing to draw: every request was rejected, or none came in time")
    requests = result.requests
    return Recording(
        result.allocator,
        result.placement,
        result.capacity,
        result.lost,
        _block_size(allocator),
        requests.arrival.tolist(),
        requests.prompt.tolist(),
        requests.output.tolist(),
        {i for i, status in enumerate(requests.status.tolist()) if status in (k.TOO_LONG, k.TOO_LARGE, k.MALFORMED)},
        recorder.starts_ns,
        recorder.stays,
        recorder.ledgers,
        recorder.blocked,
        recorder.events,
    )
