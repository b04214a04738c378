"""Eager elementwise functions: NumPy's broadcasting, numerics.md sections 1 and 7 for the bits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import ShapeError, message
from samebits.kernels import composites, elementwise
from samebits.kernels.expression import Chain, Expression
from samebits.layout import Layout
from samebits.ops.call import Call, Prepared, remembered
from samebits.tensor import Tensor


@functools.lru_cache(maxsize=4096)
def _expression(op: str, inputs: tuple[DType, ...], to: DType | None = None) -> Expression:
    chain = Chain()
    return chain.finish(chain.apply(op, *(chain.input(dtype) for dtype in inputs), dtype=to))


@functools.lru_cache(maxsize=4096)
def _prepared(expression: Expression, layouts: tuple[Layout, ...], isa: Isa, threads: int) -> Prepared:
    n, walked = len(expression.inputs), tuple((x.shape, x.strides) for x in layouts)
    return Prepared(elementwise.plan(expression, walked[:n], walked[n:], isa, threads))


def apply(call: Call, expression: Expression, operands: list[Tensor], out: object = None) -> Any:
    """The first output of `expression` over broadcast operands."""
    shape = operands[0].shape
    if any(x.shape != shape for x in operands):
        try:
            shape = np.broadcast_shapes(*(x.shape for x in operands))
        except ValueError:
            shapes = " and ".join(str(x.shape) for x in operands)
            raise ShapeError(
                message(call.name, "operands", "shapes", shapes, "shapes that broadcast", "reshape one of them")
            ) from None
    made = call.output(shape, expression.dtype(expression.outputs[0]), out)
    if made.size:
        layouts = (*(x.layout for x in operands), made.layout)
        call.run(_prepared(expression, layouts, call.isa, call.sized(made.size, "elements")), *operands, made)
    return call.result(made, out)


def _promoted(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands, Python numbers converted to the dtype of the first operand that is an array."""
    if not any(type(x) in _NUMBERS for x in arrays):
        return arrays
    dtype = next((Tensor.from_any(x).dtype for x in arrays if type(x) not in _NUMBERS), dtypes.float32)
    return tuple(np.asarray(x, dtype.numpy) if type(x) in _NUMBERS else x for x in arrays)


_NUMBERS = (bool, int, float)


def _function(name: str, op: str, arity: int, meaning: str) -> Callable[..., Any]:
    names = ("x", "y", "z")[:arity]

    def function(*arrays: Any, out: Any = None, threads: int | None = None) -> Any:
        if len(arrays) != arity:
            raise TypeError(f"{name}() takes {arity} arrays ({', '.join(names)}), got {len(arrays)}")
        call = Call(name, arrays[0], threads)
        operands = [call.operand(n, x) for n, x in zip(names, _promoted(arrays), strict=True)]
        return apply(call, _expression(op, tuple(x.dtype for x in operands)), operands, out)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "samebits"
    function.__doc__ = f"""{meaning}, per element.

    Args:    {", ".join(names)}: arrays of one dtype that broadcast; a Python number takes it.
             out: an array for the result.   threads: at most so many; default every usable core.
    Returns: an array of the first operand's kind.
    Raises:  DTypeError, ShapeError.   Bits: numerics.md sections 1 and 7.
    """
    return remembered(function)


abs = _function("abs", "abs", 1, "|x|, bits copied")
add = _function("add", "add", 2, "x + y")
divide = _function("divide", "div", 2, "x / y")
erf = _function("erf", "erf", 1, "The error function of x, correctly rounded")
exp = _function("exp", "exp", 1, "e to the x, correctly rounded")
maximum = _function("maximum", "maximum", 2, "The larger of x and y; NaN propagates and +0 > -0")
minimum = _function("minimum", "minimum", 2, "The smaller of x and y; NaN propagates and -0 < +0")
multiply = _function("multiply", "mul", 2, "x * y")
negative = _function("negative", "neg", 1, "-x, bits copied")
reciprocal = _function("reciprocal", "reciprocal", 1, "1 / x")
sqrt = _function("sqrt", "sqrt", 1, "The square root of x")
subtract = _function("subtract", "sub", 2, "x - y")


@remembered
def cast(x: Any, dtype: object, *, out: Any = None, threads: int | None = None) -> Any:
    """x converted to another dtype by value (toward zero and saturating to integers, to nearest even to floats).

    Args:    x: any array.   dtype: a DType, its name, or a NumPy dtype.   out: an array for the result.
    Returns: an array of x's kind.
    Raises:  DTypeError if there is no such conversion.
    """
    call = Call("cast", x, threads)
    tensor = call.operand("x", x)
    return apply(call, _expression("cast", (tensor.dtype,), dtypes.of(dtype)), [tensor], out)


@remembered
def gelu(x: Any, *, out: Any = None, threads: int | None = None) -> Any:
    """(0.5 * x) * (1 + erf(x * 0x3F3504F3)): five roundings and one correctly rounded erf.

    Args:    x: any float32 array.   out: an array for the result.
    Returns: an array of x's kind.
    Raises:  DTypeError if x is not float32.   Bits: numerics.md section 7.
    """
    call = Call("gelu", x, threads)
    return apply(call, composites.gelu(), [call.operand("x", x, dtypes.float32)], out)


@remembered
def relu(x: Any, *, out: Any = None, threads: int | None = None) -> Any:
    """maximum(x, +0): NaN propagates, -0 becomes +0.

    Args:    x: any float32 array.   out: an array for the result.
    Returns: an array of x's kind.
    Raises:  DTypeError if x is not float32.   Bits: numerics.md section 1.
    """
    call = Call("relu", x, threads)
    return apply(call, composites.relu(), [call.operand("x", x, dtypes.float32)], out)


ACTIVATIONS = ("erf", "exp", "gelu", "relu")


@functools.cache
def activation(name: str) -> Expression:
    """The expression of one float32 value that a name of `ACTIVATIONS` stands for."""
    if name in ("gelu", "relu"):
        return composites.gelu() if name == "gelu" else composites.relu()
    return _expression(name, (dtypes.float32,))
