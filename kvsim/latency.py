"""How long an iteration lasts.

A latency model is any callable ``(batch, prefill_tokens, context_tokens) -> nanoseconds``. ``batch`` counts the
sequences of the iteration, ``prefill_tokens`` the prompt tokens computed in it (recomputed ones too), and
``context_tokens`` the tokens whose keys and values the decoding sequences read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kvsim import _kernels
from kvsim.errors import ConfigError


class LatencyModel(Protocol):
    """Anything that says how long an iteration lasts."""

    def __call__(self, batch: int, prefill_tokens: int, context_tokens: int) -> int:
        """Return nanoseconds, at least 1."""


@dataclass(frozen=True)
class Affine:
    """An iteration costs a fixed time and a time per sequence, per prefill token and per context token.

    Attributes
    ----------
    fixed_ns, sequence_ns, prefill_ns, context_ns : float
        Nanoseconds; none negative, and the first two not both zero.
    origin : {"fitted", "derived", "given"}
        How the constants were come by.
    source : str
        To what they were fitted, or from what they are derived.

    Raises
    ------
    ConfigError
        A constant is negative or not finite, or an iteration would last no time.
    """

    fixed_ns: float
    sequence_ns: float
    prefill_ns: float
    context_ns: float
    origin: str = "given"
    source: str = "the caller"

    def __post_init__(self) -> None:
        constants = self.constants
        if not np.isfinite(constants).all() or (constants < 0).any():
            raise ConfigError(f"latency constants must be finite and not negative, not {constants.tolist()}")
        if self.fixed_ns + self.sequence_ns < 1:
            raise ConfigError("an iteration of one sequence must last at least 1 ns")

    @property
    def constants(self) -> np.ndarray:
        """The four constants in ns, shape (4,), in the order of the sum."""
        return np.array([self.fixed_ns, self.sequence_ns, self.prefill_ns, self.context_ns], dtype=np.float64)

    def __call__(self, batch: int, prefill_tokens: int, context_tokens: int) -> int:
        """Return ``rint(fixed + sequence*batch + prefill*prefill_tokens + context*context_tokens)``."""
        return int(_kernels.iteration_ns(self.constants, batch, prefill_tokens, context_tokens))

    def describe(self) -> str:
        """Return the formula with its numbers, and where they come from."""
        return (
            f"{self.fixed_ns / 1e6:.4g} ms + {self.sequence_ns / 1e3:.4g} us a sequence + {self.prefill_ns / 1e3:.4g} us "
            f"a prefill token + {self.context_ns:.4g} ns a context token ({self.origin}: {self.source})"
        )
