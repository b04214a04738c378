"""Convert: kernel text that makes numbers of the codes of any element format, and codes of numbers, with one rounding.

Kernels compute in float32, float64 and integers of whole bytes. Every other format is loaded as its codes, an element
in whole bytes, decoded exactly, and encoded with one rounding where a result is stored (numerics.md sections 1 and 9):
to nearest even by the texts here, by any other conversion by that of `rounding`. The scalar oracle of decoding is
`DType.decode`, the NumPy meaning of encoding `ieee.encode`. Start at `cast`, which converts between any two formats.
"""

from __future__ import annotations

import functools

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.conversions import SB1, Conversion, Overflow
from samebits.dtypes import DType, bfloat16, float16, float32, float64, int32, int64, uint8, uint32, uint64
from samebits.frozen import replace

_UNSIGNED = {8: uint8, 16: dtypes.uint16, 32: uint32, 64: uint64}
_MAGNITUDE, _EXPONENT, _SIGN = 0x7FFFFFFF, 0x7F800000, 0x80000000
# Floats of 8 bits that are float16 but for the bias, and for the lowest bits of the fraction.
_WITHIN_HALVES = (dtypes.float8_e5m2, dtypes.float8_e4m3, dtypes.float8_e4m3fn)


def stored(dtype: DType) -> DType:
    """What elements of `dtype` are read as: floats that are computed as they are, everything else as its code."""
    if dtype in (float32, float64):
        return dtype
    return unsigned(dtype)


def unsigned(dtype: DType) -> DType:
    """The integer that holds an element's bits, an element narrower than a byte having one of its own."""
    return _UNSIGNED[max(8, dtype.width_bits)]


def is_coded(dtype: DType) -> bool:
    """Whether kernels have its elements as codes, because nothing computes in it."""
    return dtype.width_bits < (float32.width_bits if dtype.is_float else 8)


def computed(dtype: DType) -> DType:
    """What elements of `dtype` are computed in: float32 and int32 for what is coded, else itself."""
    if not is_coded(dtype):
        return dtype
    return float32 if dtype.is_float else int32


def cast(b: Builder, x: Vector, dtype: DType, conversion: Conversion = SB1, word: Vector | None = None) -> Vector:
    """x, lanes of any format, converted by value to any format (numerics.md section 9); what a conversion would refuse
    becomes what `ieee` gives.

    Args:    word: lanes of uint32, which stochastic rounding takes.
    """
    source, x = x.dtype, number(b, x)
    if dtype.kind == "bool" or not _is_plain(source, dtype, conversion):
        return checked(b, x, dtype, conversion, word)[0]
    if not is_coded(dtype):
        return b.convert(x, dtype)
    found = encode(b, x, dtype, conversion.overflow) if dtype.is_float else _narrow(b, x, dtype)
    return b.bitcast(found, dtype)


def checked(
    b: Builder, x: Vector, dtype: DType, conversion: Conversion, word: Vector | None = None
) -> tuple[Vector, Vector]:
    """`cast` by the text that serves every conversion, and a mask of the lanes that `error` refuses."""
    from samebits.kernels import rounding  # which few kernels have, and none that is found in the cache

    x = number(b, x)
    if dtype.kind == "bool":
        return b.convert(x, dtype), b.constant(False, dtype, x.width)
    if dtype.is_float:
        found = rounding.to_float(b, x, dtype, conversion, word)
        return b.bitcast(b.convert(found.lanes, unsigned(dtype)), dtype), found.misfits
    found = rounding.to_integer(b, x, dtype, conversion, word)
    if not is_coded(dtype):
        return b.convert(found.lanes, dtype), found.misfits
    return b.bitcast(_low_bits(b, found.lanes, dtype), dtype), found.misfits


def _is_plain(source: DType, dtype: DType, conversion: Conversion) -> bool:
    """Whether the texts here do a conversion, which are the fast ones."""
    plain = replace(conversion, rounding=None, overflow="ieee") == SB1
    if not plain or conversion.rounding_to(dtype) != SB1.rounding_to(dtype):
        return False
    if conversion.overflow == "saturate":
        if not dtype.is_float:  # where floats saturate anyway
            return source.is_float
        # No integer is too large for float32 or float64, and no float of 8 bits but an infinity.
        return is_coded(dtype) or not source.is_float or (source.width_bits <= 8 and not source.has_infinity)
    return conversion.overflow == "ieee"


def number(b: Builder, x: Vector) -> Vector:
    """x, lanes of any format, as lanes of `computed` of it, exactly."""
    dtype: DType = x.dtype
    if not is_coded(dtype):
        return x
    code = b.bitcast(x, stored(dtype))
    return decode(b, code, dtype) if dtype.is_float else integer(b, code, dtype)


def decode(b: Builder, code: Vector, dtype: DType, often_subnormal: bool = False) -> Vector:
    """The value of a code of a float of at most 16 bits as float32, exactly; bits above the element do not matter.

    Four bits are looked up where that is one instruction, or of their magnitude is. Else exponent and fraction are put
    where float32 has them and scaled by the difference of the biases, which makes subnormals right too.

    Args:    often_subnormal: whether codes are subnormal so often that it pays not to multiply what float32 has as
             subnormal too, for which processors take up to a hundred cycles. Those of fewer than 8 bits always are.
    """
    if dtype.width_bits <= 4 and "lookup" in b.isa.instructions and code.width % 16 == 0:
        place = b.bitcast(b.bit_and(b.convert(code, uint32), b.constant(15, uint32, code.width)), int32)
        return b.lookup([float(dtype.decode(k)) for k in range(16)], float32, place)
    if dtype is dtypes.float4_e2m1fn and "lookup_at" in b.isa.instructions and code.width % 8 == 0:
        code = b.convert(code, uint32)
        place = b.bitcast(b.bit_and(code, b.like(code, 7)), int32)
        magnitude = b.lookup([float(dtype.decode(k)) for k in range(8)], float32, place)
        sign = b.bit_and(b.shift_left(code, 28), b.like(code, _SIGN))
        return b.bitcast(b.bit_or(b.bitcast(magnitude, uint32), sign), float32)
    if dtype is float16 and "float16" in b.isa.instructions:
        return b.convert(b.bitcast(b.convert(code, dtypes.uint16), float16), float32)
    if code.dtype.width_bits <= float16.width_bits and "float16" in b.isa.instructions and dtype in _WITHIN_HALVES:
        return _by_halves(b, code, dtype)
    code = b.convert(code, uint32)
    if dtype is bfloat16:
        return b.bitcast(b.shift_left(code, 16), float32)
    sign_bit = 1 << (dtype.width_bits - 1) if dtype.signed else 0
    magnitude = b.bit_and(code, b.like(code, (1 << dtype.width_bits) - 1 - sign_bit))
    shifted = b.shift_left(magnitude, float32.mantissa_bits - dtype.mantissa_bits)
    if dtype.has_zero and (often_subnormal or dtype.width_bits < 8):
        value = _rebiased(b, magnitude, shifted, dtype)
    elif dtype.has_zero:
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


def _by_halves(b: Builder, code: Vector, dtype: DType) -> Vector:
    """The value of a float of 8 bits by way of float16, whose conversion makes subnormals right and takes no longer for
    them: exponent and fraction are put where it has them, and what it makes is scaled by the difference of the biases.

    The first code that is infinite or NaN is a step below a power of two, so that a step carries from it and those
    after it alone into the highest bit of float16's exponent, whose other bits are ones then.
    """
    half = b.shift_left(b.convert(code, dtypes.uint16), float16.width_bits - dtype.width_bits)
    if dtype.exponent_bits < float16.exponent_bits:
        lower = b.bitcast(b.shift_right(b.bitcast(half, dtypes.int16), 1), dtypes.uint16)
        half = b.bit_and(lower, b.like(half, 0xBFFF))  # of the sign, which was copied, one bit
        step = float16.mantissa_bits - (0 if dtype.has_infinity else dtype.mantissa_bits)
        half = b.bit_or(half, b.bit_and(b.add(half, b.like(half, 1 << step)), b.like(half, 0x4000)))
    value = b.convert(b.bitcast(half, float16), float32)
    return value if dtype.bias == float16.bias else b.mul(value, b.like(value, 2.0 ** (float16.bias - dtype.bias)))


def by_table(b: Builder, x: Vector, dtype: DType) -> Vector:
    """The value of one element of a float of 8 bits as float32, which is a load where decoding would be ten steps."""
    return b.lookup(_table(dtype), float32, b.convert(b.bitcast(x, stored(dtype)), int32))


@functools.cache
def _table(dtype: DType) -> tuple[float, ...]:
    return tuple([float(dtype.decode(code)) for code in range(256)])


def _rebiased(b: Builder, magnitude: Vector, shifted: Vector, dtype: DType) -> Vector:
    """The magnitude of a float whose exponent and fraction are where float32 has them, by adding the difference of the
    biases; of a subnormal, that of the least normal one's exponent, whose implicit bit is subtracted."""
    least, mantissa = float32.bias + 1 - dtype.bias, float32.mantissa_bits
    normal = b.bitcast(b.add(shifted, b.like(shifted, (least - 1) << mantissa)), float32)
    raised = b.bitcast(b.add(shifted, b.like(shifted, least << mantissa)), float32)
    subnormal = b.sub(raised, b.like(raised, 2.0 ** (1 - dtype.bias)))
    return b.select(b.less(magnitude, b.like(magnitude, 1 << dtype.mantissa_bits)), subnormal, normal)


def integer(b: Builder, code: Vector, dtype: DType) -> Vector:
    """The value of a code of an integer of at most 8 bits as int32; bits above the element do not matter."""
    signed = dtype.kind == "int"
    found = b.bitcast(b.convert(code, uint32), int32 if signed else uint32)
    found = b.shift_right(b.shift_left(found, 32 - dtype.width_bits), 32 - dtype.width_bits)
    return b.bitcast(found, int32)


def encode(b: Builder, x: Vector, dtype: DType, overflow: Overflow = "ieee", canonical: bool = False) -> Vector:
    """The code of x, floats or integers or a mask, as a float of at most 16 bits: rounded once to nearest even.

    Args:    overflow: what is beyond the largest value becomes an infinity, or NaN where the format has none, or else
             that value; `saturate`: it becomes that value.   canonical: x's NaN are, which spares a step of bfloat16.
    Returns: lanes of `stored(dtype)`; NaN is canonical, and 0 where the format has none.
    """
    x = _single(b, x)
    plain = dtype.has_zero and dtype is not bfloat16 and not (dtype is float16 and "float16" in b.isa.instructions)
    if plain and (overflow == "saturate" or dtype.nan == "none"):
        return b.convert(_bounded(b, x, dtype), stored(dtype))
    if overflow == "saturate":  # NaN passes both
        low, high = b.like(x, float(dtype.min)), b.like(x, float(dtype.max))
        x = b.select(b.less(high, x), high, x)
        x = b.select(b.less(x, low), low, x)
    if dtype is bfloat16:
        code = _bfloat16(b, x, canonical)
    elif dtype is float16 and "float16" in b.isa.instructions:
        code = b.bitcast(b.convert(x, float16), dtypes.uint16)
        return b.select(b.is_nan(x), b.like(code, _nan(dtype)), code)
    else:
        code = _powers(b, x, dtype) if not dtype.has_zero else _any(b, x, dtype)
    return b.convert(code, stored(dtype))


def _bfloat16(b: Builder, x: Vector, canonical: bool) -> Vector:
    """float32 without its low half: a carry goes where it should, up to infinity."""
    code = b.bitcast(x, uint32)
    even = b.equal(b.bit_and(code, b.like(code, 0x10000)), b.like(code, 0))
    result = b.select(even, b.add(code, b.like(code, 0x7FFF)), b.add(code, b.like(code, 0x8000)))
    result = b.shift_right(result, 16)
    if canonical:  # that one's low half is zero: nothing is carried
        return result
    return b.select(b.is_nan(x), b.like(code, _nan(bfloat16)), result)


def _any(b: Builder, x: Vector, dtype: DType) -> Vector:
    """The code of float32 in a format with infinity or NaN whose normal numbers all are normal in float32."""
    code = b.bitcast(x, uint32)
    magnitude = b.bit_and(code, b.like(code, _MAGNITUDE))
    sign = b.shift_right(b.bit_and(code, b.like(code, _SIGN)), 32 - dtype.width_bits)
    drop = float32.mantissa_bits - dtype.mantissa_bits
    rebias = (float32.bias - dtype.bias) << float32.mantissa_bits
    odd = b.bit_and(b.shift_right(magnitude, drop), b.like(code, 1))
    half = b.like(code, (1 << (drop - 1)) - 1)
    result = b.shift_right(b.sub(b.add(magnitude, b.add(half, odd)), b.like(code, rebias)), drop)
    # What is beyond the largest value has the code of infinity, which follows it, or is NaN.
    top = dtype.max_code
    lost = b.is_nan(x)
    if dtype.has_infinity:
        result = b.minimum(result, b.like(code, top + 1))
    # Below the least normal the last bit kept is a fixed one: adding a number whose last bit it is rounds there.
    anchor = b.constant(2.0 ** (24 - dtype.bias - dtype.mantissa_bits), float32, x.width)
    small = b.sub(b.bitcast(b.add(b.bitcast(magnitude, float32), anchor), uint32), b.bitcast(anchor, uint32))
    least = b.like(code, (float32.bias - dtype.bias + 1) << float32.mantissa_bits)
    result = b.select(b.less(magnitude, least), small, result)
    if not dtype.has_infinity:
        lost = b.bit_or(lost, b.less(b.like(code, top), result))
    if not dtype.has_negative_zero:
        sign = b.select(b.equal(result, b.like(code, 0)), result, sign)
    return b.select(lost, b.like(code, _nan(dtype)), b.bit_or(result, sign))


def _bounded(b: Builder, x: Vector, dtype: DType) -> Vector:
    """The code of float32 in a format as `_any` takes it, where what is beyond the largest value becomes that.

    Adding a number whose last bit is the last one kept rounds there: a power of two, which follows from the exponent of
    x, or is held at that of the subnormals.
    """
    code = b.bitcast(x, uint32)
    drop = float32.mantissa_bits - dtype.mantissa_bits
    step = 1 << float32.mantissa_bits
    largest = (dtype.max_code << drop) + (float32.bias - dtype.bias) * step
    magnitude = b.minimum(b.bit_and(code, b.like(code, _MAGNITUDE)), b.like(code, largest))
    least = b.like(code, (float32.bias - dtype.bias + 1) * step)
    exponent = b.bit_and(b.maximum(magnitude, least), b.like(code, _EXPONENT))
    anchor = b.add(exponent, b.like(code, drop * step))
    rounded = b.bitcast(b.add(b.bitcast(magnitude, float32), b.bitcast(anchor, float32)), uint32)
    field = b.sub(b.shift_right(exponent, drop), b.like(code, (float32.bias - dtype.bias + 1) << dtype.mantissa_bits))
    result = b.add(b.sub(rounded, anchor), field)
    sign = b.shift_right(b.bit_and(code, b.like(code, _SIGN)), 32 - dtype.width_bits)
    if not dtype.has_negative_zero:
        sign = b.select(b.equal(result, b.like(code, 0)), result, sign)
    return b.select(b.is_nan(x), b.like(code, _nan(dtype)), b.bit_or(result, sign))


def _powers(b: Builder, x: Vector, dtype: DType) -> Vector:
    """The code of float32 in a format of powers of two alone, a tie giving the larger; nothing negative and no zero."""
    code = b.bitcast(x, uint32)
    half = 1 << (float32.mantissa_bits - 1)
    # The least value, 2^-127, is subnormal in float32: above it half a step is half of what it is elsewhere.
    step = b.select(b.less(code, b.like(code, 2 * half)), b.like(code, half // 2), b.like(code, half))
    result = b.shift_right(b.add(code, step), float32.mantissa_bits)
    lost = b.invert(b.less(b.like(x, 0.0), x))
    return b.select(lost, b.like(code, _nan(dtype)), result)


def _nan(dtype: DType) -> int:
    """The code of the canonical NaN, 0 where there is none."""
    return dtype.canonical_nan or 0


def _single(b: Builder, x: Vector) -> Vector:
    """x as float32, rounded to odd where it is not exact: rounding that to 22 bits or fewer is rounding x once (see
    `ieee`)."""
    if x.dtype is float32:
        return x
    if x.dtype.kind == "bool" or (x.dtype.is_integer and x.dtype.width_bits <= 16):
        return b.convert(x, float32)
    wide = _double(b, x)
    near = b.convert(wide, float32)
    back, code = b.convert(near, float64), b.bitcast(near, uint32)
    code = b.select(b.less(b.abs(wide), b.abs(back)), b.sub(code, b.like(code, 1)), code)
    code = b.select(b.equal(back, wide), code, b.bit_or(code, b.like(code, 1)))
    return b.bitcast(code, float32)


def _double(b: Builder, x: Vector) -> Vector:
    """x, float64 or an integer, as float64; what has more than 53 bits is rounded to odd."""
    if x.dtype not in (int64, uint64):
        return b.convert(x, float64)
    # Without the low 11 bits, which the last one kept stands for, any 64 bits fit.
    high, low = b.shift_right(x, 11), b.bit_and(x, b.like(x, 2047))
    odd = b.select(b.equal(low, b.like(x, 0)), high, b.bit_or(high, b.like(x, 1)))
    wide = b.mul(b.convert(odd, float64), b.constant(2048.0, float64, x.width))
    above = b.shift_right(x, 53)
    few = b.equal(above, b.like(x, 0))
    if x.dtype is int64:
        few = b.bit_or(few, b.equal(above, b.like(x, -1)))
    return b.select(few, b.convert(x, float64), wide)


def _narrow(b: Builder, x: Vector, dtype: DType) -> Vector:
    """The code of x as an integer of fewer than 8 bits, zero above them."""
    if x.dtype.is_float:
        whole = b.convert(x, int32)
        x = b.minimum(b.maximum(whole, b.like(whole, int(dtype.min))), b.like(whole, int(dtype.max)))
    return _low_bits(b, x, dtype)


def _low_bits(b: Builder, x: Vector, dtype: DType) -> Vector:
    """Integers as codes of a format of fewer than 8 bits, zero above them."""
    code = b.convert(x, uint8)
    return b.bit_and(code, b.like(code, (1 << dtype.width_bits) - 1))
