"""Whole processes, in CPU time of the process: ``pytest benchmarks/speed/test_startup_speed.py --benchmark-enable``."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {
    "help": ["--help"],
    "error": ["compare", "--block-size", "0"],
    "compare": ["compare", "--requests", "7200"],
}


def cpu_of_children() -> float:
    """CPU seconds of the processes that have ended so far."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


@pytest.mark.benchmark(timer=cpu_of_children, group="start-up")
@pytest.mark.parametrize("command", COMMANDS)
def test_command(benchmark, command: str, tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "kvsim", *COMMANDS[command]]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
    }

    def run() -> int:
        return subprocess.run(arguments, cwd=tmp_path, env=env, capture_output=True).returncode

    code = benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    assert code == (2 if command == "error" else 0)
