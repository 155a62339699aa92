"""The formulas behind a result, with its numbers put in."""

from __future__ import annotations

from collections.abc import Iterable

from kvsim.memory.fit import Fit
from kvsim.memory.kv import KVCache
from kvsim.memory.terms import Term


def explain_terms(terms: Iterable[Term]) -> list[str]:
    """Return a line a term: name, formula, bytes."""
    return [f"{term.name} = {term.formula} = {term.num_bytes:,} B" for term in terms if term.formula]


def explain_kv(cache: KVCache) -> list[str]:
    """Return how the bytes of a token and of the sequences come about."""
    shape = cache.shape
    layers = shape.full_layers + shape.sliding_layers
    lines = [
        f"a token in one layer = {shape.formula} = {shape.layer_bytes:,} B",
        f"a token = {layers} layers x {shape.layer_bytes:,} B = {cache.bytes_per_token:,} B",
        f"blocks a sequence = ceil({cache.context:,} / {cache.block_size}) = {cache.blocks_per_sequence:,}",
    ]
    if shape.sliding_layers and cache.sliding == "window":
        window = f"window {shape.window:,} - 1 + {cache.in_flight:,} in flight"
        held = shape.window_blocks(cache.context, cache.block_size, cache.in_flight)
        bound = f"min({cache.blocks_per_sequence:,}, ceil(({window}) / {cache.block_size}) + 1)"
        lines.append(f"blocks a sequence in a sliding layer = {bound} = {held:,}")
    for name, terms in (
        ("lower bound", cache.bound_terms),
        ("paged", cache.terms),
        ("contiguous", cache.reserved_terms),
    ):
        lines += [f"{name}, {line}" for line in explain_terms(terms)]
    return lines


def explain_fit(result: Fit) -> list[str]:
    """Return how pool, blocks, tokens and requests come about."""
    lines = explain_terms(result.terms)
    held, serving, token = result.capacity, result.serving, result.bytes_per_token
    if not held.num_blocks:
        return [*lines, *_explain_pool(result)]
    ranks = f" / {serving.ranks} ranks" if serving.ranks > 1 else ""
    pool, longest = f"{result.kv_pool_bytes:,} B{ranks}", serving.max_model_len
    lines += _explain_pool(result)
    if result.pool_source != "blocks":
        lines.append(f"blocks = floor({pool} / ({serving.block_size} tokens x {token:,} B)) = {held.num_blocks:,}")
    lines += [
        f"tokens = {held.num_blocks:,} blocks x {serving.block_size} = {held.kv_tokens:,}",
        f"contiguous slots = floor({pool} / {token:,} B) = {held.slots:,}",
        f"contiguous requests = floor({held.slots:,} / {longest:,}) = {held.contiguous_requests:,}",
    ]
    if result.outgrows_weights_at:
        crossing = f"floor({result.weights_bytes:,} B / bytes a token on all ranks)"
        lines.append(f"cache outgrows weights = {crossing} = {result.outgrows_weights_at:,} tokens")
    return lines + (_explain_full(result) if serving.sliding == "full" else _explain_windows(result))


def _explain_full(result: Fit) -> list[str]:
    held, serving = result.capacity, result.serving
    blocks = f"floor({held.num_blocks:,} / {held.blocks_per_request:,} blocks a request)"
    share = f"floor({held.num_blocks:,} / {serving.concurrency:,}) blocks x {serving.block_size}"
    concurrency = f"{held.kv_tokens:,} tokens / {serving.max_model_len:,} = {held.max_concurrency:.4f}"
    return [
        f"maximum concurrency = {concurrency}",
        f"paged requests = {blocks} = {held.paged_requests:,}",
        f"largest context = {share} = {held.largest_context:,}",
    ]


def _explain_windows(result: Fit) -> list[str]:
    held = result.capacity
    pool = f"{held.num_blocks:,} blocks x {held.block_bytes:,} B"
    return [
        f"a request with windows kept = {held.request_bytes:,} B on a rank, as under KV cache",
        f"maximum concurrency = {pool} / {held.request_bytes:,} B = {held.max_concurrency:.4f}",
        f"paged requests = floor({pool} / {held.request_bytes:,} B) = {held.paged_requests:,}",
        f"largest context = the longest of which {result.serving.concurrency:,} take no more than the pool"
        f" = {held.largest_context:,}",
    ]


def _explain_pool(result: Fit) -> list[str]:
    if result.pool_source == "computed":
        parts = " - ".join(f"{term.num_bytes:,}" for term in result.device_terms if term.name != "KV pool")
        return [f"KV pool = {result.device_bytes:,} - {parts} = {result.kv_pool_bytes:,} B"] if parts else []
    words = {
        "paper": "Table 1 of the vLLM paper",
        "given": "as given",
        "blocks": "blocks given x block size x bytes a token",
    }
    source = words.get(result.pool_source)
    return [f"KV pool = {source} = {result.kv_pool_bytes:,} B"] if source else []
