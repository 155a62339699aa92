"""Tuning: what is recommended, why, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kvsim.errors import ConfigError, TraceError
from kvsim.experiments.capacity import HOLDS, Knee
from kvsim.experiments.tune import Choice, Measurement, Tuning, table_bytes, tune
from kvsim.latency import kernel_table, latency_of, with_kernel
from kvsim.latency.measured import Measured
from kvsim.objective import Objective
from kvsim.scenario import Resolved, Scenario

GOAL = Objective({"normalized-latency": 0.5})
SUMMARY = {"internal": 0.0, "reserved": 0.0, "recomputed_tokens": 0, "generated": 100}


def choice(value: int, rates: list[float]) -> Choice:
    knees = [Knee(rate, rate, rate, HOLDS, ()) for rate in rates]
    return Choice(value, tuple(Measurement(knee, SUMMARY, 0.0) for knee in knees), 0)


def test_recommended_is_what_is_not_clearly_worse() -> None:
    base = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
    noisy = [0.97 * rate * wobble for rate, wobble in zip(base, (1.06, 0.95, 1.04, 0.94, 1.05, 1.0), strict=True)]
    choices = (
        choice(8, [0.9 * rate for rate in base]),  # 10 % worse with every seed
        choice(16, base),
        choice(32, [0.995 * rate for rate in base]),  # worse, but within the margin
        choice(64, noisy),  # 3 % worse, but not clearly
    )
    found = Tuning("block_size", Scenario(), GOAL, choices)
    assert found.best.value == 16
    assert [c.value for c in found.recommended] == [16, 32, 64]


@pytest.mark.parametrize("workload", ["sharegpt", "alpaca"])
def test_block_size_with_and_without_a_kernel_table(workload: str) -> None:
    rate = {"sharegpt": 1.7, "alpaca": 32.0}[workload]
    served = Scenario(workload=workload, rate=rate, duration=900, seeds=3, kernel_table="figure-18")
    found = tune(served, "block_size", GOAL, [1, 16, 256])
    assert [c.value for c in found.recommended] == [16]
    free = tune(served.model_copy(update={"kernel_table": None}), "block_size", GOAL, [1, 16, 256])
    assert 1 in [c.value for c in free.recommended]
    assert 256 not in [c.value for c in free.recommended]
    assert any("small sizes look free" in line for line in free.reasons())
    assert found.choices[0].costs()["kernel_penalty"] > 0.03
    assert found.choices[2].costs()["last_block_waste"] > 0.15


def test_other_knobs() -> None:
    served = Scenario(rate=1.5, duration=600, seeds=2)
    pools = tune(served, "pool", GOAL, ["6GiB", "12GiB"])
    assert [c.value for c in pools.recommended] == ["12GiB"]
    seqs = tune(served, "max_num_seqs", GOAL, [4, 256])
    assert [c.value for c in seqs.recommended] == [256]


@pytest.mark.parametrize(
    ("knob", "values", "message"),
    [
        ("block_sze", None, "did you mean 'block_size'"),
        ("block_size", [16], "at least two"),
        ("block_size", [16, 0], "block_size"),
        ("pool", ["12", "24"], "unit"),
    ],
)
def test_wrong_input(knob: str, values: list[object] | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tune(Scenario(seeds=2), knob, GOAL, values)


def test_a_kernel_table_never_guesses(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no block size 24"):
        tune(Scenario(kernel_table="figure-18"), "block_size", GOAL, [16, 24])
    table = tmp_path / "mine.csv"
    table.write_text("block_size,factor\n16,1.5\n")
    assert kernel_table(str(table)).factors == {16: 1.5}
    scenario = Scenario(kernel_table=str(table))
    latency = latency_of(Resolved(scenario))
    assert with_kernel(latency, scenario, "paged").parameters[4] == pytest.approx(1.5 * latency.parameters[4])
    assert with_kernel(latency, scenario, "oracle") is latency
    steps = Measured((1, 2), (0,), (0,), [[[1e6]], [[2e6]]])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="hold attention already"):
        with_kernel(steps, scenario, "paged")


REFUSED = [
    "",
    "size,factor\n1,2\n",
    "block_size,factor\n0,1\n",
    "block_size,factor\n8,-1\n",
    "block_size,factor\n8\n",
    "block_size,factor\n8,1\n8,2\n",
]


@pytest.mark.parametrize("text", REFUSED)
def test_kernel_tables_are_refused(tmp_path: Path, text: str) -> None:
    table = tmp_path / "mine.csv"
    table.write_text(text)
    with pytest.raises(TraceError, match="line"):
        kernel_table(str(table))


def test_table_bytes_by_hand() -> None:
    """256 sequences x 2048 / 16 entries x 4 bytes."""
    assert table_bytes(Scenario()) == 256 * 128 * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["blocksize"], "did you mean 'block-size'"), (["block-size", "--kernel-table", "nowhere.csv"], "figure-18")],
)
def test_the_command_refuses(arguments: list[str], message: str) -> None:
    done = subprocess.run([sys.executable, "-m", "kvsim", "tune", *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
