"""Constants of the affine model for pairs of model and device: fitted where there is something to fit to."""

from __future__ import annotations

from kvsim.latency.affine import Affine
from kvsim.models import Device, Model

# Share of the peak that a good engine reaches, from measured FasterTransformer runs of a 13 B model on an A100-40GB
# (prefill of 512 tokens 63.17 ms, decode 22.0 ms; the pair 0.7 / 0.9 gives 62.15 and 18.97 ms).
FLOPS_EFFICIENCY = 0.7
BANDWIDTH_EFFICIENCY = 0.9

# (model, device) -> what benchmarks/calibration/fit_latency.py prints; fitted to the contiguous baselines of the vLLM
# paper's Figure 12, never to what paging does there
_FITTED: dict[tuple[str, str], Affine] = {
    ("OPT-13B", "A100-40GB"): Affine(
        fixed_ns=28_221_600.9,
        sequence_ns=271_000.9,
        prefill_ns=69_698.7,
        context_ns=1_251.6,
        origin="fitted",
        source="low load and rates at 0.5 s/token of max, pow2, oracle in the vLLM paper's Figures 12a and 12d",
    ),
    ("OPT-66B", "4xA100-40GB"): Affine(
        fixed_ns=50_971_635.7,
        sequence_ns=743_728.2,
        prefill_ns=135_208.0,
        context_ns=321.6,
        origin="fitted",
        source="low load and rates at 0.5 s/token of max, pow2, oracle in the vLLM paper's Figure 12b",
    ),
    ("OPT-175B", "8xA100-80GB"): Affine(
        fixed_ns=82_871_208.4,
        sequence_ns=132_407.8,
        prefill_ns=167_101.7,
        context_ns=427.1,
        origin="fitted",
        source="low load and rates at 0.5 s/token of max, pow2, oracle in the vLLM paper's Figure 12c",
    ),
}


def derived(model: Model, device: Device) -> Affine:
    """Derive the constants of a model on a device from weights, bandwidth, FLOPs and KV bytes.

    Every iteration reads the weights once; a token costs 2 FLOPs a parameter; a context token is read once.

    Parameters
    ----------
    model, device : Model, Device
        With 16-bit weights, spread evenly over ``device.count`` devices.
    """
    bandwidth = device.bandwidth_bytes_per_s * device.count * BANDWIDTH_EFFICIENCY / 1e9
    flops = device.flops_per_s * device.count * FLOPS_EFFICIENCY / 1e9
    token_ns = 2 * model.parameters / flops
    return Affine(
        fixed_ns=model.weights_bytes() / bandwidth,
        sequence_ns=token_ns,
        prefill_ns=token_ns,
        context_ns=model.kv_bytes_per_token() / bandwidth,
        origin="derived",
        source=f"weights, bandwidth, FLOPs and KV bytes of {model.name} on {device}",
    )


def latency_for(model: Model, device: Device) -> Affine:
    """Return the fitted constants of a model on a device where there are some, and derived ones elsewhere."""
    return _FITTED.get((model.name, str(device))) or derived(model, device)


# (model, device) -> how much longer FasterTransformer takes than the derived constants say, at low load in the ShareGPT
# panel of the vLLM paper's Figure 12: communication between devices, which those know nothing of
_STATIC_FACTORS = {
    ("OPT-66B", "4xA100-40GB"): 1.13,
    ("OPT-175B", "8xA100-80GB"): 1.50,
}


def static_latency_for(model: Model, device: Device) -> Affine:
    """Return the constants of the static scheduler's engine (FasterTransformer).

    For a 13 B model on an A100-40GB they come from measured times at batch 1: 63.17 ms for a prefill of 512 tokens,
    22.0 ms for a decode step (llm-analysis, after a public FasterTransformer benchmark). For the vLLM paper's larger
    models they are derived ones, stretched to its low-load points (benchmarks/calibration/fit_static.py). Elsewhere
    they are derived.
    """
    pair, base = (model.name, str(device)), derived(model, device)
    if pair in _STATIC_FACTORS:
        return stretched(base, _STATIC_FACTORS[pair])
    if pair != ("OPT-13B", "A100-40GB"):
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


def stretched(base: Affine, factor: float) -> Affine:
    """Return constants with every time longer by a factor that is fitted to FasterTransformer at low load."""
    return Affine(
        fixed_ns=base.fixed_ns * factor,
        sequence_ns=base.sequence_ns * factor,
        prefill_ns=base.prefill_ns * factor,
        context_ns=base.context_ns * factor,
        origin="fitted",
        source=f"{factor:g} times what is derived, after FasterTransformer at low load in the vLLM paper's Figure 12",
    )
