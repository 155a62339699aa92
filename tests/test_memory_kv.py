"""Keys and values: to the byte, for every kind of attention."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pytest
from memory_cases import run_json, run_text

from kvsim.errors import ConfigError
from kvsim.memory import CACHE_FORMATS, Serving, cache_format, cache_shape, capacity, kv_cache, window_cells
from kvsim.models import custom_model, get_model

Capsys = pytest.CaptureFixture[str]
MIB, GIB = 2**20, 2**30


def test_a_13b_model(capsys: Capsys) -> None:
    answer = run_json(capsys, "kv --layers 40 --hidden 5120 --params 13B --context 2048")
    assert answer["bytes_per_token"] == 819_200
    assert answer["sequence_bytes"] == answer["lower_bound_bytes"] == 1.5625 * GIB
    assert answer["outgrows_weights_at"] == 31_738


@pytest.mark.parametrize(
    ("model", "num_bytes", "full"),
    [
        ("DeepSeek-V3", 70_272, 70_272),
        ("Llama-3-8B", 131_072, 131_072),
        ("gpt-oss-120b", 73_728, 36_864),
        ("Gemma-3-27B", 507_904, 81_920),
        ("Gemma-2-9B", 344_064, 172_032),
        ("Falcon-7B", 8_192, 8_192),
        ("Qwen3-4B", 147_456, 147_456),
    ],
)
def test_a_token(capsys: Capsys, model: str, num_bytes: int, full: int) -> None:
    answer = run_json(capsys, f"kv --model {model} --context 1024")
    assert (answer["bytes_per_token"], answer["full_bytes_per_token"]) == (num_bytes, full)


def test_four_heads_that_share_one(capsys: Capsys) -> None:
    whole = run_json(capsys, "kv --layers 32 --hidden 4096 --heads 32 --context 1024")
    shared = run_json(capsys, "kv --layers 32 --hidden 4096 --heads 32 --kv-heads 8 --context 1024")
    assert 4 * shared["bytes_per_token"] == whole["bytes_per_token"]
    assert "1/4 of multi-head" in run_text(capsys, "kv --layers 32 --hidden 4096 --heads 32 --kv-heads 8")


def test_k07_bits_bytes_and_shared_heads(capsys: Capsys) -> None:
    answer = run_json(capsys, "kv --model qwen2.5-7b --bits 8 --context 3072")
    assert answer["bytes_per_token"] == 57_344
    assert answer["sequence_bytes"] == 176_160_768 == 168 * MIB
    assert answer["weights_bytes"] == 7_615_616_512
    assert answer["mha_bytes_per_token"] == 7 * 57_344
    assert 2 * 3584 * 28 * 8 == 28 * 57_344


def test_k13_a_hybrid_keeps_a_cache_in_every_fourth_layer(capsys: Capsys) -> None:
    sizes = "--layers 64 --full-every 4 --kv-heads 4 --head-dim 256 --kv-dtype fp8"
    answer = run_json(capsys, f"kv {sizes} --block-size 1568 --context 262144 --kv-tokens 302921")
    assert answer["bytes_per_token"] == 32 * 1024
    assert answer["blocks_per_sequence"] == 168
    assert round(answer["kv_pool_bytes"] / GIB, 2) == 9.24


def test_k15_slots_multiply_the_context(capsys: Capsys) -> None:
    assert run_json(capsys, "kv --model llama-2-70b --context 2048")["sequence_bytes"] == 640 * MIB
    assert run_json(capsys, "kv --model llama-2-70b --context 4096 --sequences 4")["reserved_tokens"] == 16_384


def test_k17_the_size_of_a_value_is_said(capsys: Capsys) -> None:
    model = "kv --layers 60 --hidden 6656 --context 512"
    assert run_json(capsys, f"{model} --kv-dtype fp32")["sequence_bytes"] == 1560 * MIB
    assert run_json(capsys, f"{model} --kv-dtype fp16")["sequence_bytes"] == 780 * MIB
    assert ", fp16, 1 sequence of 512 tokens" in run_text(capsys, model)


def test_k20_a_window_needs_more_cells_than_its_tokens(capsys: Capsys) -> None:
    answer = run_json(capsys, "kv --layers 2 --hidden 256 --window 1024 --in-flight 512 --pad 32")
    assert answer["window_cells"] == window_cells(1024, in_flight=512, pad=32) == 1568


def test_k24_heads_are_shared_by_the_ranks(capsys: Capsys) -> None:
    pool = "--pool-per-gpu 52128MiB --block-size 256"
    right = run_json(capsys, f"fit --model qwen3-32b --tp 4 {pool}")
    wrong = run_json(capsys, f"fit --model qwen3-32b --tp 1 {pool}")
    assert (right["num_blocks"], right["kv_tokens"]) == (3258, 834_048)
    assert (wrong["num_blocks"], wrong["kv_tokens"]) == (814, 208_384)
    assert round(right["kv_tokens"] / wrong["kv_tokens"], 2) == 4.0


def test_k27_a_stage_and_the_replica_hold_the_same_blocks(capsys: Capsys) -> None:
    model = "--layers 80 --hidden 8192 --heads 64 --kv-heads 8 --params 70B"
    stage = run_json(capsys, f"kv {model} --pp 4 --context 1024")
    assert 4 * stage["bytes_per_token"] == stage["replica_bytes_per_token"] == 327_680
    by_stage = run_json(capsys, f"fit {model} --pp 4 --pool-per-gpu 10GiB")
    whole = run_json(capsys, f"fit {model} --pool 40GiB")
    assert by_stage["num_blocks"] == whole["num_blocks"]
    assert by_stage["kv_pool_bytes"] == whole["kv_pool_bytes"]


@pytest.mark.parametrize(("tp", "num_bytes"), [(1, 131_072), (2, 65_536), (8, 16_384), (16, 16_384), (32, 16_384)])
def test_kv_heads_a_rank(tp: int, num_bytes: int) -> None:
    cache = kv_cache(get_model("Llama-3-8B"), 16, tensor_parallel=tp)
    assert cache.bytes_per_token == num_bytes
    assert cache.replica_bytes_per_token == tp * num_bytes


def test_every_rank_keeps_the_whole_latent() -> None:
    assert kv_cache(get_model("DeepSeek-V3"), 16, tensor_parallel=8).bytes_per_token == 70_272


def test_what_a_latent_saves_against_keys_and_values_of_every_head() -> None:
    cache = kv_cache(get_model("DeepSeek-V3"), 16)
    assert cache.mha_bytes_per_token == 61 * 128 * (128 + 64 + 128) * 2


def test_sizes_that_leave_parameters_unknown_still_have_a_cache(capsys: Capsys) -> None:
    answer = run_json(capsys, "kv --layers 4 --hidden 256 --vocabulary 1000")
    assert answer["bytes_per_token"] == 4096
    assert "outgrows_weights_at" not in answer


def test_the_heaviest_stage_counts() -> None:
    assert cache_shape(get_model("DeepSeek-V3"), CACHE_FORMATS["fp16"], pipeline_parallel=2).full_layers == 31


@pytest.mark.parametrize(
    ("dtype", "num_bytes"),
    [
        ("fp32", 262_144),
        ("bf16", 131_072),
        ("fp8", 65_536),
        ("int8", 65_536 + 32 * 2 * 8 * 4),
        ("int4", 32_768 + 32 * 2 * 8 * 4),
    ],
)
def test_formats(capsys: Capsys, dtype: str, num_bytes: int) -> None:
    assert run_json(capsys, f"kv --model llama-3-8b --kv-dtype {dtype}")["bytes_per_token"] == num_bytes


def test_constants_of_a_format_can_be_given(capsys: Capsys) -> None:
    answer = run_json(capsys, "kv --model llama-3-8b --kv-dtype int4 --kv-group 32 --kv-scale-bits 16")
    assert answer["bytes_per_token"] == 32 * (2048 * 4 + 2048 // 32 * 16) // 8


def test_windows_bound_what_is_kept(capsys: Capsys) -> None:
    full = run_json(capsys, "kv --model gpt-oss-120b --context 8200")
    kept = run_json(capsys, "kv --model gpt-oss-120b --context 8200 --sliding window")
    assert full["sequence_bytes"] == 513 * 16 * 73_728
    assert kept["sequence_bytes"] == (513 + 9) * 16 * 36_864
    assert kept["lower_bound_bytes"] == full["lower_bound_bytes"] == (8200 + 128) * 36_864
    assert full["sequence_bytes_window"] == kept["sequence_bytes"]
    assert kept["sequence_bytes_full"] == full["sequence_bytes"]


def test_a_window_needs_a_block_more_than_its_tokens_fill() -> None:
    shape = cache_shape(get_model("gpt-oss-20b"), CACHE_FORMATS["fp16"])
    assert [shape.window_blocks(tokens, 16) for tokens in (1, 16, 17, 128, 129, 10**6)] == [1, 1, 2, 8, 9, 9]
    assert shape.window_blocks(10**6, 16, in_flight=2048) == -(-(127 + 2048) // 16) + 1


def test_the_last_block_wastes_what_it_does_not_fill() -> None:
    model = get_model("LLaMA-7B")
    wasted = [kv_cache(model, 4097, block_size=size).wasted_slots for size in (2048, 16, 64)]
    assert wasted == [2047, 15, 63]
    assert kv_cache(model, 4096, block_size=2048).wasted_slots == 0


def test_explained_with_numbers_put_in(capsys: Capsys) -> None:
    text = run_text(capsys, "kv --model deepseek-v3 --context 4096 --explain")
    assert "(512 + 64) values x 16 bits / 8 = 1,152 B" in text
    assert "61 layers x 1,152 B = 70,272 B" in text


@pytest.mark.parametrize(
    "command",
    [
        "kv --model opt-13b --context 0",
        "kv --model opt-13b --context -1",
        "kv --model opt-13b --context 10000000000",
        "kv --model opt-13b --sequences 0",
        "kv --model opt-13b --block-size 0",
        "kv --model opt-13b --tp 3",
        "kv --model opt-13b --tp 0",
        "kv --model llama-3-8b --tp 12",
        "kv --model opt-13b --pp 41",
        "kv --model opt-13b --kv-dtype fp12",
        "kv --model opt-13b --kv-group 0",
        "kv --model opt-13b --kv-scale-bits -1",
        "kv --model opt-13b --in-flight -1",
        "kv --model opt-13b --full-every 0",
        "kv --layers 4 --hidden 128 --full-every 100",
    ],
)
def test_what_cannot_be_meant(capsys: Capsys, command: str) -> None:
    with pytest.raises(ConfigError):
        run_json(capsys, command)


def test_a_model_without_attention_has_no_cache() -> None:
    model = custom_model(layers=3, hidden=256)
    with pytest.raises(ConfigError, match="no layer"):
        kv_cache(custom_model(model, full_every=3, layers=3).__class__(**{**vars(model), "pattern": ("linear",)}), 16)


def test_formats_by_name() -> None:
    assert cache_format("BF16").bits == 16
    with pytest.raises(ConfigError, match="did you mean 'int8'"):
        cache_format("int9")


@pytest.mark.parametrize(
    ("num_blocks", "block_size", "model", "tokens"),
    [
        (1952, 16, "Llama-3.1-8B", 31_232),
        (1478, 16, "Llama-3.1-8B", 23_648),
        (116_617, 32, "TinyLlama-1.1B", 3_731_744),
    ],
)
def test_capacity_of_given_blocks(num_blocks: int, block_size: int, model: str, tokens: int) -> None:
    shape: Any = cache_shape(get_model(model), CACHE_FORMATS["fp16"])
    held = capacity(shape, num_blocks * block_size * shape.bytes_per_token, Serving(1024, block_size=block_size))
    assert (held.num_blocks, held.kv_tokens, held.slots) == (num_blocks, tokens, tokens)


@pytest.mark.parametrize("module", ["weights", "kv", "train"])
def test_the_examples_in_the_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"kvsim.memory.{module}"))
    assert result.attempted
    assert not result.failed
