"""From a file to a stream of requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kvsim.errors import ConfigError, TraceError, unknown
from kvsim.requests import RequestStream
from kvsim.traces import formats
from kvsim.traces.columns import Columns
from kvsim.traces.mapping import Mapping
from kvsim.traces.objects import read_objects
from kvsim.traces.sessions import read_sessions
from kvsim.traces.sharegpt import CountTokens, load_tokenizer, read_sharegpt
from kvsim.traces.source import Source, one_line, open_source
from kvsim.traces.table import distinct_values, read_table


def read(
    path: str | Path,
    format: str | None = None,  # noqa: A002
    *,
    mapping: Mapping | None = None,
    where: dict[str, str] | None = None,
    block_size: int | None = None,
    tokenizer: str | Path | CountTokens | None = None,
    skip_bad_rows: bool = False,
    num_requests: int | None = None,
    rate_per_s: float | None = None,
    backlog: bool = False,
    seed: int = 0,
    require_times: bool = True,
) -> RequestStream:
    """Read a trace, in whatever format it is.

    Parameters
    ----------
    path : str or Path
        The file, plain or packed with gzip or zstd.
    format : str, optional
        One of ``kvsim.traces.FORMATS``; recognised from the content where absent.
    mapping : Mapping, optional
        Which column or key is what, for a CSV, JSON or Parquet file in no known format.
    where : dict of str to str, optional
        Keep only the rows in which these columns have these values.
    block_size : int, optional
        Tokens that a prefix id stands for, where it is not what the format says.
    tokenizer : str, Path or callable, optional
        A local ``tokenizer.json``, or a function from texts to their numbers of tokens; for ShareGPT.
    skip_bad_rows : bool
        Count rows that cannot be read, and go on.
    num_requests : int, optional
        Take the first ones only; a notice says so when there are fewer.
    rate_per_s : float, optional
        Requests a second: stretches the trace's times, or draws Poisson arrivals for a trace without.
    backlog : bool
        All requests wait at time 0.
    seed : int
        Of those Poisson arrivals.
    require_times : bool
        Raise where the trace has no times and neither a rate nor a backlog is asked for. False returns a stream whose
        ``timed`` is False.

    Returns
    -------
    RequestStream
        Sorted by arrival. Dates count from the first request.

    Raises
    ------
    TraceError
        The file cannot be read as a trace; file, line and field are named where there are any.
    ConfigError
        A setting that cannot be meant.
    """
    if backlog and rate_per_s is not None:
        raise ConfigError("a rate and a backlog exclude one another")
    source = open_source(path)
    stream = _columns(source, format, mapping, where or {}, block_size, tokenizer, skip_bad_rows).stream()
    if num_requests is not None:
        stream = _first(stream, num_requests)
    if backlog:
        return stream.as_backlog()
    if rate_per_s is not None:
        return stream.at_rate(rate_per_s, seed)
    if require_times and not stream.timed:
        raise TraceError("has no timestamps: give a rate (--rate) or ask for a backlog (--backlog)", file=str(path))
    return stream


def _columns(
    source: Source,
    name: str | None,
    mapping: Mapping | None,
    where: dict[str, str],
    block_size: int | None,
    tokenizer: str | Path | CountTokens | None,
    skip_bad_rows: bool,
) -> Columns:
    if name is not None and name not in formats.FORMATS:
        raise unknown("trace format", name, formats.FORMATS)
    if block_size is not None and block_size < 1:
        raise ConfigError(f"the block size must be at least 1, not {block_size}")
    names = formats.names_of(source)
    if mapping is None:
        name = name or formats.recognise(source, names)
        if name in (formats.CLIENT_RATES, formats.CLIENT_LENGTHS):
            raise TraceError(_CLIENTS, file=source.path)
        if name == formats.SESSIONS:
            return read_sessions(source, skip_bad_rows=skip_bad_rows)
        if name == formats.SHAREGPT:
            count = tokenizer if callable(tokenizer) or tokenizer is None else load_tokenizer(tokenizer)
            return read_sharegpt(source, count, skip_bad_rows=skip_bad_rows)
        mapping = formats.mapping_of(name, names, block_size)
    mapping = replace(mapping, where=mapping.where | where)
    if source.is_parquet:
        from kvsim.traces.parquet import read_parquet

        return read_parquet(source, mapping, skip_bad_rows=skip_bad_rows)
    if formats.is_json(source):
        return read_objects(source, mapping, skip_bad_rows=skip_bad_rows)
    _ask_which(source, formats.STACKED.get(name or ""), names, mapping)
    return read_table(source, mapping, skip_bad_rows=skip_bad_rows)


_CLIENTS = (
    "ServeGen's description of clients, not requests: draw requests from it with "
    "'kvsim trace sample RATES TARGET --lengths LENGTHS --duration S'"
)


def _ask_which(source: Source, column: str | None, names: list[str], mapping: Mapping) -> None:
    """Refuse a file that stacks several traces until one of them is asked for."""
    if column is None or column not in names or column in mapping.where:
        return
    values = distinct_values(source, column)
    if len(values) > 1:
        raise TraceError(
            f"stacks the traces of {len(values)} values of {column!r}: {one_line(', '.join(values[:20]))}; "
            f"say which with --where {column}={one_line(values[0])}",
            file=source.path,
        )


def _first(stream: RequestStream, num_requests: int) -> RequestStream:
    if num_requests < 1:
        raise ConfigError(f"the number of requests must be at least 1, not {num_requests}")
    if num_requests > len(stream):
        notice = f"{num_requests:,} requests asked for; the trace has {len(stream):,}"
        return replace(stream, notices=(*stream.notices, notice))
    return stream.head(num_requests)
