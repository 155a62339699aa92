"""Many simulations, one answer."""

from kvsim.experiments.compare import IDEAS, Comparison, System, compare, run_systems, waterfall

__all__ = ["IDEAS", "Comparison", "System", "compare", "run_systems", "waterfall"]
