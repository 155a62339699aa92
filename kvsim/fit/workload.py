"""From a trace to a workload that may be shared: marginals, rank correlation, arrivals, and how well they fit."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from kvsim.errors import ConfigError
from kvsim.fit.arrivals import ArrivalFit, fit_arrivals
from kvsim.fit.marginals import MarginalFit, fit_marginal, ks_distance, sample_of
from kvsim.generate.arrivals import Poisson
from kvsim.generate.toml import workload_toml
from kvsim.generate.workload import Workload, parse_workload
from kvsim.requests import RequestStream
from kvsim.traces.describing import spearman

FEWEST = 20  # requests that something can be fitted to


@dataclass(frozen=True)
class Fit:
    """A workload and what it was fitted to.

    Attributes
    ----------
    workload : Workload
        What was found, with its numbers as a file holds them (six digits).
    prompt, output : list of MarginalFit
        All families that were tried, best first.
    arrivals : ArrivalFit or None
        The arrival process; None where the trace has no times.
    held_out : dict of str to float
        Kolmogorov-Smirnov distances of ``prompt`` and ``output`` on every other request, for families fitted to the
        rest.
    """

    workload: Workload
    prompt: list[MarginalFit]
    output: list[MarginalFit]
    arrivals: ArrivalFit | None
    held_out: dict[str, float]


def fit_workload(
    stream: RequestStream,
    name: str,
    *,
    summary: str = "",
    source: str = "",
    license: str = "",  # noqa: A002
) -> Fit:
    """Fit a workload to a stream.

    Parameters
    ----------
    stream : RequestStream
        What to describe.
    name : str
        Name of the workload.
    summary, source, license : str
        A line on the workload, where the requests come from, and who may use what is fitted.

    Raises
    ------
    ConfigError
        There are too few requests to fit anything to.
    """
    if len(stream) < FEWEST:
        raise ConfigError(f"{len(stream)} requests are too few to fit a workload to; {FEWEST} is the least")
    prompt, output = fit_marginal(stream.prompt), fit_marginal(stream.output)
    arrivals = fit_arrivals(stream)
    correlation = spearman(stream.prompt, stream.output)
    workload = Workload(
        name=name,
        summary=summary or f"Fitted to {len(stream):,} requests",
        source=source or stream.source,
        license=license or "that of the trace",
        prompt=prompt[0].marginal,
        output=output[0].marginal,
        joint="independent" if correlation is None else "copula",
        spearman=None if correlation is None else round(correlation, 4),
        arrivals=arrivals.process if arrivals else Poisson(process="poisson"),
    )
    as_written = parse_workload(tomllib.loads(workload_toml(workload)), name)
    return Fit(as_written, prompt, output, arrivals, held_out_distances(stream))


def held_out_distances(stream: RequestStream) -> dict[str, float]:
    """Fit the marginals to the even requests and return their distances from the odd ones."""
    found = {}
    for column in ("prompt", "output"):
        lengths = getattr(stream, column)
        best = fit_marginal(lengths[::2])[0]
        found[column] = ks_distance(best.marginal, sample_of(lengths[1::2]))
    return found


def fit_summary(fit: Fit) -> dict[str, Any]:
    """Return what ``kvsim trace fit --json`` prints."""
    summary: dict[str, Any] = {"name": fit.workload.name, "spearman": fit.workload.spearman}
    for column in ("prompt", "output"):
        tried: list[MarginalFit] = getattr(fit, column)
        summary[column] = {
            "family": tried[0].marginal.family,
            "parameters": tried[0].num_parameters,
            "ks": tried[0].ks,
            "held_out_ks": fit.held_out[column],
            "tried": [
                {"family": t.marginal.family, "parameters": t.num_parameters, "bic": t.bic, "ks": t.ks} for t in tried
            ],
        }
    arrivals = fit.arrivals
    summary["arrivals"] = arrivals and arrivals.process.model_dump() | {"arrival_cv": arrivals.cv, "ks": arrivals.ks}
    return summary
