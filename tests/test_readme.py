"""What the README shows is what the commands print, and its code runs."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import plugins
from commands import ROOT, run_one

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_the_table_is_what_compare_prints(tmp_path: Path) -> None:
    printed = run_one("compare", folder=tmp_path).out
    shown = lines(blocks("")[0])
    assert shown == lines(printed)[: len(shown)]
    sentence = next(line for line in lines(printed) if line.startswith("Of the KV memory"))
    assert sentence in README


def test_the_code_runs() -> None:
    names: dict = {}
    for block in blocks("python"):
        exec(block, names)
    assert names["result"].engine == "leap"


def test_the_allocator_is_short_and_the_one_that_is_tested() -> None:
    shown = next(block for block in blocks("python") if "class Paged" in block)
    shown = shown[shown.index("class Paged") :]
    assert lines(shown) == lines(inspect.getsource(plugins.Paged))
    assert len(lines(shown)) < 30


def test_the_commands_exist() -> None:
    for block in blocks("sh"):
        for line in block.splitlines():
            if line.startswith("kvsim "):
                words = [w for w in shlex.split(line, comments=True)[1:] if not w.startswith("-")]
                depth = 2 if words[0] in ("memory", "trace") else 1
                assert run_one(*words[:depth], "--help").code == 0, line
