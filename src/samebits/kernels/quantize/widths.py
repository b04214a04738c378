"""How much quantising and dequantising take at a time: lanes of a vector, vectors, blocks, and lines.

Two elements lie in a lane (`codes`), so a vector of pairs has twice as many elements as lanes. Start at `lanes_of`.
"""

from __future__ import annotations

from samebits.codegen.isa import Isa

_WIDEST, _NARROWEST = 16, 4
# Vectors that are computed side by side, so that one does not wait for what it has just begun.
ABREAST = 2
# As many scales as a narrow vector has, where there are few.
LINE_LANES = 4
# Lines that are walked side by side, so that what belongs to their columns is read once for so many: their scales, or
# the largest magnitudes so far.
LINES_ABREAST = 4


def lanes_of(isa: Isa) -> int:
    """Blocks whose scales are found at a time, and pairs of elements that are encoded at a time."""
    return min(_WIDEST, max(_NARROWEST, 1 << isa.lanes.bit_length() - 1))


def several_and_times(along: int, pairs: int) -> tuple[int, int]:
    """How many blocks a vector of pairs has, and how many vectors a block."""
    return max(1, 2 * pairs // along), max(1, along // (2 * pairs))
