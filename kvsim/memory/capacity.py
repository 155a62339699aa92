"""What a KV pool holds: blocks, tokens, requests, and the longest that fit."""

from __future__ import annotations

from dataclasses import dataclass

from kvsim.errors import ConfigError
from kvsim.memory.kv import CACHE_FORMATS, CacheFormat, CacheShape, blocks
from kvsim.memory.terms import check_number
from kvsim.models import OVERHEAD_BYTES
from kvsim.units import format_size

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
    block_bytes, request_bytes : int
        Bytes of a block in all layers, and of such a request, on one rank.
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
    block_bytes: int = 0
    request_bytes: int = 0

    @property
    def peak_utilization(self) -> float:
        """Share of the blocks that can ever be in use at once."""
        return self.peak_blocks / self.num_blocks if self.num_blocks else 0.0

    def blocks_in(self, num_bytes: int) -> int:
        """Return the whole blocks in so many bytes, of host memory for instance."""
        return num_bytes // self.block_bytes if self.block_bytes else 0


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
    request = request_bytes(shape, longest, serving)
    held = blocks(longest, serving.block_size)
    paged_requests = paged_bytes // request
    return Capacity(
        num_blocks=num_blocks,
        kv_tokens=kv_tokens,
        slots=slots,
        max_concurrency=kv_tokens / longest if serving.sliding == "full" else paged_bytes / request,
        paged_requests=paged_requests,
        contiguous_requests=slots // longest,
        largest_context=_largest_context(shape, paged_bytes, serving),
        contiguous_context=slots // serving.concurrency,
        bound_by="sequence cap" if serving.max_num_seqs < paged_requests else "memory",
        peak_blocks=min(num_blocks, serving.max_num_seqs * held),
        blocks_per_request=held,
        wasted_slots=held * serving.block_size - longest,
        block_bytes=block_bytes,
        request_bytes=request,
    )


def request_bytes(shape: CacheShape, tokens: int, serving: Serving) -> int:
    """Return what the blocks of one request of so many tokens take on one rank."""
    return shape.paged(tokens, serving.block_size, windows=serving.sliding == "window")


def _largest_context(shape: CacheShape, paged_bytes: int, serving: Serving) -> int:
    """Search the longest requests of which ``concurrency`` fit at once; ``UNBOUNDED`` where windows bound them all."""
    fits, fails = 0, UNBOUNDED
    if serving.concurrency * request_bytes(shape, UNBOUNDED, serving) <= paged_bytes:
        return UNBOUNDED
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if serving.concurrency * request_bytes(shape, middle, serving) <= paged_bytes:
            fits = middle
        else:
            fails = middle
    return fits
