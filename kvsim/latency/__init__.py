"""How long an iteration lasts: affine, roofline, or measured.

A latency model is any callable ``(batch, prefill_tokens, context_tokens) -> nanoseconds``. ``batch`` counts the
sequences of the iteration, ``prefill_tokens`` the prompt tokens computed in it (recomputed ones too), and
``context_tokens`` the tokens whose keys and values the decoding sequences read. The three of this package run in the
compiled engine; a model of the user's own runs in the step engine.
"""

from kvsim.latency.affine import Affine
from kvsim.latency.base import LatencyModel
from kvsim.latency.built import Built
from kvsim.latency.chosen import CHOICES, latency_of
from kvsim.latency.derived import BANDWIDTH_EFFICIENCY, FLOPS_EFFICIENCY, derived
from kvsim.latency.fitted import latency_for, static_latency_for
from kvsim.latency.kernel import KernelTable, kernel_table, with_kernel
from kvsim.latency.measured import Measured, read_step_times
from kvsim.latency.roofline import Roofline, roofline

__all__ = [
    "BANDWIDTH_EFFICIENCY",
    "CHOICES",
    "FLOPS_EFFICIENCY",
    "Affine",
    "Built",
    "KernelTable",
    "LatencyModel",
    "Measured",
    "Roofline",
    "derived",
    "kernel_table",
    "latency_for",
    "latency_of",
    "read_step_times",
    "roofline",
    "static_latency_for",
    "with_kernel",
]
