"""The C yardstick, built with ``cc -O3`` where there is a compiler."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from kvsim.accounts import Totals
from kvsim.allocators import PagedAllocator
from kvsim.engine.setup import Setup

SOURCE = Path(__file__).with_name("yardstick.c")
LIMB = 2**62


@cache
def library() -> ctypes.CDLL | None:
    """Build and load the yardstick; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    target = Path(tempfile.mkdtemp()) / "yardstick.so"
    flags = ["-O3", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(target), "-lm"], check=True)
    loaded = ctypes.CDLL(str(target))
    loaded.pool_new.restype = ctypes.c_void_p
    for name in ("pool_reserve", "pool_append", "pool_free"):
        getattr(loaded, name).restype = ctypes.c_int64
    return loaded


def longs(array: np.ndarray) -> ctypes.c_void_p:
    """Pass an int64 array."""
    return array.ctypes.data_as(ctypes.c_void_p)


class CPool:
    """A pool in blocks, in C."""

    def __init__(self, num_blocks: int, block_size: int, rows: int, blocks_a_row: int) -> None:
        self._c = library()
        sizes = [ctypes.c_int64(x) for x in (num_blocks, block_size, rows, blocks_a_row)]
        self.pointer = ctypes.c_void_p(self._c.pool_new(*sizes))

    def __del__(self) -> None:
        self._c.pool_delete(self.pointer)

    def reserve(self, row: int, num_tokens: int, final_tokens: int) -> int:
        """Give a row its blocks at admission."""
        numbers = [ctypes.c_int64(x) for x in (row, num_tokens, final_tokens, 0)]
        return int(self._c.pool_reserve(self.pointer, *numbers))

    def churn(self, num_tokens: np.ndarray, rounds: int) -> None:
        """Reserve for a batch of sequences, then free them all, several times."""
        self._c.churn(self.pointer, longs(num_tokens), ctypes.c_int64(len(num_tokens)), ctypes.c_int64(rounds))

    def grow(self, order: np.ndarray, rounds: int) -> None:
        """Append a token to each row of a batch, several times."""
        self._c.grow(self.pointer, longs(order), ctypes.c_int64(len(order)), ctypes.c_int64(rounds))


def simulate(setup: Setup) -> tuple[np.ndarray, Totals]:
    """Run a setup with on-demand paging; return outcomes, shape (6, n), and the totals that the yardstick keeps."""
    pool = setup.allocator
    assert isinstance(pool, PagedAllocator)
    stream = setup.stream
    n = len(stream)
    outcome, totals = np.zeros((6, n), dtype=np.int64), np.zeros(14, dtype=np.int64)
    num_blocks, rows = pool.largest_request // pool.block_size, setup.max_seqs
    c_pool = CPool(num_blocks, pool.block_size, rows, pool.state.table.shape[1])
    caps = [ctypes.c_int64(x) for x in (rows, setup.max_batched, setup.keep_free // pool.block_size)]
    columns = [longs(column) for column in (stream.arrival_ns, stream.prompt, stream.output)]
    latency = setup.latency.constants
    library().simulate(
        c_pool.pointer, longs(latency), ctypes.c_int64(n), *columns, *caps, longs(outcome), longs(totals)
    )
    values = totals.tolist()
    used, promised, held, running, waiting = (values[2 * i] * LIMB + values[2 * i + 1] for i in range(5))
    iterations, sequences, preemptions, recomputed = values[10:]
    return outcome, Totals(
        used, promised, held, held, 0, running, waiting, 0, 0, 0,
        iterations, sequences, sequences, n + preemptions, preemptions, recomputed, n,
    )  # fmt: skip
