"""Interleaved micropanels of A: words in the order in which the microkernel's turns read them.

A micropanel of h rows is `[turn][row][UNROLL]`, a turn being UNROLL words along K: one stream, which comes from the
second cache in time, where h rows are h streams, each of which starts anew with every chunk (Emerald Rapids, one core
with operands in its second cache, part of the peak by rows and interleaved: 12 x 32 tiles of K = 128 0.93 and 0.95, 256
0.91 and 0.97, 768 0.89 and 0.94). A micropanel's chunks follow each other (speed over that where those of all
micropanels do: 512 x 768 x 3072 of columns 1.03, 2048 cubed of float32 and 1024 cubed of float64 1.01). Sums that are
one chain a chunk take it, where rows of A are contiguous, words of several elements too (Zen 4, speed over that by
rows: bfloat16 256, 512, 1024 and 4096 cubed 1.01, 1.015, 1.03 and 1.04, int8 512, 1024 and 4096 cubed 1.01, 1.01 and
1.03, by vectors of 32 bytes 1.02). Columns would be turned for six of the sixteen rows that a vector holds (speed over
that by rows, 6 x 64 tiles: 1024 cubed 0.94, 768 x 512 x 3072, 3072 x 512 x 768 and 768 x 128 x 768 0.97, shorter K
0.99). Where four instructions begin in a cycle and tiles are of twelve rows, columns of words of one element take it
too, if there are several chunks (Cascade Lake: 768 x 512 x 3072 and 3072 x 512 x 768 1.04, 1024 cubed 1.05; K = 256
0.98), and everywhere those of pairs of bfloat16, of which half as many words are turned (`Choice.interleaved`). Start
at `InterleavedRows`.
"""

from __future__ import annotations

import functools

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Function, Index, Pointer, Vector
from samebits.frozen import dataclass
from samebits.kernels.gemm.microtile import UNROLL
from samebits.kernels.gemm.words import Words

__all__ = ["COLUMNS", "InterleavedColumns", "InterleavedRows", "suits"]

# Panels of B that pay for it, by the 32-bit lanes of a vector. Of 16 lanes (speed over that by rows, K = 32 to 128):
# one panel 0.91 to 0.94, two 1.00, four 1.02, twelve 1.01. Four would do; heads of attention have so many, and a model
# would compile both forms for them. Of eight the first micropanel may read B where it lies (Cascade Lake, 256 cubed
# 1.05, 64 x 512 x 256 1.11). Vectors of 8 lanes use up A half as fast, and gain half as much (Emerald Rapids, float32:
# 512 x 512 x 192 0.99, 256 cubed 1.00, 512, 768 and 1024 cubed 1.02, 1.03, 1.03; float64 1024 cubed 1.025).
_PANELS = {16: 8, 8: 24}
# Rows that are asked for before they are read: short runs of memory are over before the hardware's own prefetching
# begins (Emerald Rapids, share of the time of 512 x 3072 x 768 without and with: 5.3 and 3.9 %).
_ROWS_AHEAD = 12
# Words of each row that are turned together, where columns are contiguous.
COLUMNS = 8
# Turns of a vector of 64 bytes, and so many rows at a time.
_SQUARE = 4


def suits(isa: Isa, panels: int) -> bool:
    """Whether A is interleaved for so many panels of B."""
    least = _PANELS.get(isa.lanes)
    return least is not None and panels >= least


@dataclass(frozen=True, slots=True)
class InterleavedRows:
    """A function `(x, row, rows, columns, block)` that packs one micropanel of `rows` rows of `columns` elements,
    contiguous and `row` elements apart; the words of a last turn that is not full are zero.

    `words`: what elements become.
    """

    words: Words
    lanes: int

    @property
    def width(self) -> int:
        """Words that are read at a time: whole turns."""
        return -(-self.lanes // UNROLL) * UNROLL

    def emit(self, b: Builder, name: str) -> Function:
        """The function."""

        def body(x: Pointer, row: Index, rows: Index, columns: Index, block: Pointer) -> None:
            self._text(b, x, row, rows, columns, block)

        return b.function(name, (self.words.pointer, None, None, None, self.words.word), body)

    def _text(self, b: Builder, x: Pointer, row: Index, rows: Index, columns: Index, block: Pointer) -> None:
        width, depth = self.width, self.words.depth
        full = columns // depth  # words; a last one that the elements do not fill is not among them
        whole = full // width * width

        def place(r: Index, c: Index) -> Index:
            return r * row + c * depth

        def words(r: Index, c: Index, count: Index | None = None) -> None:
            line = self.words.along(b, x, place(r, c), width, count)
            for turn in range(0, width, UNROLL):
                b.store(block, (c + turn) * rows + r * UNROLL, b.slice(line, turn, UNROLL))

        def rest(r: Index) -> None:
            """The words of a row behind the last whole vector."""
            for _ in b.when(whole * depth < columns):
                words(r, whole, full - whole)
            for _ in b.when(full * depth < columns) if depth > 1 else ():
                last = self.words.across(b, x, place(r, full), 1, 1, None, columns - full * depth)
                b.store(block, full // UNROLL * UNROLL * rows + r * UNROLL + full % UNROLL, last)

        def square(r: Index, c: Index) -> None:
            """Turns of as many rows as a vector has turns: each turn's words are a vector then."""
            for i in range(width // UNROLL):
                b.prefetch(x, place(r + _ROWS_AHEAD + i, c))
            lines = [self.words.along(b, x, place(r + i, c), width) for i in range(width // UNROLL)]
            for turn, v in enumerate(_turns_side_by_side(b, lines)):
                b.store(block, (c + turn * UNROLL) * rows + r * UNROLL, v)

        high = width // UNROLL
        several = rows // high * high if high == _SQUARE else 0
        if high == _SQUARE:
            for r in b.loop(0, several, high):
                for c in b.loop(0, whole, width):
                    square(r, c)
                for i in range(high):
                    rest(r + i)
        for r in b.loop(several, rows):
            for c in b.loop(0, whole, width):
                words(r, c)
            rest(r)


@dataclass(frozen=True, slots=True)
class InterleavedColumns:
    """A function `(x, column, rows, columns, block)` that packs the same of a micropanel whose columns are contiguous,
    `column` elements apart, and asks for those of the next COLUMNS words. Squares have as many rows as a turn has
    words; the last is moved back to overlap the one before.

    `words`: what elements become.
    """

    words: Words

    def emit(self, b: Builder, name: str) -> Function:
        """The function."""
        taken = (self.words.pointer, None, None, None, self.words.word)
        return b.function(name, taken, functools.partial(self._text, b))

    def _text(self, b: Builder, x: Pointer, column: Index, rows: Index, columns: Index, block: Pointer) -> None:
        depth = self.words.depth
        full = columns // depth  # words; a last one that the elements do not fill is not among them
        whole = b.choose(rows < UNROLL, 0, full // UNROLL * UNROLL)

        def words(r: Index, c: Index, width: int, present: Index | None = None) -> Vector:
            return self.words.across(b, x, c * depth * column + r, column, width, None, present)

        for c in b.loop(0, whole, UNROLL):
            for r in b.loop(0, rows, UNROLL):
                first = b.min(r, rows - UNROLL)
                for u in range(UNROLL * depth):
                    b.prefetch(x, ((c + COLUMNS) * depth + u) * column + first)
                for i, turn in enumerate(b.transpose([words(first, c + u, UNROLL) for u in range(UNROLL)])):
                    b.store(block, c * rows + (first + i) * UNROLL, turn)
        for c in b.loop(whole, (columns + (depth - 1)) // depth, UNROLL):
            for r in b.loop(0, rows):
                turn = c * rows + r * UNROLL
                b.store(block, turn, b.constant(0, self.words.word, UNROLL))
                for u in b.loop(0, b.min(full - c, UNROLL)):
                    b.store(block, turn + u, words(r, c + u, 1))
                if depth > 1:
                    for _ in b.when((full * depth < columns) & (full - c < UNROLL)):
                        b.store(block, turn + (full - c), words(r, full, 1, columns - full * depth))


def _turns_side_by_side(b: Builder, lines: list[Vector]) -> list[Vector]:
    """Of four rows of four turns: for each turn those of all rows."""
    low, high = list(range(2 * UNROLL)), list(range(2 * UNROLL, 4 * UNROLL))
    size = 4 * UNROLL
    even = [x for q in (0, 2) for x in range(q * UNROLL, (q + 1) * UNROLL)]
    odd = [x + UNROLL for x in even]
    found = list[Vector]()
    for half in (low, high):
        pairs = [b.pick(lines[i : i + 2], half + [size + x for x in half]) for i in (0, 2)]
        found += [b.pick(pairs, lanes + [size + x for x in lanes]) for lanes in (even, odd)]
    return found
