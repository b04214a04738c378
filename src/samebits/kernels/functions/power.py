"""x to the y, of float32 correctly rounded (numerics.md section 7 has the argument). Start at `emit`.

Most results are those of float64: log2 of |x|, times y, and 2 to that, with an error below 2**-45. Where the boundary
of two float32 lies within 2**-44 of it, all is done again in pairs of float64 with an error below 2**-96: as near comes
no result that is no boundary itself, and what may be one is told by y. The paths are those of CORE-MATH's powf
(Sibidanov and Zimmermann, 2022), the text is not.
"""

from __future__ import annotations

import math
from fractions import Fraction

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.dtypes import DType
from samebits.kernels.functions import doubles, exponentials, logarithms, pairs
from samebits.kernels.functions.pairs import Pair
from samebits.kernels.functions.rounded import ROUNDER, polynomial

# log(2) in 200 bits.
_LN2 = Fraction(0xB17217F7D1CF79ABC9E3B39803F2F6AF40F343267298B62D8A, 1 << 200)
# Beyond these powers of two every result is 0 or an infinity; and so it is of exponents beyond this, unless x is 1.
_RANGES = {dtypes.float32: (-152.0, 129.0), dtypes.float64: (-1080.0, 1025.0)}
_LARGEST_EXPONENT = {dtypes.float32: 2.0**40, dtypes.float64: 2.0**65}
_DOUBT = 2.0**-44
# log2((1 + s) / (1 - s)) / s in z = s * s <= 0.02944, and (2**r - 1) / r, |r| <= 1/2: errors below 2**-109; and how
# many of their terms matter beyond float64.
LOGARITHM = (tuple(2 / (_LN2 * (2 * k + 1)) for k in range(21)), 12)
POWER = (tuple(_LN2 ** (k + 1) / math.factorial(k + 1) for k in range(24)), 14)
# An error of the slow path, which is no difference where the power may be a float32, or in the middle of two.
_NOTHING = 2.0**-88


def emit(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    """x to the y, lanes of float32, or of float64, which are within a unit in the last place."""
    zero, one = b.like(x, 0.0), b.like(x, 1.0)
    size = b.abs(x)
    common = b.bit_and(b.less(zero, size), b.less(size, b.like(x, float("inf"))))
    base, exponent = b.select(common, size, one), _within(b, y, _LARGEST_EXPONENT[dtype])
    found = [(_double if dtype is dtypes.float64 else _single)(b, base, exponent)]
    ordinary = b.bit_and(common, b.less(zero, x))
    for _ in b.when(b.any(b.invert(ordinary)), found):
        found[0] = _settled(b, x, y, common, found[0])
    return b.select(b.bit_or(b.equal(y, zero), b.equal(x, one)), one, found[0])


def _single(b: Builder, x: Vector, y: Vector) -> Vector:
    """x**y of float32, x positive."""
    base, exponent = (b.convert(v, dtypes.float64) for v in (x, y))
    near = fast(b, base, exponent)
    low, high = (b.convert(b.mul(near, b.like(near, 1 + d)), dtypes.float32) for d in (-_DOUBT, _DOUBT))
    found = [low]
    doubtful = b.bit_or(b.less(low, high), b.less(high, low))
    for _ in b.when(b.any(doubtful), found):
        found[0] = b.select(doubtful, b.convert(_slow(b, base, exponent), dtypes.float32), found[0])
    return found[0]


def _double(b: Builder, x: Vector, y: Vector) -> Vector:
    """x**y of float64, x positive."""
    high, _, n = _raised(b, _logarithm(b, *doubles.fraction(b, x)), y, dtypes.float64)
    return doubles.scaled(b, high, n)


def _within(b: Builder, x: Vector, limit: float) -> Vector:
    """x between -limit and limit; NaN stays."""
    high, low = b.like(x, limit), b.like(x, -limit)
    x = b.select(b.less(high, x), high, x)
    return b.select(b.less(x, low), low, x)


def _settled(b: Builder, x: Vector, y: Vector, common: Vector, found: Vector) -> Vector:
    """What the power of |x| is for x that is negative, zero, infinite or NaN (IEEE-754, clause 9.2.1)."""
    zero, infinity = b.like(x, 0.0), b.like(x, float("inf"))
    vanishes = b.bit_xor(b.equal(x, zero), b.less(y, zero))
    extreme = b.select(vanishes, zero, infinity)
    found = b.select(b.bit_or(common, b.is_nan(y)), found, extreme)
    found = b.select(b.is_nan(x), x, found)
    half = b.mul(y, b.like(y, 0.5))
    whole, even = b.equal(b.rint(y), y), b.equal(b.rint(half), half)
    kind = {32: dtypes.int32, 64: dtypes.int64}[x.dtype.width_bits]
    codes = b.bitcast(found, kind)
    sign = b.bit_and(b.bitcast(x, kind), b.like(codes, int(kind.min)))
    turned = b.bitcast(b.bit_or(codes, sign), x.dtype)
    found = b.select(b.bit_and(whole, b.invert(even)), turned, found)
    fraction = b.bit_and(b.bit_and(common, b.less(x, zero)), b.invert(whole))
    return b.select(fraction, b.like(x, float("nan")), found)


def fast(b: Builder, x: Vector, y: Vector) -> Vector:
    """x**y of float64 lanes, x a positive float32 and y a float32, within 2**-45."""
    z, (k, f, s) = logarithms.reduced(b, x)
    log = logarithms.of_fraction(b, z, polynomial(b, logarithms.LOG.coefficients, z), f, s)
    log2 = b.fma(log, b.like(log, logarithms.LOG2_E), k)
    turned = b.mul(y, log2)
    rest, n = _split(b, turned, dtypes.float32)
    r = b.add(rest, b.fma(y, log2, b.neg(turned)))
    shifted = b.add(n, b.like(n, ROUNDER))
    return exponentials.power_of_two(b, r, polynomial(b, exponentials.EXP.coefficients, r), shifted)


def _split(b: Builder, turned: Vector, dtype: DType) -> tuple[Vector, Vector]:
    """The logarithm of a power of `dtype` as r + n, n whole: r, exactly, and n; NaN stays.

    Beyond the powers of two that give 0 and infinity, which are whole, r is 0.
    """
    low, high = (b.like(turned, limit) for limit in _RANGES[dtype])
    turned = b.select(b.less(high, turned), high, turned)
    turned = b.select(b.less(turned, low), low, turned)
    n = b.sub(b.add(turned, b.like(turned, ROUNDER)), b.like(turned, ROUNDER))
    return b.sub(turned, n), n


def _logarithm(b: Builder, k: Vector, f: Vector) -> Pair:
    """k + log2(1 + f), 1 + f between the roots of 1/2 and 2, within 2**-103 of it."""
    below, rest = pairs.ordered_sum(b, b.like(f, 2.0), f)
    s = b.div(f, below)
    left = b.fma(b.neg(s), rest, b.fma(b.neg(s), below, f))
    quotient = (s, b.div(left, below))
    square = pairs.ordered_sum(b, *pairs.product(b, quotient, quotient))
    log2 = pairs.product(b, quotient, pairs.series(b, square, *LOGARITHM))
    high, low = pairs.ordered_sum(b, k, log2[0])
    return pairs.ordered_sum(b, high, b.add(low, log2[1]))


def _raised(b: Builder, log2: Pair, y: Vector, dtype: DType) -> tuple[Vector, Vector, Vector]:
    """2**(log2 * y) as 2**n * (high + low): high, low and n."""
    turned = b.mul(y, log2[0])
    rest, n = _split(b, turned, dtype)
    lost = b.fma(y, log2[1], b.fma(y, log2[0], b.neg(turned)))
    lost = b.select(b.equal(b.add(n, rest), turned), lost, b.like(y, 0.0))  # beyond the range it may be large
    r = pairs.sum_of(b, rest, lost)
    grown = pairs.product(b, r, pairs.series(b, r, *POWER))
    high, low = pairs.ordered_sum(b, b.like(y, 1.0), grown[0])
    return *pairs.ordered_sum(b, high, b.add(low, grown[1])), n


def in_pairs(b: Builder, x: Vector, y: Vector) -> tuple[Vector, Vector, Vector]:
    """As `fast`, within 2**-96: 2**n * (high + low)."""
    _, (k, f, _) = logarithms.reduced(b, x)
    return _raised(b, _logarithm(b, k, f), y, dtypes.float32)


def _slow(b: Builder, x: Vector, y: Vector) -> Vector:
    """x**y by `in_pairs`, rounded to odd, and exact where it has at most 25 bits.

    That it can have only where x is a power of two, whose logarithm is exact, or y a multiple of 1/16 between 0 and 16.
    """
    high, low, n = in_pairs(b, x, y)
    sixteenths = b.mul(y, b.like(y, 16.0))
    may_be_exact = b.bit_and(b.equal(b.rint(sixteenths), sixteenths), b.less(b.abs(y), b.like(y, 16.0)))
    nothing = b.bit_and(may_be_exact, b.less(b.abs(low), b.like(low, _NOTHING)))
    rounded = pairs.odd(b, (high, b.select(nothing, b.like(low, 0.0), low)))
    return exponentials.scaled(b, rounded, b.add(n, b.like(n, ROUNDER)))
