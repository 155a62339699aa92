"""Writing a stream in the format of another tool, with a word on what that format cannot hold."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from kvsim.errors import ConfigError, TraceError, unknown
from kvsim.requests import NS_PER_S, PrefixIds, RequestStream
from kvsim.traces.parquet import BLOCK_SIZE_KEY

ROWS = 10_000  # rows that are formatted at a time
AZURE_START = np.datetime64("2020-01-01T00:00:00", "ns")
AZURE_DIGIT_NS = 100  # seven digits of a second
MOONCAKE_BLOCK = 512

NO_IDS = "prefix ids are left out"


def write(stream: RequestStream, path: str | Path, format: str = "kvsim") -> list[str]:  # noqa: A002
    """Write a stream to a file, all of it or nothing.

    Parameters
    ----------
    stream : RequestStream
        What to write.
    path : str or Path
        The file; it is packed if the name ends in ``.gz``.
    format : {"kvsim", "kvsim-parquet", "vidur", "mooncake", "azure"}
        Its format.

    Returns
    -------
    list of str
        What the format cannot hold, for people; empty where nothing is lost.

    Raises
    ------
    ConfigError
        Unknown format, or one that needs times where the stream has none.
    TraceError
        The file cannot be written.
    """
    if format == "kvsim-parquet":
        return _write_parquet(stream, path)
    if format not in WRITERS:
        raise unknown("trace format to write", format, [*WRITERS, "kvsim-parquet"])
    lines, lost = WRITERS[format](stream)
    replace_file(path, lambda temporary: _write_lines(temporary, lines, packed=str(path).endswith(".gz")))
    return lost


def replace_file(path: str | Path, fill: Callable[[str], object]) -> None:
    """Fill a temporary file beside ``path`` and put it in its place.

    Raises
    ------
    TraceError
        It cannot be written; whatever was there before is left alone.
    """
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        os.close(handle)
    except OSError as error:
        raise TraceError(f"cannot be written ({error.strerror})", file=str(path)) from None
    try:
        fill(temporary)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except OSError as error:
        raise TraceError(f"cannot be written ({error.strerror})", file=str(path)) from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def _write_lines(path: str, lines: Iterator[str], *, packed: bool) -> None:
    with open(path, "wb") as raw:
        file: IO[bytes] = gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") if packed else raw  # type: ignore[assignment]
        for piece in lines:
            file.write(piece.encode())
        if packed:
            file.close()


Lines = tuple[Iterator[str], list[str]]


def _pieces(stream: RequestStream) -> Iterator[range]:
    for start in range(0, len(stream), ROWS):
        yield range(start, min(start + ROWS, len(stream)))


def _csv(header: str, stream: RequestStream, times: Callable[[range], list[str]] | None) -> Iterator[str]:
    """Yield a table with prompt and output at the end of each row, and a time before them if there is one."""
    yield header + "\n"
    for piece in _pieces(stream):
        part = slice(piece.start, piece.stop)
        columns = [times(piece)] if times else []
        columns += [stream.prompt[part].astype(str).tolist(), stream.output[part].astype(str).tolist()]
        yield "".join(",".join(row) + "\n" for row in zip(*columns, strict=True))


def _kvsim(stream: RequestStream) -> Lines:
    lost = [NO_IDS + ": kvsim-parquet holds them"] if stream.prefix is not None else []
    if not stream.timed:
        return _csv("prompt,output", stream, None), lost

    def times(piece: range) -> list[str]:
        return [str(when) for when in stream.arrival_ns[piece.start : piece.stop].tolist()]

    return _csv("arrival_ns,prompt,output", stream, times), lost


def _vidur(stream: RequestStream) -> Lines:
    lost = [NO_IDS] if stream.prefix is not None else []
    if not stream.timed:
        return _csv("num_prefill_tokens,num_decode_tokens", stream, None), lost

    def times(piece: range) -> list[str]:
        whole, rest = np.divmod(stream.arrival_ns[piece.start : piece.stop], NS_PER_S)
        return [f"{s}.{ns:09d}" for s, ns in zip(whole.tolist(), rest.tolist(), strict=True)]

    return _csv("arrived_at,num_prefill_tokens,num_decode_tokens", stream, times), lost


def _azure(stream: RequestStream) -> Lines:
    _need_times(stream, "azure")
    lost = [NO_IDS] if stream.prefix is not None else []
    inexact = int(np.count_nonzero(stream.arrival_ns % AZURE_DIGIT_NS))
    if inexact:
        lost.append(f"{inexact:,} arrivals are rounded to 100 ns")
    if len(stream) and stream.arrival_ns[0]:
        lost.append("the time before the first request is left out: dates count from it")
    if len(stream) and stream.arrival_ns[-1] > 2**62:
        raise ConfigError("the trace spans more years than dates can hold")

    def times(piece: range) -> list[str]:
        steps = (stream.arrival_ns[piece.start : piece.stop] + AZURE_DIGIT_NS // 2) // AZURE_DIGIT_NS
        dates = np.datetime_as_string(AZURE_START + (steps * AZURE_DIGIT_NS).astype("timedelta64[ns]"))
        return [date[:27].replace("T", " ") for date in dates.tolist()]

    return _csv("TIMESTAMP,ContextTokens,GeneratedTokens", stream, times), lost


def _mooncake(stream: RequestStream) -> Lines:
    _need_times(stream, "mooncake")
    prefix, lost = stream.prefix, []
    if prefix is not None:
        expected = -(-stream.prompt // prefix.block_size)
        if not np.array_equal(np.diff(prefix.offsets), expected):
            prefix = None
            lost.append(NO_IDS + ": the format has one for the last, partial block of a prompt too")
        elif prefix.block_size != MOONCAKE_BLOCK:
            lost.append(f"the block size of {prefix.block_size}: read it back with --block-size {prefix.block_size}")
    return _mooncake_lines(stream, prefix), lost


def _mooncake_lines(stream: RequestStream, prefix: PrefixIds | None) -> Iterator[str]:
    for piece in _pieces(stream):
        rows = []
        for i in piece:
            whole, rest = divmod(int(stream.arrival_ns[i]), 10**6)
            when = f"{whole}.{rest:06d}".rstrip("0") if rest else f"{whole}"
            row = f'{{"timestamp": {when}, "input_length": {stream.prompt[i]}, "output_length": {stream.output[i]}'
            if prefix is not None:
                row += f', "hash_ids": {prefix.ids[prefix.offsets[i] : prefix.offsets[i + 1]].tolist()}'
            rows.append(row + "}\n")
        yield "".join(rows)


def _need_times(stream: RequestStream, name: str) -> None:
    if not stream.timed:
        raise ConfigError(f"the {name} format needs times, and the trace has none: give it a rate (--rate)")


WRITERS: dict[str, Callable[[RequestStream], Lines]] = {
    "kvsim": _kvsim,
    "vidur": _vidur,
    "mooncake": _mooncake,
    "azure": _azure,
}


def _write_parquet(stream: RequestStream, path: str | Path) -> list[str]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ConfigError("install kvsim[parquet] to write Parquet") from None
    columns = {"arrival_ns": stream.arrival_ns} if stream.timed else {}
    columns |= {"prompt": stream.prompt, "output": stream.output}
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if stream.prefix is not None:
        ids = pa.LargeListArray.from_arrays(pa.array(stream.prefix.offsets), pa.array(stream.prefix.ids))
        table = table.append_column("prefix_ids", ids)
        table = table.replace_schema_metadata({BLOCK_SIZE_KEY: str(stream.prefix.block_size)})
    replace_file(path, lambda temporary: pq.write_table(table, temporary))
    return []
