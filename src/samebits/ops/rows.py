"""Eager reductions and what is made of them: sum prod mean var max min softmax and norms (numerics.md 6 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from samebits.errors import LayoutError, ShapeError
from samebits.kernels import composites
from samebits.kernels.expression import Expression
from samebits.layout import Shape
from samebits.operations.rows import RowWise
from samebits.ops.call import Call
from samebits.ops.elementwise import summed, taken
from samebits.ops.launch import launch
from samebits.ops.memo import remembered
from samebits.ops.recipe import CallOperand
from samebits.shapes import check_flag, check_index

_Axis = int | Sequence[int] | None


def _row_wise(
    call: Call, expression: Expression, operands: Sequence[CallOperand], axes: Shape, out: object = None
) -> CallOperand:
    """The output of `expression` along axes of the first operand."""
    rank = len(operands[0].shape)
    return launch(call, "rows", RowWise(expression, tuple([axis - rank for axis in axes])), operands, out)[0]


def _axes(call: Call, axis: _Axis, rank: int) -> Shape:
    """The axes asked for, counted from the front, ascending; all of them for None."""
    if axis is None:
        return tuple(range(rank))
    if not isinstance(axis, Sequence):
        return (check_index(call.name, "axis", axis, rank),)
    axes = tuple(sorted([check_index(call.name, "axis", a, rank) for a in axis]))
    if len(set(axes)) != len(axes):
        raise LayoutError(call.name, "axis", "", axis, "each axis once", "leave out the repeated one")
    return axes


def _reduced(name: str, x: Any, axis: _Axis, keepdims: bool, threads: int | None) -> Any:
    call = Call(name, x, threads)
    given = summed(call, x) if name in ("sum", "prod") else taken(call, "x", x, {"mean": "sqrt"}.get(name, "copy"))
    expression = composites.mean(given.dtype) if name == "mean" else composites.reduction(f"row_{name}", given.dtype)
    return _along(call, expression, given, axis, keepdims)


def _along(call: Call, expression: Expression, x: CallOperand, axis: _Axis, keepdims: bool) -> Any:
    """The reduction of x that the expression is, as what the call returns."""
    check_flag(call.name, "keepdims", keepdims)
    shape = x.shape
    axes = _axes(call, axis, len(shape))
    lengths = [shape[axis] for axis in axes]
    if call.name in ("max", "min") and 0 in lengths and lengths.count(0) == shape.count(0):
        raise ShapeError(call.name, "x", "row length", 0, "at least 1", f"an empty row has no {call.name}")
    made = _row_wise(call, expression, [x], axes)
    if not keepdims:
        kept = tuple([extent for a, extent in enumerate(shape) if a not in axes])
        made = made.seen(made.tensor.reshape(kept))
    return call.result(made)


@remembered
def sum(x: Any, axis: _Axis = None, *, keepdims: bool = False, threads: int | None = None) -> Any:
    """The sum along axes, 64 lanes and a tree; integers exactly, in int64 (uint64 in uint64).

    Args:    x: an array of floats, integers or bools.   axis: one axis, several, or None for all.
             keepdims: leave extents of 1.
    Returns: an array of x's kind; the empty sum is +0.
    Raises:  DTypeError if x is of another dtype, LayoutError if there is no such axis.   Bits: numerics.md section 6.
    """
    return _reduced("sum", x, axis, keepdims, threads)


@remembered
def prod(x: Any, axis: _Axis = None, *, keepdims: bool = False, threads: int | None = None) -> Any:
    """The product along axes, 64 lanes and a tree; integers in int64 (uint64 in uint64), modulo 2 to the 64.

    Args:    as `sum`.   Returns: an array of x's kind; the empty product is 1.   Bits: numerics.md section 6.
    """
    return _reduced("prod", x, axis, keepdims, threads)


@remembered
def var(
    x: Any, axis: _Axis = None, *, correction: float = 0.0, keepdims: bool = False, threads: int | None = None
) -> Any:
    """sum((x - mean)**2) / (count - correction) along axes, two passes; narrow floats are rounded once at the end.

    Args:    as `sum`, but floats alone.   correction: 1 for the variance of a sample; a divisor below 0 is 0.
    Raises:  also OptionError if the correction is no number.   Bits: numerics.md section 6.
    """
    call = Call("var", x, threads)
    given = taken(call, "x", x, "sqrt")
    correction = call.number("correction", correction, given.dtype)
    return _along(call, composites.var(correction, given.dtype), given, axis, keepdims)


@remembered
def mean(x: Any, axis: _Axis = None, *, keepdims: bool = False, threads: int | None = None) -> Any:
    """The sum along axes divided by the count, which is rounded to float32; 0 / 0 where there is nothing.

    Args:    as `sum`, but floats alone.   Bits: numerics.md section 6.
    """
    return _reduced("mean", x, axis, keepdims, threads)


@remembered
def max(x: Any, axis: _Axis = None, *, keepdims: bool = False, threads: int | None = None) -> Any:
    """The largest element along axes; NaN propagates, +0 > -0.

    Args:    as `sum`.   Raises:  also ShapeError if a row is empty.   Bits: numerics.md sections 1 and 6.
    """
    return _reduced("max", x, axis, keepdims, threads)


@remembered
def min(x: Any, axis: _Axis = None, *, keepdims: bool = False, threads: int | None = None) -> Any:
    """The smallest element along axes; NaN propagates, -0 < +0.

    Args:    as `sum`.   Raises:  also ShapeError if a row is empty.   Bits: numerics.md sections 1 and 6.
    """
    return _reduced("min", x, axis, keepdims, threads)


@remembered
def softmax(x: Any, axis: int = -1, *, out: Any = None, threads: int | None = None) -> Any:
    """exp(x - max) / sum(exp(x - max)) along one axis; exp correctly rounded in float32.

    Args:    x: an array of floats; narrower ones than float32 are rounded once at the end.
             axis: where the probabilities sum to one.   out: an array for the result.
    Returns: an array of x's kind and shape; a row of -inf gives NaN.
    Raises:  DTypeError if x is of another dtype, LayoutError if there is no such axis.   Bits: numerics.md section 8.
    """
    call = Call("softmax", x, threads)
    given = taken(call, "x", x, "exp")
    axes = _axes(call, axis, len(given.shape))
    return call.result(_row_wise(call, composites.softmax(given.dtype), [given], axes, out))


@remembered
def log_softmax(x: Any, axis: int = -1, *, out: Any = None, threads: int | None = None) -> Any:
    """(x - max) - log(sum(exp(x - max))) along one axis; exp and log correctly rounded in float32.

    Args:    as `softmax`.   Returns: an array of x's kind and shape; a row of -inf gives NaN.
    Raises:  DTypeError if x is of another dtype, LayoutError if there is no such axis.   Bits: numerics.md section 5.
    """
    call = Call("log_softmax", x, threads)
    given = taken(call, "x", x, "exp")
    axes = _axes(call, axis, len(given.shape))
    return call.result(_row_wise(call, composites.log_softmax(given.dtype), [given], axes, out))


@remembered
def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5, out: Any = None, threads: int | None = None
) -> Any:
    """fma((x - mean) * rstd, weight, bias) along the last axis; rstd = 1 / sqrt(var + eps), two-pass variance.

    Args:    x: floats [..., N]; narrower ones than float32 are rounded once at the end.
             weight, bias: of x's dtype [N].   eps: rounded to float32, to float64 beside it.   out: for the result.
    Returns: an array of x's kind and shape.
    Raises:  DTypeError, ShapeError; ShapeError for a bias without a weight.   Bits: numerics.md section 8.
    """
    call = Call("layer_norm", x, threads)
    if weight is None and bias is not None:
        raise ShapeError("layer_norm", "bias", "", "given", "given together with weight", "pass weight too")
    operands = _normed(call, x, {"weight": weight, "bias": bias})
    dtype = operands[0].dtype
    eps = call.number("eps", eps, dtype)
    expression = composites.layer_norm(weight is not None, bias is not None, eps, dtype)
    return call.result(_row_wise(call, expression, operands, (len(operands[0].shape) - 1,), out))


@remembered
def rms_norm(x: Any, weight: Any = None, *, eps: float = 1e-5, out: Any = None, threads: int | None = None) -> Any:
    """(x * rstd) * weight along the last axis; rstd = 1 / sqrt(mean(x * x) + eps).

    Args:    x: floats [..., N]; narrower ones than float32 are rounded once at the end.
             weight: of x's dtype [N].   eps: rounded to float32, to float64 beside it.   out: for the result.
    Returns: an array of x's kind and shape.
    Raises:  DTypeError, ShapeError.   Bits: numerics.md section 8.
    """
    call = Call("rms_norm", x, threads)
    operands = _normed(call, x, {"weight": weight})
    dtype = operands[0].dtype
    expression = composites.rms_norm(weight is not None, call.number("eps", eps, dtype), dtype)
    return call.result(_row_wise(call, expression, operands, (len(operands[0].shape) - 1,), out))


def _normed(call: Call, x: Any, scales: Mapping[str, Any]) -> list[CallOperand]:
    """x and what its normalised rows are scaled and shifted by, one number for each place of a row."""
    operands = [taken(call, "x", x, "sqrt")]
    dtype, shape = operands[0].dtype, operands[0].shape
    if not shape:
        raise ShapeError(call.name, "x", "rank", 0, "at least 1", "reshape it to one row")
    for name, value in scales.items():
        if value is not None:
            operand = call.operand(name, value, dtype)
            if operand.shape != shape[-1:]:
                expected = f"({shape[-1]},)"
                raise ShapeError(call.name, name, "shape", operand.shape, expected, "match x's last axis")
            operands.append(operand)
    return operands
