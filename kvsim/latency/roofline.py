"""The roofline: an iteration is bound by reading the weights or by computing its tokens, whichever takes longer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kvsim import _kernels
from kvsim.errors import ConfigError
from kvsim.latency.affine import Affine
from kvsim.latency.base import FloatArray, checked, evaluate
from kvsim.latency.fitted import BANDWIDTH_EFFICIENCY, FLOPS_EFFICIENCY
from kvsim.models import Device, Model

# What an iteration costs whatever it does (scheduling, launching kernels, sampling). An assumption: 22.0 ms measured
# for a decode step of a 13 B model on an A100-40GB (FasterTransformer, batch 1), less the 18.6 ms its weights take.
OVERHEAD_NS = 3.4e6


@dataclass(frozen=True)
class Roofline:
    """An affine part, and the larger of the time to read the weights and the time to compute the tokens.

    Attributes
    ----------
    weights_ns : float
        Reading every weight once.
    token_ns : float
        Computing a token: a decoding sequence or a token of a prefill. A sequence that is being prefilled counts as one
        more, since only sums over the batch are known; attention's own FLOPs are not counted.
    context_ns : float
        Reading the keys and values of a context token, which nothing hides.
    fixed_ns, sequence_ns, prefill_ns : float
        What comes on top of an iteration, of a sequence and of a prefill token.
    origin, source : str
        As in ``Affine``.

    Raises
    ------
    ConfigError
        A constant is negative or not finite, or an iteration would last no time.
    """

    weights_ns: float
    token_ns: float
    context_ns: float
    fixed_ns: float = 0.0
    sequence_ns: float = 0.0
    prefill_ns: float = 0.0
    origin: str = "given"
    source: str = "the caller"
    parameters: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sums = [self.fixed_ns, self.sequence_ns, self.prefill_ns, self.context_ns]
        constants = checked([_kernels.ROOFLINE, *sums, self.weights_ns, self.token_ns])
        if self.fixed_ns + self.sequence_ns + max(self.weights_ns, self.token_ns) < 1:
            raise ConfigError("an iteration of one sequence must last at least 1 ns")
        object.__setattr__(self, "parameters", constants)

    def __call__(self, batch: int, prefill_tokens: int, context_tokens: int) -> int:
        """Return the affine part + ``max(weights, token * (batch + prefill_tokens))``, rounded."""
        return evaluate(self.parameters, batch, prefill_tokens, context_tokens)

    @property
    def ridge(self) -> float:
        """Tokens an iteration from which on computing takes longer than reading the weights."""
        return self.weights_ns / self.token_ns if self.token_ns else float("inf")

    def with_attention(self, factor: float) -> Roofline:
        """Return the same with a context token that costs ``factor`` times as much: another attention kernel."""
        return replace(self, context_ns=self.context_ns * factor)

    def describe(self) -> str:
        """Return the formula with its numbers, and where they come from."""
        extra = "".join(
            f"{value / 1e3:.4g} us {what} + "
            for value, what in ((self.sequence_ns, "a sequence"), (self.prefill_ns, "a prefill token"))
            if value
        )
        return (
            f"{self.fixed_ns / 1e6:.4g} ms + {extra}{self.context_ns:.4g} ns a context token + the larger of "
            f"{self.weights_ns / 1e6:.4g} ms and {self.token_ns / 1e3:.4g} us a token ({self.origin}: {self.source})"
        )


def roofline(
    model: Model,
    device: Device,
    *,
    flops_efficiency: float = FLOPS_EFFICIENCY,
    bandwidth_efficiency: float = BANDWIDTH_EFFICIENCY,
    overhead_ns: float = OVERHEAD_NS,
) -> Roofline:
    """Return the roofline of a model on a device.

    Parameters
    ----------
    model, device : Model, Device
        With 16-bit weights, spread evenly over ``device.count`` devices; communication between them is not counted.
    flops_efficiency, bandwidth_efficiency : float
        Shares of the device's peaks that are reached.
    overhead_ns : float
        What an iteration costs whatever it does.
    """
    bandwidth = device.bandwidth_bytes_per_s * device.count * bandwidth_efficiency / 1e9
    flops = device.flops_per_s * device.count * flops_efficiency / 1e9
    return Roofline(
        weights_ns=model.weights_bytes() / bandwidth,
        token_ns=2 * model.parameters / flops,
        context_ns=model.kv_bytes_per_token() / bandwidth,
        fixed_ns=overhead_ns,
        origin="derived",
        source=(
            f"roofline of {model.name} on {device}, {flops_efficiency:g} of its FLOPs and {bandwidth_efficiency:g} of "
            f"its bandwidth, {overhead_ns / 1e6:.3g} ms assumed for the rest"
        ),
    )


def with_compute_bound(affine: Affine, model: Model, device: Device) -> Roofline:
    """Return an affine model whose iterations cannot compute their tokens faster than the device.

    The time to read the weights is taken out of the fixed time, and the larger of it and the time to compute comes in
    its place: up to the ridge nothing changes.
    """
    bound = roofline(model, device)
    weights_ns = min(bound.weights_ns, affine.fixed_ns)
    return Roofline(
        weights_ns=weights_ns,
        token_ns=bound.token_ns,
        context_ns=affine.context_ns,
        fixed_ns=affine.fixed_ns - weights_ns,
        sequence_ns=affine.sequence_ns,
        prefill_ns=affine.prefill_ns,
        origin=affine.origin,
        source=f"{affine.source}; with the compute bound of {model.name} on {device}",
    )
