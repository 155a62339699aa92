"""The engines, in CPU time: ``pytest benchmarks/speed/test_engine_speed.py --benchmark-enable``."""

from __future__ import annotations

import time

import engines
import pytest
import yardstick

REQUESTS = {"leap": 10_000, "C": 10_000, "simulate": 10_000, "step": 500}
WORKS = {"leap": engines.leap, "C": engines.in_c, "simulate": engines.whole, "step": engines.step}


@pytest.mark.benchmark(timer=time.process_time, group="requests")
@pytest.mark.parametrize("load", [engines.NEAR, engines.SATURATING])
@pytest.mark.parametrize("block_size", [16, 1])
@pytest.mark.parametrize("engine", WORKS)
def test_engine(benchmark, engine: str, block_size: int, load: float) -> None:
    if engine == "C" and yardstick.library() is None:
        pytest.skip("no C compiler")
    num_requests = REQUESTS[engine]
    prepare = WORKS[engine](engines.requests(num_requests, load), block_size)
    benchmark.extra_info["requests"] = num_requests
    benchmark.pedantic(lambda run: run(), setup=lambda: ((prepare(),), {}), rounds=7, warmup_rounds=1)


@pytest.mark.parametrize("load", [engines.NEAR, engines.SATURATING])
@pytest.mark.parametrize("block_size", [16, 1])
def test_c_is_the_same_to_the_bit(block_size: int, load: float) -> None:
    if yardstick.library() is None:
        pytest.skip("no C compiler")
    engines.assert_the_same(engines.requests(2_000, load), block_size)
