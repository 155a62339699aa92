"""Numbers and times as traces write them: one by one with reasons, or a million at a time.

Each kind of field has two readers. The careful one takes a string and raises ``ValueError`` with what was expected.
The fast one takes many fields at once and only tells which of them it could not take; those are handed to the careful
one. So both agree, and only one of them has to explain.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvsim.requests import NS_PER_S, IntArray

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

MAX_TOKENS = 10**9
MAX_NS = 2**63 - 1
MAX_DIGITS = 18  # decimal digits that always fit into 64 bits
UNITS = {"s": NS_PER_S, "ms": 10**6, "us": 10**3, "ns": 1}
_SCALE = {"s": 9, "ms": 6, "us": 3, "ns": 0}  # digits after the point that are still a whole nanosecond

TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?\s*(Z|[+-]\d\d:?\d\d)?", re.ASCII)
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
# where digits stand in YYYY-MM-DD HH:MM:SS, and what may follow: .123456789+00:00
DIGIT_PLACES = (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18)
SECONDS_END, LONGEST_DATETIME = 19, 35
UTC = b"+00:00"
UNIX_EPOCH = dt.date(1970, 1, 1).toordinal()


class Fields(NamedTuple):
    """Many fields of one block of bytes.

    Attributes
    ----------
    data : uint8 array
        The block.
    start, end : int64 array, shape (n,)
        Field ``i`` is ``data[start[i]:end[i]]``.
    """

    data: Bytes
    start: IntArray
    end: IntArray


def one_count(value: object) -> int:
    """Read a number of tokens; 12.0 passes for 12."""
    if type(value) is int and 0 <= value <= MAX_TOKENS:
        return value
    number = _decimal(value, "a whole number of tokens")
    if number != number.to_integral_value():
        raise ValueError(f"{value!r} is not a whole number of tokens")
    if not 0 <= number <= MAX_TOKENS:
        raise ValueError(f"{value!r} is not a number of tokens: 0 to {MAX_TOKENS:,} is expected")
    return int(number)


def one_time(value: object, unit: str) -> int:
    """Read a time in nanoseconds: a number of ``unit`` from 0 up, or for the unit "datetime" a date with a time."""
    if unit == "datetime":
        return _one_datetime(str(value))
    number = _decimal(value, f"a time in {unit}") * UNITS[unit]
    if not 0 <= number <= MAX_NS:
        raise ValueError(f"{value!r} is not a time in {unit} from 0 up")
    return int(number.to_integral_value(ROUND_HALF_UP))


def _decimal(value: object, expected: str) -> Decimal:
    if isinstance(value, str) and not value.strip():
        raise ValueError(f"is empty; {expected} is expected")
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value).strip()
        number = Decimal(text) if NUMBER.fullmatch(text) else Decimal("nan")
        if number.is_finite() and abs(number.adjusted()) < 100:
            return number
    raise ValueError(f"{value!r} is not {expected}")


def _one_datetime(text: str) -> int:
    match = TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a date and time like 2023-11-16 18:15:46.6805900")
    date, hour, minute, second, fraction, zone = match.groups()
    try:
        days = dt.date.fromisoformat(date).toordinal() - UNIX_EPOCH
    except ValueError as error:
        raise ValueError(f"{text!r} is no date and time ({error})") from None
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:
        raise ValueError(f"{text!r} is no time of day")
    seconds = ((days * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second) - _zone_seconds(zone)
    when = seconds * NS_PER_S + int((fraction or "").ljust(9, "0"))
    if not 0 <= when <= MAX_NS:
        raise ValueError(f"{text!r} is outside 1970 to 2262")
    return when


def _zone_seconds(zone: str | None) -> int:
    if zone in (None, "Z"):
        return 0
    digits = str(zone)[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if str(zone).startswith("-") else seconds


def many_digits(fields: Fields) -> tuple[IntArray, Mask]:
    """Return fields of at most 18 digits as numbers, and which were something else."""
    data, start, end = fields
    width = end - start
    bad: Mask = (width < 1) | (width > MAX_DIGITS)
    total = np.zeros(len(start), dtype=np.int64)
    for place in range(int(min(width.max(initial=0), MAX_DIGITS))):
        here = width > place
        digit = np.where(here, data[end - 1 - place] - np.uint8(48), 0)
        bad |= digit > 9
        total += digit * np.int64(10**place)
    return total, bad


def many_counts(fields: Fields) -> tuple[IntArray, Mask]:
    """Return numbers of tokens, and which fields need the careful reader."""
    data, start, end = fields
    is_float = (end - start > 2) & (data[end - 1] == ord("0")) & (data[np.maximum(end - 2, 0)] == ord("."))
    counts, bad = many_digits(Fields(data, start, end - 2 * is_float))
    return counts, bad | (counts > MAX_TOKENS)


def many_times(fields: Fields, unit: str) -> tuple[IntArray, Mask]:
    """Return times in nanoseconds, and which fields need the careful reader."""
    return _many_datetimes(fields) if unit == "datetime" else _many_decimals(fields, _SCALE[unit])


def _many_decimals(fields: Fields, scale: int) -> tuple[IntArray, Mask]:
    """Return decimals times 10^scale, rounded to whole numbers (ties up, as the careful reader does)."""
    data, start, end = fields
    dots = np.flatnonzero(data == ord("."))
    first = np.searchsorted(dots, start)
    has_dot = np.searchsorted(dots, end) > first
    if not has_dot.any():
        whole, bad = many_digits(fields)
        return whole * np.int64(10**scale), bad | (whole > MAX_NS // 10**scale)
    dot = np.where(has_dot, dots[np.minimum(first, len(dots) - 1)], end)
    whole, bad = many_digits(Fields(data, start, dot))
    fraction, bad_fraction = many_digits(Fields(data, np.minimum(dot + 1, end), end))
    digits = np.clip(end - dot - 1, 0, MAX_DIGITS)
    power = np.int64(10) ** np.arange(MAX_DIGITS + 1, dtype=np.int64)
    scaled = fraction * power[np.maximum(scale - digits, 0)]
    scaled = _rounded_quotient(scaled, power[np.maximum(digits - scale, 0)])
    bad |= (bad_fraction & (end > dot + 1)) | (whole >= MAX_NS // 10**scale)
    return whole * np.int64(10**scale) + scaled, bad


def _rounded_quotient(numbers: IntArray, divisors: IntArray) -> IntArray:
    quotient, rest = np.divmod(numbers, divisors)
    return np.asarray(quotient + (2 * rest >= divisors) * (divisors > 1))


def _many_datetimes(fields: Fields) -> tuple[IntArray, Mask]:
    """Return dates with times in UTC: ``YYYY-MM-DD HH:MM:SS``, up to nine digits more, nothing or +00:00 or Z."""
    data = np.concatenate([fields.data, np.zeros(LONGEST_DATETIME, dtype=np.uint8)])
    windows = np.lib.stride_tricks.sliding_window_view(data, LONGEST_DATETIME)
    text = np.ascontiguousarray(windows[fields.start].T)  # text[k] holds the k-th byte of every field
    digits = text - np.uint8(48)
    length = fields.end - fields.start
    bad: Mask = (length < SECONDS_END) | (length > LONGEST_DATETIME)
    for place in DIGIT_PLACES:
        bad |= digits[place] > 9
    for place, allowed in ((4, "--"), (7, "--"), (10, " T"), (13, "::"), (16, "::")):
        bad |= (text[place] != ord(allowed[0])) & (text[place] != ord(allowed[1]))

    def number(*places: int) -> IntArray:
        total = np.zeros(text.shape[1], dtype=np.int64)
        for place in places:
            total = total * 10 + digits[place]
        return total

    days, bad_days = _many_days(number(0, 1, 2, 3, 5, 6, 8, 9))
    hour, minute, second = number(11, 12), number(14, 15), number(17, 18)
    fraction, after = _many_fractions(text, digits)
    bad |= bad_days | (hour > 23) | (minute > 59) | (second > 60) | ~_is_utc(text, after, length)
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * NS_PER_S + fraction, bad


def _many_days(dates: IntArray) -> tuple[IntArray, Mask]:
    """Return days since 1970 of dates written as the number YYYYMMDD; a trace has few different ones."""
    unique, which = np.unique(dates, return_inverse=True)
    days = np.zeros(len(unique), dtype=np.int64)
    bad = np.zeros(len(unique), dtype=np.bool_)
    for i, date in enumerate(unique.tolist()):
        try:
            days[i] = dt.date(date // 10_000, date // 100 % 100, date % 100).toordinal() - UNIX_EPOCH
        except ValueError:
            bad[i] = True
    bad |= (days < 0) | (days > 106_000)  # 1970 to 2260
    return days[which], bad[which]


def _many_fractions(text: Bytes, digits: Bytes) -> tuple[IntArray, IntArray]:
    """Return the nanoseconds after ``.`` and where each fraction ends; 0 and the seconds' end where there is none."""
    running: Mask = text[SECONDS_END] == ord(".")
    fraction = np.zeros(text.shape[1], dtype=np.int64)
    after = SECONDS_END + running.astype(np.int64)
    for k in range(9):
        digit = digits[SECONDS_END + 1 + k]
        running = running & (digit <= 9)
        fraction = fraction * 10 + digit * running
        after += running
    return fraction, after


def _is_utc(text: Bytes, start: IntArray, length: IntArray) -> Mask:
    """Tell where nothing, ``Z`` or ``+00:00`` is left of a field."""
    left = length - start
    done: Mask = left == 0
    if not done.all():
        fields = np.arange(text.shape[1])
        offset: Mask = left == len(UTC)
        for k, wanted in enumerate(UTC):
            offset &= text[np.minimum(start + k, LONGEST_DATETIME - 1), fields] == wanted
        zulu = (left == 1) & (text[np.minimum(start, LONGEST_DATETIME - 1), fields] == ord("Z"))
        done = done | offset | zulu
    return done
