"""CPU time of ``kvsim memory`` from the shell, interpreter and imports included: at most 250 ms.

Run with ``python -m pytest benchmarks/speed/test_memory.py --benchmark-enable -s``.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LIMIT_S = 0.250
RUNS = 10
COMMANDS = (
    "weights --model gpt-oss-120b",
    "kv --model gemma-3-27b --context 131072 --explain",
    "fit --model OPT-13B --gpu A100-40GB",
    "fit --model mistral-7b --gpu L4 --sliding window --json",
    "train --params 7B --memory 24GB",
    "models",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_answers_within_its_limit(command: str) -> None:
    spent = []
    for _ in range(RUNS):
        before = os.times()
        subprocess.run([sys.executable, "-m", "kvsim", "memory", *command.split()], check=True, capture_output=True)
        after = os.times()
        spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
    median = sorted(spent)[RUNS // 2]
    print(f"\nkvsim memory {command}: {1000 * median:.0f} ms of CPU (median of {RUNS})")
    assert median <= LIMIT_S
