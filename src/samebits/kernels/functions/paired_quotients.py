"""sigmoid and tanh of float32 in lanes of float32, as `paired_exponential` has exp.

sigmoid of -x is 1 / (1 + e**x), and tanh of |x| is 2 / (1 + e**x) - 1 of x = -2 * |x|. 1 + e**x is found as high + low,
and 1 / (high + low) as q * (1 + t), q being 1 / high rounded. Where that rounds alike a margin below and above itself,
that is the result, else the vector is computed in float64 (Ziv 1991): of normal numbers one vector of sixteen lanes in
350 for sigmoid and in 90 for tanh, of eight one in 1,470 and in 490. That none of the 2**32 inputs is wrong is run
(`make exhaustive`). Start at `sigmoid`.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions import paired_exponential, rounded
from samebits.kernels.functions.exponentials import SIGMOID, TANH

# Within it e**-x, 1 / e**-x and what they are multiplied by here are normal numbers.
_WITHIN = 75.0
# More than t errs by: so much of r**2, and of 1; of any e**x, and where it is at most 1. The tail of e**x is about
# r**2 / 2 and is rounded six times by 2**-24 of itself, three of them in `low`, `lack` and t, which all have the part
# e**x / (1 + e**x) of it: at most 1, or 1/2. What is left is for the polynomial's own error. `rest` of e**x, at most
# 2**-22, or 2**-24 where e**x is at most 1, is rounded as often. In a register of eight lanes the tail is about r**3 /
# 6, that is r**2 * 2**-7.1, and both are rounded once more.
_OF_ANY, _OF_AT_MOST_ONE = (1.75 * 2.0**-23, 1.25 * 2.0**-43), (1.75 * 2.0**-24, 2.0**-45)
_OF_ANY_8, _OF_AT_MOST_ONE_8 = (1.5 * 2.0**-28, 1.5 * 2.0**-43), (1.5 * 2.0**-29, 1.25 * 2.0**-45)


def sigmoid(b: Builder, x: Vector) -> Vector:
    """1 / (1 + e**-x), correctly rounded, NaN canonical."""
    q, t, margin = _inverse(b, b.neg(_at_most(b, x, _WITHIN)))
    less, more = b.fma(q, b.sub(t, margin), q), b.fma(q, b.add(t, margin), q)
    doubt = b.invert(b.bit_and(b.less_equal(b.like(x, -_WITHIN), x), b.equal(less, more)))
    found = [less]
    for _ in b.when(b.any(doubt), found):
        found[0] = rounded.emit(b, SIGMOID, x)
    return found[0]


def tanh(b: Builder, x: Vector) -> Vector:
    """The hyperbolic tangent of x, correctly rounded, NaN canonical."""
    less, more = _tanh_limits(b, x)
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
    one = b.like(x, 1.0)
    sign = rounded.signed(b, x, one)
    less, more = (b.fma(sign, y, one) for y in _tanh_limits(b, x))
    found = [less]
    for _ in b.when(b.any(b.invert(b.equal(less, more))), found):
        found[0] = b.add(one, rounded.emit(b, TANH, x))
    return found[0]


def _tanh_limits(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """tanh(|x|) less and more a margin, as float32; what is tiny is less than the margin."""
    size = _at_most(b, b.abs(x), TANH.high)
    q, t, margin = _inverse(b, b.neg(b.add(size, size)), is_at_most_one=True)
    double = b.add(q, q)
    high = b.sub(double, b.like(x, 1.0))  # exactly, as double is from 1 to 2
    return b.fma(double, b.sub(t, margin), high), b.fma(double, b.add(t, margin), high)


def _at_most(b: Builder, x: Vector, limit: float) -> Vector:
    """x, or the limit where x is above it: one instruction, which passes on NaN."""
    return b.select(b.less(b.like(x, limit), x), b.like(x, limit), x)


def _inverse(b: Builder, x: Vector, is_at_most_one: bool = False) -> tuple[Vector, Vector, Vector]:
    """1 / (1 + e**x) = q * (1 + t), |x| <= 75: q, t and a margin.

    Args:    is_at_most_one: whether e**x is.
    """
    power, first, tail, square = paired_exponential.parts(b, x)
    one = b.like(x, 1.0)
    larger, smaller = one, power
    if not is_at_most_one:
        is_larger = b.less(one, power)
        larger, smaller = b.select(is_larger, power, one), b.select(is_larger, one, power)
    # high + low is larger + smaller + power * (first + tail).
    total = b.add(larger, smaller)
    lost = b.sub(smaller, b.sub(total, larger))
    high = b.fma(power, first, total)
    low = b.fma(power, tail, b.add(b.fma(power, first, b.sub(total, high)), lost))
    # q * (high + low) is 1 - lack, so that 1 + t is the geometric series of what is lacking: at most 2**-14.
    q = b.div(one, high)
    lack = b.fma(b.neg(q), low, b.fma(b.neg(q), high, one))
    t = b.fma(lack, lack, lack)
    any_power, at_most_one = (_OF_ANY, _OF_AT_MOST_ONE) if b.isa.lanes >= 16 else (_OF_ANY_8, _OF_AT_MOST_ONE_8)
    of_square, of_all = at_most_one if is_at_most_one else any_power
    return q, t, b.fma(square, b.like(x, of_square), b.like(x, of_all))
