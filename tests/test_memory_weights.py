"""Weights: parameters x bits, and what quantization adds."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_cases import run_json, run_text

from kvsim.errors import ConfigError
from kvsim.memory import weights, weights_of_file
from kvsim.models import Quantization, get_model
from kvsim.units import parse_count

Capsys = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("bits", "num_bytes"), [(32, 28e9), (16, 14e9), (8, 7e9), (4, 3.5e9)])
def test_seven_billion_parameters(capsys: Capsys, bits: int, num_bytes: float) -> None:
    assert weights(7 * 10**9, bits).weights_bytes == num_bytes
    assert run_json(capsys, f"weights --params 7B --bits {bits}")["weights_bytes"] == num_bytes


def test_all_bits_at_once(capsys: Capsys) -> None:
    answer = run_json(capsys, "weights --params 7B")
    assert (answer["parameters"], answer["bits"], answer["overhead_bytes"]) == (7 * 10**9, 16, 0)
    assert [row["weights_bytes"] for row in answer["by_bits"]] == [28e9, 14e9, 7e9, 3.5e9]
    for size in ("28.00 GB", "14.00 GB", "7.00 GB", "3.50 GB"):
        assert size in run_text(capsys, "weights --params 7B")


def test_absmax_in_blocks_of_64_adds_half_a_bit(capsys: Capsys) -> None:
    answer = run_json(capsys, "weights --params 7B --bits 4 --quant-block 64")
    assert answer["overhead_bytes"] == 7e9 * 0.5 / 8


def test_double_quantization_adds_an_eighth_of_a_bit_and_a_little(capsys: Capsys) -> None:
    answer = run_json(capsys, "weights --params 7B --bits 4 --double-quant")
    bits = 8 / 64 + 32 / (64 * 256)
    assert round(bits, 3) == 0.127
    assert answer["overhead_bytes"] == pytest.approx(7e9 * bits / 8, abs=1)
    assert "0.127 bits" in run_text(capsys, "weights --params 7B --bits 4 --double-quant --explain")


def test_t06_a_4_bit_7b_is_not_3_5_gb(capsys: Capsys) -> None:
    answer = run_json(capsys, "weights --model llama-7b --bits 4 --double-quant --keep-embeddings")
    assert answer["parameters"] == 6_738_415_616
    assert round(answer["total_bytes"] / 1e9, 2) == 3.87
    assert 3.5e9 < answer["total_bytes"] < 5.046e9
    saved = Quantization(4, block=64).overhead_bits - Quantization(4, block=64, double_block=256).overhead_bits
    assert round(float(saved), 3) == 0.373
    assert round(65 * float(saved) / 8, 2) == 3.03


@pytest.mark.parametrize(("name", "count"), [("Qwen3-4B", 4_022_468_096), ("Qwen2.5-72B", 72_706_203_648)])
def test_k31_tied_embeddings_count_once(capsys: Capsys, name: str, count: int) -> None:
    assert run_json(capsys, f"weights --model {name}")["parameters"] == count


def test_opt_13b_as_the_paper_counts_it(capsys: Capsys) -> None:
    assert run_json(capsys, "weights --model OPT-13B")["weights_bytes"] == 26 * 10**9
    assert "The architecture has 12,853,473,280" in run_text(capsys, "weights --model OPT-13B")


def test_published_quantization_is_the_default(capsys: Capsys) -> None:
    answer = run_json(capsys, "weights --model gpt-oss-120b")
    experts = get_model("gpt-oss-120b").parameters_by_part()["experts"]
    assert answer["bits"] == 4
    assert answer["weights_bytes"] == experts // 2 + 2 * (answer["parameters"] - experts)
    assert answer["overhead_bytes"] == experts // 32
    assert run_json(capsys, "weights --model gpt-oss-120b --bits 16")["weights_bytes"] == 2 * answer["parameters"]


def test_weights_of_a_file(capsys: Capsys, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(4_500))
    answer = run_json(capsys, f"weights --weights-file {path} --params 8000")
    assert (answer["weights_bytes"], answer["bits"]) == (4_500, 4.5)
    assert run_json(capsys, f"weights --weights-file {path}")["weights_bytes"] == 4_500
    (tmp_path / "b.safetensors").write_bytes(bytes(500))
    (tmp_path / "readme.md").write_bytes(bytes(99))
    assert weights_of_file(tmp_path).weights_bytes == 5_000


def test_files_without_weights(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        weights_of_file(tmp_path / "absent")
    with pytest.raises(ConfigError, match="no weights in it"):
        weights_of_file(tmp_path)


@pytest.mark.parametrize("bits", [0, -4, float("nan"), float("inf"), 65])
def test_absurd_bits(bits: float) -> None:
    with pytest.raises(ConfigError, match="bits must be"):
        weights(7, bits)


@pytest.mark.parametrize("parameters", [0, -1, 10**16])
def test_absurd_parameters(parameters: int) -> None:
    with pytest.raises(ConfigError, match="parameters must be"):
        weights(parameters)


def test_labels_tell_rows_of_the_same_bits_apart(capsys: Capsys) -> None:
    text = run_text(capsys, "weights --model gpt-oss-120b")
    assert text.count("4 bits 58,414,578,336") == text.count("4 bits, in blocks 61,665,634,944") == 1


def test_parts_of_a_bare_number_are_not_known() -> None:
    with pytest.raises(ConfigError, match="known only of a model"):
        weights(7, quantization=Quantization(4, covers="linear"))


@pytest.mark.parametrize(
    ("text", "count"),
    [("7B", 7 * 10**9), ("1.5b", 1_500_000_000), ("125M", 125_000_000), ("7e9", 7 * 10**9), ("6_738", 6_738)],
)
def test_counts(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "B", "-7B", "0", "nan", "inf", "1.5", "7GB", "7e99", "10000T", "0.0001B1"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_count(text)
