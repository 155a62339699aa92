"""Figure 18b: normalized latency over the block size, at a rate that is not published.

A rate is fitted for each workload and seed so that block 16 gives the published latency; every other size is served at
that rate. Large blocks are wasteful by themselves. What small ones cost is the attention kernel's, which no simulation
of memory can tell: factors on the time of a context token are fitted to the ShareGPT curve's left branch
(benchmarks/calibration/fit_kernel.py) and judged on Alpaca's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib.figure import Figure

from kvsim.experiments.capacity import knee_of, run_at
from kvsim.experiments.workers import Workers, run_units
from kvsim.latency import latency_of
from kvsim.objective import Objective
from kvsim.paper.published import published
from kvsim.paper.report import Reproduction, Row, Tag
from kvsim.scenario import Resolved, Scenario

WORKLOADS = {"sharegpt": 1.5, "alpaca": 28.0}  # with a rate to start from
SEEDS = 3
KERNEL = "figure-18"
USUAL = 16
OVERLOADED = (
    "in overload a latency grows with the missing throughput, so that a few percent of it make a factor; attention has "
    "a larger share of an Alpaca iteration here (one context constant for both workloads) than it seems to have there"
)


@dataclass(frozen=True)
class Unit:
    """One seed of a workload: the rate at which block 16 gives the published latency, then every size at that rate."""

    workload: str
    seed: int


def published_curve(workload: str) -> list[tuple[int, float]]:
    """Return the points (block size, s/token)."""
    table = published()["fig18b"]
    return list(zip(table["block_size"], table[workload], strict=True))


def measure(unit: Unit) -> tuple[float, dict[str, dict[int, float]]]:
    """Return the fitted rate, and the latencies in s/token by block size without and with the kernel table."""
    scenario = Scenario(workload=unit.workload)
    latency = latency_of(Resolved(scenario))
    target = dict(published_curve(unit.workload))
    goal = Objective({"normalized-latency": target[USUAL]})
    rate = knee_of(scenario, "paged", unit.seed, latency, goal, start=WORKLOADS[unit.workload], factor=1.2).rate
    found: dict[str, dict[int, float]] = {"memory only": {}, "kernel table": {}}
    for size in target:
        for name, table in (("memory only", None), ("kernel table", KERNEL)):
            sized = scenario.model_copy(update={"block_size": size, "kernel_table": table})
            result = run_at(sized, "paged", rate, unit.seed, latency)
            found[name][size] = float(result.summary()["normalized_latency_s"])
    return rate, found


def reproduce(workers: Workers) -> Reproduction:
    """Serve both workloads at every block size."""
    units = [Unit(workload, seed) for workload in WORKLOADS for seed in range(SEEDS)]
    found: dict[int, tuple[float, dict[str, dict[int, float]]]] = {}
    run_units(measure, units, workers, lambda position, value: found.update({position: value}))
    rates, curves = {}, {}
    for workload in WORKLOADS:
        mine = [found[i] for i, unit in enumerate(units) if unit.workload == workload]
        rates[workload] = sum(rate for rate, _ in mine) / SEEDS
        curves[workload] = {name: _mean([each[name] for _, each in mine]) for name in mine[0][1]}
    rows = [row for workload in WORKLOADS for row in _rows(workload, curves[workload])]
    notes = [f"{workload}: fitted rate {rate:.2f} requests/s" for workload, rate in rates.items()]
    notes += ["geometric means over seeds", f"latency: {latency_of(Resolved(Scenario())).describe()}"]
    return Reproduction("fig18b", "Figure 18b: block size", rows, lambda: draw(curves), notes)


def _mean(several: list[dict[int, float]]) -> dict[int, float]:
    """Geometric means by block size: latencies in overload differ by factors."""
    return {size: math.exp(sum(math.log(each[size]) for each in several) / len(several)) for size in several[0]}


def _rows(workload: str, curves: dict[str, dict[int, float]]) -> list[Row]:
    target, plain, kernel = dict(published_curve(workload)), curves["memory only"], curves["kernel table"]
    rows = []
    size, base = (64, USUAL) if workload == "sharegpt" else (64, 32)
    quantity = f"{workload} s/token at block {size} over block {base}"
    rows.append(Row("fig18b", quantity, target[size] / target[base], plain[size] / plain[base], 0.5, "factor"))
    worst, mine = (max((s for s in curve if s >= USUAL), key=lambda s: curve[s]) for curve in (target, plain))
    rows.append(Row("fig18b", f"{workload} worst block of 16 to 256", worst, mine, 0, "points"))
    fitted = workload == "sharegpt"
    tag: Tag = "calibrated" if fitted else "known-deviation"
    for size in (1, 2, 4, 8):
        quantity = f"{workload} s/token at block {size}, kernel table"
        note = "" if fitted else OVERLOADED
        rows.append(Row("fig18b", quantity, target[size], kernel[size], 0.5, "factor", tag, note))
    return rows


def draw(curves: dict[str, dict[str, dict[int, float]]]) -> Figure:
    """Draw latencies over block sizes, both axes logarithmic, a panel a workload."""
    from kvsim.plots.style import COLOURS, new_figure, tidy

    figure = new_figure(10, 3.8)
    looks = {"memory only": (COLOURS["sky"], "s"), "kernel table": (COLOURS["blue"], "o")}
    for axes, workload in zip(figure.subplots(1, 2), WORKLOADS, strict=True):
        sizes, latencies = zip(*published_curve(workload), strict=True)
        axes.plot(sizes, latencies, "--D", color="black", markerfacecolor="white", markersize=4, label="published")
        for name, (colour, marker) in looks.items():
            mine = curves[workload][name]
            axes.plot(list(mine), list(mine.values()), color=colour, marker=marker, markersize=4, label=name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set(xlabel="block size (slots)", ylabel="normalized latency (s/token)", title=workload)
        axes.legend(frameon=False, fontsize="small")
        tidy(axes)
    return figure
