"""``kvsim tune``: a setting of a paged pool for a model, a card and traffic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsim.cli.capacity import EVALUATIONS, chosen_objective, objective_options
from kvsim.cli.running import check_names, chosen_workers, progress_bar, scenario_options, worker_options
from kvsim.cli.settings import chosen_scenario
from kvsim.errors import ConfigError, unknown

if TYPE_CHECKING:
    from kvsim.experiments.tune import Tuning

KNOBS = ("block-size", "pool", "watermark", "max-num-seqs")


@click.command()
@click.argument("knob", metavar="{" + "|".join(KNOBS) + "}")
@scenario_options("backlog", "allocator", "placement", "scheduler", "static_batch")
@objective_options
@click.option("--values", metavar="V1,V2,...", help="Values to try.  [some usual ones]")
@click.option("--margin", type=float, default=0.01, show_default=True, help="How much worse counts as no worse.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the figure.  [kvsim-out]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout; a figure only with --out.")
@worker_options
def tune(knob: str, scenario: Path | None, values: str | None, out: Path | None, as_json: bool, **options: Any) -> None:
    """Tune a setting of a paged pool: block size, pool, watermark, most sequences.

    For each value: the capacity at the objective (0.5 s/token if no limit is given), the shares of the pool under a
    backlog, and what it costs in last blocks, attention kernel, recomputation and tables. An hour of traffic and 5
    replicates unless options say otherwise. What block sizes cost in the kernel is charged only with --kernel-table.
    """
    if knob not in KNOBS:
        raise unknown("knob", knob, KNOBS)
    goal = chosen_objective(options)
    own = {name: options.pop(name) for name in ("jobs", "threads", "dask")}
    margin = options.pop("margin")
    settings = chosen_scenario(scenario, options, seeds=5, allocator=["paged"])
    check_names(settings)
    if settings.backlog:
        raise ConfigError("tune looks for a rate of arrivals: a backlog has none")
    from kvsim.experiments.capacity import DEFAULT_DURATION_S
    from kvsim.experiments.tune import tune as run_tune

    requests = settings.requests or (settings.duration or DEFAULT_DURATION_S) * (settings.rate or 2.0)
    workers = chosen_workers(**own, requests=requests * EVALUATIONS * settings.seeds * 8)
    tried = [value.strip() for value in values.split(",")] if values else None
    with progress_bar("measurements") as bar:
        found = run_tune(settings, knob.replace("-", "_"), goal, tried, margin=margin, workers=workers, progress=bar)
    _show(found, out, as_json)


def _show(found: Tuning, out: Path | None, as_json: bool) -> None:
    from kvsim.cli.tune_text import print_tuning, to_dict

    if as_json:
        click.echo(json.dumps(to_dict(found), indent=2, allow_nan=False))
    else:
        print_tuning(found)
    if out is not None or not as_json:
        from kvsim.plots.style import save
        from kvsim.plots.tune import plot_tuning

        path = save(plot_tuning(found), (out or Path("kvsim-out")) / f"tune-{found.knob.replace('_', '-')}.png")
        click.echo(f"wrote {path}", err=as_json)
