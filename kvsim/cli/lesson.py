"""``kvsim lesson``: a run recorded step by step, as a page, a GIF or an MP4."""

from __future__ import annotations

from pathlib import Path

import click

from kvsim.errors import ConfigError

PICTURES = (".gif", ".mp4")
QUESTIONS_A_TOPIC = 6


@click.command()
@click.argument("scenario", required=False)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("lesson.html"),
    show_default=True,
    metavar="FILE",
    help="A page (.html), or the run as .gif, or as .mp4 where ffmpeg is.",
)
@click.option("--lang", default="en", show_default=True, metavar="LANG", help="en or fa; the page can change it.")
@click.option("--fps", type=float, default=2.0, show_default=True, metavar="N", help="Steps a second in a GIF or MP4.")
def lesson(scenario: str | None, out: Path, lang: str, fps: float) -> None:
    """Record a run and draw it: memory beside memory, step by step.

    SCENARIO is figure-3, internal, external, paging, preemption or block-size; or a TOML file: a lesson of your own,
    or a small scenario of kvsim compare. Without it, the page has all six and questions.
    """
    from kvsim.lesson.files import check_folder
    from kvsim.lesson.phrases import check_language

    check_language(lang)
    check_folder(out)
    if out.suffix.lower() in PICTURES:
        _write_picture(scenario, out, fps)
    elif out.suffix.lower() in (".html", ".htm"):
        _write_page(scenario, out, lang)
    else:
        raise ConfigError(f"{out}: a lesson is written as .html, .gif or .mp4")


def _write_page(scenario: str | None, out: Path, lang: str) -> None:
    from kvsim.lesson import SCENARIOS, load_lesson, make_page
    from kvsim.lesson.files import write_text
    from kvsim.quiz import TOPICS, ask_many

    lessons = [load_lesson(name) for name in ([scenario] if scenario else SCENARIOS)]
    questions = [question.as_data() for topic in TOPICS for question in ask_many(topic, 0, QUESTIONS_A_TOPIC)]
    page = make_page(lessons, lang=lang, questions=questions)
    write_text(out, page)
    steps = sum(len(one.times_ns) for one in lessons)
    names = ", ".join(one.name for one in lessons)
    click.echo(f"wrote {out}: {names}; {steps:,} steps, {len(page.encode()) / 1000:,.0f} kB")


def _write_picture(scenario: str | None, out: Path, fps: float) -> None:
    from kvsim.lesson import load_lesson
    from kvsim.plots.classroom import animate

    if scenario is None:
        raise ConfigError(f"{out}: which lesson? A GIF or MP4 shows one; name it")
    frames = animate(load_lesson(scenario), out, fps=fps)
    click.echo(f"wrote {out}: {frames} steps, labels in English")
