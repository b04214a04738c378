"""`fd.ops.scaled_mm`: products whose operands have scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits import dtypes
from samebits.errors import FusionError, FusionTypeError
from samebits.fusion import datatypes, sizes, tiles
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Argument, Expr, TensorView
from samebits.fusion.misfits import OperandAxis, agreed, must_be
from samebits.operations import dim
from samebits.operations.product import Options
from samebits.operations.sharing import Block

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "scaled_mm"]

_CALL = tiles.CALL


def scaled_mm(
    mat1: TensorView, mat2: TensorView, scale1: TensorView, scale2: TensorView, alpha: TensorView | None = None,
    bias: TensorView | None = None, beta: TensorView | None = None, dtype: DataType = DataType.BFloat16,
    output_block_scale_size: int = 0, output_block_scale_dtype: DataType = DataType.BFloat16,
    output_gamma: bool = False,
) -> tuple[TensorView, None, None]:  # fmt: skip
    """(mat1 @ mat2 with scales, times alpha, plus beta * bias, None, None): numerics.md sections 2 and 4.

    Args:
        mat1, mat2: [m, k] and [k, n] of float formats.
        scale1, scale2: Both Float: one for everything, [] or of one element; or one a row and one a column, [m, 1] and
            [1, n]. Or both Float8_e4m3fn, of blocks of 16 along k, or Float8_e8m0fnu, of blocks of 32: tiles of
            [m, k / block], and of [n, k / block].
        alpha, beta: Float [].   bias: A float format, [n] or [m, n].
        dtype: The result's: Float, Half or BFloat16.
        output_block_scale_size, output_block_scale_dtype, output_gamma: As they are: results are not quantised here.

    Raises:   FusionError if an operand or an option is another, a FusionTypeError where its kind or format is.
    """
    a, b = sizes.tensor(_CALL, "mat1", mat1), sizes.tensor(_CALL, "mat2", mat2)
    scales = [sizes.tensor(_CALL, name, x) for name, x in (("scale1", scale1), ("scale2", scale2))]
    for name, given in (("output_block_scale_size", output_block_scale_size), ("output_gamma", output_gamma)):
        if given != 0:
            remedy = "quantise the result by nv_block_quantize"
            raise FusionError(_CALL, name, "", given, "left out", remedy)
    if dtype not in (DataType.Float, DataType.Half, DataType.BFloat16):
        raise FusionTypeError(_CALL, "dtype", "", dtype, "Float, Half or BFloat16", "cast the result")
    for name, x in (("mat1", a), ("mat2", b)):
        if x.ndim != 2:
            raise FusionError(_CALL, name, "rank", x.ndim, 2, "reshape it")
        if not datatypes.is_float(x.dtype):
            raise FusionTypeError(_CALL, name, "dtype", x.dtype, "a float format", "cast it first")
    fusion = a.fusion
    agreed(_CALL, OperandAxis("mat2", b, 0), OperandAxis("mat1", a, 1), "permute or slice one of them: both have K")
    _check_scales(a, b, scales)
    added = _added(a, b, alpha, bias, beta)
    made = fusion.record(_CALL, [a, b, *scales], **added, dtype=dtype)
    return fusion.tensor(made, dtype, [fusion.copied(a.axes[0]), fusion.copied(b.axes[1])]), None, None


def _check_scales(a: TensorView, b: TensorView, scales: list[TensorView]) -> None:
    """Raise FusionError unless both are of one kind, and of what they scale."""
    kinds = {x.dtype for x in scales}
    if len(kinds) != 1 or not kinds <= {DataType.Float, *tiles.BLOCKS}:
        given = " and ".join(str(x.dtype) for x in scales)
        expected = "both Float, both Float8_e4m3fn or both Float8_e8m0fnu"
        raise FusionTypeError(_CALL, "scales", "dtypes", given, expected, "cast one of them")
    for name, x, operand, line in (("scale1", scales[0], a, 0), ("scale2", scales[1], b, 1)):
        if x.dtype is not DataType.Float:
            if x.ndim != 2:
                raise FusionError(_CALL, name, "rank", x.ndim, 2, tiles.REMEDY)
            tiles.check(_CALL, name, x, OperandAxis(f"mat{line + 1}", operand, line), a.axes[1].length, {})
        elif not _is_one(x):
            if x.ndim != 2:
                remedy = "give it an axis of extent 1 along K"
                raise FusionError(_CALL, name, "rank", x.ndim, "2, or 0 of one for everything", remedy)
            what = "one scale for each row of mat1" if line == 0 else "one scale for each column of mat2"
            agreed(_CALL, OperandAxis(name, x, line), OperandAxis(f"mat{line + 1}", operand, line), f"give {what}")
            must_be(_CALL, OperandAxis(name, x, 1 - line), 1, f"give {what}")


def _is_one(x: TensorView) -> bool:
    """Whether the definition says that x has one element."""
    return all(axis.length.value == 1 for axis in x.axes)


def _added(
    a: TensorView, b: TensorView, alpha: TensorView | None, bias: TensorView | None, beta: TensorView | None
) -> dict[str, Argument]:
    """What is multiplied and added behind the scales."""
    found: dict[str, Argument] = {}
    for name, given in (("alpha", alpha), ("beta", beta)):
        if given is not None:
            found[name] = sizes.number(_CALL, name, given)
    if bias is None:
        if beta is not None:
            raise FusionError(_CALL, "beta", "", "given without bias", "given with it", "give bias too")
        return found
    c = sizes.tensor(_CALL, "bias", bias)
    if not datatypes.is_float(c.dtype):
        raise FusionTypeError(_CALL, "bias", "dtype", c.dtype, "a float format", "cast it first")
    if c.ndim not in (1, 2):
        raise FusionError(_CALL, "bias", "rank", c.ndim, "1 or 2", "reshape it to [n] or [m, n]")
    remedy = "give one number for each column of mat2, or one for each element of the result"
    agreed(_CALL, OperandAxis("bias", c, -1), OperandAxis("mat2", b, 1), remedy)
    if c.ndim == 2:
        agreed(_CALL, OperandAxis("bias", c, 0), OperandAxis("mat1", a, 0), remedy)
    found["bias"] = c
    return found


# -- what they become in a program -------------------------------------------------------------------------------------
def _scaled_mm(low: Lowering, expr: Expr) -> list[str]:
    a, b, *scales = (low.value(x) for x in expr.args)
    dtype, kind = datatypes.row_of(_CALL, "dtype", expr.outputs[0].dtype), low.b.facts[scales[0]].dtype
    block = None
    if kind is not dtypes.float32:
        group = tiles.BLOCKS[datatypes.data_type_of(kind)]
        block = Block(group, 1)
        (m, k), n = low.b.facts[a].shape, low.b.facts[b].shape[1]
        blocks = dim.floor_divide(k + (group - 1), group)
        scales = [tiles.out_of_tiles(low, scales[0], m, blocks), tiles.out_of_tiles(low, scales[1], n, blocks)]
        scales[1] = low.b.transpose(scales[1], (1, 0))
    given = {"a_scale": scales[0], "b_scale": scales[1]}
    given |= {name: low.value(x) for name in ("alpha", "beta") if (x := expr.option(name)) is not None}
    bias = expr.option("bias")
    if bias is not None:
        given["c" if "beta" in given else "bias"] = low.operand(bias, dtypes.float32)
    options = Options(a_group=block, b_group=block, out_dtype=dtype)
    return [low.b.contract(a, b, options, **given)]


LOWERED = {_CALL: _scaled_mm}
