"""Every format on rows written from its documentation, and the cases that people have met (R01 to R12)."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
import zstandard
from test_traces import write

from kvsim.errors import ConfigError, TraceError
from kvsim.traces import FORMATS, Mapping, parse_mapping, read

BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,GPT-4,1087,230,1317,API log
118,GPT-4,417,0,417,Conversation log
"""
SPLITWISE = """request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size
0,2,0,0.0,1,100,20
1,2,0,0.25,1,200,30
"""
LLMSERVINGSIM = """{"input_toks":10,"output_toks":70,"arrival_time_ns":46926808,"input_tok_ids":[1,2]}
{"input_toks":22,"output_toks":104,"arrival_time_ns":347938952.0}
"""
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.1,10,5\n0.30000000000000004,20,6\n1.5e0,30,7\n"


def columns(stream):
    return list(zip(stream.arrival_ns.tolist(), stream.prompt.tolist(), stream.output.tolist(), strict=True))


def test_burstgpt(tmp_path):
    stream = read(write(tmp_path, BURSTGPT))
    assert columns(stream) == [(5_000_000_000, 472, 18), (45_000_000_000, 1087, 230)]
    assert stream.skipped == {"no output tokens": 1}


def test_azure_2024_with_time_zones_and_without_fractions(tmp_path):
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\n"
        "2024-05-10 00:00:01+00:00,2399,6\n"
        "2024-05-10T00:00:01.5Z,2400,7\n"
        "2024-05-10 02:00:02.25+02:00,2401,8\n"
    )
    stream = read(write(tmp_path, text))
    assert stream.arrival_ns.tolist() == [0, 990_070_000, 1_490_070_000, 2_240_070_000]


def test_splitwise(tmp_path):
    assert columns(read(write(tmp_path, SPLITWISE))) == [(0, 100, 20), (250_000_000, 200, 30)]


def test_vidur_with_times(tmp_path):
    assert columns(read(write(tmp_path, VIDUR))) == [(100_000_000, 10, 5), (300_000_000, 20, 6), (1_500_000_000, 30, 7)]


def test_llmservingsim_json(tmp_path):
    assert columns(read(write(tmp_path, LLMSERVINGSIM))) == [(46_926_808, 10, 70), (347_938_952, 22, 104)]


def test_kvsim_csv(tmp_path):
    assert columns(read(write(tmp_path, "arrival_ns,prompt,output\n7,1,2\n9007199254740993,3,4\n"))) == [
        (7, 1, 2),
        (9007199254740993, 3, 4),
    ]


# --- cases that people who serve models have met


def test_r01_fractions_are_not_cut(tmp_path):
    rows = "".join(f"2023-11-16 18:15:46.{ms:03d}0000,10,5\n" for ms in (1, 2, 9, 11))
    stream = read(write(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows))
    assert stream.arrival_ns.tolist() == [0, 1_000_000, 8_000_000, 10_000_000]


def mooncake(rows):
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    return "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows)


def test_r04_milliseconds_and_shared_blocks(tmp_path):
    shared = list(range(46, 58))
    text = mooncake([(27482, 6955, 52, [*shared, 58, 59]), (30535, 6472, 26, [*shared, 2353])])
    stream = read(write(tmp_path, text, "t.jsonl"))
    assert stream.span_ns == 3_053_000_000
    assert np.diff(stream.prefix.offsets).tolist() == [14, 13]
    first, second = (set(stream.prefix.ids[a:b].tolist()) for a, b in ((0, 14), (14, 27)))
    assert len(first & second) * stream.prefix.block_size == 6144


def test_r06_the_number_of_ids_fits_the_length(tmp_path):
    with pytest.raises(TraceError, match=r"line 1, field 'hash_ids': 2 ids for 20 tokens; 1 are expected"):
        read(write(tmp_path, mooncake([(0, 20, 5, [0, 1])]), "t.jsonl"))
    for tokens, block_size, ids in ((33, 16, 3), (6, 4, 2)):
        path = write(tmp_path, mooncake([(0, tokens, 5, list(range(ids)))]), "t.jsonl")
        assert len(read(path, block_size=block_size).prefix.ids) == ids
    for tokens, fits in ((1536, False), (1537, True), (2048, True), (2049, False)):
        path = write(tmp_path, mooncake([(0, tokens, 5, [0, 1, 2, 3])]), "t.jsonl")
        if fits:
            assert len(read(path).prefix.ids) == 4
        else:
            with pytest.raises(TraceError, match="4 ids"):
                read(path)


def test_r09_failed_calls_and_other_models(tmp_path):
    text = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "0,GPT-4,100,50,150,a\n1,GPT-4,200,0,200,a\n2,ChatGPT,0,0,0,a\n3,GPT-4,10,5,15,a\n"
    )
    stream = read(write(tmp_path, text), where={"Model": "GPT-4"}, num_requests=5)
    assert columns(stream) == [(0, 100, 50), (3_000_000_000, 10, 5)]
    assert stream.skipped == {"no output tokens": 1, "Model is not GPT-4": 1}
    assert "5 requests asked for; the trace has 2" in stream.notices


def count_words(texts):
    return [len(text.split()) for text in texts]


def turns(*roles):
    return {
        "id": "x",
        "conversations": [{"from": role, "value": f"{role} says {'so ' * i}"} for i, role in enumerate(roles)],
    }


def test_r12_sharegpt_turns_go_by_role(tmp_path):
    talks = [turns("system", "human", "gpt", "human", "gpt"), turns("gpt", "human", "gpt"), turns("human"), turns()]
    path = write(tmp_path, json.dumps(talks), "sharegpt.json")
    stream = read(path, tokenizer=count_words, require_times=False)
    assert stream.prompt.tolist() == [3, 5, 3]
    assert stream.output.tolist() == [4, 6, 4]
    assert stream.skipped == {
        "turns of another role": 1,
        "turns without a partner": 2,
        "conversations without a pair": 2,
    }
    with pytest.raises(TraceError, match="--tokenizer"):
        read(path)


def test_sharegpt_with_a_tokenizer_file(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[UNK]": 0, "hello": 1, "there": 2}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    talk = {"conversations": [{"role": "user", "content": "hello there"}, {"role": "assistant", "content": "hello"}]}
    path = write(tmp_path, json.dumps(talk) + "\n", "talk.jsonl")
    stream = read(path, tokenizer=tmp_path / "tokenizer.json", backlog=True)
    assert (stream.prompt.tolist(), stream.output.tolist()) == ([2], [1])
    with pytest.raises(TraceError, match="is no tokenizer"):
        read(path, tokenizer=path)


def test_an_array_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("kvsim.traces.source.BLOCK", 7)
    talks = [turns("human", "gpt") for _ in range(20)]
    stream = read(write(tmp_path, json.dumps(talks, indent=1), "s.json"), tokenizer=count_words, backlog=True)
    assert len(stream) == 20


# --- kv-cache-tester


def session(**changes):
    requests = [
        {"t": 0.0, "in": 130, "out": 5, "hash_ids": [1, 2]},
        {"t": 2.5, "in": 200, "out": 6, "hash_ids": [1, 2, 3]},
    ]
    return {"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": requests} | changes


def test_sessions_keep_their_ids_apart(tmp_path):
    path = write(tmp_path, "".join(json.dumps(session()) + "\n" for _ in range(2)), "s.jsonl")
    stream = read(path)
    assert stream.arrival_ns.tolist() == [0, 0, 2_500_000_000, 2_500_000_000]
    assert len(set(stream.prefix.ids.tolist())) == 6
    everywhere = write(
        tmp_path, "".join(json.dumps(session(hash_id_scope="global")) + "\n" for _ in range(2)), "g.jsonl"
    )
    assert len(set(read(everywhere).prefix.ids.tolist())) == 3


# --- any other table


def test_a_mapping_on_the_command_line_and_in_toml(tmp_path):
    text = "when;in tok;out tok;kind\n1.5;10;5;a\n2.5;11;6;b\n"
    path = write(tmp_path, text)
    (tmp_path / "map.toml").write_text('prompt = "in tok"\noutput = "out tok"\narrival = "when"\nunit = "ms"\n')
    for mapping in (
        parse_mapping("prompt=in tok,output=out tok,arrival=when", unit="ms"),
        parse_mapping(str(tmp_path / "map.toml")),
    ):
        assert columns(read(path, mapping=mapping)) == [(1_500_000, 10, 5), (2_500_000, 11, 6)]
    only_b = read(path, mapping=mapping, where={"kind": "b"})
    assert columns(only_b) == [(2_500_000, 11, 6)]


def test_a_mapping_of_json_and_parquet(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    mapping = Mapping(prompt="p", output="o", arrival="t", unit="s")
    lines = write(tmp_path, '{"p": 1, "o": 2, "t": 0.5}\n{"p": 3, "o": 4, "t": "1.5"}\n', "t.jsonl")
    pq.write_table(pa.table({"t": [0.5, 1.5], "p": [1, 3], "o": pa.array([2.0, 4.0])}), tmp_path / "t.parquet")
    for path in (lines, tmp_path / "t.parquet"):
        assert columns(read(path, mapping=mapping)) == [(500_000_000, 1, 2), (1_500_000_000, 3, 4)]


def test_parquet_values_that_cannot_be_meant(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    mapping = Mapping(prompt="p", output="o")
    for values in ([1.0, 2.5], [1, -2], [1, None], ["a", "b"]):
        pq.write_table(pa.table({"p": values, "o": [1, 1]}), tmp_path / "t.parquet")
        with pytest.raises(TraceError, match=r"row [12]: .* is not a whole number of tokens"):
            read(tmp_path / "t.parquet", mapping=mapping, backlog=True)
    pq.write_table(pa.table({"p": [1, -2], "o": [1, 1]}), tmp_path / "t.parquet")
    assert len(read(tmp_path / "t.parquet", mapping=mapping, backlog=True, skip_bad_rows=True)) == 1
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(TraceError, match="damaged"):
        read(tmp_path / "t.parquet", mapping=mapping)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompt=a", "needs output="),
        ("prompt=a,output=b,arival=c", "did you mean 'arrival'"),
        ("prompt,output", "is not KEY=COLUMN"),
        ("prompt=a,output=b,unit=minutes", "unknown time unit"),
        ("prompt=a,output=b,block_size=x", "whole number"),
        ("nowhere.toml", "No such file"),
    ],
)
def test_a_mapping_that_cannot_be_meant(text, said):
    with pytest.raises(ConfigError, match=said):
        parse_mapping(text)


def test_quoted_fields_may_hold_lines(tmp_path):
    text = 'text,prompt,output,arrival_ns\n"a, b\nand c",10,5,0\nplain,11,6,7\n"x ""y""",12,x,8\n'
    with pytest.raises(TraceError, match="line 5, field 'output': 'x'"):
        read(write(tmp_path, text))
    assert columns(read(write(tmp_path, text), skip_bad_rows=True)) == [(0, 10, 5), (7, 11, 6)]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gzip", "zstd"])
def test_packed_files_are_read_as_they_are(tmp_path, pack):
    assert len(read(write(tmp_path, pack(BURSTGPT.encode()), "t.csv"))) == 2
    assert len(read(write(tmp_path, pack(LLMSERVINGSIM.encode()), "t.jsonl"))) == 2


def test_damaged_zstd(tmp_path):
    packed = zstandard.ZstdCompressor().compress(BURSTGPT.encode() * 100)
    with pytest.raises(TraceError, match="the zstd data is damaged"):
        read(write(tmp_path, packed[:9] + b"\xff" * 30, "t.csv"))
    with pytest.raises(TraceError, match="the zstd data ends early"):
        read(write(tmp_path, packed[:-9], "t.csv"))
    two_frames = zstandard.ZstdCompressor().compress(BURSTGPT.encode()) + zstandard.ZstdCompressor().compress(
        b"200,A,1,1,2,x"
    )
    assert len(read(write(tmp_path, two_frames, "t.csv"))) == 3


def test_a_format_may_be_said(tmp_path):
    path = write(tmp_path, BURSTGPT)
    assert len(read(path, "burstgpt")) == 2
    with pytest.raises(TraceError, match="has no column 'ContextTokens'"):
        read(path, "azure")
    with pytest.raises(ConfigError, match="did you mean 'azure'"):
        read(path, "azur")


def test_every_format_is_listed_in_the_help():
    from kvsim.cli.trace import FORMAT_HELP

    assert all(name in FORMAT_HELP for name in FORMATS if not name.startswith("servegen"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"timestamp": 1, "input_length": 10}', "field 'output_length': is missing"),
        ('{"timestamp": 1, "input_length": 10, "output_length": -1}', "field 'output_length': -1 is not a number of"),
        ('{"timestamp": 1, "input_length": 10, "output_length": true}', "True is not a whole number"),
        ('{"timestamp": 1, "input_length": 10, "output_length": null}', "None is not a whole number"),
        ('{"timestamp": -1, "input_length": 10, "output_length": 1}', "field 'timestamp': -1 is not a time in ms"),
        ("[1, 2]", "a JSON object is expected"),
        ("{nonsense", "not JSON"),
    ],
)
def test_a_malformed_line_of_json_is_named(tmp_path, line, said):
    good = '{"timestamp": 0, "input_length": 10, "output_length": 5}'
    path = write(tmp_path, f"{good}\n{good}\n{line}\n{good}\n", "t.jsonl")
    with pytest.raises(TraceError, match=f"line 3.*{said}"):
        read(path)
    assert read(path, skip_bad_rows=True).skipped == {"malformed row": 1}
