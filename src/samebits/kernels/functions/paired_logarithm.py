"""Logarithms of float32 in sixteen lanes of float32, as `paired_exponential` has exp.

x = 2**k * m, and c has few digits and is nearly 1 / m: then r = m * c - 1 is a float32, and log(x) is k * log(2) -
log(c) + log(1 + r), the first two of which sum exactly but for what they lack themselves. That is found as high + low:
where it rounds alike a margin below and above itself, that is the result, else the vector is computed in float64 (Ziv
1991). Of other bases it is multiplied, as a pair. log1p has as a second part of r what 1 + x lost. That none of the
2**32 inputs is wrong is run (`make exhaustive`). Start at `log`.
"""

from __future__ import annotations

import math

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions import rounded
from samebits.kernels.functions.logarithms import LOG, LOG1P, LOG2, LOG10
from samebits.kernels.functions.rounded import CorrectlyRounded

# A number as the unevaluated sum of two float32, and a margin: more than that sum errs by.
Pair = tuple[Vector, Vector, Vector]
# m is from here on, 1 the middle of one of its 32 pieces, which have 2**18 codes each.
_LEAST, _PIECE, _EXPONENT = 0x3F800000 - (1 << 17) - (18 << 18), 18, 23
# log(2) = the sum of the two; k times the first is a multiple of 2**-16, below 2**7.
_STEP, _STEP_REST = float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cp-20")
# (log(1 + r) - r + r**2 / 2) / r**3 on |r| < 0.0198; error of the logarithm 2**-38.5.
_TAIL = ("0x1.555556p-2", "-0x1.000cd2p-2", "0x1.99af92p-3")
# The margin, as a part of r**2, which the tail is made of, and of the result.
_OF_SQUARE, _OF_ALL = 1.625 * 2.0**-24, 1.25 * 2.0**-37
# What the margin grows by where a product, or a second part of r, is rounded too.
_WIDER = 1.5
# 1 / log(2) and 1 / log(10), each as the sum of two.
_PER_LOG_2 = float.fromhex("0x1.715476p+0"), float.fromhex("0x1.4ae0cp-26")
_PER_LOG_10 = float.fromhex("0x1.bcb7b2p-2"), float.fromhex("-0x1.5b235ep-27")
# c by pieces of m: few digits, so that m * c - 1 is a float32.
_INVERSES = (
    "0x1.640000p+0",
    "0x1.5c0000p+0",
    "0x1.540000p+0",
    "0x1.500000p+0",
    "0x1.480000p+0",
    "0x1.400000p+0",
    "0x1.3c0000p+0",
    "0x1.340000p+0",
    "0x1.300000p+0",
    "0x1.280000p+0",
    "0x1.240000p+0",
    "0x1.200000p+0",
    "0x1.1c0000p+0",
    "0x1.140000p+0",
    "0x1.100000p+0",
    "0x1.0c0000p+0",
    "0x1.080000p+0",
    "0x1.040000p+0",
    "0x1.000000p+0",
    "0x1.f00000p-1",
    "0x1.e00000p-1",
    "0x1.d40000p-1",
    "0x1.c80000p-1",
    "0x1.b80000p-1",
    "0x1.b00000p-1",
    "0x1.a40000p-1",
    "0x1.980000p-1",
    "0x1.900000p-1",
    "0x1.880000p-1",
    "0x1.7c0000p-1",
    "0x1.740000p-1",
    "0x1.6c0000p-1",
)
# -log(c), a multiple of 2**-17, and what it lacks.
_VALUES = (
    "-0x1.51aa00p-2",
    "-0x1.3a6400p-2",
    "-0x1.229400p-2",
    "-0x1.167600p-2",
    "-0x1.fb9000p-3",
    "-0x1.c90000p-3",
    "-0x1.af3c00p-3",
    "-0x1.7ab800p-3",
    "-0x1.5ff400p-3",
    "-0x1.295400p-3",
    "-0x1.0d7800p-3",
    "-0x1.e27000p-4",
    "-0x1.a92800p-4",
    "-0x1.342000p-4",
    "-0x1.f0a000p-5",
    "-0x1.774000p-5",
    "-0x1.f82000p-6",
    "-0x1.fc0000p-7",
    "0x0.0p+0",
    "0x1.041000p-5",
    "0x1.085800p-4",
    "0x1.701000p-4",
    "0x1.da7000p-4",
    "0x1.366000p-3",
    "0x1.5bf400p-3",
    "0x1.95a400p-3",
    "0x1.d10400p-3",
    "0x1.f99000p-3",
    "0x1.117800p-2",
    "0x1.315000p-2",
    "0x1.471800p-2",
    "0x1.5d5c00p-2",
)
_RESTS = (
    "-0x1.b0e5c0p-19",
    "-0x1.8aad28p-19",
    "-0x1.fbcf7ap-22",
    "0x1.aa2a2cp-21",
    "-0x1.86d5e4p-19",
    "0x1.070cacp-20",
    "-0x1.29d018p-20",
    "-0x1.20421cp-20",
    "0x1.f1eb0ep-20",
    "-0x1.2f8200p-19",
    "0x1.832f72p-23",
    "-0x1.db8abcp-22",
    "0x1.2c5b52p-20",
    "0x1.434f22p-19",
    "-0x1.86008cp-20",
    "-0x1.63d8ccp-19",
    "-0x1.361cf0p-19",
    "-0x1.5161f8p-20",
    "0x0.0p+0",
    "0x1.76279ep-19",
    "0x1.8b59e4p-20",
    "-0x1.67a8aap-19",
    "0x1.3b1c22p-19",
    "-0x1.a7f538p-22",
    "0x1.ad50f6p-25",
    "0x1.adcf70p-19",
    "-0x1.01b354p-20",
    "0x1.c6cb3cp-19",
    "0x1.d044fcp-19",
    "-0x1.c3c594p-19",
    "0x1.b84e38p-19",
    "-0x1.105350p-21",
)


def log(b: Builder, x: Vector) -> Vector:
    """The natural logarithm of x, correctly rounded, NaN canonical."""
    return _settled(b, LOG, x, pair(b, x))


def log2(b: Builder, x: Vector) -> Vector:
    """The logarithm of base 2, as `log`."""
    return _settled(b, LOG2, x, pair_of_2(b, x))


def log10(b: Builder, x: Vector) -> Vector:
    """The logarithm of base 10, as `log`."""
    return _settled(b, LOG10, x, pair_of_10(b, x))


def log1p(b: Builder, x: Vector) -> Vector:
    """log(1 + x), as `log`."""
    less, more = _limits(b, *pair_of_sum(b, x))
    inside = b.bit_and(b.less(b.like(x, -1.0), x), b.less_equal(x, b.like(x, 2.0**126)))
    doubt = b.invert(b.bit_and(inside, b.equal(less, more)))
    result = [b.select(b.equal(x, b.like(x, 0.0)), x, less)]
    for _ in b.when(b.any(doubt), result):
        result[0] = rounded.emit(b, LOG1P, x)
    return result[0]


def _settled(b: Builder, row: CorrectlyRounded, x: Vector, found: Pair) -> Vector:
    """The pair as float32, by the row of float64 where x is not normal, or the margin leaves it open."""
    less, more = _limits(b, *found)
    normal = b.bit_and(b.less_equal(b.like(x, 2.0**-126), x), b.less(x, b.like(x, math.inf)))
    doubt = b.invert(b.bit_and(normal, b.equal(less, more)))
    result = [less]
    for _ in b.when(b.any(doubt), result):
        # A zero, which a mask leaves too, does not ask for float64.
        zero = b.equal(x, b.like(x, 0.0))
        result[0] = b.select(zero, b.like(x, -math.inf), less)
        for _ in b.when(b.any(b.bit_and(doubt, b.invert(zero))), result):
            result[0] = rounded.emit(b, row, x)
    return result[0]


def _limits(b: Builder, high: Vector, low: Vector, margin: Vector) -> tuple[Vector, Vector]:
    """high + low, less and more a margin, as float32."""
    return b.add(high, b.sub(low, margin)), b.add(high, b.add(low, margin))


def pair_of_2(b: Builder, x: Vector) -> Pair:
    """log2(x) of a normal x > 0."""
    return _times(b, pair(b, x), _PER_LOG_2)


def pair_of_10(b: Builder, x: Vector) -> Pair:
    """log10(x) of a normal x > 0."""
    return _times(b, pair(b, x), _PER_LOG_10)


def _times(b: Builder, found: Pair, factor: tuple[float, float]) -> Pair:
    """The pair by a factor, which is the sum of two float32."""
    high, low, margin = found
    most, rest = (b.like(high, part) for part in factor)
    product = b.mul(high, most)
    low = b.fma(low, most, b.fma(high, rest, b.fma(high, most, b.neg(product))))
    return product, low, b.mul(margin, b.like(high, factor[0] * _WIDER))


def pair_of_sum(b: Builder, x: Vector) -> Pair:
    """log(1 + x) of -1 < x <= 2**126."""
    one = b.like(x, 1.0)
    is_larger = b.less(one, x)
    larger, smaller = b.select(is_larger, x, one), b.select(is_larger, one, x)
    total = b.add(larger, smaller)
    high, low, margin = pair(b, total, b.sub(smaller, b.sub(total, larger)))
    return high, low, b.mul(margin, b.like(x, _WIDER))


def pair(b: Builder, x: Vector, lost: Vector | None = None) -> Pair:
    """log(x), or log(x + lost), of a normal x > 0, below 2**127 where something is lost, which x + lost rounds to x."""
    bits = b.bitcast(x, dtypes.int32)
    above = b.sub(bits, b.like(bits, _LEAST))
    exponent = b.bit_and(above, b.like(bits, -1 << _EXPONENT))
    m = b.bitcast(b.sub(bits, exponent), dtypes.float32)
    k = b.convert(b.shift_right(above, _EXPONENT), dtypes.float32)
    place = b.bit_and(b.shift_right(above, _PIECE), b.like(bits, 31))
    inverse, value, rest = (
        b.lookup([float.fromhex(c) for c in table], dtypes.float32, place) for table in (_INVERSES, _VALUES, _RESTS)
    )
    r, rest = b.fma(m, inverse, b.like(x, -1.0)), b.fma(k, b.like(x, _STEP_REST), rest)
    if lost is not None:
        first = r
        scale = b.bitcast(b.sub(b.bitcast(b.like(x, 1.0), dtypes.int32), exponent), dtypes.float32)
        second = b.mul(lost, b.mul(scale, inverse))
        r = b.add(first, second)
        rest = b.add(rest, b.sub(second, b.sub(r, first)))
    whole = b.fma(k, b.like(x, _STEP), value)
    high, square = b.add(whole, r), b.mul(r, r)
    curve = b.fma(rounded.polynomial(b, _TAIL, r), r, b.like(x, -0.5))
    low = b.fma(curve, square, b.add(rest, b.sub(r, b.sub(high, whole))))
    return high, low, b.fma(square, b.like(x, _OF_SQUARE), b.mul(b.abs(high), b.like(x, _OF_ALL)))
