"""What fits: pools, the two lines of the log, refusals, spills."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_cases import run_json, run_text

from kvsim.errors import ConfigError
from kvsim.memory import CACHE_FORMATS, Serving, cache_shape, capacity, fit, weights
from kvsim.models import Device, get_device, get_model

Capsys = pytest.CaptureFixture[str]
GIB = 2**30


def test_opt_13b_on_an_a100_40gb(capsys: Capsys) -> None:
    answer = run_json(capsys, "fit --model OPT-13B --gpu A100-40GB")
    assert answer["fits"]
    assert answer["weights_bytes"] == 26 * 10**9
    assert answer["weights_bytes"] / answer["device_bytes"] == 0.65
    assert answer["kv_pool_bytes"] == 12 * GIB
    assert 0.30 < answer["kv_pool_bytes"] / answer["device_bytes"] < 0.33
    assert answer["slots"] == answer["kv_tokens"] == 15_728
    assert answer["contiguous_requests"] == 7
    text = run_text(capsys, "fit --model OPT-13B --gpu A100-40GB")
    assert "65.0%" in text
    assert "32.2%" in text
    assert "GPU KV cache size: 15,728 tokens" in text


@pytest.mark.parametrize(
    ("model", "gpu", "slots"), [("OPT-66B", "4xA100-40GB", 9_557), ("OPT-175B", "8xA100-80GB", 60_074)]
)
def test_the_other_two_of_table_1(capsys: Capsys, model: str, gpu: str, slots: int) -> None:
    answer = run_json(capsys, f"fit --model {model} --gpu {gpu}")
    assert answer["slots"] == slots
    assert sum(term["num_bytes"] for term in answer["device_terms"]) == answer["device_bytes"]


def test_saying_how_the_memory_is_divided_sets_the_paper_aside(capsys: Capsys) -> None:
    answer = run_json(capsys, "fit --model OPT-13B --gpu A100-40GB --gpu-memory-utilization 0.9")
    device = get_device("A100-40GB")
    assert answer["kv_pool_bytes"] == int(device.memory_bytes * 0.9) - 26 * 10**9 - GIB
    assert answer["pool_source"] == "computed"
    assert run_json(capsys, "fit --model OPT-13B --gpu A100-40GB --bits 8")["pool_source"] == "computed"


def test_a_laptop_holds_7b_at_4_bits_and_not_at_16(capsys: Capsys) -> None:
    assert run_json(capsys, "fit --ram 16GB --params 7B --bits 4")["fits"] is True
    assert run_json(capsys, "fit --gpu laptop-16GB --params 7B --bits 4")["fits"] is True
    answer = run_json(capsys, "fit --ram 16GB --params 7B --bits 16")
    assert answer["fits"] is False
    for name in ("num_blocks", "kv_pool_bytes", "largest_context", "peak_blocks", "slots", "paged_requests"):
        assert answer[name] == 0
    assert "DOES NOT FIT: no room" in run_text(capsys, "fit --ram 16GB --params 7B --bits 16")


def test_k01_the_log_and_the_refusal(capsys: Capsys) -> None:
    base = "fit --model llama-3.1-8b --swap-space 4GiB"
    first = run_json(capsys, f"{base} --num-gpu-blocks 1952 --max-model-len 20000")
    assert first["bytes_per_token"] * 16 == 2 * 2**20
    assert (first["fits"], first["kv_tokens"], first["swap_blocks"]) == (True, 31_232, 2048)
    assert first["log"] == [
        "GPU KV cache size: 31,232 tokens",
        "Maximum concurrency for 20,000 tokens per request: 1.56x",
    ]
    second = run_json(capsys, f"{base} --num-gpu-blocks 1478 --max-model-len 29000")
    assert (second["fits"], second["kv_tokens"], second["largest_context"]) == (False, 23_648, 23_648)
    assert round(second["max_concurrency"], 2) == 0.82
    assert "the largest request that fits has 23,648 tokens" in second["reason"]
    assert (f"{1952 * 2 / 1024:.2f}", f"{1478 * 2 / 1024:.2f}") == ("3.81", "2.89")


def test_k01_by_sizes_alone(capsys: Capsys) -> None:
    sizes = "fit --layers 32 --kv-heads 8 --head-dim 128 --num-gpu-blocks 1952 --max-model-len 20000"
    answer = run_json(capsys, sizes)
    assert (answer["kv_tokens"], answer["weights_bytes"]) == (31_232, 0)
    assert "The weights are not counted" in run_text(capsys, sizes)
    with pytest.raises(ConfigError, match="cannot be counted without vocabulary and intermediate"):
        run_json(capsys, f"{sizes} --gpu A100-40GB")


def test_k03_whole_blocks(capsys: Capsys) -> None:
    answer = run_json(capsys, "fit --model qwen2.5-7b --pool 16GiB")
    assert (answer["bytes_per_token"], answer["num_blocks"], answer["kv_tokens"]) == (57_344, 18_724, 299_584)


def test_k05_the_sequence_cap_binds(capsys: Capsys) -> None:
    command = "fit --model qwen3-1.7b --num-gpu-blocks 10991 --max-num-seqs 1 --max-model-len 1024"
    answer = run_json(capsys, command)
    assert answer["kv_tokens"] == 175_856
    assert round(answer["kv_pool_bytes"] / GIB, 2) == 18.78
    assert (answer["bound_by"], answer["peak_blocks"]) == ("sequence cap", 64)
    assert round(answer["peak_blocks"] * 16 * answer["bytes_per_token"] / GIB, 3) == 0.109
    assert round(100 * answer["peak_utilization"], 2) == 0.58
    assert "Limited by the sequence cap" in run_text(capsys, command)


def test_k10_every_layer_charged_in_full(capsys: Capsys) -> None:
    answer = run_json(capsys, "fit --model gpt-oss-120b --num-gpu-blocks 4899 --max-model-len 8192")
    assert (answer["bytes_per_token"], answer["kv_tokens"]) == (73_728, 78_384)
    assert round(answer["kv_pool_bytes"] / GIB, 2) == 5.38


def test_k21_a_small_model(capsys: Capsys) -> None:
    command = "fit --model tinyllama-1.1b --block-size 32 --num-gpu-blocks 116617 --max-model-len 2051"
    answer = run_json(capsys, command)
    assert (answer["bytes_per_token"], answer["kv_tokens"]) == (22_528, 3_731_744)
    assert (f"{answer['kv_pool_bytes'] / GIB:.2f}", answer["blocks_per_request"]) == ("78.30", 65)


def test_k29_no_room_is_an_error_and_never_a_negative_pool(capsys: Capsys) -> None:
    for block_size in (1, 16, 4096):
        command = f"fit --params 1M --memory 1000B --used 500B --gpu-memory-utilization 0.2 --block-size {block_size}"
        with pytest.raises(ConfigError, match="no room"):
            run_json(capsys, command)


def test_s13_a_contiguous_baseline_by_hand(capsys: Capsys) -> None:
    answer = run_json(capsys, "fit --layers 40 --hidden 5120 --params 13B --pool 12GB --max-model-len 2048")
    assert (answer["bytes_per_token"], answer["slots"], answer["contiguous_requests"]) == (819_200, 14_648, 7)


@pytest.mark.parametrize("block_size", [2048, 16, 64])
def test_u01_the_binding_limit_is_named(capsys: Capsys, block_size: int) -> None:
    pool = f"--num-gpu-blocks {130 * 4096 // block_size} --block-size {block_size} --max-num-seqs 32"
    answer = run_json(capsys, f"fit --model llama-2-7b {pool} --max-model-len 4096")
    assert (answer["paged_requests"], answer["bound_by"], answer["wasted_slots"]) == (130, "sequence cap", 0)
    assert answer["reason"].startswith("32 requests of 4,096 tokens at once in blocks (limited by the sequence cap)")
    longer = run_json(capsys, f"fit --model llama-2-7b {pool} --max-model-len 4097")
    assert longer["wasted_slots"] == block_size - 1


@pytest.mark.parametrize("context", [512, 4096])
def test_u04_without_a_cache_the_rest_is_still_a_sum(capsys: Capsys, context: int) -> None:
    answer = run_json(capsys, f"fit --model llama-2-7b --gpu A100-80GB --no-kv --max-model-len {context}")
    assert answer["fits"]
    assert answer["total_bytes"] == answer["weights_bytes"] + answer["overhead_bytes"]
    assert (answer["kv_needed_bytes"], answer["kv_pool_bytes"]) == (0, 0)


def test_what_is_asked_for_grows_with_concurrency_and_context(capsys: Capsys) -> None:
    base = "fit --model llama-3-8b --gpu A100-80GB"
    totals = [
        run_json(capsys, f"{base} --concurrency {many} --max-model-len {longest}")["total_bytes"]
        for many, longest in ((1, 1024), (2, 1024), (2, 2048), (8, 8192))
    ]
    assert totals == sorted(set(totals))


def test_the_largest_that_would_fit_does(capsys: Capsys) -> None:
    base = "fit --model llama-3-70b --gpu 4xA100-80GB --concurrency 7"
    answer = run_json(capsys, f"{base} --max-model-len 100000")
    assert not answer["fits"]
    largest = answer["largest_context"]
    assert f"7 of {largest:,} tokens" in answer["reason"]
    assert run_json(capsys, f"{base} --max-model-len {largest}")["fits"]
    assert not run_json(capsys, f"{base} --max-model-len {largest + 1}")["fits"]


def test_windows_make_room(capsys: Capsys) -> None:
    base = "fit --model gemma-3-27b --gpu A100-80GB --max-model-len 131072"
    full, kept = (run_json(capsys, f"{base} --sliding {way}") for way in ("full", "window"))
    assert not full["fits"]
    assert kept["fits"]
    assert kept["largest_context"] > 4 * full["largest_context"]
    assert kept["kv_tokens"] == full["kv_tokens"]
    assert kept["max_concurrency"] > full["max_concurrency"]
    assert kept["max_concurrency"] == kept["num_blocks"] * kept["block_bytes"] / kept["request_bytes"]
    text = run_text(capsys, f"{base} --sliding window --explain")
    assert f"{kept['block_bytes']:,} B / {kept['request_bytes']:,} B = {kept['max_concurrency']:.4f}" in text


def test_windows_alone_bound_every_request(capsys: Capsys) -> None:
    command = "fit --model mistral-7b --pool 4GiB --sliding window"
    assert run_json(capsys, command)["largest_context"] == 10**9
    assert "no limit" in run_text(capsys, command)


def test_what_spills_is_counted_in_layers(capsys: Capsys) -> None:
    answer = run_json(capsys, "fit --model llama-2-13b --gpu T4 --max-model-len 2048")
    assert not answer["fits"]
    assert answer["layers_on_device"] + answer["layers_on_host"] == 40
    assert 0 < answer["layers_on_device"] < 40
    assert answer["spilled_bytes"] == answer["layers_on_host"] * answer["layer_bytes"]
    outside = 2 * 2 * 32_000 * 5120
    usable = int(get_device("T4").memory_bytes * 0.9) - GIB - outside
    assert (
        answer["layers_on_device"] * answer["layer_bytes"]
        <= usable
        < (answer["layers_on_device"] + 1) * answer["layer_bytes"]
    )


def test_a_pool_beside_weights_that_fill_the_device(capsys: Capsys) -> None:
    answer = run_json(capsys, "fit --model opt-13b --gpu A100-40GB --pool 100GiB")
    assert not answer["fits"]
    assert "weights and pool take" in answer["reason"]


def test_more_requests_than_the_engine_runs(capsys: Capsys) -> None:
    answer = run_json(capsys, "fit --model llama-3-8b --gpu H100-80GB --concurrency 300 --max-model-len 16")
    assert not answer["fits"]
    assert "max_num_seqs = 256" in answer["reason"]


def test_weights_of_a_file_are_taken_as_they_are(capsys: Capsys, tmp_path: Path) -> None:
    path = tmp_path / "w.gguf"
    path.write_bytes(bytes(1000))
    assert run_json(capsys, f"fit --model llama-2-7b --gpu L4 --weights-file {path}")["weights_bytes"] == 1000


def test_tensor_parallel_multiplies_an_unnumbered_device(capsys: Capsys) -> None:
    answer = run_json(capsys, "fit --model llama-3-70b --gpu A100-80GB --tp 4")
    assert answer["device"] == "4xA100-80GB"
    assert answer["device_bytes"] == 4 * get_device("A100-80GB").memory_bytes
    assert answer["outgrows_weights_at"] == answer["weights_bytes"] // 327_680
    two = run_text(capsys, "fit --model llama-3-70b --gpu A100-80GB --tp 2 --max-model-len 32 --explain")
    assert "2 ranks x 1 request x 2 blocks x 16 tokens x 163,840 B = 10,485,760 B" in two


def test_every_number_of_the_log_can_be_recomputed(capsys: Capsys) -> None:
    text = run_text(capsys, "fit --model llama-3-8b --gpu L4 --max-model-len 4096 --explain")
    answer = run_json(capsys, "fit --model llama-3-8b --gpu L4 --max-model-len 4096")
    blocks, tokens = answer["num_blocks"], answer["kv_tokens"]
    assert f"({answer['kv_pool_bytes']:,} B / (16 tokens x 131,072 B)) = {blocks:,}" in text
    assert f"tokens = {blocks:,} blocks x 16 = {tokens:,}" in text
    assert f"maximum concurrency = {tokens:,} tokens / 4,096 = {answer['max_concurrency']:.4f}" in text


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--gpu A100",
        "--gpu 3xA100-40GB",
        "--gpu 0xA100-40GB",
        "--gpu 2xA100-40GB --tp 4",
        "--gpu A100-40GB --memory 40GB",
        "--memory 40",
        "--memory -1GB",
        "--ram 3GB",
        "--gpu A100-40GB --gpu-memory-utilization 0",
        "--gpu A100-40GB --gpu-memory-utilization 1.5",
        "--gpu A100-40GB --gpu-memory-utilization nan",
        "--gpu A100-40GB --num-gpu-blocks 0",
        "--gpu A100-40GB --num-gpu-blocks -5",
        "--gpu A100-40GB --pool 1GiB --num-gpu-blocks 5",
        "--gpu A100-40GB --pool 1GiB --no-kv",
        "--gpu A100-40GB --block-size 0",
        "--gpu A100-40GB --max-model-len 0",
        "--gpu A100-40GB --max-num-seqs 0",
        "--gpu A100-40GB --concurrency 0",
        "--gpu A100-40GB --overhead 1",
        "--gpu A100-40GB --used -1GiB",
        "--gpu A100-40GB --bits nan",
    ],
)
def test_what_cannot_be_meant(capsys: Capsys, options: str) -> None:
    with pytest.raises(ConfigError):
        run_json(capsys, f"fit --model opt-13b {options}")


def test_a_pool_smaller_than_a_block() -> None:
    shape = cache_shape(get_model("OPT-13B"), CACHE_FORMATS["fp16"])
    with pytest.raises(ConfigError, match="smaller than one block"):
        capacity(shape, 819_200 * 15, Serving(2048))
    with pytest.raises(ConfigError, match="must be"):
        Serving(2048, overhead_bytes=-1)
    with pytest.raises(ConfigError, match="sliding"):
        Serving(2048, sliding="half")


def test_devices_must_be_as_many_as_the_ranks() -> None:
    model = get_model("OPT-13B")
    with pytest.raises(ConfigError, match="are not the 1 devices"):
        fit(model, weights(model), Serving(2048), device=Device("d", 10**11, 1, 1, count=2))
