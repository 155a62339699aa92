"""Fit the overheads of the latency model to the contiguous baselines of the vLLM paper's Figure 12.

    python benchmarks/calibration/fit_latency.py [OPT-13B | OPT-66B | OPT-175B] [--low-load-weight W] [--sequence-us X]

What the device does is derived, and not fitted: reading the weights, computing tokens, reading the cache; on several
devices all of it stretched by what FasterTransformer needs at low load (fit_static.py). Fitted is what an iteration
costs beside that, and, for OPT-13B, what each of its sequences does. That is the serving engine's work, the same for
all models. Two panels tell it; one ShareGPT panel does not (a tenth of it moves no fitted rate of OPT-175B by more than
5 %: --sequence-us 30), so that for the others it is the one of OPT-13B.

Fitted to: the normalized latency of max, pow2 and oracle at low load (rates of at most 0.6 of the published rate at 0.5
s/token) and their rates at 0.5 s/token. OPT-13B: panels a and d; OPT-66B and OPT-175B: their ShareGPT panel. What
paging does is predicted, never fitted. Traces are as long as the paper's: an hour, a quarter of one for OPT-175B.
Latencies are those of requests that arrive after the first tenth of the trace, run to completion.

Minimised are the squares of ln(simulated / published), overheads not negative, with a quarter of the weight on points
at low load: rates are what the model is used for, and latencies at low load say little more than the fixed time, many
times over. (No model in which more work takes longer can give oracle more than the 1.95 times of max that its batch is
larger, and 2.09 is published, so that something has to give.)

Printed: the overheads, every residual, how well they are determined, and what is predicted (paging, and all of the
panels that nothing was fitted to): at the optimum, and at both ends of the direction that the targets determine least,
where the norm has grown by 5 %, or the direction has been followed for a factor of e^2.
"""

from __future__ import annotations

import argparse
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from kvsim.experiments.capacity import knee_of, run_at
from kvsim.latency import Roofline, roofline
from kvsim.latency.fitted import latency_for, stretch_of
from kvsim.models import get_device, get_model
from kvsim.objective import Objective
from kvsim.paper.published import ORCA, PANELS, low_load, published, published_rate
from kvsim.scenario import Scenario

NAMES = ("overhead_ns", "sequence_ns")
GUESS = np.array([20e6, 200e3])
FITTED_PANELS = {"OPT-13B": ("fig12a", "fig12d"), "OPT-66B": ("fig12b",), "OPT-175B": ("fig12c",)}
LOW_LOAD_WEIGHT = 0.25
PREDICTED_PANELS = {"OPT-13B": (), "OPT-66B": ("fig12e",), "OPT-175B": ("fig12f",)}
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


def simulate(target: Target, seed: int, latency: Roofline) -> float:
    """One replicate of a target."""
    scenario = scenario_of(target.panel)
    if target.rate is not None:
        result = run_at(scenario, target.system, target.rate, seed, latency)
        return float(result.summary()["normalized_latency_s"])
    start = target.published
    return knee_of(scenario, target.system, seed, latency, GOAL, start=start, factor=1.1, tolerance=0.01).rate


class Fit:
    """A fit of overheads to targets: of both for OPT-13B, else of the iteration's, its sequences' being those found."""

    def __init__(self, model: str, pool: Executor, low_load_weight: float, sequence_us: float | None) -> None:
        self.model, self.pool, self.low_load_weight = model, pool, low_load_weight
        panels = FITTED_PANELS[model]
        self.targets = targets_of(panels)
        self.judged = [rate_target(panel, "paged") for panel in panels]
        self.judged += [rate_target(p, system) for p in PREDICTED_PANELS[model] for system in (*ORCA, "paged")]
        self.gpu = PANELS[panels[0]].gpu
        self.constants = GUESS.copy()
        self.free = slice(2)
        if sequence_us is None and model != "OPT-13B":
            sequence_us = latency_for(get_model("OPT-13B"), get_device("A100-40GB")).sequence_ns / 1e3
        if sequence_us is not None:
            self.constants[1] = sequence_us * 1e3
            self.free = slice(1)

    def latency(self, constants: np.ndarray) -> Roofline:
        """The latency model with overheads."""
        model, device = get_model(self.model), get_device(self.gpu)
        overhead_ns, sequence_ns = (float(value) for value in constants)
        stretch = stretch_of(model, device)
        return roofline(model, device, stretch=stretch, overhead_ns=overhead_ns, sequence_ns=sequence_ns)

    def simulated(self, targets: list[Target], constants: np.ndarray) -> np.ndarray:
        """Means over seeds of what targets come to, shape (targets,)."""
        latency = self.latency(constants)
        units = [(target, seed, latency) for target in targets for seed in range(seeds_of(target))]
        values = self.pool.map(simulate, *zip(*units, strict=True))
        return np.array([np.mean([next(values) for _ in range(seeds_of(target))]) for target in targets])

    def residuals(self, constants: np.ndarray) -> np.ndarray:
        """Logarithms of simulated over published, shape (targets,)."""
        return np.log(self.simulated(self.targets, constants) / [target.published for target in self.targets])

    def weighted(self, constants: np.ndarray) -> np.ndarray:
        """Residuals, those at low load at their weight."""
        weights = [self.low_load_weight if target.rate is not None else 1.0 for target in self.targets]
        return self.residuals(constants) * weights

    def norm(self, constants: np.ndarray) -> float:
        """Root of the sum of the squared weighted residuals."""
        return float(np.linalg.norm(self.weighted(constants)))

    def run(self) -> None:
        """Minimise the norm and keep the constants."""
        start = self.constants.copy()

        def scaled(factors: np.ndarray) -> np.ndarray:
            return np.concatenate([start[self.free] * factors, start[len(factors) :]])

        def residuals(factors: np.ndarray) -> np.ndarray:
            return self.weighted(scaled(factors))

        options = {"diff_step": 0.1, "xtol": 1e-4, "ftol": 1e-4, "max_nfev": 20}
        guess = np.ones(len(start[self.free]))
        self.constants = scaled(least_squares(residuals, guess, bounds=(0, np.inf), **options).x)

    def sensitivities(self, step: float = 0.05) -> np.ndarray:
        """Derivatives of the residuals by the overheads' logarithms, shape (targets, 2)."""
        moved = np.exp(step * np.eye(2))
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


def show(fit: Fit) -> None:
    """Print what the fit says."""
    print(f"{fit.model}: {fit.latency(fit.constants).describe()}")
    for name, value in zip(NAMES, fit.constants, strict=True):
        print(f"  {name:12} {value:14.1f}")
    print("\nresiduals: published, simulated, simulated / published - 1")
    compare(fit, fit.targets, fit.constants)
    print("\npredicted:")
    compare(fit, fit.judged, fit.constants)
    _, singular, directions = np.linalg.svd(fit.sensitivities()[:, fit.free], full_matrices=False)
    flat = np.concatenate([directions[-1], np.zeros(2 - len(singular))])
    print(f"\nsingular values of d residual / d ln constant: {np.array2string(singular, precision=3)}")
    print("least determined direction: " + ", ".join(f"{n} {v:+.2f}" for n, v in zip(NAMES, flat, strict=True)))
    for end, constants in zip(("one", "other"), fit.ends(flat), strict=True):
        print(f"\npredicted at its {end} end, {fit.latency(constants).describe()}:")
        compare(fit, fit.judged, constants)


def compare(fit: Fit, targets: list[Target], constants: np.ndarray) -> None:
    for target, value in zip(targets, fit.simulated(targets, constants), strict=True):
        print(f"  {target!s:38} {target.published:8.4f} {value:8.4f} {value / target.published - 1:+7.1%}")


def show_figure_1(latency: Roofline) -> None:
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
    parser.add_argument("--low-load-weight", type=float, default=LOW_LOAD_WEIGHT, help="a quarter is what is used")
    parser.add_argument("--sequence-us", type=float, help="a sequence's overhead, to see what depends on it")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        fit = Fit(options.model, pool, options.low_load_weight, options.sequence_us)
        fit.run()
        show(fit)
    if options.model == "OPT-13B":
        show_figure_1(fit.latency(fit.constants))


if __name__ == "__main__":
    main()
