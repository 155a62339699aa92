"""Pictures of the arithmetic of memory: stacked bars whose parts are the terms printed beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kvsim.memory import Fit, KVCache, Term, Training, Weights
from kvsim.plots.style import COLOURS, new_figure, tidy
from kvsim.units import plural

# One colour for one thing, whatever the figure.
TERM_COLOURS = {
    "weights": COLOURS["blue"],
    "kept in 16 bits": COLOURS["sky"],
    "quantization constants": COLOURS["yellow"],
    "KV cache": COLOURS["orange"],
    "KV pool": COLOURS["yellow"],
    "full layers": COLOURS["orange"],
    "sliding layers": COLOURS["yellow"],
    "adapters": COLOURS["sky"],
    "gradients": COLOURS["green"],
    "optimizer": COLOURS["vermilion"],
    "activations": COLOURS["purple"],
    "overhead": COLOURS["purple"],
    "held by others": COLOURS["black"],
    "kept by the system": COLOURS["green"],
}
GB = 10**9


def stacked_bars(axes: Axes, bars: Mapping[str, Sequence[Term]], *, unit: int = GB, unit_name: str = "GB") -> None:
    """Draw one horizontal bar a label, a segment a term, and the total at its end.

    Parameters
    ----------
    axes : Axes
        Where to.
    bars : mapping of str to sequence of Term
        From top to bottom.
    unit, unit_name : int, str
        Bytes of the axis' unit, and its name.
    """
    longest = max(sum(term.num_bytes for term in terms) for terms in bars.values())
    named: set[str] = set()
    for row, terms in enumerate(bars.values()):
        left = 0.0
        for term in filter(lambda term: term.num_bytes, terms):
            width = term.num_bytes / unit
            colour = TERM_COLOURS.get(term.name, COLOURS["grey"])
            label = None if term.name in named else term.name
            axes.barh(row, width, left=left, color=colour, edgecolor="white", linewidth=0.8, label=label, height=0.6)
            named.add(term.name)
            left += width
        axes.text(
            left + 0.01 * longest / unit,
            row,
            f"{left:,.4g} {unit_name}",
            va="center",
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            zorder=3,
        )
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * longest / unit)
    axes.set_xlabel(unit_name)
    tidy(axes)


def _with_legend(figure: Figure, axes: Axes, title: str) -> Figure:
    axes.set_title(title, loc="left", fontsize=11)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False, fontsize=9)
    return figure


def _write_in(axes: Axes) -> None:
    """Write each segment's width into it, where there is room."""
    for patch in axes.patches:
        if isinstance(patch, Rectangle) and patch.get_width() > 0.05 * axes.get_xlim()[1]:
            x, y = patch.get_x() + patch.get_width() / 2, patch.get_y() + patch.get_height() / 2
            axes.text(x, y, f"{patch.get_width():.3g}", ha="center", va="center", color="white", fontsize=9)


def plot_weights(rows: Sequence[Weights], name: str) -> Figure:
    """Draw the weights at each number of bits."""
    figure = new_figure(height=1.6 + 0.5 * len(rows))
    axes = figure.add_subplot()
    stacked_bars(axes, {row.label: row.terms for row in rows})
    return _with_legend(figure, axes, f"Weights of {name}: {rows[0].parameters:,} parameters")


def plot_kv(cache: KVCache, name: str) -> Figure:
    """Draw what the sequences need at least, what a paged engine gives them, and what a contiguous one reserves."""
    charge = f", sliding\nlayers: {cache.sliding}" if cache.shape.sliding_layers else ""
    kinds = {"lower bound": cache.bound_terms, f"paged{charge}": cache.terms, "contiguous": cache.reserved_terms}
    unit, unit_name = (2**30, "GiB") if cache.total_bytes >= 2**30 else (2**20, "MiB")
    figure = new_figure(height=3.2)
    axes = figure.add_subplot()
    stacked_bars(axes, kinds, unit=unit, unit_name=unit_name)
    sequences = f"{plural(cache.sequences, 'sequence')} of {cache.context:,} tokens"
    return _with_legend(figure, axes, f"KV cache of {name}: {sequences}")


def plot_fit(result: Fit, name: str, device: str) -> Figure:
    """Draw what is asked for above what the device has, if one is named."""
    bars = {"asked for": result.terms}
    if result.device_terms:
        bars["device"] = result.device_terms
    figure = new_figure(height=1.8 + 0.6 * len(bars))
    axes = figure.add_subplot()
    stacked_bars(axes, bars)
    if result.device_bytes:
        memory = result.device_bytes / GB
        axes.axvline(memory, color=COLOURS["black"], linestyle="--", linewidth=1, label=f"memory: {memory:,.4g} GB")
        axes.set_xlim(0, max(axes.get_xlim()[1], 1.15 * memory))
    answer = "fits" if result.fits else "does not fit"
    return _with_legend(figure, axes, f"{name} on {device}: {answer}" if device else f"{name}: {answer}")


def plot_train(methods: Sequence[Training], name: str, memory_bytes: int | None = None) -> Figure:
    """Draw the bytes of each method, and the ledger of a parameter: 16, 2, 1/2 bytes."""
    figure = new_figure(height=2.2 + 0.9 * len(methods))
    above, below = figure.subplots(2, 1)
    stacked_bars(above, {row.method: row.terms for row in methods})
    if memory_bytes:
        above.axvline(memory_bytes / GB, color=COLOURS["black"], linestyle="--", linewidth=1, label="memory given")
        above.set_xlim(0, max(above.get_xlim()[1], 1.15 * memory_bytes / GB))
    stacked_bars(below, {row.method: row.terms for row in methods}, unit=methods[0].parameters, unit_name="bytes")
    below.set_xlabel("bytes a parameter of the model")
    _write_in(below)
    return _with_legend(figure, above, f"Training {name}, each device")
