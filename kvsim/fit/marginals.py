"""Fitting one length: several families, each at most 64 numbers, and the one with the lowest BIC.

The Bayesian information criterion is k ln n - 2 ln L, with k the numbers that describe the family, n the requests, and
L the likelihood of the lengths *as whole numbers*, so that families of all kinds are compared on the same footing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvsim.generate.lengths import (
    Fixed,
    Gamma,
    Histogram,
    Lognormal,
    LognormalMixture,
    LognormalPart,
    Marginal,
    Weibull,
)
from kvsim.generate.special import FloatArray
from kvsim.requests import IntArray

COMPONENTS = (2, 3, 4, 6)  # lognormals in a mixture
SEGMENTS = (8, 12, 16, 24, 32)  # bins of a histogram: 2 numbers each, 64 at most
MIN_SIGMA = 0.02  # a narrower lognormal would be a single length
EM_STEPS = 300
SMALLEST = 1e-300  # probability of a length that a family says cannot be


@dataclass(frozen=True)
class MarginalFit:
    """One family against one column of lengths.

    Attributes
    ----------
    marginal : Marginal
        The family with its numbers.
    num_parameters : int
        How many they are.
    bic : float
        Bayesian information criterion; lower is better.
    ks : float
        Largest distance between the two distribution functions, at whole numbers.
    """

    marginal: Marginal
    num_parameters: int
    bic: float
    ks: float


@dataclass(frozen=True)
class Sample:
    """Lengths by value: ``values`` (sorted, different) and how often each occurs."""

    values: IntArray
    counts: IntArray

    @property
    def size(self) -> int:
        """How many lengths there are."""
        return int(self.counts.sum())

    @property
    def weights(self) -> FloatArray:
        """Share of each value."""
        return np.asarray(self.counts / self.counts.sum())


def sample_of(lengths: IntArray) -> Sample:
    """Count the lengths of a column."""
    return Sample(*np.unique(lengths, return_counts=True))


def fit_marginal(lengths: IntArray) -> list[MarginalFit]:
    """Fit all families to a column of lengths.

    Parameters
    ----------
    lengths : int64 array, shape (n,)
        Lengths in tokens, at least 1.

    Returns
    -------
    list of MarginalFit
        Best first, by BIC.
    """
    sample = sample_of(lengths)
    if len(sample.values) == 1:
        return [score(Fixed(family="fixed", tokens=int(sample.values[0])), sample)]
    families: list[Marginal] = [fit_lognormal(sample), fit_gamma(sample), fit_weibull(sample)]
    families += [fit_mixture(sample, k) for k in COMPONENTS if len(sample.values) > 3 * k]
    families += [fit_histogram(sample, k) for k in SEGMENTS if len(sample.values) > k]
    if len(sample.values) <= SEGMENTS[0]:
        families.append(fit_histogram(sample, 2 * len(sample.values) - 1))  # a bin for each length, and between
    return sorted((score(family, sample) for family in families), key=lambda fit: fit.bic)


def score(marginal: Marginal, sample: Sample) -> MarginalFit:
    """Return how well a family describes lengths."""
    below, upto = _around(marginal, sample)
    log_likelihood = float(sample.counts @ np.log(np.maximum(upto - below, SMALLEST)))
    parameters = marginal.num_parameters
    bic = parameters * math.log(sample.size) - 2.0 * log_likelihood
    return MarginalFit(marginal, parameters, bic, ks_distance(marginal, sample))


def ks_distance(marginal: Marginal, sample: Sample) -> float:
    """Return the Kolmogorov-Smirnov distance at whole numbers."""
    below, upto = _around(marginal, sample)
    after = np.cumsum(sample.weights)
    return float(max(np.abs(upto - after).max(), np.abs(below - (after - sample.weights)).max()))


def _around(marginal: Marginal, sample: Sample) -> tuple[FloatArray, FloatArray]:
    """Return P(length < v) and P(length <= v) at each value: lengths are rounded, and at least 1."""
    values = sample.values.astype(np.float64)
    return np.where(values <= 1, 0.0, marginal.cdf(values - 0.5)), marginal.cdf(values + 0.5)


def fit_lognormal(sample: Sample) -> Lognormal:
    """Return the lognormal of greatest likelihood."""
    logs = np.log(sample.values)
    mu = float(sample.weights @ logs)
    sigma = math.sqrt(float(sample.weights @ (logs - mu) ** 2))
    return Lognormal(family="lognormal", mu=mu, sigma=max(sigma, MIN_SIGMA))


def fit_gamma(sample: Sample) -> Gamma:
    """Return the gamma distribution of greatest likelihood: ln k - digamma(k) = ln mean - mean ln, by bisection."""
    mean = float(sample.weights @ sample.values)
    gap = math.log(mean) - float(sample.weights @ np.log(sample.values))
    shape = _decreasing_root(lambda k: math.log(k) - _digamma(k) - gap, 1e-3, 1e6)
    return Gamma(family="gamma", shape=shape, scale=mean / shape)


def fit_weibull(sample: Sample) -> Weibull:
    """Return the Weibull distribution of greatest likelihood, by bisection on its shape."""
    logs, weights = np.log(sample.values), sample.weights
    mean_log, top = float(weights @ logs), float(logs.max())

    def equation(k: float) -> float:
        power = weights * np.exp(k * (logs - top))
        return 1.0 / k + mean_log - float(power @ logs / power.sum())

    shape = _decreasing_root(equation, 1e-2, 1e4)
    scale = math.exp(top + math.log(float(weights @ np.exp(shape * (logs - top)))) / shape)
    return Weibull(family="weibull", shape=shape, scale=scale)


def _decreasing_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a decreasing function of a positive number crosses 0, by bisection on its logarithm."""
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return math.sqrt(low * high)


def _digamma(x: float) -> float:
    """Return the derivative of ln Gamma: the recurrence up to 6, then its asymptotic series."""
    shift = 0.0
    while x < 6.0:
        shift -= 1.0 / x
        x += 1.0
    inverse = 1.0 / (x * x)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    return shift + math.log(x) - 0.5 / x - series


def fit_mixture(sample: Sample, components: int) -> LognormalMixture:
    """Return a mixture of lognormals, by expectation-maximisation from slices of equal probability."""
    logs, weights = np.log(sample.values.astype(np.float64)), sample.weights
    middle = (np.cumsum(weights) - weights / 2.0)[:, None]
    share = np.maximum(0.0, 1.0 - np.abs(middle * components - (np.arange(components) + 0.5)))
    share += 1e-6
    for _ in range(EM_STEPS):
        mass = weights[:, None] * share / share.sum(axis=1, keepdims=True)
        total = mass.sum(axis=0)
        mu = mass.T @ logs / total
        sigma = np.sqrt(np.maximum((mass * (logs[:, None] - mu) ** 2).sum(axis=0) / total, MIN_SIGMA**2))
        share = total / sigma * np.exp(-0.5 * ((logs[:, None] - mu) / sigma) ** 2) + 1e-300
    order = np.argsort(mu)
    parts = tuple(
        LognormalPart(weight=float(total[k]), mu=float(mu[k]), sigma=float(sigma[k])) for k in order if total[k] > 0
    )
    return LognormalMixture(family="lognormal-mixture", parts=parts)


def fit_histogram(sample: Sample, bins: int) -> Histogram:
    """Return a histogram whose edges are put, one after the other, where it is furthest from the data."""
    edge = np.concatenate([sample.values - 0.5, sample.values + 0.5])
    after = np.cumsum(sample.weights)
    level = np.concatenate([after - sample.weights, after])
    edge, first = np.unique(edge, return_index=True)
    level = level[first]
    level[-1] = 1.0
    knots = [0, len(edge) - 1]
    while len(knots) <= bins and len(knots) < len(edge):
        distance = np.abs(np.interp(edge, edge[knots], level[knots]) - level)
        distance[knots] = -1.0
        knots = sorted([*knots, int(np.argmax(distance))])
    return Histogram(family="histogram", edges=tuple(edge[knots].tolist()), mass=tuple(np.diff(level[knots]).tolist()))
