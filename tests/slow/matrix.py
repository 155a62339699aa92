"""Step against leap, to the bit, over the full matrix. ``python tests/slow/matrix.py [--requests N] [--jobs N]``.

Seven allocators; three placements of the contiguous ones; block sizes 1, 3, 16 and 128 of the paged ones; 0.5, 0.9, 1
and 2 times an estimate of what each can serve; with and without the watermark (paged only) and caps; ShareGPT and
Alpaca; three seeds; and the Azure 2023 conversation trace once through each allocator, where it is at hand.

What is compared is what ``runs.assert_same`` compares: every column, every integral, the timeline, the steady window,
and the hash of every block table or extent ever held.

The estimate of capacity. A request of p prompt and o output tokens (the workload's means) holds s slots while it runs:

    on-demand  p + o / 2         oracle  p + o - 1
    pow2       p + 1.5 o         max     max_model_len

(a uniform length's next power of two is 1.5 times the length; buddy rounding is left out), so that a pool of C slots
runs B = min(max_num_seqs, C / s) at a time. With the affine model's constants an iteration then lasts

    T = fixed + B (sequence + prefill x p / o + context (p + o / 2)),

since each running request is prefilled once in o iterations, and B / (o T) requests are served in a unit of time. The
caps of some cells, the watermark, preemption, and fragmentation are not in it: cells with caps are loaded more than
the factor says.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runs import LATENCY, POOL, assert_same, run

from kvsim.generate import load_workload
from kvsim.names import ALLOCATORS, CONTIGUOUS
from kvsim.requests import NS_PER_S, RequestStream
from kvsim.scheduler import Scheduler
from kvsim.traces import read

LONGEST = 2048
BLOCK_SIZES = (1, 3, 16, 128)
LOADS = (0.5, 0.9, 1.0, 2.0)
WORKLOADS = ("sharegpt", "alpaca")
SEEDS = (0, 1, 2)
WATERMARKS = (0.01, 0.0)
# most sequences and most batched tokens in an iteration: none but the defaults, or some that bind
CAPS: tuple[tuple[int, int | None], ...] = ((256, None), (24, 900))
AZURE = "traces/azure_llm_inference_2023_conv.csv"
AZURE_POOL, AZURE_LONGEST = 120_000, 16_384


class Cell(NamedTuple):
    """One comparison. ``workload`` is a name, or the path of a trace; ``load`` a multiple of the estimate."""

    allocator: str
    placement: str
    block_size: int
    load: float
    watermark: float
    max_num_seqs: int
    max_num_batched_tokens: int | None
    workload: str
    seed: int


class Outcome(NamedTuple):
    """What a pair of runs was like, so that a reader sees that the matrix reaches what is hard."""

    preemptions: int
    rejected: int
    by_memory: int
    by_seqs: int
    by_budget: int
    external: int


def systems() -> Iterator[tuple[str, str, int]]:
    """Allocator, placement and block size: what does not depend on one of them has one value of it."""
    for name, (_, paged) in ALLOCATORS.items():
        if paged:
            yield from ((name, "buddy", size) for size in BLOCK_SIZES)
        else:
            yield from ((name, placement, 16) for placement in CONTIGUOUS)


def cells() -> list[Cell]:
    """Return the matrix; contiguous placement has no watermark, and so one value of it."""
    return [
        Cell(name, placement, size, load, watermark, *caps, workload, seed)
        for workload in WORKLOADS
        for name, placement, size in systems()
        for load in LOADS
        for watermark in (WATERMARKS if ALLOCATORS[name][1] else WATERMARKS[:1])
        for caps in CAPS
        for seed in SEEDS
    ]


def azure_cells() -> list[Cell]:
    """The conversation trace at its own times, once through each allocator."""
    path = Path(os.environ.get("KVSIM_SHARED", Path(__file__).parents[3] / "shared")) / AZURE
    if not path.is_file():
        print(f"the Azure trace is not there, and left out: {path}")
        return []
    return [Cell(name, "buddy", 16, 1.0, 0.01, 256, None, str(path), 0) for name in ALLOCATORS]


def capacity_per_s(allocator: str, prompt: float, output: float, slots: int = POOL) -> float:
    """Estimate the requests/s that an allocator serves (see above)."""
    held = {
        "on-demand": prompt + output / 2,
        "oracle": prompt + output - 1,
        "pow2": prompt + 1.5 * output,
        "max": LONGEST,
    }[ALLOCATORS[allocator][0]]
    batch = min(Scheduler().max_num_seqs, slots / held)
    fixed, sequence, prefill, context = LATENCY.constants
    iteration_ns = fixed + batch * (sequence + prefill * prompt / output + context * (prompt + output / 2))
    return float(batch / (output * iteration_ns) * NS_PER_S)


@cache
def means(workload: str) -> tuple[float, float]:
    """Mean prompt and output of a workload."""
    stream = load_workload(workload).sample(num_requests=100_000, backlog=True, seed=0)
    return float(stream.prompt.mean()), float(stream.output.mean())


def stream_of(cell: Cell, num_requests: int) -> RequestStream:
    """Return a cell's requests."""
    if cell.workload not in WORKLOADS:
        return read(cell.workload)
    rate = cell.load * capacity_per_s(cell.allocator, *means(cell.workload))
    return load_workload(cell.workload).sample(num_requests=num_requests, rate_per_s=rate, seed=cell.seed)


def compare(cell: Cell, num_requests: int) -> Outcome:
    """Run a cell through both engines and hold the results to each other.

    Raises
    ------
    AssertionError
        They differ.
    """
    stream = stream_of(cell, num_requests)
    traced = cell.workload not in WORKLOADS
    options = {
        "capacity": AZURE_POOL if traced else POOL,
        "max_model_len": AZURE_LONGEST if traced else LONGEST,
        "placement": cell.placement,
        "block_size": cell.block_size,
        "scheduler": Scheduler(
            watermark=cell.watermark,
            max_num_seqs=cell.max_num_seqs,
            max_num_batched_tokens=cell.max_num_batched_tokens,
        ),
        "digest": True,
    }
    step = run(stream, cell.allocator, engine="step", **options)
    leap = run(stream, cell.allocator, engine="leap", **options)
    assert (step.engine, leap.engine) == ("step", "leap")
    assert_same(step, leap)
    total = leap.accounts.total
    external = leap.split(total, leap.accounts.end_ns).external
    rejected = len(stream) - total.finished
    return Outcome(total.preemptions, rejected, total.by_memory, total.by_seqs, total.by_budget, external)


def show_estimates() -> None:
    """Print the estimates that the loads are multiples of."""
    for workload in WORKLOADS:
        prompt, output = means(workload)
        rates = {name: capacity_per_s(name, prompt, output) for name in ALLOCATORS}
        listed = ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items())
        print(f"{workload} (means {prompt:.1f} + {output:.1f}), estimated requests/s: {listed}")


def progress(done: int, total: int, start: float) -> None:
    """Say how far it is, some thirty times."""
    if done % max(1, total // 30) == 0 or done == total:
        print(f"{done:,} of {total:,} cells, {time.monotonic() - start:.0f} s", flush=True)


def summarise(outcomes: list[Outcome]) -> str:
    """Say how often the matrix reached what is hard."""
    counts = [sum(getattr(outcome, field) > 0 for outcome in outcomes) for field in Outcome._fields]
    reached = ", ".join(f"{name} {count:,}" for name, count in zip(Outcome._fields, counts, strict=True))
    preemptions = sum(outcome.preemptions for outcome in outcomes)
    return f"cells with {reached}; {preemptions:,} preemptions in all"


def main() -> None:
    """Compare every cell, a process a core; exit 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth cell")
    options = parser.parse_args()
    show_estimates()
    todo = [*azure_cells(), *cells()][:: options.every]
    start, outcomes, differing = time.monotonic(), [], []
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures: dict[Future[Outcome], Cell] = {pool.submit(compare, cell, options.requests): cell for cell in todo}
        for done, future in enumerate(as_completed(futures), 1):
            try:
                outcomes.append(future.result())
            except AssertionError as difference:
                differing.append(futures[future])
                print(f"DIFFERS: {futures[future]}: {str(difference)[:300]}", flush=True)
            progress(done, len(todo), start)
    print(f"{len(outcomes):,} cells of {options.requests:,} requests: step == leap; {len(differing):,} differ")
    print(summarise(outcomes))
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
