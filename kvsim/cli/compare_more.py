"""What ``kvsim compare`` appends on request: multiples at one latency, and every latency model."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from kvsim.errors import ConfigError

if TYPE_CHECKING:
    from kvsim.experiments import Comparison
    from kvsim.experiments.capacity import Capacities
    from kvsim.scenario import Resolved


class Appended:
    """What was asked for besides the comparison itself.

    Parameters
    ----------
    resolved : Resolved
        The comparison's scenario.
    at_latency : float, optional
        Normalized latency in seconds at which to compare capacities.
    latency_models : bool
        Repeat the comparison under every latency model.

    Raises
    ------
    ConfigError
        The scenario has no rate to look for, or has no latency models but its own.
    """

    def __init__(self, resolved: Resolved, at_latency: float | None, latency_models: bool) -> None:
        if at_latency is not None and not 0 < at_latency < float("inf"):
            raise ConfigError(f"--at-latency {at_latency}: a positive number of seconds is expected")
        if at_latency is not None and (resolved.closed_loop or resolved.scenario.is_file):
            raise ConfigError("--at-latency varies the rate of arrivals: neither a trace nor a closed loop has one")
        if latency_models and resolved.scenario.scheduler == "static":
            raise ConfigError("--latency-models: the static scheduler has constants of its own")
        self._resolved, self._at, self._models = resolved, at_latency, latency_models

    @cached_property
    def capacities(self) -> Capacities | None:
        """Capacities at the latency, over at least three seeds."""
        if self._at is None:
            return None
        from kvsim.experiments.capacity import capacity
        from kvsim.objective import Objective

        served = self._resolved.scenario
        update = {"backlog": False, "requests": None, "stop_at": None, "seeds": max(3, served.seeds)}
        goal = Objective({"normalized-latency": self._at})
        return capacity(served.model_copy(update=update), goal, resources=False)

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """The comparison by latency model."""
        if not self._models:
            return {}
        from kvsim.experiments.models import compare_models

        return compare_models(self._resolved.scenario)

    def to_dict(self) -> dict[str, Any]:
        """Return what was asked for as plain values."""
        found: dict[str, Any] = {}
        if self.capacities is not None:
            from kvsim.cli.capacity_text import to_dict

            found["at_latency"] = to_dict(self.capacities)
        if self.comparisons:
            found["latency_models"] = {
                name: {"latency": c.latency.describe(), "multiples": c.multiples(), "systems": _systems(c)}
                for name, c in self.comparisons.items()
            }
        return found

    def print(self) -> None:
        """Print what was asked for."""
        if self.capacities is not None:
            from kvsim.cli.capacity_text import print_capacities

            print_capacities(self.capacities)
        if self.comparisons:
            _print_models(self.comparisons)


def _systems(comparison: Comparison) -> dict[str, dict[str, float | None]]:
    """Return used share, batch and throughput by allocator."""
    found: dict[str, dict[str, float | None]] = {}
    for system in comparison.systems:
        means = {name: system.mean(name) for name in ("used", "mean_batch", "output_tokens_per_s")}
        found[system.allocator] = {name: None if mean is None else mean.value for name, mean in means.items()}
    return found


def _print_models(comparisons: dict[str, Comparison]) -> None:
    """Print what each latency model makes of each allocator, and how much of that depends on it."""
    click.echo("What depends on the latency model")
    click.echo(f"  {'model':14} {'allocator':14} {'used':>7} {'batch':>8} {'tokens/s':>9} {'paged over it':>13}")
    for name, comparison in comparisons.items():
        multiples = comparison.multiples()
        for allocator, row in _systems(comparison).items():
            used, batch, tokens = row.values()
            cells = [
                "-" if used is None else f"{used:.1%}",
                "-" if batch is None else f"{batch:.2f}",
                "-" if tokens is None else f"{tokens:,.0f}",
                f"{multiples[allocator]:.2f}" if allocator in multiples else "",
            ]
            click.echo(f"  {name:14} {allocator:14} {cells[0]:>7} {cells[1]:>8} {cells[2]:>9} {cells[3]:>13}")
    for name, comparison in comparisons.items():
        click.echo(f"  {name}: {comparison.latency.describe()}")
