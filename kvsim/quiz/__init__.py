"""Questions with one answer, in the manner of OSTEP's homework simulators: a topic and a seed give a question.

The answers are not computed here: each comes from the part of kvsim that the question is about.
"""

from __future__ import annotations

from kvsim.quiz.question import Question
from kvsim.quiz.sheet import sheet, write_sheet
from kvsim.quiz.topics import TOPICS, ask, ask_many

__all__ = ["TOPICS", "Question", "ask", "ask_many", "sheet", "write_sheet"]
