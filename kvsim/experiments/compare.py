"""Many simulations, one answer: the same requests through several allocators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import kvsim
from kvsim.allocators import make_allocator
from kvsim.engine import session_clients, simulate
from kvsim.intervals import Mean, mean_of
from kvsim.latency import Built, latency_of, with_kernel
from kvsim.results import Result
from kvsim.scenario import Resolved, Scenario
from kvsim.scheduler import scheduler_for

# (allocator, seed, requests finished, requests)
Progress = Callable[[str, int, int, int], None]

# Settings that a condition names where they are not the default
SETTINGS_SAID = (
    "block_size",
    "placement",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "watermark",
    "stop_at",
)

# What each idea gives: the label of a step, the allocator and the placement after it.
IDEAS = (
    ("reserve the maximum", "max", "buddy"),
    ("guess the output's power of two", "pow2", "buddy"),
    ("know the output", "oracle", "buddy"),
    ("no buddy rounding", "oracle", "first-fit"),
    ("not contiguous", "paged-oracle", "paged"),
    ("grow on demand", "paged", "paged"),
)


VERDICTS = ("bound_by", "stationary")  # what a summary says of each run


@dataclass(frozen=True)
class System:
    """One allocator over all replicates.

    Attributes
    ----------
    allocator, placement : str
        Its two axes.
    results : tuple of Result
        One a seed, in their order.
    """

    allocator: str
    placement: str
    results: tuple[Result, ...]

    @property
    def label(self) -> str:
        """Name for people: with the placement, where that is not the paper's."""
        return self.allocator if self.placement in ("buddy", "paged") else f"{self.allocator} ({self.placement})"

    @cached_property
    def summaries(self) -> list[dict[str, Any]]:
        """Summary of each replicate."""
        return [result.summary() for result in self.results]

    def mean(self, measure: str) -> Mean | None:
        """Mean of a numeric measure of the summaries over the replicates, or None where one has none."""
        values = [summary[measure] for summary in self.summaries]
        return None if any(value is None for value in values) else mean_of(values)

    def summary(self) -> dict[str, Any]:
        """Summary of the only replicate, or the means of all with the half-widths of their intervals.

        What is said of each run, and is no number, is a list then, a replicate an entry.
        """
        summaries = self.summaries
        if len(summaries) == 1:
            return summaries[0]
        merged: dict[str, Any] = {name: _merge([s[name] for s in summaries]) for name in summaries[0]}
        merged |= {name: [s[name] for s in summaries] for name in VERDICTS}
        halves = {name: self.mean(name) for name, value in summaries[0].items() if isinstance(value, float)}
        merged["interval_95"] = {name: mean.half_width for name, mean in halves.items() if mean is not None}
        return merged


@dataclass(frozen=True)
class Comparison:
    """The same requests through several allocators.

    Attributes
    ----------
    resolved : Resolved
        The scenario, with its defaults filled in.
    systems : tuple of System
        One an allocator.
    latency : Built
        The latency model of all of them.
    notices : tuple of str
        What the reader of the trace had to say.
    """

    resolved: Resolved
    systems: tuple[System, ...]
    latency: Built
    notices: tuple[str, ...] = ()

    def system(self, allocator: str) -> System | None:
        """Return the system of an allocator, if it was run."""
        return next((system for system in self.systems if system.allocator == allocator), None)

    def multiples(self) -> dict[str, float]:
        """Output tokens/s of ``paged`` over those of each other allocator."""
        paged = self.system("paged")
        rate = paged.mean("output_tokens_per_s") if paged else None
        if rate is None:
            return {}
        others = {s.allocator: s.mean("output_tokens_per_s") for s in self.systems if s is not paged}
        return {name: rate.value / mean.value for name, mean in others.items() if mean is not None and mean.value}

    def stamp(self) -> dict[str, Any]:
        """Return what every output carries: by what it was made."""
        scenario = self.resolved.scenario
        return {
            "version": kvsim.__version__,
            "scheduler": scenario.scheduler,
            "latency": self.latency.describe(),
            "latency_origin": self.latency.origin,
            "seed": scenario.seed,
            "seeds": scenario.seeds,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values: scenario, systems, multiples, notices."""
        return {
            "scenario": self.resolved.describe() | {"stamp": self.stamp()},
            "systems": [system.summary() for system in self.systems],
            "multiples": self.multiples(),
            "notices": list(self.notices),
        }

    def condition(self) -> str:
        """Say under which condition the numbers hold."""
        resolved, scenario = self.resolved, self.resolved.scenario
        name = Path(scenario.workload).name
        requests = f"{len(self.systems[0].results[0].requests):,} requests of {name}"
        traffic = f"a backlog of {requests}" if resolved.backlog else requests
        if resolved.closed_loop:
            traffic = f"users of {name} in a closed loop for {resolved.session_seconds:g} s"
        shown = {key: getattr(scenario, key) for key in SETTINGS_SAID if _is_set(scenario, key)}
        traffic += "".join(f", {key.replace('_', ' ')} {value}" for key, value in shown.items())
        if scenario.rate is not None:
            traffic += f" at {scenario.rate:g}/s"
        return f"{resolved.model.name} on {resolved.device}, {resolved.capacity:,} slots, {traffic}"

    def conclusion(self) -> str:
        """Return the sentence that people come for."""
        used = {s.allocator: s.mean("used") for s in self.systems}
        shares = {name: mean.value for name, mean in used.items() if mean is not None}
        contiguous = [share for name, share in shares.items() if not name.startswith("paged")]
        if not contiguous or "paged" not in shares:
            return f"Condition: {self.condition()}."
        low, high = min(contiguous), max(contiguous)
        span = f"{low:.1%}" if len(contiguous) == 1 else f"{100 * low:.1f}-{high:.1%}"
        multiples = {n: m for n, m in self.multiples().items() if not n.startswith("paged")}
        text = f"Of the KV memory {span} is used with contiguous allocation and {shares['paged']:.1%} with paging"
        if multiples:
            text += f"; throughput is {' / '.join(f'{m:.2f}' for m in multiples.values())} times that of "
            text += " / ".join(multiples)
        if self._arrivals_bind():
            text += ", and no more than the arrivals: paging is not saturated"
        return f"{text} ({self.condition()})."

    def _arrivals_bind(self) -> bool:
        paged = self.system("paged")
        return paged is not None and all(result.bound_by == "arrivals" for result in paged.results)


def compare(scenario: Scenario | Resolved, progress: Progress | None = None) -> Comparison:
    """Run the same requests through every allocator of a scenario.

    Parameters
    ----------
    scenario : Scenario or Resolved
        What to run.
    progress : callable, optional
        Called with (allocator, seed, requests finished, requests).

    Raises
    ------
    ConfigError, TraceError
        The scenario cannot be meant, or its trace not be read.
    """
    resolved = scenario if isinstance(scenario, Resolved) else Resolved(scenario)
    settings = resolved.scenario
    return run_systems(resolved, [(name, settings.placement) for name in settings.allocator], progress)


def waterfall(comparison: Comparison, progress: Progress | None = None) -> Comparison:
    """Run what each idea adds, from ``max`` to ``paged`` (see ``IDEAS``), over the requests of a comparison.

    Systems that the comparison has already are not run again.
    """
    resolved = comparison.resolved
    known = {(system.allocator, system.placement): system for system in comparison.systems}
    missing = [(name, place) for _, name, place in IDEAS if (name, place) not in known]
    if missing:
        more = run_systems(resolved, missing, progress)
        known |= {(system.allocator, system.placement): system for system in more.systems}
    return Comparison(resolved, tuple(known[name, place] for _, name, place in IDEAS), comparison.latency)


def run_systems(resolved: Resolved, systems: Sequence[tuple[str, str]], progress: Progress | None = None) -> Comparison:
    """Run the replicates of a scenario through (allocator, placement) pairs."""
    scenario = resolved.scenario
    latency = latency_of(resolved)
    results: dict[tuple[str, str], list[Result]] = {pair: [] for pair in systems}
    for seed in range(scenario.seed, scenario.seed + scenario.seeds):
        for name, placement in systems:
            results[name, placement].append(run_one(resolved, seed, name, placement, latency, progress))
    done = (System(name, rs[0].placement, tuple(rs)) for (name, _), rs in results.items())
    notices = () if resolved.closed_loop else resolved.stream(scenario.seed).notices
    return Comparison(resolved, tuple(done), latency, notices)


def run_one(
    resolved: Resolved,
    seed: int,
    allocator: str,
    placement: str,
    latency: Built,
    progress: Progress | None = None,
) -> Result:
    """Run one replicate of a scenario through one allocator."""
    scenario = resolved.scenario
    scheduler = scheduler_for(scenario)
    pool = make_allocator(
        allocator,
        capacity=resolved.capacity,
        max_model_len=resolved.max_model_len,
        max_num_seqs=scheduler.sequences(resolved.capacity, resolved.max_model_len),
        block_size=scenario.block_size,
        placement=placement if placement != "paged" else "buddy",
    )
    traffic: dict[str, Any]
    if resolved.closed_loop:
        seconds = resolved.session_seconds
        traffic = {"clients": session_clients(resolved.users(seed), seconds), "duration_s": seconds}
    else:
        traffic = {"stream": resolved.stream(seed), "backlog": resolved.backlog}
    total = len(traffic["stream"]) if "stream" in traffic else 0
    return simulate(
        allocator=pool,
        latency=with_kernel(latency, scenario, allocator),
        scheduler=scheduler,
        max_model_len=resolved.max_model_len,
        stop_at_s=scenario.stop_at,
        engine=scenario.engine,
        progress=_reporter(progress, allocator, seed, total),
        **traffic,
    )


def _is_set(scenario: Scenario, key: str) -> bool:
    return bool(getattr(scenario, key) != Scenario.model_fields[key].default)


def _reporter(progress: Progress | None, name: str, seed: int, total: int) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda finished, _now: progress(name, seed, finished, total)


def _merge(values: list[Any]) -> Any:
    """Mean of numbers, the common value of what is the same, dicts by their keys, and the rest side by side."""
    if all(value == values[0] for value in values):
        return values[0]
    if all(isinstance(value, dict) for value in values):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _merge([value.get(key, 0) for value in values]) for key in keys}
    if any(value is None for value in values):
        return None
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return mean_of(values).value
    return values
