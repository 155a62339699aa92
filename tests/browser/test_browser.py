"""The lesson page in headless Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvsim.lesson import SCENARIOS, Lesson, load_lesson, make_page
from kvsim.quiz import TOPICS, ask

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright's Python package is not here")
CHROMIUM = os.environ.get("KVSIM_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: the page cannot be opened")

# Nothing that a headless browser in a container cannot do, and nothing that asks the network.
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = [375, 768, 1280, 1920]


@pytest.fixture(scope="module")
def lessons() -> list[Lesson]:
    return [load_lesson(name) for name in SCENARIOS]


@pytest.fixture(scope="module")
def address(lessons: list[Lesson], tmp_path_factory: pytest.TempPathFactory) -> str:
    questions = [ask(topic, seed).as_data() for topic in TOPICS for seed in range(3)]
    path = tmp_path_factory.mktemp("page") / "lesson.html"
    path.write_text(make_page(lessons, questions=questions), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        chromium = tool.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Any]:
    """Open the page at an address and a size; in the end there was no error and no request."""
    told: list[str] = []
    contexts = []

    def open_page(where: str = "", width: int = 1280, height: int = 900, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: told.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: told.append(f"error: {error}"))
        page.on("request", lambda request: told.append(f"request: {request.url}"))
        page.goto(f"{address}#{where}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [line for line in told if not line.startswith((f"request: {address}", "request: data:"))] == []


def step_of(page: Any) -> int:
    return int(page.evaluate("lesson.page.step"))


def pictures(page: Any) -> list[str]:
    return list(page.evaluate("[...document.querySelectorAll('canvas')].map((canvas) => canvas.toDataURL())"))


@pytest.mark.parametrize("lang", ["en", "fa"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_step_shows_what_was_recorded(opened: Any, lessons: list[Lesson], name: str, lang: str) -> None:
    page = opened(f"lesson={name}&lang={lang}")
    lesson = lessons[SCENARIOS.index(name)]
    shown = page.evaluate("""() => Array.from({length: lesson.page.lesson.times.length}, (_, step) => {
        lesson.seek(step);
        return lesson.page.panels.map((panel) => ({
            values: [...panel.node.querySelectorAll("b")].map((node) => Number(node.dataset.value)),
            texts: [...panel.node.querySelectorAll("b")].map((node) => node.textContent),
            owner: [...panel.recording.cells(panel.frame).owner],
            kind: [...panel.recording.cells(panel.frame).kind],
            waiting: panel.recording.waiting(panel.frame),
            events: panel.node.querySelectorAll(".events li").length,
        }));
    })""")
    assert len(shown) == len(lesson.times_ns)
    for step, panels in enumerate(shown):
        for system, panel in enumerate(panels):
            recording = lesson.recordings[system]
            frame = lesson.frame(system, step)
            state = recording.state(frame)
            assert panel["values"] == list(state.ledger)
            assert sum(panel["values"]) == recording.capacity
            assert panel["owner"] == state.owner.tolist()
            assert panel["kind"] == state.kind.tolist()
            assert panel["waiting"] == state.waiting
            assert panel["events"] == max(1, len(recording.events[frame]))
            digits = str.maketrans("۰۱۲۳۴۵۶۷۸۹", "0123456789", "٬,")
            assert [int(text.translate(digits)) for text in panel["texts"]] == panel["values"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_step_on_and_back_is_the_same_picture(opened: Any, name: str) -> None:
    page = opened(f"lesson={name}&t=4")
    before = pictures(page)
    page.click("#forward")
    assert step_of(page) == 5
    assert pictures(page) != before
    page.click("#back")
    assert pictures(page) == before
    page.click("#end")
    page.click("#start")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert pictures(page) == before


def test_the_address_of_a_step(opened: Any) -> None:
    page = opened("t=3&lesson=external")
    assert page.evaluate("lesson.page.lesson.name") == "external"
    assert step_of(page) == 3
    page.keyboard.press("ArrowRight")
    assert "t=4" in page.url
    page.evaluate("location.hash = '#t=9&lesson=paging'")
    page.wait_for_function("lesson.page.step === 9")
    assert page.evaluate("lesson.page.lesson.name") == "paging"
    assert step_of(opened("t=99999&lesson=paging")) == 27
    assert step_of(opened("t=nonsense")) == 0


def test_keyboard(opened: Any) -> None:
    page = opened("lesson=internal&t=10")
    for key, expected in [
        ("ArrowRight", 11),
        ("ArrowLeft", 10),
        ("PageDown", 20),
        ("PageUp", 10),
        ("End", 32),
        ("Home", 0),
        ("n", 1),
        ("n", 3),
        ("p", 1),
    ]:
        page.keyboard.press(key)
        assert step_of(page) == expected, key
    page.keyboard.press("+")
    assert page.input_value("#speed") == "4"
    page.keyboard.press("-")
    page.keyboard.press("-")
    assert page.input_value("#speed") == "1"
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.keyboard.press("Escape")
    assert not page.is_visible("#help")
    page.keyboard.press("End")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("]")
    assert page.evaluate("lesson.page.chosen") == 1
    page.keyboard.press("[")
    assert page.evaluate("lesson.page.chosen") == 0


def test_play_speed_and_pause(opened: Any) -> None:
    page = opened("lesson=paging")
    page.select_option("#speed", "60")
    page.keyboard.press(" ")
    assert page.evaluate("lesson.page.playing")
    page.wait_for_function("lesson.page.step === lesson.page.lesson.last && !lesson.page.playing")
    assert f"t={step_of(page)}" in page.url
    page.select_option("#speed", "0.5")
    page.click("#play")
    assert step_of(page) == 0
    page.click("#play")
    assert not page.evaluate("lesson.page.playing")


def test_slider_and_bands(opened: Any) -> None:
    page = opened("lesson=external")
    page.fill("#slider", "12")
    assert step_of(page) == 12
    page.focus("#slider")
    page.keyboard.press("ArrowRight")
    assert step_of(page) == 13
    box = page.locator(".bands").first.bounding_box()
    page.locator(".bands").first.click(position={"x": box["width"] * 20.5 / 40, "y": 10})
    assert step_of(page) == 20


def test_pointing_at_a_block_shows_its_table(opened: Any) -> None:
    page = opened("lesson=paging&t=8")
    canvas = page.locator(".memory").nth(1)
    where = page.evaluate("lesson.page.panels[1].view.rect(4)")
    canvas.hover(position={"x": where[0] + where[2] / 2, "y": where[1] + where[3] / 2})
    caption = page.locator(".caption").nth(1)
    assert page.inner_text("#tip").startswith("slot 4 = block 1, offset 0: request 0, its logical block 1")
    assert page.evaluate("lesson.page.hovered") == 0
    page.mouse.move(5, 5)
    assert page.evaluate("lesson.page.hovered") is None
    assert page.is_hidden("#tip")
    assert caption.inner_text() == "Block table of request 5"
    canvas.click(position={"x": where[0] + 2, "y": where[1] + 2})
    page.mouse.move(5, 5)
    assert caption.inner_text() == "Block table of request 0"


def test_nothing_moves_when_one_points_at_it(opened: Any) -> None:
    for width in WIDTHS:
        page = opened("lesson=block-size&t=8", width=width)
        boxes = """[...document.querySelectorAll("canvas")].map((canvas) => {
            const box = canvas.getBoundingClientRect();
            return [box.x, Math.round(box.y + scrollY), box.width, box.height];
        })"""
        before = page.evaluate(boxes)
        for system in range(3):
            box = page.evaluate(f"lesson.page.panels[{system}].view.rect(20)")
            page.locator(".memory").nth(system).hover(position={"x": box[0] + 1, "y": box[1] + 1})
            assert page.evaluate(boxes) == before
            assert page.is_visible("#tip")


def test_language_and_theme(opened: Any) -> None:
    page = opened("lesson=internal&t=3", color_scheme="light")
    light = pictures(page)
    page.click("#language")
    assert page.evaluate("[document.documentElement.lang, document.documentElement.dir]") == ["fa", "rtl"]
    assert "گام ۳ از ۳۲" in page.inner_text("#where")
    assert "درخواست" in page.inner_text("#remark")
    assert "lang=fa" in page.url
    page.keyboard.press("l")
    assert page.evaluate("document.documentElement.dir") == "ltr"
    assert pictures(page) == light
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert pictures(page) != light
    page.keyboard.press("d")
    assert pictures(page) == light
    dark = opened("lesson=internal&t=3", color_scheme="dark")
    assert dark.evaluate("document.documentElement.dataset.theme") == "dark"


def test_an_event_in_words(opened: Any) -> None:
    page = opened("lesson=preemption&t=6")
    said = "Request 2 needs a block; none is free; request 4, the latest, is evicted."
    assert said in page.locator(".events").first.inner_text()


# Pairs of things that lie on one another, parents and their children apart; and things that stick out of the page.
OVERLAPS = """() => {
  const leaves = "h1, h2, p, li, button, select, input, canvas, label, pre, summary, "
    + ".chip, .label, .none, .running, #count, #where";
  const nodes = [...document.querySelectorAll(leaves)]
    .filter((node) => node.getClientRects().length && !node.closest("dialog"));
  const inEvents = (node) => node.closest(".events");
  const found = [];
  const name = (node) => node.tagName + "." + node.className + "#" + node.id + ":" + node.textContent.slice(0, 20);
  for (const node of nodes) {
    const box = node.getBoundingClientRect();
    if (box.left < -1 || box.right > innerWidth + 1) found.push("sticks out: " + name(node));
    const inner = ["BUTTON", "P", "LI"].includes(node.tagName);
    if (inner && node.scrollWidth > node.clientWidth + 1) found.push("cut off: " + name(node));
  }
  nodes.forEach((a, i) => nodes.slice(i + 1).forEach((b) => {
    if (a.contains(b) || b.contains(a) || inEvents(a) || inEvents(b)) return;
    if (!!a.closest("#transport") !== !!b.closest("#transport")) return;
    const [p, q] = [a.getBoundingClientRect(), b.getBoundingClientRect()];
    const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const tall = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (wide > 1 && tall > 1) found.push(name(a) + " on " + name(b));
  }));
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");
  return found;
}"""


@pytest.mark.parametrize("lang", ["en", "fa"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overlaps(opened: Any, width: int, lang: str) -> None:
    page = opened(f"lang={lang}", width=width)
    for name in SCENARIOS:
        page.evaluate(f"location.hash = '#t=8&lesson={name}&lang={lang}'")
        page.wait_for_function(f"lesson.page.lesson.name === '{name}'")
        for step in (0, 8, page.evaluate("lesson.page.lesson.last")):
            page.evaluate(f"lesson.seek({step})")
            assert page.evaluate(OVERLAPS) == [], (name, step)
        assert page.evaluate("lesson.page.panels.every((panel) => panel.view.h >= 3)")
    page.click("#switch")
    for topic in TOPICS:
        page.select_option("#topic", topic)
        page.click("summary")
        assert page.evaluate(OVERLAPS) == [], topic


# What fails here if a colour is chosen badly: text needs 4.5 to 1 on what it stands on (WCAG 2.1, AA).
CONTRAST = """() => {
  const light = (css) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = css.match(/[\\d.]+/g).slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/rgba\\(.*, 0\\)|transparent/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const low = [];
  for (const node of document.querySelectorAll("h1, h2, small, p, li, button:enabled, span, b, select")) {
    if (!node.textContent.trim() || !node.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(node.className + ":" + node.textContent.slice(0, 20) + " " + ratio.toFixed(2));
  }
  return low;
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out(opened: Any, theme: str) -> None:
    page = opened("", color_scheme=theme)
    for name in SCENARIOS:
        page.evaluate(f"location.hash = '#t=8&lesson={name}'")
        page.wait_for_function(f"lesson.page.lesson.name === '{name}'")
        assert page.evaluate(CONTRAST) == [], name


def test_letters_are_large_enough_for_the_last_row(opened: Any) -> None:
    page = opened("lesson=internal&t=8", width=1920, height=1080)
    sizes = page.evaluate("""Object.fromEntries(["#remark", ".events li", ".shares", ".panel h2"].map(
        (name) => [name, parseFloat(getComputedStyle(document.querySelector(name)).fontSize)]))""")
    assert min(sizes.values()) >= 18


@pytest.mark.parametrize("lang", ["en", "fa"])
def test_questions_in_the_page(opened: Any, lang: str) -> None:
    page = opened(f"lesson=paging&lang={lang}&t=27")
    page.click("#ask")
    assert page.is_visible("#quiz")
    assert page.input_value("#topic") == "translate"
    right = page.get_attribute(".question", "data-answer")
    page.fill(".question input", right + "1")
    page.keyboard.press("Enter")
    assert page.get_attribute(".question output", "class") == "wrong"
    typed = right.translate(str.maketrans("0123456789", "۰۱۲۳۴۵۶۷۸۹")) if lang == "fa" else right
    page.fill(".question input", typed)
    page.keyboard.press("Enter")
    assert page.get_attribute(".question output", "class") == "right"
    first = page.inner_text(".question")
    page.click("#another")
    assert page.inner_text(".question") != first
    for topic in TOPICS:
        page.select_option("#topic", topic)
        page.click("summary")
        assert page.is_visible(".question .answer")
        written = page.inner_text(".question .answer")
        page.fill(".question input", written)
        page.keyboard.press("Enter")
        assert page.get_attribute(".question output", "class") == "right", (topic, written)
    page.click("#switch")
    assert page.is_visible("#stage")


def test_a_scenario_with_its_own_times(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text('workload = "alpaca"\nnum_blocks = 64\nrequests = 20\nrate = 20.0\nallocator = ["pow2", "paged"]\n')
    lesson = load_lesson(str(path))
    (tmp_path / "page.html").write_text(make_page([lesson]), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.keyboard.press("End")
    assert step_of(page) == len(lesson.times_ns) - 1
    assert f"{lesson.times_ns[-1] / 1e9:.2f}".rstrip("0") in page.inner_text("#where")
    assert page.is_hidden("#switch")
    page.close()
