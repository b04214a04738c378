"""Requantisation: acc * s_a * s_b / s_y of integer sums and float32 scales, rounded once (numerics.md section 3).

The quotient is computed in float32 within a known error. Where that could lie on the other side of a tie than the
rational, or where a scale is not a common number, all lanes of the vector are decided exactly in float64, which a few
vectors in a hundred are. What the scales of columns and of the result decide alone is computed `first`. Start at
`emit`.
"""

from __future__ import annotations

from collections.abc import Callable

from samebits.codegen.vocabulary import Builder, Vector
from samebits.dtypes import DType, float32, float64, int32, uint32

# Adding 3 * 2**22 to |x| < 2**22 rounds x to an integer and leaves it, in two's complement, in the low bits.
_ROUNDER = 3.0 * 2**22
# Four roundings (acc to float32, s_b / s_y, times s_a, times acc) err by less than 2**-21.9 of the quotient, which the
# range of the result bounds by 255 in magnitude: by less than 2**-13.
_DOUBT = 2.0**-13
# Beyond it every quotient saturates, wherever the zero point is.
_LARGE = 1024.0


def first(b: Builder, dtype: DType, s_b: Vector, s_y: Vector, zero: Vector) -> tuple[Vector, ...]:
    """s_b / s_y if it is a common number, what the quotient saturates at, and the rounder that adds the zero point too;
    the last three are exact."""
    offset = b.convert(zero, float32)
    minus = b.neg(offset)
    exact = ((float(dtype.min), minus), (float(dtype.max), minus), (_ROUNDER, offset))
    return _common(b, b.div(s_b, s_y)), *(b.add(b.like(offset, x), y) for x, y in exact)


def emit(
    b: Builder, dtype: DType, acc: Vector, s_a: Vector, s_b: Vector, s_y: Vector, zero: Vector, *found: Vector
) -> Vector:
    """Lanes of `dtype`, the zero point's, int8 or uint8; acc is int32, or integers below 2**53 in float64.

    Args:    found: what `first` gives, where it is computed already.
    """
    return _rounded(b, dtype, acc, None, (s_a, s_b, s_y, zero), found, lambda: b.convert(acc, float64))


def emit_sum(
    b: Builder, dtype: DType, t: Vector, bias: Vector, s_a: Vector, s_b: Vector, s_y: Vector, zero: Vector,
    *found: Vector,
) -> Vector:  # fmt: skip
    """The same of t + bias, both int32; where that leaves int32 too, lanes are decided in float64, which holds it."""
    acc = b.add(t, bias)
    wrapped = b.less(b.bit_and(b.bit_xor(acc, t), b.bit_xor(acc, bias)), b.like(acc, 0))

    def whole() -> Vector:
        return b.add(b.convert(t, float64), b.convert(bias, float64))

    return _rounded(b, dtype, acc, wrapped, (s_a, s_b, s_y, zero), found, whole)


def _rounded(
    b: Builder, dtype: DType, acc: Vector, wrapped: Vector | None, given: tuple[Vector, Vector, Vector, Vector],
    found: tuple[Vector, ...], whole: Callable[[], Vector],
) -> Vector:  # fmt: skip
    """Lanes of `dtype`; of those that are `wrapped` acc is wrong, and in every rare vector `whole` gives it."""
    s_a, s_b, s_y, zero = given
    factor, low, high, rounder = found or first(b, dtype, s_b, s_y, zero)
    y = b.mul(b.convert(acc, float32), b.mul(s_a, factor))
    # As written, each select is one minimum or maximum instruction that passes on NaN.
    y = b.select(b.less(high, y), high, y)
    y = b.select(b.less(y, low), low, y)
    anchored = b.add(y, rounder)
    far = b.less(b.abs(b.sub(y, b.sub(anchored, rounder))), b.like(y, 0.5 - _DOUBT))
    result = [b.convert(b.bitcast(anchored, int32), dtype)]
    doubt = b.invert(far) if wrapped is None else b.bit_or(b.invert(far), wrapped)
    for _ in b.when(b.any(doubt), carry=result):
        result[0] = _exactly(b, dtype, whole(), s_a, s_b, s_y, zero)
    return result[0]


def _common(b: Builder, x: Vector) -> Vector:
    """x, or NaN where it is zero, subnormal or infinite: a rounding was not within half an ulp there."""
    least = 1 << float32.mantissa_bits
    magnitude = b.bit_and(b.bitcast(x, uint32), b.constant(0x7FFFFFFF, uint32, x.width))
    above = b.sub(magnitude, b.like(magnitude, least))
    return b.select(b.less(above, b.like(above, 0x7F800000 - least)), x, b.like(x, float("nan")))


def _exactly(b: Builder, dtype: DType, n: Vector, s_a: Vector, s_b: Vector, s_y: Vector, zero: Vector) -> Vector:
    """The same of any finite, infinite or NaN scales, in float64.

    |n| < 2**53 and float32's exponents keep everything in the range of float64's normal numbers. The product of two
    scales has 48 bits: exact. `h` is the integer below the quotient, which errs by less than 2**-41 where it is not
    large; so the result is h or h + 1, and which of them the sign of acc * s_a * s_b - (h + 1/2) * s_y says: the second
    product has at most 36 bits, and one fma rounds their difference, which keeps its sign.
    """
    divisor = b.convert(s_y, float64)
    product = b.mul(b.convert(s_a, float64), b.convert(s_b, float64))
    y = b.div(b.mul(n, product), divisor)
    large, half = b.like(y, _LARGE), b.like(y, 0.5)
    clamped = b.select(b.less(large, y), large, y)
    clamped = b.select(b.less(clamped, b.neg(large)), b.neg(large), clamped)
    h = b.rint(b.sub(clamped, half))
    tie = b.add(h, half)
    above = b.mul(b.fma(n, product, b.neg(b.mul(tie, divisor))), divisor)
    nothing = b.like(y, 0.0)
    whole = b.add(h, b.select(b.less(nothing, above), b.like(y, 1.0), nothing))
    whole = b.select(b.equal(above, nothing), b.rint(tie), whole)
    whole = b.add(b.select(b.is_nan(y), nothing, whole), b.convert(zero, float64))
    whole = b.minimum(b.maximum(whole, b.like(y, float(dtype.min))), b.like(y, float(dtype.max)))
    return b.convert(b.convert(whole, int32), dtype)
