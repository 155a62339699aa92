"""What ``kvsim sweep`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvsim.experiments.table import Difference, Table
from kvsim.intervals import Mean, Ratio

MOST_FAILURES = 5


def to_dict(table: Table, measures: Sequence[str], baseline: tuple[str, Any]) -> dict[str, Any]:
    """Return rows, means and paired differences as plain values."""
    field, base = baseline
    means = {measure: table.means(measure) for measure in measures}
    differences = {measure: table.differences(measure, field, base) for measure in measures}
    return {
        "rows": table.rows,
        "means": [
            _settings(table, cell) | {measure: _plain(means[measure][cell]) for measure in measures}
            for cell in table.cells()
        ],
        "differences": [
            _settings(table, cell) | {measure: _plain(differences[measure][cell]) for measure in measures}
            for cell in next(iter(differences.values()))
        ],
        "baseline": {field: base},
    }


def _settings(table: Table, cell: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(table.varied, cell, strict=True))


def _plain(value: Any) -> Any:
    """Turn named tuples into dicts, all the way down."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    return value


def print_table(table: Table, measures: Sequence[str], baseline: tuple[str, Any]) -> None:
    """Print a table a measure: means with intervals, and what differs from the baseline; then what failed."""
    from rich.console import Console

    console = Console()
    seeds = len({row["seed"] for row in table.rows})
    over = "one seed, no intervals" if seeds == 1 else f"means over {seeds} seeds, 95 % intervals"
    for measure in measures:
        console.print(_grid(f"{measure} ({over})", table, measure, baseline))
    for row in table.failed[:MOST_FAILURES]:
        settings = ", ".join(f"{name} {value}" for name, value in _settings(table, table.cell(row)).items())
        console.print(f"failed ({settings}, seed {row['seed']}): {row['error']}", highlight=False)
    if len(table.failed) > MOST_FAILURES:
        console.print(f"and {len(table.failed) - MOST_FAILURES:,} more; the table has them all", highlight=False)


def _grid(title: str, table: Table, measure: str, baseline: tuple[str, Any]) -> Any:
    from rich.table import Table as Grid

    field, base = baseline
    means = table.means(measure)
    differences = table.differences(measure, field, base)
    grid = Grid(title=title, title_justify="left")
    columns = [*table.varied, "mean"] + ([f"over {field} {base}", "paired difference"] if differences else [])
    for name in columns:
        grid.add_column(name, justify="right")
    for cell, mean in means.items():
        values = [str(value) for value in cell] + [_mean(mean)]
        grid.add_row(*values, *(_difference(differences[cell]) if cell in differences else []))
    return grid


def _mean(mean: Mean | None) -> str:
    return "-" if mean is None else f"{mean.value:.4g}{_half(mean)}"


def _difference(difference: Difference | None) -> list[str]:
    if difference is None:
        return ["-", "-"]
    return [_ratio(difference.ratio), f"{difference.difference.value:+.3g}{_half(difference.difference)}"]


def _half(mean: Mean) -> str:
    return "" if mean.half_width is None else f" ± {mean.half_width:.2g}"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"x{ratio.value:.3g}"
    return f"x{ratio.value:.3g} [{ratio.low:.3g}, {ratio.high:.3g}]"
