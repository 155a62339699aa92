"""From a scenario's file and options to a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvsim.scenario import Scenario

# an option takes the place of its rival in the file, too
RIVALS = (
    ("rate", "backlog"),
    ("backlog", "rate"),
    ("backlog", "duration"),
    ("pool", "num_blocks"),
    ("num_blocks", "pool"),
)


def chosen_scenario(path: Path | None, options: dict[str, Any], **defaults: Any) -> Scenario:
    """Return the scenario of a file and of options, of which the options win.

    Parameters
    ----------
    path : Path, optional
        A TOML file.
    options : dict
        Settings as click gives them; what was not given is None or empty.
    **defaults
        Settings that neither names.

    Raises
    ------
    ConfigError
        A setting is not known or cannot be meant.
    """
    from kvsim.scenario import make_scenario, read_settings

    settings = {} if path is None else read_settings(path)
    given = {key: value for key, value in options.items() if value not in (None, ())}
    for one, other in RIVALS:
        if one in given and other not in given:
            settings.pop(other, None)
    settings |= given
    for key, value in defaults.items():
        settings.setdefault(key, value)
    if "allocator" in settings:
        settings["allocator"] = list(settings["allocator"])
    elif settings.get("scheduler") == "static":
        settings["allocator"] = ["max"]
    return make_scenario(settings, str(path or ""))


def check_names(scenario: Scenario) -> None:
    """Say what is wrong with the names and sizes of a scenario, before anything heavy is imported.

    Raises
    ------
    ConfigError
        A name is not known, or the pool is smaller than a block.
    """
    from kvsim.scenario import Resolved

    Resolved(scenario)
