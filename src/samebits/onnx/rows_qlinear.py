"""Operators of ONNX Runtime from quantised operands to a quantised result, as its quantiser writes them.

Each is what DequantizeLinear, the operator of numbers and QuantizeLinear are, one after the other (numerics.md section
3): it is lowered to these, and joins as they do. Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from samebits import dtypes
from samebits.frozen import replace
from samebits.onnx import rows_compute, rows_logic, rows_reduce, rows_window
from samebits.onnx.row import MANY, Attribute, NodeCall, OnnxRow, Unsupported
from samebits.onnx.rows_quantize import dequantize, quantize
from samebits.onnx.rows_window import SLIDE

__all__ = ["ROWS"]

_Lower = Callable[[NodeCall], Sequence[str]]
_DOMAIN = "com.microsoft"
_BYTES = (dtypes.int8, dtypes.uint8)
# The newest row of each operator of numbers.
_OF_NUMBERS: Mapping[str, OnnxRow] = {
    row.op: row for row in (*rows_compute.ROWS, *rows_logic.ROWS, *rows_reduce.ROWS, *rows_window.ROWS)
}


def _between(op: str, *operands: int, result: int) -> _Lower:
    """A `lower` of the operator `op` of numbers.

    Args:
        op: Its name.
        operands: Where each operand is, with its scale and zero point behind it; what is before the first stays.
        result: Where the scale of the result is, with its zero point behind it.
    """

    def lower(call: NodeCall) -> Sequence[str]:
        before = [call[i] for i in range(operands[0])]
        numbers = [_dequantized(call, i) for i in operands]
        version = call.attributes.get("opset", call.opset)
        made = _with_channels_second(replace(call, inputs=(*before, *numbers), opset=version), _OF_NUMBERS[op].lower)
        return (_quantized(call, made, result, like=operands[0]),)

    return lower


def _with_channels_second(call: NodeCall, lower: _Lower) -> str:
    """What `lower` makes of an image whose channels may be its last axis, and are in the result."""
    rank = call.fact(0).rank
    if not call.attributes.get("channels_last") or rank < 3:  # what has no image is refused by `lower`
        return lower(call)[0]
    image = call.b.transpose(call[0], (0, rank - 1, *range(1, rank - 1)))
    return call.b.transpose(lower(replace(call, inputs=(image,)))[0], (0, *range(2, rank), 1))


def _dequantized(call: NodeCall, index: int) -> str:
    """Operand `index` as numbers, by the scale and the zero point behind it."""
    dtype = call.fact(index).dtype
    if dtype not in _BYTES:
        raise Unsupported(f"input {index} is {dtype.name}, must be int8 or uint8")
    scale = call.single(index + 1, dtypes.float32)
    zero = call.single(index + 2, dtype) if call.optional(index + 2) is not None else None
    (numbers,) = dequantize(replace(call, inputs=(call[index], scale, zero), attributes={}))
    return numbers


def _quantized(call: NodeCall, numbers: str, index: int, like: int) -> str:
    """Numbers by the scale `index` and the zero point behind it, which is 0 in the format of operand `like` if it is
    left out."""
    dtype = call.fact(like).dtype
    scale = call.single(index, dtypes.float32)
    zero = call.single(index + 1) if call.optional(index + 1) is not None else call.b.scalar(0, dtype)
    if call.b.facts[zero].dtype is not dtype:
        raise Unsupported(f"input {index + 1} is {call.fact(index + 1)}, must be {dtype.name} as input {like}")
    (made,) = quantize(replace(call, inputs=(numbers, scale, zero), attributes={}))
    return made


def _concat(call: NodeCall) -> Sequence[str]:
    """Parts one after the other, each quantised as the result is."""
    count = len(call.inputs)
    if count < 5 or count % 3 != 2:
        raise Unsupported(f"{count} inputs are given, must be 2 of the result and 3 of each part")
    operands = range(2, count, 3)
    axis = call.axis(rank=call.fact(2).rank)
    parts = [
        call[i] if _is_quantized_alike(call, i) else _quantized(call, _dequantized(call, i), 0, like=i)
        for i in operands
    ]
    return (call.b.concat(parts, axis),)


def _is_quantized_alike(call: NodeCall, index: int) -> bool:
    """Whether an operand has the constant scale and zero point of the result, so that its elements stay what they are.

    With n the difference of an element and the zero point, n * scale is off by 2^-24 of itself at most: where it is
    subnormal it is a multiple of the least float32, and exact. So its quotient by the scale rounds to n.
    """
    scale, zero, wanted, point = (call.b.array(call[i]) for i in (index + 1, index + 2, 0, 1))
    if scale is None or zero is None or wanted is None or point is None:
        return False
    if not scale.dtype == wanted.dtype == np.float32 or not zero.dtype == point.dtype == call.fact(index).dtype.numpy:
        return False
    if not scale.size == zero.size == wanted.size == point.size == 1 or zero.item() != point.item():
        return False
    return bool(scale.item() == wanted.item() and 0 < abs(scale.item()) < 2.0**100)


_AVERAGE = (
    Attribute("kernel_shape", kind="ints"),
    *SLIDE,
    Attribute("ceil_mode", 0, allowed=(0, 1)),
    Attribute("count_include_pad", 0, allowed=(0, 1)),
    Attribute("channels_last", 0, allowed=(0, 1)),
)


def _row(op: str, lower: _Lower, attributes: tuple[Attribute, ...], inputs: int) -> OnnxRow:
    limits = _OF_NUMBERS[op].limits if op in _OF_NUMBERS else ""
    return OnnxRow(f"QLinear{op}", 1, lower, attributes, inputs, until=1, limits=limits, domain=_DOMAIN)


ROWS: tuple[OnnxRow, ...] = (
    *(_row(op, _between(op, 0, 3, result=6), (), 8) for op in ("Add", "Mul")),
    _row("Where", _between("Where", 1, 4, result=7), (), 9),
    *(
        _row(op, _between(op, 0, result=3), attributes, 5)
        for op, attributes in (
            ("Sigmoid", ()),
            ("LeakyRelu", (Attribute("alpha", 0.01, "float"),)),
            ("Softmax", (Attribute("axis", -1), Attribute("opset"))),
            ("GlobalAveragePool", (Attribute("channels_last", 0, allowed=(0, 1)),)),
            ("AveragePool", _AVERAGE),
        )
    ),
    _row("Concat", _concat, (Attribute("axis"),), MANY),
)
