"""exp and exp2 of float32 in sixteen lanes of float32: a pair of them nearly always tells which way the result rounds.

x = k * log(2) / 32 + r, and e**x = 2**(k // 32) * t * (1 + r + tail), t = 2**(k % 32 / 32) rounded to float32, and
`tail` is what r leaves of e**r together with what that rounding took off. The sum is found as high + low, which errs by
less than 2**-36 of it (2**-36.07 at most): where high + low rounds alike with 2**-35.68 taken off and put on, that is
the result, else the vector is computed in float64, as one in 150 is (Ziv 1991). These are half the instructions of
the way by float64; that none of the 2**32 inputs is wrong is run (`make exhaustive`). 2**x is the same sum, of r = s *
log(2) where x = k / 32 + s, which is exact: two steps more find r as a pair. Start at `emit`.
"""

from __future__ import annotations

from collections.abc import Iterable

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions import rounded
from samebits.kernels.functions.exponentials import EXP2, EXP_BY_TABLE
from samebits.kernels.functions.rounded import CorrectlyRounded

# Adding it to |x| < 2**22 rounds x to an integer and leaves it, in two's complement, in the low bits.
_ROUNDER = float.fromhex("0x1.8p+23")
_PER_STEP = float.fromhex("0x1.715476p+5")  # 32 / log(2)
# log(2) / 32 = the sum of the two. k times the first is exact in 24 bits, and so is x less that: a multiple of 2**-30,
# as x is from 2**-7 on, below which k is 0, and less than 2**-6.
_STEP, _STEP_REST = float.fromhex("0x1.62e43p-6"), float.fromhex("-0x1.05c61p-34")
# log(2) = the sum of the two.
_LOG_2, _LOG_2_REST = float.fromhex("0x1.62e430p-1"), float.fromhex("-0x1.05c610p-29")
# (e**r - 1 - r) / r**2 on |r| <= log(2) / 64; relative error of e**r 2**-41.5.
_TAIL = ("0x1.000000p-1", "0x1.5555b8p-3", "0x1.555596p-5")
# Beyond it 2**-38 of the result may be subnormal: of e**x, and of 2**x.
_WITHIN, _WITHIN_OF_2 = 75.0, 108.0
# What is taken off, as a part of the result.
_MARGIN = 1.25 * 2.0**-36
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
    """e**x, correctly rounded; a NaN lane gives some NaN."""
    return _rounded(b, x, pair(b, x, _MARGIN), _WITHIN, EXP_BY_TABLE)


def emit_exp2(b: Builder, x: Vector) -> Vector:
    """2**x, correctly rounded; a NaN lane gives some NaN."""
    return _rounded(b, x, pair_of_2(b, x, _MARGIN), _WITHIN_OF_2, EXP2)


def _rounded(b: Builder, x: Vector, sum_less: tuple[Vector, Vector], within: float, row: CorrectlyRounded) -> Vector:
    """The pair of f(x) * (1 - margin) as float32, by the row of float64 where the margin leaves it open."""
    high, low = sum_less
    less, more = b.add(high, low), b.add(high, b.fma(high, b.like(high, 2 * _MARGIN), low))
    doubt = b.invert(b.bit_and(b.less_equal(b.abs(x), b.like(x, within)), b.equal(less, more)))
    found = [less]
    for _ in b.when(b.any(doubt), found):
        # Rows are masked by what is far below every limit: it does not ask for float64.
        nothing = b.less(x, b.like(x, row.low))
        found[0] = b.select(nothing, b.like(x, 0.0), less)
        for _ in b.when(b.any(b.bit_and(doubt, b.invert(nothing))), found):
            found[0] = rounded.emit(b, row, x)
    return found[0]


def pair(b: Builder, x: Vector, margin: float = 0.0) -> tuple[Vector, Vector]:
    """e**x * (1 - margin), |x| <= 88, as a float32 and what it lacks, which is at most 2**-14 of it."""
    power, first, tail, _ = parts(b, x, margin)
    return _summed(b, power, first, tail)


def pair_of_2(b: Builder, x: Vector, margin: float) -> tuple[Vector, Vector]:
    """2**x * (1 - margin), |x| <= 126, as a float32 and what it lacks."""
    rounder, log_2 = b.like(x, _ROUNDER), b.like(x, _LOG_2)
    shifted = b.fma(x, b.like(x, 32.0), rounder)
    s, place = b.fma(b.sub(rounder, shifted), b.like(x, 1 / 32), x), b.bitcast(shifted, dtypes.int32)
    first = b.mul(s, log_2)
    rest = b.add(b.fma(s, log_2, b.neg(first)), _rests(b, place, margin))
    power, first, tail, _ = _completed(b, place, first, b.fma(s, b.like(x, _LOG_2_REST), rest))
    return _summed(b, power, first, tail)


def _summed(b: Builder, power: Vector, first: Vector, tail: Vector) -> tuple[Vector, Vector]:
    """power * (1 + first + tail), as a float32 and what it lacks."""
    high = b.fma(power, first, power)
    return high, b.fma(power, tail, b.fma(power, first, b.sub(power, high)))


def parts(b: Builder, x: Vector, margin: float = 0.0) -> tuple[Vector, Vector, Vector, Vector]:
    """power, first, tail, r**2 of e**x * (1 - margin) = power * (1 + first + tail), |x| <= 88.

    power * first has at most 24 bits more than power, and r, |r| <= log(2) / 64, is first but for 2**-24 at most. The
    tail errs by less than r**2 / 2**24, all else by less than 2**-47 of the result.
    """
    rounder, step, step_rest = (b.like(x, c) for c in (_ROUNDER, _STEP, _STEP_REST))
    shifted = b.fma(x, b.like(x, _PER_STEP), rounder)
    minus_k, place = b.sub(rounder, shifted), b.bitcast(shifted, dtypes.int32)
    return _completed(b, place, b.fma(minus_k, step, x), b.fma(minus_k, step_rest, _rests(b, place, margin)))


def _completed(b: Builder, place: Vector, first: Vector, rest: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    """power, first, tail, r**2, where r = first + rest and `place` has k in its low bits."""
    r = b.add(first, rest)
    square = b.mul(r, r)
    tail = b.fma(rounded.polynomial(b, _TAIL, r), square, rest)
    power = b.bitcast(_looked_up(b, map(float.fromhex, _POWERS), place), dtypes.int32)
    power = b.bitcast(b.add(power, b.shift_left(place, 18)), dtypes.float32)
    return power, first, tail, square


def _rests(b: Builder, place: Vector, margin: float) -> Vector:
    """What the power's rounding took off, and the margin."""
    return _looked_up(b, [c - margin for c in map(float.fromhex, _RESTS)], place)


def _looked_up(b: Builder, table: Iterable[float], place: Vector) -> Vector:
    """By the low five bits."""
    return b.lookup(list(table), dtypes.float32, b.bit_and(place, b.like(place, 31)))
