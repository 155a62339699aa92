"""How large the KV pool of a model on a device is: as the vLLM paper has it, or computed."""

from __future__ import annotations

from kvsim.errors import ConfigError
from kvsim.models.device import Device
from kvsim.models.model import Model
from kvsim.units import format_size

GIB = 2**30
UTILIZATION = 0.9
# What an engine needs beside weights and KV cache on each device: activations of its largest batch, workspaces, CUDA
# graphs. It differs by engine and setting; this is an assumption, and every output says so.
OVERHEAD_BYTES = GIB

# vLLM paper, Table 1: memory for the KV cache. Its "GB" are GiB, or the slots beside them do not come out (15.7K and
# 60.1K do; for OPT-66B the paper prints 9.7K, 21 GiB are 9,557).
_TABLE_1 = {
    ("OPT-13B", "A100-40GB", 1): 12 * GIB,
    ("OPT-66B", "A100-40GB", 4): 21 * GIB,
    ("OPT-175B", "A100-80GB", 8): 264 * GIB,
}


def paper_kv_pool(model: Model, device: Device) -> int | None:
    """Return the bytes that the vLLM paper gives to the KV cache, or None for a pair that it does not have.

    Source: Table 1, for OPT-13B on one A100-40GB, OPT-66B on four, OPT-175B on eight A100-80GB.
    """
    return _TABLE_1.get((model.name, device.name, device.count))


def usable_bytes(device: Device, utilization: float | None = None) -> int:
    """Return the bytes of one device that an engine may use.

    Parameters
    ----------
    device : Device
        The device.
    utilization : float or None
        Share of what the system leaves; None for 0.9, or for all of it on a laptop.

    Raises
    ------
    ConfigError
        ``utilization`` is not in (0, 1].
    """
    share = default_utilization(device) if utilization is None else utilization
    if not 0 < share <= 1:
        raise ConfigError(f"gpu memory utilization must be above 0 and at most 1, not {share}")
    return int((device.memory_bytes - device.system_bytes) * share)


def default_utilization(device: Device) -> float:
    """Return the share that an engine takes unless told otherwise; where the system keeps its part, all the rest."""
    return 1.0 if device.system_bytes else UTILIZATION


def default_kv_pool(
    model: Model, device: Device, *, utilization: float | None = None, overhead_bytes: int = OVERHEAD_BYTES
) -> int:
    """Return the bytes left for the KV cache on all devices: usable memory less 16-bit weights less overhead.

    Parameters
    ----------
    model, device : Model, Device
        The weights are spread evenly over ``device.count`` devices.
    utilization : float or None
        Share of each device's memory that the engine may use; None for 0.9.
    overhead_bytes : int
        Activations, workspaces and graphs on each device.

    Raises
    ------
    ConfigError
        Nothing is left.
    """
    usable = usable_bytes(device, utilization) * device.count
    weights, overhead = model.weights_bytes(), overhead_bytes * device.count
    if weights + overhead >= usable:
        raise ConfigError(
            f"no room for a KV cache: {model.name} needs {format_size(weights)} of weights and {format_size(overhead)} "
            f"of overhead, {device} offers {format_size(usable)} to the engine"
        )
    return usable - weights - overhead
