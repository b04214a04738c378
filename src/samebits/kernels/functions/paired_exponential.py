"""exp and exp2 of float32 in lanes of float32: a pair of them nearly always tells which way the result rounds.

x = k * log(2) / n + r, n being 32, or 8 where a register has eight lanes: as many as it looks up at once. e**x =
2**(k // n) * t * (1 + first + tail), t = 2**(k % n / n) rounded to float32. With 32 steps `first` is r, and `tail` is
what r leaves of e**r together with what the rounding of t took off. With 8, where r is four times as large, `first` is
r + r**2 / 2, whose rounding is in the tail too. The sum is found as high + low, which errs by less than a margin: where
high + low rounds alike with it taken off and put on, that is the result, else the vector is computed in float64 (Ziv
1991), as one in 350 is of sixteen normal numbers, one in 520 of eight. These are half the instructions of the way by
float64; that none of the 2**32 inputs is wrong is run (`make exhaustive`). 2**x is the same sum, of r = s * log(2)
where x = k / n + s, which is exact: two steps more find r as a pair. Start at `emit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.frozen import dataclass
from samebits.kernels.functions import rounded
from samebits.kernels.functions.exponentials import EXP, EXP2, EXP_BY_TABLE
from samebits.kernels.functions.rounded import CorrectlyRounded

# power, first, tail and the square of r: see `parts`.
Parts = tuple[Vector, Vector, Vector, Vector]
# A number less a margin, as the unevaluated sum of two float32, and twice that margin as a part of it.
Less = tuple[Vector, Vector, Vector]
# Adding it to |x| < 2**22 rounds x to an integer and leaves it, in two's complement, in the low bits.
_ROUNDER = float.fromhex("0x1.8p+23")
_PER_LOG_2 = float.fromhex("0x1.715476p+0")  # 1 / log(2)
# log(2) = the sum of the two. k / n times the first is a multiple of 2**-28 and so is x, where k is not 0 (2**-30 where
# n is 32); their difference is below 2**-4 (2**-6), so that a float32 holds it.
_LOG_2, _LOG_2_REST = float.fromhex("0x1.62e430p-1"), float.fromhex("-0x1.05c610p-29")
# Beyond it 2**-48 of the result may be subnormal: of e**x, and of 2**x.
_WITHIN, _WITHIN_OF_2 = 69.5, 100.5


@dataclass(frozen=True, slots=True)
class Steps:
    """How finely x is cut.

    Attributes:
        count: Steps of log(2): how many entries are looked up by one instruction.
        tail: What remains of e**r, over the power of r that it begins with, on |r| <= log(2) / (2 * count), the
            constant first: (e**r - 1 - r) / r**2 of 32 steps, (e**r - 1 - r - r**2 / 2) / r**3 of 8.
        of_square: More than the sum errs by is so much of r**2, as a part of the sum,
        of_all: and so much of 1.
        row: e**x in float64.
    """

    count: int
    tail: tuple[str, ...]
    of_square: float
    of_all: float
    row: CorrectlyRounded


# Relative error of e**r 2**-41.5. The tail is about r**2 / 2 and is rounded four times by 2**-24 of itself: as square,
# as polynomial, with `rest` and in the low part. What is left of `of_square` is for the polynomial's own error. `rest`
# is at most 2**-22, and is rounded as often.
_OF_SIXTEEN_LANES = Steps(
    32, ("0x1.000000p-1", "0x1.5555b8p-3", "0x1.555596p-5"), 1.5 * 2.0**-23, 1.75 * 2.0**-45, EXP_BY_TABLE
)
# Relative error of e**r 2**-38.4. The tail is about r**3 / 6, that is r**2 * 2**-7.1, and is rounded five times, once
# more as cube; so is `rest`, as it is multiplied.
_OF_EIGHT_LANES = Steps(8, ("0x1.555556p-3", "0x1.555970p-5", "0x1.11136ap-7"), 1.25 * 2.0**-28, 2.25 * 2.0**-45, EXP)
# The margin of 8 steps where r is largest, which is small enough to be taken everywhere; a tenth more, as `rest` is
# multiplied by up to that.
_OF_COARSE = 1.1 * ((math.log(2) / 16) ** 2 * _OF_EIGHT_LANES.of_square + _OF_EIGHT_LANES.of_all)
# 2**(i / 32) in float32, its bits less i << 18: what adding the bits of k, moved to the exponent, puts back.
_POWERS = (
    "0x1.000000p+0",
    "0x1.fd9b0ep-1",
    "0x1.fb5586p-1",
    "0x1.f9301ep-1",
    "0x1.f72b84p-1",
    "0x1.f54874p-1",
    "0x1.f387a6p-1",
    "0x1.f1e9e0p-1",
    "0x1.f06fe0p-1",
    "0x1.ef1a74p-1",
    "0x1.edea64p-1",
    "0x1.ece086p-1",
    "0x1.ebfdaep-1",
    "0x1.eb42b6p-1",
    "0x1.eab07ep-1",
    "0x1.ea47ecp-1",
    "0x1.ea09e6p-1",
    "0x1.e9f75ep-1",
    "0x1.ea1148p-1",
    "0x1.ea589ap-1",
    "0x1.eace54p-1",
    "0x1.eb737cp-1",
    "0x1.ec4918p-1",
    "0x1.ed503cp-1",
    "0x1.ee89fap-1",
    "0x1.eff770p-1",
    "0x1.f199bep-1",
    "0x1.f3720ep-1",
    "0x1.f5818ep-1",
    "0x1.f7c974p-1",
    "0x1.fa4afap-1",
    "0x1.fd0766p-1",
)
# log(2**(i / 32) / t), t being 2**(i / 32) in float32.
_RESTS = (
    "0x0.0p+0",
    "-0x1.947416p-25",
    "0x1.8d96d4p-25",
    "-0x1.dda2fep-25",
    "-0x1.9c0c22p-27",
    "-0x1.a2fbb4p-25",
    "0x1.964902p-25",
    "-0x1.2b0dbcp-25",
    "0x1.125002p-25",
    "-0x1.cde8cep-26",
    "0x1.370be4p-25",
    "0x1.336de2p-30",
    "-0x1.0a3552p-25",
    "-0x1.c541b6p-26",
    "-0x1.00d8acp-27",
    "-0x1.6cb284p-25",
    "0x1.26055cp-26",
    "0x1.8b2bb8p-26",
    "-0x1.05cb44p-25",
    "-0x1.1c2142p-26",
    "0x1.67a1cap-28",
    "-0x1.348e56p-25",
    "0x1.a3b5e4p-28",
    "-0x1.0b7ec8p-25",
    "-0x1.f9c306p-27",
    "-0x1.e4c886p-26",
    "-0x1.6961b4p-28",
    "-0x1.b5151ep-28",
    "-0x1.a5217cp-28",
    "-0x1.ab7132p-26",
    "0x1.61428ep-28",
    "-0x1.2ad5f8p-27",
)


def emit(b: Builder, x: Vector) -> Vector:
    """e**x, correctly rounded, NaN canonical."""
    return _rounded(b, x, less(b, x), _WITHIN, _steps(b).row)


def emit_exp2(b: Builder, x: Vector) -> Vector:
    """2**x, correctly rounded, NaN canonical."""
    return _rounded(b, x, less_of_2(b, x), _WITHIN_OF_2, EXP2)


def _rounded(b: Builder, x: Vector, found: Less, within: float, row: CorrectlyRounded) -> Vector:
    """What is less than f(x) by a margin as float32, by the row of float64 where the margin leaves it open."""
    high, low, doubled = found
    less, more = b.add(high, low), b.add(high, b.fma(high, doubled, low))
    doubt = b.invert(b.bit_and(b.less_equal(b.abs(x), b.like(x, within)), b.equal(less, more)))
    result = [less]
    for _ in b.when(b.any(doubt), result):
        # Rows are masked by what is far below every limit: it does not ask for float64.
        nothing = b.less(x, b.like(x, row.low))
        result[0] = b.select(nothing, b.like(x, 0.0), less)
        for _ in b.when(b.any(b.bit_and(doubt, b.invert(nothing))), result):
            result[0] = rounded.emit(b, row, x)
    return result[0]


def less(b: Builder, x: Vector) -> Less:
    """e**x * (1 - margin), |x| <= 88, as a float32 and what it lacks, and twice the margin."""
    return _summed(b, parts(b, x, is_less=True))


def less_of_2(b: Builder, x: Vector) -> Less:
    """2**x * (1 - margin), |x| <= 126, as a float32 and what it lacks, and twice the margin."""
    count, rounder, log_2 = _steps(b).count, b.like(x, _ROUNDER), b.like(x, _LOG_2)
    shifted = b.fma(x, b.like(x, count), rounder)
    s, place = b.fma(b.sub(rounder, shifted), b.like(x, 1 / count), x), b.bitcast(shifted, dtypes.int32)
    first = b.mul(s, log_2)
    rest = b.add(b.fma(s, log_2, b.neg(first)), _rests(b, place, is_less=True))
    return _summed(b, _completed(b, place, first, b.fma(s, b.like(x, _LOG_2_REST), rest), is_less=True))


def _summed(b: Builder, found: Parts) -> Less:
    """power * (1 + first + tail), as a float32 and what it lacks, and twice the margin."""
    power, first, tail, square = found
    steps, high = _steps(b), b.fma(power, first, power)
    low = b.fma(power, tail, b.fma(power, first, b.sub(power, high)))
    if _is_fine(b):
        return high, low, b.fma(square, b.like(square, 2 * steps.of_square), b.like(square, 2 * steps.of_all))
    return high, low, b.like(high, 2 * _OF_COARSE)


def parts(b: Builder, x: Vector, is_less: bool = False) -> Parts:
    """power, first, tail, r**2 of e**x = power * (1 + first + tail), |x| <= 88; the tail less the margin on request.

    power * first has at most 24 bits more than power.
    """
    count, rounder = _steps(b).count, b.like(x, _ROUNDER)
    shifted = b.fma(x, b.like(x, count * _PER_LOG_2), rounder)
    minus_k, place = b.sub(rounder, shifted), b.bitcast(shifted, dtypes.int32)
    first = b.fma(minus_k, b.like(x, _LOG_2 / count), x)
    rest = b.fma(minus_k, b.like(x, _LOG_2_REST / count), _rests(b, place, is_less))
    return _completed(b, place, first, rest, is_less)


def _completed(b: Builder, place: Vector, first: Vector, rest: Vector, is_less: bool) -> Parts:
    """power, first, tail, r**2, where r = first + rest and `place` has k in its low bits."""
    steps = _steps(b)
    if _is_fine(b):
        r = b.add(first, rest)
        power_of_r = square = b.mul(r, r)
        constant = float.fromhex(steps.tail[0]) - is_less * steps.of_square
        curve = rounded.polynomial(b, (constant.hex(), *steps.tail[1:]), r)
    else:
        r, half, square = first, b.mul(first, b.like(first, 0.5)), b.mul(first, first)
        first = b.fma(half, r, r)
        rest = b.add(b.fma(rest, first, rest), b.fma(half, r, b.sub(r, first)))
        power_of_r = b.mul(square, r)
        curve = rounded.polynomial(b, steps.tail, r)
    power = b.bitcast(_looked_up(b, map(float.fromhex, _POWERS), place), dtypes.int32)
    power = b.bitcast(b.add(power, b.shift_left(place, 24 - steps.count.bit_length())), dtypes.float32)
    return power, first, b.fma(curve, power_of_r, rest), square


def _rests(b: Builder, place: Vector, is_less: bool) -> Vector:
    """What the power's rounding took off; less the part of the margin that is the same everywhere on request."""
    margin = is_less * (_steps(b).of_all if _is_fine(b) else _OF_COARSE)
    return _looked_up(b, [c - margin for c in map(float.fromhex, _RESTS)], place)


def _looked_up(b: Builder, table: Iterable[float], place: Vector) -> Vector:
    """By the low bits."""
    count = _steps(b).count
    return b.lookup(list(table)[:: 32 // count], dtypes.float32, b.bit_and(place, b.like(place, count - 1)))


def _steps(b: Builder) -> Steps:
    return _OF_SIXTEEN_LANES if b.isa.lanes >= 16 else _OF_EIGHT_LANES


def _is_fine(b: Builder) -> bool:
    return _steps(b) is _OF_SIXTEEN_LANES
