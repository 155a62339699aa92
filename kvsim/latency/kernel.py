"""What a block size costs in the attention kernel: a factor on the time of a context token.

Small blocks read memory in small pieces. How much slower that is depends on kernel and device, and nothing in a
simulation of memory can tell: the factors are measured by the user, or the ones of ``figure-18``, or there are none.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.errors import ConfigError, TraceError
from kvsim.latency.built import Built
from kvsim.latency.measured import Measured
from kvsim.names import ALLOCATORS

if TYPE_CHECKING:
    from kvsim.scenario import Scenario

COLUMNS = ("block_size", "factor")
SHIPPED = {"figure-18": Path(__file__).with_name("kernel_figure_18.csv")}


@dataclass(frozen=True)
class KernelTable:
    """Factors on the time of a context token.

    Attributes
    ----------
    factors : mapping of int to float
        Block size -> factor.
    source : str
        Where they come from.
    """

    factors: Mapping[int, float]
    source: str

    def factor(self, block_size: int) -> float:
        """Return the factor of a block size.

        Raises
        ------
        ConfigError
            The table does not have it: nothing is guessed.
        """
        if block_size not in self.factors:
            known = ", ".join(str(size) for size in sorted(self.factors))
            raise ConfigError(f"kernel table {self.source!r} has no block size {block_size}; it has {known}")
        return self.factors[block_size]


def kernel_table(name_or_path: str) -> KernelTable:
    """Return a table of factors: ``figure-18``, or a CSV file with columns ``block_size`` and ``factor``.

    Raises
    ------
    TraceError
        Naming file, line and field.
    """
    path = SHIPPED.get(name_or_path, Path(name_or_path))
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except OSError as error:
        known = ", ".join(SHIPPED)
        raise TraceError(f"{error.strerror}; a CSV file or one of {known} is expected", file=name_or_path) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"not a CSV file: {error}", file=name_or_path) from None
    if not rows or tuple(cell.strip() for cell in rows[0]) != COLUMNS:
        raise TraceError(f"a header {','.join(COLUMNS)} is expected", file=name_or_path, line=1)
    factors: dict[int, float] = {}
    for line, row in enumerate(rows[1:], start=2):
        size, factor = _pair(name_or_path, line, row)
        if size in factors:
            raise TraceError(f"block size {size} is there twice", file=name_or_path, line=line)
        factors[size] = factor
    return KernelTable(factors, name_or_path)


def _pair(name: str, line: int, row: list[str]) -> tuple[int, float]:
    try:
        size, factor = int(row[0]), float(row[1])
    except (ValueError, IndexError):
        size, factor = 0, 0.0
    if size < 1 or not 0 < factor < float("inf") or len(row) != 2:
        raise TraceError(f"a block size and a factor above 0 are expected, not {row}", file=name, line=line)
    return size, factor


def with_kernel(latency: Built, scenario: Scenario, allocator: str) -> Built:
    """Return a latency model with the attention kernel of a scenario's block size, where that is paged.

    Raises
    ------
    ConfigError
        The table does not have the block size, or the model does not tell attention from the rest.
    """
    if scenario.kernel_table is None or not ALLOCATORS[allocator][1]:
        return latency
    if isinstance(latency, Measured):
        raise ConfigError("measured step times hold attention already: they take no kernel table")
    return latency.with_attention(kernel_table(scenario.kernel_table).factor(scenario.block_size))
