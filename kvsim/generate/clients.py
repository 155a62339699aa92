"""Requests drawn from a description of clients, each with its own rate, burstiness and lengths over the day.

A client is one renewal process that runs through its windows: its clock goes at the window's rate, and its gaps have
the window's shape. A process that has run for a while is drawn, so that bursty clients do not all begin with a burst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kvsim.errors import ConfigError
from kvsim.generate.special import FloatArray
from kvsim.generate.workload import ARRIVAL, OUTPUT, PROMPT, Workload, generator
from kvsim.requests import NS_PER_S, IntArray, RequestStream
from kvsim.traces.servegen import LengthWindow, Window

LAST_WINDOW_S = 600.0  # length of a client's last window, which no later one ends
WARM_UP = 1000.0  # mean gaps that a process has run for before its requests count


@dataclass(frozen=True)
class Clients:
    """A population of clients.

    Attributes
    ----------
    rates : dict of str to list of Window
        As ``kvsim.traces.servegen.read_client_rates`` returns it.
    lengths : dict of str to list of LengthWindow, or Workload
        Lengths of each client, or one workload whose lengths all of them have.
    """

    rates: dict[str, list[Window]]
    lengths: dict[str, list[LengthWindow]] | Workload

    def sample(
        self, duration_s: float, *, start_s: float = 0.0, seed: int = 0, rate_per_s: float | None = None
    ) -> RequestStream:
        """Draw the requests of all clients.

        Parameters
        ----------
        duration_s : float
            Seconds to draw.
        start_s : float
            Where in the windows to start; time 0 of the stream.
        seed : int
            Of all draws.
        rate_per_s : float, optional
            Mean requests a second of all clients together; what the windows say where absent.

        Raises
        ------
        ConfigError
            The clients are silent in that time, or some have no lengths.
        """
        if not 0 < duration_s < math.inf:
            raise ConfigError(f"the duration must be a positive number of s, not {duration_s}")
        spans = {name: _spans(windows, start_s, start_s + duration_s) for name, windows in self.rates.items()}
        expected = sum(window.rate * (end - begin) for own in spans.values() for begin, end, window in own)
        if expected <= 0:
            raise ConfigError(f"no client asks anything from {start_s:g} s to {start_s + duration_s:g} s")
        factor = 1.0 if rate_per_s is None else rate_per_s * duration_s / expected
        arrivals = [
            _arrivals(own, factor, generator(seed, ARRIVAL, index)) - start_s
            for index, own in enumerate(spans.values())
        ]
        client = np.repeat(np.arange(len(arrivals)), [len(times) for times in arrivals])
        times = np.rint(np.concatenate(arrivals) * NS_PER_S).astype(np.int64)
        order = np.argsort(times, kind="stable")
        prompt, output = self._lengths(times[order] / NS_PER_S + start_s, client[order], seed)
        return RequestStream(times[order], prompt, output, source=f"{len(spans)} clients")

    def _lengths(self, times_s: FloatArray, client: IntArray, seed: int) -> tuple[IntArray, IntArray]:
        first, second = generator(seed, PROMPT), generator(seed, OUTPUT)
        if isinstance(self.lengths, Workload):
            return self.lengths.joint_lengths().draw(len(times_s), first, second)
        u, v = first.random(len(times_s)), second.random(len(times_s))
        prompt, output = np.ones(len(times_s), dtype=np.int64), np.ones(len(times_s), dtype=np.int64)
        for index, name in enumerate(self.rates):
            mine = np.flatnonzero(client == index)
            if len(mine):
                windows = self.lengths.get(name)
                if not windows:
                    raise ConfigError(f"client {name!r} has no lengths: take those of a workload")
                starts = [window.start_s for window in windows]
                which = np.maximum(np.searchsorted(starts, times_s[mine], side="right") - 1, 0)
                for k in np.unique(which):
                    rows = mine[which == k]
                    prompt[rows], output[rows] = _pick(windows[k].prompt, u[rows]), _pick(windows[k].output, v[rows])
        return prompt, output


def _pick(distribution: tuple[IntArray, FloatArray], u: FloatArray) -> IntArray:
    values, running = distribution
    return np.asarray(values[np.minimum(np.searchsorted(running, u, side="right"), len(values) - 1)])


def _spans(windows: list[Window], start_s: float, end_s: float) -> list[tuple[float, float, Window]]:
    """Return the parts of the windows between two times in which the client asks anything."""
    ends = [window.start_s for window in windows[1:]] + [windows[-1].start_s + LAST_WINDOW_S]
    parts = [(max(w.start_s, start_s), min(end, end_s), w) for w, end in zip(windows, ends, strict=True)]
    return [(begin, end, window) for begin, end, window in parts if begin < end and window.rate > 0]


def _arrivals(spans: list[tuple[float, float, Window]], factor: float, rng: np.random.Generator) -> FloatArray:
    """Return the arrival times of one client."""
    found: list[FloatArray] = [np.empty(0)]
    ahead = _overshoot(spans[0][2], WARM_UP, rng) if spans else 0.0
    for begin, end, window in spans:
        rate = window.rate * factor
        clock = _renewals(window, ahead, (end - begin) * rate, rng)
        found.append(begin + clock[:-1] / rate)
        ahead = float(clock[-1]) - (end - begin) * rate
    return np.concatenate(found)


def _overshoot(window: Window, length: float, rng: np.random.Generator) -> float:
    return float(_renewals(window, 0.0, length, rng)[-1]) - length


def _renewals(window: Window, first: float, length: float, rng: np.random.Generator) -> FloatArray:
    """Return times of renewals with mean gap 1 from ``first`` on, up to the first at or after ``length``."""
    times = np.array([first])
    while times[-1] < length:
        times = np.concatenate([times, times[-1] + np.cumsum(_gaps(window, int(length - times[-1]) + 16, rng))])
    return times[: int(np.searchsorted(times, length, side="left")) + 1]


def _gaps(window: Window, num: int, rng: np.random.Generator) -> FloatArray:
    if window.pattern == "gamma":
        return rng.standard_gamma(window.shape, num) / window.shape
    log_mean = math.lgamma(1.0 + 1.0 / window.shape)
    return np.asarray(rng.standard_exponential(num) ** (1.0 / window.shape) * math.exp(-log_mean))
