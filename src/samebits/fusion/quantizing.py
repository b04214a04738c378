"""Operations of `fd.ops` that quantise to formats whose blocks share a scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samebits import dtypes
from samebits.errors import FusionError, FusionTypeError, shown
from samebits.fusion import grouped_scales, sizes, tiles
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Argument, Expr, TensorView
from samebits.program import blocks

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "nv_block_quantize", "nv_grouped_block_quantize"]

_BLOCK = 16
_TAKEN = (DataType.Float, DataType.BFloat16, DataType.Half)


def nv_block_quantize(
    input: TensorView, global_scale: TensorView | None = None, swizzle_block_scales: bool = False,
    block_size: int = 16, dtype: DataType = DataType.Float4_e2m1fn,
) -> tuple[TensorView, TensorView]:  # fmt: skip
    """(elements, scales of blocks) of numbers in NVFP4, by the dialect `nvfp4/nvfuser-0.2`.

    Args:    input: [..., a multiple of 16] of Float, BFloat16 or Half.   global_scale: Float [], what numbers are
                multiplied with before scales are found, by nvFuser's tests 2688 over the largest magnitude; 1 without.
             swizzle_block_scales: whether scales are put into tiles, which a matrix has.
             block_size, dtype: only those of NVFP4: 16, Float4_e2m1fn.
    Returns: Float4_e2m1fn of input's extents, and Float8_e4m3fn [..., N / 16]; of a matrix [M, N] with tiles, M rounded
             up to a multiple of 128 and N / 16 to one of 4.
    Raises:  FusionError if an operand or an option is another.
    """
    call, x = "nv_block_quantize", sizes.tensor("nv_block_quantize", "input", input)
    _check(call, x, block_size, dtype)
    _check_tiled(call, x, swizzle_block_scales)
    args, fusion = [x, *_global_scale(call, global_scale)], x.fusion
    made = fusion.record(call, args, swizzle_block_scales=swizzle_block_scales, block_size=_BLOCK, dtype=dtype)
    elements = fusion.like(made, x, dtype)
    count = sizes.quotient(x.axes[-1].length, fusion.constant(_BLOCK))
    axes = [*[fusion.copied(axis) for axis in x.axes[:-1]], fusion.new_axis(count)]
    if swizzle_block_scales:
        rows = tiles.tiled(x.axes[0].length, tiles.DOWN)
        axes = [fusion.new_axis(rows), fusion.new_axis(tiles.tiled(count, tiles.ACROSS))]
    return elements, fusion.tensor(made, DataType.Float8_e4m3fn, axes)


def nv_grouped_block_quantize(
    input: TensorView, input_offsets: TensorView, output_offsets: TensorView, global_scale: TensorView | None = None,
    block_size: int = 16, dtype: DataType = DataType.Float4_e2m1fn,
) -> tuple[TensorView, TensorView]:  # fmt: skip
    """(elements, scales) of a matrix whose rows are of groups: `nv_block_quantize`, its scales in tiles of each group.

    Args:    input: [m, a multiple of 16] of Float, BFloat16 or Half.
             input_offsets, output_offsets: as `preprocess_grouped_matmul_input_sf` takes them.
             global_scale, block_size, dtype: as `nv_block_quantize` takes them.
    Returns: Float4_e2m1fn of input's extents, and Float8_e4m3fn as `preprocess_grouped_matmul_input_sf` gives it.
    Raises:  FusionError if an operand or an option is another.
    """
    call, x = "nv_grouped_block_quantize", sizes.tensor("nv_grouped_block_quantize", "input", input)
    _check(call, x, block_size, dtype)
    if x.ndim != 2:
        raise FusionError(call, "input", "rank", x.ndim, 2, "reshape it to a matrix")
    starts, places = grouped_scales.offsets(call, input_offsets, output_offsets)
    fusion = x.fusion
    args = [x, starts, places, *_global_scale(call, global_scale)]
    made = fusion.record(call, args, block_size=_BLOCK, dtype=dtype)
    elements = fusion.like(made, x, dtype)
    count = fusion.new_axis(sizes.quotient(x.axes[1].length, fusion.constant(_BLOCK)))
    return elements, fusion.tensor(made, DataType.Float8_e4m3fn, grouped_scales.tiled_axes(x.axes[0], count, places))


def _global_scale(call: str, given: TensorView | None) -> list[TensorView]:
    """The global scale, where there is one."""
    return [] if given is None else [sizes.number(call, "global_scale", given)]


def _check(call: str, x: TensorView, block_size: object, dtype: object) -> None:
    """Raise FusionError unless it is a tensor that NVFP4 is made of, with NVFP4's options."""
    if x.dtype not in _TAKEN:
        raise FusionError(call, "input", "dtype", x.dtype, "Float, BFloat16 or Half", "cast it first")
    if not x.ndim:
        raise FusionError(call, "input", "rank", 0, "at least 1", "broadcast it")
    length = x.axes[-1].length.value
    if length is not None and int(length) % _BLOCK:
        raise FusionError(call, "input", "last extent", length, f"a multiple of {_BLOCK}", "pad it with zeros first")
    if block_size != _BLOCK or isinstance(block_size, bool):
        raise FusionError(call, "block_size", "", block_size, f"{_BLOCK}, that of NVFP4", "leave it out")
    if dtype is not DataType.Float4_e2m1fn:
        expected, remedy = "DataType.Float4_e2m1fn", "leave it out, or quantise by samebits.quantize"
        raise FusionError(call, "dtype", "", dtype, expected, remedy)


def _check_tiled(call: str, x: TensorView, tiled: object) -> None:
    """Raise FusionError unless it is said whether scales are put into tiles, and they can be."""
    if not isinstance(tiled, bool):
        raise FusionTypeError(call, "swizzle_block_scales", "", shown(tiled), "True or False", "leave it out")
    if tiled and x.ndim != 2:
        raise FusionError(call, "input", "rank", x.ndim, "2 where scales are put into tiles", "reshape it to a matrix")


# -- what they become in a program -------------------------------------------------------------------------------------
def _quantized(low: Lowering, x: Argument, global_scale: Sequence[Argument]) -> blocks.BlockValue:
    scale = low.value(global_scale[0]) if global_scale else low.b.scalar(1.0, dtypes.float32)
    return blocks.quantized(low.b, low.value(x), "nvfp4", "nvfp4/nvfuser-0.2", scale)


def _nv_block_quantize(low: Lowering, expr: Expr) -> list[str]:
    made = _quantized(low, expr.args[0], expr.args[1:])
    scales = made.scales
    if expr.option("swizzle_block_scales"):
        scales = tiles.in_tiles(low, scales, low.shape(expr.outputs[1]))
    return [made.elements, scales]


def _nv_grouped_block_quantize(low: Lowering, expr: Expr) -> list[str]:
    x, starts, places, *global_scale = expr.tensors
    made, shape = _quantized(low, x, global_scale), low.shape(expr.outputs[1])
    return [made.elements, grouped_scales.in_groups(low, made.scales, starts, places, shape)]


LOWERED = {"nv_block_quantize": _nv_block_quantize, "nv_grouped_block_quantize": _nv_grouped_block_quantize}
