"""kvsim: where the KV-cache memory of LLM serving goes, and what that costs."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"

_HOME = {
    "Affine": "latency",
    "ConfigError": "errors",
    "Device": "models",
    "InvariantError": "errors",
    "KvsimError": "errors",
    "Model": "models",
    "RequestStream": "requests",
    "Result": "results",
    "Scenario": "scenario",
    "Scheduler": "scheduler",
    "StalledError": "errors",
    "TraceError": "errors",
    "Workload": "generate",
    "check_allocator": "testing",
    "compare": "experiments",
    "get_device": "models",
    "get_model": "models",
    "load_workload": "generate",
    "make_allocator": "allocators",
    "simulate": "engine",
}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for (PEP 562), so that ``import kvsim`` costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'kvsim' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kvsim.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
