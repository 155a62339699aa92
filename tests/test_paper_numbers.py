"""What the simulator says of the vLLM paper's own runs, and closed forms that it must meet.

Published: Kwon et al., SOSP 2023, Figures 2 and 13 (OPT-13B on an A100-40GB, 15,728 slots).
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from runs import POOL, run

from kvsim.generate import load_workload
from kvsim.latency import latency_for
from kvsim.models import get_device, get_model
from kvsim.results import Result

SEEDS = range(5)
# used, reserved, internal, external & free, in percent of the slots
FIGURE_2 = {"max": (20.4, 13.3, 57.3, 8.9), "pow2": (26.8, 17.9, 13.6, 41.6), "oracle": (38.2, 25.2, 0.0, 36.6)}
FIGURE_13 = {
    "sharegpt": {"max": 7.0, "pow2": 9.81, "oracle": 13.62},
    "alpaca": {"max": 7.0, "pow2": 43.24, "oracle": 72.75},
}
RATES = {"sharegpt": 2.0, "alpaca": 30.0}
# the shares of `max` in closed form, for the joint distribution of prompt and output that this project fits
CLOSED_FORM = (19.4, 12.8, 59.0)


@functools.cache
def an_hour(workload: str, allocator: str, seed: int) -> Result:
    stream = load_workload(workload).sample(duration_s=3600, rate_per_s=RATES[workload], seed=seed)
    return run(stream, allocator, latency=latency_for(get_model("OPT-13B"), get_device("A100-40GB")))


@functools.cache
def backlog(workload: str, seed: int, num_requests: int = 7200) -> Result:
    stream = load_workload(workload).sample(num_requests=num_requests, backlog=True, seed=seed)
    latency = latency_for(get_model("OPT-13B"), get_device("A100-40GB"))
    return run(stream, "paged", latency=latency, backlog=True)


def mean_shares(results: list[Result]) -> np.ndarray:
    """Used, reserved, internal, external + free in percent, as Figure 2 has them."""
    shares = [r.shares for r in results]
    return 100 * np.mean([[s["used"], s["reserved"], s["internal"], s["external"] + s["free"]] for s in shares], axis=0)


@pytest.mark.parametrize("allocator", FIGURE_2)
def test_figure_2(allocator: str) -> None:
    found = mean_shares([an_hour("sharegpt", allocator, seed) for seed in SEEDS])
    # the joint distribution is not published: the paper's own internal share of `max` differs by up to 2.5 points
    tolerance = np.array([1.5, 1.5, 2.5 if allocator == "max" else 1.5, 1.5])
    assert (np.abs(found - FIGURE_2[allocator]) <= tolerance).all(), found


def test_figure_2_max_meets_its_closed_form() -> None:
    found = mean_shares([an_hour("sharegpt", "max", seed) for seed in SEEDS])
    assert (np.abs(found[:3] - CLOSED_FORM) <= 0.3).all(), found


def test_the_closed_form_follows_from_the_workload() -> None:
    """Each slot of an extent of 2048 is used, reserved or internal for so many of its iterations."""
    stream = load_workload("sharegpt").sample(num_requests=400_000, backlog=True, seed=11)
    p, o = stream.prompt.astype(float), stream.output.astype(float)
    scale = 100 * (7 * 2048 / POOL) / (2048 * o.mean())
    used = scale * (p * o + o * (o - 1) / 2).mean()
    reserved = scale * (o * (o - 1) / 2).mean()
    internal = scale * ((2048 - p - o + 1) * o).mean()
    assert np.allclose([used, reserved, internal], CLOSED_FORM, atol=0.1)


def test_figure_2_paged() -> None:
    found = mean_shares([backlog("sharegpt", seed) for seed in SEEDS])
    assert abs(found[0] - 96.3) <= 1.5


@pytest.mark.parametrize("workload", FIGURE_13)
def test_figure_13(workload: str) -> None:
    """The average over batches, an iteration each: how long they last does not matter."""
    for allocator, published in FIGURE_13[workload].items():
        found = np.mean([an_hour(workload, allocator, s).summary()["mean_batch_by_iteration"] for s in SEEDS])
        if allocator == "max":
            assert found == pytest.approx(7.0, abs=1e-3)
        else:
            assert abs(found / published - 1) <= 0.03, (allocator, found)


@pytest.mark.parametrize(("workload", "num_requests"), [("sharegpt", 7200), ("alpaca", 30_000)])
def test_slots_used_a_request(workload: str, num_requests: int) -> None:
    """With paging, the slots used a running request are E[(p + o/2) o] / E[o]: lengths weighted by time."""
    results = [backlog(workload, seed, num_requests) for seed in SEEDS]
    found = np.mean([r.summary()["used"] * r.capacity / r.summary()["mean_batch"] for r in results])
    p = np.concatenate([r.requests.prompt for r in results]).astype(float)
    o = np.concatenate([r.requests.output for r in results]).astype(float)
    assert abs(found / (((p + o / 2) * o).mean() / o.mean()) - 1) <= 0.02


def test_paged_waste_is_below_a_block_a_sequence() -> None:
    """Reserved + internal of on-demand paging: half a block a sequence on average, never a whole one."""
    for size in (4, 16, 64):
        stream = load_workload("sharegpt").sample(num_requests=2000, backlog=True, seed=5)
        summary = run(stream, "paged", backlog=True, block_size=size).summary()
        waste = (summary["reserved"] + summary["internal"]) * summary["capacity"] / summary["mean_batch"]
        assert waste < size
        assert waste == pytest.approx((size - 1) / 2, rel=0.05)
