"""Functions of elements that are a few others in a row, each as one expression: numerics.md section 7 writes them.

One of a float narrower than float32 computes in float32 and rounds at its output, as every composite does. Start at
`clip`.
"""

from __future__ import annotations

import functools

from samebits.dtypes import DType, float32
from samebits.kernels import convert
from samebits.kernels.composites import given, taken
from samebits.kernels.expression import Chain, Expression


@functools.cache
def clip(dtype: DType = float32) -> Expression:
    """minimum(maximum(x, low), high) of the inputs x, low, high."""
    chain = Chain()
    x, low, high = (chain.input(dtype) for _ in range(3))
    return chain.finish(chain.apply("minimum", chain.apply("maximum", x, low), high))


@functools.cache
def threshold(dtype: DType = float32) -> Expression:
    """value where x <= limit, else x, of the inputs x, limit, value; bits copied."""
    chain = Chain()
    x, limit, value = (chain.input(dtype) for _ in range(3))
    return chain.finish(chain.apply("where", chain.apply("less_equal", x, limit), value, x))


@functools.cache
def lerp(dtype: DType = float32) -> Expression:
    """start + weight * (end - start) where |weight| < 0.5, else end - (end - start) * (1 - weight)."""
    chain = Chain()
    start, end, weight = (taken(chain, dtype) for _ in range(3))
    half, one = chain.constant(0.5, start.dtype), chain.constant(1.0, start.dtype)
    span = chain.apply("sub", end, start)
    near = chain.apply("add", start, chain.apply("mul", weight, span))
    far = chain.apply("sub", end, chain.apply("mul", span, chain.apply("sub", one, weight)))
    is_near = chain.apply("less", chain.apply("abs", weight), half)
    return chain.finish(given(chain, chain.apply("where", is_near, near, far), dtype))


@functools.cache
def addcmul(dtype: DType = float32) -> Expression:
    """x + (value * y) * z of the inputs x, y, z, value."""
    chain = Chain()
    x, y, z, value = (taken(chain, dtype) for _ in range(4))
    product = chain.apply("mul", chain.apply("mul", value, y), z)
    return chain.finish(given(chain, chain.apply("add", x, product), dtype))


@functools.cache
def rsqrt(dtype: DType = float32) -> Expression:
    """1 / sqrt(x), two roundings."""
    chain = Chain()
    return chain.finish(given(chain, chain.apply("reciprocal", chain.apply("sqrt", taken(chain, dtype))), dtype))


@functools.cache
def frac(dtype: DType = float32) -> Expression:
    """x - trunc(x), which is exact."""
    chain = Chain()
    x = taken(chain, dtype)
    return chain.finish(given(chain, chain.apply("sub", x, chain.apply("trunc", x)), dtype))


@functools.cache
def square(dtype: DType = float32) -> Expression:
    """x * x."""
    chain = Chain()
    x = chain.input(dtype)
    return chain.finish(chain.apply("mul", x, x))


@functools.cache
def floor_divide(dtype: DType) -> Expression:
    """x / y of integers, rounded down; 0 where y is 0, wrapped where it is one more than the largest."""
    chain = Chain()
    x, y = chain.input(dtype), chain.input(dtype)
    toward, zero = chain.apply("quotient", x, y), chain.constant(0, dtype)
    left = chain.apply("fmod", x, y)
    if not dtype.signed:
        return chain.finish(toward)
    differs = chain.apply("less", chain.apply("bit_xor", left, y), zero)
    below = chain.apply("logical_and", differs, chain.apply("not_equal", left, zero))
    return chain.finish(chain.apply("sub", toward, chain.apply("cast", below, dtype=dtype)))


@functools.cache
def ceil_divide(dtype: DType) -> Expression:
    """x / y of integers, rounded up; 0 where y is 0, wrapped where it is one more than the largest."""
    chain = Chain()
    x, y = chain.input(dtype), chain.input(dtype)
    toward, zero = chain.apply("quotient", x, y), chain.constant(0, dtype)
    left = chain.apply("fmod", x, y)
    above = chain.apply("not_equal", left, zero)
    if dtype.signed:
        alike = chain.apply("greater_equal", chain.apply("bit_xor", left, y), zero)
        above = chain.apply("logical_and", above, alike)
    none = chain.apply("equal", y, zero)
    found = chain.apply("add", toward, chain.apply("cast", above, dtype=dtype))
    return chain.finish(chain.apply("where", none, zero, found))


@functools.cache
def logical_right_shift(dtype: DType) -> Expression:
    """The bits of an integer moved down by y, zeros above them; 0 where y is negative, or the width or more."""
    chain = Chain()
    x, y = chain.input(dtype), chain.input(dtype)
    codes = convert.unsigned(dtype)
    moved = chain.apply("shift_right", *(chain.apply("bitcast", v, dtype=codes) for v in (x, y)))
    return chain.finish(chain.apply("bitcast", moved, dtype=dtype))
