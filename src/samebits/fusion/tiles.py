"""Scales of blocks as block-scaled tensor cores take them: in tiles of 128 rows by 4 scales.

A tensor of them has the extents of the scales, rounded up to whole tiles, and in row-major order one tile after the
other, in each of which rows m, m + 32, m + 64 and m + 96 lie beside each other (`TiledLayout.scales_128x4`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import FusionError
from samebits.fusion import sizes
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Fusion, Scalar, TensorView
from samebits.fusion.misfits import OperandAxis
from samebits.operations import dim
from samebits.operations.dim import Size

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = [
    "ACROSS",
    "BLOCKS",
    "CALL",
    "DOWN",
    "REMEDY",
    "check",
    "check_inputs",
    "in_tiles",
    "nothing",
    "out_of_tiles",
    "tiled",
]

DOWN, ACROSS = 128, 4
# What takes them, and elements of a block by the format of its scale: NVFP4's, and MX's.
CALL = "scaled_mm"
BLOCKS = {DataType.Float8_e4m3fn: 16, DataType.Float8_e8m0fnu: 32}
REMEDY = "give whole tiles, as nv_block_quantize makes them with swizzle_block_scales=True"


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


def nothing(dtype: DType) -> float:
    """The number whose code is 0."""
    return 2.0**-127 if dtype is dtypes.float8_e8m0fnu else 0.0


def in_tiles(low: Lowering, name: str, shape: tuple[Size, ...]) -> str:
    """Scales [rows, columns] in whole tiles, of that shape; what tiles hold beyond them has the code 0."""
    (rows, columns), (all_rows, all_columns) = low.b.facts[name].shape, shape
    dtype = low.b.facts[name].dtype
    zero = low.b.scalar(nothing(dtype), dtype)
    wide = low.b.concat((name, low.b.expand(zero, (rows, all_columns - columns))), 1)
    whole = low.b.concat((wide, low.b.expand(zero, (all_rows - rows, all_columns))), 0)
    down, across = dim.floor_divide(all_rows, DOWN), dim.floor_divide(all_columns, ACROSS)
    split = low.b.reshape(whole, (down, 4, 32, across, ACROSS))
    return low.b.reshape(low.b.transpose(split, (0, 3, 2, 1, 4)), shape)


def check(
    call: str, name: str, scale: TensorView, lines: OperandAxis, k: Scalar, extents: Mapping[Scalar, int]
) -> None:
    """Raise FusionError if scales of blocks are known not to lie in whole tiles over the lines of an operand."""
    found: list[int] = []
    for size in (scale.axes[0].length, scale.axes[1].length, lines.length, k):
        root = scale.fusion.root(size)
        extent = root.value if root.value is not None else extents.get(root)
        if extent is None:
            return
        found.append(int(extent))
    rows, columns, count, length = found
    blocks = -(-length // BLOCKS[scale.dtype])
    due = -(-count // DOWN) * DOWN, -(-blocks // ACROSS) * ACROSS
    if (rows, columns) != due:
        expected = f"{due}, whole tiles over {count} x {blocks} scales of {lines.operand}"
        raise FusionError(call, name, "shape", (rows, columns), expected, REMEDY)


def check_inputs(fusion: Fusion, extents: Mapping[Scalar, int]) -> None:
    """Check scales of blocks that a run is given, by the extents of its inputs.

    Raises:  FusionError unless they lie in whole tiles over what they scale.
    """
    for expr in fusion.sorted_exprs():
        if expr.op == CALL:
            a, b, *scales = expr.tensors
            for operand, line, scale in ((a, 0, scales[0]), (b, 1, scales[1])):
                if scale.dtype in BLOCKS and scale in fusion.inputs:
                    side, name = OperandAxis(f"mat{line + 1}", operand, line), f"input {fusion.inputs.index(scale)}"
                    check("execute", name, scale, side, a.axes[1].length, extents)
