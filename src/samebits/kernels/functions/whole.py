"""Rounding to integral values, signs; division, powers, shifts and common divisors of integers.

The bits are those of numerics.md section 7. Start at `floor` and `quotient`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.codegen.vocabulary import Builder, Vector
from samebits.dtypes import DType
from samebits.kernels import convert

Array = npt.NDArray[Any]


def truncated(x: Array, y: Array) -> Array:
    """x / y of integers toward zero, in NumPy; 0 where y is 0, wrapped where it is one more than the largest."""
    return np.asarray((x - np.fmod(x, y)) // y)


def floor(b: Builder, dtype: DType, x: Vector) -> Vector:
    """The largest integral value that is not above x, -0 for -0."""
    near = b.rint(x)
    return b.select(b.less(x, near), b.sub(near, b.like(x, 1.0)), near)


def ceil(b: Builder, dtype: DType, x: Vector) -> Vector:
    """The smallest integral value that is not below x, -0 from -1 on."""
    return b.neg(floor(b, dtype, b.neg(x)))


def trunc(b: Builder, dtype: DType, x: Vector) -> Vector:
    """x without what follows the point, -0 from above -1 on."""
    whole = floor(b, dtype, b.abs(x))
    return b.select(b.less(x, b.like(x, 0.0)), b.neg(whole), b.select(b.equal(whole, b.abs(x)), x, whole))


def sign(b: Builder, dtype: DType, x: Vector) -> Vector:
    """-1, +0 or 1; NaN for NaN."""
    zero, one = b.like(x, 0), b.like(x, 1)
    found = b.select(b.less(zero, x), one, zero)
    if dtype.signed:
        found = b.select(b.less(x, zero), b.neg(one), found)
    return b.select(b.is_nan(x), x, found) if dtype.is_float else found


def quotient(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    """x / y toward zero; 0 where y is 0, wrapped where it is one more than the largest."""
    none = b.equal(y, b.like(y, 0))
    divisor = b.select(none, b.like(y, 1), y)
    if dtype.signed:  # the one quotient that does not fit is, wrapped, x itself
        beyond = b.bit_and(b.equal(x, b.like(x, int(dtype.min))), b.equal(y, b.like(y, -1)))
        divisor = b.select(beyond, b.like(y, 1), divisor)
    return b.select(none, b.like(y, 0), b.quotient(x, divisor))


def fmod(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    """What is left of x beside `quotient`, of the sign of x; 0 where y is 0."""
    left = b.sub(x, b.mul(quotient(b, dtype, x, y), y))
    return b.select(b.equal(y, b.like(y, 0)), b.like(y, 0), left)


def mod(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    """What is left of x, of the sign of y; 0 where y is 0."""
    left = fmod(b, dtype, x, y)
    zero = b.like(y, 0)
    differs = b.bit_xor(b.less(left, zero), b.less(y, zero))
    return b.select(b.bit_and(differs, b.invert(b.equal(left, zero))), b.add(left, y), left)


def gcd(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    """The greatest number that divides both, by Euclid; of 0 and a number its magnitude, which wraps where it must."""
    codes = convert.unsigned(dtype)
    carry = [b.bitcast(b.maximum(v, b.sub(b.like(v, 0), v)) if dtype.signed else v, codes) for v in (x, y)]
    zero, one = b.like(carry[0], 0), b.like(carry[0], 1)
    for _ in b.loop(0, _EUCLID[dtype.width_bits], carry=carry):
        for _ in b.when(b.any(b.less(zero, carry[1])), carry):
            left, divisor = carry
            done = b.equal(divisor, zero)
            safe = b.select(done, one, divisor)
            rest = b.sub(left, b.mul(b.quotient(left, safe), safe))
            carry[0], carry[1] = b.select(done, left, divisor), b.select(done, zero, rest)
    return b.bitcast(carry[0], dtype)


# Steps of Euclid's algorithm at most: where both are neighbours among Fibonacci's numbers.
_EUCLID = {8: 13, 16: 24, 32: 47, 64: 93}


def powers(x: Array, y: Array) -> Array:
    """x to the y of integers, wrapped, in NumPy; beside a negative y what `power` has."""
    below = y < 0
    odd = (y & 1) == 1
    units = np.where(x == 1, x, np.where((x < 0) & (np.abs(x) == 1), np.where(odd, x, -x), np.zeros_like(x)))
    return np.where(below, units, np.power(x, np.where(below, np.zeros_like(y), y)))


def power(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    """x to the y, wrapped, by squares; beside a negative y 1 gives 1, -1 gives 1 or -1, all others give 0."""
    codes = convert.unsigned(dtype)
    base, exponent = (b.bitcast(v, codes) for v in (x, y))
    zero, one = b.like(base, 0), b.like(base, 1)
    carry = [one, base, exponent]
    for _ in b.loop(0, dtype.width_bits, carry=carry):
        for _ in b.when(b.any(b.less(zero, carry[2])), carry):
            made, square, left = carry
            is_odd = b.equal(b.bit_and(left, one), one)
            carry[0], carry[1] = b.select(is_odd, b.mul(made, square), made), b.mul(square, square)
            carry[2] = b.shift_right(left, one)
    made = b.bitcast(carry[0], dtype)
    if not dtype.signed:
        return made
    # Of a negative exponent the bits above are those of 2**width more, an even number: right where x is 1 or -1.
    is_unit = b.bit_or(b.equal(x, b.like(x, 1)), b.equal(x, b.like(x, -1)))
    is_none = b.bit_and(b.less(y, b.like(y, 0)), b.invert(is_unit))
    return b.select(is_none, b.like(x, 0), made)


def bit_not(b: Builder, dtype: DType, x: Vector) -> Vector:
    """Every bit inverted."""
    return b.bit_xor(x, b.sub(b.like(x, 0), b.like(x, 1)))


def shift_left(b: Builder, dtype: DType, x: Vector, count: Vector) -> Vector:
    """x * 2**count without what leaves the width; 0 where the count is negative or the width or more."""
    inside, safe = _inside(b, dtype, count)
    return b.select(inside, b.shift_left(x, safe), b.like(x, 0))


def shift_right(b: Builder, dtype: DType, x: Vector, count: Vector) -> Vector:
    """x / 2**count, rounded down; 0, or -1 of a negative x, where the count is negative or the width or more."""
    inside, safe = _inside(b, dtype, count)
    shifted = b.shift_right(x, safe)  # by one less than the width, what is left of a signed number is its sign
    return shifted if dtype.signed else b.select(inside, shifted, b.like(x, 0))


def _inside(b: Builder, dtype: DType, count: Vector) -> tuple[Vector, Vector]:
    """Which shift counts are below the width, and the counts with the largest such one in place of the others."""
    last = b.like(count, dtype.width_bits - 1)
    inside = b.less_equal(count, last)
    if dtype.signed:
        inside = b.bit_and(inside, b.less_equal(b.like(count, 0), count))
    return inside, b.select(inside, count, last)
