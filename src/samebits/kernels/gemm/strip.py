"""How much of B a streamed product works on at once: what registers hold, and what the cache that B is in likes.

`stream` walks a strip of columns by these numbers, `tasks` cuts strips and `plan` their scratch by them, and `choice`
streams as many rows of A as they allow. Start at `StripWalk`.
"""

from __future__ import annotations

import math

from samebits.codegen.isa import Isa
from samebits.dtypes import bfloat16, float32, float64
from samebits.frozen import dataclass
from samebits.kernels.gemm.words import Words

# Up to so many rows of A, memory and the caches are what a plain word of B waits for.
FEW_ROWS = 8
# float32 is then turned 8 columns at a time in pieces of 16 bytes, and the second piece of a register is inserted on
# its way from memory: half the loads of 16 columns, whose lines a power of two apart do not fit a set of the first
# cache (M = 1, K = 3072: 78 cycles for 1 KB of B in the second cache by 16, 65 by 8; K = 768: 57 and 61). So are, for
# fewer rows of A, float64 from a near cache (768 x 768, GB/s at M = 1, 2, 4: 71, 60, 37, by squares of 8 56, 48, 43)
# and bfloat16, two words of K as one (3072 x 768 at M = 1, 2, 3: 28, 28, 25, by squares of 16 23, 21, 19).
_PIECE_BYTES, _PIECES, _FEW_DOUBLES, FEW_HALVES = 16, 2, 2, 3
# One row of A waits for its own fma, unless two chunks are walked side by side; what comes from memory is slower than
# that, and the faster the fewer runs it is read in (`machine.Caches.shared`).
_TOGETHER = 2
# Where B is in a near cache (`machine.Caches.near`), groups of columns are walked side by side instead, one chunk at a
# time, and each column asks for its own next line. A chain gains 32 bytes an fma, which is 4 cycles on Zen 4, so two
# chains are no faster than 16 bytes a cycle (59 GB/s at 3.7 GHz); more chunks side by side, which would be more runs in
# the same pages, are slower (768 x 768, GB/s: 51 by two chunks, 46 by three, 57 by three groups, 55 by four, a plain
# read 97).
_BESIDE = 3
# A first cache that x86 has, or a larger one.
_WAYS, _WAY_BYTES = 8, 4096


@dataclass(frozen=True, slots=True)
class StripWalk:
    """How B is walked down its columns: for `high` rows of A, `columns` at a time, turned in squares of `side` words,
    `piece` columns apiece if not 0, `groups` of them at once where chunks are not; before those, where B is near,
    `wide` columns at a time. Each sum has as many chains as the order."""

    columns: int
    side: int
    piece: int
    high: int
    groups: int
    wide: int

    @classmethod
    def of(cls, rows: int, lanes: int, isa: Isa, words: Words, near: bool, chains: int = 1) -> StripWalk:
        """As many as registers hold, for products of `rows` rows."""
        columns = side = lanes
        piece = _PIECE_BYTES // words.word.size_bytes
        few = {
            (float32, float32): FEW_ROWS, (float64, float64): _FEW_DOUBLES if near else 0,
            (bfloat16, float32): FEW_HALVES,
        }.get((words.source, words.element), 0)  # fmt: skip
        pieces = 0 < rows <= few and lanes % (piece * _PIECES) == 0
        if pieces:
            columns, side = piece * _PIECES, _PIECE_BYTES // words.pointer.size_bytes
        high = min(rows, cls.highest(side, isa, chains))
        # Two chains, where one would wait for its own fma longer than the square takes to come.
        waits = words.element.is_float and high * chains * columns < (8 * piece if pieces else 16)
        groups = 2 if waits and (high * chains + side) * 2 + 2 <= isa.registers else 1
        # A chain takes a vector in the time of an fma: these many sums are what several groups still gain by.
        held = high * chains * _BESIDE + 3 * side
        beside = near and pieces and high * columns <= 8 * piece and held <= isa.registers
        wide = _BESIDE * columns if beside else 0
        return cls(columns, side, piece if pieces else 0, high, groups, wide)

    @property
    def crowded_bytes(self) -> int:
        """Columns a multiple of so much apart are in too few sets of the first cache for a line of `wide` of them."""
        return _WAY_BYTES >> (self.wide // _WAYS).bit_length() - 1

    @staticmethod
    def highest(side: int, isa: Isa, chains: int = 1) -> int:
        """The most rows of A whose sums stay in registers beside a square and what turning it takes."""
        return max(1, (isa.registers - side - 4) // chains)

    @staticmethod
    def across(isa: Isa) -> tuple[int, int]:
        """(rows of B, vectors) that are worked on at once where B is walked across its rows."""
        deep = max(1, min(8, isa.registers // 2))
        return deep, max(1, min(2, isa.registers // 2 // deep))

    @property
    def width(self) -> int:
        """Columns that are worked on at once."""
        return self.columns * self.groups

    @property
    def unit(self) -> int:
        """Columns that a strip should hold a multiple of."""
        return math.lcm(self.width, self.wide or 1)


def together(is_cached: bool) -> int:
    """Chunks of K that are walked side by side, by whether B is in a cache, or comes from memory."""
    return _TOGETHER if is_cached else 1
