"""ONNX operators that compute per element.

The order of arithmetic is numerics.md; where ONNX writes a formula, the roundings are those of its steps. Start at
`ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.kernels import activations, composites, functions
from samebits.kernels.expression import Expression
from samebits.onnx.row import MANY, Attribute, NodeCall, OnnxRow, Unsupported, applied, folded
from samebits.operations import dim
from samebits.operations.dim import SymbolicShape

__all__ = ["ROWS"]


def _composite(make: Callable[..., Expression], *names: str) -> Callable[[NodeCall], Sequence[str]]:
    """A composite of the operands; `make` takes the values of these attributes before the dtype."""

    def lower(call: NodeCall) -> Sequence[str]:
        given = [call.attributes[name] for name in names]
        operands = [call[i] for i in range(len(call.inputs))]
        return _activated(call, lambda dtype: make(*given, dtype), *operands)

    return lower


def _activated(call: NodeCall, make: Callable[[DType], Expression], *operands: str) -> Sequence[str]:
    """An activation of numbers: truth values and integers of less than a byte are refused."""
    dtype = call.fact(0).dtype
    functions.result_dtype("mul", (dtype, dtype))
    return call.b.map(make(dtype), *operands)


def _relu(call: NodeCall) -> Sequence[str]:
    return call.b.map(composites.relu(call.fact(0).dtype), call[0])


def _prelu(call: NodeCall) -> Sequence[str]:
    slope = call.b.fitted(call[1], call.fact(0).shape)
    return _activated(call, activations.prelu, call[0], slope)


def _gelu(call: NodeCall) -> Sequence[str]:
    make = composites.gelu_tanh if call.attributes["approximate"] == "tanh" else composites.gelu
    return call.b.map(make(call.fact(0).dtype), call[0])


def _divide(call: NodeCall) -> Sequence[str]:
    """Floats rounded once, integers toward zero."""
    b, dtype = call.b, call.fact(0).dtype
    sizes = _quotients(b.integers(call[0]), b.integers(call[1])) if dtype is dtypes.int64 else None
    if sizes is not None:
        return (b.dims(sizes, scalar=call.fact(0).rank == call.fact(1).rank == 0),)
    return (b.apply("quotient" if dtype.is_integer else "div", call[0], call[1]),)


def _quotients(x: SymbolicShape | None, y: SymbolicShape | None) -> SymbolicShape | None:
    """The quotients of sizes: rounded down, which is toward zero as long as nothing is negative."""
    if x is None or y is None or not all(map(dim.is_never_negative, (*x, *y))) or 0 in y:
        return None
    length = max(len(x), len(y))
    wide = [sizes * length if len(sizes) == 1 else sizes for sizes in (x, y)]
    return tuple(dim.floor_divide(a, b) for a, b in zip(*wide, strict=True))


def _mod(call: NodeCall) -> Sequence[str]:
    """Of the divisor's sign, or of the dividend's by `fmod`."""
    return (call.b.apply("fmod" if call.attributes["fmod"] else "mod", call[0], call[1]),)


def _pow(call: NodeCall) -> Sequence[str]:
    """A square where the exponent is the constant 2; else of floats, in float64 where an exponent of another format is,
    or x, and else in float32."""
    exponent, (shape, dtype) = call.b.array(call[1]), (call.fact(0).shape, call.fact(0).dtype)
    if exponent is not None and exponent.size == 1 and float(exponent.reshape(())) == 2:
        square = call.b.apply("mul", call[0], call[0])
        return (call.b.reshape(square, (1,) * (exponent.ndim - len(shape)) + shape),)
    if not dtype.is_float or dtype.name not in functions.row("pow").accepts[0]:
        raise Unsupported(f"input 0 is {dtype.name}, of which only squares are there")
    formats = dtype, call.fact(1).dtype
    if formats[1] is dtype:
        return (call.b.apply("pow", call[0], call[1]),)
    wide = dtypes.float64 if dtypes.float64 in formats else dtypes.float32
    operands = [call.converted(call[i], wide) for i in (0, 1)]
    return (call.converted(call.b.apply("pow", *operands), dtype),)


def _clip(call: NodeCall) -> Sequence[str]:
    """minimum(maximum(x, low), high), without those that are left out."""
    x = call[0]
    for index, op in ((1, "maximum"), (2, "minimum")):
        if call.optional(index) is not None:
            x = call.b.apply(op, x, call.single(index, call.fact(0).dtype))
    return (x if x != call[0] else call.b.apply("copy", x),)


def _clip_between(call: NodeCall) -> Sequence[str]:
    """With the limits as attributes."""
    dtype, x = call.fact(0).dtype, call[0]
    for name, op in (("min", "maximum"), ("max", "minimum")):
        x = call.b.apply(op, x, call.b.scalar(call.attributes[name], dtype))
    return (x,)


def _mean(call: NodeCall) -> Sequence[str]:
    """The sum of the operands in order, divided by their number."""
    (total,) = folded("add")(call)
    return (call.b.apply("div", total, call.b.scalar(len(call.inputs), call.fact(0).dtype)),)


def _identity(call: NodeCall) -> Sequence[str]:
    return (call[0],)


def _constant(call: NodeCall) -> Sequence[str]:
    given = {name: value for name, value in call.attributes.items() if value is not None}
    if len(given) != 1:
        raise Unsupported(f"{len(given)} attributes hold its value, not one")
    ((name, value),) = given.items()
    dtype = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return (call.b.constant(np.array(value, dtype.get(name))),)


def _dropout(call: NodeCall) -> Sequence[str]:
    """As in inference: nothing is dropped, and the mask is true everywhere."""
    if call.optional(2) is not None and call.array(2).any():
        raise Unsupported("training_mode is true; random numbers are not there yet")
    kept = call.b.scalar(True, dtypes.bool_ if call.opset >= 10 else call.fact(0).dtype)
    return (call[0], call.b.expand(kept, call.fact(0).shape))


def _alpha(value: float) -> Attribute:
    return Attribute("alpha", value, "float")


_FMOD = (Attribute("fmod", 0, allowed=(0, 1)),)
# The largest float32, which attributes of opset 6 are clipped at.
_LARGEST = float(np.finfo(np.float32).max)
_LIMITS = (Attribute("min", -_LARGEST, "float"), Attribute("max", _LARGEST, "float"))
_CONSTANTS = (
    Attribute("value", None, "tensor"),
    Attribute("value_float", None, "float", since=12),
    Attribute("value_floats", None, "floats", since=12),
    Attribute("value_int", None, since=12),
    Attribute("value_ints", None, "ints", since=12),
)

ROWS: tuple[OnnxRow, ...] = (
    *(OnnxRow(op, 7, applied(name), inputs=2) for op, name in (("Add", "add"), ("Sub", "sub"), ("Mul", "mul"))),
    *(
        OnnxRow(op, since, applied(name))
        for op, name, since in (
            ("Neg", "neg", 6),
            ("Abs", "abs", 6),
            ("Sign", "sign", 9),
            ("Exp", "exp", 6),
            ("Log", "log", 6),
            ("Tanh", "tanh", 6),
            ("Sigmoid", "sigmoid", 6),
            ("Sin", "sin", 7),
            ("Cos", "cos", 7),
            ("Sqrt", "sqrt", 6),
            ("Reciprocal", "reciprocal", 6),
            ("Erf", "erf", 9),
            ("Floor", "floor", 6),
            ("Ceil", "ceil", 6),
            ("Round", "rint", 11),
        )
    ),
    OnnxRow("Max", 8, folded("maximum"), inputs=MANY),
    OnnxRow("Min", 8, folded("minimum"), inputs=MANY),
    OnnxRow("Sum", 8, folded("add"), inputs=MANY),
    OnnxRow("Mean", 8, _mean, inputs=MANY),
    OnnxRow("Div", 7, _divide, inputs=2),
    OnnxRow("Mod", 10, _mod, _FMOD, inputs=2),
    OnnxRow("Pow", 7, _pow, inputs=2, limits="powers of integers but the square"),
    OnnxRow("Clip", 6, _clip_between, _LIMITS, until=10),
    OnnxRow("Clip", 11, _clip, inputs=3),
    OnnxRow("Relu", 6, _relu),
    OnnxRow("LeakyRelu", 6, _composite(activations.leaky_relu, "alpha"), (_alpha(0.01),)),
    OnnxRow("PRelu", 7, _prelu, inputs=2),
    OnnxRow("Elu", 6, _composite(activations.elu, "alpha"), (_alpha(1.0),)),
    OnnxRow("Celu", 12, _composite(activations.celu, "alpha"), (_alpha(1.0),)),
    OnnxRow(
        "Selu",
        6,
        _composite(activations.selu, "alpha", "gamma"),
        (_alpha(1.6732631921768188), Attribute("gamma", 1.0507010221481323, "float")),
    ),
    OnnxRow(
        "HardSigmoid",
        6,
        _composite(activations.hard_sigmoid, "alpha", "beta"),
        (_alpha(0.2), Attribute("beta", 0.5, "float")),
    ),
    OnnxRow("HardSwish", 14, _composite(activations.hard_swish)),
    OnnxRow("ThresholdedRelu", 10, _composite(activations.thresholded_relu, "alpha"), (_alpha(1.0),)),
    OnnxRow(
        "Shrink",
        9,
        _composite(activations.shrink, "bias", "lambd"),
        (Attribute("bias", 0.0, "float"), Attribute("lambd", 0.5, "float")),
    ),
    OnnxRow("Softsign", 1, _composite(activations.softsign)),
    OnnxRow("Softplus", 1, _composite(activations.softplus)),
    OnnxRow("Mish", 18, _composite(activations.mish)),
    OnnxRow("Swish", 24, _composite(activations.swish, "alpha"), (_alpha(1.0),)),
    OnnxRow("Gelu", 20, _gelu, (Attribute("approximate", "none", "string", ("none", "tanh")),)),
    OnnxRow("Identity", 1, _identity),
    OnnxRow("Dropout", 7, _dropout, (Attribute("ratio", 0.5, "float"),), until=11),
    OnnxRow("Dropout", 12, _dropout, (Attribute("seed", None),), inputs=3, limits="training"),
    OnnxRow("Constant", 1, _constant, _CONSTANTS, inputs=0, limits="sparse values and strings"),
)
