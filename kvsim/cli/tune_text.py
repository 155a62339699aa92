"""What ``kvsim tune`` prints."""

from __future__ import annotations

from typing import Any

import kvsim
from kvsim.experiments.tune import Choice, Tuning
from kvsim.latency import latency_of
from kvsim.scenario import Resolved

SHARES = ("used", "reserved", "internal", "free")


def to_dict(found: Tuning) -> dict[str, Any]:
    """Return everything as plain values."""
    return {
        "scenario": Resolved(found.scenario).describe(),
        "version": kvsim.__version__,
        "knob": found.knob,
        "objective_s": dict(found.goal.limits),
        "choices": [_choice(found, choice) for choice in found.choices],
        "best": found.best.value,
        "recommended": [choice.value for choice in found.recommended],
        "reasons": found.reasons(),
    }


def _choice(found: Tuning, choice: Choice) -> dict[str, Any]:
    return {
        "value": choice.value,
        "requests_per_s": choice.rate.value,
        "half_width_95": choice.rate.half_width,
        "over_best": found.against_best(choice)._asdict(),
        "no_worse": found.is_no_worse(choice),
        "shares": {part: choice.mean(part) for part in SHARES},
        "mean_batch": choice.mean("mean_batch"),
        "preemptions": choice.mean("preemptions"),
        "costs": choice.costs(),
        "table_bytes": choice.table_bytes,
    }


def print_tuning(found: Tuning) -> None:
    """Print a row a value, the recommended range, and why."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"{found.knob} with {found.goal}", title_justify="left")
    heads = ("", found.knob.replace("_", " "), "req/s", "over best", "used", "last block", "kernel", "redone", "tables")
    for name in heads:
        table.add_column(name, justify="right")
    for choice in found.choices:
        costs, mean, ratio = choice.costs(), choice.rate, found.against_best(choice)
        half = "" if mean.half_width is None else f" ±{mean.half_width:.2f}"
        table.add_row(
            "*" if found.is_no_worse(choice) else "", str(choice.value), f"{mean.value:.3g}{half}",
            f"{ratio.value:.3f}", f"{choice.mean('used'):.1%}", f"{costs['last_block_waste']:.1%}",
            f"{costs['kernel_penalty']:.1%}", f"{costs['recomputed']:.1%}", f"{choice.table_bytes / 1024:,.0f}K",
        )  # fmt: skip
    console.print(table)
    console.print(f"Recommended: {recommendation(found)}", highlight=False)
    for line in found.reasons():
        console.print(f"- {line}", highlight=False)
    resolved = Resolved(found.scenario)
    console.print(
        f"{resolved.model.name} on {resolved.device}, {resolved.capacity:,} slots, {found.scenario.workload}; "
        f"kernel table {found.scenario.kernel_table or 'none'}; latency {latency_of(resolved).describe()}; "
        f"{found.scenario.seeds} seeds from {found.scenario.seed}; kvsim {kvsim.__version__}",
        highlight=False,
    )


def recommendation(found: Tuning) -> str:
    """Return the recommended values: a range where they are neighbours, a list otherwise."""
    values = [choice.value for choice in found.choices]
    places = [values.index(choice.value) for choice in found.recommended]
    chosen = [str(choice.value) for choice in found.recommended]
    if len(chosen) > 1 and places == list(range(places[0], places[-1] + 1)):
        return f"{found.knob} {chosen[0]} to {chosen[-1]}"
    return f"{found.knob} {', '.join(chosen)}"
