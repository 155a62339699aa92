"""One look for every figure, and a way to write them that leaves nothing half-written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kvsim.errors import ConfigError

# Okabe and Ito's palette, distinguishable with any colour vision.
COLOURS = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "yellow": "#F0E442",
    "grey": "#BBBBBB",
    "black": "#000000",
}
PNG_DPI = 150


def new_figure(width: float = 8.0, height: float = 4.5) -> Figure:
    """Return an empty figure, in inches, that no window manager knows of."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes) -> None:
    """Take away what carries no information."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure under a temporary name in the same folder and rename it.

    Parameters
    ----------
    figure : Figure
        The figure.
    path : Path
        Where to; its suffix is the format (png, svg, pdf). The folder is made if it is not there.

    Returns
    -------
    Path
        The same path.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".png":
            _print_png(figure, temporary)
        else:
            with mpl.rc_context({"svg.hashsalt": "kvsim"}):
                figure.savefig(temporary)
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path


def _print_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG: ``savefig`` would draw it twice, once for a crop that is not wanted."""
    dpi = figure.dpi
    figure.set_dpi(PNG_DPI)
    FigureCanvasAgg(figure).print_png(path, pil_kwargs={"compress_level": 3})  # type: ignore[no-untyped-call]
    figure.set_dpi(dpi)
