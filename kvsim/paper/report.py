"""What reproducing an item of the paper gives: rows of published and simulated numbers, a figure, notes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from matplotlib.figure import Figure

Tag = Literal["exact", "derived", "calibrated", "known-deviation"]
Unit = Literal["points", "percent", "factor"]

REPRODUCED = ("exact", "derived")  # tags that count as reproduced where the number is within its tolerance


@dataclass(frozen=True)
class Row:
    """A published number beside the simulated one.

    Attributes
    ----------
    item, quantity : str
        Where it is published, and what it is.
    published, simulated : float
        The two numbers.
    tolerance : float
        Most of ``deviation`` that is within; in its unit.
    unit : {"points", "percent", "factor"}
        Of the deviation: the difference; the relative difference in percent; or the ratio less 1, where a tolerance of
        0.5 allows a factor of 1.5 either way.
    tag : {"exact", "derived", "calibrated", "known-deviation"}
        Arithmetic; predicted; what a constant was fitted to; or known to differ.
    note : str
        What was tried, or how to read it.
    """

    item: str
    quantity: str
    published: float
    simulated: float
    tolerance: float
    unit: Unit = "percent"
    tag: Tag = "derived"
    note: str = ""

    @property
    def deviation(self) -> float:
        """Simulated against published, in the row's unit."""
        if self.unit == "points":
            return self.simulated - self.published
        relative = self.simulated / self.published - 1
        return 100 * relative if self.unit == "percent" else relative

    @property
    def within(self) -> bool:
        """Whether the deviation is at most the tolerance."""
        if self.unit != "factor":
            return abs(self.deviation) <= self.tolerance
        if self.simulated <= 0:
            return False
        return abs(math.log(self.simulated / self.published)) <= math.log1p(self.tolerance)

    @property
    def reproduced(self) -> bool:
        """Whether the number was predicted, and came out."""
        return self.within and self.tag in REPRODUCED

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {
            "item": self.item,
            "quantity": self.quantity,
            "published": self.published,
            "simulated": self.simulated,
            "deviation": self.deviation,
            "unit": self.unit,
            "tolerance": self.tolerance,
            "within": self.within,
            "tag": self.tag,
            "reproduced": self.reproduced,
            "note": self.note,
        }


@dataclass
class Reproduction:
    """One item reproduced.

    Attributes
    ----------
    item, title : str
        Its name on the command line, and what it shows.
    rows : list of Row
        Numbers.
    draw : callable, optional
        Draws the figure, published beside simulated.
    notes : list of str
        Constants, what they were fitted to, what to make of it.
    seconds : float
        How long it took.
    """

    item: str
    title: str
    rows: list[Row]
    draw: Callable[[], Figure] | None = None
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
