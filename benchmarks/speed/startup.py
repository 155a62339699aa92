"""What a process costs before and beside the simulation. ``python benchmarks/speed/startup.py compile|split``."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def compile_all() -> None:
    """Run every system through both engines, hashing and checking, which takes every kernel."""
    from kvsim.allocators import make_allocator
    from kvsim.engine import simulate
    from kvsim.generate import load_workload
    from kvsim.latency import Affine
    from kvsim.names import ALLOCATORS, CONTIGUOUS

    stream = load_workload("sharegpt").sample(num_requests=3, rate_per_s=1.0, seed=0)
    for name in ALLOCATORS:
        for placement in CONTIGUOUS:
            for engine in ("step", "leap"):
                pool = make_allocator(name, capacity=5000, max_model_len=2048, placement=placement)
                simulate(stream, pool, latency=Affine(20e6, 4e5, 1e5, 300), engine=engine, digest=True, check=2)


def split_of_compare(folder: str) -> dict[str, float]:
    """Do what ``kvsim compare`` without arguments does and return the CPU seconds of its parts."""
    parts: dict[str, float] = {"interpreter": time.process_time()}

    import kvsim.plots.compare as figures
    from kvsim.cli import compare as command
    from kvsim.cli.compare_text import print_comparison
    from kvsim.experiments import compare as experiment
    from kvsim.scenario import Resolved, make_scenario

    parts["imports"] = time.process_time() - sum(parts.values())
    resolved = Resolved(make_scenario({}))
    resolved.stream(0)
    parts["drawing requests"] = time.process_time() - sum(parts.values())
    compile_for(resolved)
    parts["compiled kernels, from the cache"] = time.process_time() - sum(parts.values())
    experiment.simulate, spent = timed(experiment.simulate)  # type: ignore[attr-defined]
    result = experiment.compare(resolved)
    parts["tables and the rest"] = time.process_time() - sum(parts.values()) - spent[0]
    before, start = spent[0], time.process_time()
    print_comparison(result)
    parts["tables and the rest"] += time.process_time() - start
    assert figures
    start = time.process_time()
    command.draw(result, Path(folder))
    parts["figures"] = time.process_time() - start - (spent[0] - before)
    parts["simulation"] = spent[0]
    return parts


def compile_for(resolved: Any) -> None:
    """Load the compiled kernels by a run of one request."""
    from kvsim.experiments.compare import run_one
    from kvsim.latency import latency_for

    latency = latency_for(resolved.model, resolved.device)
    run_one(resolved, resolved.stream(0).head(1), "paged", "paged", latency)


def timed(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[float]]:
    """Return a function that does the same, and the sum of the CPU seconds that it has taken."""
    total = [0.0]

    def measured(*arguments: Any, **options: Any) -> Any:
        start = time.process_time()
        value = function(*arguments, **options)
        total[0] += time.process_time() - start
        return value

    return measured, total


def main() -> None:
    if sys.argv[1:] == ["compile"]:
        compile_all()
        return
    with tempfile.TemporaryDirectory() as folder:
        parts = split_of_compare(folder)
    print(json.dumps(parts))


if __name__ == "__main__":
    main()
