"""Pictures of request streams and of what was fitted to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from kvsim.plots.style import COLOURS, new_figure, tidy
from kvsim.requests import NS_PER_S, IntArray, RequestStream

if TYPE_CHECKING:
    from kvsim.fit import Fit
    from kvsim.generate.lengths import Marginal

TIME_BINS = 120
LENGTH_BINS = 50
TOKENS = FuncFormatter(lambda tokens, _: f"{tokens:,.0f}")


def plot_stream(stream: RequestStream, max_model_len: int, title: str) -> Figure:
    """Draw both length distributions, how they go together, and arrivals over time.

    Parameters
    ----------
    stream : RequestStream
        What to draw.
    max_model_len : int
        Drawn as a line in the joint distribution: requests beyond it are too long for the model.
    title : str
        Above the whole.
    """
    figure = new_figure(10, 7)
    figure.suptitle(title)
    (prompt, output), (joint, time) = figure.subplots(2, 2)
    _draw_lengths(prompt, stream.prompt, "prompt", COLOURS["blue"])
    _draw_lengths(output, stream.output, "output", COLOURS["orange"])
    _draw_joint(joint, stream, max_model_len)
    _draw_arrivals(time, stream)
    return figure


def _token_axis(axis: Any) -> None:
    """Label powers of ten; where there are few of them, 2 and 5 times those too."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(base=10, subs=(1.0,) if high > 50 * low else (1.0, 2.0, 5.0), numticks=12))
    axis.set_major_formatter(TOKENS)
    axis.set_minor_formatter(NullFormatter())


def _log_bins(tokens: IntArray) -> np.ndarray[Any, Any]:
    """Return bin edges between whole numbers, evenly spaced on a logarithmic scale where they are far enough apart."""
    low, high = max(1, int(tokens.min())), int(tokens.max()) + 1
    return np.unique(np.rint(np.geomspace(low, max(high, low + 1), LENGTH_BINS))) - 0.5


def _draw_lengths(axes: Axes, tokens: IntArray, name: str, colour: str) -> None:
    bins = _log_bins(tokens)
    counts, _ = np.histogram(tokens, bins)
    density = counts / counts.sum() / np.diff(np.log10(bins))
    axes.stairs(density, bins, fill=True, color=colour, alpha=0.85)
    mean, median = float(tokens.mean()), float(np.median(tokens))
    axes.axvline(mean, color="black", linewidth=1.2, label=f"mean {mean:,.0f}")
    axes.axvline(median, color="black", linewidth=1.2, linestyle=":", label=f"median {median:,.0f}")
    axes.set_xscale("log")
    _token_axis(axes.xaxis)
    axes.set_xlabel(f"{name} length (tokens)")
    axes.set_ylabel("share per tenfold of length")
    axes.legend(frameon=False)
    tidy(axes)


def _draw_joint(axes: Axes, stream: RequestStream, max_model_len: int) -> None:
    bins = _log_bins(stream.prompt), _log_bins(stream.output)
    *_, mesh = axes.hist2d(stream.prompt, stream.output, bins=bins, norm=LogNorm(), cmap="cividis")
    if np.any(stream.prompt + stream.output > max_model_len // 2):
        prompt = np.geomspace(1, max_model_len - 1, 400)
        label = f"{max_model_len:,} together"
        axes.plot(prompt, max_model_len - prompt, color=COLOURS["vermilion"], linewidth=1.5, label=label)
        axes.legend(frameon=True, loc="lower left", fontsize="small")
    axes.set(xscale="log", yscale="log", xlabel="prompt length (tokens)", ylabel="output length (tokens)")
    axes.set(xlim=(bins[0][0], bins[0][-1]), ylim=(bins[1][0], bins[1][-1]))
    _token_axis(axes.xaxis)
    _token_axis(axes.yaxis)
    axes.figure.colorbar(mesh, ax=axes, label="requests")
    tidy(axes)


def _draw_arrivals(axes: Axes, stream: RequestStream) -> None:
    axes.set_xlabel("time (s)")
    axes.set_ylabel("arrivals (requests/s)")
    tidy(axes)
    if not stream.timed or not stream.span_ns:
        text = "no timestamps" if not stream.timed else "all requests arrive at once"
        axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    seconds = (stream.arrival_ns - stream.arrival_ns[0]) / NS_PER_S
    counts, edges = np.histogram(seconds, TIME_BINS)
    width = edges[1] - edges[0]
    axes.stairs(counts / width, edges, fill=True, color=COLOURS["green"], alpha=0.85)
    rate = len(stream) / seconds[-1]
    axes.axhline(rate, color="black", linewidth=1.2, label=f"mean {rate:.3g} requests/s, bins of {width:.3g} s")
    axes.set_ylim(0, counts.max() / width * 1.25)
    axes.legend(frameon=False, loc="upper right", fontsize="small")


def plot_fit(stream: RequestStream, fit: Fit) -> Figure:
    """Draw the distribution functions of a stream beside those of the workload that was fitted to it."""
    figure = new_figure(12 if fit.arrivals else 8.5, 4)
    figure.suptitle(f"{fit.workload.name}: fitted to {len(stream):,} requests")
    axes = figure.subplots(1, 3 if fit.arrivals else 2)
    for column, axis in zip(("prompt", "output"), axes, strict=False):
        best = getattr(fit, column)[0]
        label = f"{best.marginal.family}, {best.num_parameters} numbers: KS {best.ks:.3f}"
        _draw_cdf(axis, getattr(stream, column), getattr(fit.workload, column), label)
        axis.set_xlabel(f"{column} length (tokens)")
    if fit.arrivals:
        _draw_gaps(axes[2], stream, fit)
    axes[0].set_ylabel("share at most so large")
    return figure


def _draw_cdf(axes: Axes, tokens: IntArray, marginal: Marginal, label: str) -> None:
    values = np.sort(tokens)
    axes.step(
        values, np.arange(1, len(values) + 1) / len(values), where="post", color=COLOURS["grey"], lw=4, label="trace"
    )
    grid = np.unique(np.rint(np.geomspace(1, values[-1] * 1.5, 2000)))
    axes.plot(grid, marginal.cdf(grid + 0.5), color=COLOURS["blue"], linewidth=1.2, label=label)
    axes.set_xscale("log")
    _token_axis(axes.xaxis)
    _finish_cdf(axes)


def _draw_gaps(axes: Axes, stream: RequestStream, fit: Fit) -> None:
    from kvsim.generate.workload import ARRIVAL, generator
    from kvsim.traces.describing import spread_ticks

    assert fit.arrivals is not None
    process = fit.arrivals.process
    times = spread_ticks(stream.arrival_ns, np.random.default_rng(0)) if fit.arrivals.spread else stream.arrival_ns
    gaps = np.sort(np.diff(times)) / NS_PER_S
    drawn = np.sort(process.gaps(generator(0, ARRIVAL), 200_000)) / (process.rate_per_s or 1.0)
    for values, colour, width, label in (
        (gaps, COLOURS["grey"], 4.0, "trace, spread within ticks" if fit.arrivals.spread else "trace"),
        (drawn, COLOURS["blue"], 1.2, f"{process.process}: KS {fit.arrivals.ks:.3f}"),
    ):
        axes.plot(values, np.arange(1, len(values) + 1) / len(values), color=colour, linewidth=width, label=label)
    positive = gaps[gaps > 0]
    axes.set_xscale("log")
    axes.set_xlim(np.quantile(positive, 0.001), positive[-1] * 1.5)
    axes.set_xlabel("time between arrivals (s)")
    _finish_cdf(axes)


def _finish_cdf(axes: Axes) -> None:
    axes.set_ylim(0, 1.18)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.legend(frameon=False, loc="upper left", fontsize="small")
    tidy(axes)
