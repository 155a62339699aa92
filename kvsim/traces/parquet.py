"""Parquet tables, through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kvsim.errors import TraceError
from kvsim.requests import IntArray
from kvsim.traces.columns import MALFORMED, Columns
from kvsim.traces.fields import MAX_NS, MAX_TOKENS, UNITS
from kvsim.traces.mapping import Mapping, not_asked_for
from kvsim.traces.source import Source, one_line

BATCH = 1 << 16
BLOCK_SIZE_KEY = b"kvsim.block_size"


@contextmanager
def _opened(source: Source) -> Iterator[Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise TraceError("a Parquet file: install kvsim[parquet] to read it", file=source.path) from None
    try:
        with pq.ParquetFile(source.path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"the Parquet file is damaged ({one_line(error)})", file=source.path) from None


def column_names(source: Source) -> list[str]:
    """Return the names of the columns."""
    with _opened(source) as file:
        return [str(name) for name in file.schema_arrow.names]


def read_parquet(source: Source, mapping: Mapping, *, skip_bad_rows: bool = False) -> Columns:
    """Read a Parquet file into columns, a batch of rows at a time.

    Raises
    ------
    TraceError
        A column is missing, or a value cannot be meant; the row and the column are named.
    """
    with _opened(source) as file:
        names = file.schema_arrow.names
        missing = mapping.missing(names)
        if missing is not None:
            raise TraceError(
                f"has no column {missing!r}; its columns are {one_line(', '.join(names[:20]))}", file=source.path
            )
        metadata = file.schema_arrow.metadata or {}
        block_size = mapping.block_size or int(metadata.get(BLOCK_SIZE_KEY, b"0")) or None
        ids = mapping.ids if mapping.ids in names and block_size else None
        columns = Columns(source.path, timed=mapping.arrival is not None, block_size=block_size if ids else None)
        wanted = [*dict.fromkeys([*mapping.names, *([ids] if ids else [])])]
        row = 0
        for batch in file.iter_batches(batch_size=BATCH, columns=wanted):
            _read_batch(source, mapping, columns, batch, ids, row, skip_bad_rows)
            row += len(batch)
        return columns


def _read_batch(
    source: Source, mapping: Mapping, columns: Columns, batch: Any, ids: str | None, row: int, skip_bad_rows: bool
) -> None:
    keep = np.ones(len(batch), dtype=np.bool_)
    for key, value in mapping.where.items():
        same = np.array([str(entry) == value for entry in batch.column(key).to_pylist()], dtype=np.bool_)
        columns.skip(not_asked_for(key, value), int((keep & ~same).sum()))
        keep &= same
    zeros = np.zeros(len(batch), dtype=np.int64)
    numbers: dict[str, IntArray] = {"arrival": zeros}
    kinds = {"arrival": mapping.arrival, "prompt": mapping.prompt, "output": mapping.output}
    for kind, name in kinds.items():
        if name is None:
            continue
        values, good = _whole_numbers(batch.column(name), mapping.unit if kind == "arrival" else None)
        bad = np.flatnonzero(keep & ~good)
        if len(bad) and not skip_bad_rows:
            found = f"row {row + int(bad[0]) + 1}: {batch.column(name)[int(bad[0])].as_py()!r}"
            expected = "a time from 0 up" if kind == "arrival" else "a whole number of tokens"
            raise TraceError(f"{found} is not {expected}", file=source.path, field=name)
        columns.skip(MALFORMED, len(bad))
        keep &= good
        numbers[kind] = values
    flat, counts = _ragged(batch.column(ids)) if ids else (zeros[:0], zeros)
    arrival, prompt, output = (numbers[kind][keep] for kind in ("arrival", "prompt", "output"))
    columns.add(arrival, prompt, output, flat[np.repeat(keep, counts)], counts[keep])


def _whole_numbers(column: Any, unit: str | None) -> tuple[IntArray, Any]:
    """Return a column as int64 (times in nanoseconds), and which entries are what they should be."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column, factor = column.cast(pa.timestamp("ns")).cast(pa.int64()), 1
    else:
        factor = UNITS.get(unit or "ns", 1)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=np.bool_)
    limit = (MAX_NS if unit else MAX_TOKENS) // factor
    if pa.types.is_integer(column.type):
        raw = np.asarray(column.fill_null(-1).cast(pa.int64(), safe=False))
        good = (raw >= 0) & (raw <= limit)
        return np.where(good, raw, 0) * factor, good
    real = np.asarray(column.cast(pa.float64()).fill_null(float("nan")))
    good = np.isfinite(real) & (real >= 0) & (real < float(limit)) & ((unit is not None) | (real == np.rint(real)))
    return np.rint(np.where(good, real, 0.0) * factor).astype(np.int64), good


def _ragged(column: Any) -> tuple[IntArray, IntArray]:
    counts = np.array([0 if entry is None else len(entry) for entry in column.to_pylist()], dtype=np.int64)
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False), dtype=np.int64), counts
