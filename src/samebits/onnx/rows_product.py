"""ONNX operators that multiply matrices: of floats, and of integers with zero points and scales (numerics.md 2 and 3).

Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from samebits import dtypes
from samebits.onnx.row import Attribute, NodeCall, OnnxRow, Unsupported
from samebits.operations import dim
from samebits.operations.product import PLAIN, Options

__all__ = ["ROWS", "product"]

_NOTHING: Mapping[str, str] = MappingProxyType({})


def _matmul(call: NodeCall) -> Sequence[str]:
    """Of floats alone: those of integers would need integers of their own to add up in."""
    _check_floats(call, "; MatMulInteger multiplies integers")
    return (product(call, call[0], call[1]),)


def _check_floats(call: NodeCall, instead: str = "") -> None:
    """Raise Unsupported unless both operands are of one float format."""
    left, right = call.fact(0).dtype, call.fact(1).dtype
    if not left.is_float:
        raise Unsupported(f"operands are {left.name}, must be floats{instead}")
    if left is not right:
        raise Unsupported(f"operands are {left.name} and {right.name}, must be of one format")


def product(call: NodeCall, x: str, y: str, given: Mapping[str, str] = _NOTHING, options: Options = PLAIN) -> str:
    """The product of matrices, of vectors too; `given` and options as `ProgramBuilder.contract` takes them."""
    b = call.b
    a_shape, b_shape = b.facts[x].shape, b.facts[y].shape
    if not a_shape or not b_shape:
        raise Unsupported("an operand is a scalar")
    left = b.reshape(x, (1, *a_shape)) if len(a_shape) == 1 else x
    right = b.reshape(y, (*b_shape, 1)) if len(b_shape) == 1 else y
    result = b.contract(left, right, options, **given)
    shape = b.facts[result].shape
    if len(a_shape) == 1:
        shape = (*shape[:-2], shape[-1])
    if len(b_shape) == 1:
        shape = shape[:-1]
    return b.reshape(result, shape)


def _gemm(call: NodeCall) -> Sequence[str]:
    b, (x, y) = call.b, (call[0], call[1])
    _check_floats(call)
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


def _integers(call: NodeCall) -> Sequence[str]:
    """The exact sum as int32, whose low bits are kept where K is so long that it could leave it."""
    given = {
        name: _shared(call, index, operand)
        for name, index, operand in (("a_zero_point", 2, 0), ("b_zero_point", 3, 1))
        if call.optional(index) is not None
    }
    return (call.converted(product(call, call[0], call[1], given), dtypes.int32),)


def _requantised(call: NodeCall) -> Sequence[str]:
    """The exact sum times both scales over that of the result, rounded once (numerics.md section 3)."""
    names = {"a_scale": (1, 0), "a_zero_point": (2, 0), "b_scale": (4, 3), "b_zero_point": (5, 3)}
    given = {name: _shared(call, index, operand) for name, (index, operand) in names.items()}
    given |= {"out_scale": call.single(6), "out_zero_point": call.single(7)}
    for name in ("a_scale", "b_scale", "out_scale"):
        given[name] = call.converted(given[name], dtypes.float32)
    return (product(call, call[0], call[3], given, Options(out_dtype=call.fact(7).dtype)),)


def _shared(call: NodeCall, index: int, operand: int) -> str:
    """A scale or zero point: one number, or one for each row of the left operand or column of the right one."""
    shape = call.fact(index).shape
    if dim.product(shape) == 1:
        return call.single(index)
    rank = call.fact(operand).rank
    if len(shape) not in (1, rank) or rank < 2:
        raise Unsupported(f"input {index} is {call.fact(index)}, must be one number or one a line of its operand")
    return call[index]


def _quantized_gemm(call: NodeCall) -> Sequence[str]:
    """The exact sum of products and of the addend by the scales of both, rounded once to that of the result, or as
    float32 where that has none; alpha is part of the left one's scale."""
    b, (x, y) = call.b, (call[0], call[3])
    if call.fact(0).rank != 2 or call.fact(3).rank != 2:
        raise Unsupported("operands are not matrices")
    x = b.transpose(x, (1, 0)) if call.attributes["transA"] else x
    y = b.transpose(y, (1, 0)) if call.attributes["transB"] else y
    scale = call.single(1, dtypes.float32)
    if call.attributes["alpha"] != 1:
        scale = b.apply("mul", scale, b.scalar(call.attributes["alpha"], dtypes.float32))
    given = {"a_scale": scale, "a_zero_point": call.single(2, call.fact(0).dtype)}
    given |= {"b_scale": _shared(call, 4, 3), "b_zero_point": _shared(call, 5, 3)}
    if call.optional(6) is not None:
        given["bias"] = call[6]
    if (call.optional(7) is None) != (call.optional(8) is None):
        raise Unsupported("one of inputs 7 and 8 is given, must be both, or none for a result in float32")
    if call.optional(7) is None:
        return (product(call, x, y, given, Options(out_dtype=dtypes.float32)),)
    given |= {"out_scale": call.single(7, dtypes.float32), "out_zero_point": call.single(8)}
    return (product(call, x, y, given, Options(out_dtype=call.fact(8).dtype)),)


_GEMM = (
    Attribute("alpha", 1.0, "float"),
    Attribute("beta", 1.0, "float"),
    Attribute("transA", 0, allowed=(0, 1)),
    Attribute("transB", 0, allowed=(0, 1)),
)

ROWS: tuple[OnnxRow, ...] = (
    OnnxRow("MatMul", 1, _matmul, inputs=2, limits="integers"),
    OnnxRow("Gemm", 7, _gemm, _GEMM, inputs=3, limits="integers"),
    OnnxRow("MatMulInteger", 10, _integers, inputs=4),
    OnnxRow("QLinearMatMul", 10, _requantised, inputs=8),
    OnnxRow("QGemm", 1, _quantized_gemm, (_GEMM[0], *_GEMM[2:]), inputs=9, until=1, domain="com.microsoft"),
)
