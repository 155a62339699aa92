"""Sessions of kv-cache-tester: one a line, each with the requests of one coding agent.

Block ids count within a session unless the file says otherwise, only whole blocks have one, and times count from
the session's start. The sessions are laid over one another, all starting at 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvsim.errors import TraceError
from kvsim.traces.columns import MALFORMED, Columns, Row
from kvsim.traces.mapping import Mapping
from kvsim.traces.objects import Object, objects, row_of
from kvsim.traces.source import Source

REQUEST = Mapping(arrival="t", unit="s", prompt="in", output="out", ids="hash_ids", full_blocks=True)


def read_sessions(source: Source, *, skip_bad_rows: bool = False) -> Columns:
    """Read a file of sessions into columns, one request a row.

    Raises
    ------
    TraceError
        A session or one of its requests cannot be read; the line is named.
    """
    block_size = _block_size(next(objects(source))[1], source.path, 1)
    columns = Columns(source.path, timed=True, block_size=block_size, overlaid=True)
    sessions = [0]
    columns.fill(_rows(source, columns, block_size, sessions, skip_bad_rows))
    columns.notices.append(f"{sessions[0]:,} sessions laid over one another, all starting at 0")
    return columns


def _rows(source: Source, columns: Columns, block_size: int, sessions: list[int], skip_bad_rows: bool) -> Iterator[Row]:
    base = 0  # ids of a session start here
    mapping = replace(REQUEST, block_size=block_size)
    for line, session in objects(source, columns.skipped if skip_bad_rows else None):
        highest = -1
        try:
            for request in _requests(session, block_size, source.path, line):
                arrival, prompt, output, ids = row_of(request, mapping, source.path, line)
                highest = max(highest, *ids, -1)
                yield arrival, prompt, output, [base + number for number in ids]
        except TraceError:
            if not skip_bad_rows:
                raise
            columns.skip(MALFORMED)
        sessions[0] += 1
        if session.get("hash_id_scope") != "global":
            base += highest + 1


def _requests(session: Object, block_size: int, path: str, line: int) -> list[Object]:
    requests = session.get("requests")
    if not isinstance(requests, list) or not all(isinstance(request, dict) for request in requests):
        raise TraceError("a list of requests is expected", file=path, line=line, field="requests")
    if _block_size(session, path, line) != block_size:
        raise TraceError(
            f"sessions before have blocks of {block_size} tokens", file=path, line=line, field="block_size"
        )
    return requests


def _block_size(session: Object, path: str, line: int) -> int:
    size = session.get("block_size")
    if type(size) is not int or size < 1:
        raise TraceError("a whole number of tokens from 1 up is expected", file=path, line=line, field="block_size")
    return size
