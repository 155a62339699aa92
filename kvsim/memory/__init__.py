"""The arithmetic of memory: weights, KV cache, what fits, and what training needs.

Every result is a frozen dataclass that carries its terms: a total is the sum of what is printed beside it.
"""

from __future__ import annotations

from kvsim.memory.capacity import UNBOUNDED, Capacity, Serving, capacity
from kvsim.memory.explain import explain_fit, explain_kv, explain_terms
from kvsim.memory.fit import Fit, Spill, fit
from kvsim.memory.kv import (
    CACHE_FORMATS,
    CacheFormat,
    CacheShape,
    KVCache,
    cache_format,
    cache_shape,
    kv_cache,
    outgrows_weights_at,
    window_cells,
)
from kvsim.memory.terms import Term
from kvsim.memory.train import METHODS, Recipe, Training, adapter_parameters, train
from kvsim.memory.weights import Weights, unknown_weights, weights, weights_of_file

__all__ = [
    "CACHE_FORMATS",
    "METHODS",
    "UNBOUNDED",
    "CacheFormat",
    "CacheShape",
    "Capacity",
    "Fit",
    "KVCache",
    "Recipe",
    "Serving",
    "Spill",
    "Term",
    "Training",
    "Weights",
    "adapter_parameters",
    "cache_format",
    "cache_shape",
    "capacity",
    "explain_fit",
    "explain_kv",
    "explain_terms",
    "fit",
    "kv_cache",
    "outgrows_weights_at",
    "train",
    "unknown_weights",
    "weights",
    "weights_of_file",
    "window_cells",
]
