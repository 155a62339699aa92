"""Writing a workload as the TOML file that describes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvsim.generate.workload import Workload
from kvsim.traces.writing import replace_file

PER_LINE = 10


def workload_toml(workload: Workload) -> str:
    """Return the text of a file that ``load_workload`` reads as this workload, floats with six digits."""
    table = workload.model_dump(exclude_none=True, exclude_defaults=True)
    return "\n".join(_lines(table, ())).strip() + "\n"


def write_workload(workload: Workload, path: str | Path) -> None:
    """Write a workload to a file, all of it or nothing.

    Raises
    ------
    TraceError
        The file cannot be written.
    """
    replace_file(path, lambda temporary: Path(temporary).write_text(workload_toml(workload), encoding="utf-8"))


def _lines(table: dict[str, Any], path: tuple[str, ...]) -> list[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    many = {
        key: value
        for key, value in table.items()
        if isinstance(value, list | tuple) and value and isinstance(value[0], dict)
    }
    lines = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if key not in inner | many]
    for key, value in inner.items():
        lines += ["", f"[{'.'.join(_key(step) for step in (*path, key))}]", *_lines(value, (*path, key))]
    for key, rows in many.items():
        for row in rows:
            lines += ["", f"[[{'.'.join(_key(step) for step in (*path, key))}]]", *_lines(row, (*path, key))]
    return lines


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = f"{value:.6g}"
        return text if set(text) & set(".en") else f"{text}.0"
    if isinstance(value, list | tuple):
        numbers = [_value(entry) for entry in value]
        if len(numbers) <= PER_LINE:
            return f"[{', '.join(numbers)}]"
        rows = [", ".join(numbers[at : at + PER_LINE]) for at in range(0, len(numbers), PER_LINE)]
        return "[\n" + "".join(f"    {row},\n" for row in rows) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
