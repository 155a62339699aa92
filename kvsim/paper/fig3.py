"""Figure 3: the worked example of reservation, slot by slot.

The paper counts a generated token as stored at once. Here the last token of a request is never written, and the token
that an iteration yields is written in the next: its picture after A's first token (8 states, 2 more to come) is that of
an iteration in which A, with 7 prompt tokens and 4 of output, computes its second token.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvsim.allocators import make_allocator
from kvsim.engine import simulate
from kvsim.latency import Affine
from kvsim.paper.report import Reproduction, Row
from kvsim.requests import RequestStream

# request: prompt, output, maximum length; then used, reserved, internal as drawn after the first token
PRINTED = {"A": ((7, 4, 2048), (8, 2, 2038)), "B": ((3, 3, 512), (4, 1, 507))}


def reproduce() -> Reproduction:
    """Serve each request alone and look at its slots in the second iteration."""
    rows = []
    for name, ((prompt, output, longest), published) in PRINTED.items():
        simulated = slots(prompt, output, longest)
        for part, value, mine in zip(("used", "reserved", "internal"), published, simulated, strict=True):
            rows.append(Row("fig3", f"request {name} {part} (slots)", value, mine, 0, "points", "exact"))
    notes = [" ".join(str(__doc__).split("\n\n", 1)[1].split())]
    return Reproduction("fig3", "Figure 3: the worked example", rows, None, notes)


def slots(prompt: int, output: int, longest: int) -> tuple[int, int, int]:
    """Return used, reserved and internal slots while the second token is computed, the maximum being reserved."""
    seen: list[tuple[int, int, int]] = []

    def look(step: Any) -> None:
        used, promised, requested, *_ = step.rates
        seen.append((used, promised - used, requested - promised))

    one = np.array([0]), np.array([prompt]), np.array([output])
    pool = make_allocator("max", capacity=longest, max_model_len=longest, max_num_seqs=256)
    stream = RequestStream(*one, source="Figure 3")
    simulate(stream, pool, latency=Affine(1e6, 0, 0, 0), max_model_len=longest, observe=look)
    return seen[1]
