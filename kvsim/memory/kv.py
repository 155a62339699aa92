"""What keys and values take: a token, a sequence, a rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from kvsim.errors import ConfigError, unknown
from kvsim.memory.terms import Term, bits_to_bytes, check_number, total
from kvsim.models import Model
from kvsim.units import plural


@dataclass(frozen=True)
class CacheFormat:
    """How one value of the cache is stored.

    Attributes
    ----------
    name : str
        fp32, fp16, bf16, fp8, int8, int4.
    bits : int
        Bits of a value.
    scale_bits : int
        Bits of the constants that a group of values shares; 0 where one constant serves a whole tensor.
    group : int
        Values in a group; 0 for one group a key vector and one a value vector of each head.
    """

    name: str
    bits: int
    scale_bits: int = 0
    group: int = 0


# The integer formats keep a 16-bit scale and a 16-bit zero point for each key and each value vector of a head;
# fp8 has one scale a tensor, which is not worth counting.
CACHE_FORMATS = {
    "fp32": CacheFormat("fp32", 32),
    "fp16": CacheFormat("fp16", 16),
    "bf16": CacheFormat("bf16", 16),
    "fp8": CacheFormat("fp8", 8),
    "int8": CacheFormat("int8", 8, scale_bits=32),
    "int4": CacheFormat("int4", 4, scale_bits=32),
}


def cache_format(name: str, *, group: int | None = None, scale_bits: int | None = None) -> CacheFormat:
    """Return a format by name, with another group or other constants where they are given.

    Raises
    ------
    ConfigError
        The name is unknown, or a number is negative or absurd.
    """
    if name.casefold() not in CACHE_FORMATS:
        raise unknown("KV dtype", name, CACHE_FORMATS)
    changed = CACHE_FORMATS[name.casefold()]
    if group is not None:
        check_number("KV group", group, most=1e6)
        changed = replace(changed, group=group)
    if scale_bits is not None:
        check_number("KV scale bits", scale_bits, least=0, most=1024)
        changed = replace(changed, scale_bits=scale_bits)
    return changed


@dataclass(frozen=True)
class CacheShape:
    """The layers of one rank, and what a token takes in each.

    Attributes
    ----------
    full_layers, sliding_layers : int
        Layers of the rank (of the heaviest pipeline stage) that keep every token, and that keep a window.
    window : int
        Tokens of that window.
    values, layer_bytes : int
        Values and bytes of a token in one layer.
    formula : str
        How the bytes of a layer come about.
    """

    full_layers: int
    sliding_layers: int
    window: int
    values: int
    layer_bytes: int
    formula: str = ""

    @property
    def bytes_per_token(self) -> int:
        """Bytes of a token with every layer charged in full."""
        return (self.full_layers + self.sliding_layers) * self.layer_bytes

    @property
    def full_bytes_per_token(self) -> int:
        """Bytes of a token in the layers that keep every token."""
        return self.full_layers * self.layer_bytes

    def window_blocks(self, tokens: int, block_size: int, in_flight: int = 1) -> int:
        """Return the most blocks that a sliding layer holds for a sequence of ``tokens``.

        ``ceil((window - 1 + in_flight) / block_size) + 1``, as vLLM's hybrid cache manager bounds it: the window may
        start anywhere in its first block, and the tokens in flight are held beside it.
        """
        bound = blocks(self.window - 1 + in_flight, block_size) + 1
        return min(blocks(tokens, block_size), bound)

    def paged(self, tokens: int, block_size: int, *, windows: bool, in_flight: int = 1) -> int:
        """Return the bytes of the blocks that a paged engine gives to a sequence.

        Parameters
        ----------
        tokens : int
            Length.
        block_size : int
            Tokens a block.
        windows : bool
            Sliding layers keep only their window; otherwise they are charged in full.
        in_flight : int
            Tokens that one iteration may add.
        """
        full = blocks(tokens, block_size)
        sliding = self.window_blocks(tokens, block_size, in_flight) if windows and self.window else full
        return (self.full_layers * full + self.sliding_layers * sliding) * block_size * self.layer_bytes


def blocks(tokens: int, block_size: int) -> int:
    """Return the blocks that hold ``tokens``: ``ceil(tokens / block_size)``."""
    return -(-tokens // block_size)


def window_cells(window: int, *, sequences: int = 1, in_flight: int = 0, pad: int = 1) -> int:
    """Return the cells of a cache that keeps a window: ``window x sequences + in_flight + 1``, padded.

    A contiguous sliding cache (llama.cpp) must hold the window and the batch that is being added to it.
    """
    return blocks(window * sequences + in_flight + 1, pad) * pad


def cache_shape(
    model: Model, cache: CacheFormat, *, tensor_parallel: int = 1, pipeline_parallel: int = 1
) -> CacheShape:
    """Return what one rank keeps of a model's cache.

    Parameters
    ----------
    model : Model
        The model.
    cache : CacheFormat
        How values are stored.
    tensor_parallel, pipeline_parallel : int
        Ranks that share the heads (``max(1, heads / tp)`` KV heads each), and stages that share the layers.

    Raises
    ------
    ConfigError
        Heads or layers cannot be shared so.
    """
    _check_parallel(model, tensor_parallel, pipeline_parallel)
    if not model.attention_layers:
        raise ConfigError(f"no layer of {model.name} keeps keys and values")
    kinds = model.layer_kinds
    edges = [round(stage * model.layers / pipeline_parallel) for stage in range(pipeline_parallel + 1)]
    stages = [kinds[first:last] for first, last in pairwise(edges)]
    heaviest = max(stages, key=lambda stage: (len(stage) - stage.count("linear"), stage.count("full")))
    layer_bytes, formula = _layer_bytes(model, cache, max(1, model.kv_heads // tensor_parallel))
    values = model.kv_values_per_layer(tensor_parallel)
    return CacheShape(heaviest.count("full"), heaviest.count("sliding"), model.window, values, layer_bytes, formula)


def _layer_bytes(model: Model, cache: CacheFormat, kv_heads: int) -> tuple[int, str]:
    """Return what a token takes in one layer of a rank, and the sum behind it."""
    if model.latent:
        vectors, length = 1, model.latent.kv_lora_rank + model.latent.qk_rope_head_dim
        formula = f"({model.latent.kv_lora_rank} + {model.latent.qk_rope_head_dim}) values x {cache.bits} bits / 8"
    else:
        vectors, length = 2 * kv_heads, model.head_dim
        formula = f"2 x {kv_heads} KV heads x {length} values x {cache.bits} bits / 8"
    groups = blocks(vectors * length, cache.group) if cache.group else vectors
    if cache.scale_bits:
        formula += f" + {groups} constants x {cache.scale_bits} bits / 8"
    return bits_to_bytes(1, vectors * length * cache.bits + groups * cache.scale_bits), formula


def _check_parallel(model: Model, tensor_parallel: int, pipeline_parallel: int) -> None:
    check_number("tensor parallel size", tensor_parallel, most=100_000)
    check_number("pipeline parallel size", pipeline_parallel, most=100_000)
    small, large = sorted((model.kv_heads, tensor_parallel))
    if not model.latent and large % small:
        raise ConfigError(f"{model.kv_heads} KV heads cannot be shared by {tensor_parallel} tensor-parallel ranks")
    if pipeline_parallel > model.layers:
        raise ConfigError(f"{model.layers} layers cannot be shared by {pipeline_parallel} pipeline stages")


@dataclass(frozen=True)
class KVCache:
    """Bytes of keys and values on one rank, the heaviest.

    Attributes
    ----------
    context, sequences, block_size : int
        Tokens of a sequence, sequences, tokens a block.
    sliding : str
        ``"full"``: sliding layers are charged like any other, as by an engine with one block table for all layers;
        ``"window"``: they keep their window.
    in_flight : int
        Tokens that one iteration may add to a window.
    shape : CacheShape
        Layers of the rank, and what a token takes in each.
    replica_bytes_per_token : int
        A token on all ranks together; heads that tensor parallelism duplicates count each time.
    whole_bytes_per_token, mha_bytes_per_token : int
        A token in the whole model without parallelism, and what it would take with a KV head for each query head.
    terms, bound_terms, reserved_terms : tuple of Term
        What ``total_bytes`` is made of; what ``lower_bound_bytes`` is; and what a contiguous engine reserves.
    """

    context: int
    sequences: int
    block_size: int
    sliding: str
    in_flight: int
    shape: CacheShape
    replica_bytes_per_token: int
    whole_bytes_per_token: int
    mha_bytes_per_token: int
    terms: tuple[Term, ...]
    bound_terms: tuple[Term, ...]
    reserved_terms: tuple[Term, ...]

    @property
    def bytes_per_token(self) -> int:
        """A token, every attention layer charged in full."""
        return self.shape.bytes_per_token

    @property
    def full_bytes_per_token(self) -> int:
        """A token in the layers that keep every token."""
        return self.shape.full_bytes_per_token

    @property
    def lower_bound_bytes(self) -> int:
        """All sequences, windows kept to the token and nothing rounded to blocks."""
        return total(self.bound_terms)

    @property
    def total_bytes(self) -> int:
        """The blocks of all sequences."""
        return total(self.terms)

    @property
    def sequence_bytes(self) -> int:
        """The blocks of one sequence, sliding layers charged as ``sliding`` says."""
        return self.total_bytes // self.sequences

    @property
    def blocks_per_sequence(self) -> int:
        """Blocks of one sequence in a full layer."""
        return blocks(self.context, self.block_size)

    @property
    def wasted_slots(self) -> int:
        """Slots at the end of the last of them that stay empty."""
        return self.blocks_per_sequence * self.block_size - self.context

    @property
    def reserved_tokens(self) -> int:
        """Slots that a contiguous engine reserves: the whole context for each sequence."""
        return self.context * self.sequences

    @property
    def reserved_bytes(self) -> int:
        """Bytes of those slots, sliding layers in full."""
        return total(self.reserved_terms)


def kv_cache(
    model: Model,
    context: int,
    *,
    cache: CacheFormat = CACHE_FORMATS["fp16"],
    sequences: int = 1,
    block_size: int = 16,
    sliding: str = "full",
    in_flight: int = 1,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
) -> KVCache:
    """Return what keys and values take.

    Parameters
    ----------
    model : Model
        The model.
    context, sequences, block_size : int
        Tokens of a sequence, sequences at once, tokens a block.
    cache : CacheFormat
        How values are stored.
    sliding : str
        ``"full"`` or ``"window"``: how sliding layers are charged.
    in_flight : int
        Tokens that one iteration may add to a window.
    tensor_parallel, pipeline_parallel : int
        Ranks that share heads and layers.

    Raises
    ------
    ConfigError
        A number is zero, negative or absurd, or heads or layers cannot be shared so.

    Examples
    --------
    >>> from kvsim.models import get_model
    >>> kv_cache(get_model("OPT-13B"), 2048).sequence_bytes / 2**30
    1.5625
    """
    _check_sequence(context, sequences, block_size, sliding, in_flight)
    shape = cache_shape(model, cache, tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel)
    held = blocks(context, block_size)
    windowed = shape.window_blocks(context, block_size, in_flight) if sliding == "window" and shape.window else held
    terms = _terms(shape, sequences, (held, windowed), f"blocks x {block_size} tokens", block_size)
    bound = _terms(shape, sequences, (context, min(context, shape.window or context)), "tokens")
    return KVCache(
        context,
        sequences,
        block_size,
        sliding,
        in_flight,
        shape,
        replica_bytes_per_token=replica_bytes_per_token(model, shape, tensor_parallel),
        whole_bytes_per_token=cache_shape(model, cache).bytes_per_token,
        mha_bytes_per_token=_as_mha(model, cache),
        terms=terms,
        bound_terms=bound,
        reserved_terms=_terms(shape, sequences, (context, context), "tokens"),
    )


def replica_bytes_per_token(model: Model, shape: CacheShape, tensor_parallel: int) -> int:
    """Return the bytes of a token on all ranks; heads that tensor parallelism duplicates count each time."""
    return model.attention_layers * shape.layer_bytes * tensor_parallel


def _check_sequence(context: int, sequences: int, block_size: int, sliding: str, in_flight: int) -> None:
    for name, value in {"context": context, "sequences": sequences, "block size": block_size}.items():
        check_number(name, value, most=1e9)
    check_number("tokens in flight", in_flight, least=0, most=1e9)
    if sliding not in ("full", "window"):
        raise unknown("way to charge sliding layers", sliding, ("full", "window"))


def _terms(
    shape: CacheShape, sequences: int, counts: tuple[int, int], what: str, tokens_each: int = 1
) -> tuple[Term, ...]:
    """Return what full layers and sliding layers take, so many blocks or tokens in each."""
    kinds = {"full layers": shape.full_layers, "sliding layers": shape.sliding_layers}
    return tuple(
        Term(
            name,
            sequences * layers * count * tokens_each * shape.layer_bytes,
            f"{plural(sequences, 'sequence')} x {layers} layers x {count:,} {what} x {shape.layer_bytes:,} B",
        )
        for (name, layers), count in zip(kinds.items(), counts, strict=True)
        if layers
    )


def _as_mha(model: Model, cache: CacheFormat) -> int:
    """Return the bytes of a token if each query head had keys and values of its own."""
    latent = model.latent
    head_dim = model.head_dim
    if latent and latent.v_head_dim:
        head_dim = (latent.qk_nope_head_dim + latent.qk_rope_head_dim + latent.v_head_dim) // 2
    twin = replace(model, kv_heads=model.heads, head_dim=head_dim, latent=None)
    return cache_shape(twin, cache).bytes_per_token


def outgrows_weights_at(weights_bytes: int, bytes_per_token: int) -> int:
    """Return the longest context whose keys and values are still no larger than the weights.

    ``floor(weights / bytes a token)``: 13 B parameters in fp16 at 819,200 bytes a token are 31,738 tokens.
    """
    return weights_bytes // bytes_per_token
