"""Errors say what is wrong, and survive a trip to another process."""

from __future__ import annotations

import pickle

import pytest

import kvsim.cli
from kvsim.errors import ConfigError, InvariantError, KvsimError, StalledError, TraceError, unknown

ERRORS = [
    (ConfigError("no"), "no"),
    (TraceError("empty", file="a.csv", line=3, field="prompt"), "a.csv, line 3, field 'prompt': empty"),
    (TraceError("empty"), "empty"),
    (InvariantError("free", expected=1, found=2, row=4), "free (row 4): expected 1, found 2"),
    (StalledError(7, needed=3, free=2), "request 7 needs 3 slots"),
]


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=lambda x: type(x).__name__)
def test_text_and_travel(error: KvsimError, text: str) -> None:
    assert text in str(error)
    for copy in (pickle.loads(pickle.dumps(error)), type(error)(*error.args)):
        assert str(copy) == str(error)
        assert vars(copy) == vars(error)


def test_the_nearest_name_is_offered() -> None:
    assert "did you mean 'sharegpt'?" in str(unknown("workload", "ShareGTP", ["alpaca", "sharegpt"]))
    assert "known: alpaca, sharegpt" in str(unknown("workload", "zzz", ["sharegpt", "alpaca"]))


def test_no_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(**_options: object) -> None:
        raise MemoryError("Unable to allocate 7.6 GiB")

    monkeypatch.setattr(kvsim.cli.cli, "main", full)
    with pytest.raises(SystemExit) as stopped:
        kvsim.cli.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("kvsim: out of memory: Unable to allocate 7.6 GiB; ")
