"""``kvsim capacity``: the highest request rate at which an objective holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsim.cli.running import check_names, chosen_workers, progress_bar, scenario_options, worker_options
from kvsim.cli.settings import chosen_scenario

if TYPE_CHECKING:
    from kvsim.experiments.capacity import Capacities
    from kvsim.objective import Objective

EVALUATIONS = 12  # simulations to find a knee, about


def objective_options(command: Any) -> Any:
    """Give a command the options of an objective."""
    for name, text in (
        ("--tpot-p99", "99th percentile of time per output token."),
        ("--ttft-p99", "99th percentile of time to first token."),
        ("--normalized-latency", "Mean of (finish - arrival) / output.  [0.5 if no limit is given]"),
    ):
        command = click.option(name, type=float, metavar="SECONDS", help=text)(command)
    return command


def chosen_objective(options: dict[str, Any]) -> Objective:
    """Take the limits out of the options; 0.5 s/token if there are none."""
    from kvsim.objective import MEASURES, Objective

    given = {name: options.pop(name.replace("-", "_")) for name in MEASURES}
    limits = {name: limit for name, limit in given.items() if limit is not None}
    return Objective(limits or {"normalized-latency": 0.5})


@click.command()
@scenario_options("backlog")
@objective_options
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the figure.  [kvsim-out]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout; a figure only with --out.")
@worker_options
def capacity(scenario: Path | None, out: Path | None, as_json: bool, **options: Any) -> None:
    """Find the highest request rate at which an objective holds, for each allocator.

    SCENARIO is a TOML file of settings. An hour of traffic a replicate, 3 replicates and 0.5 s/token, unless options
    say otherwise; --rate is where the search starts.
    """
    goal = chosen_objective(options)
    own = {name: options.pop(name) for name in ("jobs", "threads", "dask")}
    settings = chosen_scenario(scenario, options, seeds=3)
    check_names(settings)
    from kvsim.experiments.capacity import DEFAULT_DURATION_S
    from kvsim.experiments.capacity import capacity as find_capacity

    hour = (settings.duration or DEFAULT_DURATION_S) * (settings.rate or 2.0)
    each = settings.requests or hour
    workers = chosen_workers(**own, requests=each * EVALUATIONS * settings.seeds * len(settings.allocator))
    with progress_bar("knees") as bar:
        found = find_capacity(settings, goal, workers=workers, progress=bar)
    _show(found, out, as_json)


def _show(found: Capacities, out: Path | None, as_json: bool) -> None:
    from kvsim.cli.capacity_text import print_capacities, to_dict

    if as_json:
        click.echo(json.dumps(to_dict(found), indent=2, allow_nan=False))
    else:
        print_capacities(found)
    if out is not None or not as_json:
        from kvsim.plots.capacity import plot_capacities
        from kvsim.plots.style import save

        path = save(plot_capacities(found), (out or Path("kvsim-out")) / "capacity.png")
        click.echo(f"wrote {path}", err=as_json)
