"""``simulate``: one stream of requests, one allocator, one scheduler, one latency model.

Two steppers run the iterations. **step** is plain Python, an iteration a turn; **leap** is compiled and jumps over the
iterations in which nothing but growth happens. Their results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import simpy

from kvsim.allocators import Allocator, ContiguousAllocator, PagedAllocator
from kvsim.engine.clients import Clients, session_clients
from kvsim.engine.leap import Leap, can_leap
from kvsim.engine.setup import KnownAllocator, Setup, wrapped
from kvsim.engine.shell import Progress, Server
from kvsim.engine.step import Step
from kvsim.errors import ConfigError, InvariantError, unknown
from kvsim.latency import Built, LatencyModel
from kvsim.requests import NS_PER_S, RequestStream
from kvsim.results import Requests, Result
from kvsim.scheduler import Scheduler

__all__ = ["Clients", "Server", "session_clients", "simulate", "steady_marks"]

ENGINES = ("auto", "step", "leap")
BUDGETS = {"step": 20_000, "leap": 1_000_000}


def simulate(
    stream: RequestStream | None = None,
    allocator: Allocator | KnownAllocator | None = None,
    *,
    latency: LatencyModel,
    scheduler: Scheduler | None = None,
    max_model_len: int = 2048,
    backlog: bool = False,
    stop_at_s: float | None = None,
    clients: Clients | None = None,
    duration_s: float | None = None,
    engine: str = "auto",
    capacity: int | None = None,
    check: int = 0,
    digest: bool = False,
    bins: int = 512,
    budget: int | None = None,
    observe: Callable[[Step], None] | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run requests through an allocator.

    Parameters
    ----------
    stream : RequestStream, optional
        Requests known beforehand.
    allocator : object
        An empty pool: one of kvsim's, or your own that keeps to the contract of ``kvsim.allocators``.
    latency : callable
        How long an iteration lasts (see ``kvsim.latency``).
    scheduler : Scheduler, optional
        When requests run; the paper's by default.
    max_model_len : int
        Longest request in tokens, prompt and output.
    backlog : bool
        All requests wait at time 0, whatever their arrival.
    stop_at_s : float, optional
        Simulated seconds after which the run is broken off.
    clients : callable, optional
        ``clients(env, server)`` starts SimPy processes that submit requests (see ``kvsim.engine.shell``).
    duration_s : float, optional
        Seconds for which clients submit; what they do from a tenth of it to its end is the steady window.
    engine : {"auto", "step", "leap"}
        ``auto`` takes leap where everything is built in.
    capacity : int, optional
        Slots of the pool, where an allocator of your own does not say.
    check : {0, 1, 2}
        1: the ledger is asserted in every iteration. 2: the allocator verifies itself after every operation too.
    digest : bool
        Hash every block table or extent that is ever held.
    bins : int
        Most bins of the timeline; an even number.
    budget : int, optional
        Iterations between two reports of progress. Results do not depend on it.
    observe : callable, optional
        Called with the step engine whenever an iteration has begun.
    progress : callable, optional
        Called with (requests finished, nanoseconds simulated).

    Returns
    -------
    Result
        Columns, timeline and summary.

    Raises
    ------
    ConfigError
        The settings contradict each other.
    InvariantError
        A check failed.
    StalledError
        A request waits for memory that nobody will ever free.
    """
    if allocator is None:
        raise ConfigError("simulate() needs an allocator")
    if (stream is None) == (clients is None):
        raise ConfigError("simulate() takes either a stream or clients")
    if stream is None:
        none = np.zeros(0, dtype=np.int64)
        stream = RequestStream(none, none, none, source="clients")
    setup = Setup(
        stream.as_backlog() if backlog else stream,
        wrapped(allocator, capacity),
        scheduler or Scheduler(),
        latency,
        max_model_len,
        backlog=backlog,
        awaited=clients is not None,
        check=check,
        digesting=digest,
        bins=bins,
        observe=observe,
    )
    stop_ns = None if stop_at_s is None else round(stop_at_s * NS_PER_S)
    if clients is not None and duration_s is not None:
        setup.marks_ns = _quarters(0, round(duration_s * NS_PER_S), stop_ns)
    elif not backlog:
        setup.marks_ns = steady_marks(setup.stream, stop_ns)
    stepper = _stepper(setup, engine)
    _run(stepper, clients, stop_ns, budget or BUDGETS[stepper.name], progress)
    return _result(setup, stepper, stop_ns)


def steady_marks(stream: RequestStream, stop_ns: int | None = None) -> list[int]:
    """Instants in ns that cut the steady window into quarters: from 10 % of the arrivals' span to the last arrival."""
    if stream.span_ns == 0:
        return []
    return _quarters(int(stream.arrival_ns[0]), int(stream.arrival_ns[-1]), stop_ns)


def _quarters(first: int, last: int, stop_ns: int | None) -> list[int]:
    start = first + (last - first) // 10
    end = last if stop_ns is None else min(last, stop_ns)
    return [start + (end - start) * quarter // 4 for quarter in range(5)] if start < end else []


def _stepper(setup: Setup, engine: str) -> Step | Leap:
    """Choose what runs the iterations."""
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if engine == "leap" or (engine == "auto" and can_leap(setup) is None):
        return Leap(setup)
    return Step(setup)


def _run(
    stepper: Step | Leap, clients: Clients | None, stop_ns: int | None, budget: int, progress: Progress | None
) -> None:
    """Run a server, and its clients, to the end or to a time."""
    env = simpy.Environment(initial_time=0)
    server = Server(env, stepper, budget, progress)
    env.process(server.serve())
    if clients is not None:
        clients(env, server)
    env.run(until=stop_ns)


def _result(setup: Setup, stepper: Step | Leap, stop_ns: int | None) -> Result:
    """Close the accounts and gather what the run says."""
    accounts = stepper.close(stepper.now if stop_ns is None else max(stop_ns, stepper.now))
    columns, outcome = stepper.columns()
    allocator, scheduler = setup.allocator, setup.scheduler
    if stop_ns is None:
        _check_end(setup)
    arrival, prompt, output = columns
    admission, first_token, finish, preemptions, recomputed, _, status = outcome
    return Result(
        allocator=_name(allocator),
        placement=allocator.placement,
        scheduler=scheduler.name,
        engine=stepper.name,
        latency=setup.latency.describe() if isinstance(setup.latency, Built) else _title(setup.latency),
        capacity=allocator.capacity,
        lost=allocator.lost_slots,
        requests=Requests(arrival, prompt, output, admission, first_token, finish, preemptions, recomputed, status),
        accounts=accounts,
        backlog=setup.backlog,
        largest_request=allocator.largest_request,
        max_model_len=setup.max_model_len,
        digest=tuple(int(half) for half in stepper.digests),
    )


def _check_end(setup: Setup) -> None:
    """Hold the pool to being empty when every request has gone."""
    allocator = setup.allocator
    if isinstance(allocator, PagedAllocator | ContiguousAllocator):
        allocator.verify()
    expected = allocator.capacity - allocator.lost_slots
    if allocator.free_slots != expected:
        raise InvariantError("free slots at the end", expected=expected, found=allocator.free_slots)


def _name(allocator: KnownAllocator) -> str:
    """Name of an allocator as users write it."""
    if isinstance(allocator, PagedAllocator):
        return "paged" if allocator.reservation == "on-demand" else f"paged-{allocator.reservation}"
    return allocator.reservation


def _title(latency: LatencyModel) -> str:
    return getattr(latency, "__name__", type(latency).__name__)
