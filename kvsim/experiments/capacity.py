"""The highest request rate at which an objective holds.

Each replicate has a rate of its own at which its load (the worst measure over its limit) crosses 1: bracketed by
doubling or halving, then bisected. Replicates keep their random numbers over rates and over allocators, so rates and
their ratios are paired by seed.

Latencies are those of the requests that arrive in the steady window, run to completion: in overload a run goes on until
its queue is empty, and what arrived in the first tenth of the trace, while the server filled up, does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kvsim.errors import ConfigError
from kvsim.experiments.compare import run_one
from kvsim.experiments.workers import Workers, run_units
from kvsim.intervals import Mean, Ratio, mean_of, ratio_of
from kvsim.latency import Built, latency_of
from kvsim.objective import Objective
from kvsim.results import Result
from kvsim.scenario import Resolved, Scenario

DEFAULT_DURATION_S = 3600.0
LOWEST, HIGHEST = 1e-4, 1e5  # rates that nobody looks beyond, where the number of requests is given
FEWEST, MOST = 30, 1_000_000  # requests of a simulation, where its duration is
HOLDS, NEVER, ALWAYS = "holds up to", "never holds", "always holds"


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
    lowest: float = LOWEST,
    highest: float = HIGHEST,
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
    if holds(low):
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


def run_at(scenario: Scenario, allocator: str, rate: float, seed: int, latency: Built) -> Result:
    """Run one replicate of a scenario at a rate; an hour of traffic where the scenario does not say how much."""
    resolved = Resolved(at_rate(scenario, rate))
    return run_one(resolved, seed, allocator, scenario.placement, latency)


def at_rate(scenario: Scenario, rate: float) -> Scenario:
    """Return a scenario with arrivals at a rate."""
    duration = scenario.duration
    if duration is None and scenario.requests is None:
        duration = DEFAULT_DURATION_S
    return scenario.model_copy(update={"rate": rate, "backlog": False, "duration": duration})


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
    duration = at_rate(scenario, start).duration
    return find_knee(
        lambda rate: goal.load(run_at(scenario, allocator, rate, seed, latency)),
        start,
        factor=factor,
        tolerance=tolerance,
        lowest=FEWEST / duration if duration else LOWEST,
        highest=MOST / duration if duration else HIGHEST,
    )


# What is enlarged by a quarter to see whether it binds, with more of it in a scenario.
MORE = 1.25
RESOURCES: dict[str, Callable[[Scenario], Scenario]] = {
    "memory": lambda scenario: _with_more_slots(scenario),
    "sequences": lambda s: s.model_copy(update={"max_num_seqs": math.ceil(MORE * s.max_num_seqs)}),
    "tokens": lambda s: s.model_copy(update={"max_num_batched_tokens": math.ceil(MORE * _budget(s))}),
}
BINDS = 0.1  # an elasticity below this is none


def _with_more_slots(scenario: Scenario) -> Scenario:
    blocks = math.ceil(MORE * Resolved(scenario).capacity / scenario.block_size)
    return scenario.model_copy(update={"pool": None, "num_blocks": blocks})


def _budget(scenario: Scenario) -> int:
    return scenario.max_num_batched_tokens or max(2560, Resolved(scenario).max_model_len)


@dataclass(frozen=True)
class Task:
    """A knee to be found: one allocator, one seed, perhaps with more of a resource."""

    scenario: Scenario
    allocator: str
    seed: int
    goal: Objective
    start: float = 1.0
    factor: float = 2.0
    resource: str | None = None


def run_task(task: Task) -> Knee:
    """Find one knee."""
    scenario = task.scenario if task.resource is None else RESOURCES[task.resource](task.scenario)
    latency = latency_of(Resolved(scenario))
    return knee_of(scenario, task.allocator, task.seed, latency, task.goal, start=task.start, factor=task.factor)


@dataclass(frozen=True)
class Capacity:
    """The highest rate at which an objective holds with one allocator.

    Attributes
    ----------
    allocator : str
        Its name.
    knees : tuple of Knee
        One a seed.
    elasticities : mapping of str to float
        d ln rate / d ln resource at the first seed's knee, from a quarter more of each of ``RESOURCES``.
    """

    allocator: str
    knees: tuple[Knee, ...]
    elasticities: Mapping[str, float] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """``holds up to`` if every replicate has a knee, else what the first without one says."""
        return next((knee.status for knee in self.knees if knee.status != HOLDS), HOLDS)

    @property
    def rate(self) -> Mean:
        """Mean rate over the replicates with its interval."""
        return mean_of([knee.rate for knee in self.knees])

    @property
    def binds(self) -> str | None:
        """The resource that binds at the knee; ``compute`` where more of none of the others helps."""
        if not self.elasticities:
            return None
        name = max(self.elasticities, key=lambda resource: self.elasticities[resource])
        return name if self.elasticities[name] >= BINDS else "compute"


@dataclass(frozen=True)
class Capacities:
    """Capacities of several allocators under one objective.

    Attributes
    ----------
    scenario : Scenario
        What was served.
    goal : Objective
        What had to hold.
    systems : tuple of Capacity
        One an allocator.
    """

    scenario: Scenario
    goal: Objective
    systems: tuple[Capacity, ...]

    def of(self, allocator: str) -> Capacity | None:
        """Return the capacity with an allocator, if it was looked for."""
        return next((system for system in self.systems if system.allocator == allocator), None)

    def multiples(self, of: str = "paged") -> dict[str, Ratio]:
        """Return the capacity with one allocator over that with each other, paired by seed, where both have knees."""
        ours = self.of(of)
        if ours is None or ours.status != HOLDS:
            return {}
        mine = [knee.rate for knee in ours.knees]
        ratios = {
            system.allocator: ratio_of(mine, [knee.rate for knee in system.knees])
            for system in self.systems
            if system is not ours and system.status == HOLDS
        }
        return {name: ratio for name, ratio in ratios.items() if ratio is not None}


def capacity(
    scenario: Scenario,
    goal: Objective,
    *,
    workers: Workers | None = None,
    resources: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Capacities:
    """Find the highest rate at which an objective holds, for every allocator of a scenario.

    Parameters
    ----------
    scenario : Scenario
        Its rate is where the search starts; its seeds are the replicates.
    goal : Objective
        What has to hold.
    workers : Workers, optional
        Who runs the simulations; this process by default.
    resources : bool
        Find out which resource binds.
    progress : callable, optional
        Called with (knees found, knees to find).

    Raises
    ------
    ConfigError
        The scenario or the objective cannot be meant.
    """
    _check(scenario)
    start = scenario.rate or 1.0
    seeds = range(scenario.seed, scenario.seed + scenario.seeds)
    tasks = [Task(scenario, name, seed, goal, start) for name in scenario.allocator for seed in seeds]
    total = len(tasks) + (len(scenario.allocator) * len(RESOURCES) if resources else 0)
    found = run_tasks(tasks, workers, lambda done: progress(done, total) if progress else None)
    knees = {name: tuple(found[i * len(seeds) : (i + 1) * len(seeds)]) for i, name in enumerate(scenario.allocator)}
    more = [
        Task(scenario, name, scenario.seed, goal, knees[name][0].rate, 1.1, resource)
        for name in scenario.allocator
        for resource in RESOURCES
        if resources and knees[name][0].status == HOLDS
    ]
    enlarged = run_tasks(more, workers, lambda done: progress(len(tasks) + done, total) if progress else None)
    elasticities: dict[str, dict[str, float]] = {name: {} for name in scenario.allocator}
    for task, knee in zip(more, enlarged, strict=True):
        gain = math.log(knee.rate / knees[task.allocator][0].rate) / math.log(MORE)
        elasticities[task.allocator][str(task.resource)] = gain
    systems = (Capacity(name, knees[name], elasticities[name]) for name in scenario.allocator)
    return Capacities(scenario, goal, tuple(systems))


def run_tasks(tasks: Sequence[Task], workers: Workers | None, progress: Callable[[int], None]) -> list[Knee]:
    """Find knees, and return them in the order of the tasks."""
    found: dict[int, Knee] = {}

    def done(position: int, knee: Knee) -> None:
        found[position] = knee
        progress(len(found))

    run_units(run_task, tasks, workers or Workers(), done)
    return [found[position] for position in range(len(tasks))]


def _check(scenario: Scenario) -> None:
    """Refuse a scenario without arrivals at a rate."""
    if scenario.backlog:
        raise ConfigError("a capacity is a rate of arrivals: a backlog has none")
    resolved = Resolved(at_rate(scenario, scenario.rate or 1.0))
    latency_of(resolved)
    resolved.stream(scenario.seed)
