"""Blocks of A for tiles: micropanels in the order in which tiles read them.

A micropanel of h rows is `[step][row][16 words]`, a step being a tile's words along K: one stream from the second cache
(Emerald Rapids, int8, B in the first cache, GOP/s where rows lie a line more than K apart and so: 3,730 and 3,900; both
operands from the second cache: 2,480 and 2,680). Words beyond K are left as they are. Start at `TiledBlock`.
"""

from __future__ import annotations

from collections.abc import Callable

from samebits.codegen.rules import TILE_LANES
from samebits.codegen.vocabulary import Builder, Function, Index, Pointer
from samebits.frozen import dataclass
from samebits.kernels.gemm.pack import PackedBlock
from samebits.kernels.gemm.words import Words


@dataclass(frozen=True, slots=True)
class TiledBlock:
    """A function `(x, row, column, rows, columns, block)` that packs one micropanel of `rows` rows by `columns`
    elements of K.

    `words`: what elements become.   `kind`: how they lie, as of `PackedBlock`.   `lanes`: of a vector.
    """

    words: Words
    kind: str
    lanes: int

    def emit(self, b: Builder, name: str) -> Function:
        """The function."""
        body = self._rows(b) if self.kind == "copy" else self._steps(b, name)
        taken = (self.words.pointer, None, None, None, None, self.words.word)
        return b.function(name, taken, body)

    def _rows(self, b: Builder) -> Callable[..., None]:
        """A row after the other, as they lie."""
        words, depth = self.words, self.words.depth

        def body(x: Pointer, row: Index, column: Index, rows: Index, columns: Index, block: Pointer) -> None:
            count = columns // depth
            whole = count // TILE_LANES * TILE_LANES
            for r in b.loop(0, rows):
                line, step = b.offset(x, r * row), b.offset(block, r * TILE_LANES)
                for c in b.loop(0, whole, TILE_LANES):
                    b.store(step, c * rows, words.along(b, line, c * depth, TILE_LANES))
                for _ in b.when(whole < count):
                    rest = words.along(b, line, whole * depth, TILE_LANES, count - whole)
                    b.store(step, whole * rows, rest)
                for _ in b.when(count * depth < columns):
                    last = words.across(b, line, count * depth, 1, 1, None, columns - count * depth)
                    b.store(step, whole * rows + (count - whole), last)

        return body

    def _steps(self, b: Builder, name: str) -> Callable[..., None]:
        """A step after the other, each as a block of its own."""
        block_of = PackedBlock(self.words, self.kind, TILE_LANES, self.lanes, k_is_row=False)
        pack, elements = block_of.emit(b, f"{name}_step"), TILE_LANES * self.words.depth

        def body(x: Pointer, row: Index, column: Index, rows: Index, columns: Index, block: Pointer) -> None:
            for k in b.loop(0, columns, elements):
                step = b.offset(block, k // self.words.depth * rows)
                b.call(pack, b.offset(x, k * column), row, column, rows, b.min(columns - k, elements), step, TILE_LANES)

        return body
