"""The engines on one workload: OPT-13B on an A100-40GB (15,728 slots), ShareGPT, Poisson arrivals.

Loads are given as shares of *saturation*: the requests/s that a backlog of the same requests gets out of ``paged``
with blocks of 16. Everything is measured on the engine itself, from its columns to its columns.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import cache

import numpy as np
import yardstick
from measure import Work

from kvsim import _kernels as k
from kvsim.allocators import PagedAllocator
from kvsim.engine import simulate, steady_marks
from kvsim.engine.leap import Leap
from kvsim.engine.setup import Setup
from kvsim.engine.step import Step
from kvsim.generate import load_workload
from kvsim.latency import Affine, latency_for
from kvsim.models import get_device, get_model
from kvsim.requests import NS_PER_S, RequestStream
from kvsim.scheduler import Scheduler

SLOTS = 15_728
LONGEST = 2048
NEAR, SATURATING = 0.9, 1.5


@cache
def latency() -> Affine:
    """The latency model of all runs: affine, as the C port has it."""
    return latency_for(get_model("OPT-13B"), get_device("A100-40GB")).unbound()


@cache
def saturation_per_s() -> float:
    """Requests/s that a backlog of 10,000 requests gets."""
    stream = load_workload("sharegpt").sample(num_requests=10_000, backlog=True, seed=1)
    engine = Leap(setup(stream))
    run_to_the_end(engine)
    return len(stream) / engine.now * NS_PER_S


@cache
def requests(num_requests: int, load: float) -> RequestStream:
    """Draw requests that come at a share of saturation."""
    return at_rate(num_requests, load * saturation_per_s())


def at_rate(num_requests: int, rate_per_s: float) -> RequestStream:
    """Draw requests."""
    return load_workload("sharegpt").sample(num_requests=num_requests, rate_per_s=rate_per_s, seed=0)


def pool(block_size: int = 16) -> PagedAllocator:
    """Return an empty pool that grows on demand."""
    return PagedAllocator(SLOTS, block_size, max_model_len=LONGEST)


def setup(stream: RequestStream, block_size: int = 16) -> Setup:
    """Return what an engine is given, with a pool that is empty."""
    marks = steady_marks(stream)
    return Setup(stream, pool(block_size), Scheduler(), latency(), LONGEST, marks_ns=marks)


def run_to_the_end(engine: Leap | Step) -> None:
    """Advance until nothing is left to do."""
    while engine.advance(k.FOREVER, 1_000_000) != k.IDLE:
        pass


def leap(stream: RequestStream, block_size: int = 16) -> Work:
    """Return the leap engine as work: its arrays made, and run."""

    def prepare() -> Callable[[], object]:
        given = setup(stream, block_size)
        return lambda: run_to_the_end(Leap(given))

    return prepare


def step(stream: RequestStream, block_size: int = 16) -> Work:
    """Return the step engine as work."""

    def prepare() -> Callable[[], object]:
        given = setup(stream, block_size)
        return lambda: run_to_the_end(Step(given))

    return prepare


def in_c(stream: RequestStream, block_size: int = 16) -> Work:
    """Return the C port as work."""

    def prepare() -> Callable[[], object]:
        given = setup(stream, block_size)
        return lambda: yardstick.simulate(given)

    return prepare


def whole(stream: RequestStream, block_size: int = 16, engine: str = "leap") -> Work:
    """Return ``simulate()`` and its summary as work."""

    def prepare() -> Callable[[], object]:
        empty = pool(block_size)
        return lambda: simulate(stream, empty, latency=latency(), engine=engine).summary()

    return prepare


def assert_the_same(stream: RequestStream, block_size: int) -> None:
    """Hold leap to the C port, to the bit: a ratio of two different things would say nothing."""
    engine = Leap(setup(stream, block_size))
    run_to_the_end(engine)
    outcome, _ = yardstick.simulate(setup(stream, block_size))
    assert np.array_equal(engine.columns()[1][: k.STATUS], outcome)


def run_once(num_requests: int, load: float = NEAR) -> float:
    """Draw requests and simulate them, once; return the CPU seconds of the simulation."""
    stream = requests(num_requests, load)
    gc.collect()
    start = time.process_time()
    simulate(stream, pool(), latency=latency(), engine="leap")
    return time.process_time() - start
