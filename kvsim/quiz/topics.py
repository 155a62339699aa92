"""The topics by name, and how a seed becomes a question."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvsim.errors import ConfigError, unknown
from kvsim.quiz.cache import cache
from kvsim.quiz.contiguous import extent, shares
from kvsim.quiz.paging import blocks, preemption, translate
from kvsim.quiz.question import Question

MOST_QUESTIONS = 500

TOPICS: dict[str, Callable[[np.random.Generator, int], Question]] = {
    "translate": translate,
    "blocks": blocks,
    "extent": extent,
    "shares": shares,
    "preemption": preemption,
    "kv-cache": cache,
}


def ask(topic: str, seed: int) -> Question:
    """Return the question of a topic and a seed.

    Parameters
    ----------
    topic : str
        One of ``TOPICS``.
    seed : int
        Any number from 0.

    Raises
    ------
    ConfigError
        The topic is unknown, or the seed negative.
    """
    if topic not in TOPICS:
        raise unknown("topic", topic, TOPICS)
    if seed < 0:
        raise ConfigError(f"seed is {seed}; a number from 0 is expected")
    purpose = list(TOPICS).index(topic)
    return TOPICS[topic](np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose,))), seed)


def ask_many(topic: str | None, seed: int, count: int) -> list[Question]:
    """Return questions of consecutive seeds; without a topic, one topic after the other.

    Raises
    ------
    ConfigError
        The topic is unknown, or a number out of range.
    """
    if not 1 <= count <= MOST_QUESTIONS:
        raise ConfigError(f"count is {count}; a number from 1 to {MOST_QUESTIONS} is expected")
    if topic is not None:
        return [ask(topic, seed + i) for i in range(count)]
    names = list(TOPICS)
    return [ask(names[i % len(names)], seed + i // len(names)) for i in range(count)]
