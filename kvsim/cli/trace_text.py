"""What ``kvsim trace`` and ``kvsim workloads`` print, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from kvsim.fit import Fit, MarginalFit

SHOWN_FAMILIES = 4


def new_table(title: str, *columns: str, text_columns: int = 1) -> Table:
    """Return a plain table whose columns after the first ones hold numbers."""
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD)
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < text_columns else "right")
    return table


def print_description(found: dict[str, Any], name: str) -> None:
    """Print what ``describe`` returns."""
    console = Console()
    facts = new_table(name, "", "", text_columns=2)
    facts.show_header = False
    for label, value in _facts(found):
        facts.add_row(label, value)
    console.print(facts)
    lengths = new_table("tokens", "", "mean", "p50", "p90", "p99", "max")
    for column in ("prompt", "output"):
        lengths.add_row(column, *(f"{found[column][key]:,.6g}" for key in ("mean", "p50", "p90", "p99", "max")))
    console.print(lengths)
    said_above = {f"{count:,} rows skipped: {why}" for why, count in found["skipped"].items()}
    for notice in (notice for notice in found["notices"] if notice not in said_above):
        console.print(f"note: {escape(notice)}")


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    skipped = "; ".join(f"{count:,} {why}" for why, count in found["skipped"].items())
    rows = [("requests", f"{found['rows']:,}"), ("rows skipped", skipped or "none")]
    if found["span_s"] is None:
        rows.append(("times", "none: give --rate or --backlog to simulate it"))
    else:
        rate, cv = found["rate_per_s"], found["arrival_cv"]
        rows.append(("span", f"{found['span_s']:,.1f} s"))
        rows.append(("rate", "-" if rate is None else f"{rate:.4g} requests/s"))
        rows.append(("burstiness", "-" if cv is None else f"{cv:.3f} (CV of interarrival times; 1 is Poisson)"))
    if found["spearman"] is not None:
        rows.append(("rank correlation", f"{found['spearman']:+.3f} (Spearman, prompt and output)"))
    too_long = found["too_long"]
    rows.append(("too long", f"{too_long['share']:.1%} over {too_long['max_model_len']:,} tokens together"))
    if found["prefix"] is not None:
        prefix = found["prefix"]
        reuse = "-" if prefix["ideal_reuse"] is None else f"{prefix['ideal_reuse']:.4f}"
        rows.append(("prefix blocks", f"{prefix['ids']:,}, {prefix['distinct']:,} different; ideal reuse {reuse}"))
    return rows


def print_fit(fit: Fit) -> None:
    """Print which families were tried, which was taken, and how well it fits."""
    console = Console()
    table = new_table(
        "families, by BIC (the first is taken)", "column", "family", "numbers", "BIC", "KS", text_columns=2
    )
    for column in ("prompt", "output"):
        tried: list[MarginalFit] = getattr(fit, column)
        for rank, entry in enumerate(tried[:SHOWN_FAMILIES]):
            label = column if rank == 0 else ""
            numbers = str(entry.num_parameters)
            table.add_row(label, entry.marginal.family, numbers, f"{entry.bic:,.0f}", f"{entry.ks:.4f}")
        table.add_section()
    console.print(table)
    distances = " / ".join(f"{fit.held_out[column]:.4f}" for column in ("prompt", "output"))
    console.print(f"KS on every other request, fitted to the rest: {distances} (prompt / output)")
    console.print(f"rank correlation: {fit.workload.spearman} (Gaussian copula)")
    if fit.arrivals is None:
        console.print("arrivals: the trace has no times; Poisson, at a rate that the user gives")
    else:
        process = fit.arrivals.process
        ticks = ", the trace's clock being coarse: spread within its ticks" if fit.arrivals.spread else ""
        console.print(
            f"arrivals: {process.process} at {process.rate_per_s:.4g} requests/s, CV {fit.arrivals.cv:.3f}, "
            f"KS of the gaps {fit.arrivals.ks:.4f}{ticks}"
        )


def print_workloads(rows: list[dict[str, Any]]) -> None:
    """Print the named workloads with their means."""
    table = new_table("workloads", "name", "what", "arrivals", "prompt", "output", text_columns=3)
    table.columns[0].no_wrap = True
    table.columns[0].min_width = max(len(row["name"]) for row in rows)
    for row in rows:
        means = (f"{row['mean_prompt']:,.1f}", f"{row['mean_output']:,.1f}")
        table.add_row(row["name"], escape(row["summary"]), row["arrivals"], *means)
    console = Console()
    console.print(table)
    console.print("prompt and output are mean tokens; source and licence: kvsim workloads NAME")
