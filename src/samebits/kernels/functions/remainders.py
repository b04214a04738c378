"""What division of floats leaves, exactly (numerics.md section 7), in steps that take 50 bits off a quotient.

In float64, with r and s of at most 53 bits and r / s below 2**50: the nearest whole number q to the rounded quotient is
at most an eighth from the nearest to the exact one, so |r - q s| <= 5/8 s. That is a multiple of the unit in the last
place of s, or where r < s of half of it, hence an fma gives it exactly, and so does adding s to what is negative.
Start at `fmod`.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Index, Vector
from samebits.dtypes import DType, float32, float64, int64, uint32, uint64

# Bits of a quotient that a step takes off, and how often that is done at most: exponents of float32 span 277, those of
# float64 2098.
_BITS = 50
_STEPS = {float32: 6, float64: 42}
# Powers of two that a factor may have, with room for every exponent.
_FACTOR = 1000


def fmod(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    """x - n y, n the quotient toward zero: exact, of the sign of x; NaN where x is infinite or y is 0."""
    size, divisor = (b.abs(v if dtype is float64 else b.convert(v, float64)) for v in (x, y))
    left = [size]
    for _ in b.when(b.any(b.less_equal(_raised(b, divisor, _BITS), size)), left):
        for k in b.loop(1, _STEPS[dtype], carry=left):
            _reduce(b, left, _raised(b, divisor, (_STEPS[dtype] - k) * _BITS))
    _reduce(b, left, divisor)
    found = left[0] if dtype is float64 else b.convert(left[0], float32)
    return b.select(b.is_nan(y), y, _signed(b, found, x))


def mod(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    """`fmod`, plus y where its sign is not that of y; a zero has y's."""
    left, zero = fmod(b, dtype, x, y), b.like(y, 0.0)
    is_zero, differs = b.equal(left, zero), b.bit_xor(b.less(left, zero), b.less(y, zero))
    found = b.select(differs, b.add(left, y), left)
    return b.select(is_zero, _signed(b, zero, y), found)


def _reduce(b: Builder, left: list[Vector], divisor: Vector) -> None:
    """What `divisor` leaves of left[0], both positive and their quotient below 2**50."""
    r = left[0]
    q = b.rint(b.div(r, divisor))
    found = b.fma(b.neg(q), divisor, r)
    found = b.select(b.less(found, b.like(r, 0.0)), b.add(found, divisor), found)
    left[0] = b.select(b.less_equal(divisor, r), found, r)


def _raised(b: Builder, x: Vector, power: Index) -> Vector:
    """x * 2**power, exactly or infinite, in factors that float64 has."""
    for _ in range(3):
        part = b.min(power, _FACTOR)
        power = power - part
        factor = b.bitcast(b.from_index((part + float64.bias) << float64.mantissa_bits, int64), float64)
        x = b.mul(x, b.splat(factor, x.width))
    return x


def _signed(b: Builder, size: Vector, x: Vector) -> Vector:
    """A number that is not negative, with the sign of x."""
    codes = uint64 if x.dtype is float64 else uint32
    code = b.bitcast(x, codes)
    sign = b.bit_and(code, b.like(code, 1 << (x.dtype.width_bits - 1)))
    return b.bitcast(b.bit_or(b.bitcast(size, codes), sign), x.dtype)
