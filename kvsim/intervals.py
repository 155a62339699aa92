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
    """A ratio of means over replicates and its 95 % interval (Nones where there are fewer than three)."""

    value: float
    low: float | None
    high: float | None


BOOTSTRAPS = 2000


def ratio_of(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio | None:
    """Return the ratio of the means of paired replicates with a studentised bootstrap's 95 % interval.

    Pairs are drawn with replacement. Each draw's ratio is studentised by its own standard error (delta method); the
    quantiles of that give the interval (Efron and Tibshirani, An Introduction to the Bootstrap, section 12.5). Draws
    are those of a fixed seed.

    Parameters
    ----------
    numerators, denominators : sequences of float
        A pair a replicate, at least one.

    Returns
    -------
    Ratio or None
        None where the mean of the denominators is 0.
    """
    import numpy as np

    pairs = np.array([numerators, denominators], dtype=np.float64)
    n = pairs.shape[1]
    if pairs[1].mean() == 0:
        return None
    draws = np.random.default_rng(np.random.SeedSequence(0)).integers(0, n, size=(BOOTSTRAPS, n))
    value, error = _studentise(pairs[:, None, :])
    if n < 3:
        return Ratio(float(value[0]), None, None)
    if error[0] == 0:
        return Ratio(float(value[0]), float(value[0]), float(value[0]))
    values, errors = _studentise(pairs[:, draws])
    usable = errors > 1e-9 * abs(value[0])  # a draw of one pair n times says nothing about spread
    low, high = np.quantile((values[usable] - value[0]) / errors[usable], [0.975, 0.025])
    return Ratio(float(value[0]), float(value[0] - low * error[0]), float(value[0] - high * error[0]))


def _studentise(pairs: Any) -> tuple[Any, Any]:
    """Ratios of means over the last axis, and their standard errors; ``pairs`` has shape (2, draws, n)."""
    import numpy as np

    means = pairs.mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = means[0] / means[1]
        spread = (pairs[0] - ratio[:, None] * pairs[1]).std(axis=-1, ddof=1)
        return ratio, spread / abs(means[1]) / math.sqrt(pairs.shape[-1])
