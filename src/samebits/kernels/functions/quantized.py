"""Quantisation of floats to integers of 8 bits, and the exact value of a narrow float (numerics.md sections 3 and 9).

Start at `emit`.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Vector
from samebits.dtypes import DType, bfloat16, float32, int32, uint32

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


def widen(b: Builder, code: Vector, dtype: DType) -> Vector:
    """The value of a code of a float of at most 16 bits as float32, exactly; bits above the element do not matter.

    The exponent and fraction are put where float32 has them and scaled by the difference of the biases, which makes
    subnormals right too."""
    code = b.convert(code, uint32)
    if dtype is bfloat16:
        return b.bitcast(b.shift_left(code, 16), float32)
    sign_bit = 1 << (dtype.width_bits - 1) if dtype.signed else 0
    magnitude = b.bit_and(code, b.like(code, (1 << dtype.width_bits) - 1 - sign_bit))
    shifted = b.shift_left(magnitude, float32.mantissa_bits - dtype.mantissa_bits)
    if dtype.has_zero:
        value = b.mul(b.bitcast(shifted, float32), b.constant(2.0 ** (127 - dtype.bias), float32, code.width))
    else:  # powers of two alone: the code is float32's exponent, but for its lowest, which is subnormal there
        lowest = b.like(code, 1 << (float32.mantissa_bits - 1))
        value = b.bitcast(b.select(b.equal(magnitude, b.like(code, 0)), lowest, shifted), float32)
    nan, inf = (b.constant(float(x), float32, code.width) for x in ("nan", "inf"))
    top = 1 << dtype.mantissa_bits
    infinity = ((1 << dtype.exponent_bits) - 1) * top
    if dtype.has_infinity:
        value = b.select(b.equal(magnitude, b.like(code, infinity)), inf, value)
        value = b.select(b.less(b.like(code, infinity), magnitude), nan, value)
    elif dtype.nan == "all_ones":
        value = b.select(b.equal(magnitude, b.like(code, infinity + top - 1)), nan, value)
    if not sign_bit:
        return value
    sign = b.shift_left(b.bit_and(code, b.like(code, sign_bit)), 32 - dtype.width_bits)
    value = b.bitcast(b.bit_or(b.bitcast(value, uint32), sign), float32)
    if dtype.nan == "negative_zero":
        low = b.bit_and(code, b.like(code, (1 << dtype.width_bits) - 1))
        value = b.select(b.equal(low, b.like(code, sign_bit)), nan, value)
    return value
