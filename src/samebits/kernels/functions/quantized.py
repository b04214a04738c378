"""Quantisation of floats to integers of 8 bits (numerics.md section 3)."""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Vector
from samebits.dtypes import DType, float32, int32

# Adding 3 * 2**22 to |x| < 2**22 rounds x to an even integer nearby and leaves it in the low bits.
_ROUNDER = 3.0 * 2**22


def emit(b: Builder, dtype: DType, x: Vector, scale: Vector, zero: Vector) -> Vector:
    """rint(x / scale) + zero of float32 lanes, saturating in `dtype`, zero's, int8 or uint8; NaN gives zero."""
    offset = b.convert(zero, float32)
    low, high = (b.sub(b.like(offset, float(limit)), offset) for limit in (dtype.min, dtype.max))
    y = b.div(x, scale)
    # Limits are integers, so that saturating first is the same. As written, each is one instruction.
    y = b.select(b.less(high, y), high, y)
    y = b.select(b.less(y, low), low, y)
    y = b.select(b.is_nan(y), b.like(y, 0.0), y)
    whole = b.bitcast(b.add(y, b.like(y, _ROUNDER)), int32)
    return b.convert(b.add(whole, b.convert(zero, int32)), dtype)
