"""Fit what small blocks cost in the attention kernel to the left branch of the vLLM paper's Figure 18b.

    python benchmarks/calibration/fit_kernel.py > kvsim/latency/kernel_figure_18.csv

The factor is on the time of a context token, 1 for block 16 and above: what large blocks cost is memory, and simulated.
For each seed the rate is the one at which block 16 gives the published latency of ShareGPT; at that rate the factor of
a smaller size is the one with which it gives its published latency. Printed: geometric means over seeds. Alpaca is not
looked at: it is what the factors are judged on (kvsim reproduce fig18b).
"""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor

from kvsim.experiments.capacity import find_knee, knee_of, run_at
from kvsim.latency import latency_for
from kvsim.models import get_device, get_model
from kvsim.objective import Objective
from kvsim.paper.fig18b import USUAL, WORKLOADS, published_curve
from kvsim.scenario import Scenario

SEEDS = 5


def factors_of(seed: int) -> dict[int, float]:
    """Factors by block size for one seed."""
    latency = latency_for(get_model("OPT-13B"), get_device("A100-40GB"))
    target = dict(published_curve("sharegpt"))
    served = Scenario(workload="sharegpt")
    goal = Objective({"normalized-latency": target[USUAL]})
    rate = knee_of(served, "paged", seed, latency, goal, start=WORKLOADS["sharegpt"], factor=1.2).rate
    found = {}
    for size in (size for size in target if size < USUAL):
        scenario = served.model_copy(update={"block_size": size})
        goal = Objective({"normalized-latency": target[size]})

        def load(factor: float, scenario: Scenario = scenario, goal: Objective = goal) -> float:
            return goal.load(run_at(scenario, "paged", rate, seed, latency.with_attention(factor)))

        found[size] = find_knee(load, 1.5, factor=1.3).rate
    return found


def main() -> None:
    with ProcessPoolExecutor(2) as pool:
        several = list(pool.map(factors_of, range(SEEDS)))
    print("block_size,factor")
    for size in several[0]:
        print(f"{size},{math.exp(sum(math.log(each[size]) for each in several) / SEEDS):.3f}")
    for size in (size for size, _ in published_curve("sharegpt") if size >= USUAL):
        print(f"{size},1")


if __name__ == "__main__":
    main()
