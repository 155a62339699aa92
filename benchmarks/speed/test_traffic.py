"""How long reading and drawing take, and how much memory: ``pytest -s benchmarks/speed/test_traffic.py``.

Times are CPU times of the whole process, the best of several rounds. The limits are the project's own: a CSV file in
at most three times what pandas' C reader takes for the same columns (as text and numbers, times not even parsed), ten
million draws in five seconds, a hundred bytes a request.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROWS, DRAWS = 1_000_000, 10_000_000


@pytest.fixture(scope="module")
def million_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from kvsim.requests import RequestStream
    from kvsim.traces import write

    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(1e8, ROWS)).astype(np.int64) // 100 * 100
    stream = RequestStream(arrival, rng.integers(1, 5000, ROWS), rng.integers(1, 1000, ROWS))
    path = tmp_path_factory.mktemp("speed") / "azure.csv"
    write(stream, path, "azure")
    return path


def cpu_time(work: Callable[[], object], rounds: int = 5) -> float:
    """Return the least CPU time of several rounds, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def test_reading_beside_pandas(million_rows: Path) -> None:
    import pandas as pd

    from kvsim.traces import read

    ours = cpu_time(lambda: read(million_rows))
    theirs = cpu_time(lambda: pd.read_csv(million_rows, engine="c"))
    print(f"\n{ROWS:,} rows of CSV: kvsim {ours:.3f} s, pandas {theirs:.3f} s of CPU, ratio {ours / theirs:.2f}")
    assert ours <= 3 * theirs


def test_ten_million_draws() -> None:
    from kvsim.generate import load_workload

    workload = load_workload("sharegpt")
    seconds = cpu_time(lambda: workload.sample(num_requests=DRAWS, rate_per_s=2.0), rounds=1)
    print(f"\n{DRAWS:,} draws of sharegpt: {seconds:.2f} s of CPU")
    assert seconds <= 5


def peak_bytes(work: str) -> int:
    """Return the most memory that Python and NumPy held at once during some work, in a process of its own."""
    code = (
        "import tracemalloc\n"
        "from kvsim.generate import load_workload\n"
        "from kvsim.traces import read\n"
        "load_workload('sharegpt').sample(num_requests=10, rate_per_s=1.0)\n"
        f"tracemalloc.start()\n{work}\nprint(tracemalloc.get_traced_memory()[1])"
    )
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def test_bytes_a_request_drawn() -> None:
    each = peak_bytes(f"load_workload('sharegpt').sample(num_requests={DRAWS}, rate_per_s=2.0)") / DRAWS
    print(f"\n{DRAWS:,} draws: {each:.0f} bytes each at the peak")
    assert each <= 100


def test_bytes_a_request_read(million_rows: Path) -> None:
    each = peak_bytes(f"read({str(million_rows)!r})") / ROWS
    print(f"\n{ROWS:,} rows of CSV: {each:.0f} bytes each at the peak")
    assert each <= 100
