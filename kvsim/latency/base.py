"""What a latency model is, and what the built-in ones share."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from kvsim import _kernels
from kvsim.errors import ConfigError

FloatArray = npt.NDArray[np.float64]


class LatencyModel(Protocol):
    """Anything that says how long an iteration lasts."""

    def __call__(self, batch: int, prefill_tokens: int, context_tokens: int) -> int:
        """Return nanoseconds, at least 1."""


def checked(values: list[float]) -> FloatArray:
    """Return constants as an array.

    Raises
    ------
    ConfigError
        One is negative or not finite.
    """
    constants = np.array(values, dtype=np.float64)
    if not np.isfinite(constants).all() or (constants < 0).any():
        raise ConfigError(f"latency constants must be finite and not negative, not {constants.tolist()}")
    return constants


def evaluate(parameters: FloatArray, batch: int, prefill_tokens: int, context_tokens: int) -> int:
    """Return the length of an iteration in ns, as both engines compute it."""
    return int(_kernels.iteration_ns(parameters, batch, prefill_tokens, context_tokens))
