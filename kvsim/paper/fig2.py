"""Figure 2: where the KV-cache memory goes. ShareGPT, OPT-13B, 2 requests/s for an hour; paging under a backlog.

The paper does not name data set and rate of Figure 2; its free share and the batches of Figure 13 fit these.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from kvsim.experiments.compare import System, run_one
from kvsim.experiments.workers import Workers, run_units
from kvsim.latency import latency_of
from kvsim.paper.report import Reproduction, Row
from kvsim.results import Result
from kvsim.scenario import Resolved, Scenario

# used, reserved, internal, external and others, in percent; of vLLM only the first is printed
PRINTED: dict[str, tuple[float, ...]] = {
    "max": (20.4, 13.3, 57.3, 8.9),
    "pow2": (26.8, 17.9, 13.6, 41.6),
    "oracle": (38.2, 25.2, 0.0, 36.6),
    "paged": (96.3,),
}
PARTS = ("used", "reserved", "internal", "external and others")
TOLERANCE, WIDE = 1.5, 2.5
JOINT = "the joint distribution of prompt and output is not published; this one's closed form is 19.4 / 12.8 / 59.0"
SEEDS = 5


def reproduce(workers: Workers) -> Reproduction:
    """Run the four systems, five seeds each."""
    served = Scenario(rate=2.0, duration=3600.0)
    scenarios = {name: served if name != "paged" else Scenario(backlog=True) for name in PRINTED}
    units = [(scenarios[name], name, seed) for name in PRINTED for seed in range(SEEDS)]
    results: dict[str, dict[int, Result]] = {name: {} for name in PRINTED}
    run_units(measure, units, workers, lambda i, result: results[units[i][1]].update({units[i][2]: result}))
    systems = [
        System(name, found[0].placement, tuple(found[seed] for seed in range(SEEDS))) for name, found in results.items()
    ]
    rows = [row for system in systems for row in _rows(system)]
    notes = [f"latency: {latency_of(Resolved(served)).describe()}", f"means over {SEEDS} seeds"]
    return Reproduction("fig2", "Figure 2: where the memory goes", rows, lambda: draw(systems), notes)


def measure(unit: tuple[Scenario, str, int]) -> Result:
    """Run one replicate."""
    scenario, allocator, seed = unit
    resolved = Resolved(scenario)
    return run_one(resolved, seed, allocator, scenario.placement, latency_of(resolved))


def shares(system: System) -> list[float]:
    """Return the four parts of the paper's figure in percent: external and free are one."""
    means = {part: system.mean(part) for part in ("used", "reserved", "internal", "external", "free")}
    used, reserved, internal, external, free = (100 * mean.value if mean else 0.0 for mean in means.values())
    return [used, reserved, internal, external + free]


def _rows(system: System) -> list[Row]:
    rows = []
    for part, published, simulated in zip(PARTS, PRINTED[system.allocator], shares(system), strict=False):
        wide = system.allocator == "max" and part == "internal"
        rows.append(
            Row("fig2", f"{system.allocator} {part} %", published, simulated, WIDE if wide else TOLERANCE, "points",
                "derived", JOINT if wide else "")
        )  # fmt: skip
    return rows


def draw(systems: list[System]) -> Figure:
    """Draw published and simulated bars side by side."""
    from kvsim.plots.paper import shares_beside

    simulated = {system.allocator: shares(system) for system in systems}
    return shares_beside(PRINTED, simulated, PARTS)
