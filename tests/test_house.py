"""The house itself: floors, public names, what an import may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kvsim

PACKAGE = Path(kvsim.__file__).parent

# A file imports only from floors below its own (files of one package may import one another).
FLOORS = {
    "errors": 0,
    "names": 0,
    "_kernels": 0,
    "units": 1,
    "requests": 1,
    "models": 1,
    "memory": 1,
    "scenario": 1,
    "objective": 4,
    "plan": 2,
    "generate": 1,
    "traces": 1,
    "fit": 2,
    "allocators": 2,
    "scheduler": 2,
    "latency": 2,
    "accounts": 3,
    "results": 3,
    "intervals": 4,
    "engine": 3,
    "experiments": 4,
    "store": 4,
    "paper": 4,
    "plots": 4,
    "lesson": 4,
    "quiz": 4,
    "testing": 4,
    "cli": 5,
}
# Within floor 1 and 3 some rooms stand on others: (importer, imported).
STAIRS = {
    ("models", "units"),
    ("memory", "models"),
    ("memory", "units"),
    ("traces", "requests"),
    ("generate", "requests"),
    ("generate", "traces"),
    ("scenario", "models"),
    ("scenario", "generate"),
    ("scenario", "traces"),
    ("scenario", "requests"),
    ("scenario", "units"),
    ("results", "accounts"),
    ("engine", "results"),
    ("engine", "accounts"),
    ("experiments", "intervals"),
    ("experiments", "objective"),
    ("experiments", "store"),
    ("paper", "objective"),
    ("paper", "experiments"),
    ("paper", "intervals"),
    ("paper", "plots"),
    ("plots", "experiments"),
    ("quiz", "lesson"),
    ("plots", "lesson"),
}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
            if node.module == "kvsim":
                modules.update(f"kvsim.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
    return {m.split(".")[1] for m in modules if m.startswith("kvsim.") and m.split(".")[1] in FLOORS}


SOURCES = sorted(p for p in PACKAGE.rglob("*.py") if p.name not in {"__main__.py"} and p != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    here = room(path)
    assert here in FLOORS, f"{path} stands on no floor: give it one in {__file__}"
    for there in imported_rooms(path) - {here}:
        assert FLOORS[there] < FLOORS[here] or (here, there) in STAIRS, f"{here} imports {there}"


@pytest.mark.parametrize(("library", "rooms"), [("numba", {"_kernels"}), ("simpy", {"engine"})])
def test_one_importer(library: str, rooms: set[str]) -> None:
    importers = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(name.split(".")[0] == library for name in names):
                importers.add(room(path))
    assert importers <= rooms


def test_public_names_exist_and_are_documented() -> None:
    assert set(kvsim.__all__) == {*kvsim._HOME, "__version__"}
    for name in kvsim._HOME:
        assert getattr(kvsim, name).__doc__, name


def test_help_imports_nothing_heavy() -> None:
    heavy = ["numpy", "numba", "matplotlib", "simpy", "pydantic", "rich"]
    code = (
        "import sys; sys.argv = ['kvsim', '--help']\n"
        "from kvsim.cli import main\n"
        "try: main()\n"
        f"except SystemExit: print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
