"""Models and devices: by name, by a file of the user's, or by a Hugging Face ``config.json``."""

from __future__ import annotations

from kvsim.models.custom import custom_model
from kvsim.models.device import Device
from kvsim.models.model import Experts, Family, LatentAttention, Matrix, Model, Quantization
from kvsim.models.named import DEVICES, MODELS, get_device, get_model
from kvsim.models.pool import (
    OVERHEAD_BYTES,
    UTILIZATION,
    default_kv_pool,
    default_utilization,
    paper_kv_pool,
    usable_bytes,
)

__all__ = [
    "DEVICES",
    "MODELS",
    "OVERHEAD_BYTES",
    "UTILIZATION",
    "Device",
    "Experts",
    "Family",
    "LatentAttention",
    "Matrix",
    "Model",
    "Quantization",
    "custom_model",
    "default_kv_pool",
    "default_utilization",
    "get_device",
    "get_model",
    "paper_kv_pool",
    "usable_bytes",
]
