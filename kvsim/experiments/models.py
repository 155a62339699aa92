"""One comparison under every latency model: what depends on it, and what does not."""

from __future__ import annotations

from kvsim.experiments.compare import Comparison, Progress, compare
from kvsim.latency import CHOICES
from kvsim.scenario import Scenario


def compare_models(scenario: Scenario, progress: Progress | None = None) -> dict[str, Comparison]:
    """Run a comparison under each built-in latency model, and under the scenario's own if that is a file.

    Parameters
    ----------
    scenario : Scenario
        What to compare.
    progress : callable, optional
        As in ``compare``.

    Returns
    -------
    dict
        Name of the latency model -> comparison. A kernel table does not go with measured step times: it is left out
        there.
    """
    names = list(dict.fromkeys([*CHOICES, scenario.latency]))
    found = {}
    for name in names:
        update = {"latency": name} | ({} if name in CHOICES else {"kernel_table": None})
        found[name] = compare(scenario.model_copy(update=update), progress)
    return found
