"""The highest request rate at which an objective holds.

Each replicate has a rate of its own at which its load (the worst measure over its limit) crosses 1: bracketed by
doubling or halving, then bisected. Replicates keep their random numbers over rates and over allocators, so rates and
their ratios are paired by seed.

Latencies are those of the requests that arrive in the steady window, run to completion: in overload a run goes on until
its queue is empty, and what arrived in the first tenth of the trace, while the server filled up, does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kvsim.errors import ConfigError, unknown
from kvsim.experiments.compare import run_one
from kvsim.latency import Built
from kvsim.results import Result
from kvsim.scenario import Resolved, Scenario

DEFAULT_DURATION_S = 3600.0
HOLDS, NEVER, ALWAYS = "holds up to", "never holds", "always holds"

_READERS: dict[str, Callable[[Result], float | None]] = {
    "normalized-latency": lambda result: result.summary()["normalized_latency_s"],
    "ttft-p99": lambda result: result.summary()["ttft_s"]["p99"],
    "tpot-p99": lambda result: result.summary()["tpot_s"]["p99"],
}
MEASURES = tuple(_READERS)


@dataclass(frozen=True)
class Objective:
    """Limits in seconds that all have to hold.

    Attributes
    ----------
    limits : mapping of str to float
        A name of ``MEASURES`` -> seconds.

    Raises
    ------
    ConfigError
        A measure is not known, a limit is not positive, or there is none.
    """

    limits: Mapping[str, float]

    def __post_init__(self) -> None:
        if not self.limits:
            raise ConfigError(f"an objective needs a limit on at least one of {', '.join(MEASURES)}")
        for name, limit in self.limits.items():
            if name not in MEASURES:
                raise unknown("measure", name, MEASURES)
            if not 0 < limit < math.inf:
                raise ConfigError(f"{name}: a limit is a positive number of seconds, not {limit}")

    def load(self, result: Result) -> float:
        """Return the worst measure over its limit: at most 1 where the objective holds, 0 where nothing arrived.

        Raises
        ------
        ConfigError
            No request finished.
        """
        if len(result.requests) and not result.requests.done.any():
            reasons = ", ".join(result.rejections()) or "none reached its end"
            raise ConfigError(f"no request finished with allocator {result.allocator!r}: {reasons}")
        values = ((_READERS[name](result), limit) for name, limit in self.limits.items())
        return max((value / limit for value, limit in values if value is not None), default=0.0)

    def __str__(self) -> str:
        return " and ".join(f"{name} <= {limit:g} s" for name, limit in self.limits.items())


@dataclass(frozen=True)
class Knee:
    """Where a load that grows with the rate crosses 1.

    Attributes
    ----------
    rate : float
        Requests/s; interpolated between ``low`` and ``high`` in logarithms. With ``never holds`` the lowest rate that
        was tried, with ``always holds`` the highest.
    low, high : float
        The highest rate seen to hold and the lowest seen to fail, within the tolerance of one another.
    status : {"holds up to", "never holds", "always holds"}
        Whether there is a knee among the rates tried.
    points : tuple of (float, float)
        Every (rate, load) that was evaluated, by rate.
    """

    rate: float
    low: float
    high: float
    status: str
    points: tuple[tuple[float, float], ...]


def find_knee(
    load: Callable[[float], float],
    start: float,
    *,
    factor: float = 2.0,
    tolerance: float = 0.005,
    lowest: float = 1e-4,
    highest: float = 1e5,
) -> Knee:
    """Bracket and bisect the rate at which a load crosses 1.

    Parameters
    ----------
    load : callable
        Rate -> load, growing on the whole.
    start : float
        First rate to try.
    factor : float
        By which a bracket is widened.
    tolerance : float
        Relative width of the last bracket.
    lowest, highest : float
        Rates beyond which nobody looks.
    """
    seen: dict[float, float] = {}

    def holds(rate: float) -> bool:
        seen[rate] = load(rate)
        return seen[rate] <= 1

    low = high = min(max(start, lowest), highest)
    if holds(start := low):
        while holds(high := min(high * factor, highest)):
            if high == highest:
                return _knee(highest, highest, math.inf, ALWAYS, seen)
            low = high
    else:
        while not holds(low := max(low / factor, lowest)):
            if low == lowest:
                return _knee(lowest, 0.0, lowest, NEVER, seen)
            high = low
    while high / low > 1 + tolerance:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return _knee(_crossing(low, high, seen), low, high, HOLDS, seen)


def _knee(rate: float, low: float, high: float, status: str, seen: dict[float, float]) -> Knee:
    return Knee(rate, low, high, status, tuple(sorted(seen.items())))


def _crossing(low: float, high: float, seen: dict[float, float]) -> float:
    """Interpolate in logarithms where the load is 1, between a rate that holds and one that fails."""
    below, above = seen[low], seen[high]
    if below <= 0 or not math.isfinite(above):
        return low
    share = -math.log(below) / (math.log(above) - math.log(below))
    return float(low * (high / low) ** share)


def measure_load(scenario: Scenario, allocator: str, rate: float, seed: int, latency: Built, goal: Objective) -> float:
    """Run one replicate of a scenario at a rate through an allocator and return its load."""
    return goal.load(run_at(scenario, allocator, rate, seed, latency))


def run_at(scenario: Scenario, allocator: str, rate: float, seed: int, latency: Built) -> Result:
    """Run one replicate of a scenario at a rate; an hour of traffic where the scenario does not say how much."""
    duration = scenario.duration
    if duration is None and scenario.requests is None:
        duration = DEFAULT_DURATION_S
    at_rate = scenario.model_copy(update={"rate": rate, "backlog": False, "duration": duration})
    resolved = Resolved(at_rate)
    return run_one(resolved, seed, allocator, scenario.placement, latency)


def knee_of(
    scenario: Scenario,
    allocator: str,
    seed: int,
    latency: Built,
    goal: Objective,
    *,
    start: float = 1.0,
    factor: float = 2.0,
    tolerance: float = 0.005,
) -> Knee:
    """Find the highest rate at which an objective holds in one replicate."""
    return find_knee(
        lambda rate: measure_load(scenario, allocator, rate, seed, latency, goal),
        start,
        factor=factor,
        tolerance=tolerance,
    )
