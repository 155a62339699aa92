"""Figure of a tuning: what each value serves, and what it costs."""

from __future__ import annotations

from matplotlib.figure import Figure

from kvsim.experiments.tune import Tuning
from kvsim.plots.style import COLOURS, new_figure, tidy

LOOKS = {
    "last_block_waste": ("last blocks (of the pool)", COLOURS["orange"], "s"),
    "kernel_penalty": ("attention kernel (of the throughput)", COLOURS["purple"], "D"),
    "recomputed": ("recomputed (of the tokens generated)", COLOURS["vermilion"], "^"),
}


def plot_tuning(found: Tuning) -> Figure:
    """Draw capacities with their intervals, the recommended values marked, and the costs in percent."""
    figure = new_figure(10, 4.2)
    left, right = figure.subplots(1, 2)
    places = range(len(found.choices))
    names = [str(choice.value) for choice in found.choices]
    for place, choice in zip(places, found.choices, strict=True):
        good, mean = found.is_no_worse(choice), choice.rate
        left.errorbar(
            place, mean.value, yerr=mean.half_width, fmt="o", capsize=3,
            color=COLOURS["blue"] if good else "#777777", markerfacecolor=COLOURS["blue"] if good else "white",
        )  # fmt: skip
        if good:
            left.axvspan(place - 0.5, place + 0.5, color=COLOURS["sky"], alpha=0.25, linewidth=0)
    left.axvspan(-9, -9, color=COLOURS["sky"], alpha=0.25, label="recommended")
    left.set(ylabel=f"requests/s with {found.goal}", ylim=(0, None))
    left.legend(frameon=False, loc="lower left")
    for name, (label, colour, marker) in LOOKS.items():
        values = [100 * choice.costs()[name] for choice in found.choices]
        right.plot(places, values, color=colour, marker=marker, markersize=4, label=label)
    right.set(ylabel="cost under a backlog (%)", ylim=(0, None))
    right.legend(frameon=False, fontsize="small")
    for axes in (left, right):
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_xticks(list(places), names)
        axes.set_xlabel(found.knob.replace("_", " "))
        tidy(axes)
    scenario = found.scenario
    figure.suptitle(
        f"{scenario.model} on {scenario.gpu}, {scenario.workload}, kernel table {scenario.kernel_table or 'none'}, "
        f"{scenario.seeds} seeds", x=0.01, ha="left", fontsize="medium", fontweight="bold",
    )  # fmt: skip
    return figure
