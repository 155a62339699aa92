"""Small kernels against the plainest statement of what they do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive import NaiveContiguous, asked
from runs import LATENCY

from kvsim import _kernels as k
from kvsim.allocators import ContiguousAllocator, PagedAllocator
from kvsim.engine import simulate
from kvsim.names import CONTIGUOUS
from kvsim.requests import RequestStream
from kvsim.scheduler import Scheduler

pytestmark = pytest.mark.uncompiled

KINDS = {"on-demand": k.ON_DEMAND, "max": k.MAX, "pow2": k.POW2, "oracle": k.ORACLE}
PRIME = 2**31 - 1


def from_python(inlined: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel that only kernels can call."""
    return numba.njit(lambda *arguments: inlined(*arguments))


lowest_bit, highest_bit, ceil_order = (from_python(f) for f in (k.lowest_bit, k.highest_bit, k.ceil_order))
add, add_product, mix = from_python(k.add), from_python(k.add_product), from_python(k.mix)


@pytest.mark.parametrize("kind", KINDS)
def test_reservation(kind: str) -> None:
    for prompt in (1, 2, 9, 30):
        for output in range(1, 40):
            final = prompt + output - 1
            for longest in (final + 1, 2 * final, 1000):
                found = k.reservation(KINDS[kind], prompt, final, longest)
                assert found == asked(kind, prompt, final, longest)


def test_bit_scans() -> None:
    for bit in range(62):
        for word in {1 << bit, (1 << bit) + 1, (2 << bit) - 1, (1 << bit) | (1 << bit // 2)}:
            if word < 2**62:
                assert highest_bit(word) == word.bit_length() - 1
            if word < 2**32:
                assert lowest_bit(word) == (word & -word).bit_length() - 1
    for size in range(1, 300):
        assert 1 << ceil_order(size) == min(1 << order for order in range(10) if 1 << order >= size)


def joined(account: np.ndarray, integral: int) -> int:
    high, low = (int(limb) for limb in account[integral : integral + 2])
    assert 0 <= low < k.LIMB
    return high * k.LIMB + low


@settings(deadline=None)
@given(st.lists(st.integers(0, k.LIMB - 1), max_size=20))
@example([k.LIMB - 1, 1, k.LIMB - 1, k.LIMB - 1])
def test_add_carries(amounts: list[int]) -> None:
    account = np.zeros(6, dtype=np.int64)
    for amount in amounts:
        add(account, 2, np.int64(amount))
    assert joined(account, 2) == sum(amounts)
    assert not account[[0, 1, 4, 5]].any()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**62 - 1)), max_size=10))
@example([(2**31 - 1, 2**62 - 1)] * 3)
@example([(2**31 - 1, 2**31 - 1), (2**31 - 1, 2**31), (1, 2**31), (2**31 - 1, 2**31 + 1)])
@example([(3, 2**61), (2**30, 2**33 + 5), (0, 2**62 - 1), (7, 0)])
def test_products_beyond_64_bits(pairs: list[tuple[int, int]]) -> None:
    account = np.zeros(2, dtype=np.int64)
    for value, ns in pairs:
        add_product(account, 0, np.int64(value), np.int64(ns))
    assert joined(account, 0) == sum(value * ns for value, ns in pairs)


def naive_mix(numbers: tuple[int, int, int, int], multiplier: int) -> int:
    """Horner's rule over the numbers, then a square, all modulo a prime."""
    h = 0
    for number in numbers:
        h = h * multiplier + number
    return (h * h + multiplier) % PRIME


@settings(deadline=None)
@given(*[st.integers(0, 2**40)] * 4)
def test_mix(iteration: int, request: int, logical: int, physical: int) -> None:
    for multiplier in (1_000_003, 69_621):
        numbers = (iteration, request, logical, physical)
        assert mix(*(np.int64(number) for number in numbers), multiplier) == naive_mix(numbers, multiplier)


@pytest.mark.parametrize("engine", ["step", "leap"])
def test_digest_of_a_run_by_hand(engine: str) -> None:
    """Blocks of 2: request 0 begins with 0 and 1, request 1 has 2 for one iteration, which 0 takes in its third."""
    columns = ([0, 0], [3, 1], [4, 1])
    stream = RequestStream(*(np.array(column) for column in columns))
    pool = PagedAllocator(12, 2, max_model_len=8)
    result = simulate(stream, pool, latency=LATENCY, max_model_len=8, engine=engine, digest=True)
    entries = [(0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 0, 2), (2, 0, 2, 2)]
    sums = [sum(naive_mix(entry, multiplier) for entry in entries) % PRIME for multiplier in (1_000_003, 69_621)]
    assert list(result.digest) == sums


def test_treap_ranks_differ_and_keep_it_shallow() -> None:
    """The rank is a matter of speed only: 4,096 extents in ascending order must not become a list."""
    ranks = [k.priority(np.int64(start)) for start in range(0, 100_000, 7)]
    assert len(set(ranks)) == len(ranks)
    assert min(ranks) >= 0
    pool = ContiguousAllocator(8192, "best-fit", reservation="oracle", max_model_len=8192, num_rows=8192)
    for row in range(8192):
        pool.reserve(row, 1, 1)
    for row in range(0, 8192, 2):
        pool.free(row)

    def depth(node: int) -> int:
        deepest, level = 0, [node]
        while level:
            deepest += 1
            level = [below for n in level for below in pool.state.child[:, n].tolist() if below != k.NIL]
        return deepest

    assert depth(int(pool.state.child[0, len(pool.state.sizes) - 1])) <= 40
    pool.verify()


@pytest.mark.parametrize("placement", CONTIGUOUS)
@pytest.mark.parametrize("capacity", [1, 2, 14, 15, 16, 31, 32, 33, 254, 255, 256, 1023, 1024, 1025])
def test_pools_of_every_depth(placement: str, capacity: int) -> None:
    """Fill with single slots, free them from either end and in a scattered order: the trees at the edges of levels."""
    ways = [range(capacity), range(capacity - 1, -1, -1), [i * 7 % capacity for i in range(capacity)]]
    pool = ContiguousAllocator(capacity, placement, reservation="oracle", max_model_len=capacity, num_rows=capacity)
    for way in ways[: 3 if capacity % 7 else 2]:
        for row in range(capacity):
            assert pool.largest_free >= 1
            assert pool.reserve(row, 1, 1) == k.OK
        assert pool.largest_free == pool.free_slots == 0
        assert not pool.blocked(1, 1)
        for row in way:
            pool.free(row)
        pool.verify()
        assert pool.largest_free == pool.largest_request


@pytest.mark.parametrize("placement", CONTIGUOUS)
def test_churn_agrees_with_twin(placement: str) -> None:
    """Several hundred operations on a pool of three levels, of which a third find no room."""
    rng = np.random.default_rng(3)
    capacity, longest = 1100, 300
    real = ContiguousAllocator(capacity, placement, reservation="oracle", max_model_len=longest, num_rows=80)
    twin = NaiveContiguous(capacity, placement, "oracle", longest)
    for turn in range(600):
        if twin.rows and (len(twin.rows) == 80 or rng.random() < 0.4):
            row = int(rng.choice(list(twin.rows)))
            assert real.free(row) == twin.free(row)
        else:
            row = next(r for r in range(80) if r not in twin.rows)
            final = int(rng.integers(1, longest) if rng.random() < 0.3 else rng.integers(1, 12))
            assert real.reserve(row, 1, final) == twin.reserve(row, 1, final)
        if turn % 20 == 0:
            real.verify()
            assert real.free_extents() == sorted(twin.free_set)


def test_rows_stop_together_where_an_extent_is_full() -> None:
    """Three rows with 6, 2 and 9 slots left: two iterations are done of five, and then none."""
    pool = ContiguousAllocator(64, "first-fit", reservation="oracle", max_model_len=40)
    for row, (now, final) in enumerate([(4, 10), (5, 7), (1, 10)]):
        pool.reserve(row, now, final)
    order = np.arange(3)
    assert pool.append(order, 5) == 2
    assert pool.state.rows[k.TOKENS, :3].tolist() == [6, 7, 3]
    assert pool.append(order, 5) == 0
    assert pool.append(order[::2], 3) == 3
    assert pool.totals()[0] == 9 + 7 + 6
    pool.verify()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_best_fit_takes_the_smallest_then_the_lowest(gaps: list[int]) -> None:
    """Holes of given sizes between single slots: each size is served from the smallest hole, ties from the lowest."""
    capacity = sum(gaps) + len(gaps)
    pool = ContiguousAllocator(capacity, "best-fit", reservation="oracle", max_model_len=capacity, num_rows=200)
    for i, gap in enumerate(gaps):
        pool.reserve(2 * i, 1, gap)
        pool.reserve(2 * i + 1, 1, 1)
    for i in range(len(gaps)):
        pool.free(2 * i)
    holes = sorted((size, start) for start, size in pool.free_extents())
    assert [size for size, _ in holes] == sorted(gaps)
    for row, (size, start) in zip(range(100, 200), holes, strict=False):
        assert pool.reserve(row, 1, size) == k.OK
        assert pool.extent(row) == (start, size)


def test_the_watermark_is_for_admission_only() -> None:
    """10 blocks of 1, 2 kept free: of two requests of 4 + 4 the second waits for the first, which grows to the end."""
    columns = ([0, 0], [4, 4], [4, 4])
    stream = RequestStream(*(np.array(column) for column in columns))
    for engine in ("step", "leap"):
        for blocks, together in ((9, False), (10, True)):
            pool = PagedAllocator(blocks, 1, max_model_len=9)
            scheduler = Scheduler(watermark=0.25)
            result = simulate(stream, pool, latency=LATENCY, scheduler=scheduler, max_model_len=9, engine=engine)
            assert (result.requests.admission.tolist() == [0, 0]) == together


@pytest.mark.parametrize("engine", ["step", "leap"])
@pytest.mark.parametrize(("headroom", "together"), [(0, 5), (1, 4), (2, 3), (8, 2), (13, 1)])
def test_headroom_grows_with_the_batch(headroom: int, together: int, engine: str) -> None:
    """20 blocks, requests of 4: the next one needs 4 and ``headroom`` for each that runs, out of what is free."""
    stream = RequestStream(*(np.full(6, value) for value in (0, 4, 2)))
    pool = PagedAllocator(20, 1, max_model_len=9)
    scheduler = Scheduler(watermark=0, headroom=headroom)
    result = simulate(stream, pool, latency=LATENCY, scheduler=scheduler, max_model_len=9, engine=engine)
    assert result.requests.admission.tolist().count(0) == together


def test_admission_stops_at_the_first_who_finds_no_room() -> None:
    """Arrivals come in (arrival, index) order: a smaller request behind the head does not pass it."""
    columns = ([0, 0, 0], [6, 6, 1], [2, 2, 2])
    stream = RequestStream(*(np.array(column) for column in columns))
    for engine in ("step", "leap"):
        pool = PagedAllocator(10, 1, max_model_len=9)
        result = simulate(stream, pool, latency=LATENCY, max_model_len=9, engine=engine)
        admissions = result.requests.admission.tolist()
        assert admissions[0] < admissions[1] == admissions[2]
        assert all(earlier <= later for earlier, later in pairwise(admissions))
