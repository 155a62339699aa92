"""One seam for parallelism: a ``concurrent.futures.Executor``.

``run_units`` calls a function on many units and tells of each result as it comes. The units may be run in this process,
by threads (the kernels release the GIL), by processes, or on a Dask cluster: results do not depend on it. A worker
process that dies takes the pool with it; the units that were in flight then are run again, and from the second time on
alone, so that one that kills its worker is found out.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kvsim.errors import ConfigError, KvsimError, unknown

KINDS = ("serial", "processes", "threads", "dask")
MOST_ATTEMPTS = 3
AHEAD = 4  # units in flight for each worker

Unit = TypeVar("Unit")


class WorkerDiedError(KvsimError, RuntimeError):
    """A unit was in flight each time that its worker died."""


@dataclass(frozen=True)
class Workers:
    """Who runs the units.

    Attributes
    ----------
    kind : {"serial", "processes", "threads", "dask"}
        ``serial``: this process.
    jobs : int
        Processes or threads.
    address : str, optional
        Of a Dask scheduler.

    Raises
    ------
    ConfigError
        The kind is unknown, there are no workers, or Dask has no address.
    """

    kind: str = "serial"
    jobs: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("kind of workers", self.kind, KINDS)
        if self.jobs < 1:
            raise ConfigError(f"at least one job is expected, not {self.jobs}")
        if (self.kind == "dask") != (self.address is not None):
            raise ConfigError("Dask workers and the address of their scheduler come together")

    @contextmanager
    def executor(self) -> Iterator[Executor]:
        """Start an executor, and stop it without waiting for what has not begun."""
        if self.kind == "dask":
            with _dask(str(self.address)) as executor:
                yield executor
            return
        executor = self._start()
        try:
            yield executor
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> ThreadPoolExecutor | ProcessPoolExecutor:
        if self.kind == "threads":
            return ThreadPoolExecutor(self.jobs)
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_end_with_parent)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """Connect to a Dask cluster."""
    try:
        import distributed
    except ImportError:
        raise ConfigError("Dask is not installed: pip install 'kvsim[dask]'") from None
    connect: Any = distributed.Client
    try:
        client: Any = connect(address, timeout=10, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(f"no Dask scheduler at {address}: {str(error) or type(error).__name__}") from None
    executor: Executor = client.get_executor(pure=False)
    try:
        yield executor
    finally:
        executor.shutdown(wait=False)
        client.close()


def _end_with_parent() -> None:
    """Let a worker process end with the one that started it, however that ends, and leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=[parent], daemon=True).start()


def _end_after(parent: Any) -> None:
    parent.join()
    os._exit(1)


def run_units(
    function: Callable[[Unit], Any],
    units: Iterable[Unit],
    workers: Workers,
    done: Callable[[int, Any], None],
    died: Callable[[int, WorkerDiedError], None] | None = None,
) -> None:
    """Call a function on units, and tell of each result.

    Parameters
    ----------
    function : callable
        Of one unit; at the top level of a module, as are the units, so that they can be sent to another process. What
        it raises is raised here.
    units : iterable
        What to run.
    workers : Workers
        Who runs them.
    done : callable
        Called with (position of the unit, result), in the order in which they finish.
    died : callable, optional
        Called with (position, error) for a unit whose worker died each time; without it the error is raised.
    """
    listed = list(units)
    if workers.kind == "serial":
        for position, unit in enumerate(listed):
            done(position, function(unit))
        return
    attempts = [0] * len(listed)
    left = set(range(len(listed)))
    while left:
        suspects = sorted(position for position in left if attempts[position])
        round_ = _Round(function, listed, suspects or sorted(left), workers, 1 if suspects else workers.jobs * AHEAD)
        left -= round_.run(done)
        for position in round_.lost:
            attempts[position] += 1
            if attempts[position] < MOST_ATTEMPTS:
                continue
            left.discard(position)
            error = WorkerDiedError(f"its worker died {MOST_ATTEMPTS} times")
            if died is None:
                raise error
            died(position, error)


class _Round:
    """Units run in one executor, until they are done or the executor breaks."""

    def __init__(
        self, function: Callable[[Unit], Any], units: list[Unit], positions: list[int], workers: Workers, ahead: int
    ) -> None:
        self._function, self._units, self._workers, self._ahead = function, units, workers, ahead
        self._waiting = deque(positions)
        self._flying: dict[Future[Any], int] = {}
        self.lost: list[int] = []

    def run(self, done: Callable[[int, Any], None]) -> set[int]:
        """Return the positions of units that are done; ``lost`` holds those in flight when the executor broke."""
        finished: set[int] = set()

        def tell(future: Future[Any]) -> None:
            position = self._flying[future]
            result = future.result()
            del self._flying[future]
            finished.add(position)
            done(position, result)

        with self._workers.executor() as executor:
            try:
                while self._waiting or self._flying:
                    self._submit(executor)
                    for future in wait(self._flying, return_when=FIRST_COMPLETED).done:
                        tell(future)
            except Exception as error:
                if not _is_death(error):
                    raise
                for future in [f for f in self._flying if f.done() and f.exception() is None]:
                    tell(future)
                self.lost = list(self._flying.values())
        return finished

    def _submit(self, executor: Executor) -> None:
        while self._waiting and len(self._flying) < self._ahead:
            position = self._waiting[0]
            self._flying[executor.submit(self._function, self._units[position])] = position
            self._waiting.popleft()


def _is_death(error: Exception) -> bool:
    """Whether an error says that a worker died; Dask has a class of its own for that."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker"
