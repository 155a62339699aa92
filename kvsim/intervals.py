"""Means over replicates, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple


class Mean(NamedTuple):
    """A mean over replicates and the half-width of its 95 % interval (None with a single replicate)."""

    value: float
    half_width: float | None


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean of replicates with Student's 95 % interval.

    Parameters
    ----------
    values : sequence of float
        One a replicate, at least one.
    """
    n = len(values)
    value = math.fsum(values) / n
    if n == 1:
        return Mean(value, None)
    variance = math.fsum((x - value) ** 2 for x in values) / (n - 1)
    return Mean(value, student_quantile(0.975, n - 1) * math.sqrt(variance / n))


def student_cdf(t: float, df: int) -> float:
    """Distribution function of Student's t for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(df))
    cosine_squared = math.cos(angle) ** 2
    term = total = math.cos(angle) if df % 2 else 1.0
    for i in range(2 if df % 2 else 1, df - 2, 2):
        term *= cosine_squared * i / (i + 1)
        total += term
    if df % 2 == 0:
        return 0.5 + 0.5 * math.sin(angle) * total
    between = angle + (math.sin(angle) * total if df > 1 else 0.0)
    return 0.5 + between / math.pi


def student_quantile(p: float, df: int) -> float:
    """Quantile of Student's t for 0.5 <= p < 1, by bisection.

    Raises
    ------
    ValueError
        ``p`` or ``df`` is out of range.
    """
    if not 0.5 <= p < 1 or df < 1:
        raise ValueError(f"p = {p} and df = {df}: 0.5 <= p < 1 and df >= 1 are expected")
    low, high = 0.0, 1.0
    while student_cdf(high, df) < p:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


class Ratio(NamedTuple):
    """A ratio of means over replicates and its 95 % interval (Nones with fewer than three)."""

    value: float
    low: float | None
    high: float | None


BOOTSTRAPS = 2000
FEW = 5  # with fewer pairs than this too many draws repeat one pair, and their spread says nothing


def ratio_of(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio | None:
    """Return the ratio of the means of paired replicates with a studentised bootstrap's 95 % interval.

    Pairs are drawn with replacement, by a fixed seed. The logarithm of each draw's ratio is studentised by its own
    standard error (delta method), and quantiles of that give the interval (Efron and Tibshirani, An Introduction to the
    Bootstrap, section 12.5). With three or four pairs Student's t stands in for the quantiles.

    Parameters
    ----------
    numerators, denominators : sequences of float
        A pair a replicate, at least one; means above 0.

    Returns
    -------
    Ratio or None
        None where a mean is not above 0.
    """
    import numpy as np

    pairs = np.array([numerators, denominators], dtype=np.float64)
    n = pairs.shape[1]
    if (pairs.mean(axis=1) <= 0).any():
        return None
    centre, error = (float(part[0]) for part in _log_ratios(pairs[:, None, :]))
    value = math.exp(centre)
    if n < 3:
        return Ratio(value, None, None)
    if n < FEW or error == 0:
        low = high = student_quantile(0.975, n - 1)
    else:
        draws = np.random.default_rng(np.random.SeedSequence(0)).integers(0, n, size=(BOOTSTRAPS, n))
        logs, errors = _log_ratios(pairs[:, draws])
        usable = np.isfinite(logs) & (errors > 1e-3 * error)
        high, low = np.quantile((logs[usable] - centre) / errors[usable], [0.975, 0.025]) * [1, -1]
    return Ratio(value, math.exp(centre - float(high) * error), math.exp(centre + float(low) * error))


def _log_ratios(pairs: Any) -> tuple[Any, Any]:
    """Logarithms of ratios of means over the last axis, and their standard errors, for ``pairs`` (2, draws, n)."""
    import numpy as np

    means = pairs.mean(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = pairs / means
        spread = (relative[0] - relative[1]).std(axis=-1, ddof=1) if pairs.shape[-1] > 1 else np.zeros(pairs.shape[1])
        return np.log(means[0, :, 0] / means[1, :, 0]), spread / math.sqrt(pairs.shape[-1])
