"""Allocators against naive twins, hand-worked examples, and their own invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from naive import NaiveContiguous, NaivePaged

from kvsim import _kernels as k
from kvsim.allocators import LATER, NEVER, OK, ContiguousAllocator, PagedAllocator, make_allocator
from kvsim.errors import ConfigError, InvariantError
from kvsim.names import ALLOCATORS, CONTIGUOUS

ROWS = 12
LONGEST = 40
SYSTEMS = [(name, "paged") for name, (_, paged) in ALLOCATORS.items() if paged]
SYSTEMS += [(name, place) for name, (_, paged) in ALLOCATORS.items() if not paged for place in CONTIGUOUS]


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


class Twins(RuleBasedStateMachine):
    """A kernel-backed allocator and its naive twin, driven by the same operations."""

    @initialize(system=st.sampled_from(SYSTEMS), capacity=st.integers(1, 300), size=st.integers(1, 40))
    def build(self, system: tuple[str, str], capacity: int, size: int) -> None:
        name, self.placement = system
        reservation = ALLOCATORS[name][0]
        size = min(size, capacity)
        self.real = make_allocator(
            name, capacity=capacity, max_model_len=LONGEST, max_num_seqs=ROWS, block_size=size, placement=self.placement
        )
        if self.placement == "paged":
            self.twin = NaivePaged(capacity, size, reservation, LONGEST)
        else:
            self.twin = NaiveContiguous(capacity, self.placement, reservation, LONGEST)
        self.unit = size

    @property
    def live(self) -> list[int]:
        return list(self.twin.rows)

    @precondition(lambda self: len(self.twin.rows) < ROWS)
    @rule(prompt=st.integers(1, LONGEST - 1), output=st.integers(1, LONGEST), keep=st.integers(0, 3))
    def reserve(self, prompt: int, output: int, keep: int) -> None:
        final = min(prompt + output, LONGEST) - 1
        final = max(final, prompt)
        row = next(r for r in range(ROWS) if r not in self.twin.rows)
        keep_free = keep * self.unit if self.placement == "paged" else 0
        verdict = self.real.reserve(row, prompt, final, keep_free)
        assert verdict == self.twin.reserve(row, prompt, final, keep_free)
        assert self.real.can_serve(prompt, final) == (verdict != NEVER)
        assert bool(self.real.servable(rows(prompt), rows(final))[0]) == (verdict != NEVER)

    @precondition(lambda self: self.twin.rows)
    @rule(data=st.data(), steps=st.integers(1, 9))
    def append(self, data: st.DataObject, steps: int) -> None:
        chosen = sorted(data.draw(st.sets(st.sampled_from(self.live))))
        left = [self.twin.rows[row]["final"] - self.twin.rows[row]["tokens"] for row in chosen]
        steps = min([steps, *left])
        assert self.real.append(rows(*chosen), steps) == self.twin.append(chosen, steps)

    @precondition(lambda self: self.twin.rows)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.live))
        assert self.real.free(row) == self.twin.free(row)

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "real"):
            return
        self.real.verify()
        assert self.real.free_slots == self.twin.free_slots
        assert self.real.totals() == self.twin.totals()
        for row in range(ROWS):
            assert self.real.held(row) == self.twin.held(row)
        for row, state in self.twin.rows.items():
            if isinstance(self.real, PagedAllocator):
                assert self.real.table(row).tolist() == state["table"]
            else:
                assert self.real.extent(row) == (state["start"], state["size"])
        if isinstance(self.real, ContiguousAllocator):
            assert self.real.free_extents() == sorted(self.twin.free_set)
            largest = max((size for _, size in self.twin.free_set), default=0)
            assert self.real.largest_free == largest
            for slots in (1, 7, max(1, largest), largest + 1):
                expected = slots <= self.twin.free_slots and self.twin.rounded(slots) > largest
                assert bool(k.extents_blocked(self.real.state, slots)) == expected


Twins.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestTwins = Twins.TestCase
TestTwins = pytest.mark.uncompiled(TestTwins)


@pytest.mark.parametrize("placement", CONTIGUOUS)
def test_large_pool_churn_agrees_with_twin(placement: str) -> None:
    """Thousands of operations on a pool deep enough for every level of the trees."""
    rng = np.random.default_rng(7)
    capacity, longest = 5000, 700
    real = ContiguousAllocator(capacity, placement, reservation="oracle", max_model_len=longest, num_rows=64)
    twin = NaiveContiguous(capacity, placement, "oracle", longest)
    for turn in range(4000):
        if twin.rows and (len(twin.rows) == 64 or rng.random() < 0.5):
            row = int(rng.choice(list(twin.rows)))
            assert real.free(row) == twin.free(row)
        else:
            row = next(r for r in range(64) if r not in twin.rows)
            final = int(rng.integers(1, longest)) if rng.random() < 0.3 else int(rng.integers(1, 40))
            assert real.reserve(row, 1, final) == twin.reserve(row, 1, final)
        if turn % 97 == 0:
            real.verify()
            assert real.free_extents() == sorted(twin.free_set)
    for row in list(twin.rows):
        real.free(row)
    real.verify()
    assert real.free_slots == capacity


@pytest.mark.uncompiled
def test_block_boundaries() -> None:
    """Growing within a block needs nothing; over its end, a block (a case that people argue about)."""
    pool = PagedAllocator(8, 4, max_model_len=8)
    assert pool.reserve(0, 3, 8) == OK
    assert pool.reserve(1, 4, 4) == OK
    assert pool.free_slots == 0
    assert pool.append(rows(0), 1) == 1
    assert pool.append(rows(0), 1) == 0
    assert PagedAllocator(64, 16, max_model_len=64).reserve(0, 17, 17) == OK
    seventeen = PagedAllocator(64, 16, max_model_len=64)
    seventeen.reserve(0, 17, 17)
    assert seventeen.held(0) == 32


@pytest.mark.uncompiled
def test_append_takes_nothing_for_an_iteration_that_not_all_complete() -> None:
    pool = PagedAllocator(12, 4, max_model_len=12)
    pool.reserve(0, 4, 12)
    pool.reserve(1, 4, 12)
    before = [column.copy() for column in pool.state]
    assert pool.append(rows(0, 1), 1) == 0
    assert all(np.array_equal(a, b) for a, b in zip(before, pool.state, strict=True))
    pool.verify()


@pytest.mark.uncompiled
def test_the_freed_table_comes_back_in_order() -> None:
    """A freed table is pushed last logical block first, so the first logical block is taken first again."""
    pool = PagedAllocator(20, 4, max_model_len=20)
    pool.reserve(0, 12, 12)
    pool.reserve(1, 4, 4)
    assert pool.table(0).tolist() == [0, 1, 2]
    pool.free(0)
    pool.reserve(2, 8, 8)
    assert pool.table(2).tolist() == [0, 1]


@pytest.mark.uncompiled
def test_the_watermark_is_kept() -> None:
    """100 blocks, 5 kept free: with 8 free a request of 4 waits, one of 3 does not."""
    pool = PagedAllocator(100, 1, max_model_len=100)
    pool.reserve(0, 92, 92)
    assert pool.reserve(1, 4, 4, keep_free=5) == LATER
    assert pool.reserve(1, 3, 3, keep_free=5) == OK


@pytest.mark.uncompiled
def test_max_holds_seven_in_the_papers_pool() -> None:
    for placement in CONTIGUOUS:
        pool = ContiguousAllocator(15_728, placement, reservation="max", max_model_len=2048)
        verdicts = [pool.reserve(row, 10, 20) for row in range(8)]
        assert verdicts == [OK] * 7 + [LATER]
        assert pool.free_slots == 15_728 - 7 * 2048


@pytest.mark.uncompiled
def test_buddy_pieces_of_the_papers_pool() -> None:
    pool = ContiguousAllocator(15_728, "buddy", reservation="oracle", max_model_len=2048)
    assert [size for _, size in pool.free_extents()] == [8192, 4096, 2048, 1024, 256, 64, 32, 16]
    assert pool.largest_request == 8192


@pytest.mark.uncompiled
@pytest.mark.parametrize(("output", "slots"), [(1, 1), (2, 2), (25, 32), (32, 32), (33, 64)])
def test_pow2_reserves_the_outputs_next_power(output: int, slots: int) -> None:
    pool = ContiguousAllocator(4096, "first-fit", reservation="pow2", max_model_len=2048)
    pool.reserve(0, 100, 100 + output - 1)
    assert pool.requested(0) == 100 + slots


@pytest.mark.uncompiled
def test_corruption_is_named() -> None:
    pool = PagedAllocator(64, 4, max_model_len=64)
    pool.reserve(0, 9, 20)
    pool.state.table[0, 1] = pool.state.table[0, 0]
    with pytest.raises(InvariantError, match="owners of each block"):
        pool.verify()
    extents = ContiguousAllocator(64, "best-fit", reservation="oracle", max_model_len=64)
    extents.reserve(0, 3, 9)
    extents.state.rows[k.START, 0] = 4
    with pytest.raises(InvariantError, match="side by side"):
        extents.verify()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"name": "pagd"}, "did you mean 'paged'"),
        ({"name": "max", "placement": "buddi"}, "did you mean 'buddy'"),
        ({"name": "paged", "block_size": 0}, "block_size is 0"),
        ({"name": "paged", "capacity": 7}, "smaller than one block"),
        ({"name": "max", "capacity": 0}, "capacity is 0"),
        ({"name": "paged", "capacity": 2**31}, "capacity is 2147483648"),
    ],
)
def test_bad_settings(kwargs: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_allocator(**{"capacity": 64, "max_model_len": 64, **kwargs})


def test_an_extent_cannot_grow() -> None:
    with pytest.raises(ConfigError, match="cannot grow"):
        ContiguousAllocator(64, reservation="on-demand", max_model_len=64)


@pytest.mark.parametrize("name", ["paged", "max"])
def test_a_row_that_is_not_there(name: str) -> None:
    """Kernels index without a sign: -1 would be the far end of memory, not of the array."""
    pool = make_allocator(name, capacity=64, max_model_len=60)
    rows = pool.state.rows.shape[1]
    for row in (-1, rows, 10**9):
        for operation in (lambda row=row: pool.reserve(row, 3, 5), lambda row=row: pool.free(row)):
            with pytest.raises(ConfigError, match=f"row is {row}; a number from 0 to {rows - 1}"):
                operation()
    pool.verify()
    assert pool.totals() == (0, 0, 0, 0)
