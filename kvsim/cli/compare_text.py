"""What ``kvsim compare`` prints."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from kvsim.experiments import Comparison, System

PARTS = ("used", "reserved", "internal", "external", "free")


def print_comparison(comparison: Comparison) -> None:
    """Print the table, the rejections, the stamp and the sentence."""
    console = Console(highlight=False, markup=False)
    console.print(_shares(comparison))
    console.print(_costs(comparison))
    for line in _remarks(comparison):
        console.print(line, soft_wrap=True)
    stamp = comparison.stamp()
    seeds = f"seed {stamp['seed']}" if stamp["seeds"] == 1 else f"{stamp['seeds']} seeds from {stamp['seed']}"
    console.print(
        f"{stamp['scheduler']} scheduler; {seeds}; pool {comparison.resolved.pool_source}; kvsim {stamp['version']}\n"
        f"iteration: {stamp['latency']}",
        soft_wrap=True,
        style="dim",
    )
    console.print(f"\n{comparison.conclusion()}", soft_wrap=True, style="bold")


def _shares(comparison: Comparison) -> Table:
    """Where the memory goes: a row a system, in percent of the slots."""
    table = _table("Where the KV-cache memory goes (% of the slots, time average)")
    for name in (*PARTS, "requests in flight"):
        table.add_column(name, justify="right")
    for system in comparison.systems:
        parts = [_number(system, part, "{:.1f}", 100) for part in PARTS]
        table.add_row(system.label, *parts, _number(system, "mean_batch", "{:.2f}"))
    return table


def _costs(comparison: Comparison) -> Table:
    """What that costs: a row a system."""
    table = _table("What it costs")
    for name in ("req/s", "output\ntok/s", "paged\ntimes", "latency\ns/tok", "TTFT\np99 s", "preempt-\nions"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    multiples = comparison.multiples()
    for system in comparison.systems:
        summary = system.summary()
        multiple, ttft = multiples.get(system.allocator), summary["ttft_s"]["p99"]
        table.add_row(
            system.label,
            _number(system, "requests_per_s", "{:.3g}"),
            _number(system, "output_tokens_per_s", "{:,.0f}"),
            "" if multiple is None else f"{multiple:.2f}",
            _number(system, "normalized_latency_s", "{:.3g}"),
            "-" if ttft is None else f"{ttft:,.0f}" if ttft >= 100 else f"{ttft:.3g}",
            f"{summary['preemptions']:,.0f}",
            " / ".join(sorted({result.bound_by or "-" for result in system.results})),
        )
    return table


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("allocator", no_wrap=True)
    return table


def _number(system: System, measure: str, form: str, scale: float = 1) -> str:
    """A mean, with the half-width of its interval where there are replicates."""
    mean = system.mean(measure)
    if mean is None:
        return "-"
    text = form.format(scale * mean.value)
    return text if mean.half_width is None else f"{text}\n±{scale * mean.half_width:.2g}"


def _remarks(comparison: Comparison) -> list[str]:
    """What must not be overlooked: notices of the trace, rejections, unfinished requests, overload."""
    systems = comparison.systems
    lines = [f"note: {notice}" for notice in comparison.notices]
    for system in systems:
        summary = system.summary()
        for reason, count in summary["rejected"].items():
            lines.append(f"{system.label}: {count:,.0f} rejected: {reason}")
        if summary["unfinished"]:
            lines.append(f"{system.label}: {summary['unfinished']:,.0f} unfinished; no latencies, which need them all")
    overloaded = [s.allocator for s in systems if any(r.stationary is False for r in s.results)]
    if overloaded:
        lines.append(f"overloaded, not stationary: {', '.join(overloaded)} (the queue grows all along)")
    if any(system.mean("used") is None for system in systems):
        lines.append("no steady window: too few requests, or the queue was never full; shares and rates are not given")
    return lines
