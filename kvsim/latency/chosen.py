"""The latency model that a scenario names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.errors import ConfigError, unknown
from kvsim.latency.built import Built
from kvsim.latency.fitted import latency_for, static_latency_for
from kvsim.latency.measured import read_step_times
from kvsim.latency.roofline import roofline

if TYPE_CHECKING:
    from kvsim.scenario import Resolved

# fitted: a roofline whose overheads are fitted where there is something to fit to, and assumed elsewhere; affine: the
# same without its compute bound; roofline: from model and device alone
CHOICES = ("fitted", "affine", "roofline")


def latency_of(resolved: Resolved) -> Built:
    """Return the latency model of a scenario.

    Raises
    ------
    ConfigError, TraceError
        The name is unknown, the file cannot be read, or the static scheduler is asked for a model that it has not.
    """
    name, model, device = resolved.scenario.latency, resolved.model, resolved.device
    if Path(name).suffix.casefold() == ".csv":
        return read_step_times(name)
    if name not in CHOICES:
        raise ConfigError(f"{unknown('latency model', name, CHOICES)} (or name a CSV file of step times)")
    if resolved.scenario.scheduler == "static":
        if name != "fitted":
            raise ConfigError(
                f"latency model {name!r}: the static scheduler has its own constants; leave it out, or name a CSV file"
            )
        return static_latency_for(model, device)
    if name == "roofline":
        return roofline(model, device)
    found = latency_for(model, device)
    return found if name == "fitted" else found.unbound()
