"""Step times as someone measured them, interpolated."""

from __future__ import annotations

import csv
import itertools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kvsim import _kernels
from kvsim.errors import ConfigError, TraceError, unknown
from kvsim.latency.base import FloatArray, evaluate

AXES = ("batch", "prefill_tokens", "context_tokens")
TIME = "ms"


@dataclass(frozen=True)
class Measured:
    """Times of iterations on a grid, linear between its points and on from its last two.

    Attributes
    ----------
    batch, prefill_tokens, context_tokens : tuple of float
        Axes of the grid, ascending. The time does not depend on one that has a single value.
    times_ns : array of float, shape (len(batch), len(prefill_tokens), len(context_tokens))
        Nanoseconds, at least 1.
    origin, source : str
        As in ``Affine``.

    Raises
    ------
    ConfigError
        An axis does not ascend, the shapes differ, or a time is not positive.
    """

    batch: tuple[float, ...]
    prefill_tokens: tuple[float, ...]
    context_tokens: tuple[float, ...]
    times_ns: FloatArray
    origin: str = "measured"
    source: str = "the caller"
    parameters: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        axes = (self.batch, self.prefill_tokens, self.context_tokens)
        shape = tuple(len(axis) for axis in axes)
        for name, axis in zip(AXES, axes, strict=True):
            if not axis or any(a >= b for a, b in itertools.pairwise(axis)) or axis[0] < 0:
                raise ConfigError(f"{name}: values that ascend from 0 or more are expected, not {list(axis)}")
        times = np.asarray(self.times_ns, dtype=np.float64)
        if times.shape != shape:
            raise ConfigError(f"step times of shape {times.shape} on axes of lengths {shape}")
        if not np.isfinite(times).all() or (times < 1).any():
            raise ConfigError("step times must be finite and at least 1 ns")
        flat = [[_kernels.MEASURED, *shape], *axes, times.ravel()]
        object.__setattr__(self, "parameters", np.concatenate([np.asarray(part, dtype=np.float64) for part in flat]))

    def __call__(self, batch: int, prefill_tokens: int, context_tokens: int) -> int:
        """Return the interpolated time, at least 1 ns."""
        return evaluate(self.parameters, batch, prefill_tokens, context_tokens)

    def describe(self) -> str:
        """Return what the grid spans, and where it comes from."""
        axes = zip(AXES, (self.batch, self.prefill_tokens, self.context_tokens), strict=True)
        spans = [f"{name} {axis[0]:g} to {axis[-1]:g} ({len(axis)})" for name, axis in axes if len(axis) > 1]
        over = ", ".join(spans) or "a single point"
        return f"measured step times over {over} ({self.origin}: {self.source})"


def read_step_times(path: str | Path) -> Measured:
    """Read step times from a CSV file.

    Parameters
    ----------
    path : str or Path
        Columns ``ms`` and any of ``batch``, ``prefill_tokens``, ``context_tokens``, in any order; what has no column
        costs no time. The rows form a full grid: every combination of the values that occur, once.

    Raises
    ------
    TraceError
        Naming file, line and field.
    """
    name = str(path)
    rows = _rows(name)
    given = [axis for axis in AXES if axis in rows[0][1]]
    axes = [tuple(sorted({row[axis] for _, row in rows})) if axis in given else (0.0,) for axis in AXES]
    times: dict[tuple[float, ...], float] = {}
    for line, row in rows:
        place = tuple(row.get(axis, 0.0) for axis in AXES)
        if place in times:
            raise TraceError(f"{_named(place, given)} is there twice", file=name, line=line)
        times[place] = row[TIME] * 1e6
    grid = list(itertools.product(*axes))
    for place in grid:
        if place not in times:
            raise TraceError(f"no row for {_named(place, given)}: a full grid is expected", file=name)
    values = np.array([times[place] for place in grid]).reshape([len(axis) for axis in axes])
    return Measured(axes[0], axes[1], axes[2], values, source=f"file {Path(path).name}")


def _named(place: tuple[float, ...], given: list[str]) -> str:
    return ", ".join(f"{axis} {value:g}" for axis, value in zip(AXES, place, strict=True) if axis in given)


def _rows(name: str) -> list[tuple[int, dict[str, float]]]:
    """Read the lines of a CSV file as numbers, each with its line number."""
    try:
        with Path(name).open(encoding="utf-8-sig", newline="") as file:
            table = list(csv.reader(file))
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", file=name) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"not a CSV file: {error}", file=name) from None
    if not table or not table[0]:
        raise TraceError(f"empty; a header with {TIME} and any of {', '.join(AXES)} is expected", file=name)
    header = [cell.strip() for cell in table[0]]
    for column in header:
        if column not in (*AXES, TIME):
            raise TraceError(str(unknown("column", column, (*AXES, TIME))), file=name, line=1)
    if len(set(header)) < len(header) or TIME not in header:
        raise TraceError(f"one column {TIME} is expected, and no column twice", file=name, line=1)
    rows = [(line, _row(name, line, header, row)) for line, row in enumerate(table[1:], start=2) if row]
    if not rows:
        raise TraceError("no rows", file=name)
    return rows


def _row(name: str, line: int, header: list[str], cells: list[str]) -> dict[str, float]:
    if len(cells) != len(header):
        raise TraceError(f"{len(header)} cells are expected, not {len(cells)}", file=name, line=line)
    return {column: _number(name, line, column, cell) for column, cell in zip(header, cells, strict=True)}


def _number(name: str, line: int, column: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    least = 1e-6 if column == TIME else 0.0
    if not least <= value < float("inf"):
        what = "milliseconds above 0" if column == TIME else "a number from 0 up"
        raise TraceError(f"{what} expected, not {cell!r}", file=name, line=line, field=column)
    return value
