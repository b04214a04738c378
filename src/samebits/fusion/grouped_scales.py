"""`fd.ops.preprocess_grouped_matmul_input_sf`: scales of blocks, each group of rows in whole tiles of its own.

A group is put behind the tiles of the one before; what its tiles hold beyond it has the code 0. Start at `in_groups`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits import dtypes
from samebits.errors import FusionError, FusionTypeError
from samebits.fusion import datatypes, groups, sizes, tiles
from samebits.fusion.graph import Expr, TensorAxis, TensorView
from samebits.fusion.misfits import OperandAxis, agreed
from samebits.kernels import composites
from samebits.operations.dim import SymbolicShape
from samebits.operations.moves import Range

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "preprocess_grouped_matmul_input_sf"]

_CALL = "preprocess_grouped_matmul_input_sf"


def preprocess_grouped_matmul_input_sf(
    input: TensorView, input_offsets: TensorView, output_offsets: TensorView
) -> TensorView:
    """Scales [m, k] whose rows are of g groups, in whole tiles of 128 rows by 4 scales for each group.

    Args:
        input: Of a float format.
        input_offsets: Int32 or Int [g], an input: where each group starts; the last ends with the rows.
        output_offsets: Likewise: where each group starts in the result, which is behind the tiles of those before.

    Returns:  [(m + 127 * g) rounded down to a multiple of 128, k rounded up to one of 4]: all rows that tiles can need.
    Raises:   FusionError if an operand is another, a FusionTypeError where its kind or format is.
    """
    x = sizes.tensor(_CALL, "input", input)
    if x.ndim != 2:
        raise FusionError(_CALL, "input", "rank", x.ndim, 2, "reshape it")
    if not datatypes.is_float(x.dtype) or datatypes.row_of(_CALL, "input", x.dtype).width_bits < 8:
        raise FusionTypeError(_CALL, "input", "dtype", x.dtype, "a float format of 8 bits or more", "cast it first")
    starts, places = offsets(_CALL, input_offsets, output_offsets)
    made = x.fusion.record(_CALL, [x, starts, places])
    return x.fusion.tensor(made, x.dtype, tiled_axes(x.axes[0], x.axes[1], places))


def offsets(call: str, *given: object) -> tuple[TensorView, TensorView]:
    """Where groups start in rows and in tiles.

    Raises:  FusionError unless both are inputs that say so for as many groups.
    """
    names = ("input_offsets", "output_offsets")
    starts, places = (sizes.tensor(call, name, x) for name, x in zip(names, given, strict=True))
    for name, x in zip(names, (starts, places), strict=True):
        groups.check(call, name, x, "reshape it")
    sides = [OperandAxis(name, x, 0) for name, x in zip(names, (starts, places), strict=True)]
    agreed(call, sides[1], sides[0], "give one number for each group")
    return starts, places


def tiled_axes(rows: TensorAxis, columns: TensorAxis, places: TensorView) -> list[TensorAxis]:
    """The axes of tiles over groups of so many rows in all."""
    fusion = places.fusion
    most = sizes.product(fusion, [places.axes[0].length, fusion.constant(tiles.DOWN - 1)])
    whole = sizes.quotient(sizes.add(rows.length, most), fusion.constant(tiles.DOWN))
    down = sizes.product(fusion, [whole, fusion.constant(tiles.DOWN)])
    return [fusion.new_axis(down), fusion.new_axis(tiles.tiled(columns.length, tiles.ACROSS))]


# -- what it becomes in a program --------------------------------------------------------------------------------------
def in_groups(low: Lowering, scales: str, starts: TensorView, places: TensorView, shape: SymbolicShape) -> str:
    """Scales [m, k] as tiles of that shape: a row of tiles takes its group's that is as far behind the start."""
    b = low.b
    (rows, columns), dtype = b.facts[scales].shape, b.facts[scales].dtype
    begins, at = (low.operand(x, dtypes.int64) for x in (starts, places))
    count, one = b.facts[at].shape[0], b.scalar(1, dtypes.int64)
    end = b.dims((rows,))
    begins = b.concat((begins, end), 0)

    def taken(x: str, index: str) -> str:
        return b.gather(x, index, 0)

    row = b.add("range", (), Range(0, shape[0], 1))[0]
    before = b.apply("less_equal", b.reshape(at, (1, count)), b.reshape(row, (shape[0], 1)))
    total = b.rows(composites.reduction("row_sum", dtypes.int64), b.cast(before, dtypes.int64))[0]
    group = b.apply("sub", b.reshape(total, (shape[0],)), one)
    source = b.apply("add", taken(begins, group), b.apply("sub", row, taken(at, group)))
    is_there = b.apply("less", source, taken(begins, b.apply("add", group, one)))
    # Behind the scales stands a row of nothing, which the rest of the tiles takes.
    source = b.apply("where", is_there, source, b.reshape(end, ()))
    nothing = b.expand(b.scalar(tiles.nothing(dtype), dtype), (1, columns))
    return tiles.in_tiles(low, taken(b.concat((scales, nothing), 0), source), shape)


def _preprocess(low: Lowering, expr: Expr) -> list[str]:
    x, starts, places = expr.tensors
    return [in_groups(low, low.value(x), starts, places, low.shape(expr.outputs[0]))]


LOWERED = {_CALL: _preprocess}
