"""The incomplete gamma function and what follows from it, vectorised without SciPy.

The normal distribution function is an incomplete gamma function too, so that one series and one continued fraction
serve every family of lengths and the Gaussian copula.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

MAX_TERMS = 10_000
EPSILON = 1e-15
TINY = 1e-300
REACH = 9.0  # standard deviations that the table of the normal distribution covers


def gamma_cdf(shape: float, x: FloatArray) -> FloatArray:
    """Return the regularised lower incomplete gamma function P(shape, x).

    Parameters
    ----------
    shape : float
        Above 0.
    x : float array
        Where to evaluate; what lies below 0 gives 0.

    Notes
    -----
    The power series below ``shape + 1`` and the continued fraction above it (modified Lentz); Abramowitz and Stegun
    6.5.29 and 6.5.31.
    """
    x = np.maximum(np.asarray(x, dtype=np.float64), 0.0)
    result = np.zeros_like(x)
    small = (x > 0) & (x < shape + 1)
    large = x >= shape + 1
    result[small] = _series(shape, x[small])
    result[large] = 1.0 - _continued_fraction(shape, x[large])
    return result


def _front(shape: float, x: FloatArray) -> FloatArray:
    """Return x^shape e^-x / Gamma(shape), the factor before both expansions."""
    return np.asarray(np.exp(shape * np.log(x) - x - math.lgamma(shape)))


def _series(shape: float, x: FloatArray) -> FloatArray:
    term = np.full_like(x, 1.0 / shape)
    total = term.copy()
    for n in range(1, MAX_TERMS):
        term *= x / (shape + n)
        total += term
        if not len(x) or np.all(term <= EPSILON * total):
            break
    return total * _front(shape, x)


def _continued_fraction(shape: float, x: FloatArray) -> FloatArray:
    b = x + 1.0 - shape
    c = np.full_like(x, 1.0 / TINY)
    d = 1.0 / np.where(b == 0, TINY, b)
    h = d.copy()
    for n in range(1, MAX_TERMS):
        a = -n * (n - shape)
        b = b + 2.0
        d = a * d + b
        d = 1.0 / np.where(np.abs(d) < TINY, TINY, d)
        c = b + a / c
        c = np.where(np.abs(c) < TINY, TINY, c)
        step = c * d
        h *= step
        if not len(x) or np.all(np.abs(step - 1.0) <= EPSILON):
            break
    return h * _front(shape, x)


def normal_cdf(z: FloatArray) -> FloatArray:
    """Return the standard normal distribution function, exact to about 1e-15."""
    z = np.asarray(z, dtype=np.float64)
    half = 0.5 * gamma_cdf(0.5, z * z / 2)
    return np.where(z < 0, 0.5 - half, 0.5 + half)


@functools.cache
def _normal_table() -> tuple[FloatArray, FloatArray]:
    z = np.linspace(-REACH, REACH, 1 << 16)
    return z, normal_cdf(z)


def normal_to_uniform(z: FloatArray) -> FloatArray:
    """Return the normal distribution function from a table: fast, and within 3e-9."""
    grid, values = _normal_table()
    return np.asarray(np.interp(z, grid, values))
