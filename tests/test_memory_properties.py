"""Every total is the sum of its printed terms, and memory grows with whatever it should grow with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.memory import (
    CACHE_FORMATS,
    METHODS,
    Recipe,
    Serving,
    adapter_parameters,
    cache_shape,
    capacity,
    fit,
    kv_cache,
    train,
    weights,
)
from kvsim.models import DEVICES, Device, Model, Quantization, custom_model, get_device, get_model

MODELS = st.sampled_from(
    ["OPT-13B", "LLaMA-7B", "Llama-3-8B", "Gemma-3-27B", "gpt-oss-20b", "DeepSeek-V3", "Mistral-7B", "Falcon-7B"]
).map(get_model)
FORMATS = st.sampled_from(sorted(CACHE_FORMATS)).map(CACHE_FORMATS.__getitem__)
SLIDING = st.sampled_from(["full", "window"])
TOKENS = st.integers(1, 200_000)
BLOCKS = st.integers(1, 300)
DEVICE = st.sampled_from(DEVICES).map(get_device)


@st.composite
def sized_models(draw: st.DrawFn) -> Model:
    kv_heads, group, head_dim = draw(st.integers(1, 8)), draw(st.integers(1, 8)), draw(st.integers(1, 128))
    sizes: dict[str, Any] = {
        "layers": draw(st.integers(1, 90)),
        "hidden": draw(st.integers(1, 9000)),
        "heads": kv_heads * group,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate": draw(st.integers(1, 30_000)),
        "vocabulary": draw(st.integers(1, 200_000)),
    }
    return custom_model(**sizes)


@given(sized_models(), FORMATS, TOKENS, BLOCKS, st.integers(1, 50))
def test_a_cache_is_its_formula(model: Model, cache: Any, tokens: int, block_size: int, sequences: int) -> None:
    result = kv_cache(model, tokens, cache=cache, block_size=block_size, sequences=sequences)
    values = 2 * model.kv_heads * model.head_dim
    layer = -(-(values * cache.bits + 2 * model.kv_heads * cache.scale_bits) // 8)
    assert result.bytes_per_token == model.layers * layer
    assert result.lower_bound_bytes == sequences * tokens * result.bytes_per_token
    assert result.total_bytes == sequences * result.sequence_bytes
    assert 0 <= result.wasted_slots < block_size
    assert result.sequence_bytes == (tokens + result.wasted_slots) * result.bytes_per_token


@given(MODELS, FORMATS, TOKENS, BLOCKS, st.integers(1, 50), SLIDING)
def test_a_cache_is_the_sum_of_its_terms_between_its_bounds(
    model: Model, cache: Any, tokens: int, block_size: int, sequences: int, sliding: str
) -> None:
    result = kv_cache(model, tokens, cache=cache, block_size=block_size, sequences=sequences, sliding=sliding)
    assert result.total_bytes == sum(term.num_bytes for term in result.terms)
    assert result.lower_bound_bytes == sum(term.num_bytes for term in result.bound_terms)
    blocks_in_full = sequences * result.blocks_per_sequence * block_size * result.bytes_per_token
    assert result.lower_bound_bytes <= result.total_bytes <= blocks_in_full


@given(MODELS, FORMATS, TOKENS, TOKENS, BLOCKS, SLIDING)
def test_a_cache_grows_with_context(
    model: Model, cache: Any, one: int, other: int, block_size: int, sliding: str
) -> None:
    shorter, longer = (
        kv_cache(model, tokens, cache=cache, block_size=block_size, sliding=sliding) for tokens in sorted((one, other))
    )
    assert shorter.sequence_bytes <= longer.sequence_bytes
    assert shorter.lower_bound_bytes <= longer.lower_bound_bytes
    if one != other and "full" in model.layer_kinds:
        assert shorter.lower_bound_bytes < longer.lower_bound_bytes


@given(MODELS, TOKENS)
def test_a_cache_grows_with_layers_batch_and_bits(model: Model, tokens: int) -> None:
    base = kv_cache(model, tokens)
    deeper = replace(model, layers=model.layers + len(model.pattern), nominal_parameters=0)
    assert kv_cache(deeper, tokens).total_bytes > base.total_bytes
    assert kv_cache(model, tokens, sequences=2).total_bytes == 2 * base.total_bytes
    sizes = [kv_cache(model, tokens, cache=CACHE_FORMATS[name]).total_bytes for name in ("fp8", "int8", "fp16", "fp32")]
    assert sizes == sorted(sizes)


@given(st.integers(1, 10**13), st.sampled_from([1, 2, 3, 4, 4.5, 8, 16, 32]), st.integers(0, 512), st.integers(0, 64))
def test_weights_are_the_sum_of_their_terms_and_grow_with_bits(
    parameters: int, bits: float, block: int, zero_bits: int
) -> None:
    plain = weights(parameters, bits)
    assert plain.total_bytes == plain.weights_bytes == -(-parameters * int(2 * bits) // 16)
    assert weights(parameters, 2 * bits).weights_bytes >= plain.weights_bytes
    assert weights(parameters + 1, bits).weights_bytes >= plain.weights_bytes
    quantized = weights(parameters, quantization=Quantization(4, block, zero_bits=zero_bits))
    assert quantized.total_bytes == quantized.weights_bytes + quantized.overhead_bytes
    assert quantized.total_bytes == sum(term.num_bytes for term in quantized.terms)


@given(sized_models(), st.sampled_from(["all", "linear"]))
def test_weights_of_a_model_lie_between_all_quantized_and_none(model: Model, covers: str) -> None:
    result = weights(model, quantization=Quantization(4, 64, covers=covers))
    assert weights(model, 4).weights_bytes <= result.weights_bytes <= weights(model, 16).weights_bytes
    deeper = replace(model, layers=model.layers + 1)
    assert deeper.parameters > model.parameters


@given(MODELS, DEVICE, st.integers(1, 300), TOKENS, BLOCKS, st.floats(0.01, 1), st.sampled_from([4, 8, 16]), SLIDING)
@settings(max_examples=200)
def test_a_fit_adds_up(
    model: Model,
    device: Device,
    concurrency: int,
    longest: int,
    block_size: int,
    utilization: float,
    bits: int,
    sliding: str,
) -> None:
    serving = Serving(longest, concurrency, block_size=block_size, gpu_memory_utilization=utilization, sliding=sliding)
    result = fit(model, weights(model, bits), serving, device=device)
    held = result.capacity
    assert result.total_bytes == sum(term.num_bytes for term in result.terms)
    assert result.total_bytes == result.weights_bytes + result.kv_needed_bytes + result.overhead_bytes
    assert result.kv_pool_bytes >= 0
    assert held.num_blocks * block_size * result.bytes_per_token <= result.kv_pool_bytes
    if result.device_terms:
        assert sum(term.num_bytes for term in result.device_terms) == result.device_bytes
    if result.fits:
        assert result.total_bytes <= result.device_bytes
        assert held.largest_context >= longest
    elif held.num_blocks and concurrency <= serving.max_num_seqs:
        assert held.largest_context < longest
    if sliding == "full" and held.num_blocks:
        assert held.max_concurrency == held.kv_tokens / longest
        assert held.contiguous_requests == held.slots // longest


@given(MODELS, st.integers(1, 10**6), BLOCKS, st.integers(1, 5000), SLIDING)
def test_the_largest_context_fits_and_one_token_more_does_not(
    model: Model, num_blocks: int, block_size: int, concurrency: int, sliding: str
) -> None:
    shape = cache_shape(model, CACHE_FORMATS["fp16"])
    serving = Serving(1024, concurrency, block_size=block_size, sliding=sliding)
    pool = num_blocks * block_size * shape.bytes_per_token
    largest = capacity(shape, pool, serving).largest_context
    windows = sliding == "window"
    if largest < 10**9:
        assert concurrency * shape.paged(largest + 1, block_size, windows=windows) > pool
    if largest:
        assert concurrency * shape.paged(largest, block_size, windows=windows) <= pool
    if not windows:
        assert largest == num_blocks // concurrency * block_size


@given(
    MODELS,
    st.sampled_from(METHODS),
    st.integers(1, 64),
    st.integers(1, 2000),
    st.integers(0, 3),
    st.sampled_from(["fp16", "fp32", "released"]),
    st.sampled_from(["adam", "adam-half", "adam-8bit"]),
    st.sampled_from(["none", "stored", "checkpointed"]),
)
def test_training_is_the_sum_of_its_terms_and_shrinks_with_sharing(
    model: Model, method: str, rank: int, devices: int, zero: int, gradients: str, optimizer: str, activations: str
) -> None:
    recipe = Recipe(rank, devices=devices, zero=zero, gradients=gradients, optimizer=optimizer, activations=activations)
    result = train(model, method, recipe)
    parts = (
        result.weights_bytes,
        result.overhead_bytes,
        result.adapter_bytes,
        result.gradients_bytes,
        result.optimizer_bytes,
        result.activations_bytes,
    )
    assert result.total_bytes == sum(parts) == sum(term.num_bytes for term in result.terms)
    alone = train(model, method, replace(recipe, devices=1))
    assert result.total_bytes <= alone.total_bytes
    if zero == 0:
        assert result.total_bytes == alone.total_bytes
    if gradients != "fp32" and zero < 3:
        assert train(model, method, replace(recipe, zero=zero + 1)).total_bytes <= result.total_bytes


@given(MODELS, st.integers(1, 60))
def test_adapters_grow_in_proportion_to_their_rank(model: Model, rank: int) -> None:
    one, _ = adapter_parameters(model, 1, ("q", "v"))
    assert adapter_parameters(model, rank, ("q", "v"))[0] == rank * one
    assert adapter_parameters(model, rank, ("all",))[0] > rank * one
