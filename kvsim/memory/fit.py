"""Whether a model, its cache and its requests fit a device, and what would."""

from __future__ import annotations

from dataclasses import dataclass

from kvsim.errors import ConfigError
from kvsim.memory.kv import (
    CACHE_FORMATS,
    CacheFormat,
    CacheShape,
    blocks,
    cache_shape,
    outgrows_weights_at,
    replica_bytes_per_token,
)
from kvsim.memory.terms import Term, check_number, share_out, total
from kvsim.memory.weights import Weights
from kvsim.models import OVERHEAD_BYTES, Device, Model, default_utilization, paper_kv_pool, usable_bytes
from kvsim.units import format_size, plural

UNBOUNDED = 10**9


@dataclass(frozen=True)
class Serving:
    """How a model is served. Names are those of vLLM's options.

    Attributes
    ----------
    max_model_len : int
        Longest request in tokens, prompt and output.
    concurrency : int
        Requests of that length that are asked for at once.
    max_num_seqs : int
        Requests that the engine runs at once at most.
    block_size : int
        Tokens a block.
    cache : CacheFormat or None
        How values are stored; None for serving without a cache.
    sliding : str
        Sliding layers are charged in ``"full"`` or keep their ``"window"``.
    gpu_memory_utilization : float or None
        Share of each device's memory that the engine may use; None for 0.9, or for the paper's pool where it has one.
    overhead_bytes : int or None
        Activations, workspaces and graphs, on each device; None for 1 GiB, likewise.
    used_bytes : int
        Memory that others hold, on each device.
    tensor_parallel, pipeline_parallel : int
        Ranks that share heads and layers.
    """

    max_model_len: int
    concurrency: int = 1
    max_num_seqs: int = 256
    block_size: int = 16
    cache: CacheFormat | None = CACHE_FORMATS["fp16"]
    sliding: str = "full"
    gpu_memory_utilization: float | None = None
    overhead_bytes: int | None = None
    used_bytes: int = 0
    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    def __post_init__(self) -> None:
        for name in ("max_model_len", "concurrency", "max_num_seqs", "block_size"):
            check_number(name.replace("_", " "), getattr(self, name), most=1e9)
        for name in ("overhead_bytes", "used_bytes"):
            check_number(name.replace("_", " "), getattr(self, name) or 0, least=0, most=1e18)
        if self.gpu_memory_utilization is not None and not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigError(f"gpu memory utilization must be in (0, 1], not {self.gpu_memory_utilization}")
        if self.sliding not in ("full", "window"):
            raise ConfigError(f"sliding layers are charged in full or by their window, not {self.sliding!r}")

    @property
    def ranks(self) -> int:
        """Devices that hold one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def overhead(self) -> int:
        """Overhead on each device, the default filled in."""
        return OVERHEAD_BYTES if self.overhead_bytes is None else self.overhead_bytes

    @property
    def is_default(self) -> bool:
        """Whether nothing was said about how the device's memory is divided."""
        return self.gpu_memory_utilization is None and self.overhead_bytes is None and not self.used_bytes


@dataclass(frozen=True)
class Capacity:
    """What a pool holds. Blocks and tokens are the same on every rank.

    Attributes
    ----------
    num_blocks, kv_tokens : int
        Whole blocks in the pool, and tokens in them.
    slots : int
        Tokens in a contiguous pool of the same bytes, not rounded to blocks.
    max_concurrency : float
        ``kv_tokens / max_model_len``, as vLLM logs it; with windows kept, pool over what a request takes.
    paged_requests, contiguous_requests : int
        Requests of ``max_model_len`` tokens at once, in blocks and in one piece each, the sequence cap not considered.
    largest_context, contiguous_context : int
        Longest requests of which ``concurrency`` fit at once, likewise.
    bound_by : str
        What limits the requests at once: ``memory`` or ``sequence cap``.
    peak_blocks : int
        Blocks that can ever be in use at once.
    blocks_per_request, wasted_slots : int
        Blocks of a request of ``max_model_len``, and slots at the end of its last that stay empty.
    """

    num_blocks: int = 0
    kv_tokens: int = 0
    slots: int = 0
    max_concurrency: float = 0.0
    paged_requests: int = 0
    contiguous_requests: int = 0
    largest_context: int = 0
    contiguous_context: int = 0
    bound_by: str = "memory"
    peak_blocks: int = 0
    blocks_per_request: int = 0
    wasted_slots: int = 0


@dataclass(frozen=True)
class Spill:
    """What stays on the device and what goes to host memory when not everything fits.

    Attributes
    ----------
    layers_on_device, layers_on_host : int
        Whole layers, each with its share of the cache.
    layer_bytes : int
        Weights and cache of one layer.
    spilled_bytes : int
        Bytes in host memory.
    """

    layers_on_device: int
    layers_on_host: int
    layer_bytes: int
    spilled_bytes: int


@dataclass(frozen=True)
class Fit:
    """What fits. Bytes are those of all ranks together.

    Attributes
    ----------
    fits : bool
        The weights fit, and the pool holds ``concurrency`` requests of ``max_model_len`` tokens.
    reason : str
        Why, or why not, and what would.
    total_bytes : int
        What is asked for: the sum of ``terms``.
    weights_bytes : int
        Weights, constants of quantization included.
    kv_needed_bytes : int
        The cache of ``concurrency`` requests.
    overhead_bytes : int
        Activations, workspaces and graphs.
    device_bytes : int
        Memory of all devices: the sum of ``device_terms``; 0 when no device is named.
    kv_pool_bytes : int
        The pool.
    pool_source : str
        Where its size comes from: ``computed``, ``paper`` (Table 1 of the vLLM paper), ``given``, ``blocks``, ``none``.
    bytes_per_token : int
        A token on one rank.
    outgrows_weights_at : int
        Context up to which one request's cache is no larger than the weights.
    capacity : Capacity
        What the pool holds.
    spill : Spill or None
        What spills, where a device is named and the whole does not fit.
    terms, device_terms : tuple of Term
        What is asked for; how the memory of the devices is divided.
    serving : Serving
        The settings.
    """

    fits: bool
    reason: str
    total_bytes: int
    weights_bytes: int
    kv_needed_bytes: int
    overhead_bytes: int
    device_bytes: int
    kv_pool_bytes: int
    pool_source: str
    bytes_per_token: int
    outgrows_weights_at: int
    capacity: Capacity
    spill: Spill | None
    terms: tuple[Term, ...]
    device_terms: tuple[Term, ...]
    serving: Serving

    @property
    def log_lines(self) -> tuple[str, str]:
        """Return the two lines that vLLM logs at its start."""
        tokens, longest = self.capacity.kv_tokens, self.serving.max_model_len
        return (
            f"GPU KV cache size: {tokens:,} tokens",
            f"Maximum concurrency for {longest:,} tokens per request: {self.capacity.max_concurrency:.2f}x",
        )


def capacity(shape: CacheShape, pool_bytes: int, serving: Serving, *, num_blocks: int | None = None) -> Capacity:
    """Return what a pool holds.

    Parameters
    ----------
    shape : CacheShape
        What a token takes on one rank.
    pool_bytes : int
        Pool of one rank.
    serving : Serving
        Block size, longest request, requests asked for.
    num_blocks : int or None
        Blocks, where they are given rather than counted: ``floor(pool / (block size x bytes a token))``.

    Raises
    ------
    ConfigError
        The pool is smaller than one block.
    """
    block_bytes = serving.block_size * shape.bytes_per_token
    if num_blocks is None:
        num_blocks = pool_bytes // block_bytes
    if num_blocks < 1:
        raise ConfigError(f"a pool of {format_size(pool_bytes)} is smaller than one block ({format_size(block_bytes)})")
    paged_bytes, longest = num_blocks * block_bytes, serving.max_model_len
    kv_tokens, slots = num_blocks * serving.block_size, pool_bytes // shape.bytes_per_token
    request_bytes = _request_bytes(shape, longest, serving)
    held = blocks(longest, serving.block_size)
    paged_requests = paged_bytes // request_bytes
    return Capacity(
        num_blocks=num_blocks,
        kv_tokens=kv_tokens,
        slots=slots,
        max_concurrency=kv_tokens / longest if serving.sliding == "full" else paged_bytes / request_bytes,
        paged_requests=paged_requests,
        contiguous_requests=slots // longest,
        largest_context=_largest_context(shape, paged_bytes, serving),
        contiguous_context=slots // serving.concurrency,
        bound_by="sequence cap" if serving.max_num_seqs < paged_requests else "memory",
        peak_blocks=min(num_blocks, serving.max_num_seqs * held),
        blocks_per_request=held,
        wasted_slots=held * serving.block_size - longest,
    )


def _request_bytes(shape: CacheShape, tokens: int, serving: Serving) -> int:
    return shape.paged(tokens, serving.block_size, windows=serving.sliding == "window")


def _largest_context(shape: CacheShape, paged_bytes: int, serving: Serving) -> int:
    """Search the longest requests of which ``concurrency`` fit at once; ``UNBOUNDED`` where windows bound them all."""
    fits, fails = 0, UNBOUNDED
    if serving.concurrency * _request_bytes(shape, UNBOUNDED, serving) <= paged_bytes:
        return UNBOUNDED
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if serving.concurrency * _request_bytes(shape, middle, serving) <= paged_bytes:
            fits = middle
        else:
            fails = middle
    return fits


def fit(
    model: Model,
    weights: Weights,
    serving: Serving,
    *,
    device: Device | None = None,
    pool_bytes: int | None = None,
    num_blocks: int | None = None,
) -> Fit:
    """Return whether a model fits, and what would.

    Parameters
    ----------
    model : Model
        The model.
    weights : Weights
        Its weights, as they are stored.
    serving : Serving
        How it is served.
    device : Device or None
        Where. Without a device the pool must be given.
    pool_bytes : int or None
        KV pool of all ranks together, in place of what is left on the device.
    num_blocks : int or None
        Blocks of the pool, in place of both.

    Raises
    ------
    ConfigError
        Neither device nor pool is given, the utilisation leaves the engine nothing, or heads, layers or devices cannot
        be shared as asked.
    """
    if device is None and pool_bytes is None and num_blocks is None:
        raise ConfigError("fit into what? Name a device, its memory, or the KV pool")
    if device and device.count != serving.ranks:
        raise ConfigError(f"{device} are not the {serving.ranks} devices of tensor x pipeline parallelism")
    shape = _shape(model, serving)
    plan = _Plan(model, weights, serving, device, shape)
    pool, source = plan.pool(pool_bytes, num_blocks)
    held = _capacity_or_none(shape, pool // serving.ranks, serving, num_blocks)
    terms = plan.terms(source, pool)
    reason = plan.reason(held, pool, terms)
    per_token = shape.bytes_per_token if shape else 0
    return Fit(
        fits=not reason,
        reason=reason or plan.verdict(held),
        total_bytes=total(terms),
        weights_bytes=weights.total_bytes,
        kv_needed_bytes=plan.kv_needed,
        overhead_bytes=plan.overhead(source, pool),
        device_bytes=plan.device_bytes(source),
        kv_pool_bytes=pool,
        pool_source=source,
        bytes_per_token=per_token,
        outgrows_weights_at=_outgrows_weights_at(model, weights, shape, serving),
        capacity=held,
        spill=plan.spill() if reason else None,
        terms=terms,
        device_terms=plan.device_terms(source, pool),
        serving=serving,
    )


def _outgrows_weights_at(model: Model, weights: Weights, shape: CacheShape | None, serving: Serving) -> int:
    if shape is None:
        return 0
    return outgrows_weights_at(weights.total_bytes, replica_bytes_per_token(model, shape, serving.tensor_parallel))


def _shape(model: Model, serving: Serving) -> CacheShape | None:
    if serving.cache is None:
        return None
    parallel = {"tensor_parallel": serving.tensor_parallel, "pipeline_parallel": serving.pipeline_parallel}
    return cache_shape(model, serving.cache, **parallel)


def _capacity_or_none(shape: CacheShape | None, pool: int, serving: Serving, num_blocks: int | None) -> Capacity:
    """Return what the pool holds; nothing when there is no cache, or no pool that holds a block."""
    if shape is None or (num_blocks is None and pool < serving.block_size * shape.bytes_per_token):
        return Capacity()
    return capacity(shape, pool, serving, num_blocks=num_blocks)


@dataclass(frozen=True)
class _Plan:
    """One question put to ``fit``, and the sums that answer it. Bytes are those of all ranks."""

    model: Model
    weights: Weights
    serving: Serving
    device: Device | None
    shape: CacheShape | None

    @property
    def kv_needed(self) -> int:
        if self.shape is None:
            return 0
        one = _request_bytes(self.shape, self.serving.max_model_len, self.serving)
        return one * self.serving.concurrency * self.serving.ranks

    @property
    def utilization(self) -> float:
        """Share of a device's memory that the engine may use, the default filled in."""
        given = self.serving.gpu_memory_utilization
        if given is not None:
            return given
        return default_utilization(self.device) if self.device else 1.0

    @property
    def usable(self) -> int:
        """What the engine may use and others do not hold, on all devices."""
        if self.device is None:
            return 0
        usable = usable_bytes(self.device, self.utilization) - self.serving.used_bytes
        if usable <= 0:
            raise ConfigError(
                f"no room: {self.utilization:g} of {format_size(self.device.memory_bytes)} is less than the "
                f"{format_size(self.serving.used_bytes)} that others hold, by {format_size(-usable)}"
            )
        return usable * self.serving.ranks

    def pool(self, pool_bytes: int | None, num_blocks: int | None) -> tuple[int, str]:
        """Return the bytes of the pool and where they come from."""
        if self.shape is None:
            return 0, "none"
        if num_blocks is not None:
            check_number("number of blocks", num_blocks, most=1e12)
            return num_blocks * self.serving.block_size * self.shape.bytes_per_token * self.serving.ranks, "blocks"
        if pool_bytes is not None:
            return pool_bytes, "given"
        paper = paper_kv_pool(self.model, self.device) if self.device else None
        if paper and self.serving.is_default and self.weights.total_bytes == self.model.weights_bytes():
            return paper, "paper"
        left = self.usable - self.weights.total_bytes - self.serving.overhead * self.serving.ranks
        return max(0, left), "computed"

    def device_bytes(self, source: str) -> int:
        """Return the memory of all devices; as labelled where the paper's table is used, which counts so."""
        if self.device is None:
            return 0
        labelled = source == "paper"
        return self.device.count * (self.device.label_bytes if labelled else self.device.memory_bytes)

    def overhead(self, source: str, pool: int) -> int:
        """Return the overhead; in the paper's table it is what weights and pool leave."""
        if source == "paper":
            return self.device_bytes(source) - self.weights.total_bytes - pool
        return self.serving.overhead * self.serving.ranks

    def terms(self, source: str, pool: int) -> tuple[Term, ...]:
        """Return what is asked for."""
        serving = self.serving
        cache = Term("KV cache", self.kv_needed, "none") if self.shape is None else self._cache_term(self.shape)
        ranks = f"{serving.ranks} x " if serving.ranks > 1 else ""
        overhead = f"{ranks}{format_size(serving.overhead)} for activations, workspaces and graphs: an assumption"
        if source == "paper":
            overhead = "what the paper's Table 1 leaves beside weights and pool"
        return (*self.weights.terms, cache, Term("overhead", self.overhead(source, pool), overhead))

    def _cache_term(self, shape: CacheShape) -> Term:
        serving = self.serving
        held = blocks(serving.max_model_len, serving.block_size)
        ranks = f"{serving.ranks} ranks x " if serving.ranks > 1 else ""
        each = f"{held:,} blocks x {serving.block_size} tokens x {shape.bytes_per_token:,} B"
        if serving.sliding == "window" and shape.window:
            window = shape.window_blocks(serving.max_model_len, serving.block_size)
            each = (
                f"({shape.full_layers} layers x {held:,} + {shape.sliding_layers} layers x {window:,} blocks) x "
                f"{serving.block_size} tokens x {shape.layer_bytes:,} B"
            )
        return Term("KV cache", self.kv_needed, f"{ranks}{plural(serving.concurrency, 'request')} x {each}")

    def device_terms(self, source: str, pool: int) -> tuple[Term, ...]:
        """Return how the memory of the devices is divided; nothing where it does not suffice."""
        if self.device is None:
            return ()
        count, serving = self.device.count, self.serving
        system = self.device.system_bytes * count
        kept_back = 0
        if source == "computed":
            kept_back = self.device_bytes(source) - system - usable_bytes(self.device, self.utilization) * count
        overhead = self.overhead(source, pool) if source in ("computed", "none") else 0
        terms = [
            Term("weights", self.weights.total_bytes),
            Term("KV pool", pool),
            Term("overhead", overhead),
            Term("held by others", serving.used_bytes * count),
            Term("kept by the system", system),
            Term(f"beyond utilization {self.utilization:g}", kept_back),
        ]
        rest = self.device_bytes(source) - total(terms)
        if rest < 0:
            return ()
        return tuple(term for term in (*terms, Term("rest", rest)) if term.num_bytes)

    def reason(self, held: Capacity, pool: int, terms: tuple[Term, ...]) -> str:
        """Return why it does not fit; empty when it does."""
        serving, size = self.serving, format_size
        if self.device:
            beside = self.weights.total_bytes + serving.overhead * serving.ranks
            if pool == 0 and beside > self.usable:
                return (
                    f"no room: weights and overhead take {size(beside)}, {self.device} offers {size(self.usable)} "
                    f"to the engine"
                )
            memory = (self.device.memory_bytes - self.device.system_bytes) * self.device.count
            if self.weights.total_bytes + pool > memory:
                return (
                    f"weights and pool take {size(self.weights.total_bytes + pool)}, {self.device} has {size(memory)}"
                )
        if self.shape is None:
            return ""
        if held.num_blocks == 0:
            return f"no room: what is left for the KV cache, {size(pool)}, is less than one block"
        return self._shortage(held)

    def _shortage(self, held: Capacity) -> str:
        serving = self.serving
        if serving.concurrency > serving.max_num_seqs:
            return f"{serving.concurrency:,} requests at once are more than max_num_seqs = {serving.max_num_seqs:,}"
        if held.paged_requests >= serving.concurrency:
            return ""
        if serving.concurrency == 1 or held.largest_context == 0:
            return (
                f"a request of {serving.max_model_len:,} tokens needs {held.blocks_per_request:,} blocks, the pool has "
                f"{held.num_blocks:,}: the largest request that fits has {held.largest_context:,} tokens"
            )
        return (
            f"{serving.concurrency:,} requests of {serving.max_model_len:,} tokens do not fit at once: "
            f"{held.paged_requests:,} do, or {serving.concurrency:,} of {held.largest_context:,} tokens"
        )

    def verdict(self, held: Capacity) -> str:
        """Return what fits, in a sentence."""
        if self.shape is None:
            return "weights and overhead fit; no KV cache was asked for"
        at_once = min(held.paged_requests, self.serving.max_num_seqs)
        return (
            f"{plural(at_once, 'request')} of {self.serving.max_model_len:,} tokens at once in blocks (limited by the "
            f"{held.bound_by}), {min(held.contiguous_requests, self.serving.max_num_seqs):,} in one piece each"
        )

    def spill(self) -> Spill | None:
        """Return which layers stay and which go to host memory; None without a device, or when all stay."""
        if self.device is None:
            return None
        layers, outside = self.model.layers, self._outside_layers()
        layer_bytes = share_out(self.weights.total_bytes - outside + self.kv_needed, layers)
        budget = self.usable - self.serving.overhead * self.serving.ranks - outside
        stay = max(0, min(layers, budget // layer_bytes))
        return Spill(stay, layers - stay, layer_bytes, (layers - stay) * layer_bytes) if stay < layers else None

    def _outside_layers(self) -> int:
        """Return the bytes of embeddings and head, which stay on the device; 0 where they are not known."""
        if not self.model.vocabulary:
            return 0
        tables = self.model.vocabulary * self.model.hidden * (1 if self.model.tied_embeddings else 2)
        return self.weights.total_bytes * min(tables, self.weights.parameters) // self.weights.parameters
