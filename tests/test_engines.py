"""The two engines against each other, and both against exact identities."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import LATENCY, assert_same, run, sharegpt, short_stream

from kvsim import _kernels as k
from kvsim.allocators import PagedAllocator, make_allocator
from kvsim.engine import simulate
from kvsim.engine.leap import Leap
from kvsim.engine.setup import Setup
from kvsim.generate import load_workload
from kvsim.latency import Affine
from kvsim.names import ALLOCATORS, CONTIGUOUS
from kvsim.scheduler import Scheduler

BLOCK_SIZES = (1, 3, 16, 128)
LOADS = (0.5, 0.9, 1.0, 2.0)
# requests/s that an allocator serves under LATENCY, roughly: where a run is neither idle nor hopeless
CAPACITY_PER_S = {"sharegpt": 1.5, "alpaca": 10.0}
CAPS = (
    Scheduler(),
    Scheduler(watermark=0.0),
    Scheduler(max_num_seqs=8),
    Scheduler(max_num_batched_tokens=600),
    Scheduler(watermark=0.1, max_num_seqs=20, max_num_batched_tokens=900),
)
SYSTEMS = [(name, "buddy") for name, (_, paged) in ALLOCATORS.items() if paged]
SYSTEMS += [(name, place) for name, (_, paged) in ALLOCATORS.items() if not paged for place in CONTIGUOUS]


def pairwise_subset() -> list[tuple]:
    """Every value of every setting with every system at least once: the settings turn at coprime speeds."""
    sizes, loads, caps, workloads = cycle(BLOCK_SIZES), cycle(LOADS), cycle(CAPS), cycle(CAPACITY_PER_S)
    cells = []
    for turn in range(5):
        cells += [(*s, next(sizes), next(loads), next(caps), next(workloads), turn) for s in SYSTEMS]
        next(sizes), next(loads), next(workloads)
    return cells


@pytest.mark.parametrize(("name", "placement", "size", "load", "scheduler", "workload", "seed"), pairwise_subset())
def test_step_equals_leap(name, placement, size, load, scheduler, workload, seed) -> None:
    stream = load_workload(workload).sample(num_requests=300, rate_per_s=load * CAPACITY_PER_S[workload], seed=seed)
    options = {"placement": placement, "block_size": size, "scheduler": scheduler, "digest": True, "capacity": 6000}
    step = run(stream, name, engine="step", **options)
    leap = run(stream, name, engine="leap", **options)
    assert step.engine == "step"
    assert leap.engine == "leap"
    assert_same(step, leap)


@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("placement", CONTIGUOUS)
def test_step_equals_leap_static(placement: str, batch: int | None) -> None:
    scheduler = Scheduler("static", static_batch=batch)
    for stream in (sharegpt(300, rate=0.3), sharegpt(100, rate=None)):
        backlog = stream.span_ns == 0
        options = {"placement": placement, "scheduler": scheduler, "digest": True, "backlog": backlog}
        assert_same(run(stream, "max", engine="step", **options), run(stream, "max", engine="leap", **options))


@pytest.mark.parametrize("name", ALLOCATORS)
def test_step_equals_leap_backlog(name: str) -> None:
    stream = sharegpt(300, rate=None)
    options = {"backlog": True, "digest": True}
    assert_same(run(stream, name, engine="step", **options), run(stream, name, engine="leap", **options))


@pytest.mark.uncompiled
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_step_equals_leap_small_pools(data: st.DataObject) -> None:
    """Random scenarios with pools of a few blocks, where preemption is frequent; checked after every operation."""
    name, placement = data.draw(st.sampled_from(SYSTEMS))
    static = name == "max" and data.draw(st.booleans())
    block_size = data.draw(st.just(1) | st.integers(1, 20))
    stream = short_stream(
        data.draw(st.integers(1, 40)), data.draw(st.sampled_from([1, 5, 20, 200])), data.draw(st.integers(0, 99))
    )
    options = {
        "capacity": data.draw(st.integers(max(60, block_size), 400)),
        "block_size": block_size,
        "placement": placement,
        "max_model_len": data.draw(st.integers(30, 60)),
        "scheduler": Scheduler("static")
        if static
        else Scheduler(
            watermark=data.draw(st.sampled_from([0, 0.01, 0.2])),
            max_num_seqs=data.draw(st.sampled_from([1, 4, 256])),
            max_num_batched_tokens=data.draw(st.sampled_from([None, 1, 50])),
        ),
        "backlog": data.draw(st.booleans()),
        "stop_at_s": data.draw(st.sampled_from([None, 0.5, 3.0])),
        "bins": data.draw(st.sampled_from([2, 8, 64])),
        "digest": True,
        "check": 2,
    }
    step = run(stream, name, engine="step", **options)
    leap = run(stream, name, engine="leap", **options)
    assert_same(step, leap)
    assert_same(leap, run(stream, name, engine="leap", **{**options, "check": 0}, budget=data.draw(st.integers(1, 50))))


def think(env, server, user, log):
    """Three turns of a user who thinks for a while in between; some turns come at once, some are malformed."""
    rng = np.random.default_rng(user)
    for _ in range(3):
        request = yield server.submit(int(rng.integers(0, 30)), int(rng.integers(1, 25)))
        log.append((env.now, user, request))
        yield env.timeout(int(rng.integers(0, 4)) * 30_000_000)


@pytest.mark.uncompiled
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("capacity", [70, 200, 2000])
def test_blocks_of_one_slot(capacity: int, seed: int) -> None:
    """The leap hands them out row by row, the step iteration by iteration, and each row gets the same blocks."""
    options = {"capacity": capacity, "block_size": 1, "max_model_len": 60, "digest": True, "bins": 2}
    stream = short_stream(40, 20, seed)
    step = run(stream, "paged", engine="step", **options)
    assert_same(step, run(stream, "paged", engine="leap", **options))
    assert_same(step, run(stream, "paged", engine="leap", check=2, **options))  # one iteration at a time
    assert (step.accounts.total.preemptions > 0) == (capacity < 2000)


@pytest.mark.uncompiled
@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from([name for name, _ in SYSTEMS]),
    capacity=st.integers(64, 300),
    block_size=st.integers(1, 8),
    users=st.integers(1, 20),
    static=st.booleans(),
)
def test_step_equals_leap_closed_loop(name, capacity, block_size, users, static) -> None:
    results, logs = [], []
    for engine in ("step", "leap"):
        log: list = []
        result = simulate(
            clients=lambda env, server, log=log: [env.process(think(env, server, user, log)) for user in range(users)],
            allocator=make_allocator(name, capacity=capacity, max_model_len=60, block_size=block_size),
            latency=LATENCY,
            scheduler=Scheduler("static") if static and name == "max" else Scheduler(),
            max_model_len=60,
            engine=engine,
            digest=True,
            check=2,
        )
        results.append(result)
        logs.append(log)
    assert logs[0] == logs[1]
    assert len(logs[0]) == 3 * users
    assert_same(*results)


@pytest.mark.uncompiled
@pytest.mark.parametrize("budget", [1, 7])
def test_the_budget_bounds_the_work(budget: int) -> None:
    """Ordinary iterations and leapt ones count alike, so that progress shows and Ctrl-C is heard."""
    pool = PagedAllocator(200, 4, max_model_len=60)
    engine = Leap(Setup(short_stream(20, 20, 0), pool, Scheduler(), LATENCY, 60, bins=2))
    calls = 1
    while engine.advance(k.FOREVER, budget) == k.PAUSED:
        calls += 1
    total = engine.close(engine.now).total
    assert total.finished == 20
    assert total.iterations > 5 * budget
    assert calls >= total.iterations / budget


@pytest.mark.parametrize("budget", [1, 2, 7, 1000])
def test_the_budget_changes_nothing(budget: int) -> None:
    stream = sharegpt(200, rate=2.0)
    options = {"capacity": 4000, "digest": True, "engine": "leap"}
    assert_same(run(stream, "paged", **options), run(stream, "paged", **options, budget=budget))


@pytest.mark.uncompiled
@pytest.mark.parametrize("engine", ["step", "leap"])
@pytest.mark.parametrize(("name", "placement"), SYSTEMS)
def test_exact_identities(name: str, placement: str, engine: str) -> None:
    """Integral of the batch = running intervals; of waiting + running = time in the system; tokens are counted once."""
    stream = short_stream(60, 20, seed=3)
    result = run(
        stream, name, placement=placement, capacity=200, block_size=4, max_model_len=60, engine=engine, check=2
    )
    total, requests = result.accounts.total, result.requests
    assert total.running + total.waiting == int((requests.finish - requests.arrival).sum())
    if total.preemptions == 0:
        assert total.running == int((requests.finish - requests.admission).sum())
    assert total.generated == int(requests.output.sum())
    assert total.finished == len(stream)
    assert total.preemptions == int(requests.preemptions.sum())
    assert total.recomputed == int(requests.recomputed_tokens.sum())
    assert total.admissions == len(stream) + total.preemptions
    parts = result.split(total, result.accounts.end_ns)
    assert sum(parts) == result.capacity * result.accounts.end_ns
    assert min(parts) >= 0


@pytest.mark.uncompiled
def test_timeline_adds_up() -> None:
    """The accounts at the bins' edges grow to the total, and a run with few bins is one with many, merged."""
    stream = short_stream(60, 20, seed=4)
    few = run(stream, "paged", capacity=200, max_model_len=60, block_size=4, bins=8)
    many = run(stream, "paged", capacity=200, max_model_len=60, block_size=4, bins=64)
    ratio = few.accounts.width_ns // many.accounts.width_ns
    assert ratio >= 2
    assert few.accounts.timeline == many.accounts.timeline[::ratio]
    table = few.timeline()
    assert np.allclose(sum(table[part] for part in ("used", "reserved", "internal", "external", "free")), 1)


@pytest.mark.uncompiled
def test_integrals_beyond_64_bits() -> None:
    """Iterations of twelve days: slots x ns passes 2^63, and is still exact."""
    slow = Affine(1e15, 0, 0, 0)
    stream = short_stream(40, 1, seed=1)
    options = {"capacity": 10**7, "max_model_len": 60, "block_size": 16, "latency": slow}
    step = run(stream, "paged", engine="step", **options)
    leap = run(stream, "paged", engine="leap", **options)
    assert_same(step, leap)
    total = leap.accounts.total
    assert total.held > 2**63
    in_system = zip(leap.requests.finish.tolist(), leap.requests.arrival.tolist(), strict=True)
    assert total.running + total.waiting == sum(finish - arrival for finish, arrival in in_system)
