"""Operations of `fd.ops` with three operands an element: where, lerp, clamp, threshold, addcmul."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.errors import FusionError
from samebits.fusion import datatypes, promotion
from samebits.fusion.datatypes import DataType
from samebits.fusion.elementwise import define, value
from samebits.fusion.graph import Argument, Expr, Scalar, TensorView, Val
from samebits.kernels import arithmetic

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "addcmul", "clamp", "lerp", "threshold", "where"]


def where(condition: object, x: object, y: object) -> Val:
    """x where the condition holds, else y.

    Raises:  FusionError unless the condition is Bool.
    """
    fusion = promotion.fusion_of("where", condition, x, y)
    chosen, a, b = (promotion.as_val("where", fusion, each) for each in (condition, x, y))
    if chosen.dtype is not DataType.Bool:
        raise FusionError("where", "condition", "dtype", chosen.dtype, "DataType.Bool", "compare it with something")
    dtype = promotion.common([a, b], full=False)
    return value(fusion.record("where", [chosen, *promotion.promote([a, b], dtype)]), dtype)


def lerp(start: object, end: object, weight: object) -> Val:
    """start + weight * (end - start), each operation rounded; from the end on where |weight| >= 0.5, as torch has it.

    Raises:  FusionError if operands do not fit each other.
    """
    fusion = promotion.fusion_of("lerp", start, end, weight)
    given = [promotion.as_val("lerp", fusion, each) for each in (start, end, weight)]
    dtype = promotion.common(given)
    return value(fusion.record("lerp", promotion.promote(given, dtype)), dtype)


def addcmul(x: object, y: object, z: object, factor: object) -> Val:
    """x + (factor * y) * z, each operation rounded.

    Raises:  FusionError if operands do not fit each other.
    """
    return define("add", x, define("mul", define("mul", factor, y), z))


def clamp(x: object, low: object = None, high: object = None) -> Val:
    """x, no less than `low` and no more than `high`; NaN stays.

    Raises:  FusionError if a bound is no scalar.
    """
    return _bounded("clamp", x, low, high)


def threshold(x: object, limit: object, other: object) -> Val:
    """x where it is greater than a limit, else another value.

    Raises:  FusionError if the limit or the value is no scalar.
    """
    for name, each in (("limit", limit), ("other", other)):
        if each is None:
            raise FusionError("threshold", name, "", None, "a scalar", "pass a number, or call clamp for one bound")
    return _bounded("threshold", x, limit, other)


def _bounded(call: str, x: object, *scalars: object) -> Val:
    fusion = promotion.fusion_of(call, x, *scalars)
    first = promotion.as_val(call, fusion, x)
    operands: list[Argument] = [first]
    for each in scalars:
        found = None if each is None else promotion.as_val(call, fusion, each)
        if isinstance(found, TensorView):
            raise FusionError(call, "bound", "", "a tensor", "a scalar", "use minimum, maximum or where")
        operands.append(None if found is None else promotion.promote([found], first.dtype)[0])
    return value(fusion.record(call, operands), first.dtype)


# -- what they become in a program -------------------------------------------------------------------------------------
def _where(low: Lowering, expr: Expr) -> list[str]:
    chosen, *rest = expr.inputs
    dtype = datatypes.row_of("where", "operand", promotion.common(rest, full=False))
    return [low.b.apply("where", low.value(chosen), *[low.operand(x, dtype) for x in rest])]


def _lerp(low: Lowering, expr: Expr) -> list[str]:
    given = [*expr.inputs]
    dtype = datatypes.row_of("lerp", "operand", promotion.common(given))
    return [low.b.map(arithmetic.lerp(dtype), *[low.operand(x, dtype) for x in given])[0]]


def _clamp(low: Lowering, expr: Expr) -> list[str]:
    x, *bounds = expr.args
    name = low.value(x)
    dtype = low.b.facts[name].dtype
    for op, bound in zip(("maximum", "minimum"), bounds, strict=True):
        if isinstance(bound, Scalar):
            name = low.b.apply(op, name, low.operand(bound, dtype))
    return [name if any(each is not None for each in bounds) else low.b.apply("copy", name)]


def _threshold(low: Lowering, expr: Expr) -> list[str]:
    x, limit, other = expr.inputs
    name = low.value(x)
    dtype = low.b.facts[name].dtype
    return [low.b.map(arithmetic.threshold(dtype), name, low.operand(limit, dtype), low.operand(other, dtype))[0]]


LOWERED = {"where": _where, "lerp": _lerp, "clamp": _clamp, "threshold": _threshold}
