"""When requests arrive: processes with one arrival a unit of time, which a rate then stretches or squeezes.

The pattern of a seed is the same at every rate (common random numbers), so that two rates can be compared in pairs.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from kvsim.errors import ConfigError
from kvsim.generate.lengths import Positive, Table
from kvsim.generate.special import FloatArray
from kvsim.requests import NS_PER_S, IntArray

CHUNK = 1 << 17

Rate = Positive | None


class Poisson(Table):
    """Gaps are exponential: a coefficient of variation of 1."""

    process: Literal["poisson"]
    rate_per_s: Rate = None

    def gaps(self, rng: np.random.Generator, num: int) -> FloatArray:
        """Return ``num`` gaps with mean 1."""
        return rng.standard_exponential(num)


class GammaGaps(Table):
    """Gaps are gamma with coefficient of variation ``cv``: above 1 bursts, below 1 nearly regular."""

    process: Literal["gamma"]
    cv: Positive
    rate_per_s: Rate = None

    def gaps(self, rng: np.random.Generator, num: int) -> FloatArray:
        """Return ``num`` gaps with mean 1."""
        shape = self.cv**-2
        return rng.standard_gamma(shape, num) / shape


class WeibullGaps(Table):
    """Gaps are Weibull with coefficient of variation ``cv``."""

    process: Literal["weibull"]
    cv: Annotated[float, Field(ge=0.05, le=20)]
    rate_per_s: Rate = None

    def gaps(self, rng: np.random.Generator, num: int) -> FloatArray:
        """Return ``num`` gaps with mean 1."""
        shape = weibull_shape(self.cv)
        return np.asarray(rng.standard_exponential(num) ** (1.0 / shape) / math.gamma(1.0 + 1.0 / shape))


class OnOff(Table):
    """Poisson while on, silent while off, both periods exponential: an interrupted Poisson process.

    Attributes
    ----------
    burst : float
        Mean number of arrivals in an on period.
    on_share : float
        Share of the time that is on.

    Notes
    -----
    An interrupted Poisson process is a renewal process whose gaps are one of two exponentials (Kuczura 1973), which is
    how it is drawn. The squared coefficient of variation is 1 + 2 burst (1 - on_share)^2.
    """

    process: Literal["on-off"]
    burst: Positive
    on_share: Annotated[float, Field(gt=0, lt=1)]
    rate_per_s: Rate = None

    def branches(self) -> tuple[float, float, float]:
        """Return the probability of the first exponential and the rates of both."""
        while_on = 1.0 / self.on_share
        leave_on = while_on / self.burst
        leave_off = leave_on * self.on_share / (1.0 - self.on_share)
        total = while_on + leave_on + leave_off
        root = math.sqrt(total**2 - 4.0 * while_on * leave_off)
        fast, slow = (total + root) / 2.0, 2.0 * while_on * leave_off / (total + root)
        return (while_on - slow) / (fast - slow), fast, slow

    def gaps(self, rng: np.random.Generator, num: int) -> FloatArray:
        """Return ``num`` gaps with mean 1."""
        probability, fast, slow = self.branches()
        u = rng.random((num, 2))
        return np.asarray(-np.log1p(-u[:, 1]) / np.where(u[:, 0] < probability, fast, slow))


class Constant(Table):
    """One request every 1 / rate."""

    process: Literal["constant"]
    rate_per_s: Rate = None

    def gaps(self, rng: np.random.Generator, num: int) -> FloatArray:
        """Return ``num`` gaps of 1."""
        return np.ones(num)


class Backlog(Table):
    """All requests wait at time 0."""

    process: Literal["backlog"]


class Replay(Table):
    """The arrivals of a trace, over again from its start when more are asked for.

    Attributes
    ----------
    trace : str
        A file that ``kvsim.traces.read`` reads; relative paths start at the workload's own folder.
    time_scale : float
        Factor on every gap: 2 is half the rate.
    """

    process: Literal["replay"]
    trace: str
    time_scale: Positive = 1.0


Arrivals = Annotated[
    Poisson | GammaGaps | WeibullGaps | OnOff | Constant | Backlog | Replay, Field(discriminator="process")
]
Renewal = Poisson | GammaGaps | WeibullGaps | OnOff | Constant


def weibull_shape(cv: float) -> float:
    """Return the shape of the Weibull distribution with this coefficient of variation, by bisection."""
    low, high = 0.05, 100.0
    for _ in range(200):
        middle = (low + high) / 2.0
        log_ratio = math.lgamma(1.0 + 2.0 / middle) - 2.0 * math.lgamma(1.0 + 1.0 / middle)
        low, high = (middle, high) if math.expm1(log_ratio) > cv * cv else (low, middle)
    return (low + high) / 2.0


def draw_times(
    process: Renewal,
    rng: np.random.Generator,
    rate_per_s: float,
    *,
    num: int | None = None,
    duration_s: float | None = None,
) -> IntArray:
    """Return arrival times in nanoseconds, the first one gap after 0.

    Parameters
    ----------
    process : Renewal
        What draws the gaps.
    rng : numpy.random.Generator
        Read in order: the arrivals of a short run are the first ones of a long run.
    rate_per_s : float
        Mean arrivals a second.
    num : int, optional
        End after so many arrivals.
    duration_s : float, optional
        End at this time; without ``num`` the number is whatever arrives by then.
    """
    horizon = math.inf if duration_s is None else duration_s * rate_per_s
    pieces: list[FloatArray] = []
    count, now = 0, 0.0
    while now <= horizon and (num is None or count < num):
        gaps = process.gaps(rng, CHUNK if num is None else min(CHUNK, num - count))
        gaps[0] += now
        pieces.append(np.cumsum(gaps))
        count, now = count + len(gaps), float(pieces[-1][-1])
    times = np.concatenate(pieces) if pieces else np.empty(0)
    return _nanoseconds(times[: np.searchsorted(times, horizon, side="right")], rate_per_s)


def _nanoseconds(units: FloatArray, rate_per_s: float) -> IntArray:
    if len(units) and units[-1] / rate_per_s * NS_PER_S >= 2.0**63:
        raise ConfigError(f"at {rate_per_s:g} requests/s the last arrival is 292 years away: raise the rate")
    return np.asarray(np.rint(units / rate_per_s * NS_PER_S), dtype=np.int64)


def replay_times(
    replay: Replay, folder: Path, *, num: int | None, duration_s: float | None, rate_per_s: float | None
) -> IntArray:
    """Return the arrival times of a trace, repeated as often as needed, in nanoseconds.

    Parameters
    ----------
    replay : Replay
        Which trace and at what pace.
    folder : Path
        Where a relative path starts.
    num, duration_s : optional
        When to end; without both, after the trace's last request.
    rate_per_s : float, optional
        Stretch the trace to this mean rate, after ``time_scale``.
    """
    from kvsim.traces import read

    stream = read(folder / replay.trace)
    gaps = np.diff(stream.arrival_ns, prepend=stream.arrival_ns[:1]).astype(np.float64)
    if len(gaps) < 2 or gaps.sum() == 0:
        raise ConfigError(f"{replay.trace} has no two arrival times: nothing can be replayed")
    mean_gap = gaps.sum() / (len(gaps) - 1)
    gaps[0] = mean_gap  # the first request of every round after the first comes one mean gap after the last
    gaps *= replay.time_scale if rate_per_s is None else NS_PER_S / rate_per_s / mean_gap
    round_ns = gaps.sum()
    if num is None:
        num = len(gaps) if duration_s is None else int((duration_s * NS_PER_S / round_ns + 2) * len(gaps))
    times = np.cumsum(np.resize(gaps, num)) - gaps[0]
    end = math.inf if duration_s is None else duration_s * NS_PER_S
    return np.asarray(np.rint(times[times <= end]), dtype=np.int64)
