"""Figure 1, right: memory and throughput over the number of requests in a batch, 13 B model on an A100-40GB."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from kvsim.experiments.compare import run_one
from kvsim.experiments.workers import Workers, run_units
from kvsim.latency import latency_of
from kvsim.paper.published import published
from kvsim.paper.report import Reproduction, Row
from kvsim.scenario import Resolved, Scenario

SLOWER = (
    "the constants are fitted to Figure 12, whose throughputs need longer iterations than these: max serves 0.525 "
    "requests/s in panel a, which are 39 ms for its batch of 7, where this figure has 29.9 ms for 8"
)


def reproduce(workers: Workers) -> Reproduction:
    """Serve a backlog with ever larger batches, and weigh a request's share of the memory."""
    base = Scenario(allocator=["max", "paged"])
    batches = [batch for batch, _ in published()["fig1_throughput"]]
    found: dict[int, dict[str, float]] = {}
    run_units(measure, [(base, batch) for batch in batches], workers, lambda i, row: found.update({batches[i]: row}))
    found = dict(sorted(found.items()))
    rows = _memory_rows(found)
    for batch, tokens_per_s in published()["fig1_throughput"]:
        simulated = found[batch]["tokens_per_s"]
        rows.append(Row("fig1", f"tokens/s at batch {batch}", tokens_per_s, simulated, 10, "percent",
                        "known-deviation", SLOWER))  # fmt: skip
    notes = [f"latency: {latency_of(Resolved(base)).describe()}"]
    return Reproduction("fig1", "Figure 1: memory and throughput over batch", rows, lambda: draw(found), notes)


def measure(unit: tuple[Scenario, int]) -> dict[str, float]:
    """Serve a ShareGPT backlog with a capped batch; return tokens/s and GiB held, paged, with memory to spare."""
    scenario, batch = unit
    settings = {"max_num_seqs": batch, "requests": 60 * batch, "pool": "64GiB"}
    resolved = Resolved(scenario.model_copy(update=settings))
    result = run_one(resolved, 0, "paged", "paged", latency_of(resolved))
    summary = result.summary()
    held = summary["used"] + summary["reserved"] + summary["internal"]
    return {"tokens_per_s": summary["output_tokens_per_s"], "gib": held * resolved.pool_bytes / 2**30}


def _memory_rows(found: dict[int, dict[str, float]]) -> list[Row]:
    """A request's memory: the slope of the drawn lines, against reservation and against what is held on average."""
    resolved = Resolved(Scenario())
    reserved = resolved.max_model_len * resolved.slot_bytes / 2**30
    paged = float(np.polyfit(list(found), [row["gib"] for row in found.values()], 1)[0])
    return [
        Row("fig1", "existing systems, GB a request", _slope("max"), reserved, 5, "percent", "exact",
            "2048 slots of 800 KiB; the drawn points are whole GB"),
        Row("fig1", "vLLM, GB a request", _slope("paged"), paged, 5, "percent", "derived"),
    ]  # fmt: skip


def _slope(system: str) -> float:
    (x0, y0), *_, (x1, y1) = published()["fig1_memory"][system]
    return float((y1 - y0) / (x1 - x0))


def draw(found: dict[int, dict[str, float]]) -> Figure:
    """Draw memory and throughput over the batch, published dashed and open, simulated solid."""
    from kvsim.plots.capacity import curve_on
    from kvsim.plots.style import new_figure, tidy

    figure = new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    weights = 26.0
    per_max = Resolved(Scenario()).max_model_len * Resolved(Scenario()).slot_bytes / 2**30
    curve_on(left, "max", published()["fig1_memory"]["max"], published=True, label="existing systems, published")
    curve_on(left, "max", [(n, weights + n * per_max) for n in range(9)], published=False, label="max, simulated")
    curve_on(left, "paged", published()["fig1_memory"]["paged"], published=True, label="vLLM, published")
    mine = [(batch, weights + row["gib"]) for batch, row in found.items()]
    curve_on(left, "paged", mine, published=False, label="paged, simulated")
    left.set(xlabel="requests in the batch", ylabel="memory (GB as the paper has them: GiB)", ylim=(25, 41))
    curve_on(right, "paged", published()["fig1_throughput"], published=True, label="published")
    curve_on(right, "paged", [(b, row["tokens_per_s"]) for b, row in found.items()], published=False, label="simulated")
    right.set(xlabel="requests in the batch", ylabel="output tokens/s", ylim=(0, None), xlim=(0, None))
    for axes in (left, right):
        axes.legend(frameon=False, fontsize="small")
        tidy(axes)
    return figure
