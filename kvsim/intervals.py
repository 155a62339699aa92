"""Means over replicates, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


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
