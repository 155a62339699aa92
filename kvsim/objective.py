"""What has to hold: limits on latencies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsim.errors import ConfigError, unknown

if TYPE_CHECKING:
    from kvsim.results import Result

_READERS: dict[str, Callable[[Result], float | None]] = {
    "normalized-latency": lambda result: result.summary()["normalized_latency_s"],
    "ttft-p99": lambda result: result.summary()["ttft_s"]["p99"],
    "tpot-p99": lambda result: result.summary()["tpot_s"]["p99"],
}
MEASURES = tuple(_READERS)


@dataclass(frozen=True)
class Objective:
    """Limits in seconds that all have to hold.

    Attributes
    ----------
    limits : mapping of str to float
        A name of ``MEASURES`` -> seconds.

    Raises
    ------
    ConfigError
        A measure is not known, a limit is not positive, or there is none.
    """

    limits: Mapping[str, float]

    def __post_init__(self) -> None:
        if not self.limits:
            raise ConfigError(f"an objective needs a limit on at least one of {', '.join(MEASURES)}")
        for name, limit in self.limits.items():
            if name not in MEASURES:
                raise unknown("measure", name, MEASURES)
            if not 0 < limit < math.inf:
                raise ConfigError(f"{name}: a limit is a positive number of seconds, not {limit}")

    def load(self, result: Result) -> float:
        """Return the worst measure over its limit: at most 1 where the objective holds.

        Raises
        ------
        ConfigError
            There is nothing to measure.
        """
        values = {name: _READERS[name](result) for name in self.limits}
        loads = [value / self.limits[name] for name, value in values.items() if value is not None]
        if not loads:
            reasons = ", ".join(result.rejections()) or "too few came"
            raise ConfigError(f"no request to measure with allocator {result.allocator!r}: {reasons}")
        return max(loads)

    def __str__(self) -> str:
        return " and ".join(f"{name} <= {limit:g} s" for name, limit in self.limits.items())
