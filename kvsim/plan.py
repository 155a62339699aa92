"""What a sweep will run: every combination of settings, every seed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvsim.errors import ConfigError, unknown
from kvsim.scenario import Scenario, make_scenario

NOT_VARIED = {"seed": "seeds are replicates: say how many with --seeds", "seeds": "say how many with --seeds"}
MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class Unit:
    """A row to be computed: a scenario with one allocator and one seed."""

    scenario: Scenario

    @property
    def allocator(self) -> str:
        """The only allocator."""
        return self.scenario.allocator[0]


def plan(scenario: Scenario, vary: Mapping[str, Sequence[Any]], where: str = "--vary") -> list[Unit]:
    """Return the rows of a sweep, seeds innermost.

    Parameters
    ----------
    scenario : Scenario
        What is not varied. Its allocators are varied if ``vary`` does not name others.
    vary : mapping
        Field of a scenario -> values.
    where : str
        What to begin an error with.

    Raises
    ------
    ConfigError
        A field is not known (the nearest is named) or cannot be varied, a value cannot be meant, or there are too many.
    """
    for field, values in vary.items():
        if field in NOT_VARIED:
            raise ConfigError(f"{where} {field}: {NOT_VARIED[field]}")
        if field not in Scenario.model_fields:
            raise ConfigError(f"{where}: {unknown('setting', field, Scenario.model_fields)}")
        if not values or len(set(map(str, values))) < len(values):
            raise ConfigError(f"{where} {field}: different values are expected, at least one")
    axes = dict(vary) if "allocator" in vary else {**vary, "allocator": scenario.allocator}
    count = scenario.seeds
    for values in axes.values():
        count *= len(values)
    if count > MOST_CELLS:
        raise ConfigError(f"{where}: {count:,} simulations are too many; at most {MOST_CELLS:,}")
    units: list[Unit] = []
    for combination in itertools.product(*axes.values()):
        chosen = dict(zip(axes, combination, strict=True))
        chosen["allocator"] = [chosen["allocator"]]
        settings = scenario.model_dump(exclude_unset=True) | chosen
        cell = make_scenario(settings, where)
        seeds = range(scenario.seed, scenario.seed + scenario.seeds)
        units += [Unit(cell.model_copy(update={"seed": seed, "seeds": 1})) for seed in seeds]
    return units
