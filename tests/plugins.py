"""Allocators as users write them: the one of the README, and broken ones."""

from __future__ import annotations

import numpy as np

from kvsim.allocators import LATER, NEVER, OK


class Paged:
    block_size = 16

    def __init__(self, capacity):
        self.capacity, self.free_blocks = capacity, capacity // 16
        self.tokens, self.blocks = np.zeros((2, 256), dtype=int)

    def can_serve(self, num_tokens, final_tokens):
        return final_tokens <= self.capacity // 16 * 16

    def reserve(self, row, num_tokens, final_tokens, keep_free=0):
        needed = -(-num_tokens // 16)
        if needed + keep_free // 16 > self.free_blocks or not self.can_serve(num_tokens, final_tokens):
            return LATER if self.can_serve(num_tokens, final_tokens) else NEVER
        self.tokens[row], self.blocks[row] = num_tokens, needed
        self.free_blocks -= needed
        return OK

    def append(self, rows, steps):
        for done in range(steps):
            due = rows[self.tokens[rows] == self.blocks[rows] * 16]
            if len(due) > self.free_blocks:
                return done
            self.blocks[due] += 1
            self.free_blocks -= len(due)
            self.tokens[rows] += 1
        return steps

    def free(self, row):
        slots, self.blocks[row] = self.held(row), 0
        self.free_blocks += slots // 16
        return slots

    def held(self, row):
        return int(self.blocks[row]) * 16


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
                if self.tokens[row] == self.blocks[row] * 16:
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
