"""Allocators as users write them: the one of the README, and broken ones."""

from __future__ import annotations

import numpy as np

from kvsim.allocators import LATER, NEVER, OK


class Paged:
    """Blocks of 16 slots, counted but not numbered."""

    block_size = 16

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free_blocks = capacity // self.block_size
        self.tokens = np.zeros(256, dtype=int)
        self.blocks = np.zeros(256, dtype=int)

    def can_serve(self, num_tokens, final_tokens):
        return -(-final_tokens // self.block_size) <= self.capacity // self.block_size

    def reserve(self, row, num_tokens, final_tokens, keep_free=0):
        needed = -(-num_tokens // self.block_size)
        if not self.can_serve(num_tokens, final_tokens):
            return NEVER
        if needed + keep_free // self.block_size > self.free_blocks:
            return LATER
        self.tokens[row], self.blocks[row] = num_tokens, needed
        self.free_blocks -= needed
        return OK

    def append(self, rows, steps):
        for done in range(steps):
            crossing = rows[self.tokens[rows] == self.blocks[rows] * self.block_size]
            if len(crossing) > self.free_blocks:
                return done
            self.blocks[crossing] += 1
            self.free_blocks -= len(crossing)
            self.tokens[rows] += 1
        return steps

    def free(self, row):
        slots = self.held(row)
        self.free_blocks += self.blocks[row]
        self.tokens[row] = self.blocks[row] = 0
        return slots

    def held(self, row):
        return int(self.blocks[row]) * self.block_size


class Leaky(Paged):
    """Forgets a block a request."""

    def free(self, row):
        slots = super().free(row)
        self.free_blocks -= slots > 16
        return slots


class Greedy(Paged):
    """Takes blocks for an iteration that not every row completes."""

    def append(self, rows, steps):
        for done in range(steps):
            for row in rows:
                if self.tokens[row] == self.blocks[row] * self.block_size:
                    if not self.free_blocks:
                        return done
                    self.blocks[row] += 1
                    self.free_blocks -= 1
            self.tokens[rows] += 1
        return steps


class Cramped(Paged):
    """Grows without room."""

    def append(self, rows, steps):
        self.tokens[rows] += steps
        return steps


class Stingy(Paged):
    """Never gives anything back to a waiting request."""

    def reserve(self, row, num_tokens, final_tokens, keep_free=0):
        return LATER
