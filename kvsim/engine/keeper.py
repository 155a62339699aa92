"""Accounts kept in Python integers."""

from __future__ import annotations

from typing import Any

from kvsim.accounts import ZERO, Accounts, Totals

FIRST_WIDTH_NS = 1_000_000


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

        ``rates`` are slots used, promised, requested, held, blocked, then requests running and waiting; ``bound`` is
        the index of the time that the stretch is booked to, or -1. An edge at ``until`` itself waits for the next call,
        so that a copy holds what happened at its own instant.
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
