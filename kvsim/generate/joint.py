"""How the prompt and the output length of one request go together.

A joint is drawn from two streams of random numbers, one a column, each read in order: the first thousand of two
thousand draws are the same thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvsim.errors import ConfigError
from kvsim.generate.lengths import LengthTable
from kvsim.generate.special import FloatArray, normal_to_uniform
from kvsim.requests import IntArray

CHUNK = 1 << 17  # draws at a time: a few MB of scratch, whatever the number of requests
MAX_SWEEPS = 10_000
MAX_ERROR = 1e-12  # total variation between the marginals asked for and those of a fitted joint
MIN_ACCEPTANCE = 1e-4


@dataclass(frozen=True)
class Independent:
    """Prompt and output do not know of one another; pairs above ``total`` are drawn again."""

    prompt: LengthTable
    output: LengthTable
    total: int | None = None

    def draw(self, num: int, first: np.random.Generator, second: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return ``num`` prompts and outputs."""

        def pairs(size: int) -> tuple[IntArray, IntArray]:
            return self.prompt.quantile(first.random(size)), self.output.quantile(second.random(size))

        return _fill(num, pairs, self.total)

    def means(self) -> tuple[float, float]:
        """Return the mean lengths of the pairs that are not drawn again."""
        return _mean_beside(self.prompt, self.output, self.total), _mean_beside(self.output, self.prompt, self.total)


def _mean_beside(one: LengthTable, other: LengthTable, total: int | None) -> float:
    """Return the mean of one length where the other leaves it room."""
    weights = one.pmf if total is None else one.pmf * other.cdf_at(total - one.values)
    return float(weights @ one.values / weights.sum())


@dataclass(frozen=True)
class Copula:
    """A Gaussian copula with a given rank correlation; pairs above ``total`` are drawn again.

    ``spearman`` becomes the normal correlation 2 sin(pi spearman / 6).
    """

    prompt: LengthTable
    output: LengthTable
    spearman: float
    total: int | None = None

    def draw(self, num: int, first: np.random.Generator, second: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return ``num`` prompts and outputs."""
        correlation = 2.0 * np.sin(np.pi * self.spearman / 6.0)
        rest = np.sqrt(max(0.0, 1.0 - correlation**2))

        def pairs(size: int) -> tuple[IntArray, IntArray]:
            x = first.standard_normal(size)
            y = correlation * x + rest * second.standard_normal(size)
            return self.prompt.quantile(normal_to_uniform(x)), self.output.quantile(normal_to_uniform(y))

        return _fill(num, pairs, self.total)


class Fitted:
    """The least informative joint with exactly these marginals and prompt + output <= total.

    Iterative proportional fitting from independence over all pairs of whole numbers that fit leads to
    ``P(p, o) = a[p] b[o]`` for ``p + o <= total``. A sweep needs only running sums of ``a`` and ``b``, and a draw takes
    the prompt from its marginal and the output from ``b`` cut off at ``total - p``: nothing is rejected, no pair is
    stored, and the marginals hold to the last length, not only to the bin.

    Parameters
    ----------
    prompt, output : LengthTable
        The marginals.
    total : int
        Most tokens of prompt and output together.

    Raises
    ------
    ConfigError
        No joint distribution with these marginals fits under ``total``.
    """

    def __init__(self, prompt: LengthTable, output: LengthTable, total: int) -> None:
        self.prompt, self.output, self.total = prompt, output, total
        self._room_for_output = np.clip(total - prompt.values - output.first + 1, 0, len(output.pmf))
        self._room_for_prompt = np.clip(total - output.values - prompt.first + 1, 0, len(prompt.pmf))
        self.a, self.b = self._fit()
        self._running = _running_sum(self.b)

    def _fit(self) -> tuple[FloatArray, FloatArray]:
        b = self.output.pmf
        for _ in range(MAX_SWEEPS):
            a = _quotient(self.prompt.pmf, _running_sum(b)[self._room_for_output])
            sums = _running_sum(a)[self._room_for_prompt]
            if np.abs(b * sums - self.output.pmf).sum() <= MAX_ERROR:
                return a, b
            b = _quotient(self.output.pmf, sums)
        raise ConfigError(
            f"no joint distribution has these two marginals and prompt + output <= {self.total}: "
            "raise the limit, or join them with joint = 'independent' (pairs above it are drawn again)"
        )

    def draw(self, num: int, first: np.random.Generator, second: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return ``num`` prompts and outputs."""
        prompt, output = np.empty(num, dtype=np.int64), np.empty(num, dtype=np.int64)
        for start in range(0, num, CHUNK):
            part = slice(start, min(start + CHUNK, num))
            prompt[part] = self.prompt.quantile(first.random(part.stop - start))
            room = self._room_for_output[prompt[part] - self.prompt.first]
            target = second.random(part.stop - start) * self._running[room]
            index = np.searchsorted(self._running, target, side="right") - 1
            output[part] = self.output.first + np.minimum(index, room - 1)
        return prompt, output

    def means(self) -> tuple[float, float]:
        """Return the mean lengths, which are those of the marginals."""
        return self.prompt.mean, self.output.mean

    def probabilities(self) -> FloatArray:
        """Return the whole joint, shape (prompts, outputs): large, for tests and pictures."""
        fits = self.prompt.values[:, None] + self.output.values[None, :] <= self.total
        return np.asarray(self.a[:, None] * self.b[None, :] * fits)


def _running_sum(weights: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(weights)])


def _quotient(wanted: FloatArray, found: FloatArray) -> FloatArray:
    """Return wanted / found, 0 where nothing is wanted, and a huge factor where nothing can be had."""
    tiny = np.finfo(np.float64).tiny
    return np.where(wanted > 0, wanted / np.maximum(found, tiny * 1e10), 0.0)


def _fill(num: int, pairs: Callable[[int], tuple[IntArray, IntArray]], total: int | None) -> tuple[IntArray, IntArray]:
    """Return the first ``num`` pairs that fit, however large the pieces are in which they are drawn."""
    prompt, output = np.empty(num, dtype=np.int64), np.empty(num, dtype=np.int64)
    kept = drawn = 0
    while kept < num:
        size = min(CHUNK, num - kept) if total is None else CHUNK
        p, o = pairs(size)
        drawn += size
        if total is not None:
            fits = p + o <= total
            p, o = p[fits], o[fits]
        take = min(len(p), num - kept)
        prompt[kept : kept + take], output[kept : kept + take] = p[:take], o[:take]
        kept += take
        if kept < MIN_ACCEPTANCE * drawn:
            raise ConfigError(f"fewer than one pair in {1 / MIN_ACCEPTANCE:,.0f} has prompt + output <= {total}")
    return prompt, output
