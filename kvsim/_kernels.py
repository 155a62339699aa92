"""The hot part: flat int64 arrays in, integers out.

This is the only file that imports numba, and all compiled functions stand here, because numba's disk cache notices
edits only in the file of the function that it cached. Kernels never raise: being out of memory is a value.

From top to bottom: small things (reservations, bit sets, trees); ``Blocks``, a pool in blocks; ``Extents``, a
contiguous pool; ``Run``, a simulated server with its accounts; ``advance``, which runs it. A name in capitals is an
index into the array that it is defined beside. The three states are NamedTuples of arrays, since numba caches
functions of those and passing one costs about 2 us.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

# Without reference counting (`_nrt`) an array costs nothing to take out of a tuple, which makes everything three times
# faster; in exchange no kernel may allocate. The GIL is released, so that threads can simulate side by side.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
_uncached_said = False


F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function that Python calls; its machine code is kept on disk where a folder for that can be written."""
    return cast(F, _compiled(function, forceinline=True))


def inlined(function: F) -> F:
    """Compile a function that only kernels call, and melt it into them: passing our tuples would cost more than it."""
    return cast(F, _compiled(function, forceinline=True, no_cpython_wrapper=True))


def aside(function: F) -> F:
    """Compile a function that only kernels call, and seldom: it stays by itself, which keeps them small."""
    return cast(F, _compiled(function, no_cpython_wrapper=True))


def merged(function: F) -> F:
    """Write a function that is called in one place only into its caller before that is compiled: it compiles once."""
    return cast(F, _compiled(function, inline="always"))


def _compiled(function: Any, **options: Any) -> Any:
    global _uncached_said
    try:
        return numba.njit(cache=True, **_OPTIONS, **options)(function)
    except RuntimeError:  # numba found no folder that it can write
        if not _uncached_said:
            _uncached_said = True
            print("kvsim: no writable cache folder; kernels are compiled in every process", file=sys.stderr)
        return numba.njit(**_OPTIONS, **options)(function)


# --- verdicts, reservations, placements --------------------------------------------------------------------------

OK, LATER, NEVER = 0, 1, 2
ON_DEMAND, MAX, POW2, ORACLE = 0, 1, 2, 3
PAGED, BUDDY, FIRST_FIT, BEST_FIT = 0, 1, 2, 3

NIL = -1
FOREVER = 2**62
LIMB = 2**62  # an integral is hi * LIMB + lo


@inlined
def index(number: int) -> Any:
    """Return a number that is at least 0 as an index in a hot loop: of a signed one, numba asks each time if it is."""
    return np.uint64(number)


@kernel
def reservation(kind: int, num_tokens: int, final_tokens: int, max_model_len: int) -> int:
    """Slots asked for at admission. Only pow2 (at its bucket) and oracle look at the future length."""
    if kind == MAX:
        return max_model_len
    if kind == POW2:
        output = final_tokens - num_tokens + 1
        bucket = 1
        while bucket < output:
            bucket <<= 1
        return min(max_model_len, num_tokens + bucket)
    if kind == ORACLE:
        return final_tokens
    return num_tokens


# Kinds of latency models: the first of their parameters. What follows it is
#   AFFINE    ns: fixed, a sequence, a prefill token, a context token
#   ROOFLINE  the same four (none a prefill token), then ns to read the weights and ns to compute a token
#   MEASURED  lengths of the axes batch, prefill and context; the axes; times in ns, in C order
AFFINE, ROOFLINE, MEASURED = 0, 1, 2


@kernel
def iteration_ns(latency: npt.NDArray[np.float64], batch: int, prefill: int, context: int) -> np.int64:
    """Length of an iteration: the one place where both steppers get it from, so that they agree to the bit."""
    if latency[0] == MEASURED:
        return np.int64(np.rint(max(measured_ns(latency, batch, prefill, context), 1.0)))
    ns = latency[1] + latency[2] * batch + latency[3] * prefill + latency[4] * context
    if latency[0] == ROOFLINE:
        ns += max(latency[5], latency[6] * (batch + prefill))
    return np.int64(np.rint(ns))


@aside
def measured_ns(latency: npt.NDArray[np.float64], batch: int, prefill: int, context: int) -> float:
    """Trilinear interpolation in a grid of step times, continued on from its last two points."""
    nb, np_, nc = int(latency[1]), int(latency[2]), int(latency[3])
    b, share_b = place_on_axis(latency, 4 + nb, nb, batch)
    p, share_p = place_on_axis(latency, 4 + nb + np_, np_, prefill)
    c, share_c = place_on_axis(latency, 4 + nb + np_ + nc, nc, context)
    first = 4 + nb + np_ + nc
    ns = 0.0
    for corner in range(8):
        ib, ip, ic = corner >> 2, (corner >> 1) & 1, corner & 1
        weight = share_b if ib else 1.0 - share_b
        weight *= share_p if ip else 1.0 - share_p
        weight *= share_c if ic else 1.0 - share_c
        if weight != 0.0:
            ns += weight * latency[first + ((b + ib) * np_ + p + ip) * nc + c + ic]
    return ns


@aside
def place_on_axis(latency: npt.NDArray[np.float64], end: int, length: int, value: int) -> tuple[int, float]:
    """Cell of the axis before ``end`` that a value lies in, or is nearest to, and how far in it; 0, 0 without any."""
    first, low, high = end - length, 0, length - 1
    if high == 0:
        return 0, 0.0
    while high - low > 1:
        middle = (low + high) // 2
        if latency[first + middle] <= value:
            low = middle
        else:
            high = middle
    start, stop = latency[first + low], latency[first + low + 1]
    return low, (value - start) / (stop - start)


PRIME = 2147483647  # 2^31 - 1 leaves room for every product in an int64
MULTIPLIERS = (1000003, 69621)


@inlined
def mix(iteration: int, request: int, logical: int, physical: int, multiplier: int) -> int:
    """Hash four integers modulo a prime."""
    h = (iteration * multiplier + request) % PRIME
    h = (h * multiplier + logical) % PRIME
    h = (h * multiplier + physical) % PRIME
    return (h * h + multiplier) % PRIME


@aside
def digest(digests: IntArray, iteration: int, request: int, logical: int, physical: int) -> None:
    """Add an entry of a block table (or an extent) to the two halves of the hash of all that were ever held."""
    for half in range(2):
        digests[half] = (digests[half] + mix(iteration, request, logical, physical, MULTIPLIERS[half])) % PRIME


@kernel
def digest_entries(digests: IntArray, iteration: int, request: int, first: int, entries: IntArray) -> None:
    """Add consecutive entries of a block table."""
    for i in range(len(entries)):
        digest(digests, iteration, request, first + i, entries[i])


# --- bit scans ---------------------------------------------------------------------------------------------------

WORD_BITS = 32
WORD_SHIFT = 5
# the powers of two below 2^32 differ modulo 37: a table lookup finds the bit
_BIT_OF = np.zeros(37, dtype=np.int64)
for _bit in range(WORD_BITS):
    _BIT_OF[(1 << _bit) % 37] = _bit


@inlined
def lowest_bit(word: int) -> int:
    """Index of the lowest set bit of 0 < word < 2^32."""
    return _BIT_OF[(word & -word) % 37]


@inlined
def highest_bit(word: int) -> int:
    """Index of the highest set bit of 0 < word < 2^62."""
    bit = 0
    step = 32
    while step:
        if word >> step:
            word >>= step
            bit += step
        step >>= 1
    return bit


@inlined
def ceil_order(size: int) -> int:
    """Smallest k with 2^k >= size."""
    return highest_bit(2 * size - 1)


# --- Blocks: a pool cut into blocks of one size ------------------------------------------------------------------
#
#   block table (block size 4)          pool
#   row 0: [ 3, 1 ]  6 tokens           0 free   1 row 0: t4 t5 .. ..   2 row 1: t0 t1 .. ..   3 row 0: t0 t1 t2 t3

# counts, of both kinds of pool; USED to HELD as their integrals
CAPACITY, RESERVATION, MAX_LEN, USED, PROMISED, REQUESTED, HELD, FREE = range(8)
BLOCK_SIZE, NUM_BLOCKS = 8, 9  # Blocks; FREE counts blocks
PLACEMENT, ROOT, ORDERS = 8, 9, 10  # Extents; FREE counts slots, ORDERS is a mask of buddy orders with a free piece
NUM_COUNTS = 11

# rows, of both kinds: tokens written, tokens at the end, slots asked for
TOKENS, FINAL, LIMIT = 0, 1, 2
BLOCKS = 3  # Blocks: number of blocks
START, SIZE = 3, 4  # Extents: first slot, slots held


class Blocks(NamedTuple):
    """A pool in blocks.

    ``counts`` (11,); ``rows`` (4, rows); ``stack`` (blocks,) with the free ones on ``stack[:counts[FREE]]``, the top
    last; ``refs`` (blocks,) owners of each block; ``table`` (rows, blocks a row). What there is of each block is kept
    small: with blocks of one slot, its way through the caches is what takes the time.
    """

    counts: IntArray
    rows: IntArray
    stack: npt.NDArray[np.int32]
    refs: npt.NDArray[np.int16]
    table: npt.NDArray[np.int32]


@inlined
def blocks_take(pool: Blocks, row: int, num_blocks: int) -> None:
    """Move blocks from the top of the stack to the end of a row's table; the caller knows that there are enough."""
    row = index(row)
    have = pool.rows[BLOCKS, row]
    top = pool.counts[FREE]
    for i in range(num_blocks):
        block = pool.stack[index(top - 1 - i)]
        pool.refs[index(block)] = 1
        pool.table[row, index(have + i)] = block
    pool.counts[FREE] = top - num_blocks
    pool.rows[BLOCKS, row] = have + num_blocks
    limit = pool.rows[LIMIT, row]
    slots = num_blocks * pool.counts[BLOCK_SIZE]
    final = pool.rows[FINAL, row]
    pool.rows[LIMIT, row] = limit + slots
    pool.counts[HELD] += slots
    pool.counts[PROMISED] += min(final, limit + slots) - min(final, limit)


@kernel
def blocks_reserve(pool: Blocks, row: int, num_tokens: int, final_tokens: int, keep_free: int) -> int:
    """Give a row its blocks at admission, all or none, leaving ``keep_free`` blocks free."""
    counts, rows = pool.counts, pool.rows
    size = counts[BLOCK_SIZE]
    asked = reservation(counts[RESERVATION], num_tokens, final_tokens, counts[MAX_LEN])
    if (max(asked, final_tokens) + size - 1) // size > counts[NUM_BLOCKS]:
        return NEVER
    needed = (asked + size - 1) // size
    if needed + keep_free > counts[FREE]:
        return LATER
    rows[TOKENS, row] = num_tokens
    rows[FINAL, row] = final_tokens
    rows[LIMIT, row] = 0
    rows[BLOCKS, row] = 0
    blocks_take(pool, row, needed)
    counts[USED] += num_tokens
    return OK


@kernel
def blocks_append(pool: Blocks, order: IntArray, steps: int) -> int:
    """Grow every row in ``order`` by up to ``steps`` tokens, one iteration at a time; return the whole iterations."""
    counts, rows = pool.counts, pool.rows
    size = counts[BLOCK_SIZE]
    num_rows = len(order)
    used_before = counts[USED]
    done = 0
    while done < steps:
        crossing = 0
        for i in range(num_rows):
            row = order[i]
            crossing += rows[TOKENS, row] == rows[LIMIT, row]
        if crossing > counts[FREE]:
            break
        top = counts[FREE]
        for i in range(num_rows):
            row = order[i]
            tokens = rows[TOKENS, row]
            limit = rows[LIMIT, row]
            rows[TOKENS, row] = tokens + 1
            if tokens == limit:
                top -= 1
                block = pool.stack[top]
                pool.refs[block] = 1
                pool.table[row, rows[BLOCKS, row]] = block
                rows[BLOCKS, row] += 1
                rows[LIMIT, row] = limit + size
                counts[PROMISED] += min(size, rows[FINAL, row] - limit)
        counts[FREE] = top
        counts[HELD] += crossing * size
        done += 1
    counts[USED] = used_before + done * num_rows
    return done


@kernel
def blocks_free(pool: Blocks, row: int) -> int:
    """Take a row's blocks back, the last logical block first; return the slots."""
    counts, rows = pool.counts, pool.rows
    row = index(row)
    top = counts[FREE]
    for i in range(rows[BLOCKS, row] - 1, -1, -1):
        block = pool.table[row, index(i)]
        pool.refs[index(block)] -= 1
        if pool.refs[index(block)] == 0:
            pool.stack[index(top)] = block
            top += 1
    counts[FREE] = top
    slots = rows[LIMIT, row]
    counts[USED] -= rows[TOKENS, row]
    counts[PROMISED] -= min(rows[FINAL, row], slots)
    counts[HELD] -= slots
    for i in range(len(rows)):
        rows[i, row] = 0
    return slots


# --- Extents: a contiguous pool ----------------------------------------------------------------------------------


class Extents(NamedTuple):
    """A pool of contiguous extents.

    ``counts`` (11,); ``rows`` (5, rows). A free extent is known by its first slot: ``sizes`` has its length there (0
    elsewhere), ``ends`` has its first slot at its end. First-fit: above ``sizes``, ``tree`` holds the maximum of every
    16 entries, level on level, at offsets ``levels`` (depth, 1). Best-fit: ``child`` (2, as ``sizes``) is a treap of
    the free extents by (size, address). Buddy: ``tree`` is a set of bits for each order, with a summary bit for 32
    bits below, level on level, at offsets ``levels`` (orders, depth).
    """

    counts: IntArray
    rows: IntArray
    sizes: IntArray
    ends: IntArray
    tree: IntArray
    levels: IntArray
    child: IntArray


# Buddy. Pieces are powers of two, at multiples of their size. Because the pool is cut into maximal powers of two, the
# largest first, a piece and its buddy come from one original piece if and only if the two together end inside the pool.


@kernel
def buddy_put(pool: Extents, order: int, start: int) -> None:
    """Enter a free piece."""
    index = start >> order
    for level in range(pool.levels.shape[1]):
        word = pool.levels[order, level] + (index >> WORD_SHIFT)
        before = pool.tree[word]
        pool.tree[word] = before | (1 << (index & (WORD_BITS - 1)))
        if before:
            return
        index >>= WORD_SHIFT
    pool.counts[ORDERS] |= 1 << order


@inlined
def buddy_drop(pool: Extents, order: int, start: int) -> None:
    """Strike out a free piece."""
    index = start >> order
    for level in range(pool.levels.shape[1]):
        word = pool.levels[order, level] + (index >> WORD_SHIFT)
        pool.tree[word] &= ~(1 << (index & (WORD_BITS - 1)))
        if pool.tree[word]:
            return
        index >>= WORD_SHIFT
    pool.counts[ORDERS] &= ~(1 << order)


@merged
def buddy_has(pool: Extents, order: int, start: int) -> bool:
    """Whether this piece is free as a whole and not part of a larger one."""
    node = start >> order
    return (pool.tree[pool.levels[order, 0] + (node >> WORD_SHIFT)] >> (node & (WORD_BITS - 1))) & 1 != 0


@merged
def buddy_lowest(pool: Extents, order: int) -> int:
    """First slot of the lowest free piece of an order that has one."""
    node = 0
    for level in range(pool.levels.shape[1] - 1, -1, -1):
        node = (node << WORD_SHIFT) + lowest_bit(pool.tree[pool.levels[order, level] + node])
    return node << order


@merged
def buddy_take(pool: Extents, order: int) -> int:
    """Cut a piece of an order from the smallest that is large enough, keeping the lower half at each cut."""
    larger = pool.counts[ORDERS] >> order
    if larger == 0:
        return NIL
    have = order + lowest_bit(larger)
    start = buddy_lowest(pool, have)
    buddy_drop(pool, have, start)
    while have > order:
        have -= 1
        buddy_put(pool, have, start + (1 << have))
    return start


@merged
def buddy_give(pool: Extents, order: int, start: int) -> None:
    """Take a piece back and merge it with its buddy as long as that is free."""
    while True:
        low = start & ~(1 << order)
        if low + (2 << order) > pool.counts[CAPACITY] or not buddy_has(pool, order, start ^ (1 << order)):
            break
        buddy_drop(pool, order, start ^ (1 << order))
        start = low
        order += 1
    buddy_put(pool, order, start)


# First-fit: a tree over positions, each node the maximum of 16 below.

FAN = 16
FAN_SHIFT = 4


@inlined
def largest_of(values: IntArray, first: int) -> int:
    """Maximum of FAN entries, none of them negative."""
    largest = 0
    for i in range(FAN):
        largest = max(largest, values[index(first + i)])
    return largest


@inlined
def tree_set(pool: Extents, start: int, size: int) -> None:
    """Set the length of the free extent at a position (0: there is none) and the maxima above it.

    What is below a node is looked through only if its maximum was there and shrank.
    """
    before, now = pool.sizes[index(start)], size
    pool.sizes[index(start)] = size
    node = start
    for level in range(len(pool.levels)):
        node >>= FAN_SHIFT
        here = index(pool.levels[level, 0] + node)
        maximum = pool.tree[here]
        if now < maximum:
            if before < maximum:
                return
            if level == 0:
                now = largest_of(pool.sizes, node << FAN_SHIFT)
            else:
                now = largest_of(pool.tree, pool.levels[level - 1, 0] + (node << FAN_SHIFT))
        if now == maximum:
            return
        pool.tree[here] = now
        before = maximum


@merged
def tree_first(pool: Extents, size: int) -> int:
    """Lowest position with a free extent of at least ``size`` slots."""
    node = 0
    if pool.tree[pool.levels[len(pool.levels) - 1, 0]] < size:
        return NIL
    for level in range(len(pool.levels) - 2, -1, -1):
        node <<= FAN_SHIFT
        while pool.tree[index(pool.levels[level, 0] + node)] < size:
            node += 1
    node <<= FAN_SHIFT
    while pool.sizes[index(node)] < size:
        node += 1
    return node


# Best-fit: a treap by (size, address). Position `capacity + 1` is the anchor, whose left child is the root.


@kernel
def priority(start: int) -> int:
    """Pseudo-random rank of a treap node, from its address alone."""
    h = (start * 2654435761) & 0xFFFFFFFF
    h ^= h >> 15
    h = (h * 2146121005) & 0xFFFFFFFF
    return ((h ^ (h >> 13)) << 31) + start


@merged
def treap_put(pool: Extents, start: int, size: int) -> None:
    """Enter a free extent."""
    sizes, child = pool.sizes, pool.child
    sizes[start] = size
    parent, side = len(sizes) - 1, 0
    node = child[side, parent]
    rank = priority(start)
    while node != NIL and priority(node) > rank:
        side = 1 if (sizes[node] < size or (sizes[node] == size and node < start)) else 0
        parent = node
        node = child[side, parent]
    child[side, parent] = start
    low, low_side, high, high_side = start, 0, start, 1
    while node != NIL:  # split what hung here by the new key
        if sizes[node] < size or (sizes[node] == size and node < start):
            child[low_side, low] = node
            low, low_side = node, 1
            node = child[1, node]
        else:
            child[high_side, high] = node
            high, high_side = node, 0
            node = child[0, node]
    child[low_side, low] = NIL
    child[high_side, high] = NIL


@inlined
def treap_drop(pool: Extents, start: int) -> None:
    """Strike out a free extent."""
    sizes, child = pool.sizes, pool.child
    size = sizes[start]
    parent, side = len(sizes) - 1, 0
    node = child[side, parent]
    while node != start:
        side = 1 if (sizes[node] < size or (sizes[node] == size and node < start)) else 0
        parent = node
        node = child[side, parent]
    left, right = child[0, start], child[1, start]
    while left != NIL and right != NIL:  # merge what hung below it
        if priority(left) > priority(right):
            child[side, parent] = left
            parent, side = left, 1
            left = child[1, left]
        else:
            child[side, parent] = right
            parent, side = right, 0
            right = child[0, right]
    child[side, parent] = left if right == NIL else right
    sizes[start] = 0


@merged
def treap_first(pool: Extents, size: int) -> int:
    """Smallest free extent of at least ``size`` slots, the lowest of those."""
    best = NIL
    node = pool.child[0, len(pool.sizes) - 1]
    while node != NIL:
        if pool.sizes[node] >= size:
            best = node
            node = pool.child[0, node]
        else:
            node = pool.child[1, node]
    return best


# What the three placements have in common.


@kernel
def extents_put(pool: Extents, start: int, size: int) -> None:
    """Enter a free extent (first-fit, best-fit)."""
    pool.ends[start + size] = start
    if pool.counts[PLACEMENT] == FIRST_FIT:
        tree_set(pool, start, size)
    else:
        if pool.sizes[index(start)]:
            treap_drop(pool, start)
        treap_put(pool, start, size)


@inlined
def extents_drop(pool: Extents, start: int) -> None:
    """Strike out a free extent (first-fit, best-fit)."""
    if pool.counts[PLACEMENT] == FIRST_FIT:
        tree_set(pool, start, 0)
    else:
        treap_drop(pool, start)


@merged
def extents_take(pool: Extents, size: int) -> int:
    """Cut ``size`` slots from the lower end of a free extent; return the first slot, or NIL."""
    if pool.counts[PLACEMENT] == BUDDY:
        return buddy_take(pool, ceil_order(size))
    start = tree_first(pool, size) if pool.counts[PLACEMENT] == FIRST_FIT else treap_first(pool, size)
    if start == NIL:
        return NIL
    rest = pool.sizes[start] - size
    if rest:
        extents_put(pool, start + size, rest)
    extents_drop(pool, start)
    return start


@merged
def extents_give(pool: Extents, start: int, size: int) -> None:
    """Take slots back and merge them with the free extents beside them."""
    if pool.counts[PLACEMENT] == BUDDY:
        buddy_give(pool, highest_bit(size), start)
        return
    after = start + size
    before = pool.ends[index(start)]  # may be stale: it counts only if the extent there still ends here
    if before != NIL and pool.sizes[index(before)] and before + pool.sizes[index(before)] == start:
        start = before
        size += pool.sizes[index(before)]
    if after < pool.counts[CAPACITY] and pool.sizes[index(after)]:
        extents_put(pool, start, size + pool.sizes[index(after)])
        extents_drop(pool, after)
    else:
        extents_put(pool, start, size)


@inlined
def extents_held(pool: Extents, asked: int) -> int:
    """Slots that an extent for ``asked`` slots occupies: buddy rounds up to a power of two."""
    return 1 << ceil_order(asked) if pool.counts[PLACEMENT] == BUDDY else asked


@kernel
def extents_largest(pool: Extents) -> int:
    """Length of the largest free extent, 0 if there is none."""
    if pool.counts[PLACEMENT] == BUDDY:
        return 1 << highest_bit(pool.counts[ORDERS]) if pool.counts[ORDERS] else 0
    if pool.counts[PLACEMENT] == FIRST_FIT:
        return pool.tree[pool.levels[len(pool.levels) - 1, 0]]
    node, largest = pool.child[0, len(pool.sizes) - 1], 0
    while node != NIL:
        largest = pool.sizes[node]
        node = pool.child[1, node]
    return largest


@kernel
def extents_servable(pool: Extents, asked: int) -> bool:
    """Whether an empty pool has an extent for ``asked`` slots."""
    capacity = pool.counts[CAPACITY]
    return extents_held(pool, asked) <= (1 << highest_bit(capacity) if pool.counts[PLACEMENT] == BUDDY else capacity)


@kernel
def extents_reserve(pool: Extents, row: int, num_tokens: int, final_tokens: int) -> int:
    """Give a row its extent at admission."""
    counts, rows = pool.counts, pool.rows
    asked = reservation(counts[RESERVATION], num_tokens, final_tokens, counts[MAX_LEN])
    if not extents_servable(pool, asked):
        return NEVER
    start = extents_take(pool, asked)
    if start == NIL:
        return LATER
    held = extents_held(pool, asked)
    rows[TOKENS, row] = num_tokens
    rows[FINAL, row] = final_tokens
    rows[LIMIT, row] = asked
    rows[START, row] = start
    rows[SIZE, row] = held
    counts[FREE] -= held
    counts[USED] += num_tokens
    counts[PROMISED] += final_tokens
    counts[REQUESTED] += asked
    counts[HELD] += held
    return OK


@kernel
def extents_append(pool: Extents, order: IntArray, steps: int) -> int:
    """Grow every row in ``order`` inside its extent by up to ``steps`` tokens; return the whole iterations."""
    rows = pool.rows
    done = steps
    for i in range(len(order)):
        done = min(done, rows[LIMIT, order[i]] - rows[TOKENS, order[i]])
    for i in range(len(order)):
        rows[TOKENS, order[i]] += done
    pool.counts[USED] += done * len(order)
    return done


@kernel
def extents_free(pool: Extents, row: int) -> int:
    """Take a row's extent back; return the slots."""
    counts, rows = pool.counts, pool.rows
    size = rows[SIZE, row]
    extents_give(pool, rows[START, row], size)
    counts[FREE] += size
    counts[USED] -= rows[TOKENS, row]
    counts[PROMISED] -= rows[FINAL, row]
    counts[REQUESTED] -= rows[LIMIT, row]
    counts[HELD] -= size
    rows[:, row] = 0
    return size


@kernel
def extents_blocked(pool: Extents, asked: int) -> bool:
    """Whether ``asked`` slots are free in all, and yet no extent serves them: external fragmentation."""
    return asked <= pool.counts[FREE] and extents_held(pool, asked) > extents_largest(pool)


# --- accounts ----------------------------------------------------------------------------------------------------

# Integrals over time, two limbs each: slots x ns (the first five) and requests x ns.
USED_NS, PROMISED_NS, REQUESTED_NS, HELD_NS, BLOCKED_NS, RUNNING_NS, WAITING_NS = 0, 2, 4, 6, 8, 10, 12
NUM_INTEGRALS = 7
# Nanoseconds in which memory, the sequence cap or the token budget kept the head of the queue out; then plain counters.
MEMORY_NS, SEQS_NS, BUDGET_NS = 14, 15, 16
ITERATIONS, SEQUENCES, GENERATED, ADMISSIONS, PREEMPTIONS, RECOMPUTED, FINISHED = 17, 18, 19, 20, 21, 22, 23
ACCOUNT_LENGTH = 24

BY_ARRIVALS, BY_MEMORY, BY_SEQS, BY_BUDGET = 0, 1, 2, 3


@inlined
def add(account: IntArray, integral: int, amount: int) -> None:
    """Add 0 <= amount < 2^62 to a two-limb integral."""
    low = account[integral + 1] + amount
    if low >= LIMB:
        low -= LIMB
        account[integral] += 1
    account[integral + 1] = low


@inlined
def add_product(account: IntArray, integral: int, value: int, ns: int) -> None:
    """Add value x ns for 0 <= value < 2^31 and 0 <= ns < 2^62."""
    if ns >> 31:
        high = value * (ns >> 31)
        account[integral] += high >> 31
        add(account, integral, (high & 0x7FFFFFFF) << 31)
    add(account, integral, value * (ns & 0x7FFFFFFF))


# --- a simulated server ------------------------------------------------------------------------------------------

# requests
ARRIVAL, PROMPT, OUTPUT = 0, 1, 2
# outcome, a column a request
ADMITTED, FIRST_TOKEN, FINISH, PREEMPTED, RECOMPUTED_TOKENS, PROGRESS, STATUS = 0, 1, 2, 3, 4, 5, 6
# statuses
PENDING, DONE, TOO_LONG, TOO_LARGE, MALFORMED = 0, 1, 2, 3, 4
# seats, a column a row: in iteration i the row holds OFFSET + i tokens; its last token comes in iteration LAST
REQUEST, OFFSET, LAST, NEXT, PREVIOUS = 0, 1, 2, 3, 4
# due: a list for each phase, of the rows that need a block in iterations of that phase
FIRST_DUE, LAST_DUE, NUM_DUE = 0, 1, 2

# clock: settings; STATIC is 0, or what limits a static batch: BY_MEMORY or BY_SEQS
PLACED, GROWS, STATIC, MAX_SEQS, MAX_BATCHED, KEEP_FREE, AWAITED, DIGESTING = 0, 1, 2, 3, 4, 5, 6, 7
# clock: time
NOW, UNTIL, BUSY, ITERATION, ACCOUNTED, SETTLED, NEXT_LAST, BATCH_END = 8, 9, 10, 11, 12, 13, 14, 15
# clock: queue and batch
KNOWN, HEAD, ARRIVED, NUM_PREEMPTED = 16, 17, 18, 19
BLOCKED, RUNNING, WAITING = 20, 21, 22  # as their integrals
GROWING, DECODING, PREFILL, CONTEXT, BOUND, NUM_COMPLETED, FREE_ROWS = 23, 24, 25, 26, 27, 28, 29
# clock: timeline and marks
WIDTH, NUM_BINS_DONE, EDGE, NEXT_MARK, BACKLOG, TARGET = 30, 31, 32, 33, 34, 35
HEADROOM = 36  # a setting, as KEEP_FREE, in blocks a running sequence
CLOCK_LENGTH = 37

# what `advance` returns
PAUSED, SLEEPING, REACHED, COMPLETED, IDLE, STALLED, BEGUN = 0, 1, 2, 3, 4, 5, 6
# SETTLED: whether the next iteration can be nothing but growth: if no request comes (the queue is empty), or whatever
# comes (its head is shut out)
UNSETTLED, QUEUE_EMPTY, HEAD_SHUT_OUT = 0, 1, 2
# stages of a backlog's window
NO_BACKLOG, BEFORE_WINDOW, IN_WINDOW, AFTER_WINDOW = 0, 1, 2, 3


class Run(NamedTuple):
    """A server, its queue and its accounts.

    ``clock`` (37,) scalars; ``latency`` see ``iteration_ns``; ``requests`` (3, n); ``outcome`` (7, n); ``order``
    (rows,) the running rows by (arrival, index); ``seats`` (5, rows); ``free_rows`` (rows,) a stack; ``preempted``
    (rows,) a stack of requests, the earliest on top; ``completed`` (rows,) requests that someone waits for; ``due`` (3,
    block size); ``account`` (24,) as it stands at ACCOUNTED; ``timeline`` (bins + 1, 24) accounts at multiples of
    WIDTH; ``marks`` (m,) times and ``marked`` (m, 24) accounts then; ``digests`` (2,) the hash of all tables.
    """

    clock: IntArray
    latency: npt.NDArray[np.float64]
    requests: IntArray
    outcome: IntArray
    order: IntArray
    seats: IntArray
    free_rows: IntArray
    preempted: IntArray
    completed: IntArray
    due: IntArray
    account: IntArray
    timeline: IntArray
    marks: IntArray
    marked: IntArray
    digests: IntArray


# Time passes.


@inlined
def arrive(run: Run, until: int) -> None:
    """Count the requests that came by a time as waiting, each since its own arrival."""
    clock = run.clock
    while clock[ARRIVED] < clock[KNOWN] and run.requests[ARRIVAL, clock[ARRIVED]] <= until:
        if run.outcome[STATUS, clock[ARRIVED]] == PENDING:
            clock[WAITING] += 1
            add(run.account, WAITING_NS, until - run.requests[ARRIVAL, clock[ARRIVED]])
        clock[ARRIVED] += 1


@inlined
def bound_for(run: Run, ns: int) -> None:
    """Book a time to what kept the head of the queue out."""
    if run.clock[BOUND] == BY_MEMORY:
        run.account[MEMORY_NS] += ns
    elif run.clock[BOUND] == BY_SEQS:
        run.account[SEQS_NS] += ns
    elif run.clock[BOUND] == BY_BUDGET:
        run.account[BUDGET_NS] += ns


@kernel
def next_edge(run: Run) -> None:
    """Find the next instant at which the accounts are copied."""
    clock = run.clock
    clock[EDGE] = (clock[NUM_BINS_DONE] + 1) * clock[WIDTH]
    if clock[NEXT_MARK] < len(run.marks):
        clock[EDGE] = min(clock[EDGE], run.marks[clock[NEXT_MARK]])


@inlined
def copy_row(source: IntArray, target: IntArray, row: int) -> None:
    """Copy an account into a row of copies, entry by entry: an assignment of arrays would allocate."""
    for i in range(ACCOUNT_LENGTH):
        target[row, i] = source[i]


@kernel
def copy_accounts(run: Run) -> None:
    """Copy the accounts at an edge; when the timeline is full, keep every second copy and double the width."""
    clock = run.clock
    if clock[EDGE] == (clock[NUM_BINS_DONE] + 1) * clock[WIDTH]:
        clock[NUM_BINS_DONE] += 1
        copy_row(run.account, run.timeline, clock[NUM_BINS_DONE])
        if clock[NUM_BINS_DONE] == len(run.timeline) - 1:
            clock[NUM_BINS_DONE] //= 2
            clock[WIDTH] *= 2
            for i in range(1, clock[NUM_BINS_DONE] + 1):
                copy_row(run.timeline[2 * i], run.timeline, i)
    while clock[NEXT_MARK] < len(run.marks) and run.marks[clock[NEXT_MARK]] == clock[EDGE]:
        copy_row(run.account, run.marked, clock[NEXT_MARK])
        clock[NEXT_MARK] += 1
    next_edge(run)


@kernel
def accrue(counts: IntArray, run: Run, until: int) -> None:
    """Bring the accounts forward to a time, the state having been constant since they were last, cut at the edges.

    An edge at ``until`` itself waits for the next call, so that a copy holds what happened at its own instant.
    """
    clock, account = run.clock, run.account
    while clock[ACCOUNTED] < until:
        if clock[EDGE] == clock[ACCOUNTED]:
            copy_accounts(run)
            continue
        cut = min(until, clock[EDGE])
        ns = cut - clock[ACCOUNTED]
        for i in range(4):
            add_product(account, USED_NS + 2 * i, counts[USED + i], ns)
        for i in range(3):
            add_product(account, BLOCKED_NS + 2 * i, clock[BLOCKED + i], ns)
        arrive(run, cut)
        bound_for(run, ns)
        clock[ACCOUNTED] = cut


@merged
def mark_now(run: Run) -> None:
    """Copy the accounts at this instant: an end of a backlog's window."""
    run.marks[run.clock[BACKLOG] - BEFORE_WINDOW] = run.clock[NOW]
    copy_row(run.account, run.marked, run.clock[BACKLOG] - BEFORE_WINDOW)
    run.clock[BACKLOG] += 1


# The rows that need a block in an iteration: a list for each phase, in order of (arrival, index), which is the order of
# admission too, since the queue is served from its head and the latest are evicted first.


@merged
def enlist(run: Run, row: int) -> None:
    """Enter a row at the end of the list of its phase."""
    due, seats = run.due, run.seats
    row = index(row)
    phase = index((1 - seats[OFFSET, row]) % due.shape[1])
    last = due[LAST_DUE, phase]
    seats[PREVIOUS, row] = last
    seats[NEXT, row] = NIL
    if last == NIL:
        due[FIRST_DUE, phase] = row
    else:
        seats[NEXT, index(last)] = row
    due[LAST_DUE, phase] = row
    due[NUM_DUE, phase] += 1


@inlined
def delist(run: Run, row: int, phase: int) -> None:
    """Take a row from its list."""
    due, seats = run.due, run.seats
    row, phase = index(row), index(phase)
    before, after = seats[PREVIOUS, row], seats[NEXT, row]
    if before == NIL:
        due[FIRST_DUE, phase] = after
    else:
        seats[NEXT, index(before)] = after
    if after == NIL:
        due[LAST_DUE, phase] = before
    else:
        seats[PREVIOUS, index(after)] = before
    due[NUM_DUE, phase] -= 1


@inlined
def take_due(pool: Blocks, run: Run, phase: int, iteration: int) -> None:
    """Give a block to each row that needs one in this iteration; the caller knows that there are enough."""
    counts, rows, seats = pool.counts, pool.rows, run.seats
    size = counts[BLOCK_SIZE]
    top = counts[FREE]
    counts[HELD] += run.due[NUM_DUE, index(phase)] * size
    promised, digesting = counts[PROMISED], run.clock[DIGESTING]
    at = run.due[FIRST_DUE, index(phase)]
    while at != NIL:
        row = index(at)
        after = seats[NEXT, row]
        top -= 1
        block = pool.stack[index(top)]
        pool.refs[index(block)] = 1
        logical = rows[BLOCKS, row]
        pool.table[row, index(logical)] = block
        rows[BLOCKS, row] = logical + 1
        limit = rows[LIMIT, row]
        left = rows[FINAL, row] - limit
        promised += min(size, left)
        rows[LIMIT, row] = limit + size
        if left <= size:
            delist(run, at, phase)
        if digesting:
            digest(run.digests, iteration, seats[REQUEST, row], logical, block)
        at = after
    counts[FREE] = top
    counts[PROMISED] = promised


@merged
def take_rounds(pool: Blocks, run: Run, iteration: int, rounds: int) -> None:
    """Give blocks of one slot to each row in the list, one in each of some iterations; they are counted already.

    Row by row, and yet as if it had been iteration by iteration: a row's next block lies a round deeper in the stack.
    """
    rows, seats = pool.rows, run.seats
    num_due, digesting = run.due[NUM_DUE, 0], run.clock[DIGESTING]
    at = run.due[FIRST_DUE, 0]
    top = pool.counts[FREE] + rounds * num_due
    while at != NIL:
        row = index(at)
        top -= 1
        logical = rows[BLOCKS, row]
        for i in range(rounds):
            block = pool.stack[index(top - i * num_due)]
            pool.refs[index(block)] = 1
            pool.table[row, index(logical + i)] = block
            if digesting:
                digest(run.digests, iteration + i, seats[REQUEST, row], logical + i, block)
        rows[BLOCKS, row] = logical + rounds
        rows[LIMIT, row] += rounds
        at = seats[NEXT, row]


# An iteration begins: growth, admission, its length.


@inlined
def soonest(run: Run) -> None:
    """Find the next iteration in which a row's last token comes."""
    clock = run.clock
    soon = FOREVER
    for i in range(clock[RUNNING]):
        last = run.seats[LAST, index(run.order[i])]
        if last >= clock[ITERATION]:
            soon = min(soon, last)
    clock[NEXT_LAST] = soon


@merged
def evict_latest(pool: Blocks, run: Run) -> None:
    """Evict the running request latest by (arrival, index): its blocks are freed, its progress is kept."""
    clock, seats = run.clock, run.seats
    clock[RUNNING] -= 1
    clock[GROWING] -= 1
    row = run.order[clock[RUNNING]]
    request = seats[REQUEST, row]
    tokens = seats[OFFSET, row] + clock[ITERATION] - 1
    if pool.rows[LIMIT, row] < pool.rows[FINAL, row]:
        delist(run, row, (1 - seats[OFFSET, row]) % run.due.shape[1])
    pool.rows[TOKENS, row] = tokens
    blocks_free(pool, row)
    run.outcome[PREEMPTED, request] += 1
    run.outcome[PROGRESS, request] = tokens - run.requests[PROMPT, request] + 1
    run.preempted[clock[NUM_PREEMPTED]] = request
    clock[NUM_PREEMPTED] += 1
    clock[WAITING] += 1
    run.free_rows[clock[FREE_ROWS]] = row
    clock[FREE_ROWS] += 1
    run.account[PREEMPTIONS] += 1


@merged
def grow(blocks: Blocks, extents: Extents, run: Run) -> int:
    """Give every running row the slot that it needs in this iteration; return how many had to go for it."""
    clock = run.clock
    if clock[RUNNING] == 0:
        return 0
    if clock[PLACED] != PAGED:
        extents.counts[USED] += clock[GROWING]
        return 0
    evicted = 0
    if clock[GROWS]:
        phase = clock[ITERATION] % run.due.shape[1]
        while run.due[NUM_DUE, phase] > blocks.counts[FREE]:
            evict_latest(blocks, run)
            evicted += 1
        if evicted:
            soonest(run)
        take_due(blocks, run, phase, clock[ITERATION])
    blocks.counts[USED] += clock[GROWING]
    return evicted


@kernel
def waiting_head(run: Run) -> int:
    """The request at the head of the queue, or NIL. Preempted ones, being older, lead."""
    clock = run.clock
    if clock[NUM_PREEMPTED]:
        return run.preempted[clock[NUM_PREEMPTED] - 1]
    while clock[HEAD] < clock[KNOWN] and run.outcome[STATUS, clock[HEAD]] != PENDING:
        clock[HEAD] += 1
    if clock[HEAD] < clock[KNOWN] and run.requests[ARRIVAL, clock[HEAD]] <= clock[NOW]:
        return clock[HEAD]
    return NIL


@merged
def seat(blocks: Blocks, extents: Extents, run: Run, request: int, tokens: int) -> bool:
    """Admit a request if there is memory for it."""
    clock = run.clock
    row = run.free_rows[clock[FREE_ROWS] - 1]
    final = run.requests[PROMPT, request] + run.requests[OUTPUT, request] - 1
    if clock[PLACED] == PAGED:
        keep_free = clock[KEEP_FREE] + clock[HEADROOM] * clock[RUNNING] if clock[RUNNING] else 0
        verdict = blocks_reserve(blocks, row, tokens, final, keep_free)
    else:
        verdict = extents_reserve(extents, row, tokens, final)
    if verdict != OK:
        return False
    clock[FREE_ROWS] -= 1
    run.seats[REQUEST, row] = request
    run.seats[OFFSET, row] = tokens - clock[ITERATION]
    run.seats[LAST, row] = final - run.seats[OFFSET, row]
    clock[NEXT_LAST] = min(clock[NEXT_LAST], run.seats[LAST, row])
    clock[BATCH_END] = max(clock[BATCH_END], run.seats[LAST, row])
    run.order[clock[RUNNING]] = row
    clock[RUNNING] += 1
    clock[GROWING] += 1
    leave_queue(run, request, tokens)
    if clock[GROWS] and blocks.rows[LIMIT, row] < final:
        enlist(run, row)
    if clock[DIGESTING]:
        digest_row(blocks, extents, run, row)
    return True


@merged
def leave_queue(run: Run, request: int, tokens: int) -> None:
    """Take the head from the queue, and note that it was admitted or has to be computed again."""
    clock = run.clock
    clock[WAITING] -= 1
    run.account[ADMISSIONS] += 1
    if clock[NUM_PREEMPTED]:
        clock[NUM_PREEMPTED] -= 1
        run.outcome[RECOMPUTED_TOKENS, request] += tokens
        run.account[RECOMPUTED] += tokens
    else:
        clock[HEAD] += 1
        run.outcome[ADMITTED, request] = clock[NOW]


@aside
def digest_row(blocks: Blocks, extents: Extents, run: Run, row: int) -> None:
    """Hash what a row was given at admission."""
    request = run.seats[REQUEST, row]
    if run.clock[PLACED] != PAGED:
        digest(run.digests, run.clock[ITERATION], request, extents.rows[SIZE, row], extents.rows[START, row])
        return
    for logical in range(blocks.rows[BLOCKS, row]):
        digest(run.digests, run.clock[ITERATION], request, logical, blocks.table[row, logical])


@merged
def admit(blocks: Blocks, extents: Extents, run: Run) -> int:
    """Admit from the head of the queue, without skipping, while memory and the caps allow it; return who is left there.

    A static batch is formed in the same way from what waits now, and padded to its longest prompt.
    """
    clock = run.clock
    longest = 0
    bound = BY_ARRIVALS
    while True:
        request = waiting_head(run)
        if request == NIL:
            break
        tokens = run.requests[PROMPT, request] + run.outcome[PROGRESS, request]
        over = clock[DECODING] + clock[PREFILL] + tokens > clock[MAX_BATCHED]
        if clock[RUNNING] >= clock[MAX_SEQS]:
            bound = BY_SEQS
            break
        if over and clock[RUNNING] and not clock[STATIC]:
            bound = BY_BUDGET
            break
        if not seat(blocks, extents, run, request, tokens):
            bound = BY_MEMORY
            break
        clock[PREFILL] += tokens
        longest = max(longest, tokens)
    clock[BOUND] = bound
    if clock[STATIC]:
        clock[PREFILL] = clock[RUNNING] * longest
    return request


@merged
def begin(blocks: Blocks, extents: Extents, run: Run) -> int:
    """Begin an iteration: growth, admission, and how long it will last."""
    clock = run.clock
    arrive(run, clock[NOW])
    decoded = clock[CONTEXT] + clock[PREFILL]
    evicted = grow(blocks, extents, run)
    clock[DECODING] = clock[RUNNING]
    clock[PREFILL] = 0
    if not evicted and (clock[RUNNING] == 0 or not clock[STATIC]):
        clock[BATCH_END] = 0
        request = admit(blocks, extents, run)
    else:
        clock[BOUND] = BY_MEMORY  # of a static batch it is said below
        request = waiting_head(run)
    if clock[RUNNING] == 0:
        return IDLE if request == NIL else STALLED
    clock[SETTLED] = UNSETTLED
    clock[BLOCKED] = 0
    if request != NIL and not evicted and clock[RUNNING] == clock[DECODING]:
        clock[SETTLED] = HEAD_SHUT_OUT
    if request == NIL:
        clock[SETTLED] = QUEUE_EMPTY
        if clock[BACKLOG] == BEFORE_WINDOW:
            clock[BACKLOG] = AFTER_WINDOW
        elif clock[BACKLOG] == IN_WINDOW:
            mark_now(run)
    elif clock[PLACED] != PAGED:
        final = run.requests[PROMPT, request] + run.requests[OUTPUT, request] - 1
        kind, longest = extents.counts[RESERVATION], extents.counts[MAX_LEN]
        if extents_blocked(extents, reservation(kind, run.requests[PROMPT, request], final, longest)):
            clock[BLOCKED] = extents.counts[FREE]
    if clock[STATIC]:
        clock[BOUND] = BY_ARRIVALS if request == NIL else clock[STATIC]
        clock[CONTEXT] = decoded + clock[RUNNING] if clock[DECODING] else 0
    else:
        used = blocks.counts[USED] if clock[PLACED] == PAGED else extents.counts[USED]
        clock[CONTEXT] = used - clock[PREFILL]
    clock[UNTIL] = clock[NOW] + iteration_ns(run.latency, clock[RUNNING], clock[PREFILL], clock[CONTEXT])
    clock[BUSY] = 1
    return BEGUN


# An iteration ends: accounts, first tokens, completions.


@merged
def finish(blocks: Blocks, extents: Extents, run: Run, row: int) -> None:
    """Return a result, and its memory."""
    clock = run.clock
    request = run.seats[REQUEST, row]
    if clock[PLACED] == PAGED:
        blocks.rows[TOKENS, row] = blocks.rows[FINAL, row]
        blocks_free(blocks, row)
    else:
        extents.rows[TOKENS, row] = extents.rows[FINAL, row]
        extents_free(extents, row)
    run.outcome[FINISH, request] = clock[NOW]
    run.outcome[STATUS, request] = DONE
    run.account[FINISHED] += 1
    run.free_rows[clock[FREE_ROWS]] = row
    clock[FREE_ROWS] += 1
    if clock[AWAITED]:
        run.completed[clock[NUM_COMPLETED]] = request
        clock[NUM_COMPLETED] += 1


@merged
def complete(blocks: Blocks, extents: Extents, run: Run) -> None:
    """Let go of the rows whose last token has come; in a static batch, of all of them when the longest is done."""
    clock = run.clock
    kept = 0
    for i in range(clock[RUNNING]):
        row = run.order[i]
        grown = run.seats[LAST, index(row)] == clock[ITERATION]
        clock[GROWING] -= grown
        returned = clock[ITERATION] == clock[BATCH_END] if clock[STATIC] else grown
        if returned:
            finish(blocks, extents, run, row)
        else:
            run.order[index(kept)] = row
            kept += 1
    clock[RUNNING] = kept
    clock[SETTLED] = UNSETTLED
    if clock[BACKLOG] == BEFORE_WINDOW and run.account[FINISHED] >= clock[TARGET]:
        mark_now(run)


@merged
def end(blocks: Blocks, extents: Extents, run: Run) -> None:
    """End an iteration, or a stretch without any."""
    clock, account = run.clock, run.account
    accrue(blocks.counts if clock[PLACED] == PAGED else extents.counts, run, clock[UNTIL])
    clock[NOW] = clock[UNTIL]
    clock[BUSY] = 0
    if clock[RUNNING] == 0:
        return
    account[ITERATIONS] += 1
    account[SEQUENCES] += clock[RUNNING]
    account[GENERATED] += clock[GROWING]
    for i in range(clock[DECODING], clock[RUNNING]):
        request = index(run.seats[REQUEST, index(run.order[i])])
        if run.outcome[PROGRESS, request] == 0:
            run.outcome[FIRST_TOKEN, request] = clock[NOW]
    last = clock[ITERATION] == clock[NEXT_LAST]
    if last:
        complete(blocks, extents, run)
    clock[ITERATION] += 1
    if last:
        soonest(run)


# Between two events nothing but growth happens.


@merged
def leap(blocks: Blocks, extents: Extents, run: Run, horizon: int, budget: int) -> int:
    """Run iterations in which nothing but growth happens; return how many.

    Stops before an iteration in which a last token comes, a request may be admitted, blocks run short, or an edge of
    the accounts is crossed: that one is an ordinary iteration. Work is O(1) an iteration besides the blocks taken.
    """
    clock, account = run.clock, run.account
    counts = blocks.counts if clock[PLACED] == PAGED else extents.counts
    size = run.due.shape[1]
    until = min(horizon, clock[EDGE])
    watched = FOREVER
    if clock[SETTLED] == QUEUE_EMPTY:
        if clock[WAITING]:
            return 0
        if clock[ARRIVED] < clock[KNOWN]:
            watched = run.requests[ARRIVAL, clock[ARRIVED]]
    batch, growing = clock[RUNNING], clock[GROWING]
    step = batch if clock[STATIC] else growing
    context = clock[CONTEXT] + clock[PREFILL]
    clock[CONTEXT], clock[PREFILL] = context, 0
    used = counts[USED]
    now = clock[NOW]
    start = now
    steps = min(budget, clock[NEXT_LAST] - clock[ITERATION])
    used_ns = promised_ns = held_ns = 0
    done = 0
    phase = clock[ITERATION] % size
    while done < steps and now < watched:
        due = run.due[NUM_DUE, index(phase)]
        ns = iteration_ns(run.latency, batch, clock[PREFILL], context + step)  # a literal 0 would compile it again
        if due > blocks.counts[FREE] or now + ns > until or (used_ns | promised_ns | held_ns) >= 2**61 or ns >= 2**30:
            break
        if due and size == 1:  # every growing row, in every iteration: the blocks are handed out after the last
            blocks.counts[FREE] -= due
            blocks.counts[HELD] += due
            blocks.counts[PROMISED] += due
        elif due:
            take_due(blocks, run, phase, clock[ITERATION] + done)
        phase = phase + 1 if phase + 1 < size else 0
        context += step
        used += growing
        used_ns += used * ns
        promised_ns += counts[PROMISED] * ns
        held_ns += counts[HELD] * ns
        now += ns
        done += 1
    if done == 0:
        return 0
    if size == 1 and run.due[NUM_DUE, 0]:
        take_rounds(blocks, run, clock[ITERATION], done)
    add(account, USED_NS, used_ns)
    add(account, PROMISED_NS, promised_ns)
    add(account, HELD_NS, held_ns)
    ns = now - start
    add_product(account, REQUESTED_NS, counts[REQUESTED], ns)
    for i in range(3):
        add_product(account, BLOCKED_NS + 2 * i, clock[BLOCKED + i], ns)
    arrive(run, now)
    bound_for(run, ns)
    account[ITERATIONS] += done
    account[SEQUENCES] += done * batch
    account[GENERATED] += done * growing
    counts[USED] = used
    clock[ITERATION] += done
    clock[CONTEXT] = context
    clock[NOW] = clock[ACCOUNTED] = now
    return done


@kernel
def advance(blocks: Blocks, extents: Extents, run: Run, horizon: int, budget: int) -> int:
    """Run a server up to a time, or until someone has to be told something; say which.

    PAUSED: the budget of iterations is used up. SLEEPING: an iteration lasts beyond the horizon, until UNTIL. REACHED:
    the horizon. COMPLETED: a request is done that someone waits for. IDLE: nothing to do. STALLED: nothing can be done.
    """
    clock = run.clock
    while True:
        if clock[BUSY]:
            if clock[UNTIL] > horizon:
                return SLEEPING
            end(blocks, extents, run)
            if clock[NUM_COMPLETED]:
                return COMPLETED
        if clock[SETTLED]:
            budget -= leap(blocks, extents, run, horizon, budget)
        if clock[NOW] >= horizon:
            return REACHED
        if budget <= 0:
            return PAUSED
        budget -= 1
        state = begin(blocks, extents, run)
        if state == STALLED:
            return STALLED
        if state == IDLE:
            if clock[HEAD] == clock[KNOWN]:
                return IDLE
            if run.requests[ARRIVAL, clock[HEAD]] > horizon:
                return REACHED
            clock[UNTIL] = run.requests[ARRIVAL, clock[HEAD]]
            clock[BUSY] = 1


@kernel
def sync(blocks: Blocks, extents: Extents, run: Run) -> None:
    """Write down the tokens of every running row, which ``advance`` knows but does not keep."""
    clock = run.clock
    rows = blocks.rows if clock[PLACED] == PAGED else extents.rows
    begun = clock[ITERATION] - 1 + clock[BUSY]
    for i in range(clock[RUNNING]):
        row = run.order[i]
        rows[TOKENS, row] = min(rows[FINAL, row], run.seats[OFFSET, row] + begun)
