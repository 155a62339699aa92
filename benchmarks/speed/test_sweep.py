"""A sweep of 1,000 cells of 10,000 requests: at most 60 s of wall time on two cores, kernels compiled."""

from __future__ import annotations

import os
import time

from kvsim.experiments.sweep import sweep
from kvsim.experiments.workers import Workers
from kvsim.scenario import Scenario

LIMIT_SECONDS = 60.0


def test_a_thousand_cells_of_ten_thousand_requests() -> None:
    base = Scenario(requests=10_000, allocator=["paged"], seeds=10)
    vary = {"block_size": ["8", "16", "32", "64"], "rate": [str(rate / 10) for rate in range(6, 31)]}
    workers = Workers("processes", jobs=min(2, os.cpu_count() or 1))
    began = time.perf_counter()
    table = sweep(base, vary, workers=workers)
    seconds = time.perf_counter() - began
    print(f"{len(table.rows)} cells in {seconds:.1f} s, load {os.getloadavg()[0]:.1f}")
    assert len(table.rows) == 1000
    assert not table.failed
    assert seconds <= LIMIT_SECONDS
