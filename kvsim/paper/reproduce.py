"""Run items of the paper's evaluation, and write the report."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import kvsim
from kvsim.errors import ConfigError
from kvsim.experiments.workers import Workers
from kvsim.paper import chosen_items, fig1, fig2, fig3, fig11, fig12, fig13, fig18b, table1
from kvsim.paper.published import PANELS
from kvsim.paper.report import Reproduction, Row

_RUNNERS: dict[str, Callable[[Workers], Reproduction]] = {
    "table1": lambda _: table1.reproduce(),
    "fig1": fig1.reproduce,
    "fig2": fig2.reproduce,
    "fig3": lambda _: fig3.reproduce(),
    "fig11": lambda _: fig11.reproduce(),
    "fig13": fig13.reproduce,
    "fig18b": fig18b.reproduce,
}


def reproduce(
    names: Sequence[str], workers: Workers | None = None, progress: Callable[[str], None] | None = None
) -> list[Reproduction]:
    """Reproduce items.

    Parameters
    ----------
    names : sequence of str
        As ``chosen_items`` takes them.
    workers : Workers, optional
        Who runs the simulations; this process by default.
    progress : callable, optional
        Called with an item's name before it begins.
    """
    results = []
    chosen = workers or Workers()
    panels = fig12.Panels(chosen)
    for item in chosen_items(names):
        if progress:
            progress(item)
        began = time.monotonic()
        if item == "headline":
            result = fig12.reproduce_headline(panels)
        elif item in PANELS:
            result = fig12.reproduce_panel(item, panels)
        else:
            result = _RUNNERS[item](chosen)
        result.seconds = time.monotonic() - began
        results.append(result)
    return results


def all_rows(results: Sequence[Reproduction]) -> list[Row]:
    """Return the rows of all items."""
    return [row for result in results for row in result.rows]


def missed(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that did not reproduce: predicted and outside, then fitted and outside, then known to differ."""
    order = {"exact": 0, "derived": 0, "calibrated": 1, "known-deviation": 2}
    outside = [row for row in rows if not row.within]
    return sorted(outside, key=lambda row: (order[row.tag], -abs(row.deviation) / (row.tolerance or 1)))


def write_report(results: Sequence[Reproduction], folder: Path) -> list[Path]:
    """Write every figure as PNG and SVG, and one page with figures, numbers, constants and times.

    Raises
    ------
    ConfigError
        The folder cannot be written to.
    """
    from kvsim.plots.style import save

    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [
            save(result.draw(), folder / f"{result.item}.{suffix}")
            for result in results
            if result.draw is not None
            for suffix in ("png", "svg")
        ]
        page = folder / "report.md"
        temporary = page.with_name(f".report.{os.getpid()}.md")
        temporary.write_text(report_page(results), encoding="utf-8")
        temporary.replace(page)
    except OSError as error:
        raise ConfigError(f"--out {folder}: {error.strerror}") from None
    return [*written, page]


def report_page(results: Sequence[Reproduction]) -> str:
    """Return the page in Markdown; what does not reproduce comes first."""
    rows = all_rows(results)
    predicted = [row for row in rows if row.tag in ("exact", "derived")]
    lines = ["# The vLLM paper's evaluation, simulated", ""]
    lines.append(
        f"kvsim {kvsim.__version__}, {os.cpu_count()} cores, Python {platform.python_version()}. "
        f"{sum(row.reproduced for row in rows)} of {len(predicted)} numbers that are arithmetic or predicted came out "
        f"within their tolerance; {sum(row.tag == 'calibrated' for row in rows)} are what a constant was fitted to, "
        f"and {sum(row.tag == 'known-deviation' for row in rows)} are known to differ: neither counts."
    )
    lines += ["", "## What does not reproduce", "", *_table(missed(rows), notes=True)]
    for result in results:
        lines += ["", f"## {result.title}", ""]
        if result.draw is not None:
            lines += [f"![{result.title}]({result.item}.png)", ""]
        lines += [*_table(result.rows), ""]
        lines += [f"- {note}" for note in result.notes]
        lines.append(f"- took {result.seconds:.1f} s")
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Row], notes: bool = False) -> list[str]:
    if not rows:
        return ["nothing"]
    head = ["item", "quantity", "published", "simulated", "deviation", "tolerance", "within", "tag"]
    lines = ["| " + " | ".join(head + ["note"] * notes) + " |", "|" + "---|" * (len(head) + notes)]
    for row in rows:
        cells = [row.item, row.quantity, *numbers(row), "yes" if row.within else "**no**", row.tag]
        lines.append("| " + " | ".join(cells + [row.note] * notes) + " |")
    return lines


def numbers(row: Row) -> list[str]:
    """Return published, simulated, deviation and tolerance as text."""
    if row.unit == "factor":
        deviation, tolerance = f"x{row.simulated / row.published:.2f}", f"x{1 + row.tolerance:g}"
    else:
        sign = " %" if row.unit == "percent" else ""
        deviation, tolerance = f"{row.deviation:+.1f}{sign}", f"{row.tolerance:g}{sign}"
        if row.unit == "points":
            deviation = f"{row.deviation:+.2f}"
    return [_short(row.published), _short(row.simulated), deviation, tolerance]


def _short(value: float) -> str:
    """Four significant digits, or all those before the point."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def to_dict(results: Sequence[Reproduction]) -> dict[str, Any]:
    """Return rows, notes and times as plain values."""
    return {
        "version": kvsim.__version__,
        "rows": [row.to_dict() for row in all_rows(results)],
        "items": [{"item": r.item, "title": r.title, "notes": r.notes, "seconds": r.seconds} for r in results],
    }
