"""Families of lengths against SciPy, tables of whole numbers, and joints against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy import special, stats

from kvsim.errors import ConfigError
from kvsim.generate import load_workload
from kvsim.generate.joint import Copula, Fitted, Independent
from kvsim.generate.lengths import LengthTable, Marginal, tabulate
from kvsim.generate.special import gamma_cdf, normal_cdf, normal_to_uniform
from kvsim.traces.describing import spearman

FAMILY = TypeAdapter(Marginal)
X = np.geomspace(0.5, 1e5, 400)


def family(**table):
    return FAMILY.validate_python(table)


@pytest.mark.parametrize("shape", [0.05, 0.5, 1.0, 3.7, 80.0, 5000.0])
def test_incomplete_gamma_function(shape):
    x = np.concatenate([[0.0, -1.0], shape * np.geomspace(1e-3, 20, 300)])
    assert gamma_cdf(shape, x) == pytest.approx(special.gammainc(shape, np.maximum(x, 0)), abs=1e-12)


def test_normal_distribution_function():
    z = np.linspace(-12, 12, 2001)
    assert normal_cdf(z) == pytest.approx(special.ndtr(z), abs=1e-14)
    assert normal_to_uniform(z) == pytest.approx(special.ndtr(z), abs=3e-9)


@pytest.mark.parametrize(
    ("table", "scipy_cdf"),
    [
        ({"family": "lognormal", "mu": 5.0, "sigma": 0.9}, stats.lognorm(0.9, scale=np.exp(5.0)).cdf),
        ({"family": "gamma", "shape": 1.6, "scale": 160.0}, stats.gamma(1.6, scale=160.0).cdf),
        ({"family": "weibull", "shape": 1.37, "scale": 371.0}, stats.weibull_min(1.37, scale=371.0).cdf),
        (
            {
                "family": "lognormal-mixture",
                "parts": [{"weight": 1, "mu": 3, "sigma": 0.5}, {"weight": 3, "mu": 6, "sigma": 1}],
            },
            lambda x: (
                0.25 * stats.lognorm(0.5, scale=np.exp(3)).cdf(x) + 0.75 * stats.lognorm(1, scale=np.exp(6)).cdf(x)
            ),
        ),
        ({"family": "histogram", "edges": [1, 3, 9], "mass": [1, 3]}, lambda x: np.interp(x, [1, 3, 9], [0, 0.25, 1])),
        ({"family": "histogram", "low": 2, "width": 4, "mass": [2, 2]}, lambda x: np.interp(x, [2, 10], [0, 1])),
        ({"family": "quantiles", "tokens": [1, 5, 9]}, lambda x: np.interp(x, [1, 5, 9], [0, 0.5, 1])),
        (
            {
                "family": "mixture",
                "parts": [
                    {"weight": 1, "of": {"family": "fixed", "tokens": 7}},
                    {"weight": 3, "of": {"family": "gamma", "shape": 2.0, "scale": 50.0}},
                ],
            },
            lambda x: 0.25 * (x >= 7) + 0.75 * stats.gamma(2.0, scale=50.0).cdf(x),
        ),
        ({"family": "fixed", "tokens": 7}, lambda x: (x >= 7) * 1.0),
    ],
)
def test_families_are_what_they_are_called(table, scipy_cdf):
    assert family(**table).cdf(X) == pytest.approx(scipy_cdf(X), abs=1e-8)


def test_uniform_is_uniform_over_whole_numbers():
    table = tabulate(family(family="uniform", low=3, high=6))
    assert table.first + np.flatnonzero(table.pmf > 0).min() == 3
    assert table.pmf[table.pmf > 0] == pytest.approx(np.full(4, 0.25))


def test_equal_quantiles_are_a_step():
    table = tabulate(family(family="quantiles", tokens=[1, 8, 8, 8, 20], levels=[0, 0.2, 0.5, 0.9, 1]))
    assert table.cdf_at([7, 8]) == pytest.approx([0.2 * 6.5 / 7, 0.9 + 0.1 * 0.5 / 12])


def test_a_length_is_rounded_and_at_least_one():
    table = tabulate(family(family="histogram", edges=[0, 4], mass=[1]))
    assert table.first == 1
    assert table.pmf == pytest.approx(np.array([1.5, 1, 1, 0.5]) / 4)
    assert table.mean == pytest.approx((1.5 + 2 + 3 + 2) / 4)


def test_limits_condition_the_distribution():
    whole = tabulate(family(family="lognormal", mu=4.0, sigma=1.0))
    part = tabulate(family(family="lognormal", mu=4.0, sigma=1.0), 10, 100)
    inside = (whole.values >= 10) & (whole.values <= 100)
    assert part.pmf == pytest.approx(whole.pmf[inside] / whole.pmf[inside].sum())
    assert (part.values[0], part.values[-1]) == (10, 100)
    with pytest.raises(ValueError, match="no length between 1 and 5"):
        tabulate(family(family="fixed", tokens=7), 1, 5)


def test_a_table_ends_where_next_to_nothing_is_left():
    assert len(tabulate(family(family="weibull", shape=1.0, scale=100.0)).pmf) == pytest.approx(
        100 * np.log(1e9), abs=2
    )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(sum), st.integers(1, 5))
def test_quantile_inverts_the_distribution_function(weights, first):
    table = LengthTable(first, weights)
    u = np.linspace(0, 1, 101)[:-1]
    length = table.quantile(u)
    assert np.all(table.cdf_at(length) > u - 1e-12)
    assert np.all(table.cdf_at(length - 1) <= u + 1e-12)


@pytest.mark.parametrize(
    "table",
    [
        {"family": "uniform", "low": 5, "high": 4},
        {"family": "histogram", "edges": [1, 2], "mass": [1, 2]},
        {"family": "histogram", "edges": [1, 1], "mass": [1]},
        {"family": "histogram", "mass": [1]},
        {"family": "histogram", "edges": [1, 2], "mass": [0]},
        {"family": "quantiles", "tokens": [5, 4]},
        {"family": "quantiles", "tokens": [4]},
        {"family": "quantiles", "tokens": [4, 5], "levels": [0.1, 1]},
        {"family": "lognormal", "mu": float("nan"), "sigma": 1},
        {"family": "gamma", "shape": 0, "scale": 1},
        {"family": "fixed", "tokens": 0},
    ],
)
def test_families_that_cannot_be_meant(table):
    with pytest.raises(ValueError, match="validation error"):
        family(**table)


# --- joints


def matrix_fit(prompt, output, total, sweeps=2000):
    """Iterative proportional fitting as it is usually written: the whole matrix, row sums, column sums."""
    fits = prompt.values[:, None] + output.values[None, :] <= total
    joint = np.outer(prompt.pmf, output.pmf) * fits
    for _ in range(sweeps):
        rows = joint.sum(axis=1, keepdims=True)
        joint *= np.divide(prompt.pmf[:, None], rows, out=np.zeros_like(rows), where=rows > 0)
        columns = joint.sum(axis=0, keepdims=True)
        joint *= np.divide(output.pmf[None, :], columns, out=np.zeros_like(columns), where=columns > 0)
    return joint


def test_fitted_joint_is_proportional_fitting():
    prompt, output = LengthTable(1, [5, 3, 1, 0, 1]), LengthTable(2, [4, 2, 2, 1])
    fitted = Fitted(prompt, output, 7)
    found = fitted.probabilities()
    assert found == pytest.approx(matrix_fit(prompt, output, 7), abs=1e-10)
    assert found.sum(axis=1) == pytest.approx(prompt.pmf, abs=1e-11)
    assert found.sum(axis=0) == pytest.approx(output.pmf, abs=1e-11)


def test_sharegpt_keeps_both_marginals_exactly():
    workload = load_workload("sharegpt")
    prompt, output = workload.length_tables()
    joint = workload.joint_lengths().probabilities()
    assert np.abs(joint.sum(axis=1) - prompt.pmf).sum() < 1e-12
    assert np.abs(joint.sum(axis=0) - output.pmf).sum() < 1e-12
    fits = prompt.values[:, None] + output.values[None, :] <= 2048
    assert not joint[~fits].any()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.1, 1), min_size=2, max_size=6),
    st.lists(st.floats(0.1, 1), min_size=2, max_size=6),
    st.integers(0, 3),
)
def test_fitted_draws_follow_the_joint(first, second, less):
    prompt, output = LengthTable(1, first), LengthTable(1, second)
    total = len(first) + len(second) - less
    try:
        fitted = Fitted(prompt, output, total)
    except ConfigError:
        return  # too tight a limit for these marginals
    p, o = fitted.draw(4000, np.random.default_rng(1), np.random.default_rng(2))
    assert (p + o).max() <= total
    found = np.zeros_like(fitted.probabilities())
    np.add.at(found, (p - 1, o - 1), 1 / len(p))
    assert np.abs(found - fitted.probabilities()).max() < 5 * np.sqrt(0.25 / len(p))


def test_a_joint_that_cannot_be():
    with pytest.raises(ConfigError, match="no joint distribution has these two marginals"):
        Fitted(LengthTable(5, [1]), LengthTable(1, [1, 1, 1]), 7)
    with pytest.raises(ConfigError, match="fewer than one pair"):
        Independent(LengthTable(5, [1]), LengthTable(5, [1]), 7).draw(
            1, np.random.default_rng(0), np.random.default_rng(1)
        )


@pytest.mark.parametrize("rank", [-0.8, -0.1, 0.0, 0.3, 0.9])
def test_copula_has_the_rank_correlation_that_is_asked_for(rank):
    prompt = tabulate(family(family="lognormal", mu=5.0, sigma=1.0))
    output = tabulate(family(family="gamma", shape=2.0, scale=100.0))
    p, o = Copula(prompt, output, rank).draw(200_000, np.random.default_rng(0), np.random.default_rng(1))
    assert spearman(p, o) == pytest.approx(rank, abs=0.01)
    assert p.mean() == pytest.approx(prompt.mean, rel=0.02)
    assert o.mean() == pytest.approx(output.mean, rel=0.02)


def test_spearman_is_scipys():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 20, 500), rng.integers(0, 20, 500)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert spearman(x, np.ones(500, dtype=int)) is None
