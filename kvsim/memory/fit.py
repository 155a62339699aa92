"""Whether a model, its cache and its requests fit a device, and what would."""

from __future__ import annotations

from dataclasses import dataclass

from kvsim.errors import ConfigError
from kvsim.memory.capacity import Capacity, Serving, capacity, request_bytes
from kvsim.memory.kv import CacheShape, blocks, cache_shape, outgrows_weights_at, replica_bytes_per_token
from kvsim.memory.terms import Term, check_number, share_out, total
from kvsim.memory.weights import Weights
from kvsim.models import Device, Model, default_utilization, paper_kv_pool, usable_bytes
from kvsim.units import format_size, plural


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
    def total_bytes(self) -> int:
        """What is asked for."""
        return total(self.terms)

    @property
    def num_blocks(self) -> int:
        """Whole blocks in the pool."""
        return self.capacity.num_blocks

    @property
    def kv_tokens(self) -> int:
        """Tokens in those blocks."""
        return self.capacity.kv_tokens

    @property
    def max_concurrency(self) -> float:
        """Requests of ``max_model_len`` tokens that the blocks hold, as vLLM logs it."""
        return self.capacity.max_concurrency

    @property
    def contiguous_requests(self) -> int:
        """Such requests at once, in one piece each."""
        return self.capacity.contiguous_requests

    @property
    def largest_context(self) -> int:
        """Longest requests of which ``concurrency`` fit at once."""
        return self.capacity.largest_context

    @property
    def log(self) -> tuple[str, str]:
        """The two lines that vLLM logs at its start."""
        longest, concurrency = self.serving.max_model_len, self.max_concurrency
        return (
            f"GPU KV cache size: {self.kv_tokens:,} tokens",
            f"Maximum concurrency for {longest:,} tokens per request: {concurrency:.2f}x",
        )


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
    reason = plan.reason(held, pool)
    return Fit(
        fits=not reason,
        reason=reason or plan.verdict(held),
        weights_bytes=weights.total_bytes,
        kv_needed_bytes=plan.kv_needed,
        overhead_bytes=plan.overhead(source, pool),
        device_bytes=plan.device_bytes(source),
        kv_pool_bytes=pool,
        pool_source=source,
        bytes_per_token=shape.bytes_per_token if shape else 0,
        outgrows_weights_at=_outgrows_weights_at(model, weights, shape, serving),
        capacity=held,
        spill=plan.spill() if reason else None,
        terms=plan.terms(source, pool),
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
        one = request_bytes(self.shape, self.serving.max_model_len, self.serving)
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

    def reason(self, held: Capacity, pool: int) -> str:
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
