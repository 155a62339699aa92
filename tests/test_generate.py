"""Drawn streams: named workloads, seeds, rates, and what cannot be meant."""

from __future__ import annotations

import numpy as np
import pytest

from kvsim.errors import ConfigError
from kvsim.generate import load_workload, parse_workload

POOL, MAX_LEN = 15_728, 2_048


def memory_shares(prompt: np.ndarray, output: np.ndarray) -> tuple[float, float, float]:
    """Used, reserved and internal shares (percent) that `max` shows on OPT-13B while seven requests run."""
    p, o = prompt.astype(float), output.astype(float)
    held = 7 * MAX_LEN / POOL * 100
    reserved = np.mean(o * (o - 1) / 2) / (MAX_LEN * o.mean()) * held
    used = (np.mean(p * o) + np.mean(o * (o - 1) / 2)) / (MAX_LEN * o.mean()) * held
    return used, reserved, held - used - reserved


@pytest.mark.parametrize(("name", "bars"), [("sharegpt", (161.39, 338.04)), ("alpaca", (19.56, 58.60))])
def test_means_are_those_of_the_bars(name, bars):
    workload = load_workload(name)
    prompt, output = workload.length_tables()
    assert prompt.mean == pytest.approx(bars[0], abs=0.02)
    assert output.mean == pytest.approx(bars[1], abs=0.02)
    # the published means are shown beside; the bars' differ from them by what digitising costs
    assert workload.published["mean_prompt"] == pytest.approx(bars[0], rel=0.015)
    assert workload.published["mean_output"] == pytest.approx(bars[1], rel=0.005)


def test_sharegpt_a_million_draws():
    stream = load_workload("sharegpt").sample(num_requests=1_000_000, backlog=True)
    assert stream.prompt.mean() == pytest.approx(161.39, rel=0.005)
    assert stream.output.mean() == pytest.approx(338.04, rel=0.005)
    assert (stream.prompt + stream.output).max() <= 2048
    used, reserved, internal = memory_shares(stream.prompt, stream.output)
    assert (used, reserved, internal) == pytest.approx((19.4, 12.8, 59.0), abs=0.15)


def test_independent_joint_rejects():
    workload = load_workload("sharegpt").with_joint("independent")
    stream = workload.sample(num_requests=200_000, backlog=True)
    assert (stream.prompt + stream.output).max() <= 2048
    assert workload.means() == pytest.approx((stream.prompt.mean(), stream.output.mean()), rel=0.01)
    # without the rejection the closed form is 20.0 / 12.8; rejecting 0.6 % of the pairs costs long prompts and answers
    assert memory_shares(stream.prompt, stream.output)[:2] == pytest.approx((19.0, 12.6), abs=0.15)


def test_lengths_do_not_depend_on_the_rate():
    workload = load_workload("sharegpt")
    slow = workload.sample(num_requests=500, rate_per_s=0.5, seed=3)
    fast = workload.sample(num_requests=500, rate_per_s=2.0, seed=3)
    backlog = workload.sample(num_requests=500, backlog=True, seed=3)
    for stream in (fast, backlog):
        assert np.array_equal(slow.prompt, stream.prompt)
        assert np.array_equal(slow.output, stream.output)
    assert np.abs(slow.arrival_ns - 4 * fast.arrival_ns).max() <= 2  # rounding to whole nanoseconds
    assert not backlog.arrival_ns.any()


@pytest.mark.parametrize("joint", ["fitted", "independent"])
def test_a_short_stream_is_the_start_of_a_long_one(joint):
    workload = load_workload("sharegpt").with_joint(joint)
    short = workload.sample(num_requests=1_000, rate_per_s=1.0, seed=1)
    long = workload.sample(num_requests=300_000, rate_per_s=1.0, seed=1)
    for name in ("arrival_ns", "prompt", "output"):
        assert np.array_equal(getattr(short, name), getattr(long, name)[:1_000])


def test_duration_and_number_end_whichever_is_first():
    workload = load_workload("alpaca")
    hour = workload.sample(duration_s=3600, rate_per_s=30)
    assert hour.arrival_ns[-1] <= 3600 * 10**9
    assert len(hour) == pytest.approx(108_000, abs=4 * 108_000**0.5)
    more = workload.sample(num_requests=len(hour) + 1, rate_per_s=30)
    assert more.arrival_ns[-1] > 3600 * 10**9
    assert len(workload.sample(num_requests=10, duration_s=3600, rate_per_s=30)) == 10
    assert len(workload.sample(num_requests=10**6, duration_s=10, rate_per_s=30)) < 500


def test_another_seed_differs():
    workload = load_workload("sharegpt")
    one, two = (workload.sample(num_requests=100, rate_per_s=1, seed=seed) for seed in (1, 2))
    assert not np.array_equal(one.prompt, two.prompt)
    assert not np.array_equal(one.arrival_ns, two.arrival_ns)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "how much"),
        ({"num_requests": 0, "rate_per_s": 1}, "at least 1"),
        ({"num_requests": 5}, "no rate of its own"),
        ({"num_requests": 5, "rate_per_s": -1}, "rate must be a positive"),
        ({"num_requests": 5, "rate_per_s": float("nan")}, "rate must be a positive"),
        ({"num_requests": 5, "rate_per_s": 1, "backlog": True}, "exclude one another"),
        ({"duration_s": 5, "backlog": True}, "number of requests"),
        ({"num_requests": 5, "rate_per_s": 1, "seed": -1}, "seed"),
    ],
)
def test_what_cannot_be_sampled(wrong, said):
    with pytest.raises(ConfigError, match=said):
        load_workload("sharegpt").sample(**wrong)


def test_unknown_workload_offers_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'sharegpt'"):
        load_workload("sharegtp")
    with pytest.raises(ConfigError, match=r"no such workload file: nowhere\.toml"):
        load_workload("nowhere.toml")


def table(**changes):
    base = {
        "name": "w",
        "summary": "s",
        "source": "s",
        "license": "l",
        "prompt": {"family": "fixed", "tokens": 7},
        "output": {"family": "lognormal", "mu": 3.0, "sigma": 1.0},
    }
    return base | changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"promt": 1}, "did you mean 'prompt'"),
        ({"output": {"family": "lognormal", "mu": 3.0, "sgima": 1.0}}, "sigma"),
        ({"output": {"family": "lognormal", "mu": 3.0, "sigma": -1.0}}, "greater than 0, not -1.0"),
        ({"output": {"family": "lognorm", "mu": 3.0, "sigma": 1.0}}, "lognormal"),
        ({"joint": "fitted"}, "needs limits.total"),
        ({"joint": "copula"}, "spearman"),
        ({"output": None}, "come together"),
        ({"limits": {"totl": 5}}, "did you mean 'total'"),
        ({"arrivals": {"process": "on-off", "burst": 5}}, "on_share"),
    ],
)
def test_a_workload_that_cannot_be_meant(changes, said):
    with pytest.raises(ConfigError, match=said) as caught:
        parse_workload(table(**changes), "mine.toml")
    assert "\n" not in str(caught.value)
    assert "mine.toml" in str(caught.value)
