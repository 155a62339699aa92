"""What a stream of requests looks like, in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvsim.requests import NS_PER_S, IntArray, PrefixIds, RequestStream

MOSTLY = 0.5  # share of requests with their predecessor's timestamp from which a clock counts as coarse


def describe(stream: RequestStream, max_model_len: int = 2048) -> dict[str, Any]:
    """Return what ``kvsim trace describe --json`` prints.

    Parameters
    ----------
    stream : RequestStream
        What to look at.
    max_model_len : int
        Tokens of prompt and output beyond which a request counts as too long.

    Returns
    -------
    dict
        ``rows``, ``skipped`` (by reason), ``span_s``, ``rate_per_s`` (requests over span), ``arrival_cv`` (coefficient
        of variation of interarrival times), ``prompt`` and ``output`` (mean, p50, p90, p99, max, in tokens; percentiles
        interpolate linearly), ``spearman`` (ties get their mean rank), ``prefix``, ``too_long`` and ``notices``. What
        cannot be said of the stream is None.
    """
    span = stream.span_ns / NS_PER_S if stream.timed else None
    return {
        "rows": len(stream),
        "skipped": dict(stream.skipped),
        "span_s": span,
        "rate_per_s": len(stream) / span if span else None,
        "arrival_cv": arrival_cv(stream.arrival_ns) if span else None,
        "prompt": _lengths(stream.prompt),
        "output": _lengths(stream.output),
        "spearman": spearman(stream.prompt, stream.output),
        "prefix": None if stream.prefix is None else prefix_reuse(stream.prefix),
        "too_long": {
            "max_model_len": max_model_len,
            "share": float(np.mean(stream.prompt + stream.output > max_model_len)) if len(stream) else None,
        },
        "notices": [*stream.notices, *_clock_notice(stream)],
    }


def _lengths(tokens: IntArray) -> dict[str, float | int | None]:
    if not len(tokens):
        return dict.fromkeys(("mean", "p50", "p90", "p99", "max"))
    p50, p90, p99 = (float(value) for value in np.percentile(tokens, [50, 90, 99]))
    return {"mean": float(tokens.mean()), "p50": p50, "p90": p90, "p99": p99, "max": int(tokens.max())}


def arrival_cv(arrival_ns: IntArray) -> float | None:
    """Return the coefficient of variation of interarrival times; 1 for a Poisson process."""
    gaps = np.diff(arrival_ns).astype(np.float64)
    return float(gaps.std() / gaps.mean()) if len(gaps) and gaps.any() else None


def spearman(x: IntArray, y: IntArray) -> float | None:
    """Return the rank correlation, with the mean rank for ties; None where one side never changes."""
    if len(x) < 2:
        return None
    ranks = np.stack([_ranks(x), _ranks(y)])
    ranks -= ranks.mean(axis=1, keepdims=True)
    norm = np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1]))
    return float(ranks[0] @ ranks[1] / norm) if norm else None


def _ranks(values: IntArray) -> np.ndarray[Any, np.dtype[np.float64]]:
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2.0)[which])


def prefix_reuse(prefix: PrefixIds) -> dict[str, int | float | None]:
    """Return how many block ids there are, how many differ, and the share that an infinite cache would hit.

    A request hits its leading blocks up to the first that no earlier request had.
    """
    ids, counts = prefix.ids, np.diff(prefix.offsets)
    request = np.repeat(np.arange(len(counts)), counts)
    distinct, first, which = np.unique(ids, return_index=True, return_inverse=True)
    missed = request[first][which] == request
    misses_before = np.concatenate([[0], np.cumsum(missed)])
    hits = misses_before[1:] == misses_before[prefix.offsets[:-1]][request]
    return {
        "ids": len(ids),
        "distinct": len(distinct),
        "ideal_reuse": float(np.count_nonzero(hits) / len(ids)) if len(ids) else None,
    }


def has_coarse_clock(arrival_ns: IntArray) -> bool:
    """Tell whether most requests share their timestamp with the one before."""
    gaps = np.diff(arrival_ns)
    return len(gaps) > 1 and bool(gaps.any()) and bool(np.mean(gaps == 0) > MOSTLY)


def spread_ticks(arrival_ns: IntArray, rng: np.random.Generator) -> IntArray:
    """Return times with the requests of each tick of a coarse clock spread at random up to the next tick."""
    ticks, which = np.unique(arrival_ns, return_inverse=True)
    length = np.diff(ticks, append=ticks[-1] + round(float(np.median(np.diff(ticks)))))
    return np.sort(arrival_ns + (rng.random(len(arrival_ns)) * length[which]).astype(np.int64))


def _clock_notice(stream: RequestStream) -> list[str]:
    if not stream.timed or not has_coarse_clock(stream.arrival_ns):
        return []
    ticks = np.unique(stream.arrival_ns)
    spread = arrival_cv(spread_ticks(stream.arrival_ns, np.random.default_rng(0)))
    return [
        f"a coarse clock: {len(ticks):,} different times, {np.median(np.diff(ticks)) / NS_PER_S:g} s apart; "
        f"the burstiness is an artefact of it, and is {spread:.2f} with arrivals spread within the ticks"
    ]
