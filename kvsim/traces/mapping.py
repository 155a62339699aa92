"""Which column or key of a table holds what."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from kvsim.errors import ConfigError, unknown
from kvsim.traces.fields import UNITS


@dataclass(frozen=True)
class Mapping:
    """Which column or key holds what.

    Attributes
    ----------
    prompt, output : str
        Names of the columns with the lengths in tokens.
    arrival : str or None
        Name of the column with the arrival time; None where there is none.
    unit : {"s", "ms", "us", "ns", "datetime"}
        What the arrival time counts.
    ids : str or None
        Key of the prefix-block ids (JSON and Parquet only).
    block_size : int or None
        Tokens that one prefix id stands for; None with ``ids`` leaves it to be inferred.
    full_blocks : bool
        Only whole blocks have an id; otherwise the last block, which may be partial, has one too.
    where : dict of str to str
        Keep only the rows in which these columns have these values.
    """

    prompt: str
    output: str
    arrival: str | None = None
    unit: str = "s"
    ids: str | None = None
    block_size: int | None = None
    full_blocks: bool = False
    where: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """All columns that are looked at."""
        return [name for name in (self.arrival, self.prompt, self.output) if name is not None] + list(self.where)

    def missing(self, names: Iterable[str]) -> str | None:
        """Return the first column that is looked at and not among ``names``."""
        return next((name for name in self.names if name not in set(names)), None)

    def without_missing_times(self, names: Iterable[str]) -> Mapping:
        """Return the same mapping, without the arrival where there is no such column."""
        return self if self.arrival in set(names) else replace(self, arrival=None)


def not_asked_for(name: str, value: str) -> str:
    """Return the reason for which a row that ``where`` leaves out is skipped."""
    return f"{name} is not {value}"


def parse_mapping(text: str, unit: str | None = None) -> Mapping:
    """Read a mapping from ``prompt=in,output=out,arrival=when`` or from a TOML file with the same keys.

    Parameters
    ----------
    text : str
        Pairs with commas between them, or a path that ends in ``.toml``.
    unit : str, optional
        What the arrival counts, where the mapping does not say.

    Raises
    ------
    ConfigError
        A key is unknown or missing, or a value cannot be meant.
    """
    given: dict[str, Any] = {} if unit is None else {"unit": unit}
    given |= _from_toml(text) if text.endswith(".toml") else _from_pairs(text)
    keys = [entry.name for entry in fields(Mapping)]
    for key, value in given.items():
        if key not in keys:
            raise unknown("key of a column mapping", key, keys)
        wanted: Any = {"block_size": int, "full_blocks": bool, "where": dict}.get(key, str)
        if not isinstance(value, wanted):
            raise ConfigError(f"column mapping: {key} = {value!r} is not what is expected there")
    for key in ("prompt", "output"):
        if key not in given:
            raise ConfigError(
                f"a column mapping needs {key}=COLUMN, like prompt=in_tokens,output=out_tokens,arrival=time"
            )
    if given.get("unit", "s") not in {*UNITS, "datetime"}:
        raise unknown("time unit", given["unit"], [*UNITS, "datetime"])
    return Mapping(**given)


def _from_toml(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _from_pairs(text: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not value.strip():
            raise ConfigError(f"column mapping: {part!r} is not KEY=COLUMN")
        pairs[key.strip()] = value.strip()
    if "block_size" in pairs:
        if not pairs["block_size"].isdigit():
            raise ConfigError(f"column mapping: block_size={pairs['block_size']} is not a whole number")
        pairs["block_size"] = int(pairs["block_size"])
    if "full_blocks" in pairs:
        pairs["full_blocks"] = pairs["full_blocks"] == "true"
    return pairs
