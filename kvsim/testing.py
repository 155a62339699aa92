"""What holds an allocator of the user's own to the contract."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvsim.allocators import LATER, NEVER, OK, Allocator
from kvsim.errors import InvariantError
from kvsim.names import CONTIGUOUS

VERDICTS = {OK: "OK", LATER: "LATER", NEVER: "NEVER"}


def check_allocator(
    make: Callable[[], Allocator],
    *,
    capacity: int,
    max_model_len: int = 64,
    num_rows: int = 8,
    operations: int = 2000,
    seed: int = 0,
) -> None:
    """Drive an allocator through random operations and hold every answer to the contract of ``kvsim.allocators``.

    Two pools are driven side by side: one grows by several iterations in a call, the other by one.

    Parameters
    ----------
    make : callable
        Returns a new, empty allocator.
    capacity : int
        Slots of its pool.
    max_model_len : int
        Tokens of the longest request that is tried.
    num_rows : int
        Rows that are used.
    operations : int
        How many.
    seed : int
        Of the random operations.

    Raises
    ------
    InvariantError
        Naming the operation, the row, what was expected and what was found.
    """
    driver = _Driver(make(), make(), capacity, np.random.default_rng(seed), max_model_len, num_rows)
    for _ in range(operations):
        driver.turn()
    driver.drain()
    driver.check_promises()


class _Driver:
    """Two pools, and what is known of their rows."""

    def __init__(
        self,
        one: Allocator,
        other: Allocator,
        capacity: int,
        rng: np.random.Generator,
        longest: int,
        num_rows: int,
    ) -> None:
        self.pools = (one, other)
        self.capacity, self.rng, self.longest, self.num_rows = capacity, rng, longest, num_rows
        self.tokens: dict[int, int] = {}
        self.final: dict[int, int] = {}

    def turn(self) -> None:
        """Do one random thing."""
        choice = self.rng.random()
        if choice < 0.35 and len(self.tokens) < self.num_rows:
            self.reserve()
        elif choice < 0.8 and self.tokens:
            self.append()
        elif self.tokens:
            self.free(int(self.rng.choice(list(self.tokens))))
        self.check_rows()

    def reserve(self) -> None:
        """Admit a request, or be refused without a trace."""
        row = next(r for r in range(self.num_rows) if r not in self.tokens)
        num_tokens, final = self._lengths()
        block = int(getattr(self.pools[0], "block_size", 1))
        keep = block * int(self.rng.integers(0, self.capacity // (4 * block) + 1)) if self.rng.random() < 0.2 else 0
        before = self._held()
        verdicts = [int(pool.reserve(row, num_tokens, final, keep)) for pool in self.pools]
        _expect("reserve: the same pools answer alike", verdicts[1], verdicts[0], row)
        verdict = verdicts[0]
        if verdict not in VERDICTS:
            raise InvariantError("reserve", expected="OK, LATER or NEVER", found=verdict, row=row)
        if verdict == OK:
            self.tokens[row], self.final[row] = num_tokens, final
            contiguous = getattr(self.pools[0], "placement", None) in CONTIGUOUS
            if keep and not contiguous and self.capacity - self._held() < keep:
                found = self.capacity - self._held()
                raise InvariantError("reserve: slots left free", expected=f"at least {keep}", found=found, row=row)
        else:
            _expect(f"reserve: slots held after {VERDICTS[verdict]}", self._held(), before, row)
        if verdict == NEVER and self.pools[0].can_serve(num_tokens, final):
            raise InvariantError("reserve: can_serve() says yes", expected="OK or LATER", found="NEVER", row=row)

    def append(self) -> None:
        """Grow some rows, in one call and in several."""
        live = [row for row in self.tokens if self.tokens[row] < self.final[row]]
        if not live:
            return
        some = len(live) if self.rng.random() < 0.5 else int(self.rng.integers(1, len(live) + 1))
        chosen = sorted(self.rng.choice(live, size=some, replace=False).tolist())
        rows = np.array(chosen, dtype=np.int64)
        steps = min(int(self.rng.integers(1, 6)), min(self.final[row] - self.tokens[row] for row in chosen))
        done = int(self.pools[0].append(rows, steps))
        if not 0 <= done <= steps:
            raise InvariantError("append", expected=f"0..{steps} whole iterations", found=done)
        singly = 0
        before = self._held(1)
        while singly < steps and int(self.pools[1].append(rows, 1)) == 1:
            singly += 1
            before = self._held(1)
        _expect("append: slots held after an iteration that was not done", self._held(1), before)
        _expect("append: one call of several iterations is several of one", done, singly)
        for row in chosen:
            self.tokens[row] += done

    def free(self, row: int) -> None:
        """Take a row's slots back."""
        for pool in self.pools:
            held = int(pool.held(row))
            _expect("free: slots given back", int(pool.free(row)), held, row)
            _expect("free: slots held after it", int(pool.held(row)), 0, row)
        del self.tokens[row], self.final[row]

    def check_rows(self) -> None:
        """Every row holds room for its tokens, the rows no more than the pool, and both pools the same."""
        for row, tokens in self.tokens.items():
            held = int(self.pools[0].held(row))
            _expect("held: the same in both pools", int(self.pools[1].held(row)), held, row)
            if held < tokens:
                raise InvariantError("held", expected=f"at least {tokens}", found=held, row=row)
        if self._held() > self.capacity:
            raise InvariantError("held by all rows", expected=f"at most {self.capacity}", found=self._held())
        for pool in self.pools:
            verify = getattr(pool, "verify", None)
            if verify is not None:
                verify()

    def drain(self) -> None:
        """Free every row."""
        for row in list(self.tokens):
            self.free(row)
        self.check_rows()

    def check_promises(self) -> None:
        """In an empty pool a request that can be served is, to its end, and one that cannot be is refused."""
        pool = self.pools[0]
        for _ in range(50):
            num_tokens, final = self._lengths()
            serves = bool(pool.can_serve(num_tokens, final))
            verdict = int(pool.reserve(0, num_tokens, final, 0))
            if not serves:
                _expect("reserve: what can_serve() refuses", VERDICTS.get(verdict), "NEVER", 0)
                continue
            _expect("reserve: what can_serve() promises, in an empty pool", VERDICTS.get(verdict), "OK", 0)
            steps = final - num_tokens
            done = int(pool.append(np.array([0], dtype=np.int64), steps)) if steps else 0
            _expect("append: to the end that can_serve() promises", done, steps, 0)
            pool.free(0)

    def _lengths(self) -> tuple[int, int]:
        """Draw lengths, half of the time from a few, so that rows run out of room in the same iteration."""
        final = int(self.rng.integers(1, self.longest))
        if self.rng.random() < 0.5:
            return min(final, int(self.rng.choice([1, max(1, self.longest // 4)]))), final
        return int(self.rng.integers(1, final + 1)), final

    def _held(self, pool: int = 0) -> int:
        return sum(int(self.pools[pool].held(row)) for row in self.tokens)


def _expect(operation: str, found: object, expected: object, row: int | None = None) -> None:
    if found != expected:
        raise InvariantError(operation, expected=expected, found=found, row=row)
