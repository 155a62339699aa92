"""What the vLLM paper prints and draws: curves, and where they cross a latency.

The points are read off the vector graphics of arXiv 2309.06180v1; ``published.json`` holds them.
"""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

Curve = list[tuple[float, float]]

SYSTEMS = ("fastertransformer", "max", "pow2", "oracle", "paged")
ORCA = ("max", "pow2", "oracle")


class Panel(NamedTuple):
    """A panel of Figure 12: what was served, how, and for how long."""

    model: str
    gpu: str
    workload: str
    duration_s: float


PANELS = {
    "fig12a": Panel("OPT-13B", "A100-40GB", "sharegpt", 3600),
    "fig12b": Panel("OPT-66B", "4xA100-40GB", "sharegpt", 3600),
    "fig12c": Panel("OPT-175B", "8xA100-80GB", "sharegpt", 900),
    "fig12d": Panel("OPT-13B", "A100-40GB", "alpaca", 3600),
    "fig12e": Panel("OPT-66B", "4xA100-40GB", "alpaca", 3600),
    "fig12f": Panel("OPT-175B", "8xA100-80GB", "alpaca", 900),
}


@functools.cache
def published() -> dict[str, Any]:
    """Return everything in ``published.json``."""
    table: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
    return table


def curve(panel: str, system: str) -> Curve:
    """Return the points (requests/s, s/token) of a system in a panel of Figure 12."""
    return [(rate, latency) for rate, latency in published()[panel][system]]


def crossing(points: Curve, latency_s: float) -> float:
    """Return the rate at which a drawn curve first crosses a latency, on the straight line between its points.

    Raises
    ------
    ValueError
        It does not.
    """
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if y0 <= latency_s <= y1:
            return x0 + (x1 - x0) * (latency_s - y0) / (y1 - y0)
    raise ValueError(f"the curve does not cross {latency_s} s/token")


def published_rate(panel: str, system: str, latency_s: float = 0.5) -> float:
    """Return the rate in requests/s at which a system's drawn curve crosses a normalized latency."""
    return crossing(curve(panel, system), latency_s)


def low_load(panel: str, system: str, share: float = 0.6) -> Curve:
    """Return the points of a curve at rates of at most ``share`` of its rate at 0.5 s/token."""
    limit = share * published_rate(panel, system)
    return [(rate, latency) for rate, latency in curve(panel, system) if rate <= limit]
