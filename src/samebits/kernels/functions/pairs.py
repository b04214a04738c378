"""Numbers as unevaluated sums of two float64, for the results that one float64 cannot decide: about 104 bits.

The sums and products are Dekker's and Knuth's (Dekker, 1971; Knuth, volume 2, 4.2.2), with fma for the low part of a
product. Start at `series`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector

Pair = tuple[Vector, Vector]


def ordered_sum(b: Builder, x: Vector, y: Vector) -> Pair:
    """x + y, exactly, if x is 0 or |x| >= |y|."""
    total = b.add(x, y)
    return total, b.sub(y, b.sub(total, x))


def sum_of(b: Builder, x: Vector, y: Vector) -> Pair:
    """x + y, exactly."""
    total = b.add(x, y)
    part = b.sub(total, x)
    return total, b.add(b.sub(x, b.sub(total, part)), b.sub(y, part))


def product(b: Builder, x: Pair, y: Pair) -> Pair:
    """x * y; its parts may overlap by a bit or two."""
    high = b.mul(x[0], y[0])
    low = b.fma(x[0], y[0], b.neg(high))
    return high, b.fma(x[1], y[0], b.fma(x[0], y[1], low))


def series(b: Builder, x: Pair, terms: Sequence[Fraction], pairs: int) -> Pair:
    """terms[0] + x * (terms[1] + x * ...), |x| < 1/2; what follows the first `pairs` terms in float64."""
    total = b.like(x[0], float(terms[-1]))
    for term in reversed(terms[pairs:-1]):
        total = b.fma(total, x[0], b.like(x[0], float(term)))
    found = (total, b.like(x[0], 0.0))
    for term in reversed(terms[:pairs]):
        high, low = product(b, x, found)
        first = float(term)
        total, rest = ordered_sum(b, b.like(x[0], first), high)
        found = total, b.add(rest, b.add(low, b.like(x[0], float(term - Fraction(first)))))
    return found


def odd(b: Builder, x: Pair) -> Vector:
    """x > 0 as one float64, rounded to odd: that, rounded to 51 bits or fewer, is x rounded once. |low| <= ulp / 2."""
    bits, zero = b.bitcast(x[0], dtypes.int64), b.like(x[1], 0.0)
    one = b.like(bits, 1)
    turned = b.select(b.less(zero, x[1]), b.add(bits, one), b.sub(bits, one))
    stays = b.bit_or(b.equal(x[1], zero), b.equal(b.bit_and(bits, one), one))
    return b.bitcast(b.select(stays, bits, turned), dtypes.float64)
