"""The store: rows for good, one version, no corruption."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import kvsim
from kvsim.errors import ConfigError
from kvsim.store import Store, StoreError


def test_rows_come_back(tmp_path: Path) -> None:
    row = {"x": 0.1 + 0.2, "name": "é", "nothing": None, "many": 2**60}
    with Store(tmp_path / "s.db") as store:
        store.put("a", row)
    with Store(tmp_path / "s.db") as store:
        assert store.get(["a", "b"]) == {"a": row}
        assert len(store) == 1


def test_more_keys_than_a_query_takes(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        for i in range(1201):
            store.put(str(i), {"i": i})
        assert len(store.get(map(str, range(2000)))) == 1201


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvsim, "__version__", "0.0.9")
    Store(tmp_path / "s.db").close()
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"written by kvsim 0\.0\.9.*name another file"):
        Store(tmp_path / "s.db")


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough for a header" * 100)
    with pytest.raises(ConfigError, match="not a database"):
        Store(text)
    assert text.read_text().startswith("not a database, but")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    other.close()
    with pytest.raises(ConfigError, match="none of kvsim's"):
        Store(tmp_path / "other.db")
    with pytest.raises(ConfigError, match="a folder that exists"):
        Store(tmp_path / "nowhere" / "s.db")


def test_a_full_disk_is_said_and_leaves_the_store_intact(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        store.put("kept", {"x": 1})
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")  # the disk has room for two pages more
        with pytest.raises(StoreError, match=r"full.*still there"):
            store.put("large", {"x": "y" * 100_000})
    with Store(tmp_path / "s.db") as store:
        assert store.get(["kept"]) == {"kept": {"x": 1}}
        assert store._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


WRITER = """
import sys
from kvsim.store import Store
with Store(sys.argv[1]) as store:
    for i in range(200):
        store.put(f"{i}", {"i": i})
        store.put(f"{sys.argv[2]}-{i}", {"i": i})
"""


def test_two_processes_write_one_store(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("a", "b")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with Store(path) as store:
        assert len(store) == 600
        assert store._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
