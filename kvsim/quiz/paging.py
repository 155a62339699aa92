"""Questions on blocks: translate a slot, count blocks, say who is preempted."""

from __future__ import annotations

import numpy as np

from kvsim.allocators import OK, PagedAllocator
from kvsim.lesson.recording import record, slots_of
from kvsim.quiz.question import Line, Question, listed, mapped
from kvsim.requests import RequestStream
from kvsim.scheduler import Scheduler

BLOCK_SIZES = (2, 4, 8, 16)


def _used_pool(rng: np.random.Generator, block_size: int, num_blocks: int, tokens: int) -> PagedAllocator:
    """Return a pool in which requests came and went, so that row 0 got its blocks in no order."""
    capacity = num_blocks * block_size
    pool = PagedAllocator(capacity, block_size, max_model_len=capacity, num_rows=num_blocks)
    for row in range(1, num_blocks):
        others = int(rng.integers(1, 2 * block_size))
        pool.reserve(row, others, others)
    for row in rng.permutation(np.arange(1, num_blocks)).tolist():
        pool.free(row)
        if pool.free_slots >= num_blocks * block_size // 3 and pool.reserve(0, tokens, tokens) == OK:
            break
    return pool


def translate(rng: np.random.Generator, seed: int) -> Question:
    """Ask which physical slot holds a token."""
    size = int(rng.choice(BLOCK_SIZES))
    tokens = int(rng.integers(2 * size + 1, 6 * size + 1))
    pool = _used_pool(rng, size, int(rng.integers(24, 37)), tokens)
    token = int(rng.integers(0, tokens))
    table = pool.table(0)
    slot = int(slots_of(table, size)[token])
    block, offset = divmod(slot, size)
    values = {"size": size, "token": token, "table": mapped(table.tolist()), "last": len(table) - 1}
    found = {"logical": token // size, "offset": offset, "block": block, "slot": slot}
    return Question(
        "translate",
        seed,
        {"block_size": size, "table": table.tolist(), "token": token},
        (slot,),
        (("quiz.translate_given", values), ("quiz.translate_ask", values)),
        (
            ("quiz.translate_1", values | found),
            ("quiz.translate_2", values | found),
            ("quiz.translate_3", values | found),
        ),
    )


def blocks(rng: np.random.Generator, seed: int) -> Question:
    """Ask how many more blocks a request needs for some more tokens."""
    size = int(rng.choice((1, *BLOCK_SIZES)))
    tokens, more = int(rng.integers(1, 200)), int(rng.integers(1, 100))
    final = tokens + more
    pool = PagedAllocator(final + size, size, max_model_len=final, num_rows=1)
    pool.reserve(0, tokens, final)
    before = len(pool.table(0))
    pool.append(np.zeros(1, dtype=np.int64), more)
    after = len(pool.table(0))
    values = {"size": size, "tokens": tokens, "more": more, "final": final, "before": before, "after": after}
    values |= {"room": before * size - tokens, "needed": after - before}
    return Question(
        "blocks",
        seed,
        {"block_size": size, "tokens": tokens, "more": more},
        (after - before,),
        (("quiz.blocks_ask", values),),
        (("quiz.blocks_1", values), ("quiz.blocks_2", values), ("quiz.blocks_3", values)),
    )


def preemption(rng: np.random.Generator, seed: int) -> Question:
    """Ask who must go so that the others can grow.

    The requests are run: admitted together in one iteration, each with its prompt, they grow by a token in the next.
    """
    size = int(rng.choice((2, 4, 8)))
    count = int(rng.integers(3, 7))
    lengths = rng.integers(1, 4 * size + 1, count)
    full = rng.random(count) < 0.6
    lengths = np.where(full, -(-lengths // size) * size, lengths)
    held = -(-lengths // size)
    free = int(rng.integers(0, 3))
    num_blocks = int(held.sum()) + free
    none = np.zeros(count, dtype=np.int64)
    pool = PagedAllocator(num_blocks * size, size, max_model_len=1024, num_rows=count)
    scheduler = Scheduler(watermark=0, max_num_seqs=count)
    stream = RequestStream(none, lengths, none + 2)
    recording = record(stream, pool, scheduler=scheduler, max_model_len=1024)
    events = [event for event in recording.events[1] if event[0] == "evict"]
    evicted = tuple(int(event[2]) for event in events)
    asking = [i for i in range(count) if lengths[i] % size == 0]
    values = {"size": size, "blocks": num_blocks, "free": free, "tokens": mapped(lengths.tolist()), "last": count - 1}
    values |= {"held": mapped(held.tolist()), "asking": listed(asking), "count": len(asking)}
    working: list[Line] = [("quiz.preemption_1" if asking else "quiz.preemption_0", values)]
    for _, asked, victim, left in events:
        detail = {"asked": asked, "victim": victim, "free": left, "back": int(held[int(victim)])}
        working.append(("quiz.preemption_self" if asked == victim else "quiz.preemption_2", detail))
    working.append(("quiz.preemption_3", values))
    facts = {"block_size": size, "num_blocks": num_blocks, "tokens": lengths.tolist()}
    asks = (("quiz.preemption_given", values), ("quiz.preemption_ask", values))
    return Question("preemption", seed, facts, evicted, asks, tuple(working))
