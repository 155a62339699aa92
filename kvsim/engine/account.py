"""The accounts of a run: integrals over time, counters, and copies of both at the edges of bins and windows.

Everything here is an exact integer. The engine keeps seven integrals (slots x ns and requests x ns) and some counters;
the five shares of the ledger follow from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kvsim import _kernels as k
from kvsim.errors import InvariantError

FIRST_WIDTH_NS = 1_000_000


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


def from_arrays(run: k.Run) -> Accounts:
    """Read the accounts of a compiled run."""
    clock = run.clock
    bins = int(clock[k.NUM_BINS_DONE])
    num_marked = int(clock[k.NEXT_MARK])
    if clock[k.BACKLOG]:
        num_marked = int(np.count_nonzero(run.marks != k.FOREVER))
    paged = clock[k.PLACED] == k.PAGED
    return Accounts(
        end_ns=int(clock[k.ACCOUNTED]),
        total=_totals(run.account, paged),
        width_ns=int(clock[k.WIDTH]),
        timeline=[_totals(row, paged) for row in run.timeline[: bins + 1]],
        marks_ns=[int(mark) for mark in run.marks[:num_marked]],
        marked=[_totals(row, paged) for row in run.marked[:num_marked]],
    )


def _totals(row: Any, paged: bool) -> Totals:
    """Join the limbs of a row of accounts; a paged pool holds just what is requested."""
    values = row.tolist()
    counters = 2 * k.NUM_INTEGRALS
    integrals = [values[i] * k.LIMB + values[i + 1] for i in range(0, counters, 2)]
    totals = Totals(*integrals, *values[counters:])
    return totals._replace(requested=totals.held) if paged else totals


class Keeper:
    """Keeps accounts in Python integers: the plain statement of what the compiled engine does in limbs.

    Parameters
    ----------
    arrivals : object
        With ``arrive(until)``, called for every stretch, which returns (requests that came, their waiting in ns).
    marks_ns : list of int
        Instants at which to copy the accounts.
    bins : int
        Most bins of the timeline, an even number.
    """

    def __init__(self, arrivals: Any, marks_ns: list[int], bins: int) -> None:
        self.now = 0
        self.values = [0] * len(ZERO)
        self.width = FIRST_WIDTH_NS
        self.timeline = [ZERO]
        self.marks_ns = list(marks_ns)
        self.marked: list[Totals] = []
        self._bins = bins
        self._arrivals = arrivals
        self._find_edge()

    def accrue(self, until: int, rates: tuple[int, ...], bound: int) -> None:
        """Bring the accounts forward to a time, the state having been constant since they were last.

        ``rates`` are slots used, promised, requested, held, blocked, then requests running and waiting; ``bound`` is the
        index of the time that the stretch is booked to, or -1. An edge at ``until`` itself waits for the next call, so
        that a copy holds what happened at its own instant.
        """
        waiting = rates[6]
        while self.now < until:
            if self.edge == self.now:
                self.copy()
                continue
            cut = min(until, self.edge)
            ns = cut - self.now
            came, waited = self._arrivals.arrive(cut)
            values = self.values
            for i in range(6):
                values[i] += rates[i] * ns
            values[6] += waiting * ns + waited
            waiting += came
            if bound >= 0:
                values[bound] += ns
            self.now = cut

    def copy(self) -> None:
        """Copy the accounts at an edge; when the timeline is full, keep every second copy and double the width."""
        if self.edge == len(self.timeline) * self.width:
            self.timeline.append(Totals(*self.values))
            if len(self.timeline) > self._bins:
                self.timeline = self.timeline[::2]
                self.width *= 2
        while len(self.marked) < len(self.marks_ns) and self.marks_ns[len(self.marked)] == self.edge:
            self.marked.append(Totals(*self.values))
        self._find_edge()

    def mark(self) -> None:
        """Copy the accounts at this instant."""
        self.marks_ns.append(self.now)
        self.marked.append(Totals(*self.values))

    def close(self) -> Accounts:
        """Return the finished accounts."""
        if self.edge == self.now:
            self.copy()
        marks = self.marks_ns[: len(self.marked)]
        return Accounts(self.now, Totals(*self.values), self.width, self.timeline, marks, self.marked)

    def _find_edge(self) -> None:
        self.edge = len(self.timeline) * self.width
        if len(self.marked) < len(self.marks_ns):
            self.edge = min(self.edge, self.marks_ns[len(self.marked)])
