"""Arrays in memory as facts: formats and how they lie; those of products are checked, and turned into what gemm takes.

Start at `Lying`, the fact of an array; `matrix` is what a kernel is told of it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, LayoutError, ShapeError
from samebits.frozen import dataclass
from samebits.kernels import spread
from samebits.kernels.gemm import unpack
from samebits.kernels.gemm.contraction import Matrix
from samebits.layout import Layout, Shape
from samebits.layout.recorded import broadcast
from samebits.layout.recorded import dense as dense_layout
from samebits.shapes import broadcast_extents

FACTORS = tuple(row for row in dtypes.ROWS if row.is_float or (row.is_integer and row.width_bits <= 8))
A_FACTOR = "a float or an integer of at most 8 bits"
_FLOAT64, _BITS = struct.Struct("<d"), struct.Struct("<Q")


class Lying(NamedTuple):
    """How an array lies: its element format, and its layout from the byte in which its first element begins."""

    dtype: DType
    layout: Layout

    @classmethod
    def of(cls, dtype: DType, layout: Layout) -> Lying:
        """An array of that layout, wherever its bytes are."""
        if layout.offset_bits > 7:
            first = layout.offset_bits & 7
            layout = Layout(layout.shape, layout.strides_bits, first, layout.width_bits, layout.storage)
        return cls(dtype, layout)

    @classmethod
    def dense(cls, dtype: DType, shape: Shape = ()) -> Lying:
        """A new array, row after row."""
        return cls(dtype, Layout.dense(shape, width_bits=dtype.width_bits))

    @property
    def shape(self) -> Shape:
        """Its extents."""
        return self.layout.shape

    def seen(self, layout: Layout) -> Lying:
        """The same memory, seen through a view of the layout."""
        return Lying(self.dtype, layout)


@dataclass(frozen=True, slots=True)
class Number:
    """A number that a caller wrote, by the bits of its float64: -0.0 is not 0.0, and a NaN is itself."""

    bits: int

    @classmethod
    def of(cls, value: float) -> Number:
        """value as such a number."""
        return cls(*_BITS.unpack(_FLOAT64.pack(value)))

    @property
    def value(self) -> float:
        """The number."""
        found: float = _FLOAT64.unpack(_BITS.pack(self.bits))[0]
        return found


def check_dtype(call: str, name: str, dtype: DType, *accepted: DType) -> None:
    """Whether an operand is of an accepted format.

    Raises:  DTypeError.
    """
    if dtype not in accepted:
        expected = " or ".join(row.name for row in accepted)
        raise DTypeError(call, name, "dtype", dtype.name, expected, "convert it first")


def check_factor(call: str, name: str, dtype: DType) -> None:
    """Whether elements can be multiplied.

    Raises:  DTypeError.
    """
    if dtype not in FACTORS:
        raise DTypeError(call, name, "dtype", dtype.name, A_FACTOR, "convert it first")


def check_shape(call: str, name: str, shape: Shape, due: Shape) -> None:
    """Whether an operand, as it was given, broadcasts to the shape that it repeats over.

    Raises:  ShapeError.
    """
    if broadcast_extents(shape, due) != due:
        raise ShapeError(call, name, "shape", shape, f"one that broadcasts to {due}", "reshape it")


def dense(call: str, shape: Sequence[int], dtype: DType) -> Matrix:
    """A new result of `shape`, row after row.

    Raises:  LayoutError if there is no memory so large.
    """
    try:
        found = dense_layout(tuple(shape), width_bits=dtype.width_bits).strides
    except LayoutError:
        expected, remedy = "one of fewer than 2**63 elements", "multiply parts of the operands"
        raise LayoutError(call, "out", "shape", tuple(shape), expected, remedy) from None
    strides = [0 if extent == 1 else s for extent, s in zip(shape, found, strict=True)]
    return Matrix(strides[-2], strides[-1], tuple(strides[:-2]), dtype)


def matrix(call: str, name: str, x: Lying, shape: Sequence[int]) -> Matrix:
    """x broadcast to `shape`, by its strides.

    Raises:  ShapeError if it does not broadcast.
    """
    layout = x.layout
    if x.shape != tuple(shape):
        try:
            layout = broadcast(layout, tuple(shape))
        except ShapeError:
            expected = f"one that broadcasts to {tuple(shape)}"
            raise ShapeError(call, name, "shape", x.shape, expected, "reshape it") from None
    if spread.is_packed(x.layout):
        return unpack.described(x.layout, len(shape), x.dtype)
    strides = tuple(0 if extent == 1 else s for extent, s in zip(layout.shape, layout.strides, strict=True))
    return Matrix(strides[-2], strides[-1], strides[:-2], x.dtype)
