"""A user's own allocator, victim policy and latency model."""

from __future__ import annotations

import numpy as np
import pytest
from plugins import Cramped, Greedy, Leaky, Paged, Stingy
from runs import LATENCY, run, sharegpt, short_stream

from kvsim.allocators import make_allocator
from kvsim.engine import simulate
from kvsim.errors import ConfigError, InvariantError, StalledError
from kvsim.names import ALLOCATORS, CONTIGUOUS
from kvsim.scheduler import Scheduler
from kvsim.testing import check_allocator


@pytest.mark.uncompiled
def test_the_readmes_allocator_keeps_the_contract() -> None:
    check_allocator(lambda: Paged(160), capacity=160)


@pytest.mark.parametrize("placement", CONTIGUOUS)
@pytest.mark.parametrize("name", ALLOCATORS)
def test_built_in_allocators_keep_the_contract(name: str, placement: str) -> None:
    make = lambda: make_allocator(name, capacity=200, max_model_len=64, block_size=3, placement=placement)  # noqa: E731
    check_allocator(make, capacity=200, operations=400)


@pytest.mark.parametrize("broken", [Leaky, Greedy, Cramped, Stingy])
def test_broken_allocators_are_found_out(broken: type) -> None:
    with pytest.raises(InvariantError):
        check_allocator(lambda: broken(160), capacity=160)


@pytest.mark.uncompiled
def test_a_plug_in_gets_the_results_of_the_built_in_pool() -> None:
    stream = short_stream(60, 20, seed=2)
    own = simulate(stream, Paged(160), latency=LATENCY, max_model_len=60, check=2)
    built_in = run(stream, "paged", capacity=160, max_model_len=60, engine="step")
    assert own.engine == "step"
    assert own.accounts.total.preemptions > 0
    assert own.accounts == built_in.accounts
    for name in vars(own.requests):
        assert np.array_equal(getattr(own.requests, name), getattr(built_in.requests, name)), name


def test_a_latency_function_is_enough() -> None:
    stream = sharegpt(100)
    own = run(stream, "paged", latency=lambda batch, prefill, context: LATENCY(batch, prefill, context))
    assert own.engine == "step"
    assert own.accounts == run(stream, "paged", engine="step").accounts


@pytest.mark.uncompiled
def test_another_victim_still_serves_everyone_once() -> None:
    stream = short_stream(60, 50, seed=5)
    oldest = Scheduler(victim=lambda running: 0)
    result = run(stream, "paged", capacity=96, max_model_len=60, block_size=4, scheduler=oldest, check=2)
    assert result.accounts.total.preemptions > 0
    assert result.accounts.total.generated == int(stream.output.sum())
    latest = run(stream, "paged", capacity=96, max_model_len=60, block_size=4, engine="step")
    assert result.accounts != latest.accounts


def test_a_pool_that_never_gives_is_named() -> None:
    with pytest.raises(StalledError, match="request 0 needs"):
        simulate(short_stream(3, 20, seed=0), Stingy(160), latency=LATENCY, max_model_len=60)


def test_a_pool_that_holds_too_little_is_named() -> None:
    with pytest.raises(InvariantError, match="slots held"):
        simulate(short_stream(9, 20, seed=0), Cramped(160), latency=LATENCY, max_model_len=60)


def test_what_is_not_an_allocator_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no reserve, append"):
        simulate(sharegpt(3), object(), latency=LATENCY, capacity=10)
    plain = Paged(160)
    del plain.capacity
    with pytest.raises(ConfigError, match="has no capacity"):
        simulate(sharegpt(3), plain, latency=LATENCY)


def test_leap_says_why_it_cannot() -> None:
    with pytest.raises(ConfigError, match="latency model is not built in"):
        run(sharegpt(3), "paged", latency=lambda *_: 10**7, engine="leap")
    with pytest.raises(ConfigError, match="victim policy"):
        run(sharegpt(3), "paged", scheduler=Scheduler(victim=lambda running: 0), engine="leap")
    with pytest.raises(ConfigError, match="did you mean 'leap'"):
        run(sharegpt(3), "paged", engine="leep")


@pytest.mark.parametrize("wrong", [-5, 0, float("nan"), None, "1"])
def test_a_latency_that_is_none_is_named(wrong: object) -> None:
    with pytest.raises(ConfigError, match="nanoseconds, at least 1"):
        run(sharegpt(3), "paged", latency=lambda *_: wrong)


def test_a_latency_in_fractions_is_rounded() -> None:
    result = run(sharegpt(3), "paged", latency=lambda *_: 10_000_000.4)
    assert isinstance(result.accounts.end_ns, int)


@pytest.mark.parametrize("engine", ["step", "leap"])
@pytest.mark.parametrize("name", ["max", "paged"])
def test_a_pool_that_does_not_fit_the_run_is_refused(name: str, engine: str) -> None:
    pool = lambda: make_allocator(name, capacity=6000, max_model_len=512, max_num_seqs=8)  # noqa: E731
    options = {"latency": LATENCY, "engine": engine}
    with pytest.raises(ConfigError, match="up to 9 sequences may run together, the allocator has 8 rows"):
        simulate(sharegpt(20), pool(), scheduler=Scheduler(max_num_seqs=9), max_model_len=512, **options)
    with pytest.raises(ConfigError, match="was made for 512"):
        simulate(sharegpt(3), pool(), scheduler=Scheduler(max_num_seqs=8), max_model_len=1024, **options)
    used = pool()
    used.reserve(0, 5, 9)
    with pytest.raises(ConfigError, match="holds something already"):
        simulate(sharegpt(3), used, scheduler=Scheduler(max_num_seqs=8), max_model_len=512, **options)


class Forgetful(Paged):
    """Knows no watermark."""

    def reserve(self, row, num_tokens, final_tokens, keep_free=0):
        return super().reserve(row, num_tokens, final_tokens)


def test_the_watermark_is_in_the_contract() -> None:
    with pytest.raises(InvariantError, match="slots left free"):
        check_allocator(lambda: Forgetful(160), capacity=160)


def test_every_iteration_can_be_observed() -> None:
    seen = []
    result = run(sharegpt(20), "paged", observe=lambda step: seen.append((step.now, len(step.running))))
    assert len(seen) == result.accounts.total.iterations
    assert sum(batch for _, batch in seen) == result.accounts.total.sequences
