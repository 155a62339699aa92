"""Run commands as a user does, many in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

_DRIVER = """
import contextlib, io, json, sys
from kvsim.cli import main
done = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["kvsim", *arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    done.append([code or 0, out.getvalue(), err.getvalue()])
print(json.dumps([done, [m for m in ("numba", "matplotlib", "simpy") if m in sys.modules]]))
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str


def run_all(commands: list[list[str]], folder: Path | None = None, columns: int = 200) -> tuple[list[Done], list[str]]:
    """Run commands one after the other in a fresh process; say which heavy libraries that imported."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": str(columns)}
    process = subprocess.run(
        [sys.executable, "-c", _DRIVER, json.dumps(commands)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    done, heavy = json.loads(process.stdout)
    return [Done(*each) for each in done], heavy


def run_one(*arguments: str, folder: Path | None = None, columns: int = 200) -> Done:
    return run_all([list(arguments)], folder, columns)[0][0]
