"""Fitting: families recover their numbers, real traces are described within the stated distances."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from traffic_shared import TRACES, needs_traces

from kvsim.errors import ConfigError
from kvsim.fit import fit_arrivals, fit_marginal, fit_workload
from kvsim.fit.marginals import _digamma, fit_gamma, fit_weibull, ks_distance, sample_of
from kvsim.generate.arrivals import Constant, GammaGaps, OnOff, Poisson, WeibullGaps, draw_times
from kvsim.requests import RequestStream
from kvsim.traces import describe, read

N = 200_000


def lengths(values):
    return np.maximum(1, np.rint(values)).astype(np.int64)


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def test_lognormal_recovers(rng):
    best = fit_marginal(lengths(rng.lognormal(5.5, 0.8, N)))[0].marginal
    assert best.family == "lognormal"
    assert (best.mu, best.sigma) == pytest.approx((5.5, 0.8), rel=0.01)


def test_gamma_recovers(rng):
    best = fit_marginal(lengths(rng.gamma(1.6, 160, N)))[0].marginal
    assert best.family == "gamma"
    assert (best.shape, best.scale) == pytest.approx((1.6, 160), rel=0.02)


def test_weibull_recovers(rng):
    best = fit_marginal(lengths(371 * rng.weibull(1.37, N)))[0].marginal
    assert best.family == "weibull"
    assert (best.shape, best.scale) == pytest.approx((1.37, 371), rel=0.01)


def test_mixture_recovers(rng):
    values = np.where(rng.random(N) < 0.4, rng.lognormal(3, 0.6, N), rng.lognormal(6, 0.5, N))
    best = fit_marginal(lengths(values))[0].marginal
    assert best.family == "lognormal-mixture"
    assert len(best.parts) == 2
    low, high = best.parts
    assert (low.weight, low.mu, low.sigma) == pytest.approx((0.4, 3, 0.6), rel=0.02)
    assert (high.weight, high.mu, high.sigma) == pytest.approx((0.6, 6, 0.5), rel=0.02)


def test_histogram_recovers(rng):
    edges, mass = np.array([0.5, 10.5, 11.5, 200.5, 1000.5]), np.array([0.1, 0.3, 0.4, 0.2])
    bins = rng.choice(4, N, p=mass)
    values = edges[bins] + rng.random(N) * np.diff(edges)[bins]
    best = fit_marginal(lengths(values))[0]
    assert best.marginal.family == "histogram"
    assert best.num_parameters <= 64
    assert best.marginal.cdf(edges) == pytest.approx([0, *np.cumsum(mass)], abs=0.005)


def test_few_lengths_and_one():
    assert fit_marginal(np.full(50, 7))[0].marginal.tokens == 7
    two = fit_marginal(np.repeat([5, 900], [30, 70]))[0]
    assert two.ks < 0.01


def test_maximum_likelihood_is_scipys(rng):
    values = rng.gamma(0.7, 900, 5000) + 1
    sample = sample_of(lengths(values))
    shape, _, scale = stats.gamma.fit(lengths(values), floc=0)
    ours = fit_gamma(sample)
    assert (ours.shape, ours.scale) == pytest.approx((shape, scale), rel=1e-4)
    shape, _, scale = stats.weibull_min.fit(lengths(values), floc=0)
    ours = fit_weibull(sample)
    assert (ours.shape, ours.scale) == pytest.approx((shape, scale), rel=1e-3)


@pytest.mark.parametrize("x", [1e-3, 0.5, 1.0, 2.5, 6.0, 100.0])
def test_digamma(x):
    from scipy.special import digamma

    assert _digamma(x) == pytest.approx(digamma(x), rel=1e-9)


def test_ks_distance_by_hand():
    from kvsim.generate.lengths import Uniform

    # uniform over 1..4 against the sample 1, 1, 2, 4: 1/2 - 1/4 at 1, 3/4 - 1/2 at 2
    assert ks_distance(Uniform(family="uniform", low=1, high=4), sample_of(np.array([1, 1, 2, 4]))) == pytest.approx(
        0.25
    )


def stream_of(process, rng, num=N, rate=3.0):
    times = draw_times(process, rng, rate, num=num)
    return RequestStream(times, np.ones(num), np.ones(num))


@pytest.mark.parametrize(
    "process",
    [
        Poisson(process="poisson"),
        Constant(process="constant"),
        GammaGaps(process="gamma", cv=2.0),
        WeibullGaps(process="weibull", cv=2.0),
        OnOff(process="on-off", burst=20, on_share=0.3),
    ],
)
def test_arrivals_recover(process, rng):
    found = fit_arrivals(stream_of(process, rng)).process
    assert found.process == process.process
    assert found.rate_per_s == pytest.approx(3.0, rel=0.02)
    for name in ("cv", "burst", "on_share"):
        if hasattr(process, name):
            assert getattr(found, name) == pytest.approx(getattr(process, name), rel=0.05)


def test_no_times_no_arrivals():
    untimed = RequestStream([0, 0, 0], [1, 1, 1], [1, 1, 1], timed=False)
    assert fit_arrivals(untimed) is None
    with pytest.raises(ConfigError, match="too few"):
        fit_workload(untimed, "w")


CASES = {
    "azure_llm_inference_2023_conv.csv": True,
    "vtc_lmsys_arena_1500.csv": True,
    "vidur_arxiv_summarization_llama2.csv.gz": False,
}


@needs_traces
@pytest.mark.parametrize(("name", "timed"), CASES.items())
def test_fit_then_sample_then_describe(name, timed):
    stream = read(TRACES / name, require_times=False)
    workload = fit_workload(stream, "w").workload
    drawn = workload.sample(num_requests=N, rate_per_s=None if timed else 1.0)
    found, wanted = describe(drawn), describe(stream)
    assert found["spearman"] == pytest.approx(wanted["spearman"], abs=0.03)
    for column in ("prompt", "output"):
        distance = stats.ks_2samp(getattr(drawn, column), getattr(stream, column)).statistic
        assert distance <= 0.03, column
    if timed:
        assert found["rate_per_s"] == pytest.approx(wanted["rate_per_s"], rel=0.03)
        assert found["arrival_cv"] == pytest.approx(wanted["arrival_cv"], rel=0.03)


def half(stream, indices):
    indices = np.sort(indices)
    return RequestStream(stream.arrival_ns[indices], stream.prompt[indices], stream.output[indices])


def held_out_distance(fitted, held_out, column):
    drawn = fit_workload(fitted, "w").workload.sample(num_requests=N, backlog=True)
    return stats.ks_2samp(getattr(drawn, column), getattr(held_out, column)).statistic


@needs_traces
@pytest.mark.parametrize("column", ["prompt", "output"])
@pytest.mark.parametrize("name", CASES)
def test_a_held_out_half_as_long_as_the_other(name, column):
    """Every other request by length: halves alike, so that what is seen is what the family and its numbers lose."""
    stream = read(TRACES / name, require_times=False)
    by_length = np.argsort(getattr(stream, column), kind="stable")
    assert held_out_distance(half(stream, by_length[::2]), half(stream, by_length[1::2]), column) <= 0.03


@needs_traces
@pytest.mark.parametrize("column", ["prompt", "output"])
@pytest.mark.parametrize("name", CASES)
def test_a_held_out_half_in_order_of_arrival(name, column):
    """Every other request: two halves of 750 differ by more than 0.03 themselves, and no fit can foresee that."""
    stream = read(TRACES / name, require_times=False)
    everyone = np.arange(len(stream))
    even, odd = half(stream, everyone[::2]), half(stream, everyone[1::2])
    noise = stats.ks_2samp(getattr(even, column), getattr(odd, column)).statistic
    assert held_out_distance(even, odd, column) <= max(0.03, noise if len(odd) < 1000 else 0.0)


@needs_traces
def test_coarse_clocks_are_spread_first():
    found = fit_arrivals(read(TRACES / "mooncake_fast25_conversation_trace.jsonl.gz"))
    assert found.spread
    assert found.process.process == "poisson"
    assert math.isclose(found.cv, 1.01, abs_tol=0.01)
