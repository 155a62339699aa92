"""Questions on bytes: what a model's KV cache takes."""

from __future__ import annotations

import numpy as np

from kvsim.memory import cache_format, kv_cache
from kvsim.models import Model
from kvsim.quiz.question import Question
from kvsim.units import format_size

FORMATS = ("fp32", "fp16", "bf16", "fp8")


def cache(rng: np.random.Generator, seed: int) -> Question:
    """Ask how many bytes the blocks of one request take."""
    kv_heads = int(rng.choice((2, 4, 8, 16, 32)))
    heads = kv_heads * int(rng.choice((1, 1, 2, 4, 8)))
    head_dim = int(rng.choice((64, 80, 96, 128, 256)))
    hidden = heads * head_dim if rng.random() < 0.7 else heads * 112
    layers = int(rng.choice((16, 24, 28, 32, 40, 48, 64, 80)))
    model = Model("the model", layers, hidden, heads, kv_heads, head_dim, max_model_len=8192)
    tokens, size = int(rng.integers(1, 8193)), int(rng.choice((1, 8, 16, 32)))
    form = cache_format(FORMATS[int(rng.integers(0, len(FORMATS)))])
    answer = kv_cache(model, tokens, cache=form, block_size=size)
    values = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    values |= {"tokens": tokens, "size": size, "bits": form.bits, "bytes": form.bits // 8}
    shown = {"form": form.name, "a_layer": answer.shape.layer_bytes, "a_token": answer.bytes_per_token}
    shown |= {"blocks": answer.blocks_per_sequence, "slots": answer.blocks_per_sequence * size}
    shown |= {"total": answer.total_bytes, "written": format_size(answer.total_bytes)}
    return Question(
        "kv-cache",
        seed,
        values,
        (answer.total_bytes,),
        (("quiz.cache_given", values | shown), ("quiz.cache_ask", values | shown)),
        tuple((f"quiz.cache_{i}", values | shown) for i in (1, 2, 3, 4)),
    )
