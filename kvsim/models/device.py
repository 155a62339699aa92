"""A device, or several alike: memory, bandwidth, speed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite

from kvsim.errors import ConfigError
from kvsim.models.model import check_whole


@dataclass(frozen=True)
class Device:
    """Devices of one kind. Every size is that of **one** device; ``total_memory_bytes`` is that of all.

    Attributes
    ----------
    name : str
        For people, without the count.
    memory_bytes : int
        Memory that the driver reports.
    bandwidth_bytes_per_s, flops_per_s : float
        Memory bandwidth, and 16-bit dense floating-point operations a second.
    count : int
        How many.
    label_bytes : int
        Memory as the name says it, in powers of ten.
    system_bytes : int
        Memory that the system keeps for itself (laptops).
    source : str
        Where the numbers come from.

    Raises
    ------
    ConfigError
        A number is not positive, or the system keeps everything.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    flops_per_s: float
    count: int = 1
    label_bytes: int = 0
    system_bytes: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        check_whole("count", self.count)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("name", "source", "count"):
                continue
            least = 0 if field.name in ("label_bytes", "system_bytes") else 1
            if not isinstance(value, int | float) or not isfinite(value) or value < least or value > 1e18:
                raise ConfigError(f"{self.name}: {field.name} must be from {least} to 1e18, not {value!r}")
        if self.system_bytes >= self.memory_bytes:
            raise ConfigError(f"{self.name}: the system keeps all of its memory")

    def __str__(self) -> str:
        return self.name if self.count == 1 else f"{self.count}x{self.name}"

    @property
    def total_memory_bytes(self) -> int:
        """Memory of all ``count`` devices."""
        return self.count * self.memory_bytes
