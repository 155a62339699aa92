"""ServeGen: clients described by their request rates and lengths, window by window.

These files hold no requests; ``kvsim.generate.clients`` draws requests from them. The rates have a header here
(``client,window_start_s,rate,cv,pattern,param1,param2``); ServeGen itself keeps a file without one for each client.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvsim.errors import TraceError
from kvsim.requests import IntArray
from kvsim.traces.formats import LENGTH_KEYS, RATE_COLUMNS
from kvsim.traces.objects import objects
from kvsim.traces.source import Source, open_source
from kvsim.traces.table import header_of

SHAPE = "param1"  # of gamma and of Weibull gaps alike; param2 is the scale, which follows from the rate
_ENTRY = re.compile(r"(\d+)(?:\.\d+)?: ([0-9.eE+-]+)")


class Window(NamedTuple):
    """What a client does from ``start_s`` until its next window.

    ``pattern`` is "gamma" or "weibull", the distribution of its gaps, with ``shape``; ``rate`` is in requests a second.
    """

    start_s: float
    rate: float
    pattern: str
    shape: float


class LengthWindow(NamedTuple):
    """Lengths of a client's requests from ``start_s`` on: values and running sums of their probabilities."""

    start_s: float
    prompt: tuple[IntArray, npt.NDArray[np.float64]]
    output: tuple[IntArray, npt.NDArray[np.float64]]


def read_client_rates(path: str | Path) -> dict[str, list[Window]]:
    """Read the rates of clients.

    Returns
    -------
    dict of str to list of Window
        By client, windows in order of time.

    Raises
    ------
    TraceError
        The file is something else, or a row cannot be read.
    """
    source = open_source(path)
    missing = sorted(RATE_COLUMNS - set(header_of(source)))
    if missing:
        raise TraceError(f"no client rates: there is no column {missing[0]!r}", file=source.path, line=1)
    clients: dict[str, list[Window]] = {}
    for line, row in _rows(source):
        clients.setdefault(row["client"], []).append(_window(row, source.path, line))
    for windows in clients.values():
        windows.sort()
    return clients


def _rows(source: Source) -> Iterator[tuple[int, dict[str, str]]]:
    lines = (line.decode("utf-8", "replace") for _, line in source.lines())
    reader = csv.DictReader(lines, restval="")
    try:
        for row in reader:
            yield reader.line_num, {key: str(value) for key, value in row.items()}
    except csv.Error as error:
        raise TraceError(f"not CSV ({error})", file=source.path, line=reader.line_num) from None


def _window(row: dict[str, str], path: str, line: int) -> Window:
    rate = _number(row, "rate", path, line)
    pattern = row["pattern"].lower()
    if rate > 0 and pattern not in ("gamma", "weibull"):
        raise TraceError(f"{row['pattern']!r} is neither Gamma nor Weibull", file=path, line=line, field="pattern")
    shape = _number(row, SHAPE, path, line)
    if rate > 0 and shape <= 0:
        raise TraceError(f"{row[SHAPE]!r} is no shape", file=path, line=line, field=SHAPE)
    return Window(_number(row, "window_start_s", path, line), rate, pattern, shape)


def _number(row: dict[str, str], name: str, path: str, line: int) -> float:
    try:
        value = float(row.get(name, ""))
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise TraceError(f"{row.get(name)!r} is not a number from 0 up", file=path, line=line, field=name)
    return value


def read_client_lengths(path: str | Path) -> dict[str, list[LengthWindow]]:
    """Read the lengths of clients; windows without any are left out.

    Raises
    ------
    TraceError
        The file is something else, or a value cannot be read.
    """
    source = open_source(path)
    clients: dict[str, list[LengthWindow]] = {}
    for line, item in objects(source):
        missing = sorted(LENGTH_KEYS - set(item))
        if missing:
            raise TraceError("is missing: no lengths of clients", file=source.path, line=line, field=missing[0])
        prompt = _distribution(item["input_tokens"], source.path, line, "input_tokens")
        output = _distribution(item["output_tokens"], source.path, line, "output_tokens")
        if len(prompt[0]) and len(output[0]):
            start = _number({"window_start_s": str(item["window_start_s"])}, "window_start_s", source.path, line)
            clients.setdefault(str(item["client"]), []).append(LengthWindow(start, prompt, output))
    for windows in clients.values():
        windows.sort(key=lambda window: window.start_s)
    return clients


def _distribution(text: object, path: str, line: int, key: str) -> tuple[IntArray, npt.NDArray[np.float64]]:
    """Return values and running sums of a distribution that is written as ``{tokens: probability, ...}``."""
    pairs = _ENTRY.findall(str(text))
    try:
        values = np.array([max(1, int(value)) for value, _ in pairs], dtype=np.int64)
        weights = np.array([float(weight) for _, weight in pairs], dtype=np.float64)
    except (ValueError, OverflowError):
        raise TraceError("not a distribution like {12: 0.5, 13: 0.5}", file=path, line=line, field=key) from None
    if len(pairs) != str(text).count(":") or (len(pairs) and not weights.sum() > 0):
        raise TraceError("not a distribution like {12: 0.5, 13: 0.5}", file=path, line=line, field=key)
    running = np.cumsum(weights)
    return values, running / running[-1] if len(running) else running
