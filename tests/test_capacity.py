"""Capacities: knees of known curves, of queues with a closed form, and what the command says."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.errors import ConfigError
from kvsim.experiments.capacity import ALWAYS, HOLDS, NEVER, capacity, find_knee, knee_of, run_at
from kvsim.latency import Affine
from kvsim.objective import Objective
from kvsim.scenario import Scenario

GOAL = Objective({"normalized-latency": 0.5})


@given(st.floats(1e-3, 1e4), st.floats(1e-3, 1e4), st.floats(0.5, 8), st.floats(1.05, 4))
def test_the_knee_of_a_power_law(knee: float, start: float, power: float, factor: float) -> None:
    found = find_knee(lambda rate: (rate / knee) ** power, start, factor=factor, tolerance=0.01)
    assert found.status == HOLDS
    assert found.rate == pytest.approx(knee, rel=1e-6)  # the interpolation is exact for one
    assert found.low <= knee * (1 + 1e-12)
    assert found.high / found.low <= 1.01 * (1 + 1e-12)


def test_a_jump_is_bracketed() -> None:
    found = find_knee(lambda rate: 0.5 if rate < 3 else math.inf, 1.0, tolerance=0.001)
    assert found.low < 3 <= found.high
    assert found.rate == found.low


def test_no_knee() -> None:
    never = find_knee(lambda rate: 1 + rate, 1.0, lowest=0.1)
    assert (never.status, never.points[0]) == (NEVER, (0.1, 1.1))
    always = find_knee(lambda rate: 0.5, 1.0, highest=100)
    assert (always.status, always.points[-1][0]) == (ALWAYS, 100)


@pytest.mark.parametrize("limits", [{}, {"ttft-p98": 1.0}, {"ttft-p99": 0.0}, {"tpot-p99": math.nan}])
def test_objectives_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Objective(limits)


def test_several_limits_hold_together() -> None:
    result = run_at(Scenario(requests=100), "paged", 1.0, 0, Affine(20e6, 0, 0, 0))
    summary = result.summary()
    latency, tpot = summary["normalized_latency_s"], summary["tpot_s"]["p99"]
    both = Objective({"normalized-latency": latency * 2, "tpot-p99": tpot / 3})
    assert both.load(result) == pytest.approx(3)


def test_a_full_batch_serves_what_its_iterations_allow() -> None:
    """Iterations of 30 ms whatever is in them: 7 requests at once are 7 / (mean output x 30 ms) a second."""
    scenario = Scenario(duration=3600, workload="alpaca")
    top = 7 / (58.6 * 0.030)
    knee = knee_of(scenario, "max", 0, Affine(30e6, 0, 0, 0), GOAL, start=top)
    assert 0.9 * top < knee.rate < 1.05 * top


def test_capacities_and_multiples_are_paired() -> None:
    scenario = Scenario(duration=600, allocator=["max", "paged"], seeds=3)
    found = capacity(scenario, GOAL)
    ours, theirs = found.of("paged"), found.of("max")
    assert ours is not None
    assert theirs is not None
    multiple = found.multiples()["max"]
    assert multiple.value == pytest.approx(ours.rate.value / theirs.rate.value)
    assert theirs.binds == "memory"
    assert multiple.value > 2


def test_what_binds_is_what_more_of_helps() -> None:
    capped = Scenario(duration=600, allocator=["paged"], max_num_seqs=4)
    system = capacity(capped, GOAL).systems[0]
    assert system.binds == "sequences"
    assert abs(system.elasticities["memory"]) < 0.05
    roomy = capped.model_copy(update={"max_num_seqs": 1024, "max_num_batched_tokens": 20_000, "pool": "400GiB"})
    assert capacity(roomy, GOAL).systems[0].binds == "compute"


def test_unmeetable_and_always_met() -> None:
    scenario = Scenario(requests=50, allocator=["paged"])
    assert capacity(scenario, Objective({"normalized-latency": 0.001})).systems[0].status == NEVER
    assert capacity(scenario, Objective({"tpot-p99": 1000.0})).systems[0].status == ALWAYS


def test_a_backlog_has_no_rate() -> None:
    with pytest.raises(ConfigError, match="backlog"):
        capacity(Scenario(backlog=True), GOAL)
