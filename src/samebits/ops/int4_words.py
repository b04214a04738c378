"""Weights of 4 bits as GPTQ and AWQ pack them into words of 32 bits: start at `from_gptq` and `from_awq`.

Both keep a linear layer's weight transposed, [K, N], eight elements in a word: GPTQ along K, AWQ along N in an order of
its own, and both their zero points along N. Here the weight is [N, K] with groups along K, codes unchanged.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes, elements
from samebits.dtypes import DType
from samebits.errors import OptionError, ShapeError, shown
from samebits.kernels.functions import exact
from samebits.kernels.quantize import formats
from samebits.ops import block_parts
from samebits.ops.call import Call
from samebits.ops.quantized import Quantized
from samebits.tensor import Tensor

__all__ = ["from_awq", "from_gptq"]

Array = npt.NDArray[Any]

_GROUPS = (32, 64, 128)
# Of eight columns of AWQ, which nibble of the word is each (AutoAWQ, awq/utils/packing_utils.py).
_AWQ_NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)
_IN_ORDER = tuple(range(8))


def from_gptq(
    qweight: Any, qzeros: Any, scales: Any, group: int, *, g_idx: Any = None, zero_offset: int = 1
) -> tuple[Quantized, Tensor | None]:
    """A weight of GPTQ: value = (element - zero point) * scale, the scales and zero points those of `g_idx`.

    Args:    qweight: int32 [K / 8, N].   qzeros: int32 [K / group, N / 8].   scales: float16 [K / group, N].
             group: elements along K that share a scale: 32, 64 or 128.
             g_idx: int32 [K], the group of each; default that of its place.
             zero_offset: what a zero point is more than the stored one: 1 in checkpoints of version 1, else 0.
    Returns: a Quantized [N, K], and the order of its columns, int64 [K], where groups do not follow each other: it is
             multiplied with `take(x, order, axis=-1)`; None where they do.
    Raises:  OptionError, DTypeError, ShapeError.   Source: AutoGPTQ, qlinear_cuda_old.py.
    """
    call = Call("from_gptq", qweight)
    words = _words(call, "qweight", qweight)
    k, n = words.shape[0] * 8, words.shape[1]
    if _whole(zero_offset) not in (0, 1):
        raise OptionError("from_gptq", "zero_offset", "", shown(zero_offset), "0 or 1", "pass that of the version")
    factors, zeros = _shared(call, qzeros, scales, (k, n), group)
    codes = _nibbles(np.ascontiguousarray(words.T), _IN_ORDER)
    order = None if g_idx is None else _order(call, g_idx, k, group)
    points = _nibbles(zeros, _IN_ORDER).T + np.uint8(zero_offset)
    q = _made(codes if order is None else codes[:, order], factors.T, points, group)
    return q, None if order is None else Tensor.from_any(order)


def from_awq(qweight: Any, qzeros: Any, scales: Any, group: int) -> Quantized:
    """A weight of AWQ: value = (element - zero point) * scale.

    Args:    qweight: int32 [K, N / 8].   qzeros: int32 [K / group, N / 8].   scales: float16 [K / group, N].
             group: elements along K that share a scale: 32, 64 or 128.
    Returns: a Quantized [N, K].
    Raises:  OptionError, DTypeError, ShapeError.   Source: AutoAWQ, awq/utils/packing_utils.py.
    """
    call = Call("from_awq", qweight)
    words = _words(call, "qweight", qweight)
    shape = words.shape[0], words.shape[1] * 8
    factors, zeros = _shared(call, qzeros, scales, shape, group)
    codes, points = (_nibbles(found, _AWQ_NIBBLES).T for found in (words, zeros))
    return _made(codes, factors.T, points, group)


def _whole(value: object) -> int | None:
    """A value as an integer; None if it is none."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]  # None then
    except TypeError:
        return None


def _words(call: Call, name: str, x: Any, shape: tuple[int, int] | None = None) -> Array:
    """Words of 32 bits as uint32 [rows, columns]."""
    return _matrix(call, name, x, (dtypes.int32, dtypes.uint32), shape).view(np.uint32)


def _matrix(call: Call, name: str, x: Any, kinds: tuple[DType, ...], shape: tuple[int, int] | None) -> Array:
    """A matrix of one of several dtypes, as codes."""
    given = call.operand(name, x, *kinds).tensor
    if given.ndim != 2:
        raise ShapeError(call.name, name, "rank", given.ndim, 2, "pass a matrix")
    if shape is not None and given.shape != shape:
        raise ShapeError(call.name, name, "shape", given.shape, shape, "pass what belongs to qweight")
    return elements.read(given.buffer.array(), given.layout)


def _shared(call: Call, qzeros: Any, scales: Any, shape: tuple[int, int], group: int) -> tuple[Array, Array]:
    """Scales as float32 [K / group, N], and zero points as words."""
    if _whole(group) not in _GROUPS:
        raise OptionError(call.name, "group", "", shown(group), "32, 64 or 128", "pass that of the checkpoint")
    k, n = shape
    if k % group or n % 8:
        expected = f"a multiple of {group} by a multiple of 8"
        raise ShapeError(call.name, "qweight", "elements", shape, expected, "pass whole groups")
    lines = k // group
    kinds = (dtypes.float16, dtypes.bfloat16, dtypes.float32)
    given = call.operand("scales", scales, *kinds).tensor
    codes = _matrix(call, "scales", scales, kinds, (lines, n))
    kind = given.dtype.numpy
    assert kind is not None  # these have one
    return exact.widened(codes.view(kind)), _words(call, "qzeros", qzeros, (lines, n // 8))


def _nibbles(words: Array, places: tuple[int, ...]) -> Array:
    """Eight elements a word along the last axis, element i of eight being nibble places[i]."""
    shifts = 4 * np.array(places, np.uint32)
    return (words[..., None] >> shifts & 15).astype(np.uint8).reshape(*words.shape[:-1], words.shape[-1] * 8)


def _order(call: Call, g_idx: Any, k: int, group: int) -> Array | None:
    """An order of the columns in which each group's are neighbours; None where they are already."""
    given = call.operand("g_idx", g_idx, dtypes.int32, dtypes.int64).tensor
    if given.shape != (k,):
        raise ShapeError("from_gptq", "g_idx", "shape", given.shape, (k,), "pass one for each element along K")
    groups = given.values().astype(np.int64)
    due = np.repeat(np.arange(k // group), group)
    order = np.argsort(groups, kind="stable").astype(np.int64)
    if (groups[order] != due).any():
        expected = f"{group} of each group from 0 to {k // group - 1}"
        raise OptionError(
            "from_gptq", "g_idx", "", "another count of each group", expected, "pass that of the checkpoint"
        )
    return None if (groups == due).all() else order


def _made(codes: Array, scales: Array, zeros: Array, group: int) -> Quantized:
    """The weight of codes [N, K], with scales and zero points [N, K / group]."""
    row = formats.of(f"uint4-group{group}-zero")
    stored = block_parts.empty(codes.shape, row.element, -1)
    elements.write(stored.buffer.array(), stored.layout, np.ascontiguousarray(codes))
    parts = (Tensor.from_any(np.ascontiguousarray(x)) for x in (scales, zeros))
    factors, points = parts
    return Quantized(stored, factors, row, zero_points=points)
