"""``kvsim compare``: the same requests through several allocators."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsim.cli.compare_more import Appended
from kvsim.cli.settings import chosen_scenario
from kvsim.errors import ConfigError

if TYPE_CHECKING:
    from kvsim.experiments import Comparison
    from kvsim.scenario import Resolved

QUIET_SECONDS = 2.0
DEFAULT_OUT = Path("kvsim-out")


@click.command()
@click.argument("scenario", required=False, type=click.Path(path_type=Path))
@click.option("--workload", metavar="NAME|FILE", help="A named workload, a workload's TOML, or a trace.  [sharegpt]")
@click.option("--model", metavar="NAME|FILE", help="A model by name, config.json or TOML.  [OPT-13B]")
@click.option("--gpu", metavar="NAME|FILE", help="A device by name or TOML; 4xA100-40GB counts.  [A100-40GB]")
@click.option("--pool", metavar="SIZE", help="KV pool, with its unit: 12GiB.  [the paper's, or what is left]")
@click.option("--num-blocks", type=int, help="KV pool in blocks.")
@click.option("--rate", type=float, help="Requests a second.")
@click.option("--backlog/--no-backlog", default=None, help="All requests wait at time 0.  [if there is no rate]")
@click.option("--requests", type=int, help="Number of requests.  [7200 for a backlog]")
@click.option("--duration", type=float, metavar="SECONDS", help="Seconds of arrivals.")
@click.option("--stop-at", type=float, metavar="SECONDS", help="Break off after this simulated time.")
@click.option("--allocator", multiple=True, metavar="NAME", help="Repeatable.  [max pow2 oracle paged]")
@click.option("--placement", metavar="NAME", help="buddy, first-fit or best-fit.  [buddy]")
@click.option("--block-size", type=int, help="Slots a block.  [16]")
@click.option("--max-model-len", type=int, help="Longest request, prompt and output.  [the model's]")
@click.option("--max-num-seqs", type=int, help="Most sequences in an iteration.  [256]")
@click.option("--max-num-batched-tokens", type=int, help="Token budget of an iteration.  [max(2560, max-model-len)]")
@click.option("--watermark", type=float, help="Share of the blocks kept free at admission.  [0.01]")
@click.option("--scheduler", metavar="NAME", help="paper, or static (FasterTransformer).  [paper]")
@click.option("--static-batch", type=int, help="Most requests in a static batch.  [what fits at max-model-len]")
@click.option("--latency", metavar="NAME|FILE", help="fitted, affine, roofline, or a CSV.  [fitted]")
@click.option("--kernel-table", metavar="NAME|FILE", help="Cost of a block size: figure-18 or a CSV.  [none]")
@click.option("--headroom", type=int, help="Blocks kept free at admission a running sequence.  [0]")
@click.option("--engine", metavar="NAME", help="auto, step or leap: the results are the same.  [auto]")
@click.option("--seed", type=int, help="Seed of the first replicate.  [0]")
@click.option("--seeds", type=int, help="Replicates: means with 95 % intervals.  [1]")
@click.option("--at-latency", type=float, metavar="SECONDS", help="Append multiples at this normalized latency.")
@click.option("--latency-models", is_flag=True, help="Append the comparison under every latency model.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the figures.  [kvsim-out]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout; figures only with --out.")
def compare(scenario: Path | None, out: Path | None, as_json: bool, **options: Any) -> None:
    """Run the same requests through several allocators.

    SCENARIO is a TOML file with the same keys as the options; options win. Without arguments: OPT-13B on an A100-40GB,
    ShareGPT, a backlog of 7,200 requests, the paper's four allocators.
    """
    from kvsim.scenario import Resolved
    from kvsim.scheduler import scheduler_for

    at_latency, latency_models = options.pop("at_latency"), options.pop("latency_models")
    chosen = chosen_scenario(scenario, options)
    _check_out(out if out is not None or as_json else DEFAULT_OUT)
    resolved = Resolved(chosen)
    scheduler_for(chosen).sequences(resolved.capacity, resolved.max_model_len)
    if not resolved.closed_loop:
        resolved.stream(chosen.seed)  # what is wrong with the input is said before anything heavy is imported
    more = Appended(resolved, at_latency, latency_models)
    _run(resolved, out, as_json, more)


def _run(resolved: Resolved, out: Path | None, as_json: bool, more: Appended) -> None:
    """Run, print, draw."""
    from kvsim.cli.compare_text import print_comparison
    from kvsim.experiments import compare as run_comparison

    result = run_comparison(resolved, progress())
    if as_json:
        click.echo(json.dumps(result.to_dict() | more.to_dict(), indent=2, allow_nan=False))
    else:
        print_comparison(result)
        more.print()
    if out is not None or not as_json:
        for path in draw(result, out or DEFAULT_OUT):
            click.echo(f"wrote {path}", err=as_json)


def _check_out(out: Path | None) -> None:
    """Refuse a folder that cannot be written before anything is run."""
    if out is None:
        return
    nearest = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise ConfigError(f"--out {out}: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK):
        raise ConfigError(f"--out {out}: {nearest} cannot be written")


def draw(result: Comparison, folder: Path) -> list[Path]:
    """Write the figures of a comparison."""
    from kvsim.experiments import waterfall
    from kvsim.plots.compare import plot_shares, plot_timelines, plot_waterfall
    from kvsim.plots.style import save

    figures = {"shares": plot_shares(result), "timelines": plot_timelines(result)}
    if result.resolved.scenario.scheduler == "paper":
        figures["waterfall"] = plot_waterfall(waterfall(result, progress()))
    return [save(figure, folder / f"{name}.png") for name, figure in figures.items()]


def progress() -> Callable[[str, int, int, int], None]:
    """Return a callback that reports on stderr, once a run has taken two seconds and then every second."""
    last = time.monotonic() + QUIET_SECONDS - 1

    def report(allocator: str, seed: int, finished: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= 1:
            last = time.monotonic()
            of = f" of {total:,}" if total else ""
            click.echo(f"kvsim: {allocator}, seed {seed}: {finished:,}{of} requests", err=True)

    return report
