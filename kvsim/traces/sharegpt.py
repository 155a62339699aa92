"""ShareGPT: conversations as text; lengths come from a tokenizer that the user has as a file.

Each pair of a human turn and the answer right after it is a request: the prompt is that turn alone, the roles are what
the file says they are and not where they stand, and there are no times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kvsim.errors import TraceError
from kvsim.traces.columns import MALFORMED, Columns, Row
from kvsim.traces.objects import Object, objects
from kvsim.traces.source import Source, one_line

HUMAN = {"human", "user"}
MODEL = {"gpt", "assistant", "chatgpt", "bing", "bard", "model"}

CountTokens = Callable[[list[str]], list[int]]

UNPAIRED, OTHER_ROLE, NO_PAIR = "turns without a partner", "turns of another role", "conversations without a pair"


def load_tokenizer(path: str | Path) -> CountTokens:
    """Return a function that counts the tokens of texts, from a local ``tokenizer.json``.

    Raises
    ------
    TraceError
        The ``tokenizers`` package is missing, or the file is no tokenizer.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise TraceError("install kvsim[tokenizers] to count the tokens of text", file=str(path)) from None
    if not Path(path).is_file():
        raise TraceError("no such tokenizer file", file=str(path))
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing more particular
        raise TraceError(f"is no tokenizer.json ({one_line(error)})", file=str(path)) from None
    return lambda texts: [len(found.ids) for found in tokenizer.encode_batch(texts, add_special_tokens=False)]


def read_sharegpt(source: Source, count_tokens: CountTokens | None, *, skip_bad_rows: bool = False) -> Columns:
    """Read conversations into columns, one request a pair of turns.

    Raises
    ------
    TraceError
        There is no tokenizer, or something is no conversation; the line is named.
    """
    if count_tokens is None:
        raise TraceError("conversations as text: give a tokenizer.json with --tokenizer", file=source.path)
    columns = Columns(source.path, timed=False)
    columns.fill(_rows(source, columns, count_tokens, skip_bad_rows))
    return columns


def _rows(source: Source, columns: Columns, count_tokens: CountTokens, skip_bad_rows: bool) -> Iterator[Row]:
    for line, item in objects(source, columns.skipped if skip_bad_rows else None):
        try:
            pairs = list(_pairs(_turns(item, source.path, line), columns))
        except TraceError:
            if not skip_bad_rows:
                raise
            columns.skip(MALFORMED)
            continue
        if not pairs:
            columns.skip(NO_PAIR)
            continue
        prompts, answers = zip(*pairs, strict=True)
        for prompt, output in zip(count_tokens(list(prompts)), count_tokens(list(answers)), strict=True):
            yield 0, prompt, output, ()


def _turns(item: Object, path: str, line: int) -> list[tuple[str, str]]:
    turns: Any = item.get("conversations")
    if not isinstance(turns, list):
        raise TraceError("a list of turns is expected", file=path, line=line, field="conversations")
    found = []
    for turn in turns:
        role = turn.get("from", turn.get("role")) if isinstance(turn, dict) else None
        text = turn.get("value", turn.get("content")) if isinstance(turn, dict) else None
        if not isinstance(role, str) or not isinstance(text, str):
            raise TraceError("a turn with 'from' and 'value' is expected", file=path, line=line, field="conversations")
        found.append((role.lower(), text))
    return found


def _pairs(turns: list[tuple[str, str]], columns: Columns) -> Iterator[tuple[str, str]]:
    """Yield each human turn with the answer right after it; count what is left over."""
    asked: str | None = None
    for role, text in turns:
        if role in HUMAN:
            columns.skip(UNPAIRED, asked is not None)
            asked = text
        elif role not in MODEL:
            columns.skip(OTHER_ROLE)
        elif asked is None:
            columns.skip(UNPAIRED)
        else:
            yield asked, text
            asked = None
    columns.skip(UNPAIRED, asked is not None)
