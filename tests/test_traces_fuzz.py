"""Whatever a file holds, it gives a valid stream or a TraceError; the fast reader agrees with the careful one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.errors import ConfigError, TraceError
from kvsim.requests import RequestStream
from kvsim.traces import Mapping, read
from kvsim.traces.fields import UNITS, Fields, many_counts, many_times, one_count, one_time
from kvsim.traces.servegen import read_client_lengths, read_client_rates

HEADERS = {
    "kvsim": "arrival_ns,prompt,output",
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
    "vidur": "num_prefill_tokens,num_decode_tokens,arrived_at",
    "splitwise": "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size",
    "vtc": "req_id,client,req_time,prompt_len,output_len",
    "llmservingsim": "arrival_time_ns,input_toks,output_toks",
    "servegen": "client,window_start_s,rate,cv,pattern,param1,param2",
}
FIELD = st.one_of(
    st.integers(-5, 10**20).map(str),
    st.floats().map(str),
    st.sampled_from(
        ["", " 7 ", "1e3", "1_000", "٣", "2023-11-16 18:15:46.6805900", "2024-02-30 00:00:00", '"9"', '"a\nb"', "12.0"]
    ),
    st.text(alphabet='0123456789.-+:, T"\r\n\0Zé', max_size=12),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def read_bytes(content, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t")
        path.write_bytes(content)
        stream = one_line_or_value(lambda: read(path, require_times=False, **options))
        assert stream is None or (isinstance(stream, RequestStream) and len(stream) >= 1)


def one_line_or_value(work):
    """Return what some work gives, or None where it raises a TraceError (of one line)."""
    try:
        return work()
    except TraceError as error:
        lines = str(error).splitlines()
    assert len(lines) == 1
    return None


@pytest.mark.parametrize("name", HEADERS)
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(FIELD, min_size=2, max_size=7), max_size=5), skip=st.booleans())
def test_tables(name, rows, skip):
    text = "\n".join([HEADERS[name], *(",".join(row) for row in rows)])
    read_bytes(text.encode("utf-8", "surrogatepass"), skip_bad_rows=skip)


def as_lines(keys):
    values = st.fixed_dictionaries(
        {}, optional={key: JSON | st.integers(0, 600) | st.lists(st.integers(0, 9)) for key in keys}
    )
    return st.lists(values, min_size=1, max_size=4)


OBJECT_KEYS = {
    "mooncake": ["timestamp", "input_length", "output_length", "hash_ids"],
    "mooncake-full-blocks": ["timestamp", "input_length", "output_length", "hash_ids", "output_hash_ids"],
    "llmservingsim": ["arrival_time_ns", "input_toks", "output_toks"],
    "kv-cache-tester": ["block_size", "requests", "hash_id_scope"],
    "sharegpt": ["conversations"],
    "servegen-lengths": ["client", "window_start_s", "input_tokens", "output_tokens"],
}


@pytest.mark.parametrize("name", OBJECT_KEYS)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_objects(name, data, skip):
    items = data.draw(as_lines(OBJECT_KEYS[name]))
    items[0] = dict.fromkeys(OBJECT_KEYS[name], 1) | items[0]
    for text in ("\n".join(map(json.dumps, items)), json.dumps(items)):
        read_bytes(text.encode(), skip_bad_rows=skip, tokenizer=lambda texts: [len(t) for t in texts])


REQUEST = st.fixed_dictionaries(
    {},
    optional={
        "t": JSON | st.integers(0, 9),
        "in": JSON | st.integers(0, 200),
        "out": JSON | st.integers(0, 9),
        "hash_ids": JSON,
    },
)


@settings(max_examples=60, deadline=None)
@given(requests=st.lists(REQUEST | JSON, max_size=4), size=st.integers(-1, 70) | JSON, skip=st.booleans())
def test_sessions(requests, size, skip):
    session = {"block_size": size, "requests": requests}
    read_bytes(json.dumps(session).encode(), skip_bad_rows=skip)


@settings(max_examples=100, deadline=None)
@given(
    content=st.binary(max_size=300),
    start=st.sampled_from([b"", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"{", b"[", b"a,b\n"]),
)
def test_any_bytes(content, start):
    read_bytes(start + content)
    read_bytes(start + content, mapping=Mapping(prompt="a", output="b"))


@settings(max_examples=100, deadline=None)
@given(
    content=st.text(max_size=200),
    header=st.sampled_from([HEADERS["servegen"] + "\n", "", '{"client":0,"window_start_s":0,']),
)
def test_client_files(content, header):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t")
        path.write_text(header + content, encoding="utf-8")
        for reader in (read_client_rates, read_client_lengths):
            one_line_or_value(lambda reader=reader: reader(path))


def many(texts, reader, *extra):
    block = ",".join(texts) + ","
    data = np.frombuffer(block.encode(), dtype=np.uint8)
    end = np.flatnonzero(data == ord(","))
    return reader(Fields(data, np.concatenate([[0], end[:-1] + 1]), end), *extra)


PLAIN = st.text(alphabet="0123456789.-+eE: TZ", max_size=22)


@settings(max_examples=300)
@given(texts=st.lists(st.integers(0, 10**12).map(str) | PLAIN, min_size=1, max_size=8))
def test_fast_counts_are_careful_counts(texts):
    values, bad = many(texts, many_counts)
    for text, value, is_bad in zip(texts, values.tolist(), bad.tolist(), strict=True):
        if not is_bad:
            assert one_count(text) == value


DATE = st.datetimes().map(str) | st.datetimes(timezones=st.just(None)).map(lambda d: d.isoformat() + "Z")


@pytest.mark.parametrize("unit", [*UNITS, "datetime"])
@settings(max_examples=200)
@given(texts=st.lists(st.decimals(0, 10**9, allow_nan=False).map(str) | PLAIN | DATE, min_size=1, max_size=8))
def test_fast_times_are_careful_times(unit, texts):
    values, bad = many(texts, many_times, unit)
    for text, value, is_bad in zip(texts, values.tolist(), bad.tolist(), strict=True):
        if not is_bad:
            assert one_time(text, unit) == value


@given(st.decimals(0, 10**6, places=9, allow_nan=False))
def test_plain_decimals_need_no_careful_reader(number):
    values, bad = many([f"{number:f}"], many_times, "s")
    assert not bad[0]
    assert values[0] == int(number * 10**9)


def test_what_cannot_be_meant_together():
    with pytest.raises(ConfigError, match="exclude one another"):
        read("t", backlog=True, rate_per_s=1.0)
