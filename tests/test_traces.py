"""Reading traces."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from kvsim.errors import TraceError
from kvsim.traces import read

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.0010000,374,44
2023-11-16 18:15:46.0020000,396,109
2023-11-16 18:15:46.0090000,879,55
2023-11-16 18:15:46.0110000,91,16"""


def write(folder, text, name="trace.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_azure_seven_digits_and_no_newline_at_the_end(tmp_path):
    stream = read(write(tmp_path, AZURE))
    assert stream.arrival_ns.tolist() == [0, 1_000_000, 8_000_000, 10_000_000]  # case R01
    assert stream.prompt.tolist() == [374, 396, 879, 91]
    assert stream.output.tolist() == [44, 109, 55, 16]


def test_gzip_reads_alike(tmp_path):
    plain = read(write(tmp_path, AZURE))
    packed = read(write(tmp_path, gzip.compress(AZURE.encode()), "trace.csv.gz"))
    assert np.array_equal(plain.arrival_ns, packed.arrival_ns)


def test_zero_outputs_are_skipped_and_counted(tmp_path):
    stream = read(write(tmp_path, AZURE + "\n2023-11-16 18:15:47.0,5,0\n"))
    assert len(stream) == 4
    assert stream.skipped == {"no output tokens": 1}
    assert "1 rows skipped: no output tokens" in stream.notices


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("2023-11-16 18:15:47.0,-5,7", "line 6, field 'ContextTokens': '-5' is not a number of tokens"),
        ("2023-11-16 18:15:47.0,5,7.5", "line 6, field 'GeneratedTokens': '7.5' is not a whole number of tokens"),
        ("2023-11-16 18:15:47.0,5,", "line 6, field 'GeneratedTokens': is empty"),
        ("2023-11-16 18:15:47.0,5,x", "line 6, field 'GeneratedTokens': 'x' is not"),
        ("2023-13-16 18:15:47.0,5,6", "line 6, field 'TIMESTAMP': .* is no date"),
        ("yesterday,5,6", "line 6, field 'TIMESTAMP': 'yesterday' is not a date and time"),
        ("2023-11-16 18:15:47.0,5", "line 6: 2 fields where the header has 3"),
    ],
)
def test_a_malformed_row_is_named(tmp_path, row, said):
    path = write(tmp_path, f"{AZURE}\n{row}\n2023-11-16 18:15:48.0,1,1\n")
    with pytest.raises(TraceError, match=said):
        read(path)
    stream = read(path, skip_bad_rows=True)
    assert len(stream) == 5
    assert stream.skipped == {"malformed row": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"TIMESTAMP,ContextTokens\n2023-11-16 18:15:46.0,5\n", "field 'GeneratedTokens': looks like azure"),
        (b"when,what\n1,2\n", "no format that kvsim knows has the columns"),
        (AZURE.splitlines()[0].encode(), "holds no request"),
        (bytes(range(256)) * 8, "binary file"),
        (AZURE.encode("utf-16"), "UTF-16"),
        (AZURE.encode("utf-16-le"), "UTF-16"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "Git-LFS pointer"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>", "HTML page"),
        (gzip.compress(AZURE.encode() * 50)[:-40], "ends early"),
        (gzip.compress(AZURE.encode())[:10] + b"\xff" * 40, "damaged"),
    ],
    ids=[
        "empty",
        "blank",
        "column",
        "columns",
        "header-only",
        "binary",
        "utf16",
        "utf16-no-bom",
        "lfs",
        "html",
        "cut",
        "damaged",
    ],
)
def test_what_is_no_trace_is_told_in_one_line(tmp_path, content, said):
    with pytest.raises(TraceError, match=said) as caught:
        read(write(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        read(tmp_path / "nothing.csv")
    with pytest.raises(TraceError, match="a folder"):
        read(tmp_path)


def test_times_backwards_are_sorted_with_a_notice(tmp_path):
    lines = AZURE.splitlines()
    stream = read(write(tmp_path, "\n".join([lines[0], *reversed(lines[1:])])))
    assert stream.prompt.tolist() == [374, 396, 879, 91]
    assert any("backwards" in notice for notice in stream.notices)


def test_without_times_a_rate_or_a_backlog_is_asked_for(tmp_path):
    path = write(tmp_path, "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n10,5,15,2.0\n20,5,25,4.0\n")
    with pytest.raises(TraceError, match=r"--rate.*--backlog"):
        read(path)
    assert read(path, backlog=True).arrival_ns.tolist() == [0, 0]
    assert read(path, rate_per_s=2.0).arrival_ns[1] > 0
    assert not read(path, require_times=False).timed


def test_one_bad_row_among_many_blocks(tmp_path):
    good = [f"{i},{i % 900 + 1},{i % 70 + 1}" for i in range(200_000)]
    path = write(tmp_path, "arrival_ns,prompt,output\n" + "\n".join([*good[:123_456], "5,12x,3", *good[123_456:]]))
    with pytest.raises(TraceError, match=r"line 123458, field 'prompt': '12x' is not a whole number of tokens"):
        read(path)
    stream = read(path, skip_bad_rows=True)
    assert len(stream) == 200_000
    assert stream.skipped == {"malformed row": 1}
    assert stream.prompt.sum() == sum(i % 900 + 1 for i in range(200_000))


@pytest.mark.parametrize("block", [5, 7, 64, 100_000])
def test_blocks_may_be_cut_anywhere(tmp_path, monkeypatch, block):
    whole = read(write(tmp_path, AZURE))
    monkeypatch.setattr("kvsim.traces.source.BLOCK", block)
    for text in (AZURE, AZURE.replace("\n", "\r\n"), "\ufeff" + AZURE, AZURE.replace("879", '"879"'), AZURE + "\n\n"):
        stream = read(write(tmp_path, text))
        assert np.array_equal(stream.arrival_ns, whole.arrival_ns)
        assert np.array_equal(stream.prompt, whole.prompt)
