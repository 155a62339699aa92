"""What a device needs for a model, from weights, bandwidth, FLOPs and KV bytes."""

from __future__ import annotations

from kvsim.latency.affine import Affine
from kvsim.models import Device, Model

# Share of the peak that a good engine reaches, from measured FasterTransformer runs of a 13 B model on an A100-40GB
# (prefill of 512 tokens 63.17 ms, decode 22.0 ms; the pair 0.7 / 0.9 gives 62.15 and 18.97 ms).
FLOPS_EFFICIENCY = 0.7
BANDWIDTH_EFFICIENCY = 0.9


def derived(model: Model, device: Device, stretch: float = 1.0) -> Affine:
    """Derive the constants of a model on a device.

    Every iteration reads the weights once; a token costs 2 FLOPs a parameter; a context token is read once.

    Parameters
    ----------
    model, device : Model, Device
        With 16-bit weights, spread evenly over ``device.count`` devices.
    stretch : float
        How many times longer all of it takes, for instance because devices talk to each other.
    """
    bandwidth = device.bandwidth_bytes_per_s * device.count * BANDWIDTH_EFFICIENCY / stretch / 1e9
    flops = device.flops_per_s * device.count * FLOPS_EFFICIENCY / stretch / 1e9
    token_ns = 2 * model.parameters / flops
    shares = f"{FLOPS_EFFICIENCY:g} of the FLOPs and {BANDWIDTH_EFFICIENCY:g} of the bandwidth"
    return Affine(
        fixed_ns=model.weights_bytes() / bandwidth,
        sequence_ns=token_ns,
        prefill_ns=token_ns,
        context_ns=model.kv_bytes_per_token() / bandwidth,
        origin="derived",
        source=f"{model.name} at {shares} of {device}" + (f", times {stretch:g}" if stretch != 1 else ""),
    )
