"""``kvsim trace`` and ``kvsim workloads``: what they print, what they write, and how they fail."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from test_traces import AZURE, write

from kvsim.cli import main
from kvsim.generate import load_workload, workload_names
from kvsim.traces import read


@pytest.fixture
def kvsim(capsys, monkeypatch):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kvsim", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return left.value.code, out, err

    return run


@pytest.fixture
def trace_file(tmp_path):
    return write(tmp_path, AZURE)


def test_describe_json_is_one_object(kvsim, trace_file):
    code, out, err = kvsim("trace", "describe", trace_file, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert list(found)[:8] == ["rows", "skipped", "span_s", "rate_per_s", "arrival_cv", "prompt", "output", "spearman"]
    assert found["rows"] == 4
    assert found["span_s"] == pytest.approx(0.01)
    assert found["prompt"] == pytest.approx({"mean": 435.0, "p50": 385.0, "p90": 734.1, "p99": 864.51, "max": 879})
    assert found["spearman"] == pytest.approx(0.8)
    assert found["prefix"] is None


def test_describe_draws(kvsim, trace_file, tmp_path):
    code, out, _ = kvsim("trace", "describe", trace_file, "--out", tmp_path / "figures")
    assert code == 0
    assert "wrote" in out
    assert (tmp_path / "figures" / "trace.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "content", ["prompt,output\n5,5\n", "arrival_ns,prompt,output\n3,5,5\n", "arrival_ns,prompt,output\n0,5,5\n9,5,5\n"]
)
def test_small_traces_are_described_and_drawn(kvsim, tmp_path, content):
    path = write(tmp_path, content)
    assert kvsim("trace", "describe", path, "--out", tmp_path)[0] == 0
    found = json.loads(kvsim("trace", "describe", path, "--json")[1])
    assert found["arrival_cv"] is None or found["arrival_cv"] >= 0
    assert found["spearman"] is None


def test_convert_says_what_is_lost(kvsim, tmp_path):
    path = write(tmp_path, "arrival_ns,prompt,output\n7,1,2\n", "t.csv")
    code, out, err = kvsim("trace", "convert", path, tmp_path / "a.csv", "--to", "azure")
    assert code == 0
    assert "wrote 1 requests" in out
    assert "rounded to 100 ns" in err


def test_convert_gives_times_to_what_has_none(kvsim, tmp_path):
    path = write(tmp_path, "prompt,output\n1,2\n3,4\n", "t.csv")
    code, _, err = kvsim("trace", "convert", path, tmp_path / "a.jsonl", "--to", "mooncake")
    assert code == 2
    assert "--rate" in err
    assert kvsim("trace", "convert", path, tmp_path / "a.jsonl", "--to", "mooncake", "--rate", 5)[0] == 0
    assert len(read(tmp_path / "a.jsonl")) == 2


def test_sample_then_fit_then_sample(kvsim, tmp_path):
    drawn, fitted, again = tmp_path / "drawn.csv", tmp_path / "mine.toml", tmp_path / "again.csv"
    assert kvsim("trace", "sample", "azure-conv", drawn, "--requests", 5000)[0] == 0
    code, out, _ = kvsim("trace", "fit", drawn, fitted, "--out", tmp_path, "--source", "a test", "--license", "none")
    assert code == 0
    assert "KS on every other request" in out
    assert (tmp_path / "fit.png").exists()
    workload = load_workload(fitted)
    assert (workload.name, workload.source, workload.license) == ("mine", "a test", "none")
    assert kvsim("trace", "sample", fitted, again, "--requests", 10)[0] == 0
    assert len(read(again)) == 10
    summary = json.loads(kvsim("trace", "fit", drawn, "--json")[1])
    assert summary["prompt"]["parameters"] <= 64


def test_sample_from_clients(kvsim, tmp_path):
    rates = write(tmp_path, "client,window_start_s,rate,cv,pattern,param1,param2\n0,0,50,1,Gamma,1,1\n", "r.csv")
    lengths = '{"client":0,"window_start_s":0,"input_tokens":"{5: 1.0}","output_tokens":"{7: 1.0}"}\n'
    own, out = write(tmp_path, lengths, "l.jsonl"), tmp_path / "s.csv"
    for options, said in (((), "--lengths"), (("--lengths", "alpaca"), "--duration")):
        code, _, err = kvsim("trace", "sample", rates, out, *options)
        assert code == 2
        assert said in err
    for given in ("alpaca", own):
        assert kvsim("trace", "sample", rates, out, "--lengths", given, "--duration", 10, "--requests", 20)[0] == 0
        assert len(read(out)) == 20
    assert set(read(out).output.tolist()) == {7}


def test_workloads_are_listed_with_their_means(kvsim):
    code, out, _ = kvsim("workloads")
    assert code == 0
    assert all(name in out for name in workload_names())
    rows = {row["name"]: row for row in json.loads(kvsim("workloads", "--json")[1])["workloads"]}
    assert rows["sharegpt"]["mean_output"] == pytest.approx(338.04, abs=0.01)
    code, out, _ = kvsim("workloads", "sharegpt")
    assert "161.31" in out
    assert "Figure 11" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("trace", "descrbe", "x"), "did you mean 'describe'"),
        (("trace", "describe", "nowhere.csv"), "nowhere.csv: no such file"),
        (("trace", "describe", "FILE", "--format", "azur"), "did you mean 'azure'"),
        (("trace", "describe", "FILE", "--max-model-len", "0"), "at least 2"),
        (("trace", "describe", "FILE", "--where", "a"), "COLUMN=VALUE"),
        (("trace", "describe", "FILE", "--where", "model=x"), "has no column 'model'"),
        (("trace", "describe", "FILE", "--map", "prompt=a"), "needs output="),
        (("trace", "describe", "FILE", "--unit", "ms"), "--map"),
        (("trace", "describe", "FILE", "--requests", "0"), "at least 1"),
        (("trace", "describe", "FILE", "--block-size", "0"), "at least 1"),
        (("trace", "convert", "FILE", "TARGET", "--to", "csv"), "unknown trace format to write"),
        (("trace", "convert", "FILE", "TARGET", "--rate", "-1"), "positive"),
        (("trace", "fit", "FILE", "TARGET.toml"), "too few"),
        (("trace", "fit", "FILE", "TARGET.json"), "does not end in .toml"),
        (("trace", "sample", "sharegtp", "TARGET", "--requests", "5"), "did you mean 'sharegpt'"),
        (("trace", "sample", "sharegpt", "TARGET"), "how much"),
        (("trace", "sample", "sharegpt", "TARGET", "--requests", "5"), "no rate of its own"),
        (("trace", "sample", "sharegpt", "TARGET", "--requests", "5", "--rate", "nan"), "positive"),
        (
            ("trace", "sample", "sharegpt", "TARGET", "--requests", "5", "--rate", "1", "--backlog"),
            "exclude one another",
        ),
        (("trace", "sample", "FILE", "TARGET", "--duration", "5", "--lengths", "alpaca"), "no client rates"),
        (("workloads", "chat"), "unknown workload"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(kvsim, trace_file, tmp_path, arguments, said):
    places = {
        "FILE": trace_file,
        "TARGET": tmp_path / "t",
        "TARGET.toml": tmp_path / "t.toml",
        "TARGET.json": tmp_path / "t.json",
    }
    before = set(tmp_path.iterdir())
    code, out, err = kvsim(*(places.get(argument, argument) for argument in arguments))
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert set(tmp_path.iterdir()) == before


def test_wrong_input_needs_no_heavy_library(tmp_path):
    code = (
        "import sys; sys.argv = ['kvsim', 'trace', 'describe', 'nowhere.csv']\n"
        "from kvsim.cli import main\n"
        "heavy = ('numba', 'matplotlib', 'simpy', 'pandas', 'pyarrow', 'rich')\n"
        "try: main()\n"
        "except SystemExit: print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
