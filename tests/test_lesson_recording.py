"""A recorded step is the engine's state at that step, cell for cell."""

from __future__ import annotations

import numpy as np
import pytest

from kvsim.allocators import ContiguousAllocator, PagedAllocator, make_allocator
from kvsim.engine.step import Step
from kvsim.errors import ConfigError
from kvsim.lesson import SCENARIOS, load_lesson
from kvsim.lesson import recording as rec
from kvsim.lesson.recording import EXTERNAL, FREE, INTERNAL, NOBODY, RESERVED, USED, record
from kvsim.requests import RequestStream
from kvsim.scheduler import Scheduler

TICK = rec.TICK_NS
SYSTEMS = [
    ("max", "buddy", 4),
    ("pow2", "buddy", 4),
    ("oracle", "buddy", 4),
    ("oracle", "first-fit", 4),
    ("oracle", "best-fit", 4),
    ("pow2", "first-fit", 4),
    ("paged", "buddy", 1),
    ("paged", "buddy", 4),
    ("paged", "buddy", 7),
    ("paged-max", "buddy", 4),
    ("paged-pow2", "buddy", 3),
    ("paged-oracle", "buddy", 4),
]


def stream_of(rows: list[tuple[int, int, int]]) -> RequestStream:
    arrival, prompt, output = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return RequestStream(arrival * TICK, prompt, output)


def random_stream(seed: int, longest: int) -> RequestStream:
    rng = np.random.default_rng(seed)
    rows = []
    for arrival in sorted(rng.integers(0, 40, 25).tolist()):
        prompt = int(rng.integers(1, longest))
        rows.append((arrival, prompt, int(rng.integers(1, longest - prompt + 2))))
    return stream_of(rows)


def cells_of(step: Step) -> tuple[list[int], list[int], list[int]]:
    """Owner and kind of every slot and the queue, from the engine's own state, slot by slot."""
    allocator = step.allocator
    allocator.verify()
    capacity = allocator.capacity
    blocked = step.rates[4] > 0
    owner, kind = [NOBODY] * capacity, [EXTERNAL if blocked else FREE] * capacity
    for slot in range(capacity - allocator.lost_slots, capacity):
        kind[slot] = EXTERNAL
    for seat in step.running:
        if isinstance(allocator, PagedAllocator):
            size = allocator.block_size
            slots = [b * size + i for b in allocator.table(seat.row).tolist() for i in range(size)]
        else:
            assert isinstance(allocator, ContiguousAllocator)
            start, length = allocator.extent(seat.row)
            slots = list(range(start, start + length))
        for logical, slot in enumerate(slots):
            assert owner[slot] == NOBODY
            owner[slot] = seat.request
            if logical < seat.tokens:
                kind[slot] = USED
            elif logical >= allocator.requested(seat.row):
                kind[slot] = EXTERNAL
            else:
                kind[slot] = RESERVED if logical < seat.final else INTERNAL
    pending = [i for i in range(step.head, step.arrived) if step.status[i] == 0]
    return owner, kind, [*step.preempted, *pending]


def held_to_the_engine(stream: RequestStream, system: tuple[str, str, int], capacity: int, longest: int) -> int:
    name, placement, size = system
    seen: dict[int, tuple[list[int], list[int], list[int]]] = {}
    ledgers = []

    def observe(step: Step) -> None:
        seen[step.now] = cells_of(step)
        ledgers.append(step.allocator.totals())

    pool = make_allocator(
        name, capacity=capacity, max_model_len=longest, max_num_seqs=16, block_size=size, placement=placement
    )
    scheduler = Scheduler(max_num_seqs=16, watermark=0.05, max_num_batched_tokens=3 * longest)
    recording = record(stream, pool, scheduler=scheduler, max_model_len=longest, check=2, observe=observe)
    for step in range(len(recording)):
        state = recording.state(step)
        assert np.bincount(state.kind, minlength=5).tolist() == list(state.ledger)
        assert sum(state.ledger) == capacity
        expected = seen.pop(recording.starts_ns[step], None)
        if expected is None:
            assert (state.owner == NOBODY).all()
            assert ("rest",) in recording.events[step]
            continue
        assert state.owner.tolist() == expected[0]
        assert state.kind.tolist() == expected[1]
        assert state.waiting == expected[2]
    assert not seen
    return sum(event[0] == "evict" for events in recording.events for event in events)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda s: "-".join(map(str, s)))
def test_every_step_is_the_engines(system: tuple[str, str, int]) -> None:
    evicted = sum(held_to_the_engine(random_stream(seed, 24), system, 71, 24) for seed in range(6))
    if system[0] == "paged":
        assert evicted > 0


@pytest.mark.parametrize("name", SCENARIOS)
def test_lessons_are_recorded_under_full_checks(name: str) -> None:
    lesson = load_lesson(name, check=2)
    assert 2 <= len(lesson.recordings) <= 3
    assert len(lesson.times_ns) <= 60
    for recording in lesson.recordings:
        assert recording.ledgers[0][4] == recording.capacity == recording.ledgers[-1][4]
        for step in range(len(recording)):
            assert np.bincount(recording.state(step).kind, minlength=5).tolist() == list(recording.ledgers[step])


def test_any_step_may_be_asked_for_in_any_order() -> None:
    recording = load_lesson("preemption").recordings[0]
    forward = [recording.state(step) for step in range(len(recording))]
    for step in reversed(range(len(recording))):
        again = recording.state(step)
        assert np.array_equal(again.owner, forward[step].owner)
        assert np.array_equal(again.kind, forward[step].kind)
        assert again.tables == forward[step].tables


# Blocks of 4; eight of them. A and B come first with 5 and 6 tokens, C and D with 3 each an iteration later; each goes
# on for several. At the fourth iteration B, C and D each have a full last block and two are free: D goes.
def test_events_of_a_hand_worked_preemption() -> None:
    stream = stream_of([(1, 5, 9), (1, 6, 9), (2, 3, 6), (2, 3, 6)])
    pool = make_allocator("paged", capacity=32, max_model_len=16, block_size=4)
    recording = record(stream, pool, scheduler=Scheduler(watermark=0), max_model_len=16)
    assert recording.events[1] == [("arrive", 0), ("arrive", 1), ("admit", 0, 8), ("admit", 1, 8)]
    assert recording.events[2] == [("arrive", 2), ("arrive", 3), ("admit", 2, 4), ("admit", 3, 4)]
    assert recording.events[3] == []
    assert recording.events[4] == [("evict", 3, 3, 2), ("block", 1, 5, 2), ("block", 2, 6, 1), ("after", 3)]
    assert recording.events[5] == [("block", 0, 7, 2), ("short", 3, 8, 0)]
    assert recording.state(5).tables == {0: [0, 1, 7], 1: [2, 3, 5], 2: [4, 6]}
    assert ("readmit", 3, 5) in recording.events[10]
    assert recording.events[-1] == [("finish", 3, 8), ("rest",)]


def test_one_request_short_of_a_block_sends_away_another() -> None:
    events = [event for events in load_lesson("preemption").recordings[0].events for event in events]
    assert ("evict", 2, 4, 0) in events


def test_figure_3_of_the_paper() -> None:
    contiguous, paged = load_lesson("figure-3").recordings
    state = contiguous.state(2)
    a, b = (np.bincount(state.kind[state.owner == request], minlength=5).tolist() for request in (0, 1))
    assert a == [8, 2, 2038, 0, 0]
    assert b == [4, 1, 507, 0, 0]
    assert paged.state(2).tables == {0: [0], 1: [1]}


def test_a_rest_between_requests_is_a_step() -> None:
    pool = make_allocator("paged", capacity=32, max_model_len=16, block_size=4)
    recording = record(stream_of([(2, 3, 2), (9, 3, 1)]), pool, max_model_len=16)
    assert [start // TICK for start in recording.starts_ns] == [0, 2, 3, 4, 9, 10]
    assert [("rest",) in events for events in recording.events] == [True, False, False, True, False, True]


def test_what_is_rejected_never_waits() -> None:
    pool = make_allocator("paged", capacity=8, max_model_len=16, block_size=4)
    recording = record(stream_of([(1, 12, 3), (1, 3, 2)]), pool, max_model_len=16)
    assert recording.rejected == {0}
    assert ("reject", 0) in recording.events[1]
    assert recording.waiting(1) == []


def test_too_much_to_draw_says_what_to_lower() -> None:
    one = stream_of([(0, 3, 2)])
    with pytest.raises(ConfigError, match=r"40,000 slots .* at most 32,768; lower the pool"):
        record(one, make_allocator("paged", capacity=40_000, max_model_len=16))
    many = stream_of([(0, 1, 1)] * 1001)
    with pytest.raises(ConfigError, match=r"1,001 requests .* at most 1,000; lower requests"):
        record(many, make_allocator("paged", capacity=64, max_model_len=16))
    pool = make_allocator("paged", capacity=64, max_model_len=48)
    with pytest.raises(ConfigError, match=r"more than 20 iterations.*lower requests"):
        record(stream_of([(0, 1, 30)]), pool, max_model_len=48, most_steps=20)
    with pytest.raises(ConfigError, match="nothing ran"):
        record(stream_of([(0, 50, 2)]), make_allocator("paged", capacity=64, max_model_len=16), max_model_len=16)
