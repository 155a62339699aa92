"""Every answer equals one found by brute force from what the question gives, without kvsim."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvsim.errors import ConfigError
from kvsim.quiz import TOPICS, Question, ask, ask_many, sheet, write_sheet
from kvsim.quiz.sheet import as_text

SEEDS = range(1000)
Facts = dict[str, Any]


def translate(facts: Facts) -> tuple[int, ...]:
    slots = [block * facts["block_size"] + offset for block in facts["table"] for offset in range(facts["block_size"])]
    return (slots[facts["token"]],)


def blocks(facts: Facts) -> tuple[int, ...]:
    room, taken = 0, []
    for token in range(facts["tokens"] + facts["more"]):
        if room == 0:
            room = facts["block_size"]
            taken.append(token)
        room -= 1
    return (sum(token >= facts["tokens"] for token in taken),)


def extent(facts: Facts) -> tuple[int, ...]:
    size, free = facts["size"], facts["free"]
    if facts["placement"] == "buddy":
        rounded = 1
        while rounded < size:
            rounded *= 2
        fits = sorted((length, start) for start, length in free if length >= rounded)
    elif facts["placement"] == "best-fit":
        fits = sorted((length, start) for start, length in free if length >= size)
    else:
        fits = sorted((0, start) for start, length in free if length >= size)
    return (fits[0][1],) if fits else ()


def shares(facts: Facts) -> tuple[int, ...]:
    slots = ["free"] * facts["capacity"]
    size = facts["block_size"]
    for row in facts["rows"]:
        if size:
            mine = [int(pair.split("→")[1]) * size + i for pair in row["table"].split(",") for i in range(size)]
        else:
            mine = list(range(row["start"], row["last"] + 1))
        for logical, slot in enumerate(mine):
            assert slots[slot] == "free"
            if logical < row["tokens"]:
                slots[slot] = "used"
            elif logical >= row["requested"]:
                slots[slot] = "external"
            else:
                slots[slot] = "reserved" if logical < row["final"] else "internal"
    if size:
        for slot in range(facts["capacity"] // size * size, facts["capacity"]):
            slots[slot] = "external"
    elif slots.count("free") >= facts["head"]:
        needed = facts["head"]
        while facts["placement"] == "buddy" and needed & (needed - 1):
            needed += 1
        if not any(length >= needed for _, length in facts["free"]):
            slots = ["external" if slot == "free" else slot for slot in slots]
    return tuple(slots.count(kind) for kind in ("used", "reserved", "internal", "external", "free"))


def preemption(facts: Facts) -> tuple[int, ...]:
    size, gone = facts["block_size"], []
    running = list(enumerate(facts["tokens"]))
    while True:
        needed = sum((tokens + 1 + size - 1) // size for _, tokens in running)
        if needed <= facts["num_blocks"]:
            return tuple(gone)
        gone.append(running.pop()[0])


def kv_cache(facts: Facts) -> tuple[int, ...]:
    room = 0
    while room < facts["tokens"]:
        room += facts["size"]
    a_vector = facts["head_dim"] * facts["bytes"]
    return (sum(a_vector for _ in ("key", "value") for _ in range(facts["kv_heads"])) * facts["layers"] * room,)


NAIVE: dict[str, Callable[[Facts], tuple[int, ...]]] = {
    "translate": translate,
    "blocks": blocks,
    "extent": extent,
    "shares": shares,
    "preemption": preemption,
    "kv-cache": kv_cache,
}


@pytest.fixture(scope="module")
def questions() -> dict[str, list[Question]]:
    return {topic: [ask(topic, seed) for seed in SEEDS] for topic in TOPICS}


@pytest.mark.parametrize("topic", TOPICS)
def test_a_thousand_answers_are_the_naive_ones(topic: str, questions: dict[str, list[Question]]) -> None:
    for question in questions[topic]:
        assert question.answer == NAIVE[topic](question.facts), question.seed


@pytest.mark.parametrize("topic", TOPICS)
def test_questions_differ_and_answers_do_not_give_themselves_away(
    topic: str, questions: dict[str, list[Question]]
) -> None:
    texts = {" ".join([*question.text(), question.picture]) for question in questions[topic]}
    assert len(texts) > 950
    answers = [question.answer for question in questions[topic]]
    assert max(answers.count(answer) for answer in set(answers)) < 350


# Each case must turn up often enough to be learnt from.
@pytest.mark.parametrize(
    ("topic", "cases"),
    [
        ("extent", lambda q: (q.facts["placement"], q.answer == ())),
        ("shares", lambda q: (q.facts["placement"], q.answer[3] > 0)),
        ("preemption", lambda q: min(2, len(q.answer))),
    ],
)
def test_every_case_turns_up(
    topic: str, cases: Callable[[Question], Any], questions: dict[str, list[Question]]
) -> None:
    seen = [cases(question) for question in questions[topic]]
    expected = {"extent": 6, "shares": 6, "preemption": 3}[topic]
    assert len(set(seen)) == expected
    assert min(seen.count(case) for case in set(seen)) >= 10


@pytest.mark.parametrize("lang", ["en", "fa"])
@pytest.mark.parametrize("topic", TOPICS)
def test_every_text_is_filled_in(topic: str, lang: str, questions: dict[str, list[Question]]) -> None:
    for question in questions[topic]:
        for line in [*question.text(lang), *question.solution(lang)]:
            assert "{" not in line
            assert not re.fullmatch(r"[a-z]+\.[a-z_0-9]+", line)


def test_the_working_ends_in_the_answer(questions: dict[str, list[Question]]) -> None:
    for topic in ("translate", "blocks", "kv-cache"):
        for question in questions[topic][:200]:
            assert question.answer_text() in question.solution()[-1]


def test_the_same_seed_asks_the_same_in_another_process() -> None:
    drawn = "[(ask(topic, seed).facts, ask(topic, seed).answer) for topic in TOPICS for seed in (0, 7)]"
    code = f"from kvsim.quiz import TOPICS, ask; print({drawn})"
    here = str([(ask(topic, seed).facts, ask(topic, seed).answer) for topic in TOPICS for seed in (0, 7)])
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert there.stdout.strip() == here


def test_without_a_topic_they_take_turns() -> None:
    drawn = ask_many(None, 5, 8)
    assert [question.topic for question in drawn] == [*TOPICS, *list(TOPICS)[:2]]
    assert [question.seed for question in drawn] == [5] * 6 + [6] * 2


def test_wrong_input() -> None:
    with pytest.raises(ConfigError, match="unknown topic 'preemtion'; did you mean 'preemption'"):
        ask("preemtion", 0)
    with pytest.raises(ConfigError, match="seed is -1"):
        ask("shares", -1)
    with pytest.raises(ConfigError, match="count is 0; a number from 1 to 500"):
        ask_many("shares", 0, 0)
    with pytest.raises(ConfigError, match="unknown language 'de'"):
        sheet([ask("shares", 0)], "de")


def test_a_sheet_keeps_its_answers_for_the_end(tmp_path: Path) -> None:
    drawn = ask_many(None, 0, 12)
    write_sheet(drawn, tmp_path / "quiz.html", "fa")
    page = (tmp_path / "quiz.html").read_text()
    asked, answers = page.split('<div class="answers">')
    assert 'dir="rtl"' in asked
    assert "break-before: page" in asked
    assert asked.count("<section>") == answers.count("<section>") == 12
    assert not re.search(r"https?://", page)
    for question in drawn:
        assert question.solution("fa")[-1] not in asked
    assert [path.name for path in tmp_path.iterdir()] == ["quiz.html"]


def test_a_sheet_needs_a_folder_and_a_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        write_sheet([ask("blocks", 0)], tmp_path / "nowhere" / "quiz.html")
    with pytest.raises(ConfigError, match=r"end its name in \.html"):
        write_sheet([ask("blocks", 0)], tmp_path / "quiz.pdf")
    assert not list(tmp_path.iterdir())


def test_answers_are_printed_only_when_asked_for() -> None:
    question = ask("blocks", 4)
    assert question.solution()[-1] not in as_text([question], "en", answer=False)
    assert question.solution()[-1] in as_text([question], "en", answer=True)
