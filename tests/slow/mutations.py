"""Change the kernels a little, one change at a time, and see whether the tests notice.

    python tests/slow/mutations.py [--number N] [--seed N] [--jobs N]

Mutations of kernels' bodies (in ``kvsim/_kernels.py``) are drawn by seed: an operator or a comparison becomes its
neighbour, a constant one more or one less, ``and`` becomes ``or``, ``min`` becomes ``max``, a statement is left out.
Each is made in a copy of the package, where the small tests run without compilation (``pytest -m uncompiled``). A
mutation is killed if a test fails, or if the tests take three times as long as without it.

Those that survive are listed, and the ones that cannot be noticed, because they change nothing that can be seen, are
told from the others by ``survivors.toml``, which says why. Exit code 1 if a survivor is not explained there.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = "kvsim/_kernels.py"
DECORATORS = {"kernel", "inlined", "aside", "merged"}
# in the order in which they run: the quickest to notice first
TESTS = tuple(f"tests/test_{name}.py" for name in ("kernels", "allocators", "latency", "plugins", "results", "engines"))
COPIED = ("kvsim", "workloads", "tests", "benchmarks/speed", "pyproject.toml")

# pytest, with a limit to its CPU time: wall time says little where others use the machine too
LIMITED = (
    "import resource, sys, pytest; limit = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)); sys.exit(pytest.main(sys.argv[2:]))"
)

# a conftest.py for the copy: that a test fails is enough, the smallest example of it is not wanted
UNSHRUNK = """
from hypothesis import Phase, settings
settings.register_profile("unshrunk", phases=[Phase.explicit, Phase.generate], database=None)
settings.load_profile("unshrunk")
"""

NEIGHBOURS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
SWAPPED_NAMES = {"min": "max", "max": "min"}
LEFT_OUT = (ast.Assign, ast.AugAssign, ast.Expr, ast.Break, ast.Continue)


@dataclass(frozen=True)
class Mutation:
    """One change.

    Attributes
    ----------
    function : str
        Kernel that it is in.
    line : int
        Line of the statement.
    before, after : str
        The statement, as Python writes it.
    source : str
        The whole changed module.
    """

    function: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{KERNELS}:{self.line} ({self.function})\n    - {self.before}\n    + {self.after}"


# --- what can be changed -----------------------------------------------------------------------------------------


def statements(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Statements of the kernels' bodies, docstrings left out, with the function that they are in."""
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        if not DECORATORS & {decorator.id for decorator in function.decorator_list if isinstance(decorator, ast.Name)}:
            continue
        for node in (node for statement in function.body for node in ast.walk(statement)):
            if isinstance(node, ast.stmt) and not is_docstring(node):
                yield function.name, node


def is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Nodes of a statement itself, not those of the statements in it."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        yield node
        todo += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


Change = Callable[[], None]


def changes(statement: ast.stmt) -> Iterator[Change]:
    """Ways to change a statement, each a call that does it in place."""
    for node in own_nodes(statement):
        for field, old in ast.iter_fields(node):
            for new in neighbours(old):
                yield lambda node=node, field=field, new=new: setattr(node, field, new)  # type: ignore[misc]
            if isinstance(old, list):
                for i, item in enumerate(old):
                    for new in neighbours(item):
                        yield lambda old=old, i=i, new=new: old.__setitem__(i, new)  # type: ignore[misc]


def neighbours(old: object) -> Iterator[object]:
    """What an operator, a constant or a name may become."""
    if isinstance(old, ast.AST):
        yield from (new() for new in NEIGHBOURS.get(type(old), ()))
    if isinstance(old, ast.Constant) and type(old.value) is int:
        yield from (ast.Constant(old.value + by) for by in (1, -1))
    if isinstance(old, ast.Name) and old.id in SWAPPED_NAMES:
        yield ast.Name(SWAPPED_NAMES[old.id], ast.Load())


def places(source: str) -> list[tuple[int, int]]:
    """Every mutation of a module, as (statement, change); -1 leaves the statement out."""
    found = []
    for i, (_, statement) in enumerate(statements(ast.parse(source))):
        found += [(i, j) for j, _ in enumerate(changes(statement))]
        if isinstance(statement, LEFT_OUT):
            found.append((i, -1))
    return found


def mutated(source: str, place: tuple[int, int]) -> Mutation:
    """Make one mutation."""
    i, j = place
    tree = ast.parse(source)
    function, statement = list(statements(tree))[i]
    before = head(statement)
    if j < 0:
        replace(tree, statement, ast.Pass())
        return Mutation(function, statement.lineno, before, "pass", unparsed(tree))
    list(changes(statement))[j]()
    return Mutation(function, statement.lineno, before, head(statement), unparsed(tree))


def head(statement: ast.stmt) -> str:
    """First line of a statement: all of it, unless others are in it."""
    return ast.unparse(statement).splitlines()[0]


def unparsed(tree: ast.Module) -> str:
    """Write a module without its comments."""
    return ast.unparse(ast.fix_missing_locations(tree))


def replace(tree: ast.Module, old: ast.stmt, new: ast.stmt) -> None:
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and old in value:
                value[value.index(old)] = new


# --- whether it is noticed ---------------------------------------------------------------------------------------


def run_tests(source: str, limit_s: int) -> str:
    """Run the tests on a copy with these kernels; return ``passed``, or what noticed."""
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            copy_to(ROOT / name, Path(folder) / name)
        (Path(folder) / KERNELS).write_text(source)
        (Path(folder) / "conftest.py").write_text(UNSHRUNK)
        return tested(Path(folder), limit_s)


def copy_to(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
    else:
        shutil.copy(source, target)


def tested(folder: Path, limit_s: int) -> str:
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-n", "0", "-m", "uncompiled", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=line"]
    command = [sys.executable, "-c", LIMITED, str(limit_s), *options, *(t for t in TESTS if (folder / t).exists())]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode == 0:
        return "passed"
    if done.returncode < 0:
        return "ran out of time"
    failures = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (failures or [f"exit code {done.returncode}: {done.stdout[-300:]}"])[0][:110]


def cpu_of_children() -> float:
    """CPU seconds of the processes that have ended so far."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def explained(mutation: Mutation, known: list[dict[str, str]]) -> str | None:
    """Return why a mutation cannot be noticed, if that is known."""
    for entry in known:
        if (mutation.function, mutation.before, mutation.after) == (entry["function"], entry["before"], entry["after"]):
            return entry["why"]
    return None


def main() -> None:
    """Draw, try, list; exit 1 if a survivor is not explained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    source = (ROOT / KERNELS).read_text()
    known = tomllib.loads(Path(__file__).with_name("survivors.toml").read_text()).get("survivor", [])
    possible = places(source)
    drawn = [mutated(source, place) for place in random.Random(options.seed).sample(possible, options.number)]
    verdict = run_tests(unparsed(ast.parse(source)), 3600)
    seconds = cpu_of_children()
    if verdict != "passed":
        sys.exit(f"the tests fail without any mutation: {verdict}")
    print(f"{len(possible):,} mutations are possible, {len(drawn)} drawn by seed {options.seed}")
    print(f"without any, the tests take {seconds:.0f} s of CPU", flush=True)
    limit = round(3 * seconds) + 10
    unexplained = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = pool.map(lambda mutation: run_tests(mutation.source, limit), drawn)
        for number, (mutation, verdict) in enumerate(zip(drawn, verdicts, strict=True), 1):
            why = explained(mutation, known) if verdict == "passed" else None
            unexplained += verdict == "passed" and why is None
            ending = f"killed: {verdict}"
            if verdict == "passed":
                ending = f"survives, as it must: {why}" if why else "SURVIVES, unexplained"
            print(f"{number:3} {mutation}\n    {ending}", flush=True)
    print(f"{unexplained} of {len(drawn)} mutations survive unexplained")
    sys.exit(1 if unexplained else 0)


if __name__ == "__main__":
    main()
