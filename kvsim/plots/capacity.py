"""Figures of capacities: latency over the rate, as the vLLM paper's Figure 12."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvsim.experiments.capacity import HOLDS, Capacities
from kvsim.plots.style import COLOURS, new_figure, tidy

# system -> (colour, marker), the same in every figure over rates
LOOKS = {
    "fastertransformer": (COLOURS["grey"], "v"),
    "max": (COLOURS["vermilion"], "s"),
    "pow2": (COLOURS["orange"], "D"),
    "oracle": (COLOURS["green"], "^"),
    "paged": (COLOURS["blue"], "o"),
    "paged-max": (COLOURS["purple"], "<"),
    "paged-pow2": (COLOURS["sky"], ">"),
    "paged-oracle": (COLOURS["black"], "x"),
}


def plot_capacities(found: Capacities) -> Figure:
    """Draw the first replicate's load over the rate for each allocator, and where it crosses its limit."""
    figure = new_figure(8, 4.8)
    axes = figure.subplots()
    single = len(found.goal.limits) == 1
    (name, limit), *_ = found.goal.limits.items()
    scale = limit if single else 1.0
    for system in found.systems:
        colour, marker = LOOKS[system.allocator]
        points = system.knees[0].points
        rates, loads = [rate for rate, _ in points], [load * scale for _, load in points]
        axes.plot(rates, loads, color=colour, marker=marker, markersize=4, label=system.allocator)
        if system.status == HOLDS:
            axes.axvline(system.rate.value, color=colour, linestyle=":", linewidth=1)
    axes.axhline(scale, color="#444444", linewidth=0.8)
    axes.annotate(f"{scale:g}" + (" s" if single else ""), (1, scale), (-4, 3), xycoords=("axes fraction", "data"),
                  textcoords="offset points", ha="right", color="#444444")  # fmt: skip
    axes.set_ylim(0, 2 * scale)
    rates = [system.rate.value for system in found.systems if system.status == HOLDS]
    if rates:
        axes.set_xlim(0, 1.25 * max(rates))
    axes.set_xlabel("requests/s")
    axes.set_ylabel(f"{name.replace('-', ' ')} (s)" if single else "worst measure over its limit")
    axes.legend(frameon=False)
    tidy(axes)
    scenario = found.scenario
    figure.suptitle("Latency over the request rate", x=0.01, ha="left", fontweight="bold")
    axes.set_title(
        f"{scenario.model} on {scenario.gpu}, {scenario.workload}; lines: seed {scenario.seed}; dotted: mean rate at "
        f"the limit over {scenario.seeds} seeds", fontsize="small", color="#444444", loc="left",
    )  # fmt: skip
    return figure


def curve_on(axes: Axes, system: str, points: Sequence[tuple[float, float]], *, published: bool, label: str) -> None:
    """Draw a latency curve over the rate: published ones open and dashed, simulated ones filled and solid."""
    colour, marker = LOOKS[system]
    rates, latencies = zip(*points, strict=True)
    axes.plot(
        rates, latencies, color=colour, marker=marker, markersize=4, label=label,
        linestyle="--" if published else "-", markerfacecolor="white" if published else colour,
        linewidth=1 if published else 1.6,
    )  # fmt: skip
