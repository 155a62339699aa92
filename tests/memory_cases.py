"""What the tests of the arithmetic of memory share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvsim.cli import cli


def run_json(capsys: pytest.CaptureFixture[str], command: str) -> dict[str, Any]:
    """Run ``kvsim memory COMMAND --json`` in this process and return its one object."""
    cli.main(["memory", *command.split(), "--json"], standalone_mode=False)
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    answer = json.loads(printed)
    assert isinstance(answer, dict)
    return answer


def run_text(capsys: pytest.CaptureFixture[str], command: str) -> str:
    """Run ``kvsim memory COMMAND`` in this process and return what it prints, spaces folded."""
    cli.main(["memory", *command.split()], standalone_mode=False)
    return " ".join(capsys.readouterr().out.split())


def run_lines(capsys: pytest.CaptureFixture[str], command: str) -> list[str]:
    """Run ``kvsim memory COMMAND`` in this process and return the lines that it prints, stripped."""
    cli.main(["memory", *command.split()], standalone_mode=False)
    return [line.strip() for line in capsys.readouterr().out.splitlines()]
