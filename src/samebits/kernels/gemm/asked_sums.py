"""Lines of a microtile's sums, asked for a line a turn while a chunk is summed.

They come from afar where a block of K begins or ends: asked for all at once they keep A and B waiting (Emerald Rapids,
512 x 768 x 3072 of a weight [N, K], 5.9 % of the time at the end of chunks and 2.1 % before they begin; 0.8 % of both a
line a turn). Start at `AskedSums`.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits.codegen.vocabulary import Builder, Index, Pointer
from samebits.frozen import dataclass
from samebits.kernels.plan import LINE_BYTES

__all__ = ["AskedSums"]

# A tile of sums, with the step of its rows in elements.
_Tile = tuple[Pointer, Index]


@dataclass(frozen=True, slots=True)
class AskedSums:
    """Tiles of `rows` by `columns` sums; the microkernel's turns have `unroll` words."""

    rows: int
    columns: int
    unroll: int

    def spans(self, b: Builder, whole: Index, t: _Tile, c: _Tile) -> Sequence[tuple[Index, Index, Sequence[_Tile]]]:
        """Words low .. high-1 of `whole` ones, and the tiles whose lines their turns ask for: first those that reach
        all lines of the one that comes from afar, if there is one, then the others, which ask for nothing. Sums between
        chunks stay in the first cache, and their rows follow each other."""
        is_c = c[1] > self.columns
        tile, step = b.choose(is_c, c[0], t[0]), b.choose(is_c, c[1], t[1])
        lines = self.rows * self._lines(tile)
        asking = b.choose(step > self.columns, b.min(whole, lines * self.unroll), 0)
        return (0, asking, [(tile, step)]), (asking, whole, [])

    def ask(self, b: Builder, tile: _Tile, turn: Index) -> None:
        """Ask for line number `turn`, or the last."""
        x, step = tile
        lines = self._lines(x)
        turn = b.min(turn, self.rows * lines - 1)
        row = turn // lines
        b.prefetch(x, row * step + (turn - row * lines) * (LINE_BYTES // x.dtype.size_bytes))

    def _lines(self, x: Pointer) -> int:
        """Lines of a row."""
        lines: int = -(-self.columns * x.dtype.size_bytes // LINE_BYTES)
        return lines
