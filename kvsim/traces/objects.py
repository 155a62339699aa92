"""JSON: one object a line, or one array of objects, read as a stream of objects."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvsim.errors import TraceError
from kvsim.traces.columns import MALFORMED, Columns, Row
from kvsim.traces.fields import one_count, one_time
from kvsim.traces.mapping import Mapping, not_asked_for
from kvsim.traces.source import Source

Object = dict[str, Any]

MAX_ID = 2**63 - 1
BLOCK_SIZES = tuple(2**k for k in range(13))
INFER_FROM = 1000  # objects that a block size is inferred from


def objects(source: Source, skipped: Counter[str] | None = None) -> Iterator[tuple[int, Object]]:
    """Yield line numbers and objects.

    Parameters
    ----------
    source : Source
        JSON lines, or an array of objects.
    skipped : Counter, optional
        Where to count lines that are no object; without it they raise.

    Raises
    ------
    TraceError
        A line is not a JSON object.
    """
    if source.head.lstrip()[:1] == b"[":
        yield from _array(source)
        return
    for number, line in source.lines():
        if not line.strip():
            continue
        try:
            yield number, _object(line, source.path, number)
        except TraceError:
            if skipped is None:
                raise
            skipped[MALFORMED] += 1


def _object(line: bytes, path: str, number: int) -> Object:
    try:
        value = json.loads(line, parse_float=str)  # a decimal is kept as it is written, to the last digit
    except (ValueError, RecursionError) as error:
        message = f"not JSON ({error}); one object a line, or one array of objects, is expected"
        raise TraceError(message, file=path, line=number) from None
    return _checked(value, path, number)


def _checked(value: Any, path: str, number: int) -> Object:
    if not isinstance(value, dict):
        raise TraceError(f"a JSON object is expected, not {str(value)[:40]!r}", file=path, line=number)
    return value


def _array(source: Source) -> Iterator[tuple[int, Object]]:
    """Yield the objects of an array, holding one of them (and the piece of text that it came in) at a time."""
    decoder = json.JSONDecoder(parse_float=str)
    pieces = source.text()
    text = next(pieces, "")
    line, at = 1, text.index("[") + 1
    line += text.count("\n", 0, at)
    while True:
        start = at
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        line += text.count("\n", start, at)
        if at < len(text) and text[at] == "]":
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            more = next(pieces, None)
            if more is None or isinstance(error, RecursionError):
                raise TraceError(f"not JSON ({error})", file=source.path, line=line) from None
            text, at = text[at:] + more, 0
            continue
        yield line, _checked(value, source.path, line)
        line += text.count("\n", at, end)
        at = end


def read_objects(source: Source, mapping: Mapping, *, skip_bad_rows: bool = False) -> Columns:
    """Read JSON objects into columns, one request an object.

    Raises
    ------
    TraceError
        An object lacks a key, or a value cannot be meant; the line and the key are named.
    """
    mapping = _for_this_file(source, mapping)
    columns = Columns(source.path, timed=mapping.arrival is not None, block_size=mapping.block_size)
    columns.fill(_rows(source, mapping, columns, skip_bad_rows))
    return columns


def _rows(source: Source, mapping: Mapping, columns: Columns, skip_bad_rows: bool) -> Iterator[Row]:
    for line, item in objects(source, columns.skipped if skip_bad_rows else None):
        unwanted = next((key for key, value in mapping.where.items() if str(item.get(key)) != value), None)
        if unwanted is not None:
            columns.skip(not_asked_for(unwanted, mapping.where[unwanted]))
            continue
        try:
            yield row_of(item, mapping, source.path, line)
        except TraceError:
            if not skip_bad_rows:
                raise
            columns.skip(MALFORMED)


def row_of(item: Object, mapping: Mapping, path: str, line: int) -> Row:
    """Return arrival, prompt, output and prefix ids of one object."""
    key = mapping.prompt
    try:
        prompt = one_count(item[key])
        key = mapping.output
        output = one_count(item[key])
        arrival = 0
        if mapping.arrival is not None:
            key = mapping.arrival
            arrival = one_time(item[key], mapping.unit)
        ids: list[int] = []
        if mapping.ids is not None:
            key = mapping.ids
            ids = _checked_ids(item[key], prompt, mapping)
    except KeyError:
        raise TraceError("is missing", file=path, line=line, field=key) from None
    except ValueError as error:
        raise TraceError(str(error), file=path, line=line, field=key) from None
    return arrival, prompt, output, ids


def _checked_ids(ids: Any, prompt: int, mapping: Mapping) -> list[int]:
    if not isinstance(ids, list) or not all(type(number) is int and 0 <= number <= MAX_ID for number in ids):
        raise ValueError("a list of whole numbers from 0 up is expected")
    block = mapping.block_size or 1
    expected = prompt // block if mapping.full_blocks else -(-prompt // block)
    if len(ids) != expected:
        raise ValueError(
            f"{len(ids)} ids for {prompt:,} tokens; {expected} are expected with blocks of {block} tokens"
            f"{_other_block_size(prompt, len(ids))}"
        )
    return ids


def _other_block_size(prompt: int, count: int) -> str:
    fits = [size for size in BLOCK_SIZES if -(-prompt // size) == count]
    return f" (they fit blocks of {fits[0]}: say --block-size {fits[0]})" if fits else ""


def _for_this_file(source: Source, mapping: Mapping) -> Mapping:
    """Return the mapping with the prefix ids that the file has: none, or of an inferred block size."""
    if mapping.ids is None:
        return mapping
    first = [item for _, item in itertools.islice(objects(source, Counter()), INFER_FROM)]
    if not first or mapping.ids not in first[0]:
        return replace(mapping, ids=None, block_size=None)
    if mapping.block_size is not None:
        return mapping
    return replace(mapping, block_size=_inferred_block_size(source, mapping, first))


def _inferred_block_size(source: Source, mapping: Mapping, items: list[Object]) -> int:
    """Return the one power of two that fits the number of ids in every object."""
    pairs: list[tuple[Any, Any]] = [(item.get(mapping.prompt), item.get(mapping.ids or "")) for item in items]
    known = [(prompt, len(ids)) for prompt, ids in pairs if isinstance(prompt, int) and isinstance(ids, list)]
    fits = [
        size
        for size in BLOCK_SIZES
        if all(count == (prompt // size if mapping.full_blocks else -(-prompt // size)) for prompt, count in known)
    ]
    if len(fits) != 1:
        raise TraceError(
            "how many tokens does a prefix id stand for? Say --block-size", file=source.path, field=mapping.ids
        )
    return int(fits[0])
