"""Accounts kept in Python integers."""

from __future__ import annotations

from typing import Protocol

from kvsim.accounts import ZERO, Accounts, Totals

FIRST_WIDTH_NS = 1_000_000


class Queue(Protocol):
    """What the keeper sees of a queue."""

    waiting: int
    next_arrival: int

    def arrive(self, until: int) -> int:
        """Count the requests that came by a time as waiting; return how long they have waited in all, in ns."""


class Keeper:
    """Keeps accounts in Python integers: the plain statement of what the compiled engine does in limbs.

    Parameters
    ----------
    queue : Queue
        Whose requests come while time passes.
    marks_ns : list of int
        Instants at which to copy the accounts.
    bins : int
        Most bins of the timeline, an even number.
    """

    def __init__(self, queue: Queue, marks_ns: list[int], bins: int) -> None:
        self.now = 0
        self.values = [0] * len(ZERO)
        self.width = FIRST_WIDTH_NS
        self.timeline = [ZERO]
        self.marks_ns = list(marks_ns)
        self.marked: list[Totals] = []
        self._bins = bins
        self._queue = queue
        self._find_edge()

    def accrue(self, until: int, rates: tuple[int, ...], bound: int) -> None:
        """Bring the accounts forward to a time, the state having been constant since they were last, cut at the edges.

        ``rates`` are slots used, promised, requested, held, blocked, and requests running; ``bound`` is the index of
        the time that the stretch is booked to, or -1. An edge at ``until`` itself waits for the next call, so that a
        copy holds what happened at its own instant.
        """
        while self.edge < until:
            self._stretch(self.edge, rates, bound)
            self.copy()
        self._stretch(until, rates, bound)

    def _stretch(self, until: int, rates: tuple[int, ...], bound: int) -> None:
        ns = until - self.now
        used, promised, requested, held, blocked, running = rates
        values, queue = self.values, self._queue
        values[0] += used * ns
        values[1] += promised * ns
        values[2] += requested * ns
        values[3] += held * ns
        values[4] += blocked * ns
        values[5] += running * ns
        values[6] += queue.waiting * ns
        if queue.next_arrival <= until:
            values[6] += queue.arrive(until)
        if bound >= 0:
            values[bound] += ns
        self.now = until

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
