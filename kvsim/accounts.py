"""The accounts of a run: integrals over time, counters, and copies of both at the edges of bins and windows.

Everything here is an exact integer. An engine keeps seven integrals (slots x ns and requests x ns) and some counters;
the five shares of the ledger follow from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from kvsim.errors import InvariantError


class Totals(NamedTuple):
    """Accounts at an instant: integrals since time 0 (the first seven), times and counts."""

    used: int
    promised: int
    requested: int
    held: int
    blocked: int
    running: int
    waiting: int
    by_memory: int
    by_seqs: int
    by_budget: int
    iterations: int
    sequences: int
    generated: int
    admissions: int
    preemptions: int
    recomputed: int
    finished: int

    def minus(self, other: Totals) -> Totals:
        """Return what was added since ``other``."""
        return Totals(*(a - b for a, b in zip(self, other, strict=True)))


ZERO = Totals(*[0] * len(Totals._fields))


class Ledger(NamedTuple):
    """Where the slots of the pool are: five numbers that sum to the capacity (times a duration, for an integral)."""

    used: int
    reserved: int
    internal: int
    external: int
    free: int


def ledger(totals: Any, *, capacity: int, lost: int, duration: int = 1) -> Ledger:
    """Split the pool.

    Parameters
    ----------
    totals : object
        With ``used``, ``promised``, ``requested``, ``held`` and ``blocked`` slots (or slots x ns).
    capacity, lost : int
        Slots of the pool, and of those the ones that fill no whole block.
    duration : int
        Nanoseconds over which ``totals`` were integrated.
    """
    external = totals.held - totals.requested + totals.blocked + lost * duration
    free = (capacity - lost) * duration - totals.held - totals.blocked
    reserved = totals.promised - totals.used
    return Ledger(totals.used, reserved, totals.requested - totals.promised, external, free)


def check_ledger(split: Ledger, *, capacity: int, duration: int = 1) -> None:
    """Hold the five parts to their sum, and each to its sign.

    Raises
    ------
    InvariantError
        The parts do not sum to the capacity, or one is negative.
    """
    if sum(split) != capacity * duration:
        raise InvariantError("sum of the ledger", expected=capacity * duration, found=sum(split))
    if min(split) < 0:
        raise InvariantError("sign of the ledger", expected="no part negative", found=split)


@dataclass
class Accounts:
    """The accounts of a finished run.

    Attributes
    ----------
    end_ns : int
        When the run ended.
    total : Totals
        The accounts then.
    width_ns : int
        Width of a timeline bin.
    timeline : list of Totals
        The accounts at 0, width, 2 x width, ... up to the last whole bin.
    marks_ns : list of int
        Instants at which the accounts were copied besides, in the order of time.
    marked : list of Totals
        Those copies.
    """

    end_ns: int
    total: Totals
    width_ns: int
    timeline: list[Totals]
    marks_ns: list[int]
    marked: list[Totals]
