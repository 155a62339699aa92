"""``kvsim workloads``: what there is to serve."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kvsim.generate import Workload


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def workloads(name: str | None, as_json: bool) -> None:
    """List the named workloads, or show all of one."""
    from kvsim.generate import load_workload, workload_names

    rows = [summary_of(load_workload(each)) for each in ([name] if name else workload_names())]
    if as_json:
        click.echo(json.dumps({"workloads": rows}))
    elif name:
        _print_one(rows[0])
    else:
        from kvsim.cli.trace_text import print_workloads

        print_workloads(rows)


def summary_of(workload: Workload) -> dict[str, Any]:
    """Return what is said of a workload."""
    prompt, output = workload.means()
    return {
        "name": workload.name,
        "summary": workload.summary,
        "arrivals": workload.pace,
        "mean_prompt": prompt,
        "mean_output": output,
        "published": workload.published,
        "source": workload.source,
        "license": workload.license,
    }


def _print_one(row: dict[str, Any]) -> None:
    published = ", ".join(f"{key} {value:g}" for key, value in row["published"].items())
    for label, value in (
        ("", row["summary"]),
        ("mean prompt", f"{row['mean_prompt']:,.2f} tokens"),
        ("mean output", f"{row['mean_output']:,.2f} tokens"),
        ("published", published),
        ("arrivals", row["arrivals"]),
        ("source", row["source"]),
        ("license", row["license"]),
    ):
        if value:
            click.echo(f"{label:12} {value}" if label else f"{row['name']}: {value}")
