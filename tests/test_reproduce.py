"""The paper's items: published numbers, tags, rows, the report."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kvsim.errors import ConfigError
from kvsim.experiments.workers import Workers
from kvsim.paper import ITEMS, fig2, fig13
from kvsim.paper.fig3 import slots
from kvsim.paper.published import ORCA, PANELS, crossing, curve, low_load, published, published_rate
from kvsim.paper.report import Row
from kvsim.paper.reproduce import all_rows, chosen_items, missed, report_page, reproduce, write_report

SHARED = Path(os.environ.get("KVSIM_SHARED", Path(__file__).parents[2] / "shared"))

# rates at 0.5 s/token as the reading of the figures has them: FasterTransformer, Max, Pow2, Oracle, vLLM
AT_HALF = {
    "fig12a": (0.231, 0.525, 0.774, 1.099, 1.929),
    "fig12b": (0.100, 0.203, 0.269, 0.403, 0.939),
    "fig12c": (0.115, 0.918, 1.277, 1.622, 2.377),
    "fig12d": (2.53, 3.85, 16.11, 21.08, 28.05),
    "fig12e": (1.26, 1.25, 6.29, 10.50, 18.71),
    "fig12f": (0.872, 5.11, 17.11, 19.17, 20.17),
}


@pytest.mark.parametrize("panel", PANELS)
def test_curves_cross_where_they_were_read(panel: str) -> None:
    rates = [published_rate(panel, system) for system in ("fastertransformer", *ORCA, "paged")]
    assert rates == pytest.approx(AT_HALF[panel], rel=0.004)


def test_published_curves_are_the_reference() -> None:
    path = SHARED / "reference" / "vllm_paper_curves.json"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    reference = json.loads(path.read_text())
    names = {"FT": "fastertransformer", "Orca Max": "max", "Orca Pow2": "pow2", "Orca Oracle": "oracle"}
    for key, systems in reference.items():
        panel = key[:6]
        if panel in PANELS:
            for name, points in systems.items():
                assert published()[panel][names.get(name, "paged")] == points


def test_crossings() -> None:
    assert crossing([(1, 0.0), (2, 1.0)], 0.25) == 1.25
    with pytest.raises(ValueError, match="does not cross"):
        crossing([(1, 0.0), (2, 0.1)], 0.5)
    assert low_load("fig12a", "max") == curve("fig12a", "max")[:2]


def test_rows_judge_by_their_unit() -> None:
    assert Row("i", "q", 20.4, 19.4, 1.5, "points").within
    assert not Row("i", "q", 20.4, 18.8, 1.5, "points").within
    assert Row("i", "q", 100.0, 114.9, 15.0).within
    assert not Row("i", "q", 100.0, 84.9, 15.0).within
    assert Row("i", "q", 1.0, 1 / 1.49, 0.5, "factor").within
    assert not Row("i", "q", 1.0, 1.51, 0.5, "factor").within
    fitted = Row("i", "q", 1.0, 1.0, 1.0, "percent", "calibrated")
    assert fitted.within
    assert not fitted.reproduced


def test_items_are_chosen_by_name() -> None:
    assert chosen_items([]) == list(ITEMS)
    assert chosen_items(["fig12"]) == [item for item in ITEMS if item.startswith("fig12")]
    assert chosen_items(["fig3", "table1"]) == ["table1", "fig3"]
    with pytest.raises(ConfigError, match="did you mean 'fig18b'"):
        chosen_items(["fig18"])


def test_the_worked_example() -> None:
    assert slots(7, 4, 2048) == (8, 2, 2038)
    assert slots(3, 3, 512) == (4, 1, 507)


def test_figures_2_and_13_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two seeds instead of five."""
    monkeypatch.setattr(fig2, "SEEDS", 2)
    monkeypatch.setattr(fig13, "SEEDS", 2)
    workers = Workers("threads", jobs=2)
    rows = fig2.reproduce(workers).rows
    assert [row.quantity for row in rows if not row.within] == []
    rows = fig13.reproduce(workers).rows
    assert [row.quantity for row in rows if row.tag in ("exact", "derived") and abs(row.deviation) > 4] == []
    assert {row.tag for row in rows if "headroom" in row.quantity} == {"known-deviation"}


def test_the_report_lists_first_what_does_not_reproduce(tmp_path: Path) -> None:
    results = reproduce(["table1", "fig3", "fig11"])
    rows = all_rows(results)
    assert len({(row.item, row.quantity) for row in rows}) == len(rows)
    assert [row.quantity for row in missed(rows)] == ["OPT-66B slots (thousands)"]
    page = report_page(results)
    assert page.index("What does not reproduce") < page.index("Table 1") < page.index("Figure 11")
    written = {path.name for path in write_report(results, tmp_path / "out")}
    assert written == {"fig11.png", "fig11.svg", "report.md"}
    assert all(result.seconds >= 0 for result in results)
