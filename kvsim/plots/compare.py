"""Figures of a comparison: where the memory goes, over time too, and what each idea gives."""

from __future__ import annotations

import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvsim.accounts import Ledger
from kvsim.experiments import IDEAS, Comparison, System
from kvsim.plots.style import COLOURS, new_figure, tidy
from kvsim.requests import NS_PER_S

# part -> (colour, hatch, label, where the label stands on the bar)
PARTS = {
    "used": (COLOURS["blue"], "", "used"),
    "reserved": (COLOURS["sky"], "//", "reserved"),
    "internal": (COLOURS["orange"], "..", "internal"),
    "external": (COLOURS["vermilion"], "xx", "external"),
    "free": ("#FFFFFF", "", "free"),
}
SMALLEST_LABEL = 0.03


def plot_shares(comparison: Comparison) -> Figure:
    """Draw where the memory goes for each allocator, beside the requests in flight and the throughput.

    The layout is that of the vLLM paper's Figure 2, which adds external and free into one part.
    """
    systems = [system for system in comparison.systems if system.mean("used") is not None]
    figure = new_figure(10, 0.75 * len(systems) + 2.2)
    left, middle, right = figure.subplots(1, 3, sharey=True, width_ratios=[5, 2, 2])
    names = [system.label for system in systems]
    shares_on(left, systems, names)
    _bars_on(middle, systems, "mean_batch", "requests in flight\n(mean over time)", "{:.1f}")
    multiples = comparison.multiples()
    notes = [f"\n(paged: {multiples[s.allocator]:.2f}x)" if s.allocator in multiples else "" for s in systems]
    _bars_on(right, systems, "output_tokens_per_s", "output tokens/s", "{:,.0f}", notes)
    left.invert_yaxis()
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=5, frameon=False)
    _title(figure, "Where the KV-cache memory goes", comparison)
    return figure


def shares_on(axes: Axes, systems: list[System], names: list[str]) -> Axes:
    """Draw stacked shares of the pool, a bar a system, in percent of its slots."""
    start = [0.0] * len(systems)
    for part, (colour, hatch, label) in PARTS.items():
        means = [system.mean(part) for system in systems]
        widths = [mean.value if mean is not None else 0.0 for mean in means]
        bars = axes.barh(
            names, [100 * w for w in widths], left=[100 * s for s in start], color=colour, hatch=hatch,
            edgecolor="#444444", linewidth=0.6, label=label,
        )  # fmt: skip
        texts = [f"{100 * w:.1f}" if w >= SMALLEST_LABEL else "" for w in widths]
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85} if part != "used" else None
        axes.bar_label(bars, texts, label_type="center", color="white" if part == "used" else "black", bbox=box)
        start = [s + w for s, w in zip(start, widths, strict=True)]
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the KV-cache slots, time average (%)")
    tidy(axes)
    return axes


def _bars_on(
    axes: Axes, systems: list[System], measure: str, label: str, form: str, notes: list[str] | None = None
) -> None:
    means = [system.mean(measure) for system in systems]
    values = [mean.value if mean is not None else 0.0 for mean in means]
    errors = [mean.half_width or 0.0 if mean is not None else 0.0 for mean in means]
    bars = axes.barh(range(len(systems)), values, color="#777777", xerr=errors if any(errors) else None)
    texts = [form.format(value) + note for value, note in zip(values, notes or [""] * len(values), strict=True)]
    axes.bar_label(bars, texts, padding=4)
    axes.set_xlim(0, 1.35 * max(v + e for v, e in zip([*values, 1e-9], [*errors, 0], strict=True)))
    axes.set_xlabel(label)
    tidy(axes)


def plot_timelines(comparison: Comparison) -> Figure:
    """Draw the five parts of the pool over simulated time, a panel a system, with the requests in flight."""
    systems = comparison.systems
    figure = new_figure(10, 1.7 * len(systems) + 1.4)
    panels = figure.subplots(len(systems), 1, sharex=True, squeeze=False)[:, 0]
    for axes, system in zip(panels, systems, strict=True):
        timeline_on(axes, system)
    panels[-1].set_xlabel("simulated time (s)")
    panels[-1].set_xlim(0, max(result.accounts.end_ns for s in systems for result in s.results[:1]) / NS_PER_S)
    handles, labels = panels[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower left", ncols=7, frameon=False)
    for patch in legend.get_patches():
        patch.set_edgecolor("#444444")
        patch.set_linewidth(0.6)
    _title(figure, "The pool over time", comparison)
    return figure


def timeline_on(axes: Axes, system: System) -> Axes:
    """Draw one system's timeline: stacked shares in percent (left), requests in flight (right)."""
    result = system.results[0]
    table = result.timeline()
    layers = axes.stackplot(
        table["time_s"], *[100 * table[part] for part in Ledger._fields],
        colors=[PARTS[part][0] for part in Ledger._fields], labels=[PARTS[part][2] for part in Ledger._fields],
    )  # fmt: skip
    for layer, (_, hatch, _) in zip(layers, PARTS.values(), strict=True):
        layer.set_hatch(hatch)
        layer.set_edgecolor("#44444466")
        layer.set_linewidth(0)
    axes.set_ylim(0, 100)
    axes.set_ylabel(f"{system.label}\n% of slots")
    twin = axes.twinx()
    twin.plot(table["time_s"], table["running"], color="black", linewidth=1)
    twin.set_ylim(0, None)
    axes.plot([], [], color="black", linewidth=1, label="requests in flight (right axis)")
    axes.plot([], [], color="black", linestyle=":", linewidth=1, label="steady window")
    if result.window is not None:
        for edge in (result.window.start_ns, result.window.end_ns):
            axes.axvline(edge / NS_PER_S, color="black", linestyle=":", linewidth=1)
    twin.set_ylabel("in flight")
    tidy(axes)
    twin.spines["top"].set_visible(False)
    return axes


def plot_waterfall(steps: Comparison) -> Figure:
    """Draw the requests/s that each idea adds, from reserving the maximum to growing on demand.

    A step without a steady window has no bar.
    """
    figure = new_figure(10, 4.8)
    axes = figure.subplots()
    means = [system.mean("requests_per_s") for system in steps.systems]
    values = [None if mean is None else mean.value for mean in means]
    before = 0.0
    for position, value in enumerate(values):
        if value is None:
            axes.annotate("no steady\nwindow", (position, before), (0, 3), textcoords="offset points", ha="center")
            continue
        first = all(earlier is None for earlier in values[:position])
        colour = "#777777" if first else COLOURS["green"] if value >= before else COLOURS["vermilion"]
        axes.bar(position, value - before, bottom=before, color=colour, width=0.62)
        gain = f"{value:.2f}" if first else f"{value:.2f}\n({value - before:+.2f})"
        axes.annotate(gain, (position, max(value, before)), (0, 3), textcoords="offset points", ha="center")
        if position + 1 < len(IDEAS):
            axes.plot([position + 0.31, position + 0.69], [value, value], color="#777777", linewidth=0.8)
        before = value
    axes.set_xticks(range(len(IDEAS)), [textwrap.fill(idea, 14) + f"\n[{n}, {p}]" for idea, n, p in IDEAS])
    axes.set_ylim(0, 1.2 * max([value for value in values if value is not None], default=1.0))
    axes.set_ylabel("requests/s in the steady window")
    tidy(axes)
    bound = all(result.bound_by == "arrivals" for result in steps.systems[0].results)
    _title(figure, "What each idea gives" + (": nothing, where arrivals bind" if bound else ""), steps)
    return figure


def _title(figure: Figure, title: str, comparison: Comparison) -> None:
    """Put a title, and the condition and the stamp below it."""
    stamp = comparison.stamp()
    seeds = f"seed {stamp['seed']}" if stamp["seeds"] == 1 else f"{stamp['seeds']} seeds from {stamp['seed']}"
    text = (
        f"{comparison.condition()}\n{stamp['scheduler']} scheduler, {seeds}, kvsim {stamp['version']}; iteration: "
        f"{comparison.latency.describe().split(': ')[0]})"
    )
    figure.suptitle(f"{title}\n\n", x=0.01, ha="left", fontweight="bold")
    figure.text(0.01, 0.995, f"\n\n{text}", ha="left", va="top", fontsize="small", color="#444444")
