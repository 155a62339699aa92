"""Measuring on a machine that others use too: CPU time, runs that alternate, medians; processes by their rusage."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# prepares one run, whose call is then timed
Work = Callable[[], Callable[[], object]]

# A process between this one and the measured one: Linux hands the peak of whoever forks down to what is executed, so
# that without it a small process would seem as large as the one that measures it.
LAUNCHER = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
wall = time.perf_counter() - start
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
peak = spent.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps([done.returncode, spent.ru_utime + spent.ru_stime, wall, peak, done.stdout, done.stderr]))
"""


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes
    ----------
    what : str
        What was measured.
    measured : float
        The number, in ``unit``.
    unit : str
        ``x`` for a ratio.
    target : float or None
        The most that it may be; None where nothing is promised.
    note : str
        What else belongs to it, such as the times behind a ratio.
    """

    what: str
    measured: float
    unit: str
    target: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, or nothing where there is no target."""
        if self.target is None:
            return ""
        return "met" if self.measured <= self.target else "missed"


@dataclass(frozen=True)
class Spent:
    """What a process took: CPU and wall time in seconds, peak memory in bytes, and what it printed."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    stdout: str


def cpu_times(works: dict[str, Work], rounds: int) -> dict[str, list[float]]:
    """Run works in turn, several rounds; return the CPU seconds of each run.

    One round before is not counted, so that caches are warm and everything is compiled.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, prepare in works.items():
            run = prepare()
            start = time.process_time()
            run()
            if turn:
                times[name].append(time.process_time() - start)
    return times


def ratio(times: dict[str, list[float]], above: str, below: str) -> float:
    """Median over the rounds of one work's time over another's in the same round."""
    return statistics.median(a / b for a, b in zip(times[above], times[below], strict=True))


def spent_by(arguments: Sequence[str], **environment: str) -> Spent:
    """Run a Python process to its end and return what it took.

    Raises
    ------
    RuntimeError
        It failed.
    """
    paths = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", LAUNCHER, sys.executable, *arguments]
    env = {**os.environ, "PYTHONPATH": paths, **environment}
    launched = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    code, cpu_s, wall_s, peak, stdout, stderr = json.loads(launched.stdout)
    if code:
        raise RuntimeError(f"{' '.join(arguments)} failed with code {code}: {stderr[-2000:]}")
    return Spent(cpu_s, wall_s, peak, stdout)


def median_spent(arguments: Sequence[str], rounds: int, **environment: str) -> Spent:
    """Run a process several times and return the run of median CPU time; the first, which warms caches, is left out."""
    spent_by(arguments, **environment)
    runs = sorted((spent_by(arguments, **environment) for _ in range(rounds)), key=lambda run: run.cpu_s)
    return runs[rounds // 2]
