"""The affine model: four constants."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kvsim import _kernels
from kvsim.errors import ConfigError
from kvsim.latency.base import FloatArray, checked, evaluate


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
    parameters: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        constants = checked([self.fixed_ns, self.sequence_ns, self.prefill_ns, self.context_ns])
        if self.fixed_ns + self.sequence_ns < 1:
            raise ConfigError("an iteration of one sequence must last at least 1 ns")
        object.__setattr__(self, "parameters", checked([_kernels.AFFINE, *constants]))

    @property
    def constants(self) -> FloatArray:
        """The four constants in ns, shape (4,), in the order of the sum."""
        return self.parameters[1:]

    def __call__(self, batch: int, prefill_tokens: int, context_tokens: int) -> int:
        """Return ``rint(fixed + sequence*batch + prefill*prefill_tokens + context*context_tokens)``."""
        return evaluate(self.parameters, batch, prefill_tokens, context_tokens)

    def with_attention(self, factor: float) -> Affine:
        """Return the same with a context token that costs ``factor`` times as much: another attention kernel."""
        return replace(self, context_ns=self.context_ns * factor)

    def describe(self) -> str:
        """Return the formula with its numbers, and where they come from."""
        return (
            f"{self.fixed_ns / 1e6:.4g} ms + {self.sequence_ns / 1e3:.4g} us a sequence + "
            f"{self.prefill_ns / 1e3:.4g} us a prefill token + {self.context_ns:.4g} ns a context token "
            f"({self.origin}: {self.source})"
        )
