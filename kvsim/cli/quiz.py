"""``kvsim quiz``: questions with one answer, and the working."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("topic", required=False)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="The same seed, the same question.")
@click.option("--count", type=int, default=1, show_default=True, metavar="K", help="Questions, of seeds N, N + 1, ...")
@click.option("--answer", is_flag=True, help="Show answer and working.")
@click.option("--lang", default="en", show_default=True, metavar="LANG", help="en or fa.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="A sheet to print (.html), answers last.")
def quiz(topic: str | None, seed: int, count: int, answer: bool, lang: str, out: Path | None) -> None:
    """Ask about KV-cache memory. Without a TOPIC, one topic after the other.

    TOPIC is one of translate, blocks, extent, shares, preemption, kv-cache.
    """
    from kvsim.lesson.phrases import check_language
    from kvsim.quiz import ask_many, write_sheet
    from kvsim.quiz.sheet import as_text

    check_language(lang)
    questions = ask_many(topic, seed, count)
    if out is None:
        click.echo(as_text(questions, lang, answer=answer))
        return
    write_sheet(questions, out, lang)
    click.echo(f"wrote {out}: {count} question{'' if count == 1 else 's'}, the answers on a page of their own")
