"""Eager elementwise functions: NumPy's broadcasting, numerics.md sections 1 and 7 for the bits."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from samebits import dtypes, elements
from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError, shown
from samebits.kernels import activations, arithmetic, composites, functions
from samebits.kernels.expression import Expression
from samebits.operations.elementwise import Map, single
from samebits.ops.call import WITHIN_FLOAT64, Call
from samebits.ops.launch import launch
from samebits.ops.memo import remembered
from samebits.ops.recipe import CallOperand


def apply(
    call: Call,
    expression: Expression,
    operands: list[CallOperand],
    out: object = None,
    names: Sequence[str] = ("x", "y", "z"),
) -> Any:
    """The output of `expression` over broadcast operands, which messages call by these names."""
    shape = operands[0].shape
    for name, x in zip(names[1:], operands[1:], strict=False):
        shape = call.broadcast(name, shape, x.shape)
    (made,) = launch(call, "map", Map(expression), operands, out)
    return call.result(made)


def _operands(
    call: Call, op: str, arrays: tuple[Any, ...], first: int = 0, names: Sequence[str] = ("x", "y")
) -> list[CallOperand]:
    """The operands, all of the dtype of the first array: a Python number becomes one of that dtype.

    Args:    first: which argument of the row the first array is.   names: what messages call them.
    """
    found: list[CallOperand] = []
    numbers: list[int] = []
    dtype: DType | None = None
    for position, x in enumerate(arrays):
        name = names[position]
        if type(x) in _NUMBERS:
            numbers.append(position)
        elif dtype is None:
            found.append(taken(call, name, x, op, first))
            dtype = found[0].dtype
        else:
            found.append(call.operand(name, x, dtype))
    for position in numbers:
        number = _number(call, names[position], arrays[position], dtype or dtypes.float32)
        found.insert(position, call.constant(number))
    return found


def taken(call: Call, name: str, x: Any, op: str, position: int = 0) -> CallOperand:
    """x as an operand of a dtype that an argument of a row of `functions.ROWS` may have.

    Raises:  as `Call.operand`.
    """
    formats, meant = accepted(op)[position]
    return call.operand(name, x, *formats, meant=meant)


def summed(call: Call, x: Any) -> CallOperand:
    """x as an operand of what sums or multiplies elements.

    Raises:  as `Call.operand`.
    """
    return call.operand("x", x, *_SUMMED, meant="any dtype with a zero")


_SUMMED = tuple(row for row in dtypes.ROWS if row.has_zero)


@functools.cache
def accepted(op: str) -> tuple[tuple[tuple[DType, ...], str], ...]:
    """For each argument of a row of `functions.ROWS` the dtypes that it may have, and how messages call them; nothing
    where they list them."""
    accepts = functions.row(op).accepts
    return tuple(
        [(tuple(x for x in dtypes.ROWS if x.name in names), functions.MEANT.get(names, "")) for names in accepts]
    )


def _number(call: Call, name: str, x: Any, dtype: DType) -> Any:
    """A Python number as an array of `dtype`, which it must be able to stand for."""
    if dtype.is_float:
        try:
            return elements.rounded(x, dtype)
        except OverflowError:
            raise DTypeError(call.name, name, "", "beyond float64", WITHIN_FLOAT64, "pass an array") from None
    if isinstance(x, float):
        remedy = "cast the array first"
        raise DTypeError(call.name, name, "", x, f"an integer, as the array is {dtype}", remedy)
    if not dtype.min <= x <= dtype.max:
        expected = f"within [{dtype.min}, {dtype.max}], as the array is {dtype}"
        raise DTypeError(call.name, name, "", x, expected, "cast the array first")
    return np.asarray(x, dtype.numpy)


_NUMBERS = (bool, int, float)


def _signature(names: Sequence[str]) -> inspect.Signature:
    """What `help` and editors show of a function of arrays called so: they are given by position."""
    options = {"out": Any, "threads": "int | None"}
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=Any) for name in names]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in options.items()
    ]
    return inspect.Signature(parameters, return_annotation=Any)


def _function(
    name: str,
    op: str,
    names: str,
    meaning: str,
    make: Callable[[DType], Expression] | None = None,
) -> Callable[..., Any]:
    """A public function of arrays called by the words of `names`.

    Args:    op: the row whose dtypes it takes.   make: its expression; default the row alone.
    """
    given = tuple(names.split())

    def function(*arrays: Any, out: Any = None, threads: int | None = None, **others: Any) -> Any:
        if others:
            taken = f"{', '.join(given)} by position, out= and threads= by name"
            raise TypeError(f"{name}() takes {taken}, got {next(iter(others))}=")
        if len(arrays) != len(given):
            raise TypeError(f"{name}() takes {len(given)} arrays ({', '.join(given)}), got {len(arrays)}")
        first = arrays[0]
        if type(first) in _NUMBERS:
            first = next((x for x in arrays if type(x) not in _NUMBERS), first)
        call = Call(name, first, threads)
        operands = _operands(call, op, arrays, names=given)
        expression = single(op, *(x.dtype for x in operands)) if make is None else make(operands[0].dtype)
        return apply(call, expression, operands, out, given)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "samebits"
    vars(function)["__signature__"] = _signature(given)
    taken = "arrays of one dtype, which broadcast; a Python number is taken in that dtype"
    if len(given) == 1:
        taken = "an array; a Python number is taken as float32"
    function.__doc__ = f"""{meaning}, per element.

    Args:    {", ".join(given)}: {taken}.
             out: an array for the result; it may be an operand itself, and overlap none otherwise.
             threads: at most so many; default every usable core.
    Returns: an array of the kind of {"x" if len(given) == 1 else "the first that is no Python number"}.
    Raises:  DTypeError, ShapeError, LayoutError (out overlaps an operand).   Bits: numerics.md sections 1 and 7.
    """
    return remembered(function)


abs = _function("abs", "abs", "x", "|x|, bits copied")
add = _function("add", "add", "x y", "x + y")
addcmul = _function("addcmul", "fma", "x y z value", "x + (value * y) * z, each step rounded", arithmetic.addcmul)
bitwise_and = _function("bitwise_and", "bit_and", "x y", "The bits that x and y have, of integers")
bitwise_invert = _function("bitwise_invert", "bit_not", "x", "The bits that x has not, of integers")
bitwise_left_shift = _function(
    "bitwise_left_shift", "shift_left", "x y", "x * 2**y of integers, without what leaves the width"
)
bitwise_or = _function("bitwise_or", "bit_or", "x y", "The bits that x or y has, of integers")
bitwise_right_shift = _function("bitwise_right_shift", "shift_right", "x y", "x / 2**y of integers, rounded down")
bitwise_xor = _function("bitwise_xor", "bit_xor", "x y", "The bits that one of x and y has, of integers")
ceil = _function("ceil", "ceil", "x", "The smallest integral value that is not below x")
clip = _function("clip", "maximum", "x min max", "minimum(maximum(x, min), max)", arithmetic.clip)
cos = _function("cos", "cos", "x", "The cosine of x, correctly rounded in float32")
divide = _function("divide", "div", "x y", "x / y")
equal = _function("equal", "equal", "x y", "x == y, as bool; NaN equals nothing")
erf = _function("erf", "erf", "x", "The error function of x, correctly rounded in float32")
exp = _function("exp", "exp", "x", "e to the x, correctly rounded in float32")
exp2 = _function("exp2", "exp2", "x", "2 to the x, correctly rounded in float32")
expm1 = _function("expm1", "expm1", "x", "e to the x, less 1, correctly rounded in float32")
floor = _function("floor", "floor", "x", "The largest integral value that is not above x")
floor_divide = _function(
    "floor_divide", "quotient", "x y", "x / y of integers, rounded down; 0 where y is 0", arithmetic.floor_divide
)
fma = _function("fma", "fma", "x y z", "x * y + z, rounded once")
fmod = _function(
    "fmod", "fmod", "x y", "x less y times the quotient toward zero, exactly, of the sign of x; by 0 NaN, of integers 0"
)
frac = _function("frac", "trunc", "x", "x - trunc(x)", arithmetic.frac)
gcd = _function("gcd", "gcd", "x y", "The greatest number that divides the integers x and y")
greater = _function("greater", "greater", "x y", "x > y, as bool")
greater_equal = _function("greater_equal", "greater_equal", "x y", "x >= y, as bool")
isfinite = _function("isfinite", "is_finite", "x", "Whether x is neither infinite nor NaN, as bool")
isinf = _function("isinf", "is_infinite", "x", "Whether x is an infinity, as bool")
isnan = _function("isnan", "is_nan", "x", "Whether x is NaN, as bool")
lerp = _function(
    "lerp",
    "fma",
    "start end weight",
    "start + weight * (end - start) where |weight| < 0.5, else end - (end - start) * (1 - weight)",
    arithmetic.lerp,
)
less = _function("less", "less", "x y", "x < y, as bool")
less_equal = _function("less_equal", "less_equal", "x y", "x <= y, as bool")
log = _function("log", "log", "x", "The natural logarithm of x, correctly rounded in float32")
log10 = _function("log10", "log10", "x", "The logarithm of x to base 10, correctly rounded in float32")
log1p = _function("log1p", "log1p", "x", "The natural logarithm of x + 1, correctly rounded in float32")
log2 = _function("log2", "log2", "x", "The logarithm of x to base 2, correctly rounded in float32")
logical_and = _function("logical_and", "logical_and", "x y", "x and y, of bool")
logical_not = _function("logical_not", "logical_not", "x", "not x, of bool")
logical_or = _function("logical_or", "logical_or", "x y", "x or y, of bool")
logical_xor = _function("logical_xor", "logical_xor", "x y", "Whether x and y differ, of bool")
maximum = _function("maximum", "maximum", "x y", "The larger of x and y; NaN propagates and +0 > -0")
minimum = _function("minimum", "minimum", "x y", "The smaller of x and y; NaN propagates and -0 < +0")
multiply = _function("multiply", "mul", "x y", "x * y")
negative = _function("negative", "neg", "x", "-x, bits copied")
nextafter = _function("nextafter", "next_after", "x y", "The number of the format beside x on the way to y")
not_equal = _function("not_equal", "not_equal", "x y", "x != y, as bool; NaN differs from everything")
pow = _function("pow", "pow", "x y", "x to the y, correctly rounded in float32; of integers wrapped")
quotient = _function("quotient", "quotient", "x y", "x / y of integers toward zero; 0 where y is 0")
reciprocal = _function("reciprocal", "reciprocal", "x", "1 / x")
remainder = _function(
    "remainder", "mod", "x y", "What is left of x beside multiples of y, of the sign of y; by 0 NaN, of integers 0"
)
round = _function("round", "rint", "x", "x rounded to an integral value, ties to even")
rsqrt = _function("rsqrt", "sqrt", "x", "1 / sqrt(x), two roundings", arithmetic.rsqrt)
sigmoid = _function("sigmoid", "sigmoid", "x", "1 / (1 + e to the -x), correctly rounded in float32")
sign = _function("sign", "sign", "x", "-1, 0 or 1 as x is; NaN for NaN")
signbit = _function("signbit", "sign_bit", "x", "Whether the sign bit of x is set, as bool; that of -0 is")
sin = _function("sin", "sin", "x", "The sine of x, correctly rounded in float32")
sqrt = _function("sqrt", "sqrt", "x", "The square root of x")
square = _function("square", "mul", "x", "x * x", arithmetic.square)
subtract = _function("subtract", "sub", "x y", "x - y")
tanh = _function("tanh", "tanh", "x", "The hyperbolic tangent of x, correctly rounded in float32")
threshold = _function(
    "threshold", "maximum", "x limit value", "value where x <= limit, else x, bits copied", arithmetic.threshold
)
trunc = _function("trunc", "trunc", "x", "x without what follows the point")


@remembered
def where(condition: Any, x: Any, y: Any, *, out: Any = None, threads: int | None = None) -> Any:
    """x where the condition holds, else y, per element, bits copied.

    Args:    condition: an array of bool.   x, y: arrays of one dtype; a Python number beside an array takes its
                dtype. All broadcast.
             out: an array for the result; it may be an operand itself, and overlap none otherwise.
             threads: at most so many; default every usable core.
    Returns: an array of the kind of the condition.
    Raises:  DTypeError, ShapeError, LayoutError (out overlaps an operand).   Bits: numerics.md section 1.
    """
    call = Call("where", condition, threads)
    holds = call.operand("condition", condition, dtypes.bool_)
    chosen = _operands(call, "where", (x, y), 1)
    for name, operand in zip(("x", "y"), chosen, strict=True):
        call.broadcast(name, holds.shape, operand.shape)
    call.broadcast("y", chosen[0].shape, chosen[1].shape)
    operands = [holds, *chosen]
    (made,) = launch(call, "map", Map(single("where", *(x.dtype for x in operands))), operands, out)
    return call.result(made)


@remembered
def gelu(x: Any, *, approximate: str = "none", out: Any = None, threads: int | None = None) -> Any:
    """(0.5 * x) * (1 + erf(x * 0x3F3504F3)): five roundings, and an erf that is correctly rounded in float32.

    Args:    x: an array of floats; narrower ones than float32 are rounded once at the end.
             approximate: "tanh" for (0.5 * x) * (1 + tanh(0x3F4C422A * (x + 0x3D372713 * ((x * x) * x)))).
             out: for the result.
    Returns: an array of x's kind.
    Raises:  DTypeError if x is of another dtype, OptionError.   Bits: numerics.md section 7.
    """
    call = Call("gelu", x, threads)
    tensor = taken(call, "x", x, "erf")
    make = composites.gelu_tanh if is_by_tanh("gelu", approximate) else composites.gelu
    return apply(call, make(tensor.dtype), [tensor], out)


def is_by_tanh(call: str, approximate: object) -> bool:
    """Whether gelu is the one by tanh.

    Raises:  OptionError if approximate is neither "none" nor "tanh".
    """
    if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
        remedy = "leave it out for the one by erf"
        raise OptionError(call, "approximate", "", shown(approximate), "none or tanh", remedy)
    return approximate == "tanh"


@remembered
def relu(x: Any, *, out: Any = None, threads: int | None = None) -> Any:
    """maximum(x, +0): NaN propagates, -0 becomes +0.

    Args:    x: an array of floats or integers.   out: an array for the result.
    Returns: an array of x's kind.
    Raises:  DTypeError if x is of another dtype.   Bits: numerics.md section 1.
    """
    call = Call("relu", x, threads)
    tensor = taken(call, "x", x, "add")
    return apply(call, composites.relu(tensor.dtype), [tensor], out)


@remembered
def silu(x: Any, *, out: Any = None, threads: int | None = None) -> Any:
    """x * sigmoid(x): one rounding, and a sigmoid that is correctly rounded in float32.

    Args:    x: an array of floats; narrower ones than float32 are rounded once at the end.   out: for the result.
    Returns: an array of x's kind.
    Raises:  DTypeError if x is of another dtype.   Bits: numerics.md section 7.
    """
    call = Call("silu", x, threads)
    tensor = taken(call, "x", x, "sigmoid")
    return apply(call, activations.silu(tensor.dtype), [tensor], out)
