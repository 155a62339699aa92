"""Pictures of recorded runs: a pool slot by slot, a block table, the shares over the steps; and runs as GIF or MP4.

A request has a colour, a kind of slot a hatch, as on the page of ``kvsim lesson``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke

from kvsim.errors import ConfigError
from kvsim.lesson.files import check_folder
from kvsim.lesson.phrases import say
from kvsim.lesson.recording import EXTERNAL, FREE, KINDS, USED, Recording, State
from kvsim.lesson.scenarios import Lesson
from kvsim.plots.style import COLOURS, new_figure, tidy

# Those of the style sheet are too few for requests, and too light for hatches; these are the page's.
REQUEST_COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#c2588f", "#3fa2da", "#d55e00", "#6f4fa0", "#8a7a00", "#9c5a2e", "#5d7180"),
)
HATCHES = ("", "////", "....", "xxxx", "")
KIND_COLOURS = ("blue", "sky", "orange", "vermilion", "grey")
MAX_FRAMES = 600
# A label is written where a cell is at least this wide, in slots a line.
LABELLED = 64


def plot_pool(recording: Recording, step: int, axes: Axes | None = None, *, per_row: int = 16) -> Axes:
    """Draw physical memory at a step, a cell a slot.

    Parameters
    ----------
    recording : Recording
        What ran.
    step : int
        Of the recording.
    axes : Axes, optional
        Where to; a new figure's if not given.
    per_row : int
        Slots a line.

    Returns
    -------
    Axes
        The same.
    """
    if axes is None:
        axes = new_figure(height=1.2 + 0.35 * -(-recording.capacity // per_row)).add_subplot()
    state = recording.state(step)
    for start, length in _runs(state, per_row):
        _draw_run(axes, state, start, length, per_row)
    lines = -(-recording.capacity // per_row)
    if per_row <= LABELLED:
        if recording.block_size:
            _draw_blocks(axes, recording, per_row)
        _label(axes, recording, step, per_row)
    axes.set(xlim=(-0.05, per_row + 0.05), ylim=(lines + 0.05, -0.05))
    every = max(1, lines // 8)
    axes.set_yticks(
        [line + 0.5 for line in range(0, lines, every)], [str(line * per_row) for line in range(0, lines, every)]
    )
    axes.set_xticks([])
    axes.set_ylabel("first slot of each line")
    axes.set_title(_title(recording), loc="left", fontsize=10)
    tidy(axes)
    axes.spines[["left", "bottom"]].set_visible(False)
    return axes


def _title(recording: Recording) -> str:
    how = f"blocks of {recording.block_size}" if recording.block_size else recording.placement
    return f"{recording.allocator}, {how}"


def _runs(state: State, per_row: int) -> Iterator[tuple[int, int]]:
    """Cut the pool where owner or kind change, and at the ends of lines."""
    owner, kind = state.owner, state.kind
    cuts = np.flatnonzero((np.diff(owner) != 0) | (np.diff(kind) != 0)) + 1
    edges = np.unique(np.concatenate([[0], cuts, np.arange(per_row, len(owner), per_row), [len(owner)]]))
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield start, end - start


def _draw_run(axes: Axes, state: State, start: int, length: int, per_row: int) -> None:
    owner, kind = int(state.owner[start]), int(state.kind[start])
    colour = _colour(owner) if kind not in (EXTERNAL, FREE) else COLOURS["vermilion"]
    x, y = start % per_row, start // per_row
    solid = kind == USED
    axes.add_patch(
        Rectangle(
            (x, y + 0.06),
            length,
            0.88,
            facecolor=colour if solid else "white",
            edgecolor=COLOURS["grey"] if kind == FREE else colour,
            hatch=HATCHES[kind],
            linewidth=0.8,
        )
    )


def _draw_blocks(axes: Axes, recording: Recording, per_row: int) -> None:
    size = recording.block_size
    for block in range((recording.capacity - recording.lost) // size):
        slot = block * size
        corner = (slot % per_row, slot // per_row + 0.06)
        axes.add_patch(
            Rectangle(corner, min(size, per_row), 0.88, fill=False, edgecolor=COLOURS["black"], linewidth=0.8)
        )


def _label(axes: Axes, recording: Recording, step: int, per_row: int) -> None:
    """Write each request's number at the beginning of its extent, or of each of its blocks."""
    for stay in recording.running(step):
        starts = [stay.extent[0]] if stay.extent else [block * recording.block_size for block in stay.table_at(step)]
        for start in starts:
            x, y = start % per_row + 0.12, start // per_row + 0.5
            text = axes.text(x, y, str(stay.request), va="center", ha="left", fontsize=8, weight="bold")
            text.set_path_effects([withStroke(linewidth=2, foreground="white")])


def _colour(request: int) -> str:
    return REQUEST_COLOURS[request % len(REQUEST_COLOURS)]


def plot_table(recording: Recording, step: int, request: int, axes: Axes | None = None) -> Axes:
    """Draw the block table of a request at a step: logical block above, physical block and tokens in it below.

    Parameters
    ----------
    recording : Recording
        Of a paged allocator.
    step, request : int
        When, and whose.
    axes : Axes, optional
        Where to; a new figure's if not given.

    Raises
    ------
    ConfigError
        The request is not in memory at that step, or the memory has no blocks.
    """
    stay = next((stay for stay in recording.running(step) if stay.request == request), None)
    if stay is None or stay.extent is not None:
        raise ConfigError(f"request {request} has no block table at step {step}")
    table, size = stay.table_at(step), recording.block_size
    if axes is None:
        axes = new_figure(height=1.6).add_subplot()
    for logical, block in enumerate(table):
        filled = min(size, max(0, stay.tokens_at(step) - logical * size))
        axes.add_patch(Rectangle((logical, 0), 1, 1, facecolor="white", edgecolor=COLOURS["black"]))
        axes.add_patch(Rectangle((logical, 0), filled / size, 0.12, facecolor=_colour(request)))
        axes.text(logical + 0.5, 0.52, str(block), ha="center", va="center", fontsize=12, weight="bold")
    axes.set(xlim=(-0.05, len(table) + 0.05), ylim=(-0.05, 1.05), yticks=[])
    axes.set_xticks([i + 0.5 for i in range(len(table))], [str(i) for i in range(len(table))])
    axes.set_xlabel("logical block (in the cell: physical block; the strip: how full it is)")
    axes.set_title(f"block table of request {request}", loc="left", fontsize=10)
    tidy(axes)
    axes.spines[["left", "bottom"]].set_visible(False)
    return axes


def plot_shares(recording: Recording, axes: Axes | None = None, *, step: int | None = None) -> Axes:
    """Draw the five shares over the steps of a recording.

    Parameters
    ----------
    recording : Recording
        What ran.
    axes : Axes, optional
        Where to; a new figure's if not given.
    step : int, optional
        Mark this step.
    """
    if axes is None:
        axes = new_figure(height=2.8).add_subplot()
    parts = 100 * np.array(recording.ledgers).T / recording.capacity
    edges = np.arange(len(recording) + 1)
    base = np.zeros(len(recording))
    for kind, part in enumerate(parts):
        colour = COLOURS[KIND_COLOURS[kind]]
        axes.stairs(
            base + part,
            edges,
            baseline=base,
            fill=True,
            facecolor=colour if kind == USED else "white",
            edgecolor=colour,
            hatch=HATCHES[kind],
            linewidth=0.4,
            label=KINDS[kind],
        )
        base = base + part
    if step is not None:
        axes.axvline(step + 0.5, color=COLOURS["black"], linewidth=1.5)
    axes.set(xlim=(0, len(recording)), ylim=(0, 100), xlabel="step", ylabel="% of slots")
    tidy(axes)
    return axes


def plot_owners(recording: Recording, blocks: Sequence[int], axes: Axes | None = None) -> Axes:
    """Draw who held some physical blocks over the steps: the life of a block.

    Parameters
    ----------
    recording : Recording
        Of a paged allocator.
    blocks : sequence of int
        Physical blocks, a line each.
    axes : Axes, optional
        Where to; a new figure's if not given.
    """
    if axes is None:
        axes = new_figure(height=1.4 + 0.35 * len(blocks)).add_subplot()
    for line, block in enumerate(blocks):
        for stay in recording.stays:
            if block not in stay.blocks:
                continue
            start = stay.taken[stay.blocks.index(block)]
            end = len(recording) if stay.end < 0 else stay.end
            axes.barh(line, end - start, left=start, height=0.8, color=_colour(stay.request), edgecolor="white")
            text = axes.text((start + end) / 2, line, str(stay.request), va="center", ha="center", fontsize=8)
            text.set_path_effects([withStroke(linewidth=2, foreground="white")])
    axes.set_yticks(range(len(blocks)), [f"block {block}" for block in blocks])
    axes.set(xlim=(0, len(recording)), ylim=(len(blocks) - 0.4, -0.6), xlabel="step (in the bars: the request)")
    tidy(axes)
    return axes


def plot_lines(
    values: Sequence[float], lines: Mapping[str, Sequence[float]], xlabel: str, ylabel: str, axes: Axes | None = None
) -> Axes:
    """Draw measures over a setting that doubles from point to point, such as the block size.

    Parameters
    ----------
    values : sequence of float
        The setting; the axis is logarithmic with base 2.
    lines : mapping of str to sequence of float
        A line a label.
    xlabel, ylabel : str
        With their units.
    axes : Axes, optional
        Where to; a new figure's if not given.
    """
    if axes is None:
        axes = new_figure(height=3.2).add_subplot()
    for i, (label, measures) in enumerate(lines.items()):
        axes.plot(values, measures, marker="os^Dv"[i % 5], color=_colour(i), label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(values), [f"{value:g}" for value in values])
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    tidy(axes)
    return axes


def legend_handles() -> list[Patch]:
    """Return one patch a kind of slot, for a legend."""
    return [
        Patch(
            facecolor=COLOURS["blue"] if kind == USED else "white",
            edgecolor=COLOURS[KIND_COLOURS[kind]],
            hatch=HATCHES[kind],
            label=name,
        )
        for kind, name in enumerate(KINDS)
    ]


def plot_lesson(lesson: Lesson, step: int, figure: Figure | None = None) -> Figure:
    """Draw a step of a lesson: for each system its memory, above the shares over the steps.

    Parameters
    ----------
    lesson : Lesson
        What was recorded.
    step : int
        Of the lesson.
    figure : Figure, optional
        An empty one; a new one if not given.
    """
    systems = len(lesson.recordings)
    per_row = _per_row(lesson.recordings[0].capacity)
    lines = -(-lesson.recordings[0].capacity // per_row)
    if figure is None:
        # a fixed layout: in a film nothing may move but what happens
        figure = Figure(figsize=(4.4 * max(systems, 2), 3.6 + 0.3 * min(lines, 10)))
        FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.085, right=0.98, top=0.86, bottom=0.2, hspace=0.3, wspace=0.22)
    grid = figure.add_gridspec(2, systems, height_ratios=[max(2.0, 0.3 * min(lines, 10)), 1.2])
    for i, recording in enumerate(lesson.recordings):
        frame = lesson.frame(i, step)
        pool = plot_pool(recording, frame, figure.add_subplot(grid[0, i]), per_row=per_row)
        waiting = len(recording.waiting(frame))
        pool.set_title(
            f"{_title(recording)}: {len(recording.running(frame))} running, {waiting} waiting", loc="left", fontsize=10
        )
        plot_shares(recording, figure.add_subplot(grid[1, i]), step=frame)
    figure.suptitle(f"{say(lesson.title)}, step {step} of {len(lesson.times_ns) - 1}", x=0.07, ha="left", fontsize=12)
    figure.legend(handles=legend_handles(), loc="lower center", ncols=len(KINDS), frameon=False, fontsize=9)
    return figure


def _per_row(capacity: int) -> int:
    """Return slots a line: a power of two that leaves a block of memory wider than high."""
    per_row = 16
    while -(-capacity // per_row) > max(8, per_row // 2):
        per_row *= 2
    return per_row


def animate(lesson: Lesson, path: Path, *, fps: float = 2.0, dpi: int = 80) -> int:
    """Write every step of a lesson as a GIF, or as an MP4 where ffmpeg is.

    Parameters
    ----------
    lesson : Lesson
        What was recorded.
    path : Path
        Ends in ``.gif`` or ``.mp4``.
    fps : float
        Steps a second.
    dpi : int
        Pixels an inch.

    Returns
    -------
    int
        Steps written.

    Raises
    ------
    ConfigError
        There are too many steps, the folder is not there, or an MP4 is asked for and ffmpeg is missing.
    """
    check_folder(path)
    if not 0.1 <= fps <= 60:
        raise ConfigError(f"fps is {fps}; a number from 0.1 to 60 is expected")
    steps = len(lesson.times_ns)
    if steps > MAX_FRAMES:
        raise ConfigError(f"{steps:,} steps are too many for a {path.suffix}: at most {MAX_FRAMES}; lower requests")
    writer = _writer(path, fps)
    figure = plot_lesson(lesson, 0)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        with mpl.rc_context({"savefig.bbox": None}), writer.saving(figure, str(temporary), dpi):
            for step in range(steps):
                figure.clear()
                plot_lesson(lesson, step, figure)
                writer.grab_frame()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return steps


def _writer(path: Path, fps: float) -> AbstractMovieWriter:
    if path.suffix.lower() == ".gif":
        return PillowWriter(fps=fps)  # type: ignore[arg-type]  # takes fractions too
    if not FFMpegWriter.isAvailable():
        raise ConfigError(f"{path}: an MP4 needs ffmpeg, which is not on the PATH; write a .gif instead")
    options: dict[str, Any] = {"fps": fps, "codec": "libx264", "extra_args": ["-pix_fmt", "yuv420p"]}
    options["extra_args"] += ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
    return FFMpegWriter(**options)
