"""Naive twins: the same semantics as the kernels', in lists and dicts, with no thought for speed."""

from __future__ import annotations

OK, LATER, NEVER = 0, 1, 2


def asked(reservation: str, num_tokens: int, final: int, max_model_len: int) -> int:
    if reservation == "max":
        return max_model_len
    if reservation == "pow2":
        bucket = 1
        while bucket < final - num_tokens + 1:
            bucket *= 2
        return min(max_model_len, num_tokens + bucket)
    return final if reservation == "oracle" else num_tokens


class NaivePaged:
    """A list of free blocks, and for each row a dict."""

    def __init__(self, capacity: int, block_size: int, reservation: str, max_model_len: int) -> None:
        self.block_size, self.reservation, self.max_model_len = block_size, reservation, max_model_len
        self.num_blocks = capacity // block_size
        self.stack = list(reversed(range(self.num_blocks)))
        self.rows: dict[int, dict] = {}

    def reserve(self, row: int, num_tokens: int, final: int, keep_free: int = 0) -> int:
        slots = asked(self.reservation, num_tokens, final, self.max_model_len)
        if max(slots, final) > self.num_blocks * self.block_size:
            return NEVER
        needed = -(-slots // self.block_size)
        if needed + keep_free // self.block_size > len(self.stack):
            return LATER
        self.rows[row] = {"tokens": num_tokens, "final": final, "table": [self.stack.pop() for _ in range(needed)]}
        return OK

    def append(self, rows: list[int], steps: int) -> int:
        for done in range(steps):
            due = [r for r in rows if self.rows[r]["tokens"] == len(self.rows[r]["table"]) * self.block_size]
            if len(due) > len(self.stack):
                return done
            for row in rows:
                if row in due:
                    self.rows[row]["table"].append(self.stack.pop())
                self.rows[row]["tokens"] += 1
        return steps

    def free(self, row: int) -> int:
        table = self.rows.pop(row)["table"]
        self.stack.extend(reversed(table))
        return len(table) * self.block_size

    def held(self, row: int) -> int:
        return len(self.rows[row]["table"]) * self.block_size if row in self.rows else 0

    @property
    def free_slots(self) -> int:
        return len(self.stack) * self.block_size

    def totals(self) -> tuple[int, int, int, int]:
        rows = self.rows.items()
        held = sum(self.held(r) for r, _ in rows)
        promised = sum(min(s["final"], self.held(r)) for r, s in rows)
        return sum(s["tokens"] for _, s in rows), promised, held, held


class NaiveContiguous:
    """A set of free extents, and for each row a dict."""

    def __init__(self, capacity: int, placement: str, reservation: str, max_model_len: int) -> None:
        self.capacity, self.placement = capacity, placement
        self.reservation, self.max_model_len = reservation, max_model_len
        self.rows: dict[int, dict] = {}
        self.free_set: set[tuple[int, int]] = {(0, capacity)}
        self.origin: dict[int, tuple[int, int]] = {}
        if placement == "buddy":
            self.free_set, start = set(), 0
            for order in reversed(range(capacity.bit_length())):
                if capacity >> order & 1:
                    self.free_set.add((start, 1 << order))
                    for slot in range(start, start + (1 << order)):
                        self.origin[slot] = (start, 1 << order)
                    start += 1 << order

    def rounded(self, slots: int) -> int:
        if self.placement != "buddy":
            return slots
        size = 1
        while size < slots:
            size *= 2
        return size

    def reserve(self, row: int, num_tokens: int, final: int, keep_free: int = 0) -> int:
        slots = asked(self.reservation, num_tokens, final, self.max_model_len)
        size = self.rounded(slots)
        whole = max(s for _, s in self.origin.values()) if self.origin else self.capacity
        if size > whole:
            return NEVER
        candidates = [(start, length) for start, length in self.free_set if length >= size]
        if not candidates:
            return LATER
        by_size = self.placement in ("buddy", "best-fit")
        start, length = min(candidates, key=lambda c: (c[1], c[0]) if by_size else c)
        self.free_set.remove((start, length))
        if self.placement == "buddy":
            while length > size:
                length //= 2
                self.free_set.add((start + length, length))
        elif length > size:
            self.free_set.add((start + size, length - size))
        self.rows[row] = {"tokens": num_tokens, "final": final, "asked": slots, "start": start, "size": size}
        return OK

    def append(self, rows: list[int], steps: int) -> int:
        done = min([steps, *(self.rows[r]["asked"] - self.rows[r]["tokens"] for r in rows)])
        for row in rows:
            self.rows[row]["tokens"] += done
        return done

    def free(self, row: int) -> int:
        state = self.rows.pop(row)
        start, size = state["start"], state["size"]
        merged = True
        while merged:
            merged = False
            for other, length in sorted(self.free_set):
                if self.placement == "buddy":
                    together = length == size and other == start ^ size and self.origin[other] == self.origin[start]
                else:
                    together = other + length == start or start + size == other
                if together:
                    self.free_set.remove((other, length))
                    start, size, merged = min(start, other), size + length, True
                    break
        self.free_set.add((start, size))
        return state["size"]

    def held(self, row: int) -> int:
        return self.rows[row]["size"] if row in self.rows else 0

    @property
    def free_slots(self) -> int:
        return sum(size for _, size in self.free_set)

    def totals(self) -> tuple[int, int, int, int]:
        rows = self.rows.values()
        return (
            sum(s["tokens"] for s in rows),
            sum(s["final"] for s in rows),
            sum(s["asked"] for s in rows),
            sum(s["size"] for s in rows),
        )
