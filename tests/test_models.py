"""Models and devices: counted from the architecture, read from files, refused with the field's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvsim.errors import ConfigError
from kvsim.models import (
    DEVICES,
    MODELS,
    Experts,
    LatentAttention,
    Model,
    Quantization,
    custom_model,
    default_kv_pool,
    get_device,
    get_model,
    paper_kv_pool,
    usable_bytes,
)

GIB = 2**30

# Parameters as the published checkpoints have them.
PUBLISHED_PARAMETERS = {
    "OPT-125M": 125_239_296,
    "OPT-1.3B": 1_315_758_080,
    "OPT-6.7B": 6_658_473_984,
    "OPT-13B": 12_853_473_280,
    "GPT-2-1.5B": 1_557_611_200,
    "Falcon-7B": 6_921_720_704,
    "LLaMA-7B": 6_738_415_616,
    "LLaMA-13B": 13_015_864_320,
    "LLaMA-33B": 32_528_943_616,
    "LLaMA-65B": 65_285_660_672,
    "Llama-2-70B": 68_976_648_192,
    "Llama-3-8B": 8_030_261_248,
    "Llama-3-70B": 70_553_706_496,
    "Llama-3.2-1B": 1_235_814_400,
    "TinyLlama-1.1B": 1_100_048_384,
    "Mistral-7B": 7_241_732_096,
    "Mixtral-8x7B": 46_702_792_704,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Gemma-2-9B": 9_241_705_984,
    "Gemma-3-1B": 999_885_952,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "DeepSeek-V2-Lite": 15_706_484_224,
    "DeepSeek-V2": 235_741_434_880,
    "DeepSeek-V3": 671_026_419_200,
}

# kv_bytes_per_token with every attention layer charged in full, from the papers' configurations.
KV_BYTES = {
    "OPT-13B": 819_200,
    "OPT-66B": 2_359_296,
    "OPT-175B": 4_718_592,
    "LLaMA-7B": 524_288,
    "Llama-2-7B": 524_288,
    "LLaMA-13B": 819_200,
    "Llama-2-70B": 327_680,
    "Llama-3-8B": 131_072,
    "Llama-3-70B": 327_680,
    "Llama-3.1-405B": 516_096,
    "Mistral-7B": 131_072,
    "Qwen2.5-7B": 57_344,
    "Qwen2.5-72B": 327_680,
    "DeepSeek-V3": 70_272,
    "Gemma-2-9B": 344_064,
    "Gemma-2-27B": 376_832,
    "Gemma-3-12B": 393_216,
    "Gemma-3-27B": 507_904,
    "gpt-oss-120b": 73_728,
    "gpt-oss-20b": 49_152,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED_PARAMETERS.items())
def test_parameters_are_those_of_the_checkpoint(name: str, parameters: int) -> None:
    assert get_model(name).architecture_parameters == parameters


@pytest.mark.parametrize(("name", "num_bytes"), KV_BYTES.items())
def test_kv_bytes_per_token(name: str, num_bytes: int) -> None:
    assert get_model(name).kv_bytes_per_token() == num_bytes


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_parts_that_sum_and_a_source(name: str) -> None:
    model = get_model(name)
    assert sum(model.parameters_by_part().values()) == model.architecture_parameters
    assert abs(model.parameters / model.architecture_parameters - 1) < 0.02
    assert model.source


def test_every_device_is_smaller_than_its_label_says_in_binary() -> None:
    for device in map(get_device, DEVICES):
        assert device.memory_bytes <= device.label_bytes / 10**9 * GIB


@pytest.mark.parametrize("name", ["opt-13b", "OPT-13B", "facebook/opt-13b", "opt 13b", "OPT_13B"])
def test_names_are_found_in_any_dress(name: str) -> None:
    assert get_model(name).name == "OPT-13B"


def test_the_paper_counts_13_billion_parameters() -> None:
    model = get_model("OPT-13B")
    assert (model.parameters, model.weights_bytes(), model.weights_bytes(4)) == (13 * 10**9, 26 * 10**9, 65 * 10**8)


@pytest.mark.parametrize(
    ("model", "device", "slots"),
    [("OPT-13B", "A100-40GB", 15_728), ("OPT-66B", "4xA100-40GB", 9_557), ("OPT-175B", "8 x A100-80GB", 60_074)],
)
def test_table_1_of_the_paper(model: str, device: str, slots: int) -> None:
    chosen = get_model(model)
    pool = paper_kv_pool(chosen, get_device(device))
    assert pool is not None
    assert pool // chosen.kv_bytes_per_token() == slots
    assert chosen.weights_bytes() + pool < get_device(device).count * get_device(device).label_bytes


def test_other_pairs_have_no_pool_in_the_paper() -> None:
    assert paper_kv_pool(get_model("OPT-13B"), get_device("2xA100-40GB")) is None
    assert paper_kv_pool(get_model("LLaMA-13B"), get_device("A100-40GB")) is None


def test_default_pool_is_what_is_left() -> None:
    model, device = get_model("Llama-3-8B"), get_device("2xH100-80GB")
    left = 2 * int(device.memory_bytes * 0.9) - model.weights_bytes() - 2 * GIB
    assert default_kv_pool(model, device) == left
    assert default_kv_pool(model, device, utilization=0.5, overhead_bytes=0) == (
        2 * int(device.memory_bytes * 0.5) - model.weights_bytes()
    )


def test_no_pool_where_weights_fill_the_device() -> None:
    with pytest.raises(ConfigError, match=r"no room .* 132.*|no room for a KV cache"):
        default_kv_pool(get_model("OPT-66B"), get_device("A100-80GB"))


def test_a_laptop_gives_all_that_the_system_leaves() -> None:
    laptop = get_device("laptop-16gb")
    assert usable_bytes(laptop) == 12 * GIB
    assert usable_bytes(laptop, 0.5) == 6 * GIB
    for share in (float("nan"), 0, -1, 1.01):
        with pytest.raises(ConfigError, match="utilization"):
            usable_bytes(laptop, share)


@pytest.mark.parametrize(
    ("get", "name", "hint"),
    [(get_model, "opt-13", "OPT-13B"), (get_device, "H100-80", "H100-80GB"), (get_device, "4xA100-4GB", "A100-40GB")],
)
def test_unknown_names_are_refused_with_the_nearest(get: Any, name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{hint}'"):
        get(name)


def test_layer_patterns_repeat_over_the_depth() -> None:
    model = get_model("Gemma-3-27B")
    assert (model.layers_of("full"), model.layers_of("sliding"), len(model.layer_kinds)) == (10, 52, 62)
    assert get_model("gpt-oss-120b").layers_of("sliding") == 18
    assert get_model("Mistral-7B").layers_of("full") == 0


# --- a Hugging Face config.json


LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 36,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "attention_bias": True,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "quantization_config": {"quant_method": "mxfp4"},
}
GEMMA: dict[str, Any] = {
    "model_type": "gemma3",
    "vision_config": {"hidden_size": 1152},
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 62,
        "hidden_size": 5376,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "intermediate_size": 21504,
        "vocab_size": 262208,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
    },
}
OPT: dict[str, Any] = {
    "model_type": "opt",
    "num_hidden_layers": 40,
    "hidden_size": 5120,
    "num_attention_heads": 40,
    "ffn_dim": 20480,
    "vocab_size": 50272,
    "max_position_embeddings": 2048,
}
FALCON: dict[str, Any] = {
    "model_type": "falcon",
    "num_hidden_layers": 32,
    "hidden_size": 4544,
    "num_attention_heads": 71,
    "multi_query": True,
    "vocab_size": 65024,
}
QWEN2: dict[str, Any] = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
}
QWEN3_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "attention_bias": False,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}


def write(folder: Path, config: object) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "Llama-3-8B"),
        (DEEPSEEK, "DeepSeek-V3"),
        (GPT_OSS, "gpt-oss-120b"),
        (GEMMA, "Gemma-3-27B"),
        (OPT, "OPT-13B"),
        (FALCON, "Falcon-7B"),
        (QWEN2, "Qwen2.5-7B"),
        (QWEN3_MOE, "Qwen3-30B-A3B"),
    ],
)
def test_a_configuration_is_the_model_of_that_name(tmp_path: Path, config: dict[str, Any], name: str) -> None:
    read, named = get_model(write(tmp_path, config)), get_model(name)
    for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "window", "quantization", "latent", "experts"):
        assert getattr(read, field) == getattr(named, field), field
    assert read.architecture_parameters == named.architecture_parameters
    assert read.layer_kinds == named.layer_kinds
    assert read.kv_bytes_per_token() == named.kv_bytes_per_token()


def test_a_folder_stands_for_its_config_json(tmp_path: Path) -> None:
    write(tmp_path, LLAMA)
    assert get_model(str(tmp_path)).name == tmp_path.name


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, Quantization(4, 128, 16, 4, covers="linear")),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, Quantization(4, 64, 16, 4, covers="linear")),
        ({"load_in_4bit": True}, Quantization(4, 64, covers="linear")),
        (
            {"load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            Quantization(4, 64, double_block=256, covers="linear"),
        ),
        ({"load_in_8bit": True}, Quantization(8, covers="linear")),
        ({"quant_method": "novel"}, None),
    ],
)
def test_quantization_of_a_configuration(tmp_path: Path, method: Any, expected: Quantization | None) -> None:
    model = get_model(write(tmp_path, LLAMA | {"quantization_config": method}))
    assert model.quantization == expected
    assert any("quantization_config" in note for note in model.notes) == (expected is None)


def test_hybrid_configurations_keep_cache_in_their_attention_layers_only(tmp_path: Path) -> None:
    hybrid = LLAMA | {"model_type": "qwen3_next", "full_attention_interval": 4, "head_dim": 256}
    model = get_model(write(tmp_path, hybrid))
    assert (model.attention_layers, model.layers_of("linear")) == (8, 24)
    with pytest.raises(ConfigError, match="linear-attention layers"):
        model.parameters  # noqa: B018
    assert any("qwen3_next" in note for note in model.notes)


def test_a_length_that_is_not_given_is_assumed_and_noted(tmp_path: Path) -> None:
    model = get_model(write(tmp_path, {key: LLAMA[key] for key in LLAMA if key != "max_position_embeddings"}))
    assert model.max_model_len == 2048
    assert any("2,048 is assumed" in note for note in model.notes)


def test_the_first_layers_of_a_windowed_qwen_are_full(tmp_path: Path) -> None:
    windowed = QWEN2 | {"use_sliding_window": True, "max_window_layers": 21}
    model = get_model(write(tmp_path, windowed))
    assert model.layer_kinds == ("full",) * 21 + ("sliding",) * 7
    assert get_model(write(tmp_path, windowed | {"max_window_layers": 28})).window == 0


@pytest.mark.parametrize("missing", ["num_hidden_layers", "hidden_size", "num_attention_heads"])
def test_a_missing_field_is_named(tmp_path: Path, missing: str) -> None:
    config = {key: value for key, value in LLAMA.items() if key != missing}
    with pytest.raises(ConfigError, match=rf"config\.json: {missing} is missing"):
        get_model(write(tmp_path, config))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_key_value_heads": 7}, "num_key_value_heads = 7 does not divide num_attention_heads = 32"),
        ({"num_key_value_heads": 64}, "num_key_value_heads = 64 does not divide num_attention_heads = 32"),
        (
            {"hidden_size": 4100},
            "hidden_size = 4100 is no multiple of num_attention_heads = 32, and head_dim is missing",
        ),
        ({"layer_types": ["full_attention"] * 31}, "layer_types names 31 layers, num_hidden_layers says 32"),
        ({"layer_types": ["odd"] * 32}, "layer_types names 'odd'"),
        ({"layer_types": "full_attention"}, "layer_types must be a list"),
        (
            {"layer_types": ["sliding_attention"] * 32},
            "layer_types has sliding layers, yet sliding_window is not given",
        ),
        ({"num_local_experts": 8}, "num_experts_per_tok is missing"),
        (
            {"num_local_experts": 8, "num_experts_per_tok": 9},
            "num_experts_per_tok = 9 is more than num_local_experts = 8",
        ),
        (
            {"num_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 33},
            "first_k_dense_replace = 33 is more than num_hidden_layers = 32",
        ),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be at least 1"),
        ({"num_hidden_layers": -3}, "num_hidden_layers must be at least 1"),
        ({"num_hidden_layers": 32.5}, "num_hidden_layers must be a whole number, not 32.5"),
        ({"num_hidden_layers": float("nan")}, "num_hidden_layers must be a whole number, not nan"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a whole number, not True"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers must be a whole number, not '32'"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1,000,000,000 is absurd"),
        ({"vocab_size": 10**12}, "vocab_size = 1,000,000,000,000 is absurd"),
        ({"sliding_window_pattern": 0}, "sliding_window_pattern must be at least 1"),
    ],
)
def test_contradictions_name_the_fields(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        get_model(write(tmp_path, LLAMA | change))
    assert str(caught.value).startswith(str(tmp_path / "config.json"))
    assert message in str(caught.value)


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[1]", "JSON object"), ("", "not JSON")])
def test_files_that_are_no_configuration(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        get_model(str(path))


def test_binary_and_absent_files(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\x80\x81\xff")
    with pytest.raises(ConfigError, match="not JSON"):
        get_model(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        get_model(str(tmp_path / "absent.json"))


# --- tables of the user's own


def test_a_model_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "[model]\nlayers = 4\nhidden = 256\nheads = 8\nkv_heads = 2\nwindow = 64\npattern = ['sliding', 'full']\n"
        "parameters = 1000000\n[device]\nmemory = '24GiB'\nbandwidth = 1e12\nflops = 1e14\n"
    )
    model, device = get_model(str(path)), get_device(f"2x{path}")
    assert (model.name, model.head_dim, model.parameters, model.layers_of("sliding")) == ("mine", 32, 10**6, 2)
    assert (device.name, device.count, device.memory_bytes) == ("mine", 2, 24 * GIB)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layers = 4\nhidden = 256\nhead = 8", "did you mean 'heads'"),
        ("layers = 4\nhidden = 256", "missing: heads"),
        ("layers = 4\nhidden = 256\nheads = 3\nkv_heads = 2", "kv_heads = 2 does not divide heads = 3"),
        ("layers = 4\nhidden = 256\nheads = 2\nfamily = 'lama'", "did you mean 'llama'"),
        ("layers = 4\nhidden = 256\nheads = 2\nexperts = 8", "a table is expected"),
        ("layers = 4\nhidden = 256\nheads = 2\nexperts = {count = 8}", "not a table of a model"),
        ("layers = 'four'\nhidden = 256\nheads = 2", "layers must be a whole number"),
        ("layers = 4\nhidden = 256\nheads = 0", "not a table of a model|heads must be at least 1"),
        ("layers = \n", "not TOML"),
    ],
)
def test_wrong_tables_of_models(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        get_model(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory = '24'\nbandwidth = 1e12\nflops = 1e14", "no unit"),
        ("memory = '24GB'\nbandwidth = -1\nflops = 1e14", "bandwidth"),
        ("memory = '24GB'\nbandwidth = nan\nflops = 1e14", "bandwidth"),
        ("memory = '24GB'\nbandwidth = 'fast'\nflops = 1e14", "bandwidth"),
        ("memory = '24GB'\nbandwidth = 1e12", "missing: flops"),
        ("memory = '4GB'\nsystem = '4GB'\nbandwidth = 1e12\nflops = 1e14", "system keeps all"),
    ],
)
def test_wrong_tables_of_devices(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        get_device(str(path))


# --- by sizes


def test_a_model_by_its_sizes() -> None:
    assert custom_model(layers=40, hidden=5120).kv_bytes_per_token() == 819_200
    assert custom_model(layers=28, kv_heads=8, head_dim=128).kv_bytes_per_token() == 114_688
    assert custom_model(layers=64, kv_heads=4, head_dim=256, full_every=4).attention_layers == 16
    assert custom_model(layers=6, hidden=256, window=32, full_every=3).layer_kinds == ("sliding", "sliding", "full") * 2
    assert custom_model(layers=6, hidden=256, window=32).layers_of("sliding") == 6


def test_four_heads_that_share_one_kv_head_take_a_quarter() -> None:
    shared = custom_model(layers=32, hidden=4096, heads=32, kv_heads=8)
    whole = custom_model(layers=32, hidden=4096, heads=32)
    assert 4 * shared.kv_bytes_per_token() == whole.kv_bytes_per_token()


def test_changed_sizes_are_counted_anew() -> None:
    assert custom_model(get_model("OPT-13B"), layers=20).parameters < 7 * 10**9
    assert custom_model(get_model("OPT-13B"), nominal_parameters=5).parameters == 5
    assert custom_model(get_model("OPT-13B")) == get_model("OPT-13B")


def test_a_bare_number_of_parameters_takes_the_nearest_shape() -> None:
    model = custom_model(nominal_parameters=7 * 10**9)
    assert (model.layers, model.hidden, model.parameters) == (32, 4096, 7 * 10**9)
    assert "LLaMA-7B" in model.notes[0]


@pytest.mark.parametrize(
    "sizes", [{}, {"layers": 4}, {"hidden": 128}, {"layers": 4, "hidden": 100, "heads": 3}, {"layers": 0, "hidden": 8}]
)
def test_sizes_that_make_no_model(sizes: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        custom_model(**sizes)


def test_parameters_that_cannot_be_counted_say_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="without vocabulary and intermediate"):
        custom_model(layers=2, hidden=128).parameters  # noqa: B018


@pytest.mark.parametrize(
    "build",
    [
        lambda: Experts(8, 9, 64),
        lambda: Experts(0, 1, 64),
        lambda: LatentAttention(0, 64),
        lambda: Quantization(0),
        lambda: Quantization(4, covers="some"),
        lambda: Quantization(65),
        lambda: Model("m", 2, 8, 2, 1, 4, pattern=("round",)),
        lambda: Model("m", 2, 8, 2, 1, 4, pattern=()),
    ],
)
def test_parts_that_cannot_be_meant(build: Any) -> None:
    with pytest.raises(ConfigError):
        build()


def test_quantization_constants() -> None:
    assert float(Quantization(4, block=64).overhead_bits) == 0.5
    assert float(Quantization(4, block=64, double_block=256).overhead_bits) == 8 / 64 + 32 / (64 * 256)
    assert Quantization(4).overhead_bits == 0
