"""Sweeps: the plan, one table whoever computes it, resumption, statistics."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsim.errors import ConfigError
from kvsim.experiments import sweep as sweep_module
from kvsim.experiments.sweep import key_of, run_unit, sweep
from kvsim.experiments.table import Table
from kvsim.experiments.workers import WorkerDiedError, Workers, run_units
from kvsim.intervals import mean_of, ratio_of
from kvsim.plan import Unit, plan
from kvsim.scenario import Scenario
from kvsim.store import Store

SMALL = Scenario(rate=2.0, requests=40, seeds=2, allocator=["paged", "oracle"])
VARY = {"block_size": ["8", "64"], "rate": ["1", "3"]}


def test_plan_is_the_product() -> None:
    units = plan(SMALL, VARY)
    assert len(units) == 2 * 2 * 2 * 2
    assert [(u.scenario.block_size, u.scenario.rate, u.allocator, u.scenario.seed) for u in units[:4]] == [
        (8, 1.0, "paged", 0), (8, 1.0, "paged", 1), (8, 1.0, "oracle", 0), (8, 1.0, "oracle", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({"block_sze": [1]}, "did you mean 'block_size'"),
        ({"seed": [1, 2]}, "--seeds"),
        ({"block_size": []}, "at least one"),
        ({"block_size": ["16", "16"]}, "different values"),
        ({"block_size": ["0"]}, "block_size"),
        ({"rate": ["nan"]}, "rate"),
        ({"allocator": ["pagd"]}, "did you mean 'paged'"),
        ({"block_size": range(1, 2000), "max_num_seqs": range(1, 2000)}, "too many"),
    ],
)
def test_plan_refuses(vary: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(SMALL, vary)


def test_a_key_covers_settings_files_and_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = tmp_path / "steps.csv"
    steps.write_text("batch,ms\n1,20\n8,30\n")
    base = Unit(SMALL.model_copy(update={"allocator": ["paged"], "latency": str(steps)}))
    keys = {key_of(base)}
    assert key_of(base) in keys
    assert key_of(Unit(base.scenario.model_copy(update={"engine": "step"}))) in keys  # results do not depend on it
    keys.add(key_of(Unit(base.scenario.model_copy(update={"seed": 1}))))
    steps.write_text("batch,ms\n1,20\n8,31\n")
    keys.add(key_of(base))
    monkeypatch.setattr("kvsim.__version__", "9.9")
    keys.add(key_of(base))
    assert len(keys) == 4


def test_cells_share_their_requests() -> None:
    rows = [run_unit(unit) for unit in plan(SMALL, {"block_size": ["8", "64"]})]
    by_seed = {seed: {row["window_end_s"] for row in rows if row["seed"] == seed} for seed in (0, 1)}
    assert len(by_seed[0]) == len(by_seed[1]) == 1
    assert by_seed[0] != by_seed[1]


def test_a_cell_that_fails_says_why_and_the_rest_go_on() -> None:
    tiny = sweep(SMALL, {"pool": ["1KiB", "1GiB"]})
    assert len(tiny.failed) == 4
    assert "smaller than one block" in tiny.failed[0]["error"]
    assert tiny.means("used")["1KiB", "paged"] is None
    assert tiny.means("used")["1GiB", "paged"] is not None


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_who_computes_does_not_matter(kind: str) -> None:
    assert sweep(SMALL, VARY, workers=Workers(kind, jobs=2)).to_csv() == sweep(SMALL, VARY).to_csv()


def test_a_dask_cluster_computes_the_same() -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        workers = Workers("dask", jobs=2, address=cluster.scheduler_address)
        assert sweep(SMALL, VARY, workers=workers).to_csv() == sweep(SMALL, VARY).to_csv()


@pytest.mark.slow
def test_a_dask_worker_killed_in_the_middle_changes_nothing() -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    whole = sweep(SMALL, VARY).to_csv()
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        victims = [worker.process.process.pid for worker in cluster.workers.values()]

        def kill_one(done: int, total: int) -> None:
            if done == 3 and victims:
                os.kill(victims.pop(), signal.SIGKILL)

        workers = Workers("dask", jobs=2, address=cluster.scheduler_address)
        assert sweep(SMALL, VARY, workers=workers, progress=kill_one).to_csv() == whole
        assert len(victims) == 1


def die_once(unit: tuple[int, str]) -> int:
    """Kill the worker at unit 3, the first time that anyone comes to it."""
    number, folder = unit
    mark = Path(folder, "died")
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def die_always(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def test_a_dead_worker_is_retried(tmp_path: Path) -> None:
    found: dict[int, int] = {}
    units = [(i, str(tmp_path)) for i in range(12)]
    run_units(die_once, units, Workers("processes", jobs=2), lambda i, value: found.update({i: value}))
    assert found == {i: i * i for i in range(12)}


def test_a_unit_that_kills_its_workers_is_found_out() -> None:
    found: dict[int, int] = {}
    dead: dict[int, WorkerDiedError] = {}
    run_units(
        die_always,
        range(6),
        Workers("processes", jobs=2),
        lambda i, value: found.update({i: value}),
        lambda i, error: dead.update({i: error}),
    )
    assert set(dead) == {3}
    assert found == {i: i * i for i in (0, 1, 2, 4, 5)}


def test_what_is_in_the_store_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    with Store(path) as store:
        first = sweep(SMALL, VARY, store=store)
    monkeypatch.setattr(sweep_module, "run_unit", lambda unit: pytest.fail("computed again"))
    with Store(path) as store:
        assert sweep(SMALL, VARY, store=store).to_csv() == first.to_csv()


COMMAND = ["sweep", "--vary", "block_size=4,8,16,32,64", "--vary", "rate=1,2,3,4", "--requests", "60", "--seeds", "10",
           "--allocator", "paged"]  # fmt: skip


def kvsim_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kvsim", *arguments]


@pytest.mark.slow
def test_killed_ten_times_the_table_is_the_same(tmp_path: Path) -> None:
    """kill -9 of the whole group at random instants of a 200-cell sweep; each run resumes the last."""
    whole, resumed, store = tmp_path / "whole.csv", tmp_path / "resumed.csv", tmp_path / "s.db"
    subprocess.run(kvsim_command(*COMMAND, "--out", str(whole)), check=True, capture_output=True)
    chance = random.Random(5)
    again = kvsim_command(*COMMAND, "--jobs", "2", "--store", str(store), "--out", str(resumed))
    for _ in range(10):
        run = subprocess.Popen(again, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(chance.uniform(1.0, 5.0))
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    subprocess.run(again, check=True, capture_output=True)
    assert resumed.read_bytes() == whole.read_bytes()


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    arguments = [*COMMAND, "--requests", "20000", "--jobs", "1", "--threads"]
    run = subprocess.Popen(kvsim_command(*arguments, "--store", str(store)), stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 100
    while time.monotonic() < until:
        time.sleep(0.2)
        if store.exists():
            with Store(store) as opened:
                if len(opened):
                    break
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors
    with Store(store) as opened:
        assert 0 < len(opened) < 200


def row(cell: int, seed: int, value: float | None) -> dict[str, Any]:
    return {"block_size": cell, "seed": seed, "error": None, "used": value}


def test_means_and_paired_differences_by_hand() -> None:
    rows = [row(8, s, v) for s, v in enumerate((1.0, 2.0, 3.0))] + [
        row(16, s, v) for s, v in enumerate((2.0, 3.0, 4.5))
    ]
    table = Table(rows, ["block_size"])
    mean = table.means("used")[8,]
    assert mean is not None
    assert mean.value == 2
    assert mean.half_width == pytest.approx(4.302653 / 3**0.5, rel=1e-6)  # t(0.975, 2) x sd / sqrt(n), sd = 1
    difference = table.differences("used", "block_size", 8)[16,]
    assert difference is not None
    assert difference.difference == mean_of([1.0, 1.0, 1.5])
    assert difference.ratio is not None
    assert difference.ratio.value == pytest.approx(9.5 / 6)


def test_a_missing_measure_is_null_and_an_unknown_one_is_refused() -> None:
    table = Table([row(8, 0, None), row(8, 1, 2.0)], ["block_size"])
    assert table.means("used")[8,] is None
    with pytest.raises(ConfigError, match="did you mean 'used'"):
        table.means("usd")
    with pytest.raises(ConfigError, match="block_size"):
        table.differences("used", "block_sze", 8)


def test_parquet_and_pandas_hold_the_same_rows(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = sweep(SMALL, {"block_size": ["8", "64"]})
    path = tmp_path / "t.parquet"
    path.write_bytes(table.to_parquet())
    frame = table.to_pandas()
    pandas.testing.assert_frame_equal(pandas.read_parquet(path)[["used", "seed"]], frame[["used", "seed"]])
    assert list(frame.columns) == table.columns


def test_ratio_intervals_cover() -> None:
    """Pairs with a common factor: the bootstrap's interval holds the true ratio about as often as it says."""
    rng = np.random.default_rng(np.random.SeedSequence(1))
    covered = 0
    for _ in range(300):
        base = rng.gamma(9.0, 1.0, 10)
        top = 1.5 * base * rng.gamma(100.0, 0.01, 10)
        ratio = ratio_of(top.tolist(), base.tolist())
        assert ratio is not None
        assert ratio.low is not None
        assert ratio.high is not None
        assert ratio.low <= ratio.value <= ratio.high
        covered += ratio.low <= 1.5 <= ratio.high
    assert 0.90 <= covered / 300 <= 0.98


def test_ratio_of_few() -> None:
    assert ratio_of([2.0], [1.0]) == (2.0, None, None)
    assert ratio_of([1.0], [0.0]) is None
    same = ratio_of([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert same is not None
    assert same == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.slow
def test_the_interval_covers_the_long_run_mean() -> None:
    """200 experiments of 10 seeds: Student's interval holds the mean of 2000 other seeds in 90 to 98 % of them."""
    scenario = SMALL.model_copy(update={"requests": 200, "allocator": ["paged"]})

    def values(first: int, count: int) -> list[float]:
        rows = [
            run_unit(Unit(scenario.model_copy(update={"seed": s, "seeds": 1}))) for s in range(first, first + count)
        ]
        return [row["mean_batch"] for row in rows]

    truth = mean_of(values(1_000_000, 2000)).value
    means = [mean_of(values(10 * i, 10)) for i in range(200)]
    held = sum(abs(mean.value - truth) <= (mean.half_width or 0) for mean in means)
    assert 180 <= held <= 196


def test_the_command_prints_one_object(tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    options = ["--vary", "block-size=8,64", "--requests", "30", "--rate", "2", "--seeds", "2", "--allocator", "paged"]
    command = kvsim_command("sweep", *options, "--json", "--out", str(out))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert len(found["rows"]) == 4
    assert found["baseline"] == {"block_size": 8}
    assert out.read_text().count("\n") == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vary", "block_sze=1"], "did you mean 'block_size'"),
        (["--vary", "block_size"], "FIELD=VALUE"),
        (["--vary", "rate=1", "--baseline", "rate=7"], "none of the cells"),
        (["--vary", "rate=1", "--out", "table.xls"], ".csv or .parquet"),
        (["--vary", "rate=1", "--jobs", "0"], "at least one job"),
        (["--vary", "rate=1", "--dask", "tcp://127.0.0.1:1", "--jobs", "2"], "neither --jobs"),
        (["--vary", "rate=1", "--store", "nowhere/s.db"], "a folder that exists"),
    ],
)
def test_wrong_input_is_one_line(options: list[str], message: str) -> None:
    done = subprocess.run(kvsim_command("sweep", "--requests", "20", *options), capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


LIGHT = """
import sys
sys.argv = ["kvsim", *{arguments!r}]
from kvsim.cli import main
try: main()
except SystemExit as end: print(end.code, [name for name in ("numba", "matplotlib", "simpy") if name in sys.modules])
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["sweep", "--vary", "block_sze=1"],
        ["sweep", "--vary", "block_size=0"],
        ["capacity", "--workload", "sharegtp"],
        ["capacity", "--ttft-p99", "-1"],
        ["tune", "blocksize"],
        ["tune", "pool", "--model", "OPT-14B"],
        ["reproduce", "fig99"],
    ],
)
def test_wrong_input_imports_nothing_heavy(arguments: list[str]) -> None:
    code = LIGHT.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 []"
