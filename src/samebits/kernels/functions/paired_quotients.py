"""sigmoid and tanh of float32 in sixteen lanes of float32, as `paired_exponential` has exp.

With e = e**-|x| sigmoid is 1 / (1 + e), or e / (1 + e) where x < 0; with e = e**(-2 * |x|) tanh of |x| is
(1 - e) / (1 + e). Numerator and denominator are pairs of float32, and so is their quotient, high + low: where that
rounds alike a margin below and above itself, that is the result, else the vector is computed in float64 (Ziv 1991), as
about one in 100 is of normal numbers. That none of the 2**32 inputs is wrong is run (`make exhaustive`). Start at
`sigmoid`.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions import paired_exponential, rounded
from samebits.kernels.functions.exponentials import SIGMOID, TANH

# A number as the unevaluated sum of two float32, the larger one first.
Pair = tuple[Vector, Vector]
# Beyond it the low part of e**x may be subnormal.
_WITHIN = 75.0
# More than sigmoid errs by, as a part of it.
_MARGIN = 1.25 * 2.0**-36
# More than tanh errs by: a part of the square that the tail of e**x is made of, and what all else errs by.
_OF_SQUARE, _OF_ALL = 2.0**-23, 2.0**-45


def sigmoid(b: Builder, x: Vector) -> Vector:
    """1 / (1 + e**-x), correctly rounded; a NaN lane gives some NaN."""
    high, low = _sigmoid_pair(b, x)
    margin = b.like(x, _MARGIN)
    less, more = b.add(high, b.fma(b.neg(high), margin, low)), b.add(high, b.fma(high, margin, low))
    doubt = b.invert(b.bit_and(b.less_equal(b.like(x, -_WITHIN), x), b.equal(less, more)))
    found = [less]
    for _ in b.when(b.any(doubt), found):
        found[0] = rounded.emit(b, SIGMOID, x)
    return found[0]


def _sigmoid_pair(b: Builder, x: Vector) -> Pair:
    """sigmoid(x) as a float32 and what it lacks, x >= -75."""
    one, within, size = b.like(x, 1.0), b.like(x, _WITHIN), b.abs(x)
    high, low = paired_exponential.pair(b, b.neg(b.select(b.less(within, size), within, size)))
    total = b.add(one, high)
    below = b.less(x, b.like(x, 0.0))
    numerator = b.select(below, high, one), b.select(below, low, b.like(x, 0.0))
    return _quotient(b, numerator, (total, b.add(b.add(b.sub(one, total), high), low)))


def tanh(b: Builder, x: Vector) -> Vector:
    """The hyperbolic tangent of x, correctly rounded; a NaN lane gives some NaN."""
    limit, size = b.like(x, TANH.high), b.abs(x)
    high, low, margin = _tanh_pair(b, b.select(b.less(limit, size), limit, size))
    less, more = b.add(high, b.sub(low, margin)), b.add(high, b.add(low, margin))
    doubt = b.invert(b.equal(less, more))
    found = [rounded.signed(b, x, less)]
    for _ in b.when(b.any(doubt), found):
        # A zero, which a mask leaves too, is always in doubt, and does not ask for float64.
        zero = b.equal(x, b.like(x, 0.0))
        found[0] = b.select(zero, x, found[0])
        for _ in b.when(b.any(b.bit_and(doubt, b.invert(zero))), found):
            found[0] = rounded.emit(b, TANH, x)
    return found[0]


def one_more_tanh(b: Builder, x: Vector) -> Vector:
    """1 + tanh(x), tanh(x) correctly rounded first; a NaN lane gives some NaN. As `paired_error.one_more`."""
    limit, size, one = b.like(x, TANH.high), b.abs(x), b.like(x, 1.0)
    high, low, margin = _tanh_pair(b, b.select(b.less(limit, size), limit, size))
    sign = rounded.signed(b, x, one)
    less, more = (b.fma(sign, b.add(high, y), one) for y in (b.sub(low, margin), b.add(low, margin)))
    found = [less]
    for _ in b.when(b.any(b.invert(b.equal(less, more))), found):
        found[0] = b.add(one, rounded.emit(b, TANH, x))
    return found[0]


def _tanh_pair(b: Builder, x: Vector) -> tuple[Vector, Vector, Vector]:
    """tanh(x) of 0 <= x <= 9.02 as a float32 and what it lacks, and a margin.

    What is tiny, where the low part might be subnormal, is less than the margin.
    """
    one, two = b.like(x, 1.0), b.like(x, 2.0)
    power, first, tail, square = paired_exponential.parts(b, b.neg(b.add(x, x)))
    # 1 - e is (1 - power) - power * first - power * tail, and the first two differ by what a float32 holds.
    minus, rest = b.neg(power), b.sub(one, power)
    lost = b.sub(b.sub(one, rest), power)
    high = b.fma(minus, first, rest)
    low = b.fma(minus, tail, b.add(b.fma(minus, first, b.sub(rest, high)), lost))
    total = b.sub(two, high)
    high, low = _quotient(b, (high, low), (total, b.sub(b.sub(b.sub(two, total), high), low)))
    return high, low, b.fma(square, b.like(x, _OF_SQUARE), b.like(x, _OF_ALL))


def _quotient(b: Builder, x: Pair, y: Pair) -> Pair:
    """x / y as a float32 and what it lacks; low parts are at most 2**-14 of the high ones."""
    reciprocal = b.div(b.like(y[0], 1.0), y[0])
    high = b.mul(x[0], reciprocal)
    minus = b.neg(high)
    low = b.mul(b.fma(minus, y[1], b.add(b.fma(minus, y[0], x[0]), x[1])), reciprocal)
    return high, b.fma(b.neg(low), b.mul(y[1], reciprocal), low)
