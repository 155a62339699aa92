"""Figure 11: lengths of prompts and outputs of the two workloads."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from kvsim.generate import load_workload
from kvsim.paper.report import Reproduction, Row

# printed means of prompt and output
PRINTED = {"sharegpt": (161.31, 337.99), "alpaca": (19.31, 58.45)}
DRAWS = 200_000
FROM_BARS = "the workload's lengths are drawn from the figure's own bars, whose means differ a little from the printed"


def reproduce() -> Reproduction:
    """Draw many requests of each workload and compare their means with the printed ones."""
    rows, lengths = [], {}
    for name, printed in PRINTED.items():
        stream = load_workload(name).sample(num_requests=DRAWS, backlog=True, seed=0)
        lengths[name] = (stream.prompt, stream.output)
        for part, published, drawn in zip(("prompt", "output"), printed, lengths[name], strict=True):
            quantity = f"{name} mean {part} (tokens)"
            rows.append(Row("fig11", quantity, published, float(drawn.mean()), 2.0, "percent", "calibrated", FROM_BARS))
    return Reproduction("fig11", "Figure 11: lengths", rows, lambda: draw(lengths))


def draw(lengths: dict[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw the histograms in the paper's layout: prompt and output of each workload in one panel."""
    from kvsim.plots.style import COLOURS, new_figure, tidy

    figure = new_figure(10, 3.6)
    for axes, (name, (prompt, output)) in zip(figure.subplots(1, 2), lengths.items(), strict=True):
        bins = np.linspace(0, 2048 if name == "sharegpt" else 512, 129)
        tables = load_workload(name).length_tables()
        for table, colour in zip(tables, (COLOURS["blue"], COLOURS["orange"]), strict=True):
            axes.step(table.values, table.pmf, color=colour, linewidth=0.8, where="mid")
        for values, label, colour in ((prompt, "prompt", COLOURS["blue"]), (output, "output", COLOURS["orange"])):
            text = f"{label}, mean {values.mean():.1f} (printed {PRINTED[name][label == 'output']})"
            axes.hist(values, bins, density=True, histtype="stepfilled", alpha=0.55, color=colour, label=text)
        axes.set(
            xlim=(0, bins[-1]), xlabel="tokens", ylabel="density", title=f"{name}: lines as published, areas drawn"
        )
        axes.legend(frameon=False, fontsize="small")
        tidy(axes)
    return figure
