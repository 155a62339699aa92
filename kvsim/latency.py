"""How long an iteration lasts.

A latency model is any callable ``(batch, prefill_tokens, context_tokens) -> nanoseconds``. ``batch`` counts the
sequences of the iteration, ``prefill_tokens`` the prompt tokens computed in it (recomputed ones too), and
``context_tokens`` the tokens whose keys and values the decoding sequences read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kvsim import _kernels
from kvsim.errors import ConfigError
from kvsim.models import Device, Model


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
    _constants: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = [self.fixed_ns, self.sequence_ns, self.prefill_ns, self.context_ns]
        constants = np.array(values, dtype=np.float64)
        object.__setattr__(self, "_constants", constants)
        if not np.isfinite(constants).all() or (constants < 0).any():
            raise ConfigError(f"latency constants must be finite and not negative, not {constants.tolist()}")
        if self.fixed_ns + self.sequence_ns < 1:
            raise ConfigError("an iteration of one sequence must last at least 1 ns")

    @property
    def constants(self) -> np.ndarray:
        """The four constants in ns, shape (4,), in the order of the sum."""
        return self._constants

    def __call__(self, batch: int, prefill_tokens: int, context_tokens: int) -> int:
        """Return ``rint(fixed + sequence*batch + prefill*prefill_tokens + context*context_tokens)``."""
        return int(_kernels.iteration_ns(self._constants, batch, prefill_tokens, context_tokens))

    def describe(self) -> str:
        """Return the formula with its numbers, and where they come from."""
        return (
            f"{self.fixed_ns / 1e6:.4g} ms + {self.sequence_ns / 1e3:.4g} us a sequence + "
            f"{self.prefill_ns / 1e3:.4g} us a prefill token + {self.context_ns:.4g} ns a context token "
            f"({self.origin}: {self.source})"
        )


# Share of the peak that a good engine reaches, from measured FasterTransformer runs of a 13 B model on an A100-40GB
# (prefill of 512 tokens 63.17 ms, decode 22.0 ms; the pair 0.7 / 0.9 gives 62.15 and 18.97 ms).
FLOPS_EFFICIENCY = 0.7
BANDWIDTH_EFFICIENCY = 0.9

# (model, device) -> what benchmarks/calibration/fit_latency.py prints; fitted to the contiguous baselines of the vLLM
# paper's Figures 12a and 12d, never to what paging does there
_FITTED: dict[tuple[str, str], Affine] = {}


def derived(model: Model, device: Device) -> Affine:
    """Derive the constants of a model on a device from weights, bandwidth, FLOPs and KV bytes.

    Every iteration reads the weights once; a token costs 2 FLOPs a parameter; a context token is read once.

    Parameters
    ----------
    model, device : Model, Device
        With 16-bit weights, spread evenly over ``device.count`` devices.
    """
    bandwidth = device.bandwidth_bytes_per_s * device.count * BANDWIDTH_EFFICIENCY / 1e9
    flops = device.flops_per_s * device.count * FLOPS_EFFICIENCY / 1e9
    token_ns = 2 * model.parameters / flops
    return Affine(
        fixed_ns=model.weights_bytes() / bandwidth,
        sequence_ns=token_ns,
        prefill_ns=token_ns,
        context_ns=model.kv_bytes_per_token() / bandwidth,
        origin="derived",
        source=f"weights, bandwidth, FLOPs and KV bytes of {model.name} on {device}",
    )


def latency_for(model: Model, device: Device) -> Affine:
    """Return the fitted constants of a model on a device where there are some, and derived ones elsewhere."""
    return _FITTED.get((model.name, str(device))) or derived(model, device)


def static_latency_for(model: Model, device: Device) -> Affine:
    """Return the constants of the static scheduler's engine (FasterTransformer).

    For a 13 B model on an A100-40GB they come from measured times at batch 1: 63.17 ms for a prefill of 512 tokens,
    22.0 ms for a decode step (llm-analysis, after a public FasterTransformer benchmark). Elsewhere they are derived.
    """
    if (model.name, str(device)) != ("OPT-13B", "A100-40GB"):
        return derived(model, device)
    base = derived(model, device)
    context_ns = base.context_ns
    fixed_ns = 22.0e6 - base.sequence_ns - 512 * context_ns
    return Affine(
        fixed_ns=fixed_ns,
        sequence_ns=base.sequence_ns,
        prefill_ns=(63.17e6 - fixed_ns - base.sequence_ns) / 512,
        context_ns=context_ns,
        origin="derived",
        source="FasterTransformer at batch 1: prefill of 512 tokens 63.17 ms, decode 22.0 ms; the rest as for any pair",
    )
