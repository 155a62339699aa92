"""Lengths in tokens: families of distributions, and the tables over whole numbers that draws are made from.

Every family gives a distribution function; a length is the family's value rounded to the nearest whole number, at
least 1. So each family becomes one table of probabilities over whole numbers, and means, quantiles, limits and draws
are exact statements about that table.
"""

from __future__ import annotations

import functools
import math
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from kvsim.generate.special import FloatArray, gamma_cdf, normal_to_uniform
from kvsim.requests import IntArray

LONGEST = 1 << 20  # tokens; where no limit is given a tail ends here
TAIL = 1e-9  # probability that a table may leave out at its upper end

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=1, le=10**9)]


class Table(BaseModel):
    """Anything that is written as a table of a TOML file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LengthTable:
    """A distribution over whole numbers.

    Parameters
    ----------
    first : int
        The length that ``pmf`` starts at.
    pmf : float array, shape (n,)
        Probabilities of ``first``, ``first + 1``, ...; normalised here, zeros at both ends cut off.
    """

    def __init__(self, first: int, pmf: npt.ArrayLike) -> None:
        weights = np.asarray(pmf, dtype=np.float64)
        possible = np.flatnonzero(weights)
        weights = weights[possible[0] : possible[-1] + 1]
        self.first = first + int(possible[0])
        self.pmf: FloatArray = weights / weights.sum()
        self.cdf: FloatArray = np.cumsum(self.pmf)
        self.cdf[-1] = 1.0

    @property
    def values(self) -> IntArray:
        """The lengths, in order."""
        return np.arange(self.first, self.first + len(self.pmf), dtype=np.int64)

    @property
    def mean(self) -> float:
        """The mean length in tokens."""
        return float(self.values @ self.pmf)

    def up_to(self, longest: int) -> LengthTable:
        """Return the distribution on the condition that the length is at most ``longest``."""
        if longest < self.first:
            raise ValueError(f"no length up to {longest} is possible; the least is {self.first}")
        keep = longest - self.first + 1
        return self if keep >= len(self.pmf) else LengthTable(self.first, self.pmf[:keep])

    def quantile(self, u: FloatArray) -> IntArray:
        """Return the smallest length whose distribution function exceeds ``u`` (in [0, 1))."""
        index = np.searchsorted(self.cdf, u, side="right")
        return np.asarray(self.first + np.minimum(index, len(self.cdf) - 1), dtype=np.int64)

    def cdf_at(self, length: npt.ArrayLike) -> FloatArray:
        """Return P(X <= length)."""
        index = np.clip(np.floor(np.asarray(length)) - self.first + 1, 0, len(self.cdf)).astype(np.int64)
        return np.asarray(np.concatenate([[0.0], self.cdf])[index])


class Fixed(Table):
    """Always the same length."""

    family: Literal["fixed"]
    tokens: Tokens

    def cdf(self, x: FloatArray) -> FloatArray:
        """Return P(X <= x)."""
        return (x >= self.tokens).astype(np.float64)

    @property
    def num_parameters(self) -> int:
        """How many numbers describe it."""
        return 1


class Uniform(Table):
    """Every whole number from ``low`` to ``high``, equally likely."""

    family: Literal["uniform"]
    low: Tokens
    high: Tokens

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.high < self.low:
            raise ValueError(f"high ({self.high}) is below low ({self.low})")
        return self

    def cdf(self, x: FloatArray) -> FloatArray:
        """Return P(X <= x) for x halfway between whole numbers."""
        return np.asarray(np.clip((x - (self.low - 0.5)) / (self.high - self.low + 1), 0.0, 1.0))

    @property
    def num_parameters(self) -> int:
        """How many numbers describe it."""
        return 2


class Lognormal(Table):
    """ln X is normal with mean ``mu`` and standard deviation ``sigma``."""

    family: Literal["lognormal"]
    mu: Annotated[float, Field(allow_inf_nan=False)]
    sigma: Positive

    def cdf(self, x: FloatArray) -> FloatArray:
        """Return P(X <= x)."""
        return normal_to_uniform((np.log(x) - self.mu) / self.sigma)

    @property
    def num_parameters(self) -> int:
        """How many numbers describe it."""
        return 2


class Gamma(Table):
    """Gamma with ``shape`` and ``scale`` (tokens)."""

    family: Literal["gamma"]
    shape: Positive
    scale: Positive

    def cdf(self, x: FloatArray) -> FloatArray:
        """Return P(X <= x)."""
        return gamma_cdf(self.shape, x / self.scale)

    @property
    def num_parameters(self) -> int:
        """How many numbers describe it."""
        return 2


class Weibull(Table):
    """Weibull with ``shape`` and ``scale`` (tokens); shape 1 is the exponential distribution."""

    family: Literal["weibull"]
    shape: Positive
    scale: Positive

    def cdf(self, x: FloatArray) -> FloatArray:
        """Return P(X <= x)."""
        return np.asarray(-np.expm1(-((x / self.scale) ** self.shape)))

    @property
    def num_parameters(self) -> int:
        """How many numbers describe it."""
        return 2


class Histogram(Table):
    """Uniform within each bin.

    Bins are given by ``edges``, one more than there are masses, or by ``low`` and ``width`` where all are alike.
    ``mass`` needs not sum to 1.
    """

    family: Literal["histogram"]
    mass: Annotated[tuple[Share, ...], Field(min_length=1)]
    edges: tuple[Share, ...] | None = None
    low: Share | None = None
    width: Positive | None = None

    @model_validator(mode="after")
    def _bins(self) -> Histogram:
        if (self.edges is None) == (self.low is None) or (self.low is None) != (self.width is None):
            raise ValueError("either edges, or low and width, are expected")
        if self.edges is not None and len(self.edges) != len(self.mass) + 1:
            raise ValueError(f"{len(self.mass)} masses need {len(self.mass) + 1} edges, not {len(self.edges)}")
        if np.any(np.diff(self._edges()) <= 0):
            raise ValueError("edges must increase")
        if sum(self.mass) <= 0:
            raise ValueError("the masses add up to nothing")
        return self

    def cdf(self, x: FloatArray) -> FloatArray:
        """Return P(X <= x)."""
        steps = np.concatenate([[0.0], np.cumsum(self.mass)])
        return np.asarray(np.interp(x, self._edges(), steps / steps[-1]))

    def _edges(self) -> FloatArray:
        if self.edges is not None:
            return np.asarray(self.edges)
        return np.asarray((self.low or 0.0) + (self.width or 1.0) * np.arange(len(self.mass) + 1))

    @property
    def num_parameters(self) -> int:
        """How many numbers describe it: edges (or low and width), and the masses but one."""
        return (2 if self.edges is None else len(self.edges)) + len(self.mass) - 1


class Quantiles(Table):
    """Straight lines between given quantiles; ``levels`` are evenly spaced from 0 to 1 where they are not given."""

    family: Literal["quantiles"]
    tokens: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]
    levels: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Quantiles:
        levels = self._levels()
        if len(self.tokens) < 2 or len(levels) != len(self.tokens):
            raise ValueError(f"{len(self.tokens)} quantiles at {len(levels)} levels: two or more, as many of each")
        if np.any(np.diff(self.tokens) < 0) or np.any(np.diff(levels) <= 0):
            raise ValueError("quantiles must not decrease, and levels must increase")
        if levels[0] != 0 or levels[-1] != 1:
            raise ValueError("levels must start at 0 and end at 1")
        return self

    def _levels(self) -> FloatArray:
        even = [i / (len(self.tokens) - 1) for i in range(len(self.tokens))] if len(self.tokens) > 1 else [0.0]
        return np.asarray(self.levels or even, dtype=np.float64)

    def cdf(self, x: FloatArray) -> FloatArray:
        """Return P(X <= x); equal quantiles are a step."""
        tokens, levels = np.asarray(self.tokens), self._levels()
        at_or_below = np.searchsorted(tokens, x, side="right")
        left = np.clip(at_or_below - 1, 0, len(tokens) - 2)
        width = tokens[left + 1] - tokens[left]
        part = np.clip(np.divide(x - tokens[left], width, out=np.ones_like(x), where=width > 0), 0.0, 1.0)
        return np.where(at_or_below == 0, 0.0, levels[left] + part * (levels[left + 1] - levels[left]))

    @property
    def num_parameters(self) -> int:
        """How many numbers describe it."""
        return len(self.tokens) * (1 if self.levels is None else 2)


class LognormalPart(Table):
    """One lognormal of a mixture."""

    weight: Positive
    mu: Annotated[float, Field(allow_inf_nan=False)]
    sigma: Positive


class LognormalMixture(Table):
    """A mixture of lognormals; the weights need not sum to 1."""

    family: Literal["lognormal-mixture"]
    parts: Annotated[tuple[LognormalPart, ...], Field(min_length=1)]

    def cdf(self, x: FloatArray) -> FloatArray:
        """Return P(X <= x)."""
        total = sum(part.weight for part in self.parts)
        log_x = np.log(x)
        return np.asarray(sum(p.weight / total * normal_to_uniform((log_x - p.mu) / p.sigma) for p in self.parts))

    @property
    def num_parameters(self) -> int:
        """How many numbers describe it."""
        return 3 * len(self.parts) - 1


class MixturePart(Table):
    """One family of a mixture."""

    weight: Positive
    of: Marginal


class Mixture(Table):
    """A mixture of any families; the weights need not sum to 1."""

    family: Literal["mixture"]
    parts: Annotated[tuple[MixturePart, ...], Field(min_length=1)]

    def cdf(self, x: FloatArray) -> FloatArray:
        """Return P(X <= x)."""
        total = sum(part.weight for part in self.parts)
        return np.asarray(sum(part.weight / total * part.of.cdf(x) for part in self.parts))

    @property
    def num_parameters(self) -> int:
        """How many numbers describe it."""
        return sum(part.of.num_parameters for part in self.parts) + len(self.parts) - 1


Marginal = Annotated[
    Fixed | Uniform | Lognormal | Gamma | Weibull | Histogram | Quantiles | LognormalMixture | Mixture,
    Field(discriminator="family"),
]
MixturePart.model_rebuild()
Mixture.model_rebuild()


@functools.lru_cache(maxsize=256)
def tabulate(marginal: Marginal, low: int = 1, high: int | None = None) -> LengthTable:
    """Return the table over whole numbers that a family becomes.

    Parameters
    ----------
    marginal : Marginal
        The family; its value is rounded to the nearest whole number, and to 1 below that.
    low, high : int, optional
        Limits, both included: the distribution is conditioned on them. Without ``high`` the table ends where less
        than 1e-9 of the probability is left, or at 2^20 tokens.

    Raises
    ------
    ValueError
        Nothing of the distribution lies within the limits.
    """
    last = _last_length(marginal, low) if high is None else min(high, _last_length(marginal, low))
    halves: FloatArray = np.arange(low, last + 1, dtype=np.float64) + 0.5
    upto = marginal.cdf(halves)
    below = 0.0 if low <= 1 else float(marginal.cdf(np.array([low - 0.5]))[0])
    pmf = np.clip(np.diff(upto, prepend=below), 0.0, None)
    if not len(pmf) or pmf.sum() <= 0:
        raise ValueError(f"no length between {low} and {high or last} is possible under {marginal.family!r}")
    return LengthTable(low, pmf)


def _last_length(marginal: Marginal, low: int) -> int:
    """Return a length above which next to nothing lies: found by doubling, then halving."""
    high = 1 << max(4, math.ceil(math.log2(low + 1)))
    while high < LONGEST and _above(marginal, high) > TAIL:
        high *= 2
    lower, upper = low, high
    while lower < upper:
        middle = (lower + upper) // 2
        lower, upper = (middle + 1, upper) if _above(marginal, middle) > TAIL else (lower, middle)
    return upper


def _above(marginal: Marginal, length: int) -> float:
    return 1.0 - float(marginal.cdf(np.array([length + 0.5]))[0])
