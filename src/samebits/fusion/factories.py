"""Operations of `fd.ops` that make tensors of no tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samebits import dtypes
from samebits.errors import FusionError
from samebits.fusion import datatypes, promotion, sizes
from samebits.fusion.datatypes import DataType
from samebits.fusion.elementwise import define
from samebits.fusion.graph import Argument, Expr, Scalar, TensorView, integer
from samebits.fusion.shaping import broadcast
from samebits.fusion.ternary import where
from samebits.operations.moves import Range

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "full", "iota", "triu"]


def full(shape: Sequence[int | Scalar], fill_value: object, dtype: DataType) -> TensorView:
    """A tensor of one number.

    Raises:  FusionError if the shape holds what is no size, or the number is none.
    """
    row = datatypes.row_of("full", "dtype", dtype)
    fusion = promotion.fusion_of("full", fill_value, *(shape if isinstance(shape, list | tuple) else ()))
    wanted = sizes.sequence("full", fusion, shape)
    fill = promotion.as_val("full", fusion, fill_value)
    if not isinstance(fill, Scalar):
        raise FusionError("full", "fill_value", "", "a tensor", "a number or a scalar", "use expand")
    if fill.value is not None and fill.dtype is not dtype:
        fill = fusion.constant(promotion.number_as(fill.value, fill.dtype, dtype), dtype)
    made = fusion.record("full", [], shape=wanted, fill_value=fill, dtype=datatypes.data_type_of(row))
    return fusion.tensor(made, datatypes.data_type_of(row), [fusion.new_axis(fusion.root(size)) for size in wanted])


def iota(length: object, start: object = None, step: object = None, dtype: DataType = DataType.Int) -> TensorView:
    """start, start + step, ...: `length` numbers, each start + i * step with two roundings.

    Raises:  FusionError if the length is no integer, the step is 0, or start or step is of another kind than dtype.
    """
    row = datatypes.row_of("iota", "dtype", dtype)
    fusion = promotion.fusion_of("iota", length, start, step)
    count = promotion.as_val("iota", fusion, length)
    if not isinstance(count, Scalar) or not datatypes.is_integer(count.dtype):
        raise FusionError("iota", "length", "dtype", count.dtype, "an integer format", "cast it first")
    given: dict[str, Argument] = {"length": count}
    for name, each, least in (("start", start, 0), ("step", step, 1)):
        x = promotion.as_val("iota", fusion, least if each is None else each, dtype if each is None else None)
        same = datatypes.is_float(x.dtype) == row.is_float and x.dtype is not DataType.Bool
        if not isinstance(x, Scalar) or not same:
            raise FusionError("iota", name, "dtype", x.dtype, f"of the kind of {dtype}", "cast it first")
        if x.value is not None and (x.value - x.value != 0 or (name == "step" and x.value == 0)):
            raise FusionError("iota", name, "", x, "finite, and no step of 0", "give another number")
        given[name] = x
    made = fusion.record("iota", [], **given, dtype=dtype)
    return fusion.tensor(made, dtype, [fusion.new_axis(fusion.root(count))])


def triu(arg: TensorView, diagonal: int = 0) -> TensorView:
    """The elements on and above a diagonal of the last two axes, 0 below.

    Raises:  FusionError if arg has fewer than two axes.
    """
    x = sizes.tensor("triu", "arg", arg)
    if x.ndim < 2:
        raise FusionError("triu", "arg", "rank", x.ndim, "at least 2", "reshape it")
    rows = iota(x.axes[-2].length, 0, 1, DataType.Int)
    columns = iota(x.axes[-1].length, -integer("triu", "diagonal", diagonal), 1, DataType.Int)
    chosen = define("le", broadcast(rows, [False, True]), broadcast(columns, [True, False]))
    zero = x.fusion.constant(promotion.converted("triu", 0, x.dtype), x.dtype)
    return where(chosen, x, zero)  # type: ignore[return-value]  # of a tensor it is a tensor


# -- what they become in a program -------------------------------------------------------------------------------------
def _full(low: Lowering, expr: Expr) -> list[str]:
    dtype = datatypes.row_of("full", "dtype", expr.option("dtype"))
    return [low.b.expand(low.operand(expr.option("fill_value"), dtype), low.shape(expr.outputs[0]))]


def _iota(low: Lowering, expr: Expr) -> list[str]:
    dtype = datatypes.row_of("iota", "dtype", expr.option("dtype"))
    places = low.b.add("range", (), Range(0, low.size(expr.option("length")), 1))[0]
    start, step = (expr.option(name) for name in ("start", "step"))
    computed = dtype if dtype.is_float else dtypes.int64
    scaled = low.b.apply("mul", low.b.cast(places, computed), low.operand(step, computed))
    made = low.b.apply("add", scaled, low.operand(start, computed))
    return [low.b.as_dtype(made, dtype)]


LOWERED = {"full": _full, "iota": _iota}
