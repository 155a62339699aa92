"""Users in a closed loop, as SimPy processes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

import simpy

from kvsim.generate.sessions import Turn
from kvsim.requests import NS_PER_S

if TYPE_CHECKING:
    from kvsim.engine.shell import Server

Clients = Callable[[simpy.Environment, "Server"], Any]


def session_clients(users: Iterable[Iterable[Turn]], duration_s: float) -> Clients:
    """Return clients that ask, wait for the answer, think, and ask again with all that was said before.

    Parameters
    ----------
    users : iterable of iterable of Turn
        What each of them does; see ``kvsim.generate.sessions``.
    duration_s : float
        Nobody asks after this time; what was asked is still answered.
    """
    end = round(duration_s * NS_PER_S)

    def start(env: simpy.Environment, server: Server) -> list[simpy.Process]:
        return [env.process(_user(env, server, turns, end)) for turns in users]

    return start


def _user(env: simpy.Environment, server: Server, turns: Iterable[Turn], end: int) -> Generator[simpy.Event, Any, None]:
    for turn in turns:
        yield env.timeout(turn.think_ns)
        if env.now > end:
            return
        yield server.submit(turn.prompt, turn.output)
