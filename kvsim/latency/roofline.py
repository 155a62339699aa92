"""The roofline: an iteration is bound by reading the weights or by computing its tokens, whichever takes longer.

On top of that come the KV cache that is read, and overheads of the iteration and of its sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kvsim import _kernels
from kvsim.errors import ConfigError
from kvsim.latency.affine import Affine
from kvsim.latency.base import FloatArray, checked, evaluate
from kvsim.latency.derived import derived
from kvsim.models import Device, Model

# What an iteration costs whatever it does (scheduling, launching kernels, sampling). An assumption: 22.0 ms measured
# for a decode step of a 13 B model on an A100-40GB (FasterTransformer, batch 1), less the 18.6 ms its weights take.
OVERHEAD_NS = 3.4e6


@dataclass(frozen=True)
class Roofline:
    """Overheads, reading the cache, and the larger of the time to read the weights and the time to compute the tokens.

    Attributes
    ----------
    weights_ns : float
        Reading every weight once.
    token_ns : float
        Computing a token: a decoding sequence or a token of a prefill. A sequence that is being prefilled counts as one
        more, since only sums over the batch are known; attention's own FLOPs are not counted.
    context_ns : float
        Reading the keys and values of a context token, which nothing hides.
    fixed_ns, sequence_ns : float
        Overheads of an iteration and of each sequence in it: scheduling, launching kernels, sampling.
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
    origin: str = "given"
    source: str = "the caller"
    parameters: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sums = [self.fixed_ns, self.sequence_ns, 0.0, self.context_ns]
        constants = checked([_kernels.ROOFLINE, *sums, self.weights_ns, self.token_ns])
        if self.fixed_ns + self.sequence_ns + max(self.weights_ns, self.token_ns) < 1:
            raise ConfigError("an iteration of one sequence must last at least 1 ns")
        object.__setattr__(self, "parameters", constants)

    def __call__(self, batch: int, prefill_tokens: int, context_tokens: int) -> int:
        """Return ``fixed + sequence*batch + context*context_tokens + max(weights, token*(batch + prefill_tokens))``."""
        return evaluate(self.parameters, batch, prefill_tokens, context_tokens)

    @property
    def ridge(self) -> float:
        """Tokens an iteration from which on computing takes longer than reading the weights."""
        return self.weights_ns / self.token_ns if self.token_ns else float("inf")

    def with_attention(self, factor: float) -> Roofline:
        """Return the same with a context token that costs ``factor`` times as much: another attention kernel."""
        return replace(self, context_ns=self.context_ns * factor)

    def unbound(self) -> Affine:
        """Return the same without the compute bound: decoding hides behind the weights at any batch.

        A prefill does not, at any length: its tokens' time comes on top, so that this may be the slower of the two.
        """
        return Affine(
            fixed_ns=self.fixed_ns + self.weights_ns,
            sequence_ns=self.sequence_ns,
            prefill_ns=self.token_ns,
            context_ns=self.context_ns,
            origin=self.origin,
            source=f"{self.source}; no compute bound",
        )

    def describe(self) -> str:
        """Return the formula with its numbers, and where they come from."""
        sequence = f"{self.sequence_ns / 1e3:.4g} us a sequence + " if self.sequence_ns else ""
        return (
            f"{self.fixed_ns / 1e6:.4g} ms + {sequence}{self.context_ns:.4g} ns a context token + the larger of "
            f"{self.weights_ns / 1e6:.4g} ms and {self.token_ns / 1e3:.4g} us a token ({self.origin}: {self.source})"
        )


def roofline(
    model: Model, device: Device, *, stretch: float = 1.0, overhead_ns: float = OVERHEAD_NS, sequence_ns: float = 0.0
) -> Roofline:
    """Return the roofline of a model on a device.

    Parameters
    ----------
    model, device : Model, Device
        With 16-bit weights, spread evenly over ``device.count`` devices.
    stretch : float
        As in ``derived``, of the device's work.
    overhead_ns : float
        What an iteration costs beside that work.
    sequence_ns : float
        What each sequence of its batch costs beside that work.
    """
    work = derived(model, device, stretch)
    return Roofline(
        weights_ns=work.fixed_ns,
        token_ns=work.prefill_ns,
        context_ns=work.context_ns,
        fixed_ns=overhead_ns,
        sequence_ns=sequence_ns,
        origin="derived",
        source=(
            f"{work.source}; {overhead_ns / 1e6:.3g} ms "
            f"{'assumed' if overhead_ns == OVERHEAD_NS else 'given'} for the rest"
        ),
    )
