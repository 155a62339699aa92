"""Allocators of KV-cache memory: a reservation (how much) and a placement (where).

========================  ===========================================  ==========================================
name                      reservation                                  placement
========================  ===========================================  ==========================================
``max``                   the model's maximum length                   contiguous
``pow2``                  prompt + the output's next power of two      contiguous
``oracle``                what will be held at the end                 contiguous
``paged``                 nothing ahead: grows on demand               blocks
``paged-max/pow2/oracle`` as above                                     blocks
========================  ===========================================  ==========================================

Contiguous placement is ``buddy`` (as the vLLM paper assumes for its baselines), ``first-fit`` or ``best-fit``.

The contract
------------
An allocator of your own is any object with these five methods; ``kvsim.testing.check_allocator`` holds it to them::

    reserve(row, num_tokens, final_tokens, keep_free=0) -> OK | LATER | NEVER
        Admit a request in ``row`` with ``num_tokens`` tokens, all or nothing. ``final_tokens`` is what it will hold at
        the end; to look at it is to be an oracle. ``keep_free`` slots must stay free (the watermark; contiguous pools
        have none).
    append(rows, steps) -> int
        Every row grows by one token an iteration, for ``steps`` iterations. Returns the iterations done in whole;
        nothing is taken for one that not every row can complete.
    free(row) -> int
        Take everything back; returns the slots.
    held(row) -> int
        Slots that the row occupies.
    can_serve(num_tokens, final_tokens) -> bool
        Whether an empty pool could serve this request to its end.

It may give more: ``requested(row)`` (slots asked for, where rounding holds more), ``free_slots``, ``largest_free``,
``block_size``, ``verify()``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kvsim import _kernels as k
from kvsim.errors import ConfigError, InvariantError, unknown
from kvsim.names import ALLOCATORS, CONTIGUOUS
from kvsim.requests import IntArray

OK, LATER, NEVER = k.OK, k.LATER, k.NEVER

# slots x ns of an iteration must fit 62 bits
MOST_SLOTS = 2**31

RESERVATIONS = {"on-demand": k.ON_DEMAND, "max": k.MAX, "pow2": k.POW2, "oracle": k.ORACLE}
PLACEMENTS = {"paged": k.PAGED, "buddy": k.BUDDY, "first-fit": k.FIRST_FIT, "best-fit": k.BEST_FIT}


class Allocator(Protocol):
    """What the engine needs of an allocator; see the module's text for what each method means."""

    def reserve(self, row: int, num_tokens: int, final_tokens: int, keep_free: int = 0) -> int:
        """Admit a request."""

    def append(self, rows: IntArray, steps: int) -> int:
        """Grow every row."""

    def free(self, row: int) -> int:
        """Take everything back."""

    def held(self, row: int) -> int:
        """Slots that the row occupies."""

    def can_serve(self, num_tokens: int, final_tokens: int) -> bool:
        """Whether an empty pool could serve this request to its end."""


def make_allocator(
    name: str,
    *,
    capacity: int,
    max_model_len: int,
    max_num_seqs: int = 256,
    block_size: int = 16,
    placement: str = "buddy",
) -> PagedAllocator | ContiguousAllocator:
    """Build one of the named allocators over an empty pool.

    Parameters
    ----------
    name : str
        One of ``ALLOCATORS``.
    capacity : int
        Slots of the pool.
    max_model_len : int
        Tokens of the longest request, prompt and output.
    max_num_seqs : int
        Rows.
    block_size : int
        Slots a block (paged placement).
    placement : {"buddy", "first-fit", "best-fit"}
        Where extents go (contiguous placement).

    Raises
    ------
    ConfigError
        A name is unknown, or a number is not positive.
    """
    if name not in ALLOCATORS:
        raise unknown("allocator", name, ALLOCATORS)
    reservation, paged = ALLOCATORS[name]
    if paged:
        return PagedAllocator(
            capacity, block_size, reservation=reservation, max_model_len=max_model_len, num_rows=max_num_seqs
        )
    return ContiguousAllocator(
        capacity, placement, reservation=reservation, max_model_len=max_model_len, num_rows=max_num_seqs
    )


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if not 1 <= number < MOST_SLOTS:
            raise ConfigError(f"{name} is {number}; a number from 1 to {MOST_SLOTS - 1} is expected")


def _known(row: int, rows: IntArray) -> None:
    """Refuse a row that a pool does not have: kernels would write beside their arrays."""
    if not 0 <= row < rows.shape[1]:
        raise ConfigError(f"row is {row}; a number from 0 to {rows.shape[1] - 1} is expected")


class PagedAllocator:
    """A pool cut into blocks of one size, handed out whole and in any order.

    Parameters
    ----------
    capacity : int
        Slots of the pool. Those that fill no whole block are lost.
    block_size : int
        Slots a block.
    reservation : {"on-demand", "max", "pow2", "oracle"}
        How much a request is given at admission.
    max_model_len : int
        Tokens of the longest request.
    num_rows : int
        Rows of the block table.

    Raises
    ------
    ConfigError
        A number is not positive, or the pool is smaller than a block.
    """

    placement = "paged"

    def __init__(
        self,
        capacity: int,
        block_size: int,
        *,
        reservation: str = "on-demand",
        max_model_len: int,
        num_rows: int = 256,
    ) -> None:
        _positive(capacity=capacity, block_size=block_size, max_model_len=max_model_len, num_rows=num_rows)
        if reservation not in RESERVATIONS:
            raise unknown("reservation", reservation, RESERVATIONS)
        num_blocks = capacity // block_size
        if num_blocks == 0:
            raise ConfigError(f"a pool of {capacity} slots is smaller than one block of {block_size}")
        counts = np.zeros(k.NUM_COUNTS, dtype=np.int64)
        counts[k.CAPACITY] = capacity
        counts[k.RESERVATION] = RESERVATIONS[reservation]
        counts[k.MAX_LEN] = max_model_len
        counts[k.BLOCK_SIZE] = block_size
        counts[k.NUM_BLOCKS] = counts[k.FREE] = num_blocks
        blocks_a_row = min(num_blocks, -(-max_model_len // block_size))
        self.block_size = block_size
        self.reservation = reservation
        self.state = k.Blocks(
            counts=counts,
            rows=np.zeros((4, num_rows), dtype=np.int64),
            stack=np.arange(num_blocks - 1, -1, -1, dtype=np.int32),
            refs=np.zeros(num_blocks, dtype=np.int16),
            table=np.zeros((num_rows, blocks_a_row), dtype=np.int32),
        )

    @property
    def capacity(self) -> int:
        """Slots of the pool."""
        return int(self.state.counts[k.CAPACITY])

    @property
    def free_slots(self) -> int:
        """Slots in free blocks."""
        return int(self.state.counts[k.FREE]) * self.block_size

    @property
    def largest_free(self) -> int:
        """Most slots that one request could be given now: all that are free."""
        return self.free_slots

    @property
    def largest_request(self) -> int:
        """Most slots that one request could be given in an empty pool."""
        return int(self.state.counts[k.NUM_BLOCKS]) * self.block_size

    @property
    def lost_slots(self) -> int:
        """Slots that fill no whole block."""
        return self.capacity - self.largest_request

    def reserve(self, row: int, num_tokens: int, final_tokens: int, keep_free: int = 0) -> int:
        """Give a row its blocks at admission, all or none.

        Parameters
        ----------
        row : int
            An empty row of the block table.
        num_tokens, final_tokens : int
            Tokens to hold now, and at the end.
        keep_free : int
            Slots that must stay free; a multiple of the block size.

        Returns
        -------
        int
            ``OK``, ``LATER`` (not enough is free) or ``NEVER`` (an empty pool would not do).
        """
        _known(row, self.state.rows)
        verdict: int = k.blocks_reserve(self.state, row, num_tokens, final_tokens, keep_free // self.block_size)
        return verdict

    def append(self, rows: IntArray, steps: int = 1) -> int:
        """Grow every row by a token an iteration, blocks going out in the order of ``rows``.

        Parameters
        ----------
        rows : int64 array, shape (batch,)
            Distinct rows, in (arrival, index) order.
        steps : int
            Iterations.

        Returns
        -------
        int
            Whole iterations done; less than ``steps`` when blocks ran short.
        """
        done: int = k.blocks_append(self.state, rows, steps)
        return done

    def free(self, row: int) -> int:
        """Take a row's blocks back, the last logical block first.

        Returns
        -------
        int
            Slots given back.
        """
        _known(row, self.state.rows)
        slots: int = k.blocks_free(self.state, row)
        return slots

    def held(self, row: int) -> int:
        """Slots in a row's blocks."""
        return int(self.state.rows[k.LIMIT, row])

    requested = held

    def can_serve(self, num_tokens: int, final_tokens: int) -> bool:
        """Whether an empty pool could serve this request to its end."""
        counts = self.state.counts
        asked = k.reservation(counts[k.RESERVATION], num_tokens, final_tokens, counts[k.MAX_LEN])
        return bool(max(asked, final_tokens) <= self.largest_request)

    def servable(self, prompt: IntArray, final: IntArray) -> npt.NDArray[np.bool_]:
        """Whether an empty pool could serve each request, shape (n,)."""
        return _servable(self, prompt, final)

    def blocked(self, num_tokens: int, final_tokens: int) -> bool:
        """Whether free slots are lost to external fragmentation: with blocks, never."""
        return False

    def table(self, row: int) -> IntArray:
        """Physical blocks of a row in logical order, shape (blocks,)."""
        return self.state.table[row, : self.state.rows[k.BLOCKS, row]].astype(np.int64)

    def totals(self) -> tuple[int, int, int, int]:
        """Slots used, promised (held and some day written), requested and held, over all rows."""
        counts = self.state.counts.tolist()
        return counts[k.USED], counts[k.PROMISED], counts[k.HELD], counts[k.HELD]

    def verify(self) -> None:
        """Recompute everything from the block tables.

        Raises
        ------
        InvariantError
            Naming what differs.
        """
        state, size = self.state, self.block_size
        owners = np.zeros_like(state.refs)
        for row in range(state.rows.shape[1]):
            tokens, final, limit, blocks = state.rows[:, row]
            _equal("slots held", limit, blocks * size, row)
            if blocks and not 0 < tokens <= min(limit, final):
                raise InvariantError("tokens written", expected=f"1..{min(limit, final)}", found=tokens, row=row)
            np.add.at(owners, self.table(row), 1)
        _equal("owners of each block", state.refs.tolist(), owners.tolist())
        free = state.stack[: state.counts[k.FREE]]
        _equal("free blocks", sorted(free.tolist()), np.flatnonzero(owners == 0).tolist())
        _verify_totals(self.totals(), state.rows, state.rows[k.LIMIT])


class ContiguousAllocator:
    """A pool from which each request gets one contiguous extent.

    Parameters
    ----------
    capacity : int
        Slots of the pool.
    placement : {"buddy", "first-fit", "best-fit"}
        Buddy: the pool is cut into maximal powers of two, the largest first; the smallest sufficient piece, the lowest
        of those, is halved as needed, the lower half kept. First-fit: the lowest extent that is large enough.
        Best-fit: the smallest, then the lowest.
    reservation : {"max", "pow2", "oracle"}
        How much a request is given at admission.
    max_model_len : int
        Tokens of the longest request.
    num_rows : int
        Requests that can be held at once.

    Raises
    ------
    ConfigError
        A number is not positive, a name is unknown, or ``reservation`` is ``on-demand``: an extent cannot grow.
    """

    def __init__(
        self,
        capacity: int,
        placement: str = "buddy",
        *,
        reservation: str,
        max_model_len: int,
        num_rows: int = 256,
    ) -> None:
        _positive(capacity=capacity, max_model_len=max_model_len, num_rows=num_rows)
        if placement not in CONTIGUOUS:
            raise unknown("contiguous placement", placement, CONTIGUOUS)
        if reservation not in RESERVATIONS:
            raise unknown("reservation", reservation, RESERVATIONS)
        if reservation == "on-demand":
            raise ConfigError("reservation 'on-demand' needs paged placement: a contiguous extent cannot grow")
        counts = np.zeros(k.NUM_COUNTS, dtype=np.int64)
        counts[k.CAPACITY] = counts[k.FREE] = capacity
        counts[k.RESERVATION] = RESERVATIONS[reservation]
        counts[k.MAX_LEN] = max_model_len
        counts[k.PLACEMENT] = PLACEMENTS[placement]
        self.placement = placement
        self.reservation = reservation
        self.state = k.Extents(
            counts=counts,
            rows=np.zeros((5, num_rows), dtype=np.int64),
            **_free_space(placement, capacity),
        )
        self._enter_empty_pool()

    def _enter_empty_pool(self) -> None:
        """Enter all slots as free: one extent, or the maximal powers of two."""
        if self.placement != "buddy":
            k.extents_put(self.state, 0, self.capacity)
            return
        start = 0
        for order in range(self.capacity.bit_length() - 1, -1, -1):
            if self.capacity >> order & 1:
                k.buddy_put(self.state, order, start)
                start += 1 << order

    @property
    def capacity(self) -> int:
        """Slots of the pool."""
        return int(self.state.counts[k.CAPACITY])

    @property
    def free_slots(self) -> int:
        """Slots in free extents."""
        return int(self.state.counts[k.FREE])

    @property
    def largest_free(self) -> int:
        """Length of the largest free extent."""
        return int(k.extents_largest(self.state))

    @property
    def largest_request(self) -> int:
        """Length of the largest extent of an empty pool."""
        return 1 << (self.capacity.bit_length() - 1) if self.placement == "buddy" else self.capacity

    lost_slots = 0

    def reserve(self, row: int, num_tokens: int, final_tokens: int, keep_free: int = 0) -> int:
        """Give a row its extent at admission.

        Parameters
        ----------
        row : int
            An empty row.
        num_tokens, final_tokens : int
            Tokens to hold now, and at the end.
        keep_free : int
            Not used: the watermark is for pools that grow on demand.

        Returns
        -------
        int
            ``OK``, ``LATER`` (no extent is large enough) or ``NEVER`` (an empty pool would not do).
        """
        _known(row, self.state.rows)
        verdict: int = k.extents_reserve(self.state, row, num_tokens, final_tokens)
        return verdict

    def append(self, rows: IntArray, steps: int = 1) -> int:
        """Grow every row by a token an iteration inside its extent.

        Parameters
        ----------
        rows : int64 array, shape (batch,)
            Distinct rows.
        steps : int
            Iterations.

        Returns
        -------
        int
            Whole iterations done; less than ``steps`` when an extent is full.
        """
        done: int = k.extents_append(self.state, rows, steps)
        return done

    def free(self, row: int) -> int:
        """Take a row's extent back and merge it with its neighbours.

        Returns
        -------
        int
            Slots given back.
        """
        _known(row, self.state.rows)
        slots: int = k.extents_free(self.state, row)
        return slots

    def held(self, row: int) -> int:
        """Slots of a row's extent."""
        return int(self.state.rows[k.SIZE, row])

    def requested(self, row: int) -> int:
        """Slots that the row asked for; buddy may hold more."""
        return int(self.state.rows[k.LIMIT, row])

    def can_serve(self, num_tokens: int, final_tokens: int) -> bool:
        """Whether an empty pool could serve this request to its end."""
        return bool(k.extents_servable(self.state, self.asked(num_tokens, final_tokens)))

    def servable(self, prompt: IntArray, final: IntArray) -> npt.NDArray[np.bool_]:
        """Whether an empty pool could serve each request, shape (n,)."""
        return _servable(self, prompt, final)

    def asked(self, num_tokens: int, final_tokens: int) -> int:
        """Slots that a request would ask for, unrounded."""
        counts = self.state.counts
        return int(k.reservation(counts[k.RESERVATION], num_tokens, final_tokens, counts[k.MAX_LEN]))

    def blocked(self, num_tokens: int, final_tokens: int) -> bool:
        """Whether enough slots are free for a request and yet no extent serves it: external fragmentation."""
        return bool(k.extents_blocked(self.state, self.asked(num_tokens, final_tokens)))

    def extent(self, row: int) -> tuple[int, int]:
        """First slot and length of a row's extent."""
        return int(self.state.rows[k.START, row]), int(self.state.rows[k.SIZE, row])

    def totals(self) -> tuple[int, int, int, int]:
        """Slots used, promised (held and some day written), requested and held, over all rows."""
        counts = self.state.counts.tolist()
        return counts[k.USED], counts[k.PROMISED], counts[k.REQUESTED], counts[k.HELD]

    def free_extents(self) -> list[tuple[int, int]]:
        """(first slot, length) of every free extent, by address."""
        state = self.state
        if self.placement == "buddy":
            return sorted(
                (int(index) << order, 1 << order)
                for order in range(self.capacity.bit_length())
                for index in self._free_pieces(order)
            )
        return [(int(start), int(state.sizes[start])) for start in np.flatnonzero(state.sizes)]

    def _free_pieces(self, order: int) -> IntArray:
        """Positions, in units of the piece, of the free pieces of a buddy order."""
        first = self.state.levels[order, 0]
        words = self.state.tree[first : first + -(-(self.capacity >> order) // k.WORD_BITS)]
        return np.flatnonzero((words[:, None] >> np.arange(k.WORD_BITS)) & 1)

    def verify(self) -> None:
        """Recompute everything from the rows.

        Raises
        ------
        InvariantError
            Naming what differs.
        """
        state = self.state
        for row in range(state.rows.shape[1]):
            tokens, final, limit, _, size = state.rows[:, row]
            if size and not 0 < tokens <= final <= limit <= size:
                raise InvariantError("tokens <= final <= requested <= held", expected="this order",
                                     found=[int(x) for x in (tokens, final, limit, size)], row=row)  # fmt: skip
        taken = [self.extent(int(row)) for row in np.flatnonzero(state.rows[k.SIZE])]
        free = self.free_extents()
        position = 0
        for start, size in sorted([*taken, *free]):
            _equal("extents side by side", start, position)
            position = start + size
        _equal("end of the last extent", position, self.capacity)
        _equal("free slots", self.free_slots, sum(size for _, size in free))
        _equal("largest free extent", self.largest_free, max((size for _, size in free), default=0))
        if self.placement == "buddy":
            self._verify_pieces(free)
        else:
            for (start, size), (after, _) in pairwise(free):
                if start + size == after:
                    raise InvariantError("free extents merged", expected="one", found=[start, after])
        if self.placement == "best-fit":
            self._verify_treap(free)
        _verify_totals(self.totals(), state.rows, state.rows[k.SIZE])

    def _verify_pieces(self, free: Sequence[tuple[int, int]]) -> None:
        """Check that free pieces are aligned, and none lies beside its free buddy of the same original piece."""
        pieces = set(free)
        for start, size in free:
            _equal("alignment of a piece", start % size, 0)
            low = start & ~size
            if (start ^ size, size) in pieces and low + 2 * size <= self.capacity:
                raise InvariantError("free buddies merged", expected="one piece", found=[start, start ^ size])

    def _verify_treap(self, free: Sequence[tuple[int, int]]) -> None:
        """Check the order of the treap, and that it holds the free extents and no others."""
        state, seen = self.state, []

        def visit(node: int) -> None:
            if node == k.NIL:
                return
            for side in (0, 1):
                below = state.child[side, node]
                if below != k.NIL and k.priority(below) > k.priority(node):
                    raise InvariantError("treap priorities", expected=f"below {node}", found=int(below))
            visit(state.child[0, node])
            seen.append((int(state.sizes[node]), int(node)))
            visit(state.child[1, node])

        visit(state.child[0, len(state.sizes) - 1])
        _equal("treap by (size, address)", seen, sorted((size, start) for start, size in free))


def _servable(
    allocator: PagedAllocator | ContiguousAllocator, prompt: IntArray, final: IntArray
) -> npt.NDArray[np.bool_]:
    """Compare what each request would be given, and will hold, with the most that an empty pool has for one."""
    longest = int(allocator.state.counts[k.MAX_LEN])
    asked = final
    if allocator.reservation == "max":
        asked = np.maximum(final, longest)
    elif allocator.reservation == "pow2":
        # frexp gives the bits of output - 1, and so the next power of two without a logarithm
        bucket = np.left_shift(1, np.frexp(final - prompt)[1].astype(np.int64))
        asked = np.maximum(final, np.minimum(longest, prompt + bucket))
    return np.asarray(asked <= allocator.largest_request)


def _free_space(placement: str, capacity: int) -> dict[str, Any]:
    """Arrays for the free extents of a placement, all empty."""
    num_sizes = -(-(capacity + 2) // k.FAN) * k.FAN
    sizes = np.zeros(num_sizes if placement != "buddy" else 0, dtype=np.int64)
    ends = np.full(capacity + 1 if placement != "buddy" else 0, k.NIL, dtype=np.int64)
    child = np.full((2, num_sizes if placement == "best-fit" else 0), k.NIL, dtype=np.int64)
    layout: dict[str, Callable[[int], tuple[IntArray, int]]]
    layout = {"buddy": _bit_levels, "first-fit": _tree_levels, "best-fit": _no_levels}
    levels, total = layout[placement](capacity)
    return {"sizes": sizes, "ends": ends, "child": child, "tree": np.zeros(total, dtype=np.int64), "levels": levels}


def _bit_levels(capacity: int) -> tuple[IntArray, int]:
    """Offsets of the bit sets of every order, shape (orders, depth), and the words in all."""
    orders, depth, total = capacity.bit_length(), 1, 0
    while 1 << (depth * k.WORD_SHIFT) < capacity:
        depth += 1
    levels = np.zeros((orders, depth), dtype=np.int64)
    for order in range(orders):
        words = capacity >> order
        for level in range(depth):
            words = -(-words // k.WORD_BITS)
            levels[order, level] = total
            total += words
    return levels, total


def _tree_levels(capacity: int) -> tuple[IntArray, int]:
    """Offsets of the levels of maxima, shape (depth, 1), and the nodes in all."""
    offsets, nodes, total = [], capacity + 2, 0
    while nodes > 1:
        nodes = -(-nodes // k.FAN)
        offsets.append(total)
        total += -(-nodes // k.FAN) * k.FAN
    return np.array(offsets, dtype=np.int64).reshape(-1, 1), total


def _no_levels(capacity: int) -> tuple[IntArray, int]:  # noqa: ARG001
    return np.zeros((0, 0), dtype=np.int64), 0


def _verify_totals(totals: tuple[int, int, int, int], rows: IntArray, held: IntArray) -> None:
    """Check the running totals against their sums over the rows."""
    used = int(rows[k.TOKENS].sum())
    promised = int(np.minimum(rows[k.FINAL], rows[k.LIMIT]).sum())
    expected = (used, promised, int(rows[k.LIMIT].sum()), int(held.sum()))
    _equal("totals (used, promised, requested, held)", totals, expected)


def _equal(what: str, found: object, expected: object, row: int | None = None) -> None:
    if found != expected:
        raise InvariantError(what, expected=expected, found=found, row=row)
