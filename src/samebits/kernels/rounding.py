"""Rounding: kernel text that converts numbers by any conversion, and says which do not fit.

`convert` has the fast texts of the conversions that everything else uses. Here a number is taken apart once, as
`size * 2^last` with integers, so that one text serves every source, format and rounding. The NumPy meaning is
`ieee.encode`. Start at `to_float` and `to_integer`.
"""

from __future__ import annotations

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.conversions import Conversion, Rounding
from samebits.dtypes import DType, float32, float64, int32, int64, uint32, uint64
from samebits.frozen import dataclass

__all__ = ["Found", "to_float", "to_integer", "whole"]

_SIGNED, _UNSIGNED = {32: int32, 64: int64}, {32: uint32, 64: uint64}


@dataclass(frozen=True, slots=True)
class Found:
    """Lanes of the result: codes of a float format, unsigned and as wide as was computed, or numbers of an integer
    format; and a mask of those that have no value to stand for them."""

    lanes: Vector
    misfits: Vector


@dataclass(frozen=True, slots=True)
class _Parts:
    """|x| = size * 2^last, and 2^top <= |x| < 2^(top + 1) unless x is subnormal, where top is one less than the least
    exponent, or 0; a number too large for its format has the next exponent. Unsigned and signed integers, a width."""

    size: Vector
    last: Vector
    top: Vector
    negative: Vector


def to_float(b: Builder, x: Vector, dtype: DType, conversion: Conversion, word: Vector | None = None) -> Found:
    """The codes of x as a float format.

    Args:    x: lanes of float32, float64, a mask, or integers of whole bytes; no wider than the format is exact.
             word: lanes of uint32, for stochastic rounding.
    """
    x = _source(b, x, dtype, conversion)
    parts = _parts(b, x)
    codes, over = _rounded(b, parts, dtype, conversion.rounding_to(dtype), word)
    return _settled(b, x, parts, dtype, conversion, codes, over)


def to_integer(b: Builder, x: Vector, dtype: DType, conversion: Conversion, word: Vector | None = None) -> Found:
    """x, floats or integers or a mask, as numbers of an integer format; those of fewer than 8 bits as int32 or wider.

    Floats saturate; integers do by `saturate`, else they are as they were and wrap where their low bits are taken.
    """
    if x.dtype.kind == "bool":
        x = b.convert(x, int32)
    if not x.dtype.is_float:
        low, high = _limits(b, x, dtype)
        misfits = b.bit_or(b.less(x, low), b.less(high, x))
        return Found(b.minimum(b.maximum(x, low), high) if conversion.overflow == "saturate" else x, misfits)
    nan, infinite = b.is_nan(x), b.equal(b.abs(x), b.like(x, float("inf")))
    rounded = whole(b, x, conversion.rounding_to(dtype), word)
    target = dtype if dtype.width_bits >= 8 else int32
    found = b.convert(rounded, target)
    if target is not dtype:
        found = b.minimum(b.maximum(found, b.like(found, int(dtype.min))), b.like(found, int(dtype.max)))
    # A limit less one, or and one, may round to the limit, which then is the first number outside.
    outside = [float(dtype.min) - 1, float(dtype.max) + 1]
    wide = b.convert(rounded, float64)
    over = b.bit_or(b.less_equal(wide, b.like(wide, outside[0])), b.less_equal(b.like(wide, outside[1]), wide))
    if conversion.inf != "overflow":
        over = b.bit_and(over, b.invert(infinite))
    lost = b.bit_or(nan, infinite) if conversion.inf == "nan" else nan
    code = b.like(found, dtype.decode(conversion.nan_code(dtype)))
    return Found(b.select(lost, code, found), b.bit_or(over, nan) if conversion.nan is None else over)


def _limits(b: Builder, x: Vector, dtype: DType) -> tuple[Vector, Vector]:
    """The least and the largest integers that both x's format and another have."""
    return b.like(x, max(int(x.dtype.min), int(dtype.min))), b.like(x, min(int(x.dtype.max), int(dtype.max)))


def _source(b: Builder, x: Vector, dtype: DType, conversion: Conversion) -> Vector:
    """x as float32, float64 or an integer of 64 bits, exactly but for what `via` says."""
    if conversion.via is not None:
        x = b.convert(x, conversion.via)
    if x.dtype.kind == "bool" or (x.dtype.is_integer and x.dtype.width_bits <= 16):
        x = b.convert(x, float32)
    if x.dtype in (int32, uint32) or (dtype is float64 and x.dtype is float32):
        x = b.convert(x, float64)
    if conversion.absolute and not dtype.signed:
        x = b.abs(x)
    if conversion.subnormal_up and not dtype.has_zero:
        least, step = b.like(x, 2.0**-127), b.like(x, 2.0**-126)  # what is negative is no value of such a format
        x = b.select(b.bit_and(b.less(least, x), b.less(x, step)), step, x)
    return x


def _parts(b: Builder, x: Vector) -> _Parts:
    """x taken apart; of what is not finite the exponent says that it is too large."""
    width = x.dtype.width_bits
    signed, unsigned = _SIGNED[width], _UNSIGNED[width]
    if x.dtype.is_integer:
        size = b.bitcast(b.abs(x), unsigned)
        negative = b.less(x, b.like(x, 0)) if x.dtype is int64 else b.constant(False, dtypes.bool_, x.width)
        # Without the bit behind the first one that is set, conversion does not carry to another power of two.
        leading = b.bit_and(size, b.bit_xor(b.shift_right(size, 1), b.like(size, int(uint64.max))))
        field = b.shift_right(b.bitcast(b.convert(leading, float64), int64), float64.mantissa_bits)
        top = b.sub(field, b.like(field, float64.bias))
        return _Parts(size, b.like(field, 0), top, negative)
    bits = b.bitcast(x, unsigned)
    kept = b.bit_and(bits, b.like(bits, (1 << width - 1) - 1))
    field = b.bitcast(b.shift_right(kept, x.dtype.mantissa_bits), signed)
    fraction = b.bit_and(kept, b.like(bits, (1 << x.dtype.mantissa_bits) - 1))
    leading = b.select(b.equal(field, b.like(field, 0)), b.like(bits, 0), b.like(bits, 1 << x.dtype.mantissa_bits))
    last = b.sub(b.maximum(field, b.like(field, 1)), b.like(field, x.dtype.bias + x.dtype.mantissa_bits))
    top = b.sub(field, b.like(field, x.dtype.bias))
    negative = b.invert(b.equal(bits, kept))
    return _Parts(b.bit_or(fraction, leading), last, top, negative)


def _rounded(b: Builder, p: _Parts, dtype: DType, rounding: Rounding, word: Vector | None) -> tuple[Vector, Vector]:
    """The code of the rounded magnitude, as if exponents had no limit, and whether it is beyond the largest."""
    width, unsigned = p.size.dtype.width_bits, p.size.dtype
    exponent = b.maximum(p.top, b.like(p.top, dtype.has_zero - dtype.bias))
    drop = b.sub(b.sub(exponent, b.like(exponent, dtype.mantissa_bits)), p.last)
    zero = b.like(drop, 0)
    held = b.bitcast(b.minimum(b.maximum(drop, zero), b.like(drop, width - 1)), unsigned)
    whole = b.shift_right(p.size, held)
    rest = b.sub(p.size, b.shift_left(whole, held))
    fewer = b.bitcast(b.minimum(b.maximum(b.neg(drop), zero), b.like(drop, width - 1)), unsigned)
    whole = b.shift_left(whole, fewer)  # an integer of few bits; nothing else has fewer than the format
    away = _is_away(b, p, whole, rest, drop, held, rounding, word)
    whole = b.add(whole, b.select(away, b.like(whole, 1), b.like(whole, 0)))
    # The fraction's leading 1 carries into the exponent field, as rounding up to the next power of two does.
    field = b.shift_left(b.add(exponent, b.like(exponent, dtype.bias - 1)), dtype.mantissa_bits)
    code = b.add(field, b.bitcast(whole, field.dtype))
    return b.bitcast(b.maximum(code, zero), unsigned), b.less(b.like(code, dtype.max_code), code)


def _is_away(
    b: Builder,
    p: _Parts,
    whole: Vector,
    rest: Vector,
    drop: Vector,
    held: Vector,
    rounding: Rounding,
    word: Vector | None,
) -> Vector:
    """Whether `whole` is rounded to the next: `rest` of its 2^drop was discarded."""
    nothing, one = b.like(rest, 0), b.like(rest, 1)
    some = b.less(nothing, rest)
    half = b.shift_right(b.shift_left(one, held), 1)
    if rounding == "toward_zero":
        return b.less(rest, nothing)
    if rounding == "up":
        return b.bit_and(some, b.invert(p.negative))
    if rounding == "down":
        return b.bit_and(some, p.negative)
    if rounding == "nearest_away":
        return b.bit_and(some, b.less_equal(half, rest))
    if rounding == "nearest_even":
        odd = b.equal(b.bit_and(whole, one), one)
        return b.bit_or(b.less(half, rest), b.bit_and(b.bit_and(odd, some), b.equal(half, rest)))
    assert word is not None  # the caller's choice
    zero, most = b.like(drop, 0), b.like(drop, rest.dtype.width_bits - 1)
    left, right = (
        b.bitcast(b.minimum(b.maximum(by, zero), most), rest.dtype)
        for by in (b.sub(b.like(drop, 32), drop), b.sub(drop, b.like(drop, 32)))
    )
    return b.less(b.convert(word, rest.dtype), b.shift_right(b.shift_left(rest, left), right))


def _settled(
    b: Builder, x: Vector, p: _Parts, dtype: DType, conversion: Conversion, code: Vector, over: Vector
) -> Found:
    """Codes with signs, and what becomes of numbers beyond the format's values and of NaN."""
    never = b.constant(False, dtypes.bool_, code.width)
    nan, infinite = never, never
    if x.dtype.is_float:
        nan, infinite = b.is_nan(x), b.equal(b.abs(x), b.like(x, float("inf")))
    low = never if dtype.signed or conversion.absolute else b.less_equal(x, b.like(x, 0))
    over = b.bit_and(over, b.invert(nan))
    beyond = b.bit_or(over, low)
    held = _held(b, p, dtype, conversion, infinite, low)
    lost = b.bit_and(beyond, b.invert(held))
    code = b.select(low, b.like(code, 0), b.select(over, b.like(code, dtype.max_code), code))
    if dtype.has_infinity:
        code = b.select(lost, b.like(code, dtype.max_code + 1), code)
    sign = b.select(p.negative, b.like(code, 1 << dtype.width_bits - 1), b.like(code, 0))
    if dtype.signed:
        signed = b.bit_or(code, sign)
        code = signed if dtype.has_negative_zero else b.select(b.equal(code, b.like(code, 0)), code, signed)
    if not dtype.has_infinity and dtype.canonical_nan is not None:
        becomes = b.like(code, dtype.canonical_nan)
        turned = b.bit_xor(becomes, sign) if conversion.signed_nan(dtype) != "never" else becomes
        code = b.select(lost, turned, code)
    becomes = b.like(code, conversion.nan_code(dtype))
    if conversion.nan_payload:
        payload = b.shift_right(p.size, x.dtype.mantissa_bits - dtype.mantissa_bits)
        becomes = b.bit_or(becomes, b.bit_and(payload, b.like(code, (1 << dtype.mantissa_bits) - 1)))
    turned = b.bit_xor(becomes, sign) if conversion.signed_nan(dtype) == "always" else becomes
    code = b.select(b.bit_or(nan, infinite) if conversion.inf == "nan" else nan, turned, code)
    fits = dtype.has_infinity or conversion.inf != "overflow"
    misfits = b.bit_and(beyond, b.invert(infinite)) if fits else beyond
    if conversion.nan is None and dtype.canonical_nan is None:
        misfits = b.bit_or(misfits, nan)
    return Found(code, misfits)


def _held(b: Builder, p: _Parts, dtype: DType, conversion: Conversion, infinite: Vector, low: Vector) -> Vector:
    """Which numbers become the largest value of their sign, if they are beyond it."""
    always = b.constant(True, dtypes.bool_, p.size.width)
    never = b.invert(always)
    finite = always if conversion.overflow == "saturate" else never
    # Rounded to the side of 0, no finite number gets beyond the largest.
    inward = {"toward_zero": always, "up": p.negative, "down": b.invert(p.negative)}
    found = inward.get(conversion.rounding_to(dtype))
    if found is not None:
        finite = b.bit_or(finite, b.bit_and(found, b.invert(low)))
    return b.select(infinite, always if conversion.infinity() == "saturate" else never, finite)


def whole(b: Builder, x: Vector, rounding: Rounding, word: Vector | None) -> Vector:
    """x rounded to integral values."""
    if rounding == "nearest_even":
        return b.rint(x)
    size, one, nothing = b.abs(x), b.like(x, 1.0), b.like(x, 0.0)
    near = b.rint(size)
    below = b.select(b.less(size, near), b.sub(near, one), near)
    rest = b.sub(size, below)
    some, negative = b.less(nothing, rest), b.less(x, nothing)
    if rounding == "nearest_away":
        some = b.less_equal(b.like(x, 0.5), rest)
    elif rounding == "up":
        some = b.bit_and(some, b.invert(negative))
    elif rounding == "down":
        some = b.bit_and(some, negative)
    elif rounding == "stochastic":
        assert word is not None  # the caller's choice
        bits = b.convert(b.mul(rest, b.like(x, 2.0**32)), uint32)
        some = b.less(word, bits)
    else:
        some = b.bit_and(some, b.invert(some))
    size = b.add(below, b.select(some, one, nothing))
    return b.select(negative, b.neg(size), size)
