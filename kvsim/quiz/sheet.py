"""Questions as text, and as a sheet to print: the questions first, the answers on a page of their own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from kvsim.errors import ConfigError
from kvsim.lesson.files import write_text
from kvsim.lesson.phrases import RIGHT_TO_LEFT, check_language, number, say
from kvsim.quiz.question import Question

STYLE = """
body { font: 12pt/1.5 Georgia, "Noto Naskh Arabic", "Vazirmatn", serif; max-width: 44em; margin: 2em auto;
  padding: 0 1em; color: #111; background: #fff; }
body:lang(fa) { font-family: "Vazirmatn", "Noto Sans Arabic", "Noto Naskh Arabic", serif }
h1 { font-size: 1.4em } h2 { font-size: 1.05em; margin: 0 0 .3em }
section { break-inside: avoid; margin: 0 0 1.6em }
pre { font: 11pt/1.35 "DejaVu Sans Mono", monospace; direction: ltr; text-align: left; margin: .5em 0;
  overflow-x: auto }
p { margin: .3em 0 } .seed { color: #555; font-weight: normal; font-size: .9em }
.line { border-bottom: 1px solid #999; height: 2.2em } .answers { break-before: page } .name { margin-bottom: 2em }
"""


def paragraphs(question: Question, lang: str) -> list[str]:
    """Return what is asked; the picture comes after the first paragraph."""
    lines = question.text(lang)
    return [lines[0], question.picture, *lines[1:]] if question.picture else lines


def title(question: Question, lang: str) -> str:
    """Return the topic in words."""
    return say(f"quiz.topic_{question.topic}", lang)


def as_text(questions: Sequence[Question], lang: str, *, answer: bool) -> str:
    """Return questions for a terminal.

    Parameters
    ----------
    questions : sequence of Question
        In order.
    lang : str
        Language.
    answer : bool
        Add answer and working to each.
    """
    parts = []
    for i, question in enumerate(questions, 1):
        head = say("quiz.question", lang, i=i, topic=title(question, lang))
        lines = [f"{head} ({say('quiz.seed', lang, seed=str(question.seed))})", "", *paragraphs(question, lang)]
        if answer:
            lines += ["", f"{say('quiz.answer', lang)}: {question.answer_text(lang)}"]
            lines += [f"  {line}" for line in question.solution(lang)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts if answer else [*parts, say("quiz.hint", lang)])


def sheet(questions: Sequence[Question], lang: str = "en") -> str:
    """Return a sheet to print, as an HTML page that needs nothing else.

    Parameters
    ----------
    questions : sequence of Question
        In order.
    lang : str
        Language.

    Raises
    ------
    ConfigError
        The language is unknown.
    """
    check_language(lang)
    side = "rtl" if lang in RIGHT_TO_LEFT else "ltr"
    asked = "\n".join(_asked(i, question, lang) for i, question in enumerate(questions, 1))
    answers = "\n".join(_answered(i, question, lang) for i, question in enumerate(questions, 1))
    heading = escape(say("quiz.heading", lang))
    return f"""<!doctype html>
<html lang="{lang}" dir="{side}">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{heading}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head>
<body>
<h1>{heading}</h1>
<p class="name">{escape(say("quiz.name", lang))}: ______________________________</p>
{asked}
<div class="answers"><h1>{escape(say("quiz.answers", lang))}</h1>
{answers}
</div>
</body>
</html>
"""


def _asked(i: int, question: Question, lang: str) -> str:
    lines = question.text(lang)
    picture = f"<pre>{escape(question.picture)}</pre>" if question.picture else ""
    body = f"<p>{escape(lines[0])}</p>{picture}" + "".join(f"<p>{escape(line)}</p>" for line in lines[1:])
    return f'<section>{_heading(i, question, lang)}{body}<div class="line"></div></section>'


def _answered(i: int, question: Question, lang: str) -> str:
    answer = f"<p><strong>{escape(question.answer_text(lang))}</strong></p>"
    body = "".join(f"<p>{escape(line)}</p>" for line in question.solution(lang))
    return f"<section>{_heading(i, question, lang)}{answer}{body}</section>"


def _heading(i: int, question: Question, lang: str) -> str:
    seed = escape(say("quiz.seed", lang, seed=str(question.seed)))
    head = f"{number(i, lang)}. {escape(title(question, lang))}"
    return f'<h2>{head} <span class="seed">({seed})</span></h2>'


def write_sheet(questions: Sequence[Question], path: Path, lang: str = "en") -> None:
    """Write a sheet under a temporary name in the same folder and rename it.

    Raises
    ------
    ConfigError
        The folder is not there, or the name does not end in ``.html``.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{path}: a sheet is an HTML page; end its name in .html")
    write_text(path, sheet(questions, lang))
