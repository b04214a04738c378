"""exp of float32 in sixteen lanes of float32: a pair of them nearly always tells which way the result rounds.

x = k * log(2) / 32 + r, and e**x = 2**(k // 32) * t * (1 + r + tail), t = 2**(k % 32 / 32) rounded to float32, and
`tail` is what r leaves of e**r together with what that rounding took off. The sum is found as high + low, which errs by
less than 2**-36 of it (2**-36.07 at most): where high + low rounds alike with 2**-35.68 taken off and put on, that is
the result, else the vector is computed in float64, as one in 150 is (Ziv 1991). These are half the instructions of
the way by float64; that none of the 2**32 inputs is wrong is run (`make exhaustive`). Start at `emit`.
"""

from __future__ import annotations

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions import rounded
from samebits.kernels.functions.exponentials import EXP_BY_TABLE

# Adding it to |x| < 2**22 rounds x to an integer and leaves it, in two's complement, in the low bits.
_ROUNDER = float.fromhex("0x1.8p+23")
_PER_STEP = float.fromhex("0x1.715476p+5")  # 32 / log(2)
# log(2) / 32 = the sum of the two. k times the first is exact in 24 bits, and so is x less that: a multiple of 2**-30,
# as x is from 2**-7 on, below which k is 0, and less than 2**-6.
_STEP, _STEP_REST = float.fromhex("0x1.62e43p-6"), float.fromhex("-0x1.05c61p-34")
# (e**r - 1 - r) / r**2 on |r| <= log(2) / 64; relative error of e**r 2**-41.5.
_TAIL = ("0x1.000000p-1", "0x1.5555b8p-3", "0x1.555596p-5")
# Beyond it 2**-38 of the result may be subnormal.
_WITHIN = 75.0
# Twice what is taken off: in _RESTS it is.
_DOUBT = 2.5 * 2.0**-36
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
# log(2**(i / 32) / t) - 1.25 * 2**-36, t being 2**(i / 32) in float32.
_RESTS = (
    "-0x1.400000p-36",
    "-0x1.949c16p-25",
    "0x1.8d6ed4p-25",
    "-0x1.ddcafep-25",
    "-0x1.9cac22p-27",
    "-0x1.a323b4p-25",
    "0x1.962102p-25",
    "-0x1.2b35bcp-25",
    "0x1.122802p-25",
    "-0x1.ce38cep-26",
    "0x1.36e3e4p-25",
    "0x1.2e6de2p-30",
    "-0x1.0a5d52p-25",
    "-0x1.c591b6p-26",
    "-0x1.0178acp-27",
    "-0x1.6cda84p-25",
    "0x1.25b55cp-26",
    "0x1.8adbb8p-26",
    "-0x1.05f344p-25",
    "-0x1.1c7142p-26",
    "0x1.6661cap-28",
    "-0x1.34b656p-25",
    "0x1.a275e4p-28",
    "-0x1.0ba6c8p-25",
    "-0x1.fa6306p-27",
    "-0x1.e51886p-26",
    "-0x1.6aa1b4p-28",
    "-0x1.b6551ep-28",
    "-0x1.a6617cp-28",
    "-0x1.abc132p-26",
    "0x1.60028ep-28",
    "-0x1.2b75f8p-27",
)


def emit(b: Builder, x: Vector) -> Vector:
    """e**x, correctly rounded; a NaN lane gives some NaN."""
    high, low = _pair(b, x)
    less, more = b.add(high, low), b.add(high, b.fma(high, b.like(high, _DOUBT), low))
    doubt = b.invert(b.bit_and(b.less_equal(b.abs(x), b.like(x, _WITHIN)), b.equal(less, more)))
    found = [less]
    for _ in b.when(b.any(doubt), found):
        # Rows are masked by what is far below every limit: it does not ask for float64.
        nothing = b.less(x, b.like(x, EXP_BY_TABLE.low))
        found[0] = b.select(nothing, b.like(x, 0.0), less)
        for _ in b.when(b.any(b.bit_and(doubt, b.invert(nothing))), found):
            found[0] = rounded.emit(b, EXP_BY_TABLE, x)
    return found[0]


def _pair(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """e**x * (1 - 1.25 * 2**-36) as a float32 and what it lacks."""
    rounder, step, step_rest = (b.like(x, c) for c in (_ROUNDER, _STEP, _STEP_REST))
    shifted = b.fma(x, b.like(x, _PER_STEP), rounder)
    minus_k, place = b.sub(rounder, shifted), b.bitcast(shifted, dtypes.int32)
    first = b.fma(minus_k, step, x)
    rest = b.fma(minus_k, step_rest, _looked_up(b, _RESTS, place))
    r = b.add(first, rest)
    tail = b.fma(rounded.polynomial(b, _TAIL, r), b.mul(r, r), rest)
    power = b.bitcast(_looked_up(b, _POWERS, place), dtypes.int32)
    power = b.bitcast(b.add(power, b.shift_left(place, 18)), dtypes.float32)
    high = b.fma(power, first, power)
    return high, b.fma(power, tail, b.fma(power, first, b.sub(power, high)))


def _looked_up(b: Builder, table: tuple[str, ...], place: Vector) -> Vector:
    """By the low five bits."""
    return b.lookup([float.fromhex(c) for c in table], dtypes.float32, b.bit_and(place, b.like(place, 31)))
