"""The shell: SimPy owns time, the server is one process of it.

The server repeats *advance until the next thing that SimPy knows of*. Requests known beforehand are handed to the
stepper as columns; clients that react to results are SimPy processes of the user's own::

    def client(env, server):
        for turn in range(3):
            request = yield server.submit(prompt=100, output=50)   # waits for the result
            yield env.timeout(2_000_000_000)                       # thinks for two seconds (time is in nanoseconds)

    simulate(clients=lambda env, server: [env.process(client(env, server)) for _ in range(8)], ...)
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy

from kvsim import _kernels as k
from kvsim.engine.leap import Leap
from kvsim.engine.step import Step

# after everything else that happens at the same instant, so that what is sent at an instant is seen at that instant
LAST_OF_ALL = simpy.events.EventPriority(2)

Progress = Callable[[int, int], None]


class Server:
    """A simulated server, as its clients see it.

    Parameters
    ----------
    env : simpy.Environment
        Its clock is in integer nanoseconds.
    stepper : Step or Leap
        What runs the iterations.
    budget : int
        Iterations between two reports of progress; results do not depend on it.
    progress : callable, optional
        Called with (requests finished, nanoseconds simulated).
    """

    def __init__(
        self, env: simpy.Environment, stepper: Step | Leap, budget: int, progress: Progress | None = None
    ) -> None:
        self.env = env
        self.stepper = stepper
        self._budget = budget
        self._progress = progress
        self._told: dict[int, simpy.Event] = {}
        self._wake: simpy.Event | None = None

    def submit(self, prompt: int, output: int) -> simpy.Event:
        """Send a request now.

        Parameters
        ----------
        prompt, output : int
            Lengths in tokens.

        Returns
        -------
        simpy.Event
            Fires with the request's index when the result is there, or at once if the request is rejected.
        """
        request = self.stepper.submit(prompt, output, int(self.env.now))
        event = self.env.event()
        if self.stepper.setup.status_of(prompt, output) != k.PENDING:
            return event.succeed(request)
        self._told[request] = event
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()
        return event

    def serve(self) -> Generator[simpy.Event, Any, None]:
        """Run for ever: the server's process."""
        while True:
            state = self.stepper.advance(self._horizon(), self._budget)
            if state == k.COMPLETED:
                yield self._sleep_until(self.stepper.now)
                completed, self.stepper.completed = self.stepper.completed, []
                for request in completed:
                    self._told.pop(request).succeed(request)
                yield self._sleep_until(self.stepper.now)
            elif state == k.SLEEPING:
                yield self._sleep_until(self.stepper.until)
            elif state == k.REACHED:
                yield self._sleep_until(self._horizon())
            elif state == k.IDLE:
                self._wake = self.env.event()
                yield self._wake
                yield self._sleep_until(int(self.env.now))
            elif self._progress is not None:
                self._progress(self.stepper.finished, self.stepper.now)

    def _horizon(self) -> int:
        """The next instant at which SimPy has something to do."""
        instant = self.env.peek()
        return k.FOREVER if instant == float("inf") else int(instant)

    def _sleep_until(self, instant: int) -> simpy.Event:
        """Return an event after all others of an instant."""
        event = self.env.event()
        event._ok, event._value = True, None
        self.env.schedule(event, priority=LAST_OF_ALL, delay=max(0, instant - self.env.now))
        return event
