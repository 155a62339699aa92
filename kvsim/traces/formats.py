"""The formats that kvsim knows: how each is recognised, and what its columns or keys mean."""

from __future__ import annotations

from dataclasses import replace

from kvsim.errors import TraceError
from kvsim.traces.mapping import Mapping
from kvsim.traces.objects import objects
from kvsim.traces.source import Source, one_line
from kvsim.traces.table import header_of

# tables: recognised by the columns of their lengths, which no two of them share
TABLES = {
    "kvsim": Mapping(arrival="arrival_ns", unit="ns", prompt="prompt", output="output", ids="prefix_ids"),
    "azure": Mapping(arrival="TIMESTAMP", unit="datetime", prompt="ContextTokens", output="GeneratedTokens"),
    "burstgpt": Mapping(arrival="Timestamp", unit="s", prompt="Request tokens", output="Response tokens"),
    "vidur": Mapping(arrival="arrived_at", unit="s", prompt="num_prefill_tokens", output="num_decode_tokens"),
    "splitwise": Mapping(arrival="arrival_timestamp", unit="s", prompt="prompt_size", output="token_size"),
    "vtc": Mapping(arrival="req_time", unit="s", prompt="prompt_len", output="output_len"),
    "llmservingsim": Mapping(arrival="arrival_time_ns", unit="ns", prompt="input_toks", output="output_toks"),
}
# objects: Mooncake's keys with ids of whole blocks only, and of generated blocks besides, are another format
OBJECTS = {
    "mooncake": Mapping(
        arrival="timestamp", unit="ms", prompt="input_length", output="output_length", ids="hash_ids", block_size=512
    ),
    "mooncake-full-blocks": Mapping(
        arrival="timestamp", unit="ms", prompt="input_length", output="output_length", ids="hash_ids", full_blocks=True
    ),
}
SESSIONS, SHAREGPT = "kv-cache-tester", "sharegpt"
CLIENT_RATES, CLIENT_LENGTHS = "servegen-rates", "servegen-lengths"
MAPPED = "mapped"  # what a user's own column mapping makes of a file

FORMATS = [*TABLES, *OBJECTS, SESSIONS, SHAREGPT, CLIENT_RATES, CLIENT_LENGTHS]

# a column that says which of several traces in one file a row belongs to
STACKED = {"llmservingsim": "tokenizer"}

RATE_COLUMNS = {"client", "window_start_s", "rate", "cv", "pattern"}
LENGTH_KEYS = {"client", "window_start_s", "input_tokens", "output_tokens"}


def names_of(source: Source) -> list[str]:
    """Return the columns of a table, or the keys of the first object."""
    if source.is_parquet:
        from kvsim.traces.parquet import column_names

        return column_names(source)
    if is_json(source):
        first = next(objects(source), None)
        if first is None:
            raise TraceError("holds no object", file=source.path)
        return list(first[1])
    return header_of(source)


def is_json(source: Source) -> bool:
    """Tell JSON from CSV."""
    return source.head.lstrip()[:1] in (b"{", b"[")


def recognise(source: Source, names: list[str]) -> str:
    """Return the name of the format of a file from its columns or keys.

    Raises
    ------
    TraceError
        They are those of no format that is known.
    """
    if "conversations" in names:
        return SHAREGPT
    if set(names) >= {"requests", "block_size"}:
        return SESSIONS
    if set(names) >= RATE_COLUMNS:
        return CLIENT_RATES
    if set(names) >= LENGTH_KEYS:
        return CLIENT_LENGTHS
    if "output_hash_ids" in names:
        return "mooncake-full-blocks"
    for name, mapping in (TABLES | OBJECTS).items():
        if {mapping.prompt, mapping.output} <= set(names):
            return name
    for name, mapping in (TABLES | OBJECTS).items():
        if len({mapping.prompt, mapping.output} & set(names)) == 1:
            missing = next(iter({mapping.prompt, mapping.output} - set(names)))
            raise TraceError(f"looks like {name}, but has no column", file=source.path, line=1, field=missing)
    found = one_line(", ".join(names[:20]))
    raise TraceError(
        f"no format that kvsim knows has the columns {found[:200]}; "
        "say which are which with --map prompt=...,output=...,arrival=...",
        file=source.path,
        line=None if source.is_parquet else 1,
    )


def mapping_of(name: str, names: list[str], block_size: int | None = None) -> Mapping:
    """Return what the columns of a format mean in a file that has the columns ``names``."""
    mapping = (TABLES | OBJECTS)[name].without_missing_times(names)
    return mapping if block_size is None else replace(mapping, block_size=block_size)
