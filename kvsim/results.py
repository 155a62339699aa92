"""What a run says: a row a request, the timeline, and the summary over the steady window.

Shares and rates are time integrals over the *steady window*: from 10 % of the span of arrivals to the last arrival;
with a backlog, from the completion of the first 10 % of the requests to the first instant at which the queue is empty.
Measures of requests (latencies) cover those that arrive in the window (with a backlog, all). A measure over nothing is
``None``. Percentiles interpolate linearly.
"""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kvsim.accounts import Accounts, Ledger, Totals, ledger
from kvsim.requests import NS_PER_S, IntArray

if TYPE_CHECKING:
    import pandas as pd

FloatArray = npt.NDArray[np.float64]

PENDING, DONE, TOO_LONG, TOO_LARGE, MALFORMED = range(5)
STATUS = ("unfinished", "finished", "rejected", "rejected", "rejected")
REJECTED = {
    TOO_LONG: "longer than max_model_len",
    TOO_LARGE: "larger than the pool can serve",
    MALFORMED: "malformed",
}
BOUND = ("memory", "sequence cap", "token budget", "arrivals")

TIMES = ("arrival", "admission", "first_token", "finish")
COUNTS = ("prompt", "output", "preemptions", "recomputed_tokens")


@dataclass(frozen=True)
class Requests:
    """Columns of the requests of a run, each of shape (n,).

    Attributes
    ----------
    arrival, admission, first_token, finish : int64 arrays
        Nanoseconds; -1 where it did not happen. The first token is the end of the first prefill.
    prompt, output : int64 arrays
        Tokens.
    preemptions, recomputed_tokens : int64 arrays
        Times evicted, and tokens computed again for it.
    status : int64 array
        Index into ``STATUS``.
    """

    arrival: IntArray
    prompt: IntArray
    output: IntArray
    admission: IntArray
    first_token: IntArray
    finish: IntArray
    preemptions: IntArray
    recomputed_tokens: IntArray
    status: IntArray

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Which requests finished, shape (n,)."""
        return np.asarray(self.status == DONE)

    @property
    def normalized_latency(self) -> FloatArray:
        """(finish - arrival) / output tokens in seconds, shape (n,); NaN where unfinished."""
        return self._seconds(self.finish - self.arrival) / self.output

    @property
    def ttft(self) -> FloatArray:
        """Time to first token in seconds, shape (n,); NaN where unfinished."""
        return self._seconds(self.first_token - self.arrival)

    @property
    def tpot(self) -> FloatArray:
        """Time per output token after the first, in seconds, shape (n,); NaN where unfinished or a single token."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.output > 1, self._seconds(self.finish - self.first_token) / (self.output - 1), np.nan)

    def _seconds(self, ns: IntArray) -> FloatArray:
        return np.where(self.done, ns / NS_PER_S, np.nan)


@dataclass(frozen=True)
class Window:
    """The steady window, and what was added to the accounts in it.

    Attributes
    ----------
    start_ns, end_ns : int
        Its ends.
    added : Totals
        Integrals and counts of the window.
    quarters : list of float
        Mean queue in each quarter of the window; empty for a backlog.
    """

    start_ns: int
    end_ns: int
    added: Totals
    quarters: list[float] = field(default_factory=list)

    @property
    def duration_ns(self) -> int:
        """Its length."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes
    ----------
    allocator, placement, scheduler, engine, latency : str
        What ran, in words.
    capacity, lost : int
        Slots of the pool, and of those the ones that fill no whole block.
    requests : Requests
        A row a request.
    accounts : Accounts
        Integrals, counters, timeline; exact integers.
    backlog : bool
        All requests waited at time 0.
    largest_request : int
        Most slots that a request could be given in an empty pool.
    max_model_len : int
        Longest request.
    digest : tuple of int
        Hash of every block table or extent that was ever held; zeros unless asked for.
    """

    allocator: str
    placement: str
    scheduler: str
    engine: str
    latency: str
    capacity: int
    lost: int
    requests: Requests
    accounts: Accounts
    backlog: bool
    largest_request: int
    max_model_len: int
    digest: tuple[int, ...] = (0, 0)

    @cached_property
    def window(self) -> Window | None:
        """The steady window, or None if the run has none."""
        accounts = self.accounts
        marks, marked = list(accounts.marks_ns), list(accounts.marked)
        if not marks:
            return None
        if marks[-1] < accounts.end_ns and len(marks) == 1:
            marks.append(accounts.end_ns)
            marked.append(accounts.total)
        if marks[-1] <= marks[0]:
            return None
        spans = zip(zip(marks, marked, strict=True), zip(marks[1:], marked[1:], strict=True), strict=False)
        quarters = [(b.waiting - a.waiting) / (t - s) for (s, a), (t, b) in spans if t > s]
        return Window(marks[0], marks[-1], marked[-1].minus(marked[0]), [] if self.backlog else quarters)

    @property
    def shares(self) -> dict[str, float] | None:
        """The five parts of the ledger as shares of the capacity over the steady window; they sum to 1."""
        if self.window is None:
            return None
        split = self.split(self.window.added, self.window.duration_ns)
        whole = self.capacity * self.window.duration_ns
        return {name: part / whole for name, part in split._asdict().items()}

    def split(self, totals: Totals, duration_ns: int) -> Ledger:
        """Split slots x ns of a stretch into the five parts."""
        return ledger(totals, capacity=self.capacity, lost=self.lost, duration=duration_ns)

    @cached_property
    def measured(self) -> npt.NDArray[np.bool_]:
        """Which requests the latencies cover, shape (n,): those that arrived in the window, all run to completion.

        None at all if the run was broken off before they had finished: the quick ones alone would flatter it.
        """
        requests, window = self.requests, self.window
        inside = np.ones(len(requests), dtype=bool)
        if window is not None and not self.backlog:
            inside = (requests.arrival >= window.start_ns) & (requests.arrival <= window.end_ns)
        if (inside & (requests.status == PENDING)).any():
            return np.zeros(len(requests), dtype=bool)
        return np.asarray(inside & requests.done)

    @property
    def bound_by(self) -> str | None:
        """What kept the head of the queue out for most of the window; ``arrivals`` if there was no queue."""
        if self.window is None:
            return None
        added = self.window.added
        times = [added.by_memory, added.by_seqs, added.by_budget]
        times.append(self.window.duration_ns - sum(times))
        return BOUND[times.index(max(times))]

    @property
    def stationary(self) -> bool | None:
        """False for a run that is overloaded; None for a backlog, which is so by intent.

        Overloaded: the mean queue grows from each quarter of the window to the next, and from the first to the last by
        more than the square root of the requests that arrive in it, the fluctuation of a Poisson count.
        """
        window = self.window
        if window is None or self.backlog or len(window.quarters) < 4:
            return None
        arrived = np.count_nonzero((self.requests.arrival > window.start_ns) & (self.requests.arrival <= window.end_ns))
        rising = all(a < b for a, b in zip(window.quarters, window.quarters[1:], strict=False))
        return not (rising and window.quarters[-1] - window.quarters[0] > math.sqrt(arrived))

    def rejections(self) -> dict[str, int]:
        """Requests rejected on arrival, by reason."""
        counts = {text: int(np.count_nonzero(self.requests.status == code)) for code, text in REJECTED.items()}
        return {text: count for text, count in counts.items() if count}

    def summary(self) -> dict[str, Any]:
        """Return the measures of the run as plain numbers; ``None`` where there is nothing to measure."""
        requests, window, added = self.requests, self.window, self.accounts.total
        shares = self.shares or dict.fromkeys(Ledger._fields)
        seconds = window.duration_ns / NS_PER_S if window else None
        inside = window.added if window else None
        measured = self.measured
        return {
            "allocator": self.allocator,
            "placement": self.placement,
            "scheduler": self.scheduler,
            "engine": self.engine,
            "capacity": self.capacity,
            **shares,
            "mean_batch": inside.running / window.duration_ns if inside and window else None,
            "mean_batch_by_iteration": inside.sequences / inside.iterations if inside and inside.iterations else None,
            "mean_waiting": inside.waiting / window.duration_ns if inside and window else None,
            "requests_per_s": inside.finished / seconds if inside and seconds else None,
            "output_tokens_per_s": inside.generated / seconds if inside and seconds else None,
            "normalized_latency_s": _mean(requests.normalized_latency[measured]),
            "ttft_s": _spread(requests.ttft[measured]),
            "tpot_s": _spread(requests.tpot[measured]),
            "preemptions": added.preemptions,
            "recomputed_tokens": added.recomputed,
            "finished": int(np.count_nonzero(requests.done)),
            "rejected": self.rejections(),
            "unfinished": int(np.count_nonzero(requests.status == PENDING)),
            "bound_by": self.bound_by,
            "stationary": self.stationary,
            "window_s": [window.start_ns / NS_PER_S, window.end_ns / NS_PER_S] if window else None,
            "latency_model": self.latency,
        }

    def to_json(self) -> str:
        """Return the summary as JSON."""
        return json.dumps(self.summary(), indent=2, allow_nan=False)

    def columns(self) -> dict[str, list[Any]]:
        """Return a row a request as columns: seconds (None where it did not happen), counts, status and reason."""
        requests = self.requests
        table: dict[str, list[Any]] = {}
        for name in TIMES:
            table[f"{name}_s"] = [None if t < 0 else t / NS_PER_S for t in getattr(requests, name).tolist()]
        for name in COUNTS:
            table[name] = getattr(requests, name).tolist()
        table["status"] = [STATUS[code] for code in requests.status.tolist()]
        table["reason"] = [self._reason(index) for index in range(len(requests))]
        return table

    def _reason(self, index: int) -> str | None:
        """Say why a request was rejected, with the numbers."""
        requests = self.requests
        code, prompt, output = (int(c[index]) for c in (requests.status, requests.prompt, requests.output))
        if code == TOO_LONG:
            return f"{prompt} + {output} tokens > max_model_len {self.max_model_len}"
        if code == TOO_LARGE:
            return f"{prompt} + {output} tokens: an empty pool gives one request at most {self.largest_request} slots"
        return f"{prompt} prompt and {output} output tokens" if code == MALFORMED else None

    def to_csv(self) -> str:
        """Return a row a request as CSV."""
        table = self.columns()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
        return text.getvalue()

    def to_pandas(self) -> pd.DataFrame:
        """Return a row a request as a DataFrame (needs pandas)."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def timeline(self) -> dict[str, FloatArray]:
        """Return means over bins of time: ``time_s`` (middles), the five shares, ``running`` and ``waiting``."""
        accounts = self.accounts
        ends = [i * accounts.width_ns for i in range(len(accounts.timeline))]
        totals = list(accounts.timeline)
        if ends[-1] < accounts.end_ns:
            ends.append(accounts.end_ns)
            totals.append(accounts.total)
        table: dict[str, list[float]] = {name: [] for name in ("time_s", *Ledger._fields, "running", "waiting")}
        for start, end, before, after in zip(ends, ends[1:], totals, totals[1:], strict=False):
            ns, added = end - start, after.minus(before)
            table["time_s"].append((start + end) / 2 / NS_PER_S)
            for name, part in self.split(added, ns)._asdict().items():
                table[name].append(part / (self.capacity * ns))
            table["running"].append(added.running / ns)
            table["waiting"].append(added.waiting / ns)
        return {name: np.array(values) for name, values in table.items()}


def _mean(values: FloatArray) -> float | None:
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else None


def _spread(values: FloatArray) -> dict[str, float | None]:
    """Mean and percentiles, linearly interpolated."""
    values = values[~np.isnan(values)]
    if not len(values):
        return {"mean": None, "p50": None, "p99": None}
    p50, p99 = np.percentile(values, [50, 99]).tolist()
    return {"mean": float(values.mean()), "p50": p50, "p99": p99}
