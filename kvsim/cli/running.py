"""What the commands that run many simulations share: the scenario's options, workers, the store, the progress bar."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvsim.cli.compare import compare
from kvsim.errors import ConfigError

if TYPE_CHECKING:
    from kvsim.experiments.workers import Workers
    from kvsim.scenario import Scenario

Command = TypeVar("Command", bound=Callable[..., Any])

NOT_SETTINGS = {"out", "as_json", "scenario", "at_latency", "latency_models"}
SMALL_SECONDS = 5.0  # a sweep that takes no longer than this stays in the process
SECONDS_A_REQUEST = 3e-6
QUIET_SECONDS = 2.0
EVERY_SECONDS = 10.0


def scenario_options(*without: str) -> Callable[[Command], Command]:
    """Give a command the argument SCENARIO and the options of ``kvsim compare`` that are settings of one."""

    def decorate(command: Command) -> Command:
        settings = [p for p in compare.params if p.name == "scenario" or p.name not in NOT_SETTINGS | set(without)]
        known: list[click.Parameter] = getattr(command, "__click_params__", [])
        command.__click_params__ = known + settings[::-1]  # type: ignore[attr-defined]
        return command

    return decorate


def worker_options(command: Command) -> Command:
    """Give a command the options that say who runs the simulations."""
    for option in (
        click.option("--dask", metavar="ADDRESS", help="Run on the Dask cluster of this scheduler."),
        click.option("--threads", is_flag=True, help="Threads instead of processes."),
        click.option("--jobs", type=int, metavar="N", help="Processes.  [cores; one if there is little to do]"),
    ):
        command = option(command)
    return command


def check_names(scenario: Scenario) -> None:
    """Say what is wrong with the names and sizes of a scenario, before anything heavy is imported.

    Raises
    ------
    ConfigError
        A name is not known, or the pool is smaller than a block.
    """
    from kvsim.scenario import Resolved

    Resolved(scenario)


def chosen_workers(jobs: int | None, threads: bool, dask: str | None, requests: float) -> Workers:
    """Return who runs the simulations.

    Parameters
    ----------
    jobs : int or None
        As many as there are cores if not given; then little work stays in this process.
    threads : bool
        Threads instead of processes.
    dask : str, optional
        Address of a scheduler.
    requests : float
        Requests to be simulated in all, to judge whether that is little.
    """
    from kvsim.experiments.workers import Workers

    if dask is not None:
        if threads or jobs is not None:
            raise ConfigError("--dask takes the workers of the cluster: neither --jobs nor --threads")
        return Workers("dask", jobs=8, address=dask)
    if jobs is None and requests * SECONDS_A_REQUEST < SMALL_SECONDS:
        return Workers()
    return Workers("threads" if threads else "processes", jobs=(os.cpu_count() or 1) if jobs is None else jobs)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback (done, of how many) that draws a bar with the time left on stderr, or now and then a line."""
    if sys.stderr.isatty():
        with _live_bar(what) as report:
            yield report
        return
    first: tuple[float, int] | None = None
    last = time.monotonic() + QUIET_SECONDS - EVERY_SECONDS

    def say(done: int, total: int) -> None:
        nonlocal first, last
        now = time.monotonic()
        first = first or (now, done)  # the first to come may have waited for compilation: it says nothing about speed
        if now - last >= EVERY_SECONDS and first[1] < done < total:
            last = now
            left = (now - first[0]) / (done - first[1]) * (total - done)
            click.echo(f"kvsim: {done:,} of {total:,} {what}, about {left:.0f} s left", err=True)

    yield say


@contextmanager
def _live_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def write_text(path: Path, content: str | bytes) -> None:
    """Write a file under a temporary name in the same folder and rename it.

    Raises
    ------
    ConfigError
        It cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
