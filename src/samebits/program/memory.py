"""Where temporaries lie in one arena: lifetimes to offsets.

Two temporaries share bytes if they never live at the same time, and never a cache line, so that every vector load of a
dense value is aligned. Placed largest first, each at the lowest offset that is
free during its life ("greedy by size": Pisarchyk and Lee, arXiv:2001.03288). Start at `place`.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from samebits.frozen import dataclass
from samebits.kernels.plan import in_lines

__all__ = ["Life", "place", "side_by_side"]


@dataclass(frozen=True, slots=True)
class Life:
    """A temporary of `size_bytes` that is written first by step `first` and read last by step `last`."""

    size_bytes: int
    first: int
    last: int


def side_by_side(lives: Sequence[Life]) -> tuple[list[int], int]:
    """(the offset of each temporary, the bytes of the arena) if none shares memory with another."""
    *offsets, total = itertools.accumulate([in_lines(life.size_bytes) for life in lives], initial=0)
    return offsets, total


def place(lives: Sequence[Life]) -> tuple[list[int], int]:
    """(the offset of each temporary, the bytes of the arena)."""
    spans = [(0, 0)] * len(lives)
    # Of two lives that meet one begins while the other lasts: so those that begin or last there meet each other alone.
    begins = sorted({life.first for life in lives})
    meeting: list[set[tuple[int, int]]] = [set() for _ in begins]
    for _, _, index in sorted([(-life.size_bytes, life.first, index) for index, life in enumerate(lives)]):
        life, size = lives[index], in_lines(lives[index].size_bytes)
        during = meeting[bisect.bisect_left(begins, life.first) : bisect.bisect_right(begins, life.last)]
        at = 0
        for start, stop in sorted(set[tuple[int, int]]().union(*during)):
            if start >= at + size:
                break
            at = max(at, stop)
        spans[index] = (at, at + size)
        for met in during:
            met.add(spans[index])
    return [start for start, _ in spans], max([stop for _, stop in spans], default=0)
