"""Print what kvsim promises of its speed, as measured here and now.

    python benchmarks/speed/tables.py [--quick] [--json] [--only WORD]

Everything is CPU time, the median of at least five runs that alternate with what they are compared with; a ratio is
the median of the ratios within a round. The C port (``yardstick.c``) is built with gcc -O3; without a compiler its
tables are skipped. ``--quick`` takes a tenth of the requests and leaves out a million of them.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import engines
import numpy as np
import operations
import yardstick
from measure import HERE, Row, cpu_times, median_spent, ratio, spent_by

ROUNDS = 7
LOADS = {"0.9x saturation": engines.NEAR, "1.5x saturation": engines.SATURATING}
SIZES = (1_000, 10_000, 100_000, 1_000_000)


def us(seconds: list[float], count: int) -> str:
    """Median microseconds for each of ``count``."""
    return f"{statistics.median(seconds) / count * 1e6:.3g} us"


def ns(seconds: list[float], count: int) -> float:
    """Median nanoseconds for each of ``count``."""
    return statistics.median(seconds) / count * 1e9


# --- the tables --------------------------------------------------------------------------------------------------


def leap_beside_c(quick: bool) -> Iterator[Row]:
    """Time the same requests through leap and through its port to C, whose results are the same to the bit."""
    n = 2_000 if quick else 10_000
    for where, load in LOADS.items():
        stream = engines.requests(n, load)
        for size in (16, 1):
            engines.assert_the_same(stream, size)
            works = {"leap": engines.leap(stream, size), "C": engines.in_c(stream, size)}
            works["simulate()"] = engines.whole(stream, size)
            times = cpu_times(works, ROUNDS)
            note = f"leap {us(times['leap'], n)}, C {us(times['C'], n)} a request"
            target = 1.5 if size == 16 else None
            yield Row(f"leap / C, block {size}, {where}", ratio(times, "leap", "C"), "x", target, note)
            note = f"with columns, marks and summary: {us(times['simulate()'], n)} a request"
            yield Row(f"simulate() / C, block {size}, {where}", ratio(times, "simulate()", "C"), "x", None, note)


def block_1_beside_16(quick: bool) -> Iterator[Row]:
    """Time blocks of one slot beside blocks of 16."""
    n = 2_000 if quick else 10_000
    for where, load in LOADS.items():
        stream = engines.requests(n, load)
        times = cpu_times({"1": engines.leap(stream, 1), "16": engines.leap(stream, 16)}, ROUNDS)
        note = f"{us(times['1'], n)} and {us(times['16'], n)} a request"
        yield Row(f"leap, block 1 / block 16, {where}", ratio(times, "1", "16"), "x", 2.5, note)


def step_beside_leap(quick: bool) -> Iterator[Row]:
    """Time the plain Python engine beside the compiled one, and by itself at 1.7 requests/s."""
    n = 300 if quick else 1_000
    for where, load in LOADS.items():
        stream = engines.requests(n, load)
        times = cpu_times({"step": engines.step(stream), "leap": engines.leap(stream)}, 5)
        note = f"step {us(times['step'], n)}, leap {us(times['leap'], n)} a request"
        yield Row(f"step / leap, block 16, {where}", ratio(times, "step", "leap"), "x", None, note)
    stream = engines.at_rate(n, 1.7)
    times = cpu_times({"step": engines.step(stream)}, 5)
    yield Row("step, block 16, 1.7 requests/s", statistics.median(times["step"]) / n * 1e6, "us a request", 100)


def operations_beside_c(_quick: bool) -> Iterator[Row]:
    """Time reserve + free and append, in loops that are compiled on both sides."""
    for batch in operations.BATCHES:
        for kind in ("sharegpt", "long"):
            prompts = operations.prompts(kind, batch)
            ours, theirs, sequences = operations.churning(prompts)
            times = cpu_times({"kvsim": ours, "C": theirs}, ROUNDS)
            note = f"{ns(times['kvsim'], sequences):.0f} and {ns(times['C'], sequences):.0f} ns a sequence"
            what = f"reserve + free / C, batch {batch}, {kind} prompts (mean {prompts.mean():.0f})"
            yield Row(what, ratio(times, "kvsim", "C"), "x", 1.5, note)
    for batch in operations.BATCHES:
        ours, theirs, tokens = operations.growing(batch)
        times = cpu_times({"kvsim": ours, "C": theirs}, ROUNDS)
        note = f"{ns(times['kvsim'], tokens):.2f} and {ns(times['C'], tokens):.2f} ns a token"
        target = 1.4 if batch >= 256 else None
        yield Row(f"append / C, batch {batch}", ratio(times, "kvsim", "C"), "x", target, note)


def contiguous_operations(quick: bool) -> Iterator[Row]:
    """Time contiguous operations (a reserve, one in vain, or a free), the ledger included."""
    n = 20_000 if quick else 200_000
    for capacity, target in ((engines.SLOTS, 80), (1_000_000, 250)):
        for placement in ("buddy", "first-fit", "best-fit"):
            work, count, live = operations.replaying(capacity, placement, n)
            times = cpu_times({placement: work}, ROUNDS)
            limit = 2 * target if placement == "best-fit" else target
            what = f"{placement}, {capacity:,} slots, {live:,.0f} live extents"
            yield Row(what, ns(times[placement], count), "ns an operation", limit)


def growth(quick: bool) -> Iterator[Row]:
    """Follow time and memory from a thousand requests to a million, at 0.9x saturation."""
    sizes = SIZES[:-1] if quick else SIZES
    works = {str(n): engines.leap(engines.requests(n, engines.NEAR)) for n in sizes}
    times = cpu_times(works, 5)
    medians = [statistics.median(times[str(n)]) for n in sizes]
    exponent, _ = np.polyfit(np.log(sizes), np.log(medians), 1)
    note = ", ".join(f"{n:,}: {m * 1e3:.3g} ms" for n, m in zip(sizes, medians, strict=True))
    yield Row(f"exponent of time, {sizes[0]:,} to {sizes[-1]:,} requests", float(exponent), "", 1.05, note)
    peaks = [spent_by(["-c", f"import engines; engines.run_once({n}, {engines.NEAR})"]).peak_bytes for n in sizes]
    each, _ = np.polyfit(sizes, peaks, 1)
    note = ", ".join(f"{n:,}: {peak / 2**20:.0f} MiB" for n, peak in zip(sizes, peaks, strict=True))
    yield Row("memory over the base: drawing, simulating", float(each), "bytes a request", 200, note)


def a_million(quick: bool) -> Iterator[Row]:
    """Time a million requests as a whole command."""
    n = 100_000 if quick else 1_000_000
    common = ["-m", "kvsim", "compare", "--workload", "sharegpt", "--requests", str(n), "--json"]
    rate = f"{engines.NEAR * engines.saturation_per_s():.3f}"
    commands = {
        f"--rate {rate} --allocator paged": ["--rate", rate, "--allocator", "paged"],
        "a backlog, four allocators": [],
    }
    for what, options in commands.items():
        spent = spent_by([*common, *options])
        note = f"{spent.wall_s:.1f} s of wall time, peak {spent.peak_bytes / 2**20:.0f} MiB"
        yield Row(f"kvsim compare, {n:,} requests, {what}", spent.cpu_s, "s", None, note)


def start_up(_quick: bool) -> Iterator[Row]:
    """Time compilation into an empty cache, a whole ``kvsim compare``, and ``kvsim --help``."""
    script = str(HERE / "startup.py")
    with tempfile.TemporaryDirectory() as folder:
        cold = spent_by([script, "compile"], NUMBA_CACHE_DIR=folder)
        warm = spent_by([script, "compile"], NUMBA_CACHE_DIR=folder)
    note = f"{cold.cpu_s:.1f} s cold, {warm.cpu_s:.1f} s from the cache; wall {cold.wall_s:.1f} and {warm.wall_s:.1f} s"
    yield Row("compiling all kernels", cold.cpu_s - warm.cpu_s, "s", 15, note)
    rounds = 5
    with tempfile.TemporaryDirectory() as folder:
        compare = median_spent(["-m", "kvsim", "compare", "--out", folder], rounds)
    split = median_spent([script, "split"], rounds)
    parts = json.loads(split.stdout.splitlines()[-1])
    parts["exit"] = split.cpu_s - sum(parts.values())
    note = f"wall {compare.wall_s:.1f} s; " + ", ".join(f"{name} {s:.2f}" for name, s in parts.items())
    yield Row("kvsim compare, cached, figures and all", compare.cpu_s, "s", 3, note)
    smaller = [name for name, seconds in parts.items() if seconds < parts["requests and simulation"]]
    yield Row("  parts of it smaller than requests and simulation", len(smaller), "", 0, ", ".join(smaller))
    helped = median_spent(["-m", "kvsim", "--help"], 2 * rounds)
    yield Row("kvsim --help", helped.cpu_s * 1e3, "ms", 150, f"wall {helped.wall_s * 1e3:.0f} ms")


TABLES: dict[str, Callable[[bool], Iterator[Row]]] = {
    "Leap and C: ShareGPT, 15,728 slots, CPU time": leap_beside_c,
    "Block size 1": block_1_beside_16,
    "Step": step_beside_leap,
    "Paged operations and C, blocks of 16": operations_beside_c,
    "Contiguous operations": contiguous_operations,
    "Growth": growth,
    "A million requests": a_million,
    "Start-up": start_up,
}
WITH_C = (leap_beside_c, operations_beside_c)


# --- printing ----------------------------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """Say on what this was measured."""
    import llvmlite
    import numba

    return {
        "cpu": processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numba": f"{numba.__version__} (llvmlite {llvmlite.__version__})",
        "numpy": np.__version__,
        "C compiler": compiler(),
    }


def compiler() -> str:
    """First line of what the C compiler says of itself."""
    path = shutil.which("cc") or shutil.which("gcc")
    if path is None:
        return "none"
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def processor() -> str:
    """Name of the processor, as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor() or platform.machine()


def show(row: Row) -> str:
    """Write a row as a line of text."""
    unit = "x" if row.unit == "x" else f" {row.unit}" if row.unit else ""
    target = "" if row.target is None else f"{row.target:g}"
    return f"  {row.what:62} {row.measured:8.3g}{unit:16} {target:>6} {row.verdict:7} {row.note}".rstrip()


def measured(title: str, quick: bool, say: Callable[[str], None]) -> object:
    """Measure one table, saying each row as soon as it is there; return its rows, or why there are none."""
    table = TABLES[title]
    if table in WITH_C and yardstick.library() is None:
        say(f"\n{title}: skipped: no C compiler")
        return "skipped: no C compiler"
    say(f"\n{title:64} measured {'target':>22}")
    rows = []
    for row in table(quick):
        rows.append(asdict(row) | {"verdict": row.verdict})
        say(show(row))
    return rows


def main() -> None:
    """Print every table as soon as it is measured, or all as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer requests")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--only", metavar="WORD", default="", help="tables whose title has this word")
    options = parser.parse_args()
    say: Callable[[str], None] = (lambda _: None) if options.json else (lambda line: print(line, flush=True))
    found: dict[str, object] = {"machine": machine()}
    say("\n".join(f"{name}: {value}" for name, value in machine().items()))
    for title in TABLES:
        if options.only.lower() in title.lower():
            found[title] = measured(title, options.quick, say)
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
