"""The formulas that ``--explain`` prints come out: each is worked out again and compared with the number beside it."""

from __future__ import annotations

import math
import re

import pytest
from memory_cases import run_lines

Capsys = pytest.CaptureFixture[str]

# What is not a sum but a statement: sizes that are given, assumed or found in one sentence.
STATED = ("an assumption", "as given", "Table 1", "blocks given", "size of", "the longest of", "as under", "all ranks")
FUNCTIONS = {"ceil": math.ceil, "floor": math.floor, "min": min}
COMMANDS = (
    "weights --params 7B --explain",
    "weights --model gpt-oss-120b --explain",
    "weights --model llama-7b --bits 4 --double-quant --keep-embeddings --explain",
    "weights --model llama-7b --bits 3 --quant-block 128 --scale-bits 16 --zero-bits 3 --explain",
    "kv --model OPT-13B --context 1000 --sequences 3 --explain",
    "kv --model deepseek-v3 --context 4097 --tp 8 --explain",
    "kv --model llama-3-8b --context 100 --kv-dtype int4 --tp 16 --pp 3 --explain",
    "kv --model gemma-3-27b --context 32768 --sliding window --in-flight 2048 --explain",
    "fit --model OPT-13B --gpu A100-40GB --explain",
    "fit --model llama-3-70b --gpu 4xA100-80GB --concurrency 7 --explain",
    "fit --model gpt-oss-20b --gpu L4 --sliding window --max-model-len 30000 --explain",
    "fit --ram 16GB --params 7B --bits 4 --explain",
    "fit --model qwen2.5-7b --pool 16GiB --explain",
    "train --params 7B --explain",
    "train --params 7.5B --devices 64 --zero 2 --gradients fp32 --optimizer adam-half --explain",
    "train --model llama-3-8b --targets all --devices 3 --zero 3 --activations checkpointed --explain",
    "train --model llama-3-8b --zero 3 --offload parameters --activations stored --optimizer adam-8bit --explain",
)


def worked_out(formula: str) -> float:
    """Evaluate a formula whose numbers have words beside them."""
    text = re.sub(r"(?<=\d),(?=\d)", "", formula)
    text = re.sub(r" = [\d.]+( bits)?(?=\))", "", text)
    text = re.sub(r"\b(?!ceil|floor|min)[A-Za-z][A-Za-z-]*:?", lambda word: "*" if word[0] == "x" else "", text)
    text = re.sub(r"(?<=[-+*/(]) *, *|, *(?=\d+ *\* *\()", "", text)
    return float(eval(text, {"__builtins__": {}}, FUNCTIONS))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_formula_comes_out(capsys: Capsys, command: str) -> None:
    lines = run_lines(capsys, command)
    first = next(number for number, line in enumerate(lines) if line.startswith("Formulas"))
    checked = 0
    for line in filter(None, lines[first:]):
        if line.startswith("Formulas") or any(words in line for words in STATED):
            continue
        _, formula, result = re.fullmatch(r"(.*?) = (.*) = (.*)", line).groups()  # type: ignore[union-attr]
        stated = float(re.sub(r"[^\d.]", "", result))
        if "host memory" in formula and not stated:
            continue
        tolerance = 5e-5 if "." in result else 1
        assert worked_out(formula) == pytest.approx(stated, abs=tolerance), line
        checked += 1
    assert checked >= 1


def test_the_reader_of_formulas_reads() -> None:
    assert worked_out("2 x 8 KV heads x 64 values x 16 bits / 8") == 2048
    assert worked_out("7,000 x (8/64 + 32/(64 x 256) = 0.127 bits) / 8") == 7000 * (8 / 64 + 32 / (64 * 256)) / 8
    assert worked_out("min(2,048, ceil((window 1,024 - 1 + 1 in flight) / 16) + 1)") == 65
