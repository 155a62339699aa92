"""Request traces: reading what people have."""

from __future__ import annotations

from pathlib import Path

from kvsim.errors import TraceError, unknown
from kvsim.requests import RequestStream
from kvsim.traces.formats import CSV, mapping_for, recognise
from kvsim.traces.source import open_source
from kvsim.traces.table import read_table

__all__ = ["read"]


def read(
    path: str | Path,
    format: str | None = None,  # noqa: A002
    *,
    skip_bad_rows: bool = False,
    rate_per_s: float | None = None,
    backlog: bool = False,
    seed: int = 0,
    require_times: bool = True,
) -> RequestStream:
    """Read a trace.

    Parameters
    ----------
    path : str or Path
        The file, plain or packed with gzip or zstd.
    format : str, optional
        Its format, where the content does not tell.
    skip_bad_rows : bool
        Count rows that cannot be read and go on.
    rate_per_s : float, optional
        Requests a second: stretches the trace's times, or draws Poisson arrivals for one without.
    backlog : bool
        All requests wait at time 0.
    seed : int
        Of those Poisson arrivals.
    require_times : bool
        Raise where the trace has no times and neither a rate nor a backlog is asked for.

    Raises
    ------
    TraceError
        The file cannot be read as a trace; file, line and field are named where there are any.
    """
    source = open_source(path)
    name = format or recognise(source)
    if name not in CSV:
        raise unknown("trace format", name, CSV)
    stream = read_table(source, mapping_for(source, name), skip_bad_rows=skip_bad_rows).stream()
    if backlog:
        return stream.as_backlog()
    if rate_per_s is not None:
        return stream.at_rate(rate_per_s, seed)
    if require_times and not stream.timed:
        raise TraceError("has no timestamps: give a rate (--rate) or ask for a backlog (--backlog)", file=str(path))
    return stream
