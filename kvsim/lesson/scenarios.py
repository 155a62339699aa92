"""Lessons: a few requests, two or more allocators side by side, and what to look at when.

The built-in ones are TOML files in ``kvsim/lesson/scenarios``; one of your own has the same keys. A scenario of
``kvsim compare`` that is small enough to draw is a lesson too.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kvsim import _kernels as k
from kvsim.allocators import ContiguousAllocator, PagedAllocator, make_allocator
from kvsim.errors import ConfigError, unknown
from kvsim.latency import latency_of, with_kernel
from kvsim.lesson.recording import MAX_REQUESTS, MAX_SLOTS, TICK_NS, Recording, record
from kvsim.requests import IntArray, RequestStream
from kvsim.scenario import Resolved, make_scenario, read_settings
from kvsim.scheduler import Scheduler, scheduler_for

# In the order of a class.
SCENARIOS = ("figure-3", "internal", "external", "paging", "preemption", "block-size")
MOST_SYSTEMS = 4

Positive = Annotated[int, Field(ge=1)]


class SystemFile(BaseModel):
    """One of the allocators side by side."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allocator: str
    placement: Literal["buddy", "first-fit", "best-fit"] = "buddy"
    block_size: Positive = 4


class StopFile(BaseModel):
    """Something to look at: from step ``at`` on, or from the first event ``at`` of a ``system`` from ``after`` on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at: int | str = 0
    system: Annotated[int, Field(ge=0)] = 0
    after: Annotated[int, Field(ge=0)] = 0
    request: Annotated[int, Field(ge=-1)] = -1
    say: str


class LessonFile(BaseModel):
    """A lesson as a TOML file has it.

    Attributes
    ----------
    title, idea : str
        What it is called, and what it shows: text, or keys of ``phrases.toml``.
    capacity : int
        Slots of every pool.
    max_model_len : int
        Longest request.
    max_num_seqs : int
        Most sequences in an iteration.
    watermark : float
        Share of the blocks kept free at admission; none in a lesson, if nothing is said.
    systems : list of tables
        ``allocator``, and ``placement`` or ``block_size``.
    requests : list of lists
        ``[arrival in iterations, prompt, output]``, and as a fourth number the request's own maximum length.
    stops : list of tables
        ``at`` (a step, or the name of an event in ``system``) and ``say``.
    topic : str
        The quiz topic that goes with it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = "lesson.own"
    idea: str = "lesson.own_idea"
    capacity: Positive
    max_model_len: Positive
    max_num_seqs: Positive = 64
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    systems: Annotated[list[SystemFile], Field(min_length=1, max_length=MOST_SYSTEMS)]
    requests: Annotated[list[Annotated[list[Positive], Field(min_length=3, max_length=4)]], Field(min_length=1)]
    stops: list[StopFile] = []
    topic: str = ""

    @model_validator(mode="after")
    def _maxima_in_range(self) -> LessonFile:
        for i, (_, prompt, output, *maximum) in enumerate(self.requests):
            if maximum and not prompt + output <= maximum[0] <= self.max_model_len:
                raise ValueError(
                    f"request {i} has a maximum of its own of {maximum[0]}; "
                    f"{prompt + output} (prompt + output) to {self.max_model_len} (max_model_len) is expected"
                )
        return self


@dataclass(frozen=True)
class Stop:
    """What to look at from a step on: a phrase's key, or text; and the request that it is about (-1: the first)."""

    step: int
    say: str
    request: int = -1


@dataclass(frozen=True)
class Lesson:
    """The same requests through allocators side by side, recorded.

    Attributes
    ----------
    name, title, idea, topic : str
        Name in an address; phrase keys or text; topic of the quiz.
    recordings : tuple of Recording
        One a system.
    stops : tuple of Stop
        In the order of steps.
    ticks : bool
        Every iteration lasts one tick.
    """

    name: str
    title: str
    idea: str
    recordings: tuple[Recording, ...]
    stops: tuple[Stop, ...] = ()
    topic: str = ""
    ticks: bool = True

    @property
    def times_ns(self) -> list[int]:
        """Instants at which any of the systems begins a step."""
        return sorted({start for recording in self.recordings for start in recording.starts_ns})

    def frame(self, system: int, step: int) -> int:
        """Return the step of one system's recording that is on show at a step of the lesson."""
        return bisect_right(self.recordings[system].starts_ns, self.times_ns[step]) - 1


class OwnMaximum(ContiguousAllocator):
    """A contiguous pool in which every request has a maximum length of its own, as in the vLLM paper's Figure 3.

    Parameters
    ----------
    capacity : int
        Slots.
    placement : str
        Where extents go.
    maxima : sequence of int
        Of each request, in the order in which they are admitted.
    """

    def __init__(self, capacity: int, placement: str, maxima: Sequence[int]) -> None:
        super().__init__(capacity, placement, reservation="max", max_model_len=max(maxima), num_rows=len(maxima))
        self._maxima = list(maxima)

    def reserve(self, row: int, num_tokens: int, final_tokens: int, keep_free: int = 0) -> int:
        """Give a row an extent of its request's own maximum."""
        self.state.counts[k.MAX_LEN] = self._maxima[0]
        verdict = super().reserve(row, num_tokens, final_tokens, keep_free)
        if verdict == k.OK and len(self._maxima) > 1:
            self._maxima.pop(0)
        return verdict

    def servable(self, prompt: IntArray, final: IntArray) -> Any:
        """Whether an empty pool could serve each request at its own maximum, shape (n,)."""
        return np.array(self._maxima) <= self.largest_request


def load_lesson(name: str, check: int = 0) -> Lesson:
    """Record a built-in lesson, or one from a file.

    Parameters
    ----------
    name : str
        One of ``SCENARIOS``, or the path of a TOML file: a lesson, or a scenario of ``kvsim compare``.
    check : {0, 1, 2}
        As in ``simulate``.

    Raises
    ------
    ConfigError
        The name is unknown, the file cannot be meant, or there is too much to draw.
    """
    if name in SCENARIOS:
        text = files("kvsim.lesson").joinpath(f"scenarios/{name}.toml").read_text(encoding="utf-8")
        return record_lesson(make_lesson(tomllib.loads(text), name), name, check)
    if not Path(name).suffix and not Path(name).exists():
        raise unknown("lesson", name, SCENARIOS)
    settings = read_settings(name)
    if "systems" in settings or isinstance(settings.get("requests"), list):
        return record_lesson(make_lesson(settings, name), Path(name).stem, check)
    return record_scenario(settings, name, check)


def make_lesson(settings: dict[str, Any], where: str) -> LessonFile:
    """Validate a lesson's settings, saying in one line what is wrong.

    Raises
    ------
    ConfigError
        A key is not known (the nearest is named), or a value cannot be meant.
    """
    for key in settings:
        if key not in LessonFile.model_fields:
            raise ConfigError(f"{where}: {unknown('setting', key, LessonFile.model_fields)}")
    try:
        return LessonFile(**settings)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        if not field:
            raise ConfigError(f"{where}: {problem['msg'].removeprefix('Value error, ')}") from None
        found = "" if problem["type"] == "missing" else f", not {problem['input']!r}"
        raise ConfigError(f"{where}: {field}: {problem['msg']}{found}") from None


def record_lesson(lesson: LessonFile, name: str, check: int = 0) -> Lesson:
    """Run the requests of a lesson through its allocators.

    Raises
    ------
    ConfigError
        An allocator is unknown, or there is too much to draw.
    """
    if lesson.capacity > MAX_SLOTS:
        raise ConfigError(f"{lesson.capacity:,} slots are too many to draw: at most {MAX_SLOTS:,}; lower capacity")
    rows = sorted(lesson.requests, key=lambda row: row[0])
    arrival, prompt, output = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    stream = RequestStream(arrival * TICK_NS, prompt, output, source=name)
    scheduler = Scheduler(max_num_seqs=lesson.max_num_seqs, watermark=lesson.watermark)
    recordings = tuple(
        record(
            stream,
            _allocator(lesson, system, [row[3] if len(row) == 4 else lesson.max_model_len for row in rows]),
            scheduler=scheduler,
            max_model_len=lesson.max_model_len,
            check=check,
        )
        for system in lesson.systems
    )
    made = Lesson(name, lesson.title, lesson.idea, recordings, topic=lesson.topic)
    stops = [Stop(_step_of(made, stop, name), stop.say, stop.request) for stop in lesson.stops]
    return replace(made, stops=tuple(sorted(stops, key=lambda stop: stop.step)))


def _allocator(lesson: LessonFile, system: SystemFile, maxima: Sequence[int]) -> PagedAllocator | ContiguousAllocator:
    if system.allocator == "max" and len(set(maxima)) > 1:
        return OwnMaximum(lesson.capacity, system.placement, maxima)
    return make_allocator(
        system.allocator,
        capacity=lesson.capacity,
        max_model_len=lesson.max_model_len,
        max_num_seqs=lesson.max_num_seqs,
        block_size=system.block_size,
        placement=system.placement,
    )


def _step_of(lesson: Lesson, stop: StopFile, where: str) -> int:
    """Return the step of a stop; where it names an event, the first with such an event."""
    times = lesson.times_ns
    if isinstance(stop.at, int):
        if not 0 <= stop.at < len(times):
            raise ConfigError(f"{where}: stops: step {stop.at} is not in 0..{len(times) - 1}")
        return stop.at
    if stop.system >= len(lesson.recordings):
        raise ConfigError(f"{where}: stops: system {stop.system} is not in 0..{len(lesson.recordings) - 1}")
    recording = lesson.recordings[stop.system]
    for start, events in zip(recording.starts_ns, recording.events, strict=True):
        if times.index(start) >= stop.after and any(event[0] == stop.at for event in events):
            return times.index(start)
    known = {str(event[0]) for events in recording.events for event in events}
    raise ConfigError(f"{where}: stops: {unknown('event', stop.at, known)}")


def record_scenario(settings: dict[str, Any], where: str, check: int = 0) -> Lesson:
    """Record a scenario of ``kvsim compare`` with its own latency model.

    Raises
    ------
    ConfigError
        The settings cannot be meant, or there is too much to draw.
    """
    scenario = make_scenario(settings, where)
    if scenario.scheduler == "static":
        raise ConfigError(f"{where}: a lesson shows the paper's scheduler, not 'static'")
    if len(scenario.allocator) > MOST_SYSTEMS:
        raise ConfigError(f"{where}: {len(scenario.allocator)} allocators are too many to draw: at most {MOST_SYSTEMS}")
    resolved = Resolved(scenario)
    if resolved.capacity > MAX_SLOTS:
        raise ConfigError(
            f"{where}: {resolved.capacity:,} slots are too many to draw: at most {MAX_SLOTS:,}; "
            "lower pool or num_blocks"
        )
    stream = resolved.stream(scenario.seed)
    if len(stream) > MAX_REQUESTS:
        raise ConfigError(
            f"{where}: {len(stream):,} requests are too many to draw: at most {MAX_REQUESTS:,}; lower requests"
        )
    recordings = tuple(_record_one(resolved, stream, name, check) for name in scenario.allocator)
    title = f"{resolved.model.name}, {scenario.workload}"
    return Lesson(Path(where).stem, title, "lesson.own_idea", recordings, ticks=False)


def _record_one(resolved: Resolved, stream: RequestStream, name: str, check: int) -> Recording:
    scenario = resolved.scenario
    allocator = make_allocator(
        name,
        capacity=resolved.capacity,
        max_model_len=resolved.max_model_len,
        max_num_seqs=scenario.max_num_seqs,
        block_size=scenario.block_size,
        placement=scenario.placement,
    )
    return record(
        stream,
        allocator,
        latency=with_kernel(latency_of(resolved), scenario, name),
        scheduler=scheduler_for(scenario),
        max_model_len=resolved.max_model_len,
        backlog=resolved.backlog,
        stop_at_s=scenario.stop_at,
        check=check,
    )
