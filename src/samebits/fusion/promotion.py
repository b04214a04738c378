"""Which format an operation computes in, by nvFuser's rules, and the casts that bring operands there.

Tensors with axes decide before tensors without, and these before scalars: a scalar changes the format only where it is
of a higher kind (integers under floats). Formats narrower than Float are computed in Float. Start at `promote`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import driver, elements, ieee
from samebits.dtypes import DType
from samebits.errors import FusionError, FusionTypeError, shown
from samebits.fusion import datatypes
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Fusion, Number, Scalar, TensorView, Val, current
from samebits.kernels.functions import exact

__all__ = ["as_val", "cast", "common", "converted", "element", "fusion_of", "number_as", "promote"]


def fusion_of(call: str, *operands: object) -> Fusion:
    """The fusion of the first value among operands, or the one being defined."""
    for x in operands:
        if isinstance(x, Val):
            return x.fusion
    return current(call)


def as_val(call: str, fusion: Fusion, x: object, dtype: DataType | None = None) -> Val:
    """An operand as a value: a Python number becomes a constant of Bool, Int or Double, or of `dtype`.

    Raises:  FusionError if it is neither a value nor a real number.
    """
    if isinstance(x, Val):
        return x
    if isinstance(x, bool | int | float):
        kind = DataType.Bool if isinstance(x, bool) else DataType.Int if isinstance(x, int) else DataType.Double
        dtype = kind if dtype is None else dtype
        return fusion.constant(converted(call, x, dtype), dtype)
    if isinstance(x, complex):
        datatypes.row_of(call, "operand", DataType.ComplexDouble)
    expected, remedy = "a value of the fusion or a number", "define it by define_tensor or define_scalar"
    raise FusionTypeError(call, "operand", "", type(x).__name__, expected, remedy)


def converted(call: str, value: Number, dtype: DataType) -> Number:
    """A number of the kind that a format holds: integers of a float are what is before its point.

    Raises:  FusionError if it is beyond all that the format holds, which of floats is what no Double is near to.
    """
    if dtype is DataType.Bool:
        return bool(value)
    row = datatypes.row_of(call, "scalar", dtype)
    found: Number | None
    try:
        if row.is_float:
            found = value if type(value) is float else elements.as_float(value, row)
        else:
            found = int(value)
    except (OverflowError, ValueError):  # an integer beyond Double; NaN and infinities as integers
        found = None
    if found is None or not (row.is_float or _holds(row, found)):
        raise FusionError(call, "scalar", "", shown(value), f"a number that {dtype} holds", "choose another format")
    return found


def _holds(row: DType, number: Number) -> bool:
    """Whether a format of integers has a number."""
    least, most = _limits(row)
    return least <= number <= most


@functools.cache
def _limits(row: DType) -> tuple[float, float]:
    return row.min, row.max


def element(call: str, value: Number, dtype: DataType) -> npt.NDArray[Any]:
    """A number as an element of a format, an array []: rounded once, NaN canonical.

    Raises:  as `converted`.
    """
    row, found = datatypes.row_of(call, "scalar", dtype), converted(call, value, dtype)
    if (row.is_float and dtype is not DataType.Double) or found != found:
        return elements.rounded(found, row)
    return np.array(found, row.numpy)


def number_as(value: Number, source: DataType, target: DataType) -> Number:
    """A number of one format in another, as a cast of it (numerics.md section 9)."""
    made = element("cast", value, source)
    if target is not source:
        with driver.default_float_environment(), np.errstate(all="ignore"):
            made = ieee.canonical(exact.cast(datatypes.row_of("cast", "dtype", target), made))
    return bool(made) if target is DataType.Bool else float(made) if datatypes.is_float(target) else int(made)


def common(operands: Sequence[Val], *, to_float: bool = False, full: bool = True) -> DataType:
    """The format that operands are computed in.

    Args:
        operands: Tensors and scalars.
        to_float: Whether integers and truths are computed in Float.
        full: Whether formats narrower than Float are, too.
    """
    formats = {x.dtype for x in operands}
    found = next(iter(formats)) if len(formats) == 1 else _combined(operands)
    if to_float and not datatypes.is_float(found):
        return DataType.Float
    return DataType.Float if full and datatypes.needs_float(found) else found


def _combined(operands: Sequence[Val]) -> DataType:
    groups = [DataType.Null, DataType.Null, DataType.Null]
    for x in operands:
        place = 2 if not isinstance(x, TensorView) else 0 if x.ndim else 1
        kind = DataType.Float if place == 2 and datatypes.needs_float(x.dtype) else x.dtype
        groups[place] = datatypes.promoted(groups[place], kind)
    return _over(groups[0], _over(groups[1], groups[2]))


def _over(higher: DataType, lower: DataType) -> DataType:
    if higher is DataType.Null:
        return lower
    if datatypes.is_float(higher):
        return higher
    if higher is DataType.Bool or datatypes.is_float(lower):
        return datatypes.promoted(higher, lower)
    return higher


def cast(x: Val, dtype: DataType) -> Val:
    """x in another format: an operation of the fusion, or x itself if it has that format."""
    if x.dtype is dtype:
        return x
    fusion = x.fusion
    expr = fusion.record("cast", [x], dtype=dtype)
    if isinstance(x, TensorView):
        return fusion.like(expr, x, dtype)
    return fusion.scalar(expr, dtype)


def promote(operands: Sequence[Val], dtype: DataType) -> list[Val]:
    """Operands in a format; a scalar of the same kind (float, integer) stays, and is rounded to it where it is used."""
    return [x if isinstance(x, Scalar) and _alike(x.dtype, dtype) else cast(x, dtype) for x in operands]


def _alike(x: DataType, y: DataType) -> bool:
    return (datatypes.is_float(x) and datatypes.is_float(y)) or (datatypes.is_integer(x) and datatypes.is_integer(y))
