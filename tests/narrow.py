"""Tensors of elements of fewer than 8 bits, packed by NumPy alone, and the values that their codes stand for."""

from __future__ import annotations

from typing import Any

import guard
import numpy as np

import samebits as sb
from samebits import dtypes
from samebits.dtypes import DType

Array = np.ndarray[Any, np.dtype[Any]]
NARROW = tuple(row for row in dtypes.ROWS if row.width_bits < 8 and row.kind != "bool")
INTEGERS, FLOATS = (tuple(row for row in NARROW if row.is_integer is exact) for exact in (True, False))
# Views of a matrix of 9 by 41 at least: at any bit, with any strides.
KEYS: tuple[Any, ...] = (
    (slice(None), slice(None)),
    (slice(1, None), slice(3, -2)),
    (slice(None, None, -1), slice(5, None)),
    (slice(2, 7), slice(None, None, -1)),
    (slice(None, None, -2), slice(-2, 1, -3)),
    (slice(1, None, 3), slice(1, None, 2)),
)


def packed(codes: Array, dtype: DType) -> sb.Tensor:
    """Codes side by side, the lowest bits first, in read-only bytes that end where memory does."""
    bits = (codes.reshape(-1, 1) >> np.arange(dtype.width_bits)) & 1
    data = guard.array(np.packbits(bits.astype(np.uint8), bitorder="little"))
    data.flags.writeable = False
    return sb.Tensor.from_buffer(data, dtype, codes.shape)


def codes_of(dtype: DType, *shape: int, seed: int = 0) -> Array:
    """Any codes."""
    return np.random.default_rng([seed, dtype.width_bits, *shape]).integers(0, 1 << dtype.width_bits, shape)


def draw(dtype: DType, *shape: int, seed: int = 0) -> tuple[sb.Tensor, Array]:
    """A packed tensor of any codes, and their values by Python integers, or by ml_dtypes."""
    codes = codes_of(dtype, *shape, seed=seed)
    if dtype.is_integer:
        half = 1 << dtype.width_bits - 1 if dtype.signed else 0
        values = np.array([int(code ^ half) - half for code in codes.ravel()], object).reshape(shape)
    else:
        assert dtype.numpy is not None
        values = codes.astype(np.uint8).view(dtype.numpy).astype(np.float32)
    return packed(codes, dtype), values


def codes(x: Any) -> Array:
    """The code of every element of a result, whatever kind of array it is."""
    tensor = sb.Tensor.from_any(x)
    whole: Array = np.frombuffer(tensor.tobytes(), np.uint8).reshape(tensor.shape)
    return whole & ((1 << tensor.dtype.width_bits) - 1)
