"""Latency models of pairs of model and device: with fitted overheads where there is something to fit to."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kvsim.latency.affine import Affine
from kvsim.latency.derived import derived
from kvsim.latency.roofline import Roofline, roofline
from kvsim.models import Device, Model


class Overheads(NamedTuple):
    """What an iteration costs beside the device's work, and each sequence of its batch; nanoseconds."""

    fixed_ns: float
    sequence_ns: float
    source: str


# (model, device) -> what benchmarks/calibration/fit_latency.py prints; fitted to the contiguous baselines of the vLLM
# paper's Figure 12, never to what paging does there. A sequence's overhead is OPT-13B's: the engine's, not the model's
_OVERHEADS = {
    ("OPT-13B", "A100-40GB"): Overheads(11_304_371.5, 300_175.6, "Figures 12a and 12d"),
    ("OPT-66B", "4xA100-40GB"): Overheads(26_392_101.5, 300_175.6, "Figure 12b (of a sequence: 12a and 12d)"),
    ("OPT-175B", "8xA100-80GB"): Overheads(39_426_307.7, 300_175.6, "Figure 12c (of a sequence: 12a and 12d)"),
}

# (model, device) -> how much longer everything takes than what is derived: communication between devices, which that
# knows nothing of. What benchmarks/calibration/fit_static.py prints: fitted to FasterTransformer at low load in the
# ShareGPT panels of the same figure
_STRETCH = {
    ("OPT-66B", "4xA100-40GB"): 1.13,
    ("OPT-175B", "8xA100-80GB"): 1.50,
}


def stretch_of(model: Model, device: Device) -> float:
    """How many times longer than derived a model's work takes on several devices; 1 where nothing is known."""
    return _STRETCH.get((model.name, str(device)), 1.0)


def latency_for(model: Model, device: Device) -> Roofline:
    """Return the roofline of a model on a device, with fitted overheads where there are some."""
    overheads, stretch = _OVERHEADS.get((model.name, str(device))), stretch_of(model, device)
    if overheads is None:
        return roofline(model, device, stretch=stretch)
    found = roofline(model, device, stretch=stretch, overhead_ns=overheads.fixed_ns, sequence_ns=overheads.sequence_ns)
    return replace(
        found,
        origin="fitted",
        source=(
            f"{derived(model, device, stretch).source}; overheads to low load and rates at 0.5 s/token of max, pow2, "
            f"oracle in the vLLM paper's {overheads.source}"
        ),
    )


def static_latency_for(model: Model, device: Device) -> Affine:
    """Return the constants of the static scheduler's engine (FasterTransformer).

    For a 13 B model on an A100-40GB they come from measured times at batch 1: 63.17 ms for a prefill of 512 tokens,
    22.0 ms for a decode step (llm-analysis, after a public FasterTransformer benchmark). For the vLLM paper's larger
    models they are derived ones, stretched to its low-load points (benchmarks/calibration/fit_static.py). Elsewhere
    they are derived.
    """
    stretch = stretch_of(model, device)
    base = derived(model, device, stretch)
    if stretch != 1:
        source = f"{base.source}, after FasterTransformer at low load in the vLLM paper's Figure 12"
        return replace(base, origin="fitted", source=source)
    if (model.name, str(device)) != ("OPT-13B", "A100-40GB"):
        return base
    fixed_ns = 22.0e6 - base.sequence_ns - 512 * base.context_ns
    return Affine(
        fixed_ns=fixed_ns,
        sequence_ns=base.sequence_ns,
        prefill_ns=(63.17e6 - fixed_ns - base.sequence_ns) / 512,
        context_ns=base.context_ns,
        origin="derived",
        source="FasterTransformer at batch 1: prefill of 512 tokens 63.17 ms, decode 22.0 ms; the rest as for any pair",
    )
