"""Published beside simulated: bars, shares, curves over the rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvsim.plots.capacity import curve_on
from kvsim.plots.style import COLOURS, new_figure, tidy

Points = list[tuple[float, float]]

LAYERS = (
    (COLOURS["blue"], ""),
    (COLOURS["sky"], "//"),
    (COLOURS["orange"], ".."),
    (COLOURS["vermilion"], "xx"),
)


def bars_beside(axes: Axes, names: Sequence[str], published: Sequence[float], simulated: Sequence[float]) -> Axes:
    """Draw pairs of bars with their values."""
    places = range(len(names))
    pairs = ((-0.2, published, "published", "white"), (0.2, simulated, "simulated", COLOURS["blue"]))
    for shift, values, label, colour in pairs:
        bars = axes.bar([x + shift for x in places], values, 0.38, label=label, color=colour, edgecolor="#444444")
        axes.bar_label(bars, [f"{value:.1f}" for value in values], fontsize="x-small", padding=2)
    axes.set_xticks(list(places), list(names))
    axes.margins(y=0.12)
    axes.legend(frameon=False, fontsize="small", loc="upper left")
    tidy(axes)
    return axes


def shares_beside(
    published: Mapping[str, Sequence[float]], simulated: Mapping[str, Sequence[float]], parts: Sequence[str]
) -> Figure:
    """Draw stacked shares in percent, two bars a system: published above, simulated below."""
    figure = new_figure(9, 0.8 * len(published) + 1.6)
    axes = figure.subplots()
    labels, places = [], []
    for row, name in enumerate(published):
        for shift, kind, values in ((-0.2, "published", published[name]), (0.2, "simulated", simulated[name])):
            places.append(row + shift)
            labels.append(f"{name}, {kind}")
            _stack(axes, row + shift, values)
    for (colour, hatch), part in zip(LAYERS, parts, strict=True):
        axes.barh(0, 0, color=colour, hatch=hatch, edgecolor="#444444", label=part)
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="share of the KV-cache slots, time average (%)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False)
    tidy(axes)
    return figure


def _stack(axes: Axes, place: float, values: Sequence[float]) -> None:
    start = 0.0
    for (colour, hatch), value in zip(LAYERS, values, strict=False):
        axes.barh(place, value, 0.36, left=start, color=colour, hatch=hatch, edgecolor="#444444", linewidth=0.6)
        if value >= 4:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
            axes.text(start + value / 2, place, f"{value:.1f}", ha="center", va="center", fontsize="x-small", bbox=box)
        start += value


def panel_on(
    axes: Axes, published: Mapping[str, Points], simulated: Mapping[str, Points], labels: Mapping[str, str]
) -> Axes:
    """Draw a panel of Figure 12: curves of every system, published dashed and open, simulated solid."""
    for system, points in published.items():
        curve_on(axes, system, points, published=True, label=f"{labels[system]}, published")
        curve_on(axes, system, simulated[system], published=False, label=f"{labels[system]}, simulated")
    axes.axhline(0.5, color="#444444", linewidth=0.8)
    widest = max(
        rate for points in [*published.values(), *simulated.values()] for rate, latency in points if latency < 1
    )
    axes.set(ylim=(0, 1), xlim=(0, 1.08 * widest), xlabel="requests/s", ylabel="normalized latency (s/token)")
    tidy(axes)
    return axes
