"""The formats that kvsim knows: which columns or keys they have, and what those mean."""

from __future__ import annotations

from kvsim.errors import TraceError
from kvsim.traces.source import Source
from kvsim.traces.table import Mapping, header_of

# CSV formats; one is recognised by the columns that its mapping names (and that nothing else has)
CSV = {
    "kvsim": Mapping(arrival="arrival_ns", unit="ns", prompt="prompt", output="output"),
    "azure": Mapping(arrival="TIMESTAMP", unit="datetime", prompt="ContextTokens", output="GeneratedTokens"),
    "burstgpt": Mapping(arrival="Timestamp", unit="s", prompt="Request tokens", output="Response tokens"),
    "vidur": Mapping(arrival="arrived_at", unit="s", prompt="num_prefill_tokens", output="num_decode_tokens"),
    "splitwise": Mapping(arrival="arrival_timestamp", unit="s", prompt="prompt_size", output="token_size"),
    "llmservingsim-csv": Mapping(arrival="arrival_time_ns", unit="ns", prompt="input_toks", output="output_toks"),
    "vtc": Mapping(arrival="req_time", unit="s", prompt="prompt_len", output="output_len"),
}


def recognise(source: Source) -> str:
    """Return the name of the format of a file, from its content."""
    header = header_of(source)
    for name, mapping in CSV.items():
        if mapping.prompt in header and mapping.output in header:
            return name
    raise TraceError(f"no format that kvsim knows has the columns {', '.join(header[:20])}", file=source.path, line=1)


def mapping_for(source: Source, name: str) -> Mapping:
    """Return the mapping of a CSV format, without the arrival where the file has none."""
    from dataclasses import replace

    mapping = CSV[name]
    return mapping if mapping.arrival in header_of(source) else replace(mapping, arrival=None)
