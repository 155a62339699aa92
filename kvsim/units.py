"""Sizes with their unit: ``12GiB`` is not ``12GB``.

A unit is always required and always printed. ``GB`` is 10^9 bytes, ``GiB`` is 2^30.
"""

from __future__ import annotations

import re
from fractions import Fraction

from kvsim.errors import ConfigError

SI = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
UNITS = SI | BINARY
_FOLDED = {name.casefold(): factor for name, factor in UNITS.items()}
_COUNTS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
_COUNT = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,2})?)\s*([KMBGTkmbgt]?)\s*")
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*")


def parse_size(text: str) -> int:
    """Read a size in bytes.

    Parameters
    ----------
    text : str
        A number and a unit: ``"12GiB"``, ``"40 GB"``, ``"1.5TB"``.

    Returns
    -------
    int
        Bytes, rounded down to a whole one.

    Raises
    ------
    ConfigError
        The unit is missing or unknown, or the number is not positive.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ConfigError(f"size {text!r} is not a number with a unit, like 12GiB or 40GB")
    number, unit = match.groups()
    if not unit:
        raise ConfigError(f"size {text!r} has no unit: write {number}GiB (2^30 bytes) or {number}GB (10^9 bytes)")
    if unit.casefold() not in _FOLDED:
        raise ConfigError(f"size {text!r} has an unknown unit {unit!r}; known: {', '.join(UNITS)}")
    size = int(Fraction(number) * _FOLDED[unit.casefold()])
    if size <= 0:
        raise ConfigError(f"size {text!r} must be more than nothing")
    return size


def format_size(num_bytes: float, *, binary: bool = True, digits: int = 2) -> str:
    """Write a size with the largest unit that leaves at least 1 before the point.

    Parameters
    ----------
    num_bytes : float
        Bytes.
    binary : bool
        Use KiB, MiB, ... (powers of 2) rather than kB, MB, ... (powers of 10).
    digits : int
        Digits after the point; none are written for whole bytes.
    """
    units = {"B": 1} | BINARY if binary else {name: size for name, size in SI.items() if name != "KB"}
    name = max((n for n in units if abs(num_bytes) >= units[n]), key=units.__getitem__, default="B")
    return f"{num_bytes:,.0f} B" if name == "B" else f"{num_bytes / units[name]:,.{digits}f} {name}"


def parse_count(text: str, what: str = "count") -> int:
    """Read a number of things: ``"7B"`` is 7 x 10^9, ``"125M"``, ``"6_738_415_616"`` and ``"1.3e9"`` are counts too.

    Parameters
    ----------
    text : str
        A number, and K, M, B (or G) or T after it where it is in thousands, millions, 10^9 or 10^12.
    what : str
        What is counted, for the error.

    Raises
    ------
    ConfigError
        It is no number, not positive, not whole, or above 10^15.
    """
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ConfigError(f"{what} {text!r} is not a number like 7B, 125M or 6738415616")
    number, suffix = match.groups()
    exact = Fraction(number.replace("_", "").replace(",", "")) * _COUNTS[suffix.upper()]
    if exact <= 0 or exact.denominator != 1 or exact > 10**15:
        raise ConfigError(f"{what} {text!r} must be a whole number from 1 to 10^15")
    return int(exact)


def plural(number: int, noun: str) -> str:
    """Write a number of things: ``1 request``, ``1,200 requests``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
