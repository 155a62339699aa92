"""The allocators' operations in loops that are compiled themselves, so that what is timed is not the call from Python.

The loops only call kernels. Numba does not keep them on disk: it would not notice when the kernels change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from measure import Work
from yardstick import CPool

from kvsim import _kernels as k
from kvsim.allocators import OK, ContiguousAllocator, PagedAllocator
from kvsim.generate import load_workload

BATCHES = (32, 256, 1024)
BLOCK_SIZE = 16
LONG = 2048
TOKENS_A_RUN = 1 << 21  # appended
BLOCKS_A_RUN = 1 << 20  # reserved and freed

compiled = numba.njit(nogil=True, error_model="numpy", _nrt=False)


@compiled
def churn(pool: k.Blocks, num_tokens: k.IntArray, rounds: int) -> None:
    """Reserve for a batch of sequences, then free them all, several times."""
    for _ in range(rounds):
        for row in range(len(num_tokens)):
            k.blocks_reserve(pool, row, num_tokens[row], num_tokens[row], 0)
        for row in range(len(num_tokens)):
            k.blocks_free(pool, row)


@compiled
def grow(pool: k.Blocks, order: k.IntArray, rounds: int) -> None:
    """Append a token to each row of a batch, several times."""
    for _ in range(rounds):
        k.blocks_append(pool, order, 1)


@compiled
def replay(pool: k.Extents, rows: k.IntArray, tokens: k.IntArray) -> None:
    """Repeat recorded operations: reserve so many slots in a row, or, at 0, free it."""
    for i in range(len(rows)):
        if tokens[i]:
            k.extents_reserve(pool, rows[i], tokens[i], tokens[i])
        else:
            k.extents_free(pool, rows[i])


def prompts(kind: str, batch: int) -> np.ndarray:
    """Prompt lengths of a batch: as in ShareGPT, or all as long as can be."""
    if kind == "long":
        return np.full(batch, LONG)
    return load_workload("sharegpt").sample(num_requests=batch, backlog=True, seed=0).prompt


def paged(batch: int) -> PagedAllocator:
    """Return an empty pool in which a batch finds room whatever its lengths."""
    slots = batch * LONG
    return PagedAllocator(slots, BLOCK_SIZE, max_model_len=LONG, num_rows=batch)


def paged_in_c(batch: int) -> CPool:
    """Return the same in C."""
    blocks_a_row = LONG // BLOCK_SIZE
    return CPool(batch * blocks_a_row, BLOCK_SIZE, batch, blocks_a_row)


def churning(num_tokens: np.ndarray) -> tuple[Work, Work, int]:
    """Return reserve and free as works, compiled and in C, and the sequences that each run reserves for."""
    batch = len(num_tokens)
    blocks = int((-(-num_tokens // BLOCK_SIZE)).sum())
    rounds = max(1, BLOCKS_A_RUN // max(blocks, 8 * batch))
    ours, theirs = paged(batch).state, paged_in_c(batch)

    def prepare() -> Callable[[], object]:
        return lambda: churn(ours, num_tokens, rounds)

    def prepare_in_c() -> Callable[[], object]:
        return lambda: theirs.churn(num_tokens, rounds)

    return prepare, prepare_in_c, rounds * batch


def growing(batch: int) -> tuple[Work, Work, int]:
    """Return append as works, compiled and in C, and the tokens that each run appends.

    Each run begins with a fresh pool whose rows hold 1 to 16 tokens: as many cross a boundary in each iteration.
    """
    rounds = min(LONG - BLOCK_SIZE, TOKENS_A_RUN // batch)
    order = np.arange(batch)

    def prepare() -> Callable[[], object]:
        pool = paged(batch)
        for row in range(batch):
            pool.reserve(row, row % BLOCK_SIZE + 1, LONG)
        return lambda: grow(pool.state, order, rounds)

    def prepare_in_c() -> Callable[[], object]:
        pool = paged_in_c(batch)
        for row in range(batch):
            pool.reserve(row, row % BLOCK_SIZE + 1, LONG)
        return lambda: pool.grow(order, rounds)

    return prepare, prepare_in_c, rounds * batch


def contiguous(capacity: int, placement: str) -> ContiguousAllocator:
    """Return an empty pool that reserves what will be held at the end."""
    rows = max(64, capacity // 200)
    return ContiguousAllocator(capacity, placement, reservation="oracle", max_model_len=LONG, num_rows=rows)


def recorded(capacity: int, placement: str, num_operations: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Record operations on a full pool: one goes, by lot, and then as many come as find room.

    Returns
    -------
    rows, tokens : int64 array, shape (operations,)
        Operations for ``replay``; the first ones fill the pool, the last ones empty it.
    live : float
        Mean number of live extents.
    """
    rng = np.random.default_rng(0)
    lengths = load_workload("sharegpt").sample(num_requests=num_operations, backlog=True, seed=0)
    sizes = iter((lengths.prompt + lengths.output - 1).tolist())
    pool = contiguous(capacity, placement)
    free_rows, live, log, counts = list(range(pool.state.rows.shape[1])), [], [], []
    size = next(sizes)
    while len(log) < num_operations:
        log.append((free_rows[-1], size))
        if pool.reserve(free_rows[-1], size, size) == OK:
            live.append(free_rows.pop())
            size = next(sizes)
            continue
        counts.append(len(live))
        gone = live.pop(int(rng.integers(len(live))))
        pool.free(gone)
        free_rows.append(gone)
        log.append((gone, 0))
    log += [(row, 0) for row in live]
    rows, tokens = np.array(log, dtype=np.int64).T.copy()
    return rows, tokens, float(np.mean(counts))


def replaying(capacity: int, placement: str, num_operations: int) -> tuple[Work, int, float]:
    """Return recorded operations as work, their number, and the mean number of live extents."""
    rows, tokens, live = recorded(capacity, placement, num_operations)
    state: Any = contiguous(capacity, placement).state
    return lambda: lambda: replay(state, rows, tokens), len(rows), live
