"""CSV of any kind: which column is what, and reading it a block of lines at a time."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kvsim.errors import TraceError
from kvsim.requests import IntArray
from kvsim.traces.columns import MALFORMED, Columns
from kvsim.traces.fields import Bytes, Fields, Mask, many_counts, many_times, one_count, one_time
from kvsim.traces.mapping import Mapping, not_asked_for
from kvsim.traces.source import Source, one_line

DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class _Layout:
    """A mapping against the header of one file."""

    source: Source
    mapping: Mapping
    delimiter: str
    header: list[str]

    def position(self, name: str) -> int:
        return self.header.index(name)


def header_of(source: Source) -> list[str]:
    """Return the column names in the first line of a CSV file."""
    return split_header(source.first_line)[1]


def split_header(line: str) -> tuple[str, list[str]]:
    """Return the delimiter and the column names of a header line."""
    delimiter = max(DELIMITERS, key=line.count)
    try:
        names = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        names = [line]
    return delimiter, [name.strip() for name in names]


def distinct_values(source: Source, column: str) -> list[str]:
    """Return the different values of a column, in order of appearance."""
    delimiter, header = split_header(source.first_line)
    at = header.index(column)
    found: dict[str, None] = {}
    for number, line in source.lines():
        row = line.decode("utf-8", "replace").split(delimiter)
        if number > 1 and len(row) > at:
            found[row[at]] = None
    return list(found)


def read_table(source: Source, mapping: Mapping, *, skip_bad_rows: bool = False) -> Columns:
    """Read a CSV file into columns.

    Parameters
    ----------
    source : Source
        The file; its first line names the columns.
    mapping : Mapping
        Which column is what.
    skip_bad_rows : bool
        Count rows that cannot be read and go on, instead of raising.

    Raises
    ------
    TraceError
        A column is missing, or a row cannot be read; the line and the field are named.
    """
    delimiter, header = split_header(source.first_line)
    missing = mapping.missing(header)
    if missing is not None:
        raise TraceError(
            f"has no column {missing!r}; its columns are {one_line(', '.join(header[:20]))}", file=source.path, line=1
        )
    layout = _Layout(source, mapping, delimiter, header)
    columns = Columns(source.path, timed=mapping.arrival is not None)
    blocks = source.blocks()
    first = next(blocks)
    blocks = itertools.chain([first[first.index(b"\n") + 1 :]], blocks)
    line = 2
    for block in blocks:
        if b'"' in block:  # a quoted field may run over lines and blocks: the rest is left to the csv module
            _read_slowly(layout, columns, _quoted_rows(layout, block, blocks, line), skip_bad_rows)
            break
        line += _read_block(layout, columns, block, line, skip_bad_rows)
    return columns


def _read_block(layout: _Layout, columns: Columns, block: bytes, line: int, skip_bad_rows: bool) -> int:
    """Read one block of whole lines; return how many they were."""
    data = np.frombuffer(block, dtype=np.uint8)
    edges = _edges(data, ord(layout.delimiter), len(layout.header))
    if edges is None:
        rows = enumerate(block[:-1].split(b"\n"), line)
        texts = ((n, text.decode("utf-8", "replace").split(layout.delimiter)) for n, text in rows if text.strip())
        _read_slowly(layout, columns, texts, skip_bad_rows)
        return block.count(b"\n")
    start, end = edges
    _read_fast(layout, columns, data, start, end, line, skip_bad_rows)
    return len(start)


def _edges(data: Bytes, delimiter: int, num_columns: int) -> tuple[IntArray, IntArray] | None:
    """Return where fields start and end, shape (rows, columns), or None where a row has another number of them."""
    newline = data == 10
    separators = np.flatnonzero(newline | (data == delimiter))
    if len(separators) % num_columns:
        return None
    end = separators.reshape(-1, num_columns)
    is_newline = newline[end]
    if not is_newline[:, -1].all() or is_newline[:, :-1].any():
        return None
    start = np.empty_like(end)
    start.ravel()[0:1] = 0
    start.ravel()[1:] = separators[:-1] + 1
    return start, end


def _read_fast(
    layout: _Layout, columns: Columns, data: Bytes, start: IntArray, end: IntArray, line: int, skip_bad_rows: bool
) -> None:
    mapping = layout.mapping
    lines = np.arange(line, line + len(start))
    for name, value in mapping.where.items():
        at = layout.position(name)
        keep = _equal(Fields(data, start[:, at], end[:, at]), value.encode())
        columns.skip(not_asked_for(name, value), int((~keep).sum()))
        start, end, lines = start[keep], end[keep], lines[keep]

    def fields(name: str) -> Fields:
        at = layout.position(name)
        return Fields(data, start[:, at], end[:, at])

    prompt, bad = many_counts(fields(mapping.prompt))
    output, bad_output = many_counts(fields(mapping.output))
    bad |= bad_output
    arrival = np.zeros(len(start), dtype=np.int64)
    if mapping.arrival is not None:
        arrival, bad_arrival = many_times(fields(mapping.arrival), mapping.unit)
        bad |= bad_arrival
    lost = []
    for row in np.flatnonzero(bad).tolist():
        text = data[start[row, 0] : end[row, -1]].tobytes().decode("utf-8", "replace").split(layout.delimiter)
        values = _careful(layout, columns, int(lines[row]), text, skip_bad_rows)
        if values is None:
            lost.append(row)
        else:
            arrival[row], prompt[row], output[row] = values
    if lost:
        arrival, prompt, output = (np.delete(column, lost) for column in (arrival, prompt, output))
    columns.add(arrival, prompt, output)


def _equal(fields: Fields, wanted: bytes) -> Mask:
    data, start, end = fields
    same: Mask = end - start == len(wanted)
    for k, byte in enumerate(wanted):
        same &= data[np.minimum(start + k, len(data) - 1)] == byte
    return same


def _quoted_rows(layout: _Layout, block: bytes, blocks: Iterable[bytes], line: int) -> Iterator[tuple[int, list[str]]]:
    texts = (piece[:-1].decode("utf-8", "replace").split("\n") for piece in itertools.chain([block], blocks))
    lines = (text + "\n" for text in itertools.chain.from_iterable(texts))
    reader = csv.reader(lines, delimiter=layout.delimiter)
    before = 0
    try:
        for row in reader:
            if row and (len(row) > 1 or row[0].strip()):
                yield line + before, row
            before = reader.line_num
    except csv.Error as error:
        raise TraceError(f"not CSV ({error})", file=layout.source.path, line=line + before) from None


def _read_slowly(
    layout: _Layout, columns: Columns, rows: Iterable[tuple[int, Sequence[str]]], skip_bad_rows: bool
) -> None:
    """Read rows one by one."""
    columns.fill(
        (*values, ())
        for line, row in rows
        if _wanted(layout, columns, row) and (values := _careful(layout, columns, line, row, skip_bad_rows)) is not None
    )


def _wanted(layout: _Layout, columns: Columns, row: Sequence[str]) -> bool:
    for name, value in layout.mapping.where.items():
        at = layout.position(name)
        if at < len(row) and row[at] != value:
            columns.skip(not_asked_for(name, value))
            return False
    return True


def _careful(
    layout: _Layout, columns: Columns, line: int, row: Sequence[str], skip_bad_rows: bool
) -> tuple[int, int, int] | None:
    """Return arrival, prompt and output of a row; None where it is bad and may be skipped."""
    try:
        return _values(layout, line, row)
    except TraceError:
        if not skip_bad_rows:
            raise
        columns.skip(MALFORMED)
        return None


def _values(layout: _Layout, line: int, row: Sequence[str]) -> tuple[int, int, int]:
    mapping, path = layout.mapping, layout.source.path
    if len(row) != len(layout.header):
        raise TraceError(f"{len(row)} fields where the header has {len(layout.header)}", file=path, line=line)
    name = mapping.prompt
    try:
        prompt = one_count(row[layout.position(name)])
        name = mapping.output
        output = one_count(row[layout.position(name)])
        if mapping.arrival is None:
            return 0, prompt, output
        name = mapping.arrival
        return one_time(row[layout.position(name)], mapping.unit), prompt, output
    except ValueError as error:
        raise TraceError(str(error), file=path, line=line, field=name) from None
