"""erf of float32 in lanes of float32: a pair of them nearly always tells which way the result rounds.

|x| = c + r, c the nearest of 32 multiples of 1/8, or of 8 multiples of 1/2 where a register has eight lanes: as many as
it looks up at once (`error_nodes`). erf(|x|) = e + d * (w + w * rest + tail): e and d are erf and its slope at c, and w
= r - c * r**2, which is the slope's own fall, or one term more of that with fewer nodes. r is exact in float32, w is
found with what its rounding takes off; e has a second part, and `rest` is what rounding took off d. The sum is found as
high + low: where that rounds alike a margin below and above itself, that is the result, else all lanes that were
computed together are computed in float64 (Ziv 1991): of normal numbers for one vector of sixteen in 40 and of eight in
80, and where 1 + erf(x) is asked for, for one in 155 of either. That none of the 2**32 inputs is wrong is run (`make
exhaustive`). Start at `emit`.
"""

from __future__ import annotations

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions import error_nodes, rounded
from samebits.kernels.functions.error_function import ERF

# erf rounds to 1 from here on, and here without doubt.
_MOST = 3.93
# Below it the low part of the pair may be subnormal.
_LEAST = float.fromhex("0x1p-90")
# With eight nodes the pair errs by less than the sum of so much of d * (w * rest + tail), and of erf. The former is
# rounded five times by 2**-24 of itself: twice as power of r, as polynomial, with w * rest, and by d. The latter is the
# error of the polynomial, and what is left of the roundings where its terms cancel.
_OF_TAIL, _OF_ALL = 5 * 2.0**-24, 1.25 * 2.0**-36


def emit(b: Builder, x: Vector) -> Vector:
    """erf(x), correctly rounded, NaN canonical."""
    size = b.abs(x)
    less, more = _limits(b, size)
    doubt = b.invert(b.bit_and(b.less_equal(b.like(x, _LEAST), size), b.equal(less, more)))
    found = [rounded.signed(b, x, less)]
    for _ in b.when(b.any(doubt), found):
        # A zero is as it should be, and what a mask leaves.
        asked = b.bit_and(doubt, b.invert(b.equal(x, b.like(x, 0.0))))
        for _ in b.when(b.any(asked), found):
            found[0] = rounded.emit(b, ERF, x)
    return found[0]


def one_more(b: Builder, x: Vector) -> Vector:
    """1 + erf(x), erf(x) correctly rounded first; a NaN lane gives some NaN.

    Both float32 that erf(x) may be give the same sum but for few x, so that fewer vectors go by float64 than in `emit`;
    a tiny x is never among these, as its sum is 1.
    """
    size, one = b.abs(x), b.like(x, 1.0)
    limits = _limits(b, size)
    sign = rounded.signed(b, x, one)
    less, more = (b.fma(sign, limit, one) for limit in limits)
    found = [less]
    for _ in b.when(b.any(b.invert(b.equal(less, more))), found):
        found[0] = b.add(one, rounded.emit(b, ERF, x))
    return found[0]


def _limits(b: Builder, size: Vector) -> tuple[Vector, Vector]:
    """erf(|x|) of |x|, less and more a margin, as float32."""
    high, less, more = _pair(b, _at_most(b, size, _MOST))
    return b.add(high, less), b.add(high, more)


def _pair(b: Builder, x: Vector) -> tuple[Vector, Vector, Vector]:
    """erf(x) of 0 <= x <= 3.93 as a float32 and what that lacks, less and more a margin."""
    is_wide = b.isa.lanes >= 16
    nodes = error_nodes.OF_SIXTEEN_LANES if is_wide else error_nodes.OF_EIGHT_LANES
    last = (len(nodes.columns[0]) - 1) / nodes.per_one
    # Adding it to x < 2**19 rounds x to a multiple of the step and leaves that, in steps, in the low bits.
    rounder = b.like(x, 1.5 * 2.0**23 / nodes.per_one)
    shifted = b.add(_at_most(b, x, last) if last + 0.5 / nodes.per_one < _MOST else x, rounder)
    minus_c, place = b.sub(rounder, shifted), b.bitcast(shifted, dtypes.int32)
    columns = [_looked_up(b, column, place) for column in nodes.columns]
    if is_wide:
        return _of_32(b, columns, _looked_up(b, nodes.margins, place), minus_c, b.add(x, minus_c))
    return _of_8(b, columns, minus_c, b.add(x, minus_c))


def _of_32(
    b: Builder, columns: list[Vector], margin: Vector, minus_c: Vector, r: Vector
) -> tuple[Vector, Vector, Vector]:
    """The pair by steps of 1/8, of which only r - c * r**2 is found as a pair."""
    value, value_rest, slope, slope_rest, *terms = columns
    fall, square = b.mul(minus_c, r), b.mul(r, r)
    w = b.fma(fall, r, r)
    w_rest = b.fma(w, slope_rest, b.fma(fall, r, b.sub(r, w)))
    tail = b.fma(_curve(b, terms, r, square), b.mul(square, r), w_rest)
    high, first = _risen(b, slope, w, value)
    low = b.fma(slope, tail, b.add(first, value_rest))
    return high, low, b.fma(high, margin, low)


def _of_8(b: Builder, columns: list[Vector], minus_c: Vector, r: Vector) -> tuple[Vector, Vector, Vector]:
    """The pair by steps of 1/2, of which r - c * r**2 + third * r**3 is found as a pair."""
    value, value_rest, slope, slope_rest, third, *terms = columns
    # What three products and sums lose, exactly.
    bend = b.fma(third, r, minus_c)
    bend_rest = b.fma(third, r, b.sub(minus_c, bend))
    fall = b.mul(bend, r)
    fall_rest = b.fma(bend, r, b.neg(fall))
    w = b.fma(fall, r, r)
    w_rest = b.fma(r, b.fma(r, bend_rest, fall_rest), b.fma(fall, r, b.sub(r, w)))
    square = b.mul(r, r)
    tail = b.fma(_curve(b, terms, r, square), b.mul(square, square), b.fma(w, slope_rest, w_rest))
    high, first = _risen(b, slope, w, value)
    second = b.mul(slope, tail)
    low = b.add(b.add(first, value_rest), second)
    margin = b.fma(b.abs(second), b.like(r, _OF_TAIL), b.mul(high, b.like(r, _OF_ALL)))
    return high, b.sub(low, margin), b.add(low, margin)


def _risen(b: Builder, slope: Vector, w: Vector, value: Vector) -> tuple[Vector, Vector]:
    """value + slope * w, and what rounding took off it."""
    high = b.fma(slope, w, value)
    return high, b.fma(slope, w, b.sub(value, high))


def _at_most(b: Builder, x: Vector, limit: float) -> Vector:
    """x, or the limit where x is above it: one instruction, which passes on NaN."""
    return b.select(b.less(b.like(x, limit), x), b.like(x, limit), x)


def _curve(b: Builder, terms: list[Vector], r: Vector, square: Vector) -> Vector:
    """The polynomial of r of an even number of terms, the constant first: steps of r**2 over pairs of terms."""
    found = b.fma(terms[-1], r, terms[-2])
    for i in range(len(terms) - 4, -1, -2):
        found = b.fma(found, square, b.fma(terms[i + 1], r, terms[i]))
    return found


def _looked_up(b: Builder, column: tuple[float, ...], place: Vector) -> Vector:
    """By the low bits."""
    return b.lookup(column, dtypes.float32, b.bit_and(place, b.like(place, len(column) - 1)))
