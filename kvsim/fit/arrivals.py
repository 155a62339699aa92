"""Fitting arrivals: processes with the trace's own rate and burstiness, and the one whose gaps lie closest.

Every candidate has the mean and the coefficient of variation of the trace's interarrival times; the criterion is the
Kolmogorov-Smirnov distance of the gaps. A Poisson process is taken where it is as good as the best within 0.005.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvsim.generate.arrivals import Constant, GammaGaps, OnOff, Poisson, Renewal, WeibullGaps, weibull_shape
from kvsim.generate.special import FloatArray, gamma_cdf
from kvsim.requests import NS_PER_S, RequestStream
from kvsim.traces.describing import arrival_cv, has_coarse_clock, spread_ticks

NEARLY = 0.005
POISSON_CV = 0.03  # how far from 1 the coefficient of variation of a Poisson process may be
REGULAR_CV = 1e-3
ON_SHARES = np.linspace(0.02, 0.98, 97)

Cdf = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class ArrivalFit:
    """One process against the arrivals of a trace.

    Attributes
    ----------
    process : Renewal
        The process, with its rate.
    ks : float
        Distance of the distribution functions of the gaps.
    cv : float
        Coefficient of variation of the trace's gaps.
    spread : bool
        The trace's clock was coarse, and its arrivals were spread within the ticks first.
    """

    process: Renewal
    ks: float
    cv: float
    spread: bool


def fit_arrivals(stream: RequestStream) -> ArrivalFit | None:
    """Return the process that describes a stream's arrivals best; None where it has no times."""
    times = stream.arrival_ns
    spread = has_coarse_clock(times)
    if spread:
        times = spread_ticks(times, np.random.default_rng(0))
    cv = arrival_cv(times) if stream.timed else None
    if cv is None:
        return None
    rate = len(stream) * NS_PER_S / stream.span_ns
    gaps = np.sort(np.diff(times)) / np.diff(times).mean()
    fits = [ArrivalFit(process, _ks(gaps, cdf), cv, spread) for process, cdf in _candidates(cv, rate, gaps)]
    best = min(fits, key=lambda fit: fit.ks)
    plain = [fit for fit in fits if isinstance(fit.process, Poisson) and fit.ks <= best.ks + NEARLY]
    return plain[0] if plain else best


def _candidates(cv: float, rate: float, gaps: FloatArray) -> list[tuple[Renewal, Cdf]]:
    if cv < REGULAR_CV:
        return [(Constant(process="constant", rate_per_s=rate), lambda x: (x >= 1.0).astype(np.float64))]
    found: list[tuple[Renewal, Cdf]] = [(GammaGaps(process="gamma", cv=cv, rate_per_s=rate), _gamma(cv))]
    if abs(cv - 1.0) <= max(POISSON_CV, 2.0 / math.sqrt(len(gaps))):  # two standard errors
        found.append((Poisson(process="poisson", rate_per_s=rate), lambda x: -np.expm1(-x)))
    if 0.05 <= cv <= 20.0:
        found.append((WeibullGaps(process="weibull", cv=cv, rate_per_s=rate), _weibull(cv)))
    if cv > 1.0:
        processes = [_on_off(cv, round(float(share), 2), rate) for share in ON_SHARES]
        best = min(processes, key=lambda process: _ks(gaps, _two_exponentials(process)))
        found.append((best, _two_exponentials(best)))
    return found


def _gamma(cv: float) -> Cdf:
    shape = cv**-2
    return lambda x: gamma_cdf(shape, x * shape)


def _weibull(cv: float) -> Cdf:
    shape = weibull_shape(cv)
    scale = 1.0 / math.gamma(1.0 + 1.0 / shape)
    return lambda x: np.asarray(-np.expm1(-((x / scale) ** shape)))


def _on_off(cv: float, on_share: float, rate: float) -> OnOff:
    burst = (cv * cv - 1.0) / (2.0 * (1.0 - on_share) ** 2)
    return OnOff(process="on-off", burst=burst, on_share=on_share, rate_per_s=rate)


def _two_exponentials(process: OnOff) -> Cdf:
    probability, fast, slow = process.branches()
    return lambda x: 1.0 - probability * np.exp(-fast * x) - (1.0 - probability) * np.exp(-slow * x)


def _ks(gaps: FloatArray, cdf: Cdf) -> float:
    """Return the distance of sorted gaps (mean 1) from a distribution function."""
    values = cdf(gaps)
    steps = np.arange(len(gaps) + 1) / len(gaps)
    return float(max(np.abs(values - steps[1:]).max(), np.abs(values - steps[:-1]).max()))
