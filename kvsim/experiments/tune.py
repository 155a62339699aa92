"""A setting of a paged pool, tuned: what each value serves under an objective, and what it costs where.

For every value and seed there are two measurements. The capacity: the highest rate at which the objective holds. And a
backlog of the same requests, in which memory is short all the time: shares of the pool, preemptions, recomputed tokens,
and what the attention kernel's table takes of the throughput.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvsim.errors import ConfigError, unknown
from kvsim.experiments.capacity import HOLDS, Knee, at_rate, knee_of
from kvsim.experiments.compare import run_one
from kvsim.experiments.workers import Workers, run_units
from kvsim.intervals import Mean, Ratio, mean_of, ratio_of
from kvsim.latency import kernel_table, latency_of
from kvsim.objective import Objective
from kvsim.scenario import Resolved, Scenario, make_scenario

# what can be tuned: field of a scenario -> values tried if none are given
KNOBS: dict[str, tuple[Any, ...]] = {
    "block_size": (1, 2, 4, 8, 16, 32, 64, 128, 256),
    "pool": (0.25, 0.5, 0.75, 1.0, 1.5, 2.0),  # of the scenario's own
    "watermark": (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    "max_num_seqs": (4, 8, 16, 32, 64, 128, 256),
}
MARGIN = 0.01
ENTRY_BYTES = 4  # an entry of a block table
BACKLOG = 2000

COSTS = ("last_block_waste", "kernel_penalty", "recomputed")


@dataclass(frozen=True)
class Unit:
    """A value and a seed."""

    scenario: Scenario
    goal: Objective


@dataclass(frozen=True)
class Measurement:
    """What one value does with one seed.

    Attributes
    ----------
    knee : Knee
        Where the objective ceases to hold.
    summary : dict
        Of the backlog.
    kernel_penalty : float
        Share of the backlog's throughput that the kernel table takes.
    """

    knee: Knee
    summary: dict[str, Any]
    kernel_penalty: float


@dataclass(frozen=True)
class Choice:
    """One value over all seeds.

    Attributes
    ----------
    value : object
        Of the setting.
    measurements : tuple of Measurement
        One a seed.
    table_bytes : int
        Of the block tables: ``max_num_seqs`` rows for the longest request, four bytes an entry.
    """

    value: Any
    measurements: tuple[Measurement, ...]
    table_bytes: int

    @property
    def status(self) -> str:
        """``holds up to`` if every replicate has a knee, else what the first without one says."""
        return next((m.knee.status for m in self.measurements if m.knee.status != HOLDS), HOLDS)

    @property
    def rates(self) -> list[float]:
        """Capacities by seed."""
        return [m.knee.rate for m in self.measurements]

    @property
    def rate(self) -> Mean:
        """Mean capacity with its interval."""
        return mean_of(self.rates)

    def mean(self, measure: str) -> float:
        """Mean of a number of the backlog's summary."""
        return float(sum(m.summary[measure] for m in self.measurements) / len(self.measurements))

    def costs(self) -> dict[str, float]:
        """Return the costs as shares: of the pool, of the throughput, of the tokens generated.

        What a last block holds no token in is waste while it lasts, whether a token comes some day or not.
        """
        generated = [m.summary["recomputed_tokens"] / max(1, m.summary["generated"]) for m in self.measurements]
        return {
            "last_block_waste": self.mean("reserved") + self.mean("internal"),
            "kernel_penalty": sum(m.kernel_penalty for m in self.measurements) / len(self.measurements),
            "recomputed": sum(generated) / len(generated),
        }


@dataclass(frozen=True)
class Tuning:
    """What there is to choose from.

    Attributes
    ----------
    knob : str
        The setting.
    scenario : Scenario
        The rest.
    goal : Objective
        What has to hold.
    choices : tuple of Choice
        One a value.
    margin : float
        How much worse than the best counts as no worse.
    """

    knob: str
    scenario: Scenario
    goal: Objective
    choices: tuple[Choice, ...]
    margin: float = MARGIN

    @property
    def best(self) -> Choice:
        """The value with the highest mean capacity.

        Raises
        ------
        ConfigError
            The objective holds at no rate with any value, or at every rate with one.
        """
        for choice in self.choices:
            if choice.status != HOLDS:
                raise ConfigError(f"{self.goal} {choice.status} with {self.knob} {choice.value}: tune by another one")
        return max(self.choices, key=lambda choice: choice.rate.value)

    def against_best(self, choice: Choice) -> Ratio:
        """Return the capacity of a value over that of the best, paired by seed."""
        ratio = ratio_of(choice.rates, self.best.rates)
        assert ratio is not None
        return ratio

    def is_no_worse(self, choice: Choice) -> bool:
        """Whether the paired 95 % interval against the best reaches up to it, but for the margin."""
        ratio = self.against_best(choice)
        return choice is self.best or (ratio.value if ratio.high is None else ratio.high) >= 1 - self.margin

    @property
    def recommended(self) -> list[Choice]:
        """The values that are statistically no worse than the best."""
        return [choice for choice in self.choices if self.is_no_worse(choice)]

    def reasons(self) -> list[str]:
        """Say why."""
        best = self.best
        lines = [
            f"{self.knob} {best.value} serves most, {best.rate.value:.3f} requests/s with {self.goal}; recommended is "
            f"what the 95 % interval, paired over {len(best.measurements)} seeds, does not put more than "
            f"{self.margin:.0%} below it"
        ]
        lines += [self._reason(choice) for choice in self.choices if not self.is_no_worse(choice)]
        if self.knob == "block_size" and self.scenario.kernel_table is None:
            lines.append(
                "small sizes look free because nothing charges for them: name what they cost the attention kernel with "
                "--kernel-table (a CSV file of your own measurements, or figure-18)"
            )
        return lines

    def _reason(self, choice: Choice) -> str:
        mine, best = choice.costs(), self.best.costs()
        names = {
            "last_block_waste": "of the pool in last blocks",
            "kernel_penalty": "of the throughput in the attention kernel",
            "recomputed": "recomputed for each token generated",
        }
        worse = [f"{mine[c]:.1%} {text} ({best[c]:.1%})" for c, text in names.items() if mine[c] > best[c] + 0.001]
        because = "; ".join(worse) or "fewer requests at once"
        return f"{self.knob} {choice.value}: {1 - self.against_best(choice).value:.1%} less: {because}"


def tune(
    scenario: Scenario,
    knob: str,
    goal: Objective,
    values: Sequence[Any] | None = None,
    *,
    margin: float = MARGIN,
    workers: Workers | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Measure the values of a setting.

    Parameters
    ----------
    scenario : Scenario
        The rest of the settings; the allocator is ``paged``.
    knob : str
        A name of ``KNOBS``.
    goal : Objective
        What has to hold.
    values : sequence, optional
        At least two; ``KNOBS`` has some.
    margin : float
        How much worse than the best counts as no worse.
    workers : Workers, optional
        Who runs the simulations; this process by default.
    progress : callable, optional
        Called with (measurements done, measurements).

    Raises
    ------
    ConfigError
        The setting is not known, or a value cannot be meant.
    """
    if knob not in KNOBS:
        raise unknown("knob", knob, KNOBS)
    if not 0 <= margin < 1:
        raise ConfigError(f"margin {margin}: a share from 0 to below 1 is expected")
    scenarios = {value: _with(scenario, knob, value) for value in values or _usual(scenario, knob)}
    if len(scenarios) < 2:
        raise ConfigError(f"{knob}: at least two different values are expected")
    seeds = range(scenario.seed, scenario.seed + scenario.seeds)
    units = [Unit(s.model_copy(update={"seed": seed, "seeds": 1}), goal) for s in scenarios.values() for seed in seeds]
    found: dict[int, Measurement] = {}

    def done(position: int, measurement: Measurement) -> None:
        found[position] = measurement
        if progress:
            progress(len(found), len(units))

    run_units(measure, units, workers or Workers(), done)
    choices = tuple(
        Choice(value, tuple(found[i * len(seeds) + j] for j in range(len(seeds))), table_bytes(scenarios[value]))
        for i, value in enumerate(scenarios)
    )
    return Tuning(knob, scenario, goal, choices, margin)


def _usual(scenario: Scenario, knob: str) -> Sequence[Any]:
    if knob != "pool":
        return KNOBS[knob]
    resolved = Resolved(scenario)
    return [f"{round(share * resolved.capacity * resolved.slot_bytes / 2**20)}MiB" for share in KNOBS["pool"]]


def _with(scenario: Scenario, knob: str, value: Any) -> Scenario:
    """Return a scenario with one value, held to what it may be."""
    settings = scenario.model_dump(exclude_unset=True) | {"allocator": ["paged"], knob: value}
    if knob == "pool":
        settings.pop("num_blocks", None)
    made = make_scenario(settings, "tune")
    resolved = Resolved(at_rate(made, made.rate or 1.0))
    if made.kernel_table is not None:
        kernel_table(made.kernel_table).factor(made.block_size)
    latency_of(resolved)
    return made


def measure(unit: Unit) -> Measurement:
    """Measure one value with one seed."""
    scenario = unit.scenario
    latency = latency_of(Resolved(scenario))
    knee = knee_of(scenario, "paged", scenario.seed, latency, unit.goal, start=scenario.rate or 1.0)
    waiting = scenario.model_copy(update={"rate": None, "duration": None, "backlog": True, "requests": BACKLOG})
    summary = _backlog(waiting)
    penalty = 0.0
    if scenario.kernel_table is not None:
        without = _backlog(waiting.model_copy(update={"kernel_table": None}))
        penalty = 1 - summary["output_tokens_per_s"] / without["output_tokens_per_s"]
    return Measurement(knee, summary, penalty)


def _backlog(scenario: Scenario) -> dict[str, Any]:
    """Serve a backlog; return the summary and the tokens generated."""
    resolved = Resolved(scenario)
    result = run_one(resolved, scenario.seed, "paged", scenario.placement, latency_of(resolved))
    if result.window is None:
        raise ConfigError(f"a backlog of {BACKLOG:,} requests is no backlog for {resolved.capacity:,} slots")
    return result.summary() | {"generated": result.accounts.total.generated}


def table_bytes(scenario: Scenario) -> int:
    """Return the bytes of the block tables of a full batch of longest requests."""
    resolved = Resolved(scenario)
    return scenario.max_num_seqs * math.ceil(resolved.max_model_len / scenario.block_size) * ENTRY_BYTES
