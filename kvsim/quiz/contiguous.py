"""Questions on pictures of a pool: which extent is taken, and where the slots are."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvsim.accounts import ZERO, ledger
from kvsim.allocators import OK, ContiguousAllocator, PagedAllocator
from kvsim.lesson.recording import kinds_of, slots_of
from kvsim.names import CONTIGUOUS
from kvsim.quiz.question import Line, Question, mapped

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
# A letter a slot in upper case where a token is written, in lower case where it will be; the rest as marked.
WIDTH = 16


def extent(rng: np.random.Generator, seed: int) -> Question:
    """Ask which extent buddy, first-fit or best-fit takes."""
    placement = CONTIGUOUS[int(rng.integers(0, len(CONTIGUOUS)))]
    capacity = int(rng.integers(5, 11)) * 8
    pool = ContiguousAllocator(capacity, placement, reservation="oracle", max_model_len=capacity, num_rows=17)
    rows = [row for row in range(1, 17) if _reserve(pool, row, int(rng.integers(1, 13)))]
    for row in rng.permutation(rows)[: 1 + len(rows) // 2].tolist():
        pool.free(row)
    free = pool.free_extents()
    # about as long as one of the pieces, so that it matters which is taken
    size = max(1, free[int(rng.integers(0, len(free)))][1] + int(rng.integers(-2, 2)))
    picture = _extents_picture(pool, [row for row in rows if pool.held(row)])
    taken = _reserve(pool, 0, size)
    start, held = pool.extent(0)
    values = {"size": size, "capacity": capacity, "free": pieces(free)}
    values |= {"start": start, "held": held, "last": start + held - 1, "rounded": 1 << (size - 1).bit_length()}
    working: list[Line] = [("quiz.extent_free", values), (f"quiz.extent_{placement.replace('-', '_')}", values)]
    working.append(("quiz.extent_taken" if taken else "quiz.extent_none", values))
    return Question(
        "extent",
        seed,
        {"placement": placement, "capacity": capacity, "free": free, "size": size},
        (start,) if taken else (),
        ((f"quiz.extent_given_{placement.replace('-', '_')}", values), ("quiz.extent_ask", values)),
        tuple(working),
        picture,
    )


def _reserve(pool: ContiguousAllocator, row: int, slots: int) -> bool:
    return pool.reserve(row, slots, slots) == OK


def _extents_picture(pool: ContiguousAllocator, rows: list[int]) -> str:
    cells = ["."] * pool.capacity
    for letter, row in zip(LETTERS, sorted(rows, key=lambda row: pool.extent(row)[0]), strict=False):
        start, size = pool.extent(row)
        cells[start : start + size] = letter * size
    return in_lines(cells)


def pieces(free: list[tuple[int, int]]) -> str:
    """Write free pieces as first-last (length)."""
    return ", ".join(f"{start}-{start + size - 1} ({size})" for start, size in free) or "-"


def in_lines(cells: list[str]) -> str:
    """Write slots in lines, each with the number of its first."""
    lines = ["".join(cells[start : start + WIDTH]) for start in range(0, len(cells), WIDTH)]
    return "\n".join(f"{i * WIDTH:>4}  {line}" for i, line in enumerate(lines))


def shares(rng: np.random.Generator, seed: int) -> Question:
    """Ask how many slots are used, reserved, internal, external, free."""
    paged = rng.random() < 0.4
    capacity, longest = int(rng.integers(32, 65)), int(rng.integers(12, 25))
    pool: PagedAllocator | ContiguousAllocator
    if paged:
        pool = PagedAllocator(capacity, int(rng.choice((4, 8))), max_model_len=longest, num_rows=8)
    else:
        reservation = ("max", "pow2", "oracle")[int(rng.integers(0, 3))]
        placement = ("buddy", "first-fit")[int(rng.integers(0, 2))]
        pool = ContiguousAllocator(capacity, placement, reservation=reservation, max_model_len=longest, num_rows=8)
    rows = _come_and_go(pool, longest, rng)
    head = _draw(rng, longest)
    blocked = pool.blocked(*head)
    used, promised, requested, held = pool.totals()
    totals = ZERO._replace(used=used, promised=promised, requested=requested, held=held)
    totals = totals._replace(blocked=pool.free_slots if blocked else 0)
    split = ledger(totals, capacity=capacity, lost=pool.lost_slots)
    asked = head[0] if isinstance(pool, PagedAllocator) else pool.asked(*head)
    table = [_facts(pool, row, name) for row, name in zip(rows, LETTERS, strict=False)]
    facts: dict[str, Any] = {"capacity": capacity, "rows": table, "head": asked, "placement": pool.placement}
    facts |= {"block_size": pool.block_size if isinstance(pool, PagedAllocator) else 0}
    facts |= {"free": [] if isinstance(pool, PagedAllocator) else pool.free_extents()}
    values = {"capacity": capacity, "size": facts["block_size"], "head": asked, "lost": pool.lost_slots}
    values |= {
        "free": pool.free_slots,
        "largest": pool.largest_free,
        "pieces": pieces(facts["free"]),
        **split._asdict(),
    }
    kind = "" if paged else f"_{pool.placement.replace('-', '_')}"
    given: list[Line] = [("quiz.shares_paged" if paged else f"quiz.extent_given{kind}", values)]
    given += [] if paged else [("quiz.shares_case", values)]
    given += [("quiz.shares_row_paged" if paged else "quiz.shares_row", row) for row in table]
    given += [("quiz.shares_head" if paged else "quiz.shares_head_pieces", values), ("quiz.shares_ask", values)]
    working: list[Line] = [("quiz.shares_work", _parts(row)) for row in table]
    working.append(("quiz.shares_lost" if paged else "quiz.shares_blocked" if blocked else "quiz.shares_open", values))
    working.append(("quiz.shares_sum", values))
    return Question("shares", seed, facts, tuple(split), tuple(given), tuple(working), _picture(pool, rows, table))


def _draw(rng: np.random.Generator, longest: int) -> tuple[int, int]:
    """Return tokens held at admission, and at the end."""
    prompt = int(rng.integers(1, longest - 2))
    return prompt, int(rng.integers(prompt, longest))


def _come_and_go(pool: PagedAllocator | ContiguousAllocator, longest: int, rng: np.random.Generator) -> list[int]:
    """Fill a pool, let some go and the others grow; return the rows that are left."""
    rows, final = [], {}
    for row in range(int(rng.integers(3, 8))):
        tokens, final[row] = _draw(rng, longest)
        if pool.reserve(row, tokens, final[row]) == OK:
            rows.append(row)
    for row in rng.permutation(rows)[: len(rows) // 3].tolist():
        pool.free(row)
        rows.remove(row)
    for row in rows:
        room = final[row] - int(pool.state.rows[0, row])
        pool.append(np.array([row]), int(rng.integers(0, room + 1)))
    return rows


def _facts(pool: PagedAllocator | ContiguousAllocator, row: int, name: str) -> dict[str, Any]:
    """Return what a row holds, as a question gives it."""
    tokens, final = (int(pool.state.rows[i, row]) for i in (0, 1))
    facts = {"name": name, "tokens": tokens, "final": final, "held": pool.held(row), "requested": pool.requested(row)}
    if isinstance(pool, PagedAllocator):
        return facts | {"table": mapped(pool.table(row).tolist())}
    start, size = pool.extent(row)
    return facts | {"start": start, "last": start + size - 1}


def _parts(row: dict[str, Any]) -> dict[str, Any]:
    kinds = kinds_of(row["tokens"], row["final"], row["requested"], row["held"])
    used, reserved, internal, external = np.bincount(kinds, minlength=4).tolist()
    return row | {"used": used, "reserved": reserved, "internal": internal, "external": external}


def _picture(pool: PagedAllocator | ContiguousAllocator, rows: list[int], table: list[dict[str, Any]]) -> str:
    """Draw who holds which slot: upper case where a token is written, lower case in the rest."""
    cells = ["."] * pool.capacity
    for row, facts in zip(rows, table, strict=True):
        if isinstance(pool, PagedAllocator):
            slots = slots_of(pool.table(row), pool.block_size).tolist()
        else:
            slots = list(range(facts["start"], facts["last"] + 1))
        for i, slot in enumerate(slots):
            cells[slot] = facts["name"] if i < facts["tokens"] else facts["name"].lower()
    return in_lines(cells)
