"""``kvsim sweep``: every combination of settings, every seed, one tidy table."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsim.cli.running import (
    chosen_workers,
    progress_bar,
    scenario_options,
    worker_options,
    write_text,
)
from kvsim.cli.settings import chosen_scenario
from kvsim.errors import ConfigError

if TYPE_CHECKING:
    from kvsim.experiments.table import Table
    from kvsim.experiments.workers import Workers
    from kvsim.plan import Unit
    from kvsim.scenario import Scenario

FORMATS = (".csv", ".parquet")


@click.command()
@scenario_options()
@click.option("--vary", multiple=True, required=True, metavar="FIELD=V1,V2,...", help="A setting's values. Repeatable.")
@click.option("--baseline", metavar="FIELD=VALUE", help="What the others are compared with.  [first value varied]")
@click.option("--measure", multiple=True, metavar="NAME", help="A column to print means of. Repeatable.")
@click.option("--store", type=click.Path(path_type=Path), help="SQLite file: results as they finish; resumes from it.")
@click.option("--out", type=click.Path(path_type=Path), help="The table, as .csv or .parquet.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout: rows, means, differences.")
@worker_options
def sweep(
    scenario: Path | None, vary: tuple[str, ...], out: Path | None, store: Path | None, as_json: bool, **options: Any
) -> None:
    """Run every combination of settings with every seed.

    SCENARIO is a TOML file of what is not varied. Cells share their random numbers: the same seed draws the same
    requests, so that differences between cells are paired.
    """
    own = {name: options.pop(name) for name in ("baseline", "measure", "jobs", "threads", "dask")}
    settings = chosen_scenario(scenario, options)
    if out is not None and out.suffix not in FORMATS:
        raise ConfigError(f"--out {out}: a name that ends in {' or '.join(FORMATS)} is expected")
    axes = parse_axes(vary)
    from kvsim.plan import plan

    units = plan(settings, axes)
    baseline = _baseline(own["baseline"], axes, units)
    workers = chosen_workers(own["jobs"], own["threads"], own["dask"], sum(_requests(u.scenario) for u in units))
    table = _run(settings, axes, workers, store, len(units))
    if out is not None:
        write_text(out, table.to_csv() if out.suffix == ".csv" else table.to_parquet())
        click.echo(f"wrote {out}", err=True)
    _show(table, own["measure"], baseline, as_json)


def parse_axes(texts: Sequence[str]) -> dict[str, list[str]]:
    """Read ``field=v1,v2`` options; a field may come several times.

    Raises
    ------
    ConfigError
        One is not of this form.
    """
    axes: dict[str, list[str]] = {}
    for text in texts:
        field, equals, values = text.partition("=")
        if not equals or not field or not all(value.strip() for value in values.split(",")):
            raise ConfigError(f"--vary {text}: FIELD=VALUE,VALUE,... is expected")
        axes.setdefault(field.strip().replace("-", "_"), []).extend(value.strip() for value in values.split(","))
    return axes


def _baseline(text: str | None, axes: dict[str, list[str]], units: list[Unit]) -> tuple[str, Any]:
    """Return the setting that others are compared with: the first value of the first varied one if not given."""
    field, equals, value = (text or next(iter(axes)) + "=" + next(iter(axes.values()))[0]).partition("=")
    field = field.replace("-", "_")
    if not equals:
        raise ConfigError(f"--baseline {text}: FIELD=VALUE is expected")
    values = [_value_of(unit, field) for unit in units if hasattr(unit.scenario, field)]
    for candidate in values:
        if str(candidate) == value or (isinstance(candidate, int | float) and _number(value) == candidate):
            return field, candidate
    raise ConfigError(f"--baseline {text}: none of the cells has it")


def _value_of(unit: Unit, field: str) -> Any:
    return unit.allocator if field == "allocator" else getattr(unit.scenario, field)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _requests(scenario: Scenario) -> float:
    """About how many requests a simulation has."""
    if scenario.requests is not None:
        return scenario.requests
    if scenario.duration is not None:
        return scenario.duration * (scenario.rate or 10.0)
    return 7200.0


def _run(settings: Scenario, axes: dict[str, list[str]], workers: Workers, store: Path | None, count: int) -> Table:
    """Run the sweep; on Ctrl-C say what is kept, and how to go on."""
    from kvsim.experiments.sweep import sweep as run_sweep
    from kvsim.store import Store

    there = 0

    with Store(store) if store is not None else nullcontext() as opened, progress_bar("simulations") as bar:

        def progress(done: int, total: int) -> None:
            nonlocal there
            there = done
            bar(done, total)

        try:
            return run_sweep(settings, axes, workers=workers, store=opened, progress=progress)
        except KeyboardInterrupt:
            if store is None:
                text = "nothing was kept; with --store FILE a sweep can be resumed"
            else:
                text = f"{there:,} of {count:,} simulations are in {store}; the same command goes on from there"
            click.echo(f"kvsim: interrupted; {text}", err=True)
            sys.exit(130)


def _show(table: Table, measures: tuple[str, ...], baseline: tuple[str, Any], as_json: bool) -> None:
    from kvsim.cli.sweep_text import print_table, to_dict
    from kvsim.experiments.table import DEFAULT_MEASURES

    chosen = measures or DEFAULT_MEASURES
    if not table.cells() or all(not rows for rows in table.cells().values()):
        raise ConfigError(f"every simulation failed; the first: {table.failed[0]['error']}")
    if as_json:
        click.echo(json.dumps(to_dict(table, chosen, baseline), indent=2, allow_nan=False))
    else:
        print_table(table, chosen, baseline)
