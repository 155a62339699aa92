"""A question, its answer, and the working."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvsim.lesson.phrases import LANGUAGES, number, say

# A phrase of ``phrases.toml`` and its values.
Line = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Question:
    """A question that has one answer.

    Attributes
    ----------
    topic : str
        One of ``TOPICS``.
    seed : int
        The same topic and seed give the same question.
    facts : dict
        All that is given, as plain values: enough to find the answer without kvsim.
    answer : tuple of int
        The answer; empty for "nobody" or "nowhere".
    lines, working : tuple of (key, values)
        What is asked, and how the answer comes about, as phrases.
    picture : str
        A picture of the pool, a letter a slot; empty where there is none.
    """

    topic: str
    seed: int
    facts: dict[str, Any]
    answer: tuple[int, ...]
    lines: tuple[Line, ...]
    working: tuple[Line, ...]
    picture: str = field(default="")

    def text(self, lang: str = "en") -> list[str]:
        """Return what is asked, a paragraph an item."""
        return [say(key, lang, **values) for key, values in self.lines]

    def solution(self, lang: str = "en") -> list[str]:
        """Return the working, a line an item."""
        return [say(key, lang, **values) for key, values in self.working]

    def answer_text(self, lang: str = "en") -> str:
        """Return the answer as it would be written."""
        if not self.answer:
            return say("quiz.none", lang)
        return " ".join(number(value, lang) for value in self.answer)

    def as_data(self) -> dict[str, Any]:
        """Return the question in every language, as the lesson's page takes it."""
        return {
            "topic": self.topic,
            "seed": self.seed,
            "answer": list(self.answer),
            "picture": self.picture,
            "lines": {lang: self.text(lang) for lang in LANGUAGES},
            "working": {lang: self.solution(lang) for lang in LANGUAGES},
            "written": {lang: self.answer_text(lang) for lang in LANGUAGES},
        }


def listed(values: Sequence[int]) -> str:
    """Write numbers side by side."""
    return " ".join(str(value) for value in values)


def mapped(values: Sequence[int]) -> str:
    """Write numbers with their positions, so that a line is read alike from either side: ``0→7, 1→3``."""
    return ", ".join(f"{i}→{value}" for i, value in enumerate(values))
