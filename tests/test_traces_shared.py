"""The real traces, against the table of statistics that came with them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from traffic_shared import TRACES, needs_traces

from kvsim.errors import TraceError
from kvsim.generate import load_workload
from kvsim.generate.clients import Clients
from kvsim.traces import describe, read, write
from kvsim.traces.servegen import read_client_lengths, read_client_rates

pytestmark = needs_traces

# file: rows, prompt mean/p50/p90/p99/max, output mean/p50/p90/p99/max, Spearman, share over 2048 tokens together
TABLE = {
    "azure_llm_inference_2023_code.csv": (
        8_819, (2047.8, 1469, 5188, 7436, 7437), (27.9, 13, 55, 252, 1899), -0.02, 0.382,
    ),
    "azure_llm_inference_2023_conv.csv": (
        19_366, (1154.7, 1020, 2735, 4142, 14050), (211.1, 129, 424, 601, 1000), 0.07, 0.147,
    ),
    "mooncake_fast25_conversation_trace.jsonl.gz": (
        12_031, (12035, 6909, 27367, 85400, 126195), (342.6, 350, 597, 1119, 2000), 0.07, 0.799,
    ),
    "mooncake_fast25_synthetic_trace.jsonl.gz": (
        3_993, (15325, 11587, 38611, 66456, 191378), (149.1, 69, 389, 768, 893), -0.52, 0.677,
    ),
    "etalon_sharegpt_8k_llama2.csv.gz": (
        30_731, (2340, 1730, 5696, 7434, 8141), (438.7, 415, 834, 998, 1024), 0.05, 0.526,
    ),
    "etalon_bwb_llama2.csv.gz": (33_768, (1067, 1037, 1453, 1800, 3504), (1613, 1601, 2149, 2533, 2858), 0.81, 0.896),
    "vidur_arxiv_summarization_llama2.csv.gz": (
        28_257, (2588, 2730, 3702, 3933, 4054), (291.4, 167, 372, 3271, 4056), -0.11, 0.818,
    ),
    "vtc_lmsys_arena_1500.csv": (1_500, (136.3, 40, 432, 902, 1021), (256.2, 211, 513, 785, 977), 0.26, 0.0),
}  # fmt: skip


def roundings(value: float, shown: float) -> set[float]:
    """What the table may show for a value: tenths, or whole numbers, one of them (251.46, "252") rounded twice."""
    if shown != int(shown):
        return {round(value, 1)}
    return {math.floor(value + 0.5), math.floor(round(value, 1) + 0.5)}


@pytest.mark.parametrize("name", TABLE)
def test_statistics_are_those_of_the_table(name):
    rows, prompt, output, rank, too_long = TABLE[name]
    found = describe(read(TRACES / name, require_times=False))
    assert found["rows"] == rows
    assert found["skipped"] == {}
    for column, expected in (("prompt", prompt), ("output", output)):
        for key, shown in zip(("mean", "p50", "p90", "p99", "max"), expected, strict=True):
            assert shown in roundings(found[column][key], shown), (column, key)
    assert found["spearman"] == pytest.approx(rank, abs=0.005)
    assert found["too_long"]["share"] == pytest.approx(too_long, abs=0.0005)


@pytest.mark.parametrize(
    ("name", "rate", "span", "cv"),
    [
        ("azure_llm_inference_2023_code.csv", 2.567, 3436, 13.2),
        ("azure_llm_inference_2023_conv.csv", 5.530, 3502, 1.09),
        ("mooncake_fast25_conversation_trace.jsonl.gz", 3.401, 3537, 3.03),
        ("mooncake_fast25_synthetic_trace.jsonl.gz", 3.907, 1022, 1.01),
        ("vtc_lmsys_arena_1500.csv", 2.5, 600, 1.10),
        ("llmservingsim_sharegpt_req300_llama_blk16.jsonl.gz", 10.3, 29, 0.94),
    ],
)
def test_arrivals_are_those_of_the_table(name, rate, span, cv):
    found = describe(read(TRACES / name))
    assert found["rate_per_s"] == pytest.approx(rate, rel=1e-3)
    assert found["span_s"] == pytest.approx(span, abs=0.5)
    assert found["arrival_cv"] == pytest.approx(cv, rel=5e-3)


def test_coarse_clock_is_told():
    notices = describe(read(TRACES / "mooncake_fast25_conversation_trace.jsonl.gz"))["notices"]
    assert any("coarse clock" in notice and "1.01" in notice for notice in notices)


@pytest.mark.parametrize(
    ("name", "ids", "distinct", "reuse", "block_size"),
    [
        ("mooncake_fast25_conversation_trace.jsonl.gz", 288_500, 182_790, 0.3664, 512),
        ("mooncake_fast25_synthetic_trace.jsonl.gz", 121_877, 43_924, 0.6396, 512),
        ("kv_cache_tester_sessions_40small.jsonl.gz", 725_564, 45_423, 0.9374, 64),
    ],
)
def test_prefix_reuse(name, ids, distinct, reuse, block_size):
    stream = read(TRACES / name)
    found = describe(stream)["prefix"]
    assert (found["ids"], found["distinct"]) == (ids, distinct)
    assert found["ideal_reuse"] == pytest.approx(reuse, abs=5e-5)
    assert stream.prefix.block_size == block_size


@pytest.mark.parametrize(
    ("name", "prompt", "output", "reuse"),
    [
        ("llmservingsim_sharegpt_req300_llama_blk16.jsonl.gz", 224, 278, 0.046),
        ("llmservingsim_sharegpt_pulse50x6_blk16.jsonl.gz", 275, 251, 0.257),
        ("llmservingsim_sharegpt_300_sps10_llama31_blk16.jsonl.gz", 857, 653, 0.076),
    ],
)
def test_llmservingsim_blocks(name, prompt, output, reuse):
    """The table's reuse is of tokens; whole blocks of 16 are counted here."""
    stream = read(TRACES / name)
    assert len(stream) == 300
    assert stream.prefix.block_size == 16
    assert (round(stream.prompt.mean()), round(stream.output.mean())) == (prompt, output)
    found = describe(stream)["prefix"]
    tokens = found["ideal_reuse"] * found["ids"] * 16 / stream.prompt.sum()
    assert tokens == pytest.approx(reuse, abs=5e-4)


def test_stacked_tokenizers_ask_which():
    path = TRACES / "llmservingsim_sharegpt_req300_rate10_lengths.csv"
    with pytest.raises(TraceError, match=r"llama, mixtral, phi; say which with --where tokenizer=llama"):
        read(path)
    for tokenizer, prompt, output in (("llama", 224, 278), ("mixtral", 228, 316), ("phi", 234, 323)):
        stream = read(path, where={"tokenizer": tokenizer})
        assert len(stream) == 300
        assert (round(stream.prompt.mean()), round(stream.output.mean())) == (prompt, output)
        assert stream.skipped == {f"tokenizer is not {tokenizer}": 600}


def test_kv_cache_tester_sessions():
    stream = read(TRACES / "kv_cache_tester_sessions_40small.jsonl.gz")
    assert len(stream) == 990
    assert any("40 sessions" in notice for notice in stream.notices)


@pytest.mark.parametrize(
    "name", ["servegen_deepseek-r1_client_rates.csv.gz", "servegen_deepseek-r1_client_lengths.jsonl.gz"]
)
def test_servegen_files_are_told_from_requests(name):
    with pytest.raises(TraceError, match="description of clients, not requests"):
        read(TRACES / name)


@pytest.mark.parametrize(("model", "rows"), [("m-small", 86_688), ("deepseek-r1", 10_512), ("mm-image", 5_040)])
def test_servegen_rates_feed_a_generator(model, rows):
    rates = read_client_rates(TRACES / f"servegen_{model}_client_rates.csv.gz")
    assert sum(len(windows) for windows in rates.values()) == rows
    start, duration = 43_200.0, 1_800.0
    expected = sum(w.rate * 600 for own in rates.values() for w in own if start <= w.start_s < start + duration)
    counts = [
        len(Clients(rates, load_workload("sharegpt")).sample(duration, start_s=start, seed=seed)) for seed in range(4)
    ]
    assert np.mean(counts) == pytest.approx(expected, rel=0.05)


def test_servegen_lengths_feed_a_generator():
    lengths = read_client_lengths(TRACES / "servegen_deepseek-r1_client_lengths.jsonl.gz")
    assert len(lengths) == 73
    rates = read_client_rates(TRACES / "servegen_deepseek-r1_client_rates.csv.gz")
    stream = Clients(rates, lengths).sample(600, start_s=43_200, rate_per_s=20)
    assert len(stream) == pytest.approx(12_000, rel=0.15)
    known = {int(v) for own in lengths.values() for window in own for v in window.prompt[0]}
    assert set(stream.prompt.tolist()) <= known


@pytest.mark.parametrize("name", [*TABLE, "kv_cache_tester_sessions_40small.jsonl.gz"])
def test_parquet_keeps_all_of_a_trace(name, tmp_path):
    stream = read(TRACES / name, require_times=False)
    assert write(stream, tmp_path / "t.parquet", "kvsim-parquet") == []
    again = read(tmp_path / "t.parquet", require_times=False)
    for column in ("arrival_ns", "prompt", "output"):
        assert np.array_equal(getattr(stream, column), getattr(again, column))
    assert stream.prefix == again.prefix
    assert stream.timed == again.timed
