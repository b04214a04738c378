"""Where temporaries lie in one arena: lifetimes to offsets.

Two temporaries share bytes if they never live at the same time, and never a cache line, so that every vector load of a
dense value is aligned. Placed largest first, each at the lowest offset that is free during its life ("greedy by size":
Pisarchyk and Lee, arXiv:2001.03288). Start at `place`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

from samebits.kernels.plan import in_lines

__all__ = ["Steps", "place", "side_by_side"]

# Temporaries up to which it is remembered who meets whom: lists of so many take up to 8 MB.
_REMEMBERED = 1024


Steps = tuple[int, int]
"""The step that writes a temporary first, and the one that reads it last."""


def side_by_side(sizes: Sequence[int]) -> tuple[list[int], int]:
    """(the offset of each temporary, the bytes of the arena) if none shares memory with another; `sizes` in bytes."""
    *offsets, total = itertools.accumulate(map(in_lines, sizes), initial=0)
    return offsets, total


def place(sizes: Sequence[int], lives: tuple[Steps, ...]) -> tuple[list[int], int]:
    """(the offset of each temporary, the bytes of the arena) of temporaries of these bytes that live so long."""
    beside = _meeting if len(lives) <= _REMEMBERED else _meeting.__wrapped__
    meeting = beside(lives)
    spans: list[tuple[int, int] | None] = [None] * len(lives)
    offsets, total = [0] * len(lives), 0
    for _, _, index in sorted([(-size, lives[index][0], index) for index, size in enumerate(sizes)]):
        at, size = 0, in_lines(sizes[index])
        for start, stop in sorted([span for met in meeting[index] if (span := spans[met])]):
            if start >= at + size:
                break
            at = max(at, stop)
        spans[index], offsets[index], total = (at, at + size), at, max(total, at + size)
    return offsets, total


@functools.lru_cache(maxsize=32)
def _meeting(lives: tuple[Steps, ...]) -> list[list[int]]:
    """For each (first step, last step) the others that live at the same time; they follow from the program alone."""
    found: list[list[int]] = [[] for _ in lives]
    alive: list[int] = []
    for index in sorted(range(len(lives)), key=lives.__getitem__):
        # Of two lives that meet one begins while the other lasts.
        alive = [other for other in alive if lives[other][1] >= lives[index][0]]
        for other in alive:
            found[other].append(index)
        found[index] += alive
        alive.append(index)
    return found
