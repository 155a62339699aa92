"""What the weights take: parameters x bits, and the constants of quantization."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from kvsim.errors import ConfigError
from kvsim.memory.terms import Term, bits_to_bytes, check_number, total
from kvsim.models import Model, Quantization

KEPT_BITS = 16
FILE_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
COVERED = {
    "all": None,
    "linear": ("attention", "mlp", "experts", "shared experts"),
    "experts": ("experts",),
}


@dataclass(frozen=True)
class Weights:
    """Bytes of a model's weights.

    Attributes
    ----------
    parameters : int
        How many.
    bits : float
        Bits of a weight, where it is quantized at all.
    weights_bytes : int
        The weights themselves; what quantization leaves out has 16 bits.
    overhead_bytes : int
        Scales and zero points of quantization.
    terms : tuple of Term
        What the total is made of.
    """

    parameters: int
    bits: float
    weights_bytes: int
    overhead_bytes: int
    terms: tuple[Term, ...]

    @property
    def label(self) -> str:
        """What they are, in two words: bits, and whether all parameters have just those."""
        if not self.parameters:
            return "as the file"
        return f"{self.bits:.4g} bits" + (", in blocks" if len(self.terms) > 1 else "")

    @property
    def total_bytes(self) -> int:
        """Weights and overhead together."""
        return total(self.terms)


def weights(model: Model | int, bits: float = 16, quantization: Quantization | None = None) -> Weights:
    """Return what the weights take.

    Parameters
    ----------
    model : Model or int
        A model, or just a number of parameters.
    bits : float
        Bits of a weight; ``quantization`` has its own and wins.
    quantization : Quantization or None
        Blocks, scales, and which weights are quantized. Parts of a model can be told apart only if it has been counted
        from its architecture.

    Raises
    ------
    ConfigError
        Zero, negative, absurd; or parts are asked for of a model given by its number of parameters only.

    Examples
    --------
    >>> weights(7_000_000_000, bits=4).weights_bytes
    3500000000
    """
    parameters = model if isinstance(model, int) else model.parameters
    check_number("parameters", parameters)
    bits = quantization.bits if quantization else bits
    check_number("bits", bits, least=0.5, most=64, whole=False)
    kept = _kept(model, quantization)
    quantized = parameters - kept
    terms = [Term("weights", bits_to_bytes(quantized, bits), f"{quantized:,} x {bits:g} bits / 8")]
    if kept:
        formula = f"{kept:,} outside the {quantization.covers if quantization else ''} matrices x {KEPT_BITS} bits / 8"
        terms.append(Term("kept in 16 bits", bits_to_bytes(kept, KEPT_BITS), formula))
    if quantization and quantization.overhead_bits:
        extra = quantization.overhead_bits
        terms.append(
            Term("quantization constants", bits_to_bytes(quantized, extra), _overhead(quantized, quantization))
        )
    overhead_bytes = terms[-1].num_bytes if quantization and quantization.overhead_bits else 0
    return Weights(parameters, bits, total(terms) - overhead_bytes, overhead_bytes, tuple(terms))


def unknown_weights() -> Weights:
    """Return weights of which nothing is known: none are counted, and their term says so."""
    return Weights(0, 0.0, 0, 0, (Term("weights", 0, "not known, not counted"),))


def weights_of_file(path: Path, parameters: int = 0) -> Weights:
    """Return weights whose size is that of their file; bits follow from it.

    Parameters
    ----------
    path : Path
        A file, or a folder whose files of weights (safetensors, gguf, bin, pt, pth) are added up.
    parameters : int
        Parameters that it holds; 0 where that is not known, and then neither are their bits.

    Raises
    ------
    ConfigError
        Nothing is there, or nothing is in it.
    """
    if not path.exists():
        raise ConfigError(f"{path}: no such file of weights")
    files = [path] if path.is_file() else [file for file in sorted(path.iterdir()) if file.suffix in FILE_SUFFIXES]
    num_bytes = sum(file.stat().st_size for file in files)
    if not num_bytes:
        raise ConfigError(f"{path}: no weights in it")
    bits = num_bytes * 8 / parameters if parameters else 0.0
    size = "size of the file" if len(files) == 1 else f"size of {len(files)} files"
    each = f": {bits:.3f} bits for each of {parameters:,} parameters" if parameters else ""
    return Weights(parameters, bits, num_bytes, 0, (Term("weights", num_bytes, size + each),))


def _kept(model: Model | int, quantization: Quantization | None) -> int:
    """Count the parameters that quantization leaves in 16 bits."""
    covered = COVERED[quantization.covers] if quantization else None
    if covered is None:
        return 0
    if isinstance(model, int):
        raise ConfigError("which weights stay in 16 bits is known only of a model: name one, or give its sizes")
    parts = model.parameters_by_part()
    kept = sum(count for part, count in parts.items() if part not in covered)
    if kept >= model.parameters:
        raise ConfigError(f"{model.parameters:,} parameters are fewer than the {kept:,} that would stay in 16 bits")
    return kept


def _overhead(quantized: int, quantization: Quantization) -> str:
    block, zero = quantization.block, quantization.zero_bits
    zero_text = f" + {zero}" if zero else ""
    if quantization.double_block:
        each = f"(8{zero_text})/{block} + 32/({block} x {quantization.double_block})"
    else:
        each = f"({quantization.scale_bits}{zero_text})/{block}"
    each = each.replace("(8)", "8").replace(f"({quantization.scale_bits})", str(quantization.scale_bits))
    return f"{quantized:,} x ({each} = {float(Fraction(quantization.overhead_bits)):.3f} bits) / 8"
