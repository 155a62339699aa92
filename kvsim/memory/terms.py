"""A sum that shows its terms: what each result of the arithmetic is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isfinite

from kvsim.errors import ConfigError


@dataclass(frozen=True)
class Term:
    """One term of a sum.

    Attributes
    ----------
    name : str
        What it is.
    num_bytes : int
        Bytes.
    formula : str
        How it comes about, with its numbers put in.
    """

    name: str
    num_bytes: int
    formula: str = ""


def total(terms: Iterable[Term]) -> int:
    """Add the terms up."""
    return sum(term.num_bytes for term in terms)


def share_out(num_bytes: int, parts: int) -> int:
    """Divide bytes over ``parts`` devices: the largest share, a whole number of bytes."""
    return -(-num_bytes // parts)


def bits_to_bytes(count: int, bits: float | Fraction) -> int:
    """Return the bytes of ``count`` values of so many bits, rounded up."""
    return ceil(count * Fraction(bits) / 8)


def check_number(name: str, value: float, *, least: float = 1, most: float = 1e15, whole: bool = True) -> None:
    """Refuse a setting that cannot be meant.

    Raises
    ------
    ConfigError
        ``value`` is not finite, not in ``least``..``most``, or not whole where it must be.
    """
    if not isfinite(value) or not least <= value <= most or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        low, high = (f"{bound:,.0f}" if bound >= 1 else f"{bound:g}" for bound in (least, most))
        raise ConfigError(f"{name} must be {kind} from {low} to {high}, not {value:,}")
