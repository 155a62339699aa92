"""When a request runs: settings of the two schedulers, and policies as plain functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from kvsim.errors import ConfigError, unknown

if TYPE_CHECKING:
    from kvsim.scenario import Scenario

SCHEDULERS = ("paper", "static")


class RunningRequest(Protocol):
    """What a victim policy sees of a running request."""

    request: int
    row: int
    final: int

    @property
    def tokens(self) -> int:
        """Tokens held now."""


VictimPolicy = Callable[[Sequence[RunningRequest]], int]


def latest(running: Sequence[RunningRequest]) -> int:
    """Evict the request latest by (arrival, index), as the vLLM paper does (section 4.5).

    Parameters
    ----------
    running : sequence of RunningRequest
        By (arrival, index).

    Returns
    -------
    int
        Position in ``running``.
    """
    return len(running) - 1


def scheduler_for(scenario: Scenario) -> Scheduler:
    """Return the scheduler that a scenario describes."""
    return Scheduler(
        scenario.scheduler,
        max_num_seqs=scenario.max_num_seqs,
        max_num_batched_tokens=scenario.max_num_batched_tokens,
        watermark=scenario.watermark,
        headroom=scenario.headroom,
        static_batch=scenario.static_batch,
    )


@dataclass(frozen=True)
class Scheduler:
    """Settings of a scheduler.

    Attributes
    ----------
    name : {"paper", "static"}
        ``paper``: iteration-level, first come first served, prompts and decodes in one iteration, preemption by
        recompute (vLLM paper, sections 4.3 and 4.5). ``static``: a batch of what waits, padded to its longest, results
        returned when all are done (FasterTransformer, section 6.1).
    max_num_seqs : int
        Most sequences in an iteration.
    max_num_batched_tokens : int or None
        Most running sequences + prompt tokens in an iteration; a lone request always passes. ``None``:
        max(2560, max_model_len).
    watermark : float
        Share of the blocks kept free at admission.
    headroom : int
        Blocks kept free at admission for every sequence that runs already, on top of the watermark.
    static_batch : int or None
        Most requests in a static batch. ``None``: as many as fit at the maximum length.
    victim : callable
        Which running request goes when memory runs short.

    Raises
    ------
    ConfigError
        A name is unknown or a number out of range.
    """

    name: str = "paper"
    max_num_seqs: int = 256
    max_num_batched_tokens: int | None = None
    watermark: float = 0.01
    headroom: int = 0
    static_batch: int | None = None
    victim: VictimPolicy = latest

    def __post_init__(self) -> None:
        if self.name not in SCHEDULERS:
            raise unknown("scheduler", self.name, SCHEDULERS)
        if not (math.isfinite(self.watermark) and 0 <= self.watermark < 1):
            raise ConfigError(f"watermark is {self.watermark}; a share from 0 to below 1 is expected")
        if not 0 <= self.headroom < 2**31:
            raise ConfigError(f"headroom is {self.headroom}; 0 blocks or more are expected")
        for field in ("max_num_seqs", "max_num_batched_tokens", "static_batch"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ConfigError(f"{field} is {value}; at least 1 is expected")

    @property
    def is_static(self) -> bool:
        """Whether batches are formed and returned whole."""
        return self.name == "static"

    def batched_tokens(self, max_model_len: int) -> int:
        """Token budget of an iteration for a model's maximum length."""
        return self.max_num_batched_tokens or max(2560, max_model_len)

    def sequences(self, capacity: int, max_model_len: int) -> int:
        """Most sequences in an iteration over a pool of ``capacity`` slots.

        Raises
        ------
        ConfigError
            A static batch at the maximum length does not fit the pool.
        """
        if not self.is_static:
            return self.max_num_seqs
        fit = capacity // max_model_len
        wanted = self.static_batch or fit
        if wanted > fit or fit == 0:
            size = max(wanted, 1)
            raise ConfigError(
                f"a static batch of {size} at {max_model_len} slots each needs {size * max_model_len} slots; "
                f"the pool has {capacity}"
            )
        return wanted

    def kept_free(self, capacity: int, block_size: int) -> int:
        """Slots of the watermark: whole blocks, floor(watermark x blocks)."""
        return math.floor(Fraction(str(self.watermark)) * (capacity // block_size)) * block_size
