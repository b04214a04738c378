"""Operands of products, checked and described as the gemm room takes them.

Start at `matrix`; `operand` and `check_shape` refuse, `in_bytes` is what a plan is then given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, LayoutError, ShapeError
from samebits.kernels.gemm import unpack
from samebits.kernels.gemm.contraction import Matrix
from samebits.layout import Layout
from samebits.ops.call import Call
from samebits.shapes import broadcast_extents
from samebits.tensor import Tensor

FACTORS = tuple(row for row in dtypes.ROWS if row.is_float or (row.is_integer and row.width_bits <= 8))
A_FACTOR = "a float or an integer of at most 8 bits"


def operand(call: Call, name: str, x: Any) -> Tensor:
    """A factor, packed or padded."""
    tensor = call.operand(name, x)
    if tensor.dtype not in FACTORS:
        expected = A_FACTOR
        raise DTypeError(call.name, name, "dtype", tensor.dtype.name, expected, "convert it first")
    return tensor


def in_bytes(x: Tensor) -> Tensor:
    """x, or where it lies packed the byte in which its first element begins, which is what a plan takes for it."""
    if not x.size or not unpack.is_packed(x.layout):
        return x
    return Tensor(x.buffer, Layout((1,), (8,), x.layout.offset_bits // 8 * 8, 8), dtypes.uint8)


def dense(call: Call, shape: Sequence[int], dtype: DType) -> Matrix:
    """A new result of `shape`, row after row.

    Raises:  LayoutError if there is no memory so large.
    """
    try:
        found = Layout.dense(shape, width_bits=dtype.width_bits).strides
    except LayoutError:
        expected, remedy = "one of fewer than 2**63 elements", "multiply parts of the operands"
        raise LayoutError(call.name, "out", "shape", tuple(shape), expected, remedy) from None
    strides = [0 if extent == 1 else s for extent, s in zip(shape, found, strict=True)]
    return Matrix(strides[-2], strides[-1], tuple(strides[:-2]), dtype)


def check_shape(call: Call, name: str, x: Tensor, due: tuple[int, ...]) -> None:
    """Whether x, as it was given, broadcasts to the shape that it repeats over.

    Raises:  ShapeError.
    """
    if broadcast_extents(x.shape, due) != due:
        raise ShapeError(call.name, name, "shape", x.shape, f"one that broadcasts to {due}", "reshape it")


def matrix(call: Call, name: str, x: Tensor, shape: Sequence[int]) -> Matrix:
    """x broadcast to `shape`, by its strides."""
    own = x.layout
    if x.shape != tuple(shape):
        try:
            x = x.broadcast_to(shape)
        except ShapeError:
            raise ShapeError(
                call.name, name, "shape", x.shape, f"one that broadcasts to {tuple(shape)}", "reshape it"
            ) from None
    if unpack.is_packed(own):
        return unpack.described(own, len(shape), x.dtype)
    strides = tuple(0 if extent == 1 else s for extent, s in zip(x.shape, x.strides, strict=True))
    return Matrix(strides[-2], strides[-1], strides[:-2], x.dtype)
