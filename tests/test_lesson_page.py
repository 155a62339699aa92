"""The page as a file, its phrases, and what the commands do with input that cannot be meant."""

from __future__ import annotations

import json
import re
import shutil
import string
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsim.cli import main
from kvsim.errors import ConfigError
from kvsim.lesson import SCENARIOS, load_lesson, make_page
from kvsim.lesson.page import MODULES, lesson_data
from kvsim.lesson.phrases import LANGUAGES, number, phrases, say
from kvsim.lesson.scenarios import record_scenario
from kvsim.quiz import TOPICS, ask


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.fixture(scope="module")
def page() -> str:
    questions = [ask(topic, seed).as_data() for topic in TOPICS for seed in range(6)]
    return make_page([load_lesson(name) for name in SCENARIOS], lang="fa", questions=questions)


def test_a_page_needs_nothing_else(page: str) -> None:
    assert len(page.encode()) < 2_000_000
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttpRequest|@(STYLE|SCRIPT|DATA)@", page)


def test_the_same_page_twice(page: str) -> None:
    questions = [ask(topic, seed).as_data() for topic in TOPICS for seed in range(6)]
    assert make_page([load_lesson(name) for name in SCENARIOS], lang="fa", questions=questions) == page


def test_differences_add_up_to_what_was_recorded() -> None:
    lesson = load_lesson("preemption")
    for recording, data in zip(lesson.recordings, lesson_data(lesson)["systems"], strict=True):
        assert np.cumsum(data["ledgers"], axis=0).tolist() == [list(split) for split in recording.ledgers]
        assert np.cumsum(data["starts"]).tolist() == recording.starts_ns
        assert [np.cumsum(row[10]).tolist() for row in data["stays"]] == [stay.taken for stay in recording.stays]


def test_text_of_a_user_cannot_end_the_script(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('title = "</script><b>"\n' + LESSON)
    assert data_of(make_page([load_lesson(str(path))]))["lessons"][0]["title"] == "</script><b>"


# --- phrases ---


def test_every_phrase_has_every_language_and_the_same_values() -> None:
    for key, texts in phrases().items():
        assert list(texts) == list(LANGUAGES), key
        names = [{name for _, name, _, _ in string.Formatter().parse(text) if name} for text in texts.values()]
        assert names[0] == names[1], key
        assert all(text.strip() for text in texts.values()), key


def test_what_the_script_says_is_among_the_phrases(page: str) -> None:
    web = files("kvsim.lesson").joinpath("web")
    source = "".join(web.joinpath(f"{name}.js").read_text() for name in MODULES) + web.joinpath("page.html").read_text()
    keys = set(re.findall(r'["\']((?:ui|keys|kind|system|event|quiz)\.[a-z_0-9]+)["\']', source))
    keys |= {f"ui.{name}" for name in re.findall(r'"ui\.([a-z_0-9]+)"', source)}
    assert len(keys) > 50
    spoken = data_of(page)["phrases"]
    stems = {"system.", "kind.", "event.", "quiz.topic_"}
    assert {key for key in keys if key not in spoken} <= stems
    told = {
        event[0] for name in SCENARIOS for r in load_lesson(name).recordings for events in r.events for event in events
    }
    assert {f"event.{name}" for name in told} <= set(spoken)


def test_every_phrase_is_said_somewhere() -> None:
    package = Path(str(files("kvsim")))
    source = "".join(
        path.read_text()
        for room in ("lesson", "quiz")
        for path in (package / room).rglob("*")
        if path.suffix in (".py", ".js", ".html", ".toml") and path.name != "phrases.toml"
    )
    built = (
        "system.",
        "kind.",
        "event.",
        "quiz.topic_",
        "quiz.extent_",
        "quiz.cache_",
        "quiz.preemption_",
        "quiz.shares_",
    )
    unsaid = [key for key in phrases() if key not in source and not key.startswith(built)]
    assert unsaid == []


def test_numbers_in_persian() -> None:
    assert number(1234567, "fa") == "۱٬۲۳۴٬۵۶۷"
    assert number(1234567) == "1,234,567"
    assert say("quiz.shares_sum", "fa", used=1, reserved=2, internal=3, external=4, free=5, capacity=15).startswith(
        "۱ + ۲"
    )
    assert say("no such key") == "no such key"
    values = {"waiting0": 4, "waiting1": 0}
    assert "max\u200f ۴" in say("lesson.internal_6", "fa", **values)


def test_remarks_have_their_numbers() -> None:
    for name in SCENARIOS:
        for stop in lesson_data(load_lesson(name))["stops"]:
            for lang in LANGUAGES:
                assert "{" not in say(stop["say"], lang, **stop["values"])


# What the remarks claim, held to the recordings that they stand beside.
def test_remarks_are_true() -> None:
    stops = {stop["say"]: (name, stop) for name in SCENARIOS for stop in lesson_data(load_lesson(name))["stops"]}
    values = {say: stop["values"] for say, (_, stop) in stops.items()}
    assert values["lesson.figure3_1"]["free0"] == 0
    assert values["lesson.internal_3"]["waiting0"] == 1
    assert load_lesson("internal").recordings[0].waiting(3) == [4]
    assert values["lesson.internal_6"]["waiting0"] > values["lesson.internal_6"]["waiting1"] == 0
    assert values["lesson.internal_11"]["used1"] > 2 * values["lesson.internal_11"]["used0"]
    assert values["lesson.internal_20"]["waiting1"] == 0 < values["lesson.internal_20"]["waiting0"]
    assert values["lesson.external_1"]["external1"] == 0 < values["lesson.external_1"]["external0"]
    hole = values["lesson.external_hole"]
    assert hole["free1"] == 0 < hole["external1"]
    end = values["lesson.external_end"]
    assert end["running1"] == end["running2"] == 0 < end["waiting0"]
    assert load_lesson("paging").recordings[1].state(1).tables == {0: [0, 1]}
    assert len(load_lesson("paging").recordings[1].state(3).tables[0]) == 3
    assert load_lesson("paging").recordings[1].state(8).tables[5] == [5, 9, 15]
    assert values["lesson.preemption_5"]["free0"] == 0
    assert values["lesson.preemption_end"]["running0"] == 0 < values["lesson.preemption_end"]["running1"]
    one = values["lesson.blocksize_1"]
    assert one["idle0"] == 0 < one["idle1"] < one["idle2"]
    sizes = load_lesson("block-size")
    step = stops["lesson.blocksize_wait"][1]["step"]
    assert [recording.waiting(step) for recording in sizes.recordings] == [[], [], [6]]


# --- files of one's own ---

LESSON = """
capacity = 64
max_model_len = 32
systems = [{ allocator = "max" }, { allocator = "paged", block_size = 8 }]
requests = [[1, 5, 4], [2, 9, 3]]
"""
SCENARIO = """
model = "OPT-13B"
workload = "sharegpt"
num_blocks = 983
requests = 12
backlog = true
allocator = ["pow2", "paged"]
"""


def test_a_scenario_keeps_its_latency_model(tmp_path: Path) -> None:
    settings = {"num_blocks": 40, "requests": 4, "backlog": True, "allocator": ["paged"]}
    steps = tmp_path / "steps.csv"
    steps.write_text("ms\n7\n")
    recording = record_scenario(settings | {"latency": str(steps)}, "here").recordings[0]
    assert set(np.diff(recording.starts_ns)) == {7_000_000}
    with pytest.raises(ConfigError, match="latency model 'fited'; did you mean 'fitted'"):
        record_scenario(settings | {"latency": "fited"}, "here")


def test_a_lesson_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(LESSON)
    lesson = load_lesson(str(path), check=2)
    assert [recording.allocator for recording in lesson.recordings] == ["max", "paged"]
    assert lesson.recordings[1].block_size == 8


def test_a_small_scenario_of_compare(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SCENARIO)
    lesson = load_lesson(str(path), check=1)
    assert not lesson.ticks
    assert len(lesson.times_ns) == len(set(lesson.times_ns))
    for system, recording in enumerate(lesson.recordings):
        assert lesson.frame(system, len(lesson.times_ns) - 1) == len(recording) - 1
    assert len(make_page([lesson]).encode()) < 2_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LESSON.replace("64", "40000"), "40,000 slots are too many to draw: at most 32,768; lower capacity"),
        (LESSON.replace("systems", "sistems"), "unknown setting 'sistems'; did you mean 'systems'"),
        (LESSON.replace("max_model_len = 32", ""), "max_model_len: Field required"),
        (LESSON.replace("[2, 9, 3]", "[2, 9, 0]"), "requests.1.2: Input should be greater than or equal to 1, not 0"),
        (LESSON.replace("[2, 9, 3]", "[2, 9]"), "requests.1: List should have at least 3 items"),
        (
            LESSON.replace("[2, 9, 3]", "[2, 9, 3, 11]"),
            "request 1 has a maximum of its own of 11; 12 (prompt + output) to 32",
        ),
        (LESSON.replace("[2, 9, 3]", "[2, 9, 3, 33]"), "request 1 has a maximum of its own of 33"),
        (LESSON.replace('"max"', '"maxx"'), "unknown allocator 'maxx'; did you mean 'max'"),
        (LESSON + 'stops = [{ at = 99, say = "x" }]', "step 99 is not in 0.."),
        (LESSON + 'stops = [{ at = "evikt", say = "x" }]', "unknown event 'evikt'"),
        (LESSON + 'stops = [{ at = "admit", system = 5, say = "x" }]', "system 5 is not in 0..1"),
        (LESSON.replace("[[1, 5, 4], [2, 9, 3]]", "[]"), "requests: List should have at least 1 item"),
        (SCENARIO.replace("requests = 12", "requests = 1200"), "1,200 requests are too many to draw: at most 1,000"),
        (
            SCENARIO.replace("983", "9830"),
            "157,280 slots are too many to draw: at most 32,768; lower pool or num_blocks",
        ),
        (
            SCENARIO.replace('["pow2", "paged"]', '["max", "pow2", "oracle", "paged", "paged-max"]'),
            "5 allocators are too many",
        ),
        (SCENARIO + 'scheduler = "static"', "static"),
        ("requests = [", "not TOML"),
    ],
)
def test_files_that_cannot_be_meant(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_lesson(str(path))
    assert message in str(caught.value)


def test_a_page_that_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvsim.lesson.page.MAX_BYTES", 50_000)
    with pytest.raises(ConfigError, match="at most 0 can be passed round: lower requests"):
        make_page([load_lesson("paging")])


# --- the commands ---


@pytest.fixture
def kvsim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run the command in this process, in an empty folder; returns code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["kvsim", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        return left.value.code, said.out, said.err

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lesson", "pagin"], "unknown lesson 'pagin'; did you mean 'paging'?"),
        (["lesson", "nowhere.toml"], "nowhere.toml: No such file or directory"),
        (["lesson", "paging", "--lang", "de"], "unknown language 'de'; known: en, fa"),
        (["lesson", "paging", "--out", "nowhere/lesson.html"], "nowhere/lesson.html: there is no folder 'nowhere'"),
        (["lesson", "paging", "--out", "lesson.pdf"], "lesson.pdf: a lesson is written as .html, .gif or .mp4"),
        (["lesson", "--out", "lesson.gif"], "lesson.gif: which lesson? A GIF or MP4 shows one; name it"),
        (["lesson", "paging", "--out", "lesson.gif", "--fps", "0"], "fps is 0.0; a number from 0.1 to 60 is expected"),
        (["quiz", "share"], "unknown topic 'share'; did you mean 'shares'?"),
        (["quiz", "--seed", "-3"], "seed is -3; a number from 0 is expected"),
        (["quiz", "--count", "0"], "count is 0; a number from 1 to 500 is expected"),
        (["quiz", "--lang", "farsi"], "unknown language 'farsi'"),
        (["quiz", "--out", "nowhere/quiz.html"], "nowhere/quiz.html: there is no folder 'nowhere'"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(
    arguments: list[str], message: str, kvsim: Callable[..., Any], tmp_path: Path
) -> None:
    code, out, err = kvsim(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err
    assert not list(tmp_path.iterdir())


def test_lesson_and_quiz_on_the_command_line(kvsim: Callable[..., Any], tmp_path: Path) -> None:
    assert kvsim("lesson", "paging", "--lang", "fa")[0] == 0
    data = data_of((tmp_path / "lesson.html").read_text())
    assert data["lang"] == "fa"
    assert [lesson["name"] for lesson in data["lessons"]] == ["paging"]
    assert "Answer: " in kvsim("quiz", "translate", "--seed", "3", "--answer")[1]
    assert [path.name for path in tmp_path.iterdir()] == ["lesson.html"]


# --- pictures and films ---


def test_pictures_are_of_axes_given_or_new() -> None:
    from kvsim.plots.classroom import plot_lesson, plot_pool, plot_shares, plot_table
    from kvsim.plots.style import new_figure

    lesson = load_lesson("paging")
    recording = lesson.recordings[1]
    axes = new_figure().add_subplot()
    assert plot_pool(recording, 8, axes) is axes
    assert plot_table(recording, 8, 5).get_title(loc="left") == "block table of request 5"
    assert plot_shares(recording).get_ylabel() == "% of slots"
    assert len(plot_lesson(lesson, 8).axes) == 4
    with pytest.raises(ConfigError, match="request 99 has no block table"):
        plot_table(recording, 8, 99)


def test_a_gif_has_a_frame_a_step(tmp_path: Path) -> None:
    from PIL import Image

    from kvsim.plots.classroom import animate

    lesson = load_lesson("figure-3")
    assert animate(lesson, tmp_path / "lesson.gif", dpi=40) == 6
    with Image.open(tmp_path / "lesson.gif") as image:
        assert image.n_frames == 6
    assert [path.name for path in tmp_path.iterdir()] == ["lesson.gif"]


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not here: no MP4 can be made")
def test_an_mp4_where_ffmpeg_is(tmp_path: Path) -> None:
    from kvsim.plots.classroom import animate

    assert animate(load_lesson("figure-3"), tmp_path / "lesson.mp4", dpi=40) == 6
    assert (tmp_path / "lesson.mp4").read_bytes()[4:8] == b"ftyp"


def test_an_mp4_without_ffmpeg_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvsim.plots.classroom import animate

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="an MP4 needs ffmpeg"):
        animate(load_lesson("figure-3"), tmp_path / "lesson.mp4")
    assert not list(tmp_path.iterdir())


def test_a_film_that_would_be_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvsim.plots import classroom

    monkeypatch.setattr(classroom, "MAX_FRAMES", 5)
    with pytest.raises(ConfigError, match=r"6 steps are too many for a \.gif: at most 5; lower requests"):
        classroom.animate(load_lesson("figure-3"), tmp_path / "lesson.gif")
