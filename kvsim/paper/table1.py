"""Table 1: models, devices, and the slots of the KV cache. Arithmetic only."""

from __future__ import annotations

from kvsim.paper.report import Reproduction, Row, Tag
from kvsim.scenario import Resolved, Scenario

# model, devices, weights in GB, slots in thousands, as printed
PRINTED = (
    ("OPT-13B", "A100-40GB", 26.0, 15.7),
    ("OPT-66B", "4xA100-40GB", 132.0, 9.7),
    ("OPT-175B", "8xA100-80GB", 346.0, 60.1),
)
ODD = "9.7K slots need 21.31 GiB; the 21 GB beside it in the table are 9,557 slots as GiB, 8,901 as GB"


def reproduce() -> Reproduction:
    """Compute weights and slots from the models' sizes and the paper's memory for KV cache."""
    rows = []
    for model, gpu, weights, slots in PRINTED:
        resolved = Resolved(Scenario(model=model, gpu=gpu))
        is_odd = model == "OPT-66B"
        tag: Tag = "known-deviation" if is_odd else "exact"
        gigabytes, thousands = resolved.model.weights_bytes() / 1e9, resolved.capacity / 1e3
        rows += [
            Row("table1", f"{model} weights (GB)", weights, gigabytes, 1.0, "percent", "exact"),
            Row("table1", f"{model} slots (thousands)", slots, thousands, 0.05, "points", tag, ODD if is_odd else ""),
        ]
    notes = ["Memory for the KV cache as printed (12, 21, 264 GB), read as GiB: only so do 15.7K and 60.1K come out."]
    return Reproduction("table1", "Table 1: model sizes and slots", rows, None, notes)
