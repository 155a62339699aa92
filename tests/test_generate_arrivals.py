"""Arrival processes: their rate, their burstiness, and what they are by definition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from test_generate import table

from kvsim.errors import ConfigError
from kvsim.generate import parse_workload
from kvsim.generate.arrivals import (
    Constant,
    GammaGaps,
    OnOff,
    Poisson,
    WeibullGaps,
    draw_times,
    weibull_shape,
)
from kvsim.requests import RequestStream
from kvsim.traces import write

PROCESSES = [
    (Poisson(process="poisson"), 1.0),
    (GammaGaps(process="gamma", cv=2.5), 2.5),
    (GammaGaps(process="gamma", cv=0.3), 0.3),
    (WeibullGaps(process="weibull", cv=1.8), 1.8),
    (WeibullGaps(process="weibull", cv=0.5), 0.5),
    (OnOff(process="on-off", burst=5, on_share=0.4), np.sqrt(1 + 2 * 5 * 0.36)),
    (OnOff(process="on-off", burst=100, on_share=0.2), np.sqrt(1 + 200 * 0.64)),
    (Constant(process="constant"), 0.0),
]


@pytest.mark.parametrize(("process", "cv"), PROCESSES, ids=lambda value: str(value)[:40])
def test_mean_gap_and_burstiness(process, cv):
    gaps = process.gaps(np.random.default_rng(0), 400_000)
    assert gaps.min() >= 0
    assert gaps.mean() == pytest.approx(1.0, rel=0.01 + 0.01 * cv**2 / 20)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03, abs=1e-12)


def test_families_of_gaps():
    rng = np.random.default_rng(0)
    gaps = GammaGaps(process="gamma", cv=2.0).gaps(rng, 50_000)
    assert stats.kstest(gaps, stats.gamma(0.25, scale=4.0).cdf).pvalue > 1e-3
    shape = weibull_shape(1.8)
    weibull = stats.weibull_min(shape)
    assert weibull.std() / weibull.mean() == pytest.approx(1.8)
    gaps = WeibullGaps(process="weibull", cv=1.8).gaps(rng, 50_000) * weibull.mean()
    assert stats.kstest(gaps, weibull.cdf).pvalue > 1e-3


def simulated_on_off(process, rng, num):
    """Draw an interrupted Poisson process as it is defined: arrivals race with the end of the on period."""
    on_rate, gaps = 1.0 / process.on_share, []
    leave_on = on_rate / process.burst
    leave_off = leave_on * process.on_share / (1 - process.on_share)
    since = 0.0
    while len(gaps) < num:
        to_arrival, to_off = rng.exponential(1 / on_rate), rng.exponential(1 / leave_on)
        if to_arrival < to_off:
            gaps.append(since + to_arrival)
            since = 0.0
        else:
            since += to_off + rng.exponential(1 / leave_off)
    return np.array(gaps)


def test_on_off_is_an_interrupted_poisson_process():
    process = OnOff(process="on-off", burst=4, on_share=0.3)
    rng = np.random.default_rng(7)
    defined, drawn = simulated_on_off(process, rng, 20_000), process.gaps(rng, 20_000)
    assert stats.ks_2samp(defined, drawn).pvalue > 1e-3


@pytest.mark.parametrize(("process", "cv"), PROCESSES, ids=lambda value: str(value)[:40])
def test_a_short_run_is_the_start_of_a_long_one(process, cv, monkeypatch):
    def times(**how):
        return draw_times(process, np.random.default_rng(3), 2.0, **how)

    long = times(num=5000)
    assert np.array_equal(times(num=1000), long[:1000])
    end = long[2500] / 1e9
    by_time = times(duration_s=end)
    assert np.array_equal(by_time, long[: len(by_time)])
    assert len(by_time) in (2500, 2501)
    monkeypatch.setattr("kvsim.generate.arrivals.CHUNK", 64)
    assert np.array_equal(times(num=5000), long)


def test_so_slow_that_times_do_not_fit():
    with pytest.raises(ConfigError, match="292 years"):
        draw_times(Constant(process="constant"), np.random.default_rng(0), 1e-9, num=20)


def test_constant_and_backlog():
    steady = parse_workload(table(arrivals={"process": "constant", "rate_per_s": 4.0}), "w")
    assert steady.sample(num_requests=3).arrival_ns.tolist() == [250_000_000, 500_000_000, 750_000_000]
    waiting = parse_workload(table(arrivals={"process": "backlog"}), "w")
    assert waiting.sample(num_requests=3).arrival_ns.tolist() == [0, 0, 0]
    with pytest.raises(ConfigError, match="number of requests"):
        waiting.sample(duration_s=3)


def test_replay_repeats_a_trace_with_its_gaps(tmp_path):
    write(RequestStream([5, 6, 9], [1, 1, 1], [1, 1, 1]), tmp_path / "t.csv", "kvsim")
    replay = {"process": "replay", "trace": "t.csv", "time_scale": 1e9}
    workload = parse_workload(table(arrivals=replay), "w", tmp_path)
    seconds = workload.sample(num_requests=7).arrival_ns / 1e9
    assert seconds.tolist() == [0, 1, 4, 6, 7, 10, 12]  # the mean gap, 2, joins two rounds
    assert len(workload.sample(duration_s=6.5)) == 4
    assert (workload.sample(num_requests=4, rate_per_s=1.0).arrival_ns / 1e9).tolist() == [0, 0.5, 2, 3]


def test_a_workload_whose_limit_is_the_models():
    workload = parse_workload(table(limits={"total": "max_model_len"}, joint="fitted"), "w")
    stream = workload.sample(num_requests=2000, backlog=True, max_model_len=60)
    assert (stream.prompt + stream.output).max() <= 60
    assert set(stream.prompt.tolist()) == {7}
    with pytest.raises(ConfigError, match="no length up to"):
        workload.sample(num_requests=5, backlog=True, max_model_len=7)
    with pytest.raises(ConfigError, match="say what it is"):
        workload.sample(num_requests=5, backlog=True)
