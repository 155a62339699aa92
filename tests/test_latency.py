"""Latency models: what they compute, what they refuse, and that both engines agree on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.allocators import make_allocator
from kvsim.engine import simulate
from kvsim.errors import ConfigError, TraceError
from kvsim.generate import load_workload
from kvsim.latency import Affine, Measured, Roofline, derived, read_step_times, roofline
from kvsim.models import get_device, get_model
from kvsim.scheduler import Scheduler

pytestmark = pytest.mark.uncompiled

MODEL, DEVICE = get_model("OPT-13B"), get_device("A100-40GB")
GRID = Measured((1, 8), (0, 100, 300), (0, 1000), np.arange(1.0, 13.0).reshape(2, 3, 2) * 1e6)


def test_affine_is_its_sum() -> None:
    model = Affine(1000.0, 100.0, 10.0, 1.0)
    assert model(3, 20, 400) == 1000 + 300 + 200 + 400
    assert model.with_attention(2.0)(3, 20, 400) == 1000 + 300 + 200 + 800


@pytest.mark.parametrize("bad", [(-1, 1, 1, 1), (float("nan"), 1, 1, 1), (0, 0, 5, 5)])
def test_affine_refuses(bad: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError):
        Affine(*bad)


def test_roofline_turns_at_its_ridge() -> None:
    model = Roofline(weights_ns=1000, token_ns=10, context_ns=1)
    assert model.ridge == 100
    assert model(100, 0, 50) == 1050
    assert model(101, 0, 50) == 1060
    assert model(1, 200, 0) == 2010


def test_roofline_by_hand() -> None:
    """13 G parameters: 26 GB over 0.9 x 1555 GB/s, 26 GFLOP over 0.7 x 312 TFLOPS, 819,200 bytes a context token."""
    model = roofline(MODEL, DEVICE, overhead_ns=0)
    assert model.weights_ns == pytest.approx(MODEL.parameters * 2 / (0.9 * 1555))
    assert model.token_ns == pytest.approx(MODEL.parameters * 2 / (0.7 * 312e3))
    assert model.context_ns == pytest.approx(819_200 / (0.9 * 1555))
    assert 140 < model.ridge < 170


def test_without_its_bound_a_roofline_is_affine() -> None:
    """Alike until computing takes longer than reading the weights; a prefill then costs what its tokens do."""
    bound = roofline(MODEL, DEVICE, sequence_ns=1e5)
    free = bound.unbound()
    below = int(bound.ridge) - 1
    assert bound(below, 0, 5000) == free(below, 0, 5000)
    assert bound(below + 50, 0, 5000) > free(below + 50, 0, 5000)
    assert free(1, 100, 0) - free(1, 0, 0) == pytest.approx(100 * bound.token_ns, abs=1)


def test_a_stretch_lengthens_work_and_not_overheads() -> None:
    plain, stretched = roofline(MODEL, DEVICE), roofline(MODEL, DEVICE, stretch=1.5)
    assert stretched(1, 0, 0) - stretched.fixed_ns == pytest.approx(1.5 * (plain(1, 0, 0) - plain.fixed_ns), abs=1)
    assert stretched.fixed_ns == plain.fixed_ns
    assert stretched.context_ns == pytest.approx(1.5 * plain.context_ns)


def naive(model: Measured, point: tuple[float, float, float]) -> float:
    """Interpolate one axis after the other."""
    values = model.times_ns
    for axis, value in zip((model.batch, model.prefill_tokens, model.context_tokens), point, strict=True):
        if len(axis) == 1:
            values = values[0]
            continue
        cell = min(max(np.searchsorted(axis, value, "right") - 1, 0), len(axis) - 2)
        share = (value - axis[cell]) / (axis[cell + 1] - axis[cell])
        values = values[cell] * (1 - share) + values[cell + 1] * share
    return float(values)


@given(st.integers(1, 20), st.integers(0, 900), st.integers(0, 4000))
def test_measured_interpolates(batch: int, prefill: int, context: int) -> None:
    assert GRID(batch, prefill, context) == pytest.approx(max(naive(GRID, (batch, prefill, context)), 1), abs=1)


def test_measured_meets_its_points() -> None:
    assert [GRID(b, p, c) for b in (1, 8) for p in (0, 100, 300) for c in (0, 1000)] == [
        i * 1_000_000 for i in range(1, 13)
    ]


MODELS = {
    "affine": derived(MODEL, DEVICE),
    "roofline": roofline(MODEL, DEVICE),
    "measured": Measured((4, 40), (0,), (0,), np.array([27.2e6, 43.4e6]).reshape(2, 1, 1)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("allocator", ["oracle", "paged"])
def test_engines_agree(name: str, allocator: str) -> None:
    stream = load_workload("sharegpt").sample(num_requests=150, rate_per_s=3.0, seed=5)

    def run(engine: str) -> object:
        pool = make_allocator(allocator, capacity=4096, max_model_len=2048)
        result = simulate(stream, pool, latency=MODELS[name], engine=engine, digest=True)
        return result.requests.finish.tolist(), result.accounts, result.digest

    assert run("step") == run("leap")


@pytest.mark.parametrize("headroom", [1, 2])
def test_headroom_keeps_blocks_free_and_engines_agree(headroom: int) -> None:
    """At every admission the watermark and ``headroom`` blocks for each running sequence stay free."""
    stream = load_workload("sharegpt").sample(num_requests=150, rate_per_s=5.0, seed=5)
    scheduler = Scheduler(headroom=headroom)

    def run(engine: str, observe: Callable[[Any], None] | None = None) -> object:
        pool = make_allocator("paged", capacity=4096, max_model_len=2048)
        result = simulate(
            stream, pool, latency=MODELS["affine"], scheduler=scheduler, engine=engine, digest=True, observe=observe
        )
        return result.requests.finish.tolist(), result.accounts, result.digest

    admissions = 0

    def look(step: Any) -> None:
        nonlocal admissions
        if step.prefill and len(step.running) > 1:
            admissions += 1
            assert step.allocator.free_slots >= 16 * (2 + headroom * (len(step.running) - 1))

    assert run("step", look) == run("leap")
    assert admissions > 20


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "steps.csv"
    path.write_text(text)
    return path


def test_step_times_are_read(tmp_path: Path) -> None:
    model = read_step_times(write(tmp_path, "ms,batch\n27.2,4\n29.9,8\n"))
    assert (model(4, 0, 0), model(8, 77, 999), model(6, 0, 0)) == (27_200_000, 29_900_000, 28_550_000)
    assert model(12, 0, 0) == pytest.approx(32_600_000, abs=1)  # on from the last two points


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty"),
        ("batch\n4\n", "one column ms"),
        ("batch,ms\n", "no rows"),
        ("bath,ms\n4,1\n", "did you mean 'batch'"),
        ("batch,ms\n4\n", "line 2: 2 cells"),
        ("batch,ms\n4,x\n", "line 2, field 'ms'"),
        ("batch,ms\n4,0\n", "line 2, field 'ms'"),
        ("batch,ms\n-4,1\n", "line 2, field 'batch'"),
        ("batch,ms\n4,1\n4,2\n", "line 3: batch 4 is there twice"),
        ("batch,context_tokens,ms\n4,0,1\n8,100,2\n", "no row for batch 4, context_tokens 100"),
    ],
)
def test_step_times_refuse(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(TraceError, match=expected):
        read_step_times(write(tmp_path, text))
