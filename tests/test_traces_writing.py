"""Writing a stream and reading it back: the same stream wherever the format can hold it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_requests import ragged

from kvsim.errors import ConfigError, TraceError
from kvsim.requests import RequestStream
from kvsim.traces import read, write

FORMATS = ["kvsim", "kvsim-parquet", "vidur", "mooncake", "azure"]
TIMELESS = ["kvsim", "kvsim-parquet", "vidur"]
DATES_END = 200 * 365 * 24 * 3600 * 10**9
HUNDRED_NS = 100


@st.composite
def streams(draw):
    """Streams that every format can hold: from time 0, in steps of 100 ns, without ids."""
    gaps = draw(st.lists(st.integers(0, DATES_END // 40 // HUNDRED_NS), min_size=1, max_size=30))
    times = np.cumsum([0, *gaps[1:]]) * HUNDRED_NS
    lengths = st.lists(st.integers(1, 10**9), min_size=len(gaps), max_size=len(gaps))
    return RequestStream(times, draw(lengths), draw(lengths))


def same(one, two):
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("arrival_ns", "prompt", "output"))


@pytest.mark.parametrize("first", FORMATS)
@pytest.mark.parametrize("second", FORMATS)
@settings(max_examples=15, deadline=None)
@given(stream=streams())
def test_there_and_back_by_way_of_any_pair(first, second, stream):
    with tempfile.TemporaryDirectory() as folder:
        one, two, back = (Path(folder, name) for name in ("one", "two", "back"))
        assert write(stream, one, first) == []
        assert write(read(one), two, second) == []
        assert write(read(two), back, first) == []
        assert one.read_bytes() == back.read_bytes()
        assert same(stream, read(back))


@pytest.mark.parametrize("name", ["kvsim", "kvsim-parquet", "vidur", "mooncake"])
@settings(max_examples=25, deadline=None)
@given(times=st.lists(st.integers(0, 2**59), min_size=1, max_size=20))
def test_whole_nanoseconds_survive(name, times):
    stream = RequestStream(sorted(times), [1] * len(times), [2] * len(times))
    with tempfile.TemporaryDirectory() as folder:
        assert write(stream, Path(folder, "t"), name) == []
        assert same(stream, read(Path(folder, "t")))


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 2000), min_size=1, max_size=8), data=st.data())
def test_prefix_ids_survive_where_they_can(lengths, data):
    rows = [data.draw(st.lists(st.integers(0, 2**62), min_size=-(-n // 512), max_size=-(-n // 512))) for n in lengths]
    stream = RequestStream(np.arange(len(rows)), lengths, [1] * len(rows), prefix=ragged(rows, 512))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("kvsim-parquet", "mooncake"):
            assert write(stream, Path(folder, "t"), name) == []
            again = read(Path(folder, "t"))
            assert same(stream, again)
            assert again.prefix == stream.prefix
        for name in ("kvsim", "vidur", "azure"):
            assert any("prefix ids are left out" in word for word in write(stream, Path(folder, "t"), name))


def test_a_word_on_what_is_lost(tmp_path):
    path = tmp_path / "t"
    late = RequestStream([7, 150], [33, 2], [1, 1], prefix=ragged([[1, 2, 3], [4]]))
    assert write(late, path, "azure") == [
        "prefix ids are left out",
        "2 arrivals are rounded to 100 ns",
        "the time before the first request is left out: dates count from it",
    ]
    assert write(late, path, "mooncake") == ["the block size of 16: read it back with --block-size 16"]
    assert read(path, block_size=16).prefix == late.prefix
    whole_blocks_only = RequestStream([0], [33], [1], prefix=ragged([[1, 2]]))
    assert "partial block" in write(whole_blocks_only, path, "mooncake")[0]


@pytest.mark.parametrize("name", FORMATS)
def test_without_times(name, tmp_path):
    stream = RequestStream([0, 0], [1, 2], [3, 4], timed=False)
    if name in TIMELESS:
        write(stream, tmp_path / "t", name)
        again = read(tmp_path / "t", require_times=False)
        assert not again.timed
        assert same(stream, again)
    else:
        with pytest.raises(ConfigError, match="needs times"):
            write(stream, tmp_path / "t", name)
        assert not list(tmp_path.iterdir())


def test_packed_when_the_name_says_so(tmp_path):
    stream = RequestStream([0, 1], [1, 2], [3, 4])
    write(stream, tmp_path / "t.csv.gz", "kvsim")
    assert (tmp_path / "t.csv.gz").read_bytes().startswith(b"\x1f\x8b")
    assert same(stream, read(tmp_path / "t.csv.gz"))


def test_nothing_is_left_half_written(tmp_path, monkeypatch):
    stream = RequestStream([0, 1], [1, 2], [3, 4])
    with pytest.raises(ConfigError, match="did you mean 'vidur'"):
        write(stream, tmp_path / "t", "vidr")
    with pytest.raises(TraceError, match="cannot be written"):
        write(stream, tmp_path / "no" / "t", "kvsim")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvsim.traces.writing._write_lines", full)
    with pytest.raises(TraceError, match="No space left on device"):
        write(stream, tmp_path / "t", "kvsim")
    assert not list(tmp_path.iterdir())
