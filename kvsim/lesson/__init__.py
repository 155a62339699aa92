"""The classroom: runs recorded step by step, and pages on which they are seen."""

from __future__ import annotations

from kvsim.lesson.page import make_page
from kvsim.lesson.recording import KINDS, Recorder, Recording, State, Stay, record
from kvsim.lesson.scenarios import SCENARIOS, Lesson, load_lesson

__all__ = [
    "KINDS",
    "SCENARIOS",
    "Lesson",
    "Recorder",
    "Recording",
    "State",
    "Stay",
    "load_lesson",
    "make_page",
    "record",
]
