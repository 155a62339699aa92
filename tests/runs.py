"""Small runs for the tests: streams, servers, and everything of a result that two engines must agree on."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvsim.allocators import make_allocator
from kvsim.engine import simulate
from kvsim.generate import load_workload
from kvsim.latency import Affine
from kvsim.requests import RequestStream
from kvsim.results import Result
from kvsim.scheduler import Scheduler

LATENCY = Affine(20e6, 400e3, 100e3, 300)
POOL = 15_728


def sharegpt(num_requests: int, rate: float | None = 1.7, seed: int = 0) -> RequestStream:
    workload = load_workload("sharegpt")
    if rate is None:
        return workload.sample(num_requests=num_requests, backlog=True, seed=seed)
    return workload.sample(num_requests=num_requests, rate_per_s=rate, seed=seed)


def short_stream(num_requests: int, rate: float, seed: int, longest: int = 60) -> RequestStream:
    """Short requests, for pools of a few blocks."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(1, longest // 2, num_requests)
    output = rng.integers(1, longest // 2, num_requests)
    arrival = np.cumsum(rng.exponential(1e9 / rate, num_requests)).astype(np.int64)
    return RequestStream(arrival, prompt, output)


def run(stream: RequestStream, allocator: str, **options: Any) -> Result:
    """Run a stream through a named allocator; options are those of the pool, the scheduler and simulate()."""
    capacity = options.pop("capacity", POOL)
    block_size = options.pop("block_size", 16)
    placement = options.pop("placement", "buddy")
    longest = options.pop("max_model_len", 2048)
    scheduler = options.pop("scheduler", Scheduler())
    pool = make_allocator(
        allocator,
        capacity=capacity,
        max_model_len=longest,
        max_num_seqs=scheduler.max_num_seqs,
        block_size=block_size,
        placement=placement,
    )
    latency = options.pop("latency", LATENCY)
    return simulate(stream, pool, latency=latency, scheduler=scheduler, max_model_len=longest, **options)


def assert_same(a: Result, b: Result) -> None:
    """Hold two results to each other: every column, every integral, the timeline, the window, the hash of tables."""
    for name in vars(a.requests):
        left, right = getattr(a.requests, name), getattr(b.requests, name)
        assert np.array_equal(left, right), (name, np.flatnonzero(left != right)[:5])
    assert a.accounts == b.accounts
    assert a.digest == b.digest
    left, right = a.summary(), b.summary()
    assert {**left, "engine": ""} == {**right, "engine": ""}
