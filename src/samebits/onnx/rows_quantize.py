"""ONNX operators between element formats: casts, quantisation and its way back (numerics.md sections 3 and 9).

Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits import dtypes
from samebits.conversions import SB1, Conversion
from samebits.dtypes import DType
from samebits.kernels import functions
from samebits.kernels.expression import Chain, Expression, ExpressionValue
from samebits.onnx.row import Attribute, NodeCall, OnnxRow, Unsupported
from samebits.operations import dim

__all__ = ["ROWS", "dequantize", "quantize"]

# What casts to these mean beyond the value depends on attributes.
_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_POWERS = "float8_e8m0fnu"


def _cast(call: NodeCall) -> Sequence[str]:
    return (_cast_to(call, call.element_type("to")),)


def _cast_like(call: NodeCall) -> Sequence[str]:
    return (_cast_to(call, call.fact(1).dtype),)


def _cast_to(call: NodeCall, target: DType) -> str:
    """Input 0 in another format, as the attributes say."""
    if target.name == _POWERS and call.attributes["round_mode"] != "nearest":
        raise Unsupported(f"casts to {target.name} round to the nearest, not {call.attributes['round_mode']}")
    x = call[0]
    if target.is_integer and target.width_bits < 8 and call.fact(0).dtype.is_float:
        x = call.converted(x, dtypes.int32)  # of which the low bits are kept, as of any integer
    return call.converted(x, target, _overflow(target, bool(call.attributes["saturate"])))


def _overflow(target: DType, is_saturated: bool) -> Conversion:
    """The conversion to a format, which may saturate where ONNX speaks of it: in the formats of 8 bits."""
    return Conversion(overflow="saturate") if is_saturated and target.name in (*_FLOAT8, _POWERS) else SB1


def _laid_out(call: NodeCall, index: int) -> str:
    """A scale or zero point as an operand beside input 0: of the tensor, of an axis, or of blocks along it."""
    b, own, shape = call.b, call.fact(index).shape, call.fact(0).shape
    block = call.attributes.get("block_size", 0)
    if block:
        return _blocked(call, index, block)
    if dim.product(own) == 1:
        return b.reshape(call[index], ())
    axis = call.axis()
    if len(own) != 1 or (dim.are_known(own[0], shape[axis]) and own[0] != shape[axis]):
        raise Unsupported(f"input {index} is {call.fact(index)}, must be one number, or one a place of axis {axis}")
    return b.fitted(b.reshape(call[index], (own[0], *[1] * (len(shape) - axis - 1))), shape)


def _blocked(call: NodeCall, index: int, block: int) -> str:
    """Each number repeated for the places of its block; the last block may be short."""
    b, own, shape, axis = call.b, call.fact(index).shape, call.fact(0).shape, call.axis()
    if block < 0 or len(own) != len(shape):
        raise Unsupported(f"input {index} is {call.fact(index)} in blocks of {block}, must have {len(shape)} axes")
    blocks = own[axis]
    extent = dim.floor_divide(shape[axis] + (block - 1), block)
    if dim.are_known(blocks, extent) and blocks != extent:
        raise Unsupported(f"input {index} has {blocks} blocks along axis {axis}, must have {extent} of {block}")
    apart = b.reshape(call[index], (*own[: axis + 1], 1, *own[axis + 1 :]))
    whole = b.expand(apart, (*own[: axis + 1], block, *own[axis + 1 :]))
    joined = b.reshape(whole, (*own[:axis], blocks * block, *own[axis + 1 :]))
    steps = (1,) * len(shape)
    return b.fitted(b.slice(joined, (0,) * len(shape), (*own[:axis], shape[axis], *own[axis + 1 :]), steps), shape)


def quantize(call: NodeCall) -> Sequence[str]:
    """rint(x / scale) + zero, saturating; for floats the quotient is converted once."""
    b, target = call.b, _quantized_type(call)
    _check_scale(call)
    scale = _laid_out(call, 1)
    precision = b.facts[scale].dtype if not call.attributes.get("precision") else call.element_type("precision")
    if precision is not dtypes.float32:
        raise Unsupported(f"the quotient is asked for in {precision.name}, must be float32")
    x = call.converted(call[0], dtypes.float32)
    zero = _laid_out(call, 2) if call.optional(2) is not None else None
    if target.name in functions.row("quantize").accepts[2]:
        return (b.apply("quantize", x, scale, b.scalar(0, target) if zero is None else zero),)
    if target.is_float:
        quotient = b.apply("div", x, scale)
        if zero is not None:
            quotient = b.apply("add", quotient, call.converted(zero, dtypes.float32))
        return (call.converted(quotient, target, _overflow(target, bool(call.attributes.get("saturate", 1)))),)
    start = b.scalar(0, dtypes.float32) if zero is None else call.converted(zero, dtypes.float32)
    return (call.converted(b.map(_whole(target), x, scale, start)[0], target),)


def _quantized_type(call: NodeCall) -> DType:
    """The format of the answer: the zero point's, or that of an attribute, or else uint8."""
    asked = call.element_type("output_dtype") if call.attributes.get("output_dtype") else None
    if call.optional(2) is None:
        return asked or dtypes.uint8
    given = call.fact(2).dtype
    _check_quantised(call, 2)
    if asked is not None and asked is not given:
        raise Unsupported(f"attribute 'output_dtype' is {asked.name}, but the zero point is {given.name}")
    return given


def _check_quantised(call: NodeCall, index: int) -> None:
    """Whether an input is of a format that numbers are quantised to."""
    dtype = call.fact(index).dtype
    if not (dtype.is_integer or (dtype.is_float and dtype.width_bits <= 8)):
        raise Unsupported(f"input {index} is {dtype.name}, must be integers, or floats of at most 8 bits")


def _check_scale(call: NodeCall) -> None:
    """Whether the scale is of floats that float32 holds."""
    dtype = call.fact(1).dtype
    if not dtype.is_float or dtype is dtypes.float64:
        raise Unsupported(f"input 1 is {dtype.name}, must be floats of at most 32 bits")


def _whole(target: DType) -> Expression:
    """The code as float32: exact below 2**24, and what is beyond saturates in any format of 16 bits or fewer."""
    if target.width_bits > 16:
        raise Unsupported(f"codes of {target.name} are not done, only those of 16 bits or fewer")
    chain = Chain()
    x, scale, zero = (chain.input(dtypes.float32) for _ in range(3))
    code = chain.apply("rint", chain.apply("div", x, scale))
    code = chain.apply("where", chain.apply("is_nan", code), chain.constant(0, dtypes.float32), code)
    return chain.finish(_between(chain, chain.apply("add", code, zero), float(target.min), float(target.max)))


def _between(chain: Chain, x: ExpressionValue, low: float, high: float) -> ExpressionValue:
    least, most = (chain.constant(limit, dtypes.float32) for limit in (low, high))
    return chain.apply("minimum", chain.apply("maximum", x, least), most)


def dequantize(call: NodeCall) -> Sequence[str]:
    """(x - zero point) * scale: the difference of integers exact in int32, that of floats in float32."""
    b, dtype = call.b, call.fact(0).dtype
    _check_quantised(call, 0)
    _check_scale(call)
    if call.optional(2) is not None and call.fact(2).dtype is not dtype:
        raise Unsupported(f"input 2 is {call.fact(2).dtype.name}, must be {dtype.name} as input 0")
    scale = _laid_out(call, 1)
    target = call.element_type("output_dtype") if call.attributes.get("output_dtype") else b.facts[scale].dtype
    if target is not dtypes.float32:
        raise Unsupported(f"the product is asked for in {target.name}, must be float32")
    exact = dtypes.int32 if dtype.is_integer else dtypes.float32
    x = call.converted(call[0], exact)
    if call.optional(2) is not None:
        x = b.apply("sub", x, call.converted(_laid_out(call, 2), exact))
    return (b.apply("mul", call.converted(x, dtypes.float32), call.converted(scale, dtypes.float32)),)


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


def _scale_expression() -> Expression:
    """scale = (high - low) / 255; point = rint(clamp(0 - low / scale)), as float32 and as uint8."""
    chain = Chain()
    low, high = chain.input(dtypes.float32), chain.input(dtypes.float32)
    scale = chain.apply("div", chain.apply("sub", high, low), chain.constant(255.0, dtypes.float32))
    exact = chain.apply("sub", chain.constant(0.0, dtypes.float32), chain.apply("div", low, scale))
    point = chain.apply("rint", _between(chain, exact, 0, 255))
    return chain.finish(scale, point, chain.apply("cast", point, dtype=dtypes.uint8))


def _quantize_expression() -> Expression:
    """clamp(rint(x / scale) + point); NaN becomes 0 in the cast."""
    chain = Chain()
    x, scale, point = (chain.input(dtypes.float32) for _ in range(3))
    code = chain.apply("add", chain.apply("rint", chain.apply("div", x, scale)), point)
    return chain.finish(chain.apply("cast", _between(chain, code, 0, 255), dtype=dtypes.uint8))


_AXIS = Attribute("axis", 1, since=13)
_SATURATE = Attribute("saturate", 1, allowed=(0, 1), since=19)
_ROUND_MODE = Attribute("round_mode", "up", "string", ("up", "down", "nearest"), since=24)
_SATURATING = "`round_mode` other than nearest for float8_e8m0"
_BLOCK = Attribute("block_size", 0, since=21)

ROWS: tuple[OnnxRow, ...] = (
    OnnxRow("Cast", 6, _cast, (Attribute("to"), _SATURATE, _ROUND_MODE), limits=_SATURATING),
    OnnxRow("CastLike", 15, _cast_like, (_SATURATE, _ROUND_MODE), inputs=2, limits=_SATURATING),
    OnnxRow(
        "QuantizeLinear",
        10,
        quantize,
        (
            _AXIS,
            _SATURATE,
            _BLOCK,
            Attribute("output_dtype", 0, since=21),
            Attribute("precision", 0, allowed=(0, 1), since=23),
        ),
        inputs=3,
        limits="quotients in another format than float32",
    ),
    OnnxRow(
        "DequantizeLinear",
        10,
        dequantize,
        (_AXIS, _BLOCK, Attribute("output_dtype", 0, since=23)),
        inputs=3,
        limits="products in another format than float32",
    ),
    OnnxRow("DynamicQuantizeLinear", 11, _dynamic_quantize, limits="a tensor without elements"),
)
