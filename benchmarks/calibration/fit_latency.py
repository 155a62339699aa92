"""Fit the four constants of the affine latency model to the contiguous baselines of the vLLM paper's Figure 12.

    python benchmarks/calibration/fit_latency.py [OPT-13B | OPT-66B | OPT-175B] [--jobs N]

Fitted: the normalized latency of max, pow2 and oracle at low load (rates of at most 0.6 of the published rate at 0.5
s/token) and their rates at 0.5 s/token. OPT-13B: panels a and d; OPT-66B and OPT-175B: their ShareGPT panel. What
paging does is predicted, never fitted. Traces are as long as the paper's: an hour, a quarter of one for OPT-175B.
Latencies are those of requests that arrive after the first tenth of the trace, run to completion.

Minimised are the squares of ln(simulated / published), non-negative constants, with a quarter of the weight on points
at low load: rates are what the model is used for, and latencies at low load say little more than the fixed time, many
times over. (With equal weights max in panel a keeps a deviation of 18 %, and all rates but that one are within 14 %.
No model in which more work takes longer can give oracle more than the 1.95 times of max that its batch is larger, and
2.09 is published, so that something has to give.)

Printed: the constants, every residual, the flat direction (the combination of the constants' logarithms that the
targets determine least), and the judged figures at the optimum and at both ends of the flat direction, where the norm
has grown by 5 %, or the direction has been followed for a factor of e^2.
"""

from __future__ import annotations

import argparse
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from kvsim.experiments.capacity import knee_of, run_at
from kvsim.latency import Affine, derived
from kvsim.models import get_device, get_model
from kvsim.objective import Objective
from kvsim.paper.published import ORCA, PANELS, low_load, published, published_rate
from kvsim.scenario import Scenario

NAMES = ("fixed_ns", "sequence_ns", "prefill_ns", "context_ns")
FITTED_PANELS = {"OPT-13B": ("fig12a", "fig12d"), "OPT-66B": ("fig12b",), "OPT-175B": ("fig12c",)}
LOW_LOAD_WEIGHT = 0.25
GOAL = Objective({"normalized-latency": 0.5})


class Target(NamedTuple):
    """A published number: the normalized latency of a system at a rate, or without one its rate at 0.5 s/token."""

    panel: str
    system: str
    rate: float | None
    published: float

    def __str__(self) -> str:
        what = "rate at 0.5 s/token" if self.rate is None else f"s/token at {self.rate:g}/s"
        return f"{self.panel} {self.system} {what}"


def seeds_of(target: Target) -> int:
    """Replicates: an hour of ShareGPT is a few thousand requests, one of Alpaca tens of thousands."""
    return 3 if PANELS[target.panel].workload == "alpaca" else 8


def scenario_of(panel: str) -> Scenario:
    where = PANELS[panel]
    return Scenario(model=where.model, gpu=where.gpu, workload=where.workload, duration=where.duration_s)


def rate_target(panel: str, system: str) -> Target:
    return Target(panel, system, None, published_rate(panel, system))


def targets_of(panels: tuple[str, ...]) -> list[Target]:
    """What the constants are fitted to."""
    found = []
    for panel in panels:
        for system in ORCA:
            found += [Target(panel, system, rate, latency) for rate, latency in low_load(panel, system)]
            found.append(rate_target(panel, system))
    return found


def simulate(target: Target, seed: int, latency: Affine) -> float:
    """One replicate of a target."""
    scenario = scenario_of(target.panel)
    if target.rate is not None:
        result = run_at(scenario, target.system, target.rate, seed, latency)
        return float(result.summary()["normalized_latency_s"])
    start = target.published
    return knee_of(scenario, target.system, seed, latency, GOAL, start=start, factor=1.1, tolerance=0.01).rate


class Fit:
    """A fit of non-negative constants to targets."""

    def __init__(self, model: str, pool: Executor) -> None:
        self.model, self.pool = model, pool
        panels = FITTED_PANELS[model]
        self.targets = targets_of(panels)
        self.judged = [rate_target(panel, "paged") for panel in panels]
        self.start = derived(get_model(model), get_device(PANELS[panels[0]].gpu)).constants
        self.constants = self.start

    def simulated(self, targets: list[Target], constants: np.ndarray) -> np.ndarray:
        """Means over seeds of what targets come to, shape (targets,)."""
        latency = affine(constants)
        units = [(target, seed, latency) for target in targets for seed in range(seeds_of(target))]
        values = self.pool.map(simulate, *zip(*units, strict=True))
        return np.array([np.mean([next(values) for _ in range(seeds_of(target))]) for target in targets])

    def residuals(self, constants: np.ndarray) -> np.ndarray:
        """Logarithms of simulated over published, shape (targets,)."""
        return np.log(self.simulated(self.targets, constants) / [target.published for target in self.targets])

    def weighted(self, constants: np.ndarray) -> np.ndarray:
        """Residuals, those at low load at a quarter of their size."""
        weights = [LOW_LOAD_WEIGHT if target.rate is not None else 1.0 for target in self.targets]
        return self.residuals(constants) * weights

    def norm(self, constants: np.ndarray) -> float:
        """Root of the sum of the squared weighted residuals."""
        return float(np.linalg.norm(self.weighted(constants)))

    def run(self) -> None:
        """Minimise the norm and keep the constants."""

        def residuals(scaled: np.ndarray) -> np.ndarray:
            return self.weighted(scaled * self.start)

        guess = np.array([1.5, 2.5, 0.2, 2.1])
        options = {"diff_step": 0.1, "xtol": 1e-4, "ftol": 1e-4, "max_nfev": 20}
        self.constants = least_squares(residuals, guess, bounds=(0, np.inf), **options).x * self.start

    def sensitivities(self, step: float = 0.05) -> np.ndarray:
        """Derivatives of the residuals by the constants' logarithms, shape (targets, 4)."""
        moved = np.exp(step * np.eye(4))
        pairs = [(self.residuals(self.constants * m), self.residuals(self.constants / m)) for m in moved]
        return np.array([(up - down) / (2 * step) for up, down in pairs]).T

    def ends(self, flat: np.ndarray) -> list[np.ndarray]:
        """Constants on either side along a direction, as far as the module says."""
        allowed = 1.05 * self.norm(self.constants)
        return [self.constants * np.exp(self._far(flat * sign, allowed) * flat * sign) for sign in (-1, 1)]

    def _far(self, direction: np.ndarray, allowed: float, most: float = 2.0) -> float:
        """How far along a direction the norm stays below what is allowed."""
        step = 0.125
        while step <= most:
            if self.norm(self.constants * np.exp(step * direction)) > allowed:
                break
            step *= 2
        else:
            return most
        inside = 0.0 if step == 0.125 else step / 2
        for _ in range(3):
            middle = (inside + step) / 2
            within = self.norm(self.constants * np.exp(middle * direction)) <= allowed
            inside, step = (middle, step) if within else (inside, middle)
        return inside


def affine(constants: np.ndarray, origin: str = "fitted") -> Affine:
    return Affine(*(float(value) for value in constants), origin=origin, source="benchmarks/calibration/fit_latency.py")


def show(fit: Fit) -> None:
    """Print what the fit says."""
    latency = affine(fit.constants)
    print(f"{fit.model}: {latency.describe()}")
    for name, value, start in zip(NAMES, fit.constants, fit.start, strict=True):
        print(f"  {name:12} {value:14.1f}   (derived: {start:.1f})")
    print("\nresiduals: published, simulated, simulated / published - 1")
    compare(fit, fit.targets, fit.constants)
    print("\npaged, predicted:")
    compare(fit, fit.judged, fit.constants)
    _, singular, directions = np.linalg.svd(fit.sensitivities(), full_matrices=False)
    flat = directions[-1]
    print(f"\nsingular values of d residual / d ln constant: {np.array2string(singular, precision=3)}")
    print("least determined direction: " + ", ".join(f"{n} {v:+.2f}" for n, v in zip(NAMES, flat, strict=True)))
    for end, constants in zip(("one", "other"), fit.ends(flat), strict=True):
        print(f"\npaged at its {end} end, {affine(constants).describe()}:")
        compare(fit, fit.judged, constants)


def compare(fit: Fit, targets: list[Target], constants: np.ndarray) -> None:
    for target, value in zip(targets, fit.simulated(targets, constants), strict=True):
        print(f"  {target!s:38} {target.published:8.4f} {value:8.4f} {value / target.published - 1:+7.1%}")


def show_figure_1(latency: Affine) -> None:
    """Print Figure 1's times an iteration beside, not fitted: a decoding batch at E[held] tokens a sequence."""
    held = 449.6
    print(f"\nFigure 1, not fitted: ms an iteration of a decoding batch with {held} tokens a sequence")
    for batch, tokens_per_s in published()["fig1_throughput"]:
        simulated = latency(batch, 0, round(batch * held)) / 1e6
        with_prefill = latency(batch, round(batch * 161.4 / 338.0), round(batch * held)) / 1e6
        print(f"  {batch:3} {1e3 * batch / tokens_per_s:6.1f} {simulated:7.1f}  with its prefill {with_prefill:6.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="OPT-13B", choices=FITTED_PANELS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        fit = Fit(options.model, pool)
        fit.run()
        show(fit)
    if options.model == "OPT-13B":
        show_figure_1(affine(fit.constants))


if __name__ == "__main__":
    main()
