"""ONNX operators that compute: per element, over axes, products.

The order of arithmetic is numerics.md; where ONNX writes a formula, the roundings are those of its steps. Start at
`ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.kernels import composites, functions
from samebits.kernels.expression import Chain, Expression, ExpressionValue
from samebits.onnx.proto import DTYPES
from samebits.onnx.row import LATEST, MANY, Attribute, NodeCall, OnnxRow, Unsupported
from samebits.operations import dim
from samebits.operations.dim import Size

__all__ = ["ROWS"]


def _apply(op: str) -> Callable[[NodeCall], Sequence[str]]:
    """One per-element operation of every input."""

    def lower(call: NodeCall) -> Sequence[str]:
        return (call.b.apply(op, *[call[i] for i in range(len(call.inputs))]),)

    return lower


def _variadic(op: str) -> Callable[[NodeCall], Sequence[str]]:
    """((x0 op x1) op x2) ..."""

    def lower(call: NodeCall) -> Sequence[str]:
        result = call[0]
        for i in range(1, len(call.inputs)):
            result = call.b.apply(op, result, call[i])
        return (result if len(call.inputs) > 1 else call.b.apply("copy", result),)

    return lower


def _relu(call: NodeCall) -> Sequence[str]:
    return call.b.map(composites.relu(call.fact(0).dtype), call[0])


def _divide(call: NodeCall) -> Sequence[str]:
    b, known = call.b, [call.b.integers(call[0]), call.b.integers(call[1])]
    if call.fact(0).dtype is not dtypes.int64 or known[0] is None or known[1] is None:
        return (b.apply("div", call[0], call[1]),)
    # The quotient that ONNX truncates is the one that floors where nothing is negative.
    length = max(len(sizes) for sizes in known if sizes is not None)
    pairs = zip(*[sizes * length if len(sizes) == 1 else sizes for sizes in known if sizes is not None], strict=True)
    quotients = tuple(_quotient(x, y) for x, y in pairs)
    return (b.dims(quotients, scalar=call.fact(0).rank == call.fact(1).rank == 0),)


def _quotient(x: Size, y: Size) -> Size:
    if not dim.is_never_negative(x) or not dim.is_never_negative(y) or y == 0:
        raise Unsupported(f"{x} is divided by {y}, must be sizes that are not negative, the divisor not zero")
    return dim.floor_divide(x, y)


def _pow(call: NodeCall) -> Sequence[str]:
    exponent, shape = call.array(1), call.fact(0).shape
    if exponent.size != 1 or float(exponent.reshape(())) != 2:
        raise Unsupported("exponent is not the constant 2")
    square = call.b.apply("mul", call[0], call[0])
    return (call.b.reshape(square, (1,) * (exponent.ndim - len(shape)) + shape),)


def _cast(call: NodeCall) -> Sequence[str]:
    number = call.attributes["to"]
    if number not in DTYPES:
        raise Unsupported(f"attribute 'to' is {number}, which no element type here has")
    target = DTYPES[number]
    if target.name not in functions.row("cast").accepts[0]:
        raise Unsupported(f"attribute 'to' is {number} ({target.name}), which nothing here casts to")
    if call.fact(0).dtype is target:
        return (call[0],)
    return (call.b.apply("cast", call[0], cast_to=target),)


def _matmul(call: NodeCall) -> Sequence[str]:
    b, (x, y) = call.b, (call[0], call[1])
    a_shape, b_shape = b.facts[x].shape, b.facts[y].shape
    if not a_shape or not b_shape:
        raise Unsupported("an operand is a scalar")
    left = b.reshape(x, (1, *a_shape)) if len(a_shape) == 1 else x
    right = b.reshape(y, (*b_shape, 1)) if len(b_shape) == 1 else y
    result = b.contract(left, right)
    shape = b.facts[result].shape
    if len(a_shape) == 1:
        shape = (*shape[:-2], shape[-1])
    if len(b_shape) == 1:
        shape = shape[:-1]
    return (b.reshape(result, shape),)


def _gemm(call: NodeCall) -> Sequence[str]:
    b, (x, y) = call.b, (call[0], call[1])
    if call.fact(0).rank != 2 or call.fact(1).rank != 2:
        raise Unsupported("operands are not matrices")
    x = b.transpose(x, (1, 0)) if call.attributes["transA"] else x
    y = b.transpose(y, (1, 0)) if call.attributes["transB"] else y
    result = b.contract(x, y)
    if call.attributes["alpha"] != 1:
        result = b.apply("mul", result, b.scalar(call.attributes["alpha"], b.facts[result].dtype))
    addend = call.optional(2)
    if addend is not None:
        if call.attributes["beta"] != 1:
            addend = b.apply("mul", addend, b.scalar(call.attributes["beta"], b.facts[addend].dtype))
        result = b.apply("add", result, b.fitted(addend, b.facts[result].shape))
    return (result,)


def _softmax(call: NodeCall) -> Sequence[str]:
    axis = call.axis() - call.fact(0).rank
    return call.b.rows(composites.softmax(call.fact(0).dtype), call[0], axes=(axis,))


def _layer_norm(call: NodeCall) -> Sequence[str]:
    axes = tuple(range(call.axis() - call.fact(0).rank, 0))
    scales = [call[1], *([call[2]] if call.optional(2) is not None else [])]
    expression = composites.layer_norm_statistics(True, len(scales) == 2, call.attributes["epsilon"])
    return call.b.rows(expression, call[0], *[call.b.fitted(name, call.fact(0).shape) for name in scales], axes=axes)


def _reduce(op: str, mean: bool = False) -> Callable[[NodeCall], Sequence[str]]:
    """A reduction over some axes, which are one axis in row-major order (numerics.md section 6)."""

    def expression(dtype: DType) -> Expression:
        chain = Chain()
        functions.result_dtype(_STEP[op], (dtype, dtype))  # refuses what cannot be reduced
        total = chain.apply(op, chain.input(dtype))
        return chain.finish(chain.apply("div", total, chain.count()) if mean else total)

    def lower(call: NodeCall) -> Sequence[str]:
        b, shape = call.b, call.fact(0).shape
        axes = _axes(call, len(shape))
        if axes is None:
            return (call[0],)
        axes = axes or tuple(range(len(shape)))
        if not shape:
            raise Unsupported("input 0 is a scalar")
        counted = tuple(axis - len(shape) for axis in axes)
        (result,) = b.rows(expression(call.fact(0).dtype), call[0], axes=counted)
        if call.attributes["keepdims"]:
            return (result,)
        return (b.reshape(result, tuple(size for i, size in enumerate(shape) if i not in axes)),)

    return lower


def _axes(call: NodeCall, rank: int) -> tuple[int, ...] | None:
    """The axes to reduce, ascending; empty for all of them, None for none at all."""
    given = call.attributes.get("axes")
    if given is None and call.optional(1) is not None:
        given = call.numbers(1)
    if not given and call.attributes.get("noop_with_empty_axes"):
        return None
    return tuple(sorted(call.axes(given or (), rank)))


def _dynamic_quantize(call: NodeCall) -> Sequence[str]:
    """The function body of ONNX's DynamicQuantizeLinear: one scale over the whole tensor, the batch included."""
    b = call.b
    flat = b.reshape(call[0], (dim.product(call.fact(0).shape),))
    low, high = b.rows(_range_expression(), flat)
    scale, point, quantum = b.map(_scale_expression(), b.reshape(low, ()), b.reshape(high, ()))
    return (b.map(_quantize_expression(), call[0], scale, point)[0], scale, quantum)


def _range_expression() -> Expression:
    chain = Chain()
    x = chain.input(dtypes.float32)
    zero = chain.constant(0.0, dtypes.float32)
    low = chain.apply("minimum", chain.apply("row_min", x), zero)
    return chain.finish(low, chain.apply("maximum", chain.apply("row_max", x), zero))


def _clamped(chain: Chain, x: ExpressionValue) -> ExpressionValue:
    low, high = (chain.constant(limit, dtypes.float32) for limit in (0.0, 255.0))
    return chain.apply("minimum", chain.apply("maximum", x, low), high)


def _scale_expression() -> Expression:
    """scale = (high - low) / 255; point = rint(clamp(0 - low / scale)), as float32 and as uint8."""
    chain = Chain()
    low, high = chain.input(dtypes.float32), chain.input(dtypes.float32)
    scale = chain.apply("div", chain.apply("sub", high, low), chain.constant(255.0, dtypes.float32))
    exact = chain.apply("sub", chain.constant(0.0, dtypes.float32), chain.apply("div", low, scale))
    point = chain.apply("rint", _clamped(chain, exact))
    return chain.finish(scale, point, chain.apply("cast", point, dtype=dtypes.uint8))


def _quantize_expression() -> Expression:
    """clamp(rint(x / scale) + point); NaN becomes 0 in the cast."""
    chain = Chain()
    x, scale, point = (chain.input(dtypes.float32) for _ in range(3))
    code = chain.apply("add", chain.apply("rint", chain.apply("div", x, scale)), point)
    return chain.finish(chain.apply("cast", _clamped(chain, code), dtype=dtypes.uint8))


def _dequantize(call: NodeCall) -> Sequence[str]:
    """(x - zero point) * scale, the difference exact in int32."""
    b = call.b
    for i in range(1, len(call.inputs)):
        if call.inputs[i] is not None and dim.product(call.fact(i).shape) != 1:
            raise Unsupported("scale is not one value for the whole tensor")
    x = b.apply("cast", call[0], cast_to=dtypes.int32) if call.fact(0).dtype is not dtypes.int32 else call[0]
    if call.optional(2) is not None:
        x = b.apply("sub", x, b.apply("cast", b.reshape(call[2], ()), cast_to=dtypes.int32))
    return (b.apply("mul", b.apply("cast", x, cast_to=dtypes.float32), b.reshape(call[1], ())),)


def _identity(call: NodeCall) -> Sequence[str]:
    return (call[0],)


def _constant(call: NodeCall) -> Sequence[str]:
    given = {name: value for name, value in call.attributes.items() if value is not None}
    if len(given) != 1:
        raise Unsupported(f"{len(given)} attributes hold its value, not one")
    ((name, value),) = given.items()
    dtype = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return (call.b.constant(np.array(value, dtype.get(name))),)


_BROADCAST = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "And": "logical_and", "Or": "logical_or",
    "Xor": "logical_xor", "Where": "where",
}  # fmt: skip
_SINCE = {"LessOrEqual": 12, "GreaterOrEqual": 12, "Where": 9, "Erf": 9, "IsNaN": 9, "And": 7, "Or": 7, "Xor": 7}
_UNARY = {
    "Neg": "neg", "Abs": "abs", "Exp": "exp", "Sqrt": "sqrt", "Reciprocal": "reciprocal", "Erf": "erf",
    "IsNaN": "is_nan", "Not": "logical_not",
}  # fmt: skip
# The operation between two elements of a row.
_STEP = {"row_sum": "add", "row_max": "maximum", "row_min": "minimum"}
_KEEP = (Attribute("keepdims", 1, allowed=(0, 1)),)
_NOOP = Attribute("noop_with_empty_axes", 0, allowed=(0, 1))

ROWS: tuple[OnnxRow, ...] = (
    *(
        OnnxRow(op, _SINCE.get(op, 7), _apply(name), inputs=3 if op == "Where" else 2)
        for op, name in _BROADCAST.items()
    ),
    *(OnnxRow(op, _SINCE.get(op, 6 if op != "Not" else 1), _apply(name)) for op, name in _UNARY.items()),
    OnnxRow("Max", 8, _variadic("maximum"), inputs=MANY),
    OnnxRow("Min", 8, _variadic("minimum"), inputs=MANY),
    OnnxRow("Div", 7, _divide, inputs=2),
    OnnxRow("Relu", 6, _relu),
    OnnxRow("Pow", 7, _pow, inputs=2),
    OnnxRow(
        "Cast",
        6,
        _cast,
        (
            Attribute("to"),
            # Both speak of float8 targets only, which no row casts to.
            Attribute("saturate", 1, allowed=(0, 1), since=19),
            Attribute("round_mode", "up", "string", ("up", "down", "nearest"), since=24),
        ),
    ),
    OnnxRow("MatMul", 1, _matmul, inputs=2),
    OnnxRow(
        "Gemm",
        7,
        _gemm,
        (
            Attribute("alpha", 1.0, "float"),
            Attribute("beta", 1.0, "float"),
            Attribute("transA", 0, allowed=(0, 1)),
            Attribute("transB", 0, allowed=(0, 1)),
        ),
        inputs=3,
    ),
    OnnxRow("Softmax", 13, _softmax, (Attribute("axis", -1),)),
    OnnxRow(
        "LayerNormalization",
        17,
        _layer_norm,
        (Attribute("axis", -1), Attribute("epsilon", 1e-5, "float"), Attribute("stash_type", 1, allowed=(1,))),
        inputs=3,
    ),
    OnnxRow("ReduceSum", 13, _reduce("row_sum"), (*_KEEP, _NOOP), inputs=2),
    *(
        OnnxRow(op, since, lower, (*_KEEP, attribute), inputs, until)
        for op, lower in (
            ("ReduceMean", _reduce("row_sum", mean=True)),
            ("ReduceMax", _reduce("row_max")),
            ("ReduceMin", _reduce("row_min")),
        )
        for since, until, inputs, attribute in (
            (11, 17, 1, Attribute("axes", None, "ints")),
            (18, LATEST, 2, _NOOP),
        )
    ),
    OnnxRow("DynamicQuantizeLinear", 11, _dynamic_quantize),
    OnnxRow(
        "DequantizeLinear",
        10,
        _dequantize,
        (
            Attribute("axis", 1, since=13),
            Attribute("block_size", 0, allowed=(0,), since=21),
            Attribute("output_dtype", 0, allowed=(0, 1), since=23),
        ),
        inputs=3,
    ),
    OnnxRow("Identity", 1, _identity),
    OnnxRow(
        "Constant",
        1,
        _constant,
        (
            Attribute("value", None, "tensor"),
            Attribute("value_float", None, "float", since=12),
            Attribute("value_floats", None, "floats", since=12),
            Attribute("value_int", None, since=12),
            Attribute("value_ints", None, "ints", since=12),
        ),
        inputs=0,
    ),
)
