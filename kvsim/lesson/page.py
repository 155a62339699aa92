"""One HTML file that needs nothing else: recordings as data, and the script that draws them.

A recording goes into the page as its stays and as differences from step to step, and so a page stays small.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from itertools import pairwise
from typing import Any

import kvsim
from kvsim.errors import ConfigError
from kvsim.lesson.phrases import LANGUAGES, check_language, phrases
from kvsim.lesson.recording import Recording, Stay
from kvsim.lesson.scenarios import Lesson

MAX_BYTES = 2_000_000
# In the order in which they need one another; joined into one script.
MODULES = ("text", "record", "paint", "memory", "charts", "panel", "quiz", "main")
# Phrases that the script does not say.
_NOT_IN_PAGE = "quiz."
_SPOKEN_OF_QUIZ = ("quiz.none", "quiz.topic_")


def make_page(lessons: Sequence[Lesson], *, lang: str = "en", questions: Sequence[dict[str, Any]] = ()) -> str:
    """Return the page of some lessons.

    Parameters
    ----------
    lessons : sequence of Lesson
        The first is shown at first.
    lang : str
        Language at first.
    questions : sequence of dict
        Questions of ``kvsim.quiz`` as ``Question.as_data`` gives them.

    Raises
    ------
    ConfigError
        The language is unknown, or the page would be too large.
    """
    check_language(lang)
    data = {
        "version": kvsim.__version__,
        "lang": lang,
        "languages": LANGUAGES,
        "phrases": {key: texts for key, texts in phrases().items() if _is_spoken(key)},
        "lessons": [lesson_data(lesson) for lesson in lessons],
        "questions": list(questions),
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    page = _read("page.html").replace("@STYLE@", _read("style.css"))
    page = page.replace("@SCRIPT@", "\n".join(_read(f"{name}.js") for name in MODULES)).replace("@DATA@", text)
    size = len(page.encode())
    if size > MAX_BYTES:
        raise ConfigError(
            f"the page would take {size / 1e6:.1f} MB, at most {MAX_BYTES / 1e6:.0f} can be passed round: "
            "lower requests, or draw fewer allocators"
        )
    return page


def _is_spoken(key: str) -> bool:
    return not key.startswith(_NOT_IN_PAGE) or key.startswith(_SPOKEN_OF_QUIZ)


def _read(name: str) -> str:
    return files("kvsim.lesson").joinpath(f"web/{name}").read_text(encoding="utf-8")


def lesson_data(lesson: Lesson) -> dict[str, Any]:
    """Return a lesson as the page has it."""
    first = lesson.recordings[0]
    stops: list[dict[str, Any]] = [
        {"step": stop.step, "say": stop.say, "values": values_at(lesson, stop.step), "request": stop.request}
        for stop in lesson.stops
    ]
    if not stops or stops[0]["step"] > 0:
        stops.insert(0, {"step": 0, "say": lesson.idea, "values": values_at(lesson, 0), "request": -1})
    return {
        "name": lesson.name,
        "title": lesson.title,
        "topic": lesson.topic,
        "ticks": lesson.ticks,
        "requests": [list(row) for row in zip(first.arrivals_ns, first.prompts, first.outputs, strict=True)],
        "systems": [recording_data(recording) for recording in lesson.recordings],
        "stops": stops,
    }


def values_at(lesson: Lesson, step: int) -> dict[str, int]:
    """Return the numbers that a remark may name: ``used0``, ``waiting1``, ..., a digit a system."""
    values = {"capacity": lesson.recordings[0].capacity}
    for i, recording in enumerate(lesson.recordings):
        frame = lesson.frame(i, step)
        split = recording.ledgers[frame]
        values |= {f"{name}{i}": part for name, part in split._asdict().items()}
        values[f"idle{i}"] = split.reserved + split.internal
        values[f"running{i}"] = len(recording.running(frame))
        values[f"waiting{i}"] = len(recording.waiting(frame))
    return values


def recording_data(recording: Recording) -> dict[str, Any]:
    """Return a recording as the page has it: stays, and differences from step to step."""
    zero = (0,) * 5
    pairs = pairwise([zero, *recording.ledgers])
    return {
        "allocator": recording.allocator,
        "placement": recording.placement,
        "capacity": recording.capacity,
        "lost": recording.lost,
        "block_size": recording.block_size,
        "rejected": sorted(recording.rejected),
        "starts": _differences(recording.starts_ns),
        "stays": [_stay_data(stay) for stay in recording.stays],
        "ledgers": [[b - a for a, b in zip(before, after, strict=True)] for before, after in pairs],
        "blocked": [step for step, blocked in enumerate(recording.blocked) if blocked],
        "events": [[step, *event] for step, events in enumerate(recording.events) for event in events],
    }


def _stay_data(stay: Stay) -> list[Any]:
    start, size = stay.extent or (0, 0)
    row: list[Any] = [stay.request, stay.first, stay.end, int(stay.finished), stay.tokens, stay.final, stay.requested]
    row += [start, size]
    return row if stay.extent else [*row, stay.blocks, _differences(stay.taken)]


def _differences(values: Sequence[int]) -> list[int]:
    return [b - a for a, b in pairwise([0, *values])]
