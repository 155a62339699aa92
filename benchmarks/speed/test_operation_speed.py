"""Operations of the allocators, in CPU time: ``pytest benchmarks/speed/test_operation_speed.py --benchmark-enable``.

A run is a loop over many operations, compiled on both sides; ``extra_info`` has their number.
"""

from __future__ import annotations

import time

import operations
import pytest
import yardstick
from measure import Work

from kvsim.names import CONTIGUOUS

SIDES = ("kvsim", "C")


def measure(benchmark, prepare: Work) -> None:
    benchmark.pedantic(lambda run: run(), setup=lambda: ((prepare(),), {}), rounds=7, warmup_rounds=1)


@pytest.mark.benchmark(timer=time.process_time, group="reserve + free")
@pytest.mark.parametrize("batch", operations.BATCHES)
@pytest.mark.parametrize("prompts", ["sharegpt", "long"])
@pytest.mark.parametrize("side", SIDES)
def test_reserve_and_free(benchmark, side: str, prompts: str, batch: int) -> None:
    if yardstick.library() is None:
        pytest.skip("no C compiler")
    *works, sequences = operations.churning(operations.prompts(prompts, batch))
    benchmark.extra_info["sequences"] = sequences
    measure(benchmark, works[SIDES.index(side)])


@pytest.mark.benchmark(timer=time.process_time, group="append")
@pytest.mark.parametrize("batch", operations.BATCHES)
@pytest.mark.parametrize("side", SIDES)
def test_append(benchmark, side: str, batch: int) -> None:
    if yardstick.library() is None:
        pytest.skip("no C compiler")
    *works, tokens = operations.growing(batch)
    benchmark.extra_info["tokens"] = tokens
    measure(benchmark, works[SIDES.index(side)])


@pytest.mark.benchmark(timer=time.process_time, group="contiguous")
@pytest.mark.parametrize("slots", [15_728, 1_000_000])
@pytest.mark.parametrize("placement", CONTIGUOUS)
def test_contiguous(benchmark, placement: str, slots: int) -> None:
    work, count, live = operations.replaying(slots, placement, 50_000)
    benchmark.extra_info.update(operations=count, live_extents=live)
    measure(benchmark, work)
