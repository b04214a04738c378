"""Scales of blocks as block-scaled tensor cores take them: in tiles of 128 rows by 4 scales.

A tensor of them has the extents of the scales, rounded up to whole tiles, and in row-major order one tile after the
other, in each of which rows m, m + 32, m + 64 and m + 96 lie beside each other (`TiledLayout.scales_128x4`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.fusion import sizes
from samebits.fusion.graph import Scalar
from samebits.operations import dim
from samebits.operations.dim import Size
from samebits.operations.moves import Concat

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["ACROSS", "DOWN", "in_tiles", "out_of_tiles", "tiled"]

DOWN, ACROSS = 128, 4


def tiled(x: Scalar, of: int) -> Scalar:
    """An extent rounded up to whole tiles."""
    count = sizes.quotient(sizes.add(x, x.fusion.constant(of - 1)), x.fusion.constant(of))
    return sizes.product(x.fusion, [count, x.fusion.constant(of)])


def out_of_tiles(low: Lowering, name: str, rows: Size, columns: Size) -> str:
    """Scales [rows, columns] that lie in tiles."""
    down, across = dim.floor_divide(rows + (DOWN - 1), DOWN), dim.floor_divide(columns + (ACROSS - 1), ACROSS)
    split = low.b.reshape(name, (down, across, 32, 4, ACROSS))
    whole = low.b.reshape(low.b.transpose(split, (0, 3, 2, 1, 4)), (down * DOWN, across * ACROSS))
    return low.b.slice(whole, (0, 0), (rows, columns), (1, 1))


def in_tiles(low: Lowering, name: str, shape: tuple[Size, ...]) -> str:
    """Scales [rows, columns] in whole tiles, of that shape; what tiles hold beyond them is 0."""
    (rows, columns), (all_rows, all_columns) = low.b.facts[name].shape, shape
    zero = low.b.scalar(0.0, low.b.facts[name].dtype)
    wide = low.b.add("concat", (name, low.b.expand(zero, (rows, all_columns - columns))), Concat(1))[0]
    whole = low.b.add("concat", (wide, low.b.expand(zero, (all_rows - rows, all_columns))), Concat(0))[0]
    down, across = dim.floor_divide(all_rows, DOWN), dim.floor_divide(all_columns, ACROSS)
    split = low.b.reshape(whole, (down, 4, 32, across, ACROSS))
    return low.b.reshape(low.b.transpose(split, (0, 3, 2, 1, 4)), shape)
