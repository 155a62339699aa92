"""``kvsim compare`` as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import run_all, run_one
from traffic_shared import TRACES, needs_traces

from kvsim.names import ALLOCATORS

SMALL = ["compare", "--requests", "120", "--json"]
TRACE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109"
)


def write(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_wrong_input_is_one_line_and_costs_nothing(tmp_path: Path) -> None:
    """Exit code 2, one line naming what is wrong, nothing written, and neither numba nor matplotlib imported."""
    typo = write(tmp_path, "typo.toml", 'workloads = "sharegpt"\n')
    no_column = write(tmp_path, "column.csv", "TIMESTAMP,ContextTokens\n2023-11-16 18:15:46.0,3\n")
    negative = write(tmp_path, "negative.csv", TRACE + "\n2023-11-16 18:15:51.0,-3,5\n")
    fraction = write(tmp_path, "fraction.csv", TRACE + "\n2023-11-16 18:15:51.0,3,5.5\n")
    empty = write(tmp_path, "empty.csv", "")
    binary = write(tmp_path, "binary.csv", bytes(range(256)))
    strange = write(tmp_path, "strange.toml", "allocator = 5\n")
    before = sorted(tmp_path.iterdir())
    wrong = {
        ("--workload", "sharegtp"): "did you mean 'sharegpt'",
        ("--model", "OPT-13"): "did you mean 'OPT-13B'",
        ("--gpu", "A100-40BG"): "did you mean 'A100-40GB'",
        ("--allocator", "page"): "did you mean 'paged'",
        ("--placement", "buddi"): "buddy",
        ("--rate", "-1"): "rate: input should be greater",
        ("--rate", "nan"): "finite",
        ("--block-size", "0"): "block_size",
        ("--pool", "80"): "no unit",
        ("--pool", "1kB"): "smaller than one block",
        ("--rate", "1", "--backlog"): "exclude one another",
        ("--watermark", "1"): "less than 1",
        ("--scheduler", "static", "--static-batch", "8"): "the pool has 15728",
        ("--scheduler", "static", "--allocator", "paged"): "takes allocator 'max' only",
        ("--seed", "x"): "not a valid int",
        ("--workload", no_column): "GeneratedTokens",
        ("--workload", negative): "line 4",
        ("--workload", fraction): "line 4",
        ("--workload", empty): "empty",
        ("--workload", binary): "binary.csv",
        ("--workload", "chat-sessions", "--rate", "2"): "closed loop",
        (typo,): "did you mean 'workload'",
        ("no-such.toml",): "No such file",
        ("--wat",): "--wat",
        ("--out", typo): "not a folder",
        ("--out", typo + "/sub"): "not a folder",
        ("--workload", "no-such.csv"): "no such file",
        (negative,): "a trace goes to --workload",
        ("--allocator", "max", "--allocator", "max"): "may stand once",
        ("--static-batch", "3"): "needs scheduler 'static'",
        ("--num-blocks", "99999999999999999999"): "num_blocks",
        ("--max-num-seqs", "10000000000"): "max_num_seqs",
        ("--stop-at", "1e300"): "stop_at",
        ("--duration", "1e300", "--rate", "1"): "duration",
        ("--rate", "1e-300"): "rate",
        (strange,): "allocator",
    }
    done, heavy = run_all([["compare", *arguments] for arguments in wrong], tmp_path)
    for (arguments, message), (code, out, err) in zip(wrong.items(), done, strict=True):
        assert code == 2, arguments
        assert out == "", arguments
        assert err.count("\n") == 1, (arguments, err)
        assert message in err, (arguments, err)
    assert heavy == []
    assert sorted(tmp_path.iterdir()) == before


def test_the_object_on_stdout(tmp_path: Path) -> None:
    done = run_one(*SMALL, folder=tmp_path)
    assert done.code == 0
    assert list(tmp_path.iterdir()) == []
    found = json.loads(done.out)
    assert [system["allocator"] for system in found["systems"]] == ["max", "pow2", "oracle", "paged"]
    assert set(found["multiples"]) == {"max", "pow2", "oracle"}
    for system in found["systems"]:
        assert sum(system[part] for part in ("used", "reserved", "internal", "external", "free")) == pytest.approx(1)
        assert system["capacity"] == 15_728
        assert system["finished"] + sum(system["rejected"].values()) + system["unfinished"] == 120
        expected = {"placement", "scheduler", "engine", "mean_batch", "requests_per_s", "output_tokens_per_s", "ttft_s"}
        expected |= {"normalized_latency_s", "tpot_s", "preemptions", "recomputed_tokens", "bound_by", "stationary"}
        assert expected <= set(system)
    stamp = found["scenario"]["stamp"]
    assert {"version", "scheduler", "latency", "latency_origin", "seed", "seeds"} <= set(stamp)


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, second, other = run_one(*SMALL), run_one(*SMALL), run_one(*SMALL, "--seed", "1")
    assert first.out == second.out
    assert first.out != other.out


def test_engines_print_the_same_but_for_their_name() -> None:
    step, leap = (run_one(*SMALL, "--engine", engine).out for engine in ("step", "leap"))
    assert step.replace('"step"', '"leap"') == leap


def test_figures_and_sentence(tmp_path: Path) -> None:
    done = run_one("compare", "--requests", "200", "--seeds", "2", folder=tmp_path)
    assert done.code == 0, done.err
    assert sorted(path.name for path in (tmp_path / "kvsim-out").iterdir()) == [
        "shares.png",
        "timelines.png",
        "waterfall.png",
    ]
    assert "Of the KV memory" in done.out
    assert "times that of max / pow2 / oracle" in done.out
    assert "±" in done.out


def test_replicates_have_one_shape(tmp_path: Path) -> None:
    """Whether they agree or not: a reader of the JSON need not look."""
    done = run_one("compare", "--requests", "300", "--rate", "1", "--seeds", "2", "--json", folder=tmp_path)
    for system in json.loads(done.out)["systems"]:
        assert [len(system[name]) for name in ("bound_by", "stationary")] == [2, 2]


def test_a_scenario_file_is_the_options(tmp_path: Path) -> None:
    scenario = write(tmp_path, "s.toml", 'requests = 120\nblock-size = 32\nallocator = ["max", "paged"]\n')
    options = ["--requests", "120", "--block-size", "32", "--allocator", "max", "--allocator", "paged"]
    from_file, from_options = run_one("compare", scenario, "--json"), run_one("compare", *options, "--json")
    assert from_file.out == from_options.out
    overridden = run_one("compare", scenario, "--block-size", "16", "--json")
    assert json.loads(overridden.out)["scenario"]["block_size"] == 16


def test_a_trace_is_accounted_for_to_the_last_row(tmp_path: Path) -> None:
    rows = "".join(f"2023-11-16 18:16:{second:02d}.5,{second * 100},{second % 3 * 20}\n" for second in range(60))
    trace = write(tmp_path, "t.csv", TRACE + "\n" + rows.rstrip())
    done = run_one("compare", "--workload", trace, "--pool", "1500MiB", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert any(notice.startswith("20 rows") or "20 rows" in notice for notice in found["notices"]), found["notices"]
    for system in found["systems"]:
        total = system["finished"] + sum(system["rejected"].values()) + system["unfinished"]
        assert total == 62 - 20


def test_a_trace_is_cut_at_the_duration(tmp_path: Path) -> None:
    trace = write(tmp_path, "t.csv", TRACE)
    for seconds, requests in (("4", 1), ("5", 2)):
        found = json.loads(run_one("compare", "--workload", trace, "--duration", seconds, "--json").out)
        assert found["systems"][0]["finished"] == requests


def test_an_option_takes_the_place_of_its_rival_in_the_file(tmp_path: Path) -> None:
    scenario = write(tmp_path, "s.toml", "rate = 2\nnum-blocks = 500\nrequests = 50\n")
    for options in (["--backlog"], ["--pool", "1GiB"], ["--rate", "3"]):
        done = run_one("compare", scenario, *options, "--json")
        assert done.code == 0, done.err


def test_tables_keep_their_digits_at_80_columns(tmp_path: Path) -> None:
    for options in ([], ["--seeds", "3"]):
        done = run_one("compare", "--requests", "200", *options, folder=tmp_path, columns=80)
        assert done.code == 0
        assert "…" not in done.out, done.out


def test_a_static_batch_of_hundreds() -> None:
    """More requests fit at the maximum length than an iteration of the other scheduler may hold."""
    options = ["--scheduler", "static", "--workload", "alpaca", "--max-model-len", "30", "--requests", "2000"]
    step, leap = (run_one("compare", *options, "--engine", engine, "--json") for engine in ("step", "leap"))
    assert step.code == leap.code == 0, leap.err
    assert step.out.replace('"step"', '"leap"') == leap.out
    found = json.loads(leap.out)["systems"][0]
    assert found["finished"] > 256
    assert found["finished"] + sum(found["rejected"].values()) == 2000


def test_a_closed_loop_runs() -> None:
    done = run_one("compare", "--workload", "chat-sessions", "--duration", "60", "--json", "--model", "Llama-2-7B")
    assert done.code == 0, done.err
    paged = json.loads(done.out)["systems"][-1]
    assert paged["unfinished"] == 0
    assert paged["used"] > 0


@needs_traces
def test_the_azure_conversation_trace_to_the_last_row() -> None:
    """19,366 rows on Llama-3-8B, A100-80GB: every one finishes, or is rejected for a reason that is said."""
    trace = str(TRACES / "azure_llm_inference_2023_conv.csv")
    names = [word for name in ALLOCATORS for word in ("--allocator", name)]
    setting = ["--model", "Llama-3-8B", "--gpu", "A100-80GB", "--pool", "40GiB", "--block-size", "16"]
    done = run_one("compare", "--workload", trace, *setting, *names, "--json")
    assert done.code == 0, done.err
    systems = json.loads(done.out)["systems"]
    assert len(systems) == 7
    for system in systems:
        assert system["finished"] + sum(system["rejected"].values()) + system["unfinished"] == 19_366
        assert system["unfinished"] == 0
        assert set(system["rejected"]) <= {"longer than max_model_len", "larger than the pool can serve"}
