"""What a run says: windows, shares, latencies, tables."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from runs import LATENCY, run, sharegpt, short_stream

from kvsim.allocators import make_allocator
from kvsim.engine import simulate, steady_marks
from kvsim.latency import Affine
from kvsim.requests import RequestStream
from kvsim.scheduler import Scheduler

MS = 1_000_000
STEADY = Affine(10 * MS, 0, 0, 0)  # every iteration lasts 10 ms


def stream_of(*rows: tuple[int, int, int]) -> RequestStream:
    """(arrival in ms, prompt, output)."""
    columns = np.array(rows, dtype=np.int64).T
    return RequestStream(columns[0] * MS, columns[1], columns[2])


@pytest.mark.uncompiled
@pytest.mark.parametrize("engine", ["step", "leap"])
def test_one_request_by_hand(engine: str) -> None:
    """Prompt 7, output 3, arriving at 5 ms: three iterations from 5 ms, holding 7, 8 and 9 slots."""
    result = run(
        stream_of((5, 7, 3)), "paged", latency=STEADY, block_size=8, capacity=80, max_model_len=64, engine=engine
    )
    requests, total = result.requests, result.accounts.total
    assert requests.admission.tolist() == [5 * MS]
    assert requests.first_token.tolist() == [15 * MS]
    assert requests.finish.tolist() == [35 * MS]
    assert total.used == (7 + 8 + 9) * 10 * MS
    assert total.held == (8 + 8 + 16) * 10 * MS
    assert total.promised == (8 + 8 + 9) * 10 * MS
    assert result.requests.ttft.tolist() == [0.010]
    assert result.requests.tpot.tolist() == [0.010]
    assert result.requests.normalized_latency.tolist() == [pytest.approx(0.010)]


@pytest.mark.uncompiled
@pytest.mark.parametrize("engine", ["step", "leap"])
def test_preemption_by_hand(engine: str) -> None:
    """Two blocks of 4, two requests of 4 + 3: the second is evicted in the second iteration and recomputed.

    It had its first token, so it prefills 4 + 1, which needs both blocks: it waits until the first is done.
    """
    stream = stream_of((0, 4, 3), (0, 4, 3))
    options = {"block_size": 4, "capacity": 8, "max_model_len": 8, "latency": STEADY, "check": 2, "engine": engine}
    result = run(stream, "paged", scheduler=Scheduler(watermark=0), **options)
    requests = result.requests
    assert requests.preemptions.tolist() == [0, 1]
    assert requests.recomputed_tokens.tolist() == [0, 5]
    assert requests.first_token.tolist() == [10 * MS, 10 * MS]
    assert requests.finish.tolist() == [30 * MS, 50 * MS]
    assert result.accounts.total.generated == 6


@pytest.mark.uncompiled
@pytest.mark.parametrize("engine", ["step", "leap"])
def test_static_batch_by_hand(engine: str) -> None:
    """Two of three fit; they are padded to 6 prompt tokens and return together when the longest is done."""
    latency = Affine(0, 10 * MS, 1 * MS, 1000)
    stream = stream_of((0, 6, 2), (0, 2, 4), (0, 3, 1))
    options = {"capacity": 20, "max_model_len": 10, "placement": "first-fit", "engine": engine, "check": 2}
    result = run(stream, "max", latency=latency, scheduler=Scheduler("static"), **options)
    batch = [2 * 10 * MS + 12 * MS] + [2 * 10 * MS + 2 * (6 + j) * 1000 for j in (1, 2, 3)]
    assert result.requests.finish.tolist() == [sum(batch), sum(batch), sum(batch) + 10 * MS + 3 * MS]
    assert result.requests.admission.tolist() == [0, 0, sum(batch)]
    assert result.accounts.total.generated == 7


@pytest.mark.uncompiled
def test_a_lone_request_passes_the_budget_and_the_watermark() -> None:
    """100 blocks of 1 with 5 kept free, a budget of 10: a request of 98 is served when nothing runs."""
    scheduler = Scheduler(watermark=0.05, max_num_batched_tokens=10)
    result = run(stream_of((0, 98, 1)), "paged", capacity=100, block_size=1, max_model_len=100, scheduler=scheduler)
    assert result.requests.done.all()


@pytest.mark.uncompiled
def test_too_large_a_request_is_dropped_and_the_rest_go_on() -> None:
    """50 blocks of 16; one request needs 57, nine need 10."""
    rows = [(i, 150, 10) for i in range(4)] + [(4, 900, 10)] + [(i, 150, 10) for i in range(5, 10)]
    for engine in ("step", "leap"):
        result = run(stream_of(*rows), "paged", capacity=800, max_model_len=2048, engine=engine)
        summary = result.summary()
        assert summary["finished"] == 9
        assert summary["rejected"] == {"larger than the pool can serve": 1}
        assert summary["unfinished"] == 0
        assert result.columns()["reason"][4] == "900 + 10 tokens: an empty pool gives one request at most 800 slots"


@pytest.mark.uncompiled
def test_external_fragmentation_needs_a_head_that_would_fit() -> None:
    """Free slots are external only while enough are free for the head, and no extent serves it."""
    seen = []

    def look(step) -> None:
        seen.append((len(step.running), step.rates[4], step.allocator.free_slots))

    # 100 slots first-fit: 30 + 40 + 30; the first and the third end, 60 are free in two pieces, 50 are asked for
    stream = stream_of((0, 30, 1), (0, 40, 9), (0, 30, 1), (1, 50, 1), (1, 10, 1))
    pool = make_allocator("oracle", capacity=100, max_model_len=64, placement="first-fit")
    result = simulate(stream, pool, latency=STEADY, max_model_len=64, observe=look, check=2)
    assert (1, 52, 52) in seen
    assert result.requests.admission.tolist()[3] == 90 * MS


def test_steady_window() -> None:
    stream = stream_of((0, 1, 1), (100, 1, 1), (1000, 1, 1))
    assert steady_marks(stream) == [100 * MS, 325 * MS, 550 * MS, 775 * MS, 1000 * MS]
    assert steady_marks(stream, 500 * MS)[-1] == 500 * MS
    assert steady_marks(stream, 50 * MS) == []
    assert steady_marks(stream.as_backlog()) == []


def test_shares_are_those_of_the_window_only() -> None:
    """The window's integral is the difference of two exact copies: recomputed here from the requests' own times."""
    stream = sharegpt(300, rate=0.9)
    result = run(stream, "max", latency=LATENCY)
    window, requests = result.window, result.requests
    start = np.maximum(requests.admission, window.start_ns)
    overlap = np.minimum(requests.finish, window.end_ns) - start
    running = int(np.maximum(overlap, 0).sum())
    assert window.added.running == running
    assert window.added.requested == 2048 * running
    assert sum(result.shares.values()) == pytest.approx(1)


def test_overload_is_said() -> None:
    assert run(sharegpt(2000, rate=3.0), "max").stationary is False
    assert run(sharegpt(2000, rate=0.3), "paged").stationary is True
    assert run(sharegpt(300, rate=None), "paged", backlog=True).stationary is None


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"backlog": True}, "memory"),
        ({"backlog": True, "scheduler": Scheduler(max_num_seqs=4)}, "sequence cap"),
        ({"backlog": True, "scheduler": Scheduler(max_num_batched_tokens=40)}, "token budget"),
        ({}, "arrivals"),
    ],
)
def test_what_bound_the_batch(options: dict, bound: str) -> None:
    assert run(sharegpt(400, rate=0.5), "paged", **options).bound_by == bound


def test_nothing_measured_is_null() -> None:
    none = np.zeros(0, dtype=np.int64)
    for stream in (sharegpt(1), RequestStream(none, none, none)):
        summary = run(stream, "paged").summary()
        assert summary["used"] is None
        assert summary["bound_by"] is None
        json.dumps(summary, allow_nan=False)


def test_stop_breaks_off_exactly_there() -> None:
    stream = sharegpt(500, rate=2.0)
    for engine in ("step", "leap"):
        result = run(stream, "paged", stop_at_s=60, engine=engine)
        assert result.accounts.end_ns == 60 * 10**9
        summary = result.summary()
        assert summary["finished"] + summary["unfinished"] == 500
        assert summary["unfinished"] > 0
        assert summary["normalized_latency_s"] is None, "the quick requests alone would flatter it"


@pytest.mark.parametrize(("given", "bound"), [(None, "memory"), (3, "sequence cap")])
def test_what_bound_a_static_batch(given: int | None, bound: str) -> None:
    stream = sharegpt(300, rate=2.0)
    for engine in ("step", "leap"):
        assert run(stream, "max", scheduler=Scheduler("static", static_batch=given), engine=engine).bound_by == bound


def test_tables_agree() -> None:
    result = run(short_stream(30, 20, seed=1), "paged", capacity=200, max_model_len=40)
    table = result.columns()
    rows = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert len(rows) == 30
    assert [row["status"] for row in rows] == table["status"]
    assert [float(row["finish_s"]) for row in rows if row["finish_s"]] == [
        t for t in table["finish_s"] if t is not None
    ]
    frame = result.to_pandas()
    assert list(frame.columns) == list(table)
    assert frame["prompt"].tolist() == table["prompt"]
    assert json.loads(result.to_json())["finished"] == result.requests.done.sum()
