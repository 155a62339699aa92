"""What ``kvsim capacity`` prints."""

from __future__ import annotations

from typing import Any

import kvsim
from kvsim.experiments.capacity import ALWAYS, HOLDS, MORE, NEVER, RESOURCES, Capacities, Capacity
from kvsim.intervals import Ratio
from kvsim.latency import latency_of
from kvsim.scenario import Resolved


def to_dict(found: Capacities) -> dict[str, Any]:
    """Return everything as plain values."""
    return {
        "scenario": Resolved(found.scenario).describe(),
        "stamp": stamp(found),
        "objective_s": dict(found.goal.limits),
        "systems": [_system(system) for system in found.systems],
        "multiples": {name: ratio._asdict() for name, ratio in found.multiples().items()},
    }


def stamp(found: Capacities) -> dict[str, Any]:
    """Return by what an output was made."""
    scenario, latency = found.scenario, latency_of(Resolved(found.scenario))
    return {
        "version": kvsim.__version__,
        "scheduler": scenario.scheduler,
        "latency": latency.describe(),
        "latency_origin": latency.origin,
        "seed": scenario.seed,
        "seeds": scenario.seeds,
    }


def _system(system: Capacity) -> dict[str, Any]:
    mean = system.rate
    return {
        "allocator": system.allocator,
        "status": system.status,
        "requests_per_s": mean.value,
        "half_width_95": mean.half_width,
        "by_seed": [knee.rate for knee in system.knees],
        "binds": system.binds,
        "elasticities": dict(system.elasticities),
        "points": [[list(point) for point in knee.points] for knee in system.knees],
    }


def print_capacities(found: Capacities) -> None:
    """Print a table, and under which condition it holds."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    title = f"Highest rate with {found.goal}"
    table = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    resources = [name for name in RESOURCES if any(system.elasticities for system in found.systems)]
    for name in ("allocator", "requests/s", "paged over it", *(["binds"] if resources else [])):
        table.add_column(name, justify="right" if name.startswith(("req", "paged")) else "left", no_wrap=True)
    for name in resources:
        table.add_column(f"+25 %\n{name}", justify="right", no_wrap=True)
    multiples = found.multiples()
    for system in found.systems:
        cells = [system.allocator, _rate(system), _multiple(multiples.get(system.allocator))]
        table.add_row(*cells, *([system.binds or "-", *_gains(system)] if resources else []))
    console.print(table)
    for system in found.systems:
        if system.status != HOLDS:
            console.print(_without_knee(system, found), highlight=False)
    resolved, facts = Resolved(found.scenario), stamp(found)
    console.print(
        f"{resolved.model.name} on {resolved.device}, {resolved.capacity:,} slots, {found.scenario.workload}; "
        f"{facts['seeds']} replicates from seed {facts['seed']}, {facts['scheduler']} scheduler, "
        f"latency {facts['latency']}; kvsim {facts['version']}",
        highlight=False,
    )


def _rate(system: Capacity) -> str:
    if system.status != HOLDS:
        return system.status
    mean = system.rate
    return f"{mean.value:.4g}" + ("" if mean.half_width is None else f" ± {mean.half_width:.2g}")


def _multiple(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}"
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _gains(system: Capacity) -> list[str]:
    """How much a quarter more of each resource adds to the rate."""
    gains = {name: MORE**power - 1 for name, power in system.elasticities.items()}
    return [f"{round(gains[name], 2) + 0.0:+.0%}" if name in gains else "-" for name in RESOURCES]


def _without_knee(system: Capacity, found: Capacities) -> str:
    """Say what was seen where there is no knee."""
    knee = next(knee for knee in system.knees if knee.status != HOLDS)
    if knee.status == ALWAYS:
        return f"{system.allocator}: {found.goal} holds at every rate tried, up to {knee.points[-1][0]:g}/s"
    assert knee.status == NEVER
    rate, load = min(knee.points, key=lambda point: point[1])
    limits = " and ".join(f"{name} {load * limit:.3g} s" for name, limit in found.goal.limits.items())
    best = f"the best is {limits}, at {rate:g}/s" if len(found.goal.limits) == 1 else f"{load:.3g} times the limits"
    return f"{system.allocator}: {found.goal} holds at no rate down to {knee.points[0][0]:g}/s; {best}"
