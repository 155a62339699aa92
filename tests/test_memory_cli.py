"""``kvsim memory`` as a program: what it imports, prints, writes, and how it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from memory_cases import run_json, run_text

import kvsim
from kvsim.errors import ConfigError
from kvsim.models import DEVICES, MODELS

Capsys = pytest.CaptureFixture[str]
HEAVY = ("numpy", "numba", "simpy", "matplotlib", "pydantic", "pandas")
COMMANDS = (
    "weights --params 7B",
    "kv --model gpt-oss-120b --context 4096",
    "fit --model OPT-13B --gpu A100-40GB",
    "train --params 7B --memory 24GB",
)


def modules_after(command: str) -> set[str]:
    code = (
        f"import sys; sys.argv = ['kvsim', 'memory', *{command.split()!r}]\n"
        "from kvsim.cli import main\n"
        "try: main()\n"
        "except SystemExit as done: print(done.code, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_heavy_is_imported(command: str) -> None:
    assert not modules_after(command) & set(HEAVY)


def test_tables_need_rich_and_json_does_not() -> None:
    assert "rich" in modules_after(COMMANDS[0])
    assert "rich" not in modules_after(f"{COMMANDS[2]} --json")


@pytest.mark.parametrize("command", COMMANDS)
def test_json_names_what_is_asked_of_it(capsys: Capsys, command: str) -> None:
    keys = {
        "weights": {"parameters", "bits", "weights_bytes", "overhead_bytes"},
        "kv": {"bytes_per_token", "sequence_bytes", "lower_bound_bytes"},
        "fit": {
            "fits",
            "total_bytes",
            "weights_bytes",
            "kv_pool_bytes",
            "num_blocks",
            "kv_tokens",
            "max_concurrency",
            "contiguous_requests",
            "largest_context",
        },
        "train": {"methods"},
    }
    answer = run_json(capsys, command)
    assert keys[command.split()[0]] <= answer.keys()
    if "methods" in answer:
        row = {"method", "total_bytes", "weights_bytes", "gradients_bytes", "optimizer_bytes", "trainable_parameters"}
        assert all(row <= method.keys() for method in answer["methods"])
        assert [method["method"] for method in answer["methods"]] == ["full", "lora", "qlora"]


@pytest.mark.parametrize("command", COMMANDS)
def test_explained_the_same_numbers_come_with_their_formulas(capsys: Capsys, command: str) -> None:
    plain, explained = run_text(capsys, command), run_text(capsys, f"{command} --explain")
    assert explained.startswith(plain)
    assert "Formulas" in explained[len(plain) :]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_figure_is_written_only_when_asked_for(
    capsys: Capsys, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_text(capsys, command)
    assert not list(tmp_path.iterdir())
    run_json(capsys, f"{command} --out figures")
    name = f"memory-{command.split()[0]}.png"
    assert [path.name for path in (tmp_path / "figures").iterdir()] == [name]
    assert (tmp_path / "figures" / name).read_bytes().startswith(b"\x89PNG")


def test_sizes_never_come_without_their_unit(capsys: Capsys) -> None:
    text = run_text(capsys, COMMANDS[2])
    assert "12.88 GB 12.00 GiB" in text


def test_models_and_devices_are_listed(capsys: Capsys) -> None:
    assert set(run_json(capsys, "models")["models"]) == set(MODELS)
    assert set(run_json(capsys, "devices")["devices"]) == set(DEVICES)
    assert "OPT-13B 13,000,000,000" in run_text(capsys, "models")
    assert "A100-40GB 40 GB 39.39 GiB" in run_text(capsys, "devices")


def test_a_bare_memory_prints_its_help(capsys: Capsys) -> None:
    assert "train" in run_text(capsys, "")


def test_an_unknown_command_is_offered_the_nearest(capsys: Capsys) -> None:
    with pytest.raises(ConfigError, match="did you mean 'weights'"):
        run_text(capsys, "wieghts")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("kv --model opt-31 --out figures", "unknown model"),
        ("weights --params 7B --bits four --out figures", "Invalid value for '--bits'"),
        ("fit --model opt-13b --gpu A100-40GB --gpu-memory-utilisation 1 --out figures", "No such option"),
        ("train --params 7B --rank 0 --out figures", "rank must be"),
    ],
)
def test_wrong_input_is_one_line_exit_code_2_and_nothing_written(tmp_path: Path, command: str, message: str) -> None:
    program = [sys.executable, "-m", "kvsim", "memory", *command.split()]
    environment = os.environ | {"PYTHONPATH": str(Path(kvsim.__file__).parent.parent)}
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_configuration_from_disk(capsys: Capsys, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    sizes = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
    path.write_text(json.dumps(sizes))
    assert run_json(capsys, f"kv --model {path}")["bytes_per_token"] == 131_072
    with pytest.raises(ConfigError, match="without vocabulary and intermediate"):
        run_json(capsys, f"weights --model {path}")
    assert run_json(capsys, f"weights --model {path} --params 8B")["weights_bytes"] == 16 * 10**9
