"""Lines of a microtile's sums, asked for a few a turn while a chunk is summed.

They come from afar where a block of K begins or ends: asked for all at once they keep A and B waiting (Emerald Rapids,
512 x 768 x 3072 of a weight [N, K], 5.9 % of the time at the end of chunks and 2.1 % before they begin; 0.8 % of both a
line a turn). Start at `AskedSums`.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Index, Pointer
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels.plan import LINE_BYTES

__all__ = ["AskedSums"]

# Lines that a turn asks for: to find one alone takes as many instructions, and short chunks end before they asked for
# all (Cascade Lake, speed over one a turn: twelve products 256 x 64 x 256 1.02 to 1.10, four 512 x 64 x 512 1.14).
_AT_ONCE = 2
# A tile of sums, with the step of its rows in elements.
_Tile = tuple[Pointer, Index]


@dataclass(frozen=True, slots=True)
class AskedSums:
    """The lines of a tile of `rows` by `columns` sums of `dtype`.

    `apart`: whether turns that have none to ask for are a loop of their own, which has fewer instructions.
    """

    rows: int
    columns: int
    dtype: DType
    apart: bool

    def spans(
        self, b: Builder, turns: Index, tiles: tuple[_Tile, _Tile] | None
    ) -> list[tuple[Index, Index, _Tile | None]]:
        """Turns from one number to before another, and the tile that they ask for: the one of two that comes from afar.
        Sums between chunks stay in the first cache, and their rows follow each other."""
        if tiles is None:
            return [(0, turns, None)]
        (t, t_step), (c, c_step) = tiles
        is_c = c_step > self.columns
        tile, step = b.choose(is_c, c, t), b.choose(is_c, c_step, t_step)
        if not self.apart:
            return [(0, turns, (tile, step))]
        asking = b.choose(step > self.columns, b.min(turns, self.rows * self._parts), 0)
        return [(0, asking, (tile, step)), (asking, turns, None)]

    def ask(self, b: Builder, tile: _Tile, turn: Index) -> None:
        """Ask for the lines of turn number `turn`, or of the last that has some."""
        (x, step), parts = tile, self._parts
        turn = turn if self.apart else b.min(turn, self.rows * parts - 1)
        row, part = (turn, 0) if parts == 1 else (turn // parts, turn % parts)
        for line in range(len(self._lines) // parts):
            b.prefetch(x, row * step + part * (self.columns // parts) + self._lines[line])

    @property
    def _lines(self) -> range:
        """Where the lines of a row begin."""
        return range(0, self.columns, LINE_BYTES // self.dtype.size_bytes)

    @property
    def _parts(self) -> int:
        """Turns that ask for a row."""
        return max(1, len(self._lines) // _AT_ONCE)
