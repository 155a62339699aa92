"""Closed-loop sessions: users who wait for an answer, think, and ask again with all that was said before.

This module says what a user does; it knows no clock. Whoever runs the users (the engine, as SimPy processes) takes
each one's next turn, waits ``think_ns`` after the answer to the turn before, and submits the request.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from kvsim.generate.lengths import Marginal, Table, Tokens, tabulate
from kvsim.requests import NS_PER_S, IntArray

BATCH = 64


class Turn(NamedTuple):
    """One request of a user.

    Attributes
    ----------
    think_ns : int
        Time after the answer to the turn before (for the very first, after time 0), in nanoseconds.
    prompt, output : int
        Lengths in tokens; the prompt holds the whole conversation so far.
    opens : bool
        The turn opens a new conversation: nothing of its prompt was said before.
    """

    think_ns: int
    prompt: int
    output: int
    opens: bool


class Sessions(Table):
    """What a user does, over and over.

    Attributes
    ----------
    users : int
        How many there are at a time, unless the caller says otherwise.
    turns : Marginal
        Turns a conversation.
    first_prompt, added : Marginal
        Tokens of a conversation's first prompt (system prompt included), and tokens that each later turn adds to what
        was said before.
    output : Marginal
        Tokens of an answer.
    think_s : Marginal
        Seconds between an answer and the next turn; drawn to the second and spread evenly within it.
    between_s : Marginal, optional
        Seconds between two conversations of a user; ``think_s`` where absent.
    max_context : int
        A conversation whose next turn would outgrow it (prompt + output) ends there, and the user opens a new one.
    """

    users: Annotated[int, Field(ge=1)] = 16
    turns: Marginal
    first_prompt: Marginal
    added: Marginal
    output: Marginal
    think_s: Marginal
    between_s: Marginal | None = None
    max_context: Tokens

    @model_validator(mode="after")
    def _opens(self) -> Sessions:
        shortest = tabulate(self.first_prompt).first + tabulate(self.output).first
        if shortest > self.max_context:
            raise ValueError(f"max_context ({self.max_context}) leaves no room for a first turn")
        return self

    def user(self, rng: np.random.Generator) -> Iterator[Turn]:
        """Yield the turns of one user for ever, conversation after conversation.

        Parameters
        ----------
        rng : numpy.random.Generator
            This user's own: what a user does depends neither on the others nor on when turns are served.
        """
        turns, first, added, output, think, between = (
            _endless(marginal, child)
            for marginal, child in zip(
                (self.turns, self.first_prompt, self.added, self.output, self.think_s, self.between_s or self.think_s),
                rng.spawn(6),
                strict=True,
            )
        )
        within = _fractions(rng)
        while True:
            pause, prompt = between, 0
            for turn in range(next(turns)):
                answer = next(output)
                prompt += next(first) if turn == 0 else next(added)
                if prompt + answer > self.max_context:
                    break
                yield Turn(round((next(pause) - next(within)) * NS_PER_S), prompt, answer, opens=turn == 0)
                pause, prompt = think, prompt + answer


def _endless(marginal: Marginal, rng: np.random.Generator) -> Iterator[int]:
    table = tabulate(marginal)
    while True:
        yield from table.quantile(rng.random(BATCH)).tolist()


def _fractions(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(BATCH).tolist()


def open_loop(users: list[Iterator[Turn]], num_requests: int | None, duration_s: float | None) -> IntArray:
    """Return what users would ask of a server that answers at once.

    Parameters
    ----------
    users : list of iterator of Turn
        One a user; all start at time 0.
    num_requests, duration_s : optional
        When to end, whichever comes first.

    Returns
    -------
    int64 array, shape (n, 3)
        Arrival in nanoseconds, prompt and output, by time.
    """
    merged: Iterable[tuple[int, ...]] = heapq.merge(*(_clocked(user, number) for number, user in enumerate(users)))
    if duration_s is not None:
        end = round(duration_s * NS_PER_S)
        merged = itertools.takewhile(lambda row: row[0] <= end, merged)
    rows = [(row[0], row[2], row[3]) for row in itertools.islice(merged, num_requests)]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _clocked(user: Iterator[Turn], number: int) -> Iterator[tuple[int, ...]]:
    now = 0
    for turn in user:
        now += turn.think_ns
        yield now, number, turn.prompt, turn.output
