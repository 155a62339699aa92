"""What a process costs before and beside the simulation. ``python benchmarks/speed/startup.py compile|split``."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODULES = ("scenario", "experiments.compare", "cli.compare", "cli.compare_text", "experiments", "plots.compare")


def compile_all() -> None:
    """Run every system through both engines, hashing and checking, which takes every kernel."""
    from kvsim.allocators import make_allocator
    from kvsim.engine import simulate
    from kvsim.latency import Affine
    from kvsim.names import ALLOCATORS, CONTIGUOUS
    from kvsim.requests import RequestStream

    stream = RequestStream([0, 0, 9], [9, 9, 9], [9, 9, 9])  # type: ignore[arg-type]
    latency = Affine(20e6, 4e5, 1e5, 300)
    for name in ALLOCATORS:
        for placement in CONTIGUOUS:
            for engine in ("step", "leap"):
                pool = make_allocator(name, capacity=50, max_model_len=20, placement=placement)
                simulate(stream, pool, latency=latency, max_model_len=20, engine=engine, digest=True, check=2)


def split_of_compare(folder: str) -> dict[str, float]:
    """Do what ``kvsim compare`` without arguments does and return the CPU seconds of its parts."""
    modules = [importlib.import_module(f"kvsim.{name}") for name in MODULES]
    scenario, experiment, command, text = modules[:4]
    parts = {"start and imports": time.process_time()}

    start = time.process_time()
    experiment.compare(scenario.make_scenario({"requests": 1}))
    parts["loading compiled kernels"] = time.process_time() - start

    start = time.process_time()
    resolved = scenario.Resolved(scenario.make_scenario({}))
    resolved.stream(0)
    drawing = time.process_time() - start

    start = time.process_time()
    experiment.simulate, simulated = timed(experiment.simulate)
    result = experiment.compare(resolved)
    text.print_comparison(result)
    command.draw(result, Path(folder))
    parts["tables and figures"] = time.process_time() - start - sum(simulated)
    parts["requests and simulation"] = drawing + sum(simulated)
    return parts


def timed(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[float]]:
    """Return a function that does the same, and a list in which it leaves the CPU seconds of each call."""
    seconds: list[float] = []

    def measured(*arguments: Any, **options: Any) -> Any:
        start = time.process_time()
        value = function(*arguments, **options)
        seconds.append(time.process_time() - start)
        return value

    return measured, seconds


def main() -> None:
    """Do one of the two; of the second, print the parts as one line of JSON, the last."""
    if sys.argv[1:] == ["compile"]:
        compile_all()
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(split_of_compare(folder)))


if __name__ == "__main__":
    main()
