"""Every combination of settings, every seed: a tidy table.

A *cell* is a combination of the varied settings with one allocator; a row of the table is a cell and a seed. Cells draw
the same requests from the same seed, so their differences are paired. Rows do not say when or how fast they were
computed: whoever computes them, and however often he is interrupted, the table is the same to the byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import kvsim
from kvsim.errors import KvsimError
from kvsim.experiments.compare import run_one
from kvsim.experiments.table import Table
from kvsim.experiments.workers import Workers, run_units
from kvsim.latency import latency_of
from kvsim.plan import Unit, plan
from kvsim.results import REJECTED, Result
from kvsim.scenario import Resolved, Scenario
from kvsim.store import Store

DONE, FAILED = "done", "failed"

# columns of settings that every row has, besides the scenario's own
FILLED_IN = ("max_model_len", "capacity", "slot_bytes")
SPREADS = ("ttft_s", "tpot_s")
REASONS = {text: f"rejected_{text.replace(' ', '_')}" for text in REJECTED.values()}


def key_of(unit: Unit) -> str:
    """Return a hash of everything that a row depends on: resolved settings, files, and the version of kvsim."""
    scenario = unit.scenario
    parts: dict[str, Any] = {"version": kvsim.__version__, "settings": scenario.model_dump(exclude={"engine"})}
    try:
        resolved = Resolved(scenario)
    except KvsimError as error:
        parts["unresolved"] = str(error)
    else:
        parts["resolved"] = {name: value for name, value in resolved.describe().items() if name != "engine"}
        parts["model"], parts["device"] = repr(resolved.model), repr(resolved.device)
    for name in (scenario.workload, scenario.latency, scenario.kernel_table):
        if name is not None and Path(name).is_file():
            parts[f"file {name}"] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def run_unit(unit: Unit) -> dict[str, Any]:
    """Compute a row. What goes wrong is written into it, and does not stop the others."""
    scenario = unit.scenario
    row: dict[str, Any] = scenario.model_dump(exclude={"seeds", "engine"}) | {"allocator": unit.allocator}
    try:
        resolved = Resolved(scenario)
        row |= {name: value for name, value in resolved.describe().items() if name in FILLED_IN or name == "backlog"}
        latency = latency_of(resolved)
        result = run_one(resolved, scenario.seed, unit.allocator, scenario.placement, latency)
        return row | {"status": DONE, "error": None} | measures(result)
    except Exception as error:
        return row | {"status": FAILED, "error": _in_one_line(error)}


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, KvsimError) else f"{type(error).__name__}: {text}"


def measures(result: Result) -> dict[str, Any]:
    """Return the summary of a run as one flat row."""
    summary = result.summary()
    row = {name: summary[name] for name in summary if name not in (*SPREADS, "rejected", "window_s", "engine")}
    for name in SPREADS:
        for statistic, value in summary[name].items():
            row[f"{name.removesuffix('_s')}_{statistic}_s"] = value
    row["rejected"] = sum(summary["rejected"].values())
    for reason, column in REASONS.items():
        row[column] = summary["rejected"].get(reason, 0)
    row["window_start_s"], row["window_end_s"] = summary["window_s"] or (None, None)
    return row


def sweep(
    scenario: Scenario,
    vary: Mapping[str, Sequence[Any]],
    *,
    workers: Workers | None = None,
    store: Store | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Table:
    """Run every combination of settings with every seed.

    Parameters
    ----------
    scenario : Scenario
        What is not varied.
    vary : mapping
        Field of a scenario -> values.
    workers : Workers, optional
        Who runs them; this process by default.
    store : Store, optional
        Rows are written there as they finish, and not computed again if they are there (failed ones are).
    progress : callable, optional
        Called with (rows that are there, rows).

    Returns
    -------
    Table
        A row a cell and seed, in the order of the plan.

    Raises
    ------
    ConfigError
        The sweep cannot be meant.
    """
    units = plan(scenario, vary)
    keys = [key_of(unit) for unit in units] if store is not None else []
    known = store.get(keys) if store is not None else {}
    rows: dict[int, dict[str, Any]] = {
        position: known[key] for position, key in enumerate(keys) if key in known and known[key]["status"] == DONE
    }
    left = [position for position in range(len(units)) if position not in rows]

    def done(index: int, row: dict[str, Any]) -> None:
        position = left[index]
        rows[position] = row
        if store is not None:
            store.put(keys[position], row)
        if progress:
            progress(len(rows), len(units))

    def died(index: int, error: KvsimError) -> None:
        unit = units[left[index]]
        settings = unit.scenario.model_dump(exclude={"seeds", "engine"}) | {"allocator": unit.allocator}
        done(index, settings | {"status": FAILED, "error": str(error)})

    if progress:
        progress(len(rows), len(units))
    run_units(run_unit, [units[position] for position in left], workers or Workers(), done, died)
    varied = [field for field in vary if field != "allocator"]
    return Table([rows[position] for position in range(len(units))], [*varied, "allocator"])
