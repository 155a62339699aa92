"""``kvsim reproduce``: the vLLM paper's evaluation, published beside simulated."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvsim.errors import ConfigError

if TYPE_CHECKING:
    from kvsim.paper.report import Reproduction, Row


@click.command()
@click.argument("items", nargs=-1, metavar="[ITEM]...")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for figures (PNG, SVG) and the report page.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout: a row a number.")
@click.option("--jobs", type=int, metavar="N", help="Processes.  [cores]")
def reproduce(items: tuple[str, ...], out: Path | None, as_json: bool, jobs: int | None) -> None:
    """Reproduce the vLLM paper's evaluation.

    ITEMs: table1, fig1, fig2, fig3, fig11, fig12a to fig12f (fig12: all six), headline, fig13, fig18b; all of them if
    none is named. Rows are tagged: exact (arithmetic), derived (predicted), calibrated (what a constant was fitted to),
    known-deviation. Only exact and derived ones count as reproduced.
    """
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is not a folder")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: at least one is expected")
    from kvsim.paper import chosen_items

    chosen_items(items)
    from kvsim.experiments.workers import Workers
    from kvsim.paper.reproduce import reproduce as run_items
    from kvsim.paper.reproduce import to_dict, write_report

    cores = jobs or os.cpu_count() or 1
    workers = Workers("processes", jobs=cores) if cores > 1 else Workers()
    results = run_items(items, workers, lambda item: click.echo(f"kvsim: {item}", err=True))
    if as_json:
        click.echo(json.dumps(to_dict(results), indent=2, allow_nan=False))
    else:
        _print(results)
    if out is not None:
        write_report(results, out)
        click.echo(f"wrote {out / 'report.md'} and its figures", err=as_json)


def _print(results: list[Reproduction]) -> None:
    """Print what does not reproduce, then every number, then what it was made with."""
    from kvsim.paper.reproduce import all_rows, missed

    rows = all_rows(results)
    outside = missed(rows)
    click.echo("What does not reproduce")
    _print_rows(outside)
    for note in dict.fromkeys(f"{row.item}: {row.note}" for row in outside if row.note):
        click.echo(f"  {note}")
    click.echo("\nAll numbers")
    _print_rows(rows)
    predicted = [row for row in rows if row.tag in ("exact", "derived")]
    click.echo(
        f"\n{sum(row.reproduced for row in rows)} of {len(predicted)} arithmetic or predicted numbers are within their "
        f"tolerance; fitted to, or known to differ: {len(rows) - len(predicted)}"
    )
    for result in results:
        for note in [*result.notes, f"took {result.seconds:.1f} s"]:
            click.echo(f"{result.item}: {note}")


def _print_rows(rows: list[Row]) -> None:
    from kvsim.paper.reproduce import numbers

    if not rows:
        click.echo("  nothing")
        return
    wide = max(len(row.quantity) for row in rows)
    heads = ("published", "simulated", "deviation", "tolerance")
    click.echo(f"  {'item':8} {'quantity':{wide}} " + " ".join(f"{head:>10}" for head in heads) + "  tag")
    for row in rows:
        mark = " " if row.within else "!"
        cells = " ".join(f"{cell:>10}" for cell in numbers(row))
        click.echo(f"{mark} {row.item:8} {row.quantity:{wide}} {cells}  {row.tag}")
