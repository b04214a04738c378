"""ONNX operators that convolve: floats, and integers with zero points and scales (numerics.md sections 2 and 3).

Start at `ROWS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.frozen import replace
from samebits.kernels.gemm.engine import span
from samebits.onnx.row import Attribute, NodeCall, OnnxRow, OpenExtent, Unsupported
from samebits.onnx.rows_window import OPEN, SLIDE, dilations, window_of
from samebits.operations import convolution, dim
from samebits.operations.convolution import Convolution

__all__ = ["ROWS"]


def _convolution(call: NodeCall) -> Sequence[str]:
    """Weights times the windows' elements: K runs over channels of the group, then the kernel's places in order."""
    attributes, w = _slid(call, 0, 1)
    (made,) = call.b.add("convolve", (call[0], call[1]), attributes)
    if call.optional(2) is not None:
        made = call.b.apply("add", made, call.b.reshape(call[2], (w[0], *[1] * (len(w) - 2))))
    return (made,)


def _slid(call: NodeCall, image: int, weights: int) -> tuple[Convolution, tuple[int, ...]]:
    """How windows slide, for those numbers of inputs, and the shape of the weights."""
    x, w, groups = call.fact(image), call.fact(weights), call.attributes["group"]
    known = [size for size in (*x.shape[1:2], *w.shape) if isinstance(size, int)]
    if len(known) != 1 + w.rank or w.rank != x.rank:
        reason = "channels and the kernel must be known when the model is loaded, in as many axes as input 0"
        raise OpenExtent(reason, (*x.shape[1:2], *w.shape))
    channels, filters, depth, *kernel = known
    if groups < 1 or channels != depth * groups or filters % groups:
        raise Unsupported(f"{channels} channels and weights of {list(w.shape)} are no {groups} groups")
    if call.attributes["kernel_shape"] not in (None, tuple(kernel)):
        raise Unsupported(f"attribute 'kernel_shape' is not that of the weights, {kernel}")
    window = window_of(call, kernel)
    attributes = Convolution(window.strides, window.dilations, window.before, window.out, groups)
    return attributes, (filters, depth, *kernel)


def _convolution_of_integers(call: NodeCall) -> Sequence[str]:
    """The exact sum as int32, whose low bits are kept where it is so long that it could leave it."""
    given = {name: index for name, index in (("b_zero_point", 2), ("a_zero_point", 3)) if call.optional(index)}
    return (call.converted(_of_integers(call, (0, 1), given), dtypes.int32),)


def _requantised_convolution(call: NodeCall) -> Sequence[str]:
    """The exact sum and bias times both scales over that of the result, rounded once (numerics.md section 3)."""
    given = {"b_scale": 1, "b_zero_point": 2, "a_scale": 4, "a_zero_point": 5, "out_scale": 6, "out_zero_point": 7}
    given |= {"bias": 8} if call.optional(8) else {}
    return (_of_integers(call, (0, 3), given, call.fact(7).dtype),)


def _of_integers(
    call: NodeCall, operands: tuple[int, int], given: Mapping[str, int], out_dtype: DType | None = None
) -> str:
    """The convolution of the inputs `operands`, with others by the names of `product.describe`."""
    attributes, w = _slid(call, *operands)
    values = {name: _of_filters(call, index, w[0], name) for name, index in given.items()}
    facts = [call.b.facts[x] for x in (*[call[index] for index in operands], *values.values())]
    # Formats are refused alike, whatever is computed ahead.
    convolution.infer(replace(attributes, names=("x", "w", *values), out_dtype=out_dtype), facts)
    for name in ("a_zero_point", "b_zero_point"):
        if name in given and _is_zero(call, given[name]):
            del values[name]
    slides = attributes.slides(dim.bind_shape(call.fact(operands[0]).shape[2:], {}), w[2:])
    if out_dtype is not None and not any(s.before or s.total > s.extent for s in slides):
        values = _with_point_in_bias(call, operands[1], given, values)
    fits = _fits(call, operands, math.prod(w[1:]), values.get("bias"))
    attributes = replace(attributes, names=("x", "w", *values), out_dtype=out_dtype, bias_fits=fits)
    return call.b.add("convolve", (*[call[index] for index in operands], *values.values()), attributes)[0]


def _with_point_in_bias(
    call: NodeCall, weights: int, given: Mapping[str, int], values: Mapping[str, str]
) -> dict[str, str]:
    """The operands beside an image that no window looks beside: its zero point times the sums of the weights is part of
    the bias, where all of these are constants and the bias stays an int32."""
    names = [name for name in ("b_zero_point", "a_zero_point", "bias") if name in values]
    w, *arrays = (call.b.array(call[index]) for index in (weights, *[given[name] for name in names]))
    known = {name: x.astype(np.int64).reshape(-1) for name, x in zip(names, arrays, strict=True) if x is not None}
    if w is None or not w.size or "b_zero_point" not in known or len(known) < len(names):
        return dict(values)
    sums = w.reshape(len(w), -1).sum(1, dtype=np.int64) - known.get("a_zero_point", 0) * (w.size // len(w))
    bias = known.get("bias", 0) - known["b_zero_point"] * sums
    limits = np.iinfo(np.int32)
    if bias.min() < limits.min or bias.max() > limits.max:
        return dict(values)
    kept = {name: x for name, x in values.items() if name != "b_zero_point"}
    return kept | {"bias": call.b.constant(bias.astype(np.int32))}


def _fits(call: NodeCall, operands: tuple[int, int], k: int, bias: str | None) -> bool:
    """Whether no sum of k products, and a bias that is constant, leaves int32."""
    array = None if bias is None else call.b.array(bias)
    largest = k * math.prod([span(call.fact(index).dtype, zero=True) for index in operands])
    return array is not None and largest + int(abs(array.astype(np.int64)).max(initial=0)) <= np.iinfo(np.int32).max


def _is_zero(call: NodeCall, index: int) -> bool:
    """Whether an input is constant and 0, as zero points of weights are nearly always, and of what a relu bounded."""
    array = call.b.array(call[index])
    return array is not None and not array.any()


def _of_filters(call: NodeCall, index: int, filters: int, name: str) -> str:
    """A bias, zero point or scale, this in float32: one number, or one a filter if it belongs to the weights."""
    x = call[index]
    if name.endswith("_scale"):
        x = call.converted(x, dtypes.float32)
    if dim.product(call.fact(index).shape) == 1 and name != "bias":
        return call.b.reshape(x, ())
    if call.fact(index).shape != (filters,) or name not in ("a_scale", "a_zero_point", "bias"):
        due = f"{filters} elements" if name == "bias" else "one element"
        due += ", or one a filter" if name.startswith("a_") else ""
        raise Unsupported(f"input {index} is {call.fact(index)}, must be {due}")
    return x


_ATTRIBUTES = (Attribute("kernel_shape", None, "ints"), *SLIDE, dilations(), Attribute("group", 1))

ROWS: tuple[OnnxRow, ...] = (
    OnnxRow("Conv", 1, _convolution, _ATTRIBUTES, inputs=3, limits=OPEN),
    OnnxRow("ConvInteger", 10, _convolution_of_integers, _ATTRIBUTES, inputs=4, limits=OPEN),
    OnnxRow("QLinearConv", 10, _requantised_convolution, _ATTRIBUTES, inputs=9, limits=OPEN),
)
