"""``kvsim trace``: look at request traces, convert them, fit workloads to them, and draw streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvsim.cli import NearestGroup
from kvsim.errors import ConfigError

if TYPE_CHECKING:
    from kvsim.requests import RequestStream

Command = TypeVar("Command", bound=Callable[..., Any])

FORMAT_HELP = (
    "Format of FILE, where its content does not tell: kvsim, azure, burstgpt, vidur, splitwise, vtc, llmservingsim, "
    "mooncake, mooncake-full-blocks, kv-cache-tester, sharegpt."
)
READING = [
    click.option("--format", "format_", metavar="FORMAT", help=FORMAT_HELP),
    click.option(
        "--map",
        "map_",
        metavar="MAP",
        help="Columns of any CSV, JSON or Parquet: prompt=A,output=B,arrival=C, or a TOML file.",
    ),
    click.option("--unit", metavar="UNIT", help="What the arrival of --map counts: s, ms, us, ns or datetime."),
    click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="Keep only such rows (repeatable)."),
    click.option("--block-size", type=int, metavar="N", help="Tokens that a prefix id stands for."),
    click.option("--tokenizer", metavar="PATH", help="A tokenizer.json that counts the tokens of text."),
    click.option("--skip-bad-rows", is_flag=True, help="Count rows that cannot be read, and go on."),
    click.option("--requests", type=int, metavar="N", help="The first N requests only."),
]
WRITING = click.option(
    "--to",
    "to",
    metavar="FORMAT",
    default="kvsim",
    show_default=True,
    help="kvsim (CSV), kvsim-parquet, vidur, mooncake or azure.",
)


def reading(command: Command) -> Command:
    """Add the options that say how to read a trace."""
    for option in reversed(READING):
        command = option(command)
    return command


@click.group(cls=NearestGroup, invoke_without_command=True)
@click.pass_context
def trace(ctx: click.Context) -> None:
    """Look at request traces, convert them, fit workloads to them, and draw streams."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@trace.command()
@click.argument("file")
@reading
@click.option(
    "--max-model-len", type=int, default=2048, show_default=True, metavar="N", help="Longest that a model takes."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Draw it into this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def describe(file: str, max_model_len: int, out: Path | None, as_json: bool, **options: Any) -> None:
    """Say what is in FILE: rows, rates, lengths, prefix reuse."""
    from kvsim.traces import describe as describe_stream

    if max_model_len < 2:
        raise ConfigError(f"--max-model-len must be at least 2, not {max_model_len}")
    stream = read_with(file, options)
    found = describe_stream(stream, max_model_len)
    if as_json:
        click.echo(json.dumps(found))
    else:
        from kvsim.cli.trace_text import print_description

        print_description(found, file)
    if out:
        from kvsim.plots.style import save
        from kvsim.plots.traffic import plot_stream

        figure = plot_stream(stream, max_model_len, f"{Path(file).name}: {len(stream):,} requests")
        _say_written(save(figure, out / "trace.png"), quiet=as_json)


@trace.command()
@click.argument("file")
@click.argument("target")
@WRITING
@reading
@click.option(
    "--rate", type=float, metavar="R", help="Requests a second, for a trace without times or at another rate."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the arrivals that --rate draws.")
def convert(file: str, target: str, to: str, rate: float | None, seed: int, **options: Any) -> None:
    """Write FILE to TARGET in another format, with a word on what that cannot hold."""
    from kvsim.traces import write

    stream = read_with(file, options, rate_per_s=rate, seed=seed)
    lost = write(stream, target, to)
    for notice in stream.notices:
        click.echo(f"{file}: {notice}", err=True)
    for word in lost:
        click.echo(f"{target}: {word}", err=True)
    click.echo(f"wrote {len(stream):,} requests to {target} ({to})")


@trace.command()
@click.argument("file")
@click.argument("target", required=False)
@reading
@click.option("--name", metavar="NAME", help="Name of the workload; that of TARGET or FILE if not given.")
@click.option("--summary", metavar="TEXT", help="A line on it, for the file.")
@click.option("--source", metavar="TEXT", help="Where the requests come from, for the file.")
@click.option("--license", "license_", metavar="TEXT", help="Who may use what is fitted, for the file.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Draw the fit into this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def fit(
    file: str,
    target: str | None,
    name: str | None,
    summary: str | None,
    source: str | None,
    license_: str | None,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Fit a workload to FILE and write it to TARGET (TOML)."""
    from kvsim.fit import fit_summary, fit_workload
    from kvsim.generate.toml import write_workload

    if target is not None and not target.endswith(".toml"):
        raise ConfigError(f"a workload is a TOML file: {target} does not end in .toml")
    stream = read_with(file, options)
    name = name or Path(target or file).name.split(".")[0]
    found = fit_workload(stream, name, summary=summary or "", source=source or Path(file).name, license=license_ or "")
    if target is not None:
        write_workload(found.workload, target)
    if as_json:
        click.echo(json.dumps(fit_summary(found)))
    else:
        from kvsim.cli.trace_text import print_fit

        print_fit(found)
        if target is not None:
            click.echo(f"wrote {target}")
    if out:
        from kvsim.plots.style import save
        from kvsim.plots.traffic import plot_fit

        _say_written(save(plot_fit(stream, found), out / "fit.png"), quiet=as_json)


@trace.command()
@click.argument("workload")
@click.argument("target")
@WRITING
@click.option("--requests", type=int, metavar="N", help="Requests to draw.")
@click.option("--duration", type=float, metavar="S", help="Seconds of arrivals to draw.")
@click.option("--rate", type=float, metavar="R", help="Requests a second.")
@click.option("--backlog", is_flag=True, help="All requests wait at time 0.")
@click.option("--max-model-len", type=int, metavar="N", help="For a workload whose limits name it.")
@click.option("--joint", type=click.Choice(["fitted", "independent"]), help="How prompt and output go together.")
@click.option("--lengths", metavar="FILE|NAME", help="Lengths of ServeGen's clients: its own file, or a workload.")
@click.option(
    "--start", type=float, default=0.0, show_default=True, metavar="S", help="Where in their windows to start."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of all draws.")
def sample(workload: str, target: str, to: str, **options: Any) -> None:
    """Draw a stream from WORKLOAD and write it to TARGET.

    WORKLOAD is a name (kvsim workloads lists them), a TOML file, or a file of ServeGen's client rates.
    """
    from kvsim.generate import workload_names
    from kvsim.traces import write

    named = workload.endswith(".toml") or workload in workload_names() or not Path(workload).exists()
    stream = _sample_workload(workload, options) if named else _sample_clients(workload, options)
    lost = write(stream, target, to)
    for word in [*stream.notices, *lost]:
        click.echo(f"{target}: {word}", err=True)
    click.echo(f"wrote {len(stream):,} requests to {target} ({to})")


def _sample_workload(name: str, options: dict[str, Any]) -> RequestStream:
    from kvsim.generate import load_workload

    if options["lengths"] is not None or options["start"]:
        raise ConfigError("--lengths and --start go with a file of ServeGen's client rates")
    workload = load_workload(name)
    if options["joint"] is not None:
        workload = workload.with_joint(options["joint"])
    return workload.sample(
        num_requests=options["requests"],
        duration_s=options["duration"],
        rate_per_s=options["rate"],
        backlog=options["backlog"],
        seed=options["seed"],
        max_model_len=options["max_model_len"],
    )


def _sample_clients(rates: str, options: dict[str, Any]) -> RequestStream:
    from kvsim.generate import load_workload, workload_names
    from kvsim.generate.clients import Clients
    from kvsim.traces.servegen import read_client_lengths, read_client_rates

    windows, lengths = read_client_rates(rates), options["lengths"]
    if lengths is None:
        raise ConfigError("what lengths do the clients' requests have? Give --lengths FILE (ServeGen's) or a workload")
    if options["duration"] is None:
        raise ConfigError("clients are drawn for a time: give --duration")
    named = lengths.endswith(".toml") or lengths in workload_names() or not Path(lengths).exists()
    population = Clients(windows, load_workload(lengths) if named else read_client_lengths(lengths))
    stream = population.sample(
        options["duration"], start_s=options["start"], seed=options["seed"], rate_per_s=options["rate"]
    )
    if options["requests"] is not None:
        stream = stream.head(options["requests"])
    return stream.as_backlog() if options["backlog"] else stream


def read_with(file: str, options: dict[str, Any], **more: Any) -> RequestStream:
    """Read a trace as the options of ``reading`` say; one without times is taken as it is."""
    from kvsim.traces import parse_mapping, read

    if options["unit"] is not None and options["map_"] is None:
        raise ConfigError("--unit says what the arrival of --map counts: give --map too")
    where = {}
    for pair in options["where"]:
        column, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--where takes COLUMN=VALUE, not {pair!r}")
        where[column] = value
    return read(
        file,
        options["format_"],
        mapping=parse_mapping(options["map_"], options["unit"]) if options["map_"] is not None else None,
        where=where,
        block_size=options["block_size"],
        tokenizer=options["tokenizer"],
        skip_bad_rows=options["skip_bad_rows"],
        num_requests=options["requests"],
        require_times=False,
        **more,
    )


def _say_written(path: Path, *, quiet: bool) -> None:
    if not quiet:
        click.echo(f"wrote {path}")
