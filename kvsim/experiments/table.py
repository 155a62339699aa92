"""The tidy table of a sweep: rows, means over seeds, paired differences; CSV, Parquet, pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kvsim.errors import ConfigError, unknown
from kvsim.intervals import Mean, Ratio, mean_of, ratio_of

if TYPE_CHECKING:
    import pandas as pd

Cell = tuple[Any, ...]

DEFAULT_MEASURES = ("used", "mean_batch", "requests_per_s", "output_tokens_per_s", "normalized_latency_s")


class Difference(NamedTuple):
    """A cell against another, paired by seed."""

    difference: Mean
    ratio: Ratio | None


@dataclass(frozen=True)
class Table:
    """Rows of a sweep.

    Attributes
    ----------
    rows : list of dict
        A row a cell and seed: settings, then ``status`` and ``error``, then measures (absent where it failed).
    varied : list of str
        The settings that tell cells apart.
    """

    rows: list[dict[str, Any]]
    varied: list[str]

    @property
    def columns(self) -> list[str]:
        """Names of all columns, in order."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Rows that say why there is no result."""
        return [row for row in self.rows if row["error"] is not None]

    def cell(self, row: dict[str, Any]) -> Cell:
        """Return the varied settings of a row."""
        return tuple(row[field] for field in self.varied)

    def cells(self) -> dict[Cell, list[dict[str, Any]]]:
        """Return the rows of each cell that did not fail, by seed."""
        groups: dict[Cell, list[dict[str, Any]]] = {self.cell(row): [] for row in self.rows}
        for row in self.rows:
            if row["error"] is None:
                groups[self.cell(row)].append(row)
        return groups

    def means(self, measure: str) -> dict[Cell, Mean | None]:
        """Return the mean of a measure in each cell, with Student's 95 % interval over seeds; None where it has none.

        Raises
        ------
        ConfigError
            There is no such measure, or it is not a number.
        """
        self.check_measure(measure)
        return {cell: _mean([row[measure] for row in rows]) for cell, rows in self.cells().items()}

    def differences(self, measure: str, field: str, base: Any) -> dict[Cell, Difference | None]:
        """Return how each cell differs from the one that has ``base`` for ``field`` and is else the same.

        Differences are paired by seed; their mean has Student's 95 % interval, the ratio of the means a studentised
        bootstrap's. None where a measure is missing.

        Raises
        ------
        ConfigError
            The field was not varied, or ``base`` is none of its values.
        """
        self.check_measure(measure)
        if field not in self.varied:
            raise unknown("varied setting", field, self.varied)
        at, cells = self.varied.index(field), self.cells()
        bases = {cell[at] for cell in cells}
        if base not in bases:
            raise ConfigError(f"{field} = {base!r} is not among the cells: {', '.join(str(b) for b in sorted(bases))}")
        found: dict[Cell, Difference | None] = {}
        for cell, rows in cells.items():
            against = cells.get((*cell[:at], base, *cell[at + 1 :]), [])
            if cell[at] != base:
                found[cell] = _difference(_by_seed(rows, measure), _by_seed(against, measure))
        return found

    def check_measure(self, measure: str) -> None:
        """Refuse a measure that no row has, or that is not a number.

        Raises
        ------
        ConfigError
            Naming the nearest.
        """
        numbers = {
            name
            for row in self.rows
            for name, value in row.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        if measure not in numbers and measure not in DEFAULT_MEASURES:
            raise unknown("measure", measure, numbers)

    def to_csv(self) -> str:
        """Return the table as CSV; what is missing is empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as a DataFrame (needs pandas)."""
        try:
            import pandas as pd
        except ImportError:
            raise ConfigError("pandas is not installed: pip install 'kvsim[pandas]'") from None
        return pd.DataFrame(self.rows, columns=self.columns)

    def to_parquet(self) -> bytes:
        """Return the table as the content of a Parquet file (needs pyarrow)."""
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise ConfigError("pyarrow is not installed: pip install 'kvsim[parquet]'") from None
        columns = {name: [row.get(name) for row in self.rows] for name in self.columns}
        sink = io.BytesIO()
        pq.write_table(pa.table(columns), sink)
        return sink.getvalue()


def _mean(values: Sequence[float | None]) -> Mean | None:
    numbers = [float(value) for value in values if value is not None]
    return mean_of(numbers) if numbers and len(numbers) == len(values) else None


def _by_seed(rows: list[dict[str, Any]], measure: str) -> dict[int, float]:
    return {row["seed"]: row[measure] for row in rows if row[measure] is not None}


def _difference(mine: dict[int, float], base: dict[int, float]) -> Difference | None:
    seeds = sorted(mine.keys() & base.keys())
    if not seeds:
        return None
    ours, theirs = [mine[seed] for seed in seeds], [base[seed] for seed in seeds]
    difference = mean_of([a - b for a, b in zip(ours, theirs, strict=True)])
    return Difference(difference, ratio_of(ours, theirs))
