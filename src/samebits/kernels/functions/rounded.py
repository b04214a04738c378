"""Correctly rounded float32 functions: one frozen row each, one emitter for all (numerics.md section 7).

A row evaluates in float64, where a polynomial's error of 2**-50 leaves few float32 results in doubt, and rounds once
at the end; that none of the 2**32 inputs is wrong is not argued but run (`make exhaustive`). Where a few inputs do come
out wrong, the row lists them as exceptions. The coefficients are printed by tools/fit_functions.py. Start at `emit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector

# Adding 3 * 2**51 to |x| < 2**51 rounds x to an integer and leaves it, in two's complement, in the low bits.
_ROUNDER = float.fromhex("0x1.8p+52")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")


@dataclass(frozen=True, slots=True)
class CorrectlyRounded:
    """f(x) = round(restore(x, P(reduce(x)), kept)), all but the last rounding in float64.

    Attributes:
        name: The function.
        low: Below it f is f(low), by float32 rounding or because it has saturated.
        high: Above it f is f(high). NaN passes both limits.
        reduce: `(b, x)` to `(the polynomial's argument, whatever restore needs)`, float64 vectors.
        coefficients: Of P, the constant first, as hex floats.
        restore: `(b, x, r, p, kept)` to the result in float64.
        chains: Independent chains that the polynomial is split into: a long one waits for its own results.
        exceptions: `(code of x, code of f(x))` where the float64 result rounds the wrong way.
    """

    name: str
    low: float
    high: float
    reduce: Callable[[Builder, Vector], tuple[Vector, Vector]]
    coefficients: tuple[str, ...]
    restore: Callable[[Builder, Vector, Vector, Vector, Vector], Vector]
    chains: int = 1
    exceptions: tuple[tuple[int, int], ...] = ()


def emit(b: Builder, row: CorrectlyRounded, x: Vector) -> Vector:
    """The row's function of float32 lanes; a NaN lane gives some NaN."""
    # As written, each select is one minimum or maximum instruction that passes on NaN.
    low, high = (b.like(x, limit) for limit in (row.low, row.high))
    clamped = b.select(b.less(high, x), high, x)
    clamped = b.select(b.less(clamped, low), low, clamped)
    wide = b.convert(clamped, dtypes.float64)
    r, kept = row.reduce(b, wide)
    p = polynomial(b, row.coefficients, r, row.chains)
    result = b.convert(row.restore(b, wide, r, p, kept), dtypes.float32)
    return _mend(b, row, x, result)


def polynomial(b: Builder, coefficients: tuple[str, ...], r: Vector, chains: int = 1) -> Vector:
    """c[0] + r * (c[1] + r * (...)), one fma a step; as even and odd part in r * r for two chains, and so on."""
    if chains > 1:
        square = b.mul(r, r)
        even, odd = (polynomial(b, coefficients[k::2], square, chains // 2) for k in (0, 1))
        return b.fma(odd, r, even)
    *rest, top = (b.like(r, float.fromhex(c)) for c in coefficients)
    p = top
    for c in reversed(rest):
        p = b.fma(p, r, c)
    return p


def _mend(b: Builder, row: CorrectlyRounded, x: Vector, result: Vector) -> Vector:
    """The listed results where x is one of the listed inputs."""
    if not row.exceptions:
        return result
    codes, fixed = b.bitcast(x, dtypes.int32), b.bitcast(result, dtypes.int32)
    for wrong, right in row.exceptions:
        is_it = b.equal(codes, b.like(codes, _signed(wrong)))
        fixed = b.select(is_it, b.like(codes, _signed(right)), fixed)
    return b.bitcast(fixed, dtypes.float32)


def _signed(code: int) -> int:
    """An unsigned 32-bit code as an int32."""
    return code - (1 << 32) if code >> 31 else code


def _exp_reduce(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """x * log2(e) = n + r, n an integer: r, and n in the low bits of a float64.

    The product is rounded once, after n is taken off: r errs by 2**-54, and by x times the 2**-55.5 of the constant.
    """
    log2_e, rounder = (b.like(x, c) for c in (_LOG2_E, _ROUNDER))
    shifted = b.fma(x, log2_e, rounder)
    return b.fma(x, log2_e, b.sub(rounder, shifted)), shifted


def _exp_restore(b: Builder, x: Vector, r: Vector, p: Vector, shifted: Vector) -> Vector:
    """2**n * (1 + r * p): n moves into the exponent field, where float32's whole range, subnormals too, fits."""
    mantissa = b.fma(p, r, b.like(x, 1.0))
    exponent = b.shift_left(b.bitcast(shifted, dtypes.int64), 52)
    return b.bitcast(b.add(b.bitcast(mantissa, dtypes.int64), exponent), dtypes.float64)


EXP = CorrectlyRounded(
    name="exp",
    low=-104.0,  # exp(-103.98) is below half of the smallest subnormal
    high=89.0,  # exp(88.73) overflows
    reduce=_exp_reduce,
    # (2**r - 1) / r on |r| <= 1/2; relative error of 2**r 2**-50.6.
    coefficients=(
        "0x1.62e42fefa39f7p-1",
        "0x1.ebfbdff82c590p-3",
        "0x1.c6b08d7044115p-5",
        "0x1.3b2ab6fba385ep-7",
        "0x1.5d87fe909044dp-10",
        "0x1.43091303789cep-13",
        "0x1.ffcb7675d9e39p-17",
        "0x1.62bfe45fd2c33p-20",
        "0x1.b6572105cc26fp-24",
        "0x1.e5e9f82e9f93bp-28",
    ),
    restore=_exp_restore,
)

# 2**(i / 16), its bits less i << 48: what adding the bits of n + i / 16, moved to the exponent, puts back.
_SIXTEENTHS = (
    "0x1.0000000000000p+0",
    "0x1.fb5586cf9890fp-1",
    "0x1.f72b83c7d517bp-1",
    "0x1.f387a6e756238p-1",
    "0x1.f06fe0a31b715p-1",
    "0x1.edea64c123422p-1",
    "0x1.ebfdad5362a27p-1",
    "0x1.eab07dd485429p-1",
    "0x1.ea09e667f3bcdp-1",
    "0x1.ea11473eb0187p-1",
    "0x1.eace5422aa0dbp-1",
    "0x1.ec49182a3f090p-1",
    "0x1.ee89f995ad3adp-1",
    "0x1.f199bdd85529cp-1",
    "0x1.f5818dcfba487p-1",
    "0x1.fa4afa2a490dap-1",
)


def _sixteenths_reduce(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """16 * x * log2(e) = k + r, k an integer: r, and k in the low bits of a float64."""
    log2_e, rounder = (b.like(x, c) for c in (16 * _LOG2_E, _ROUNDER))
    shifted = b.fma(x, log2_e, rounder)
    return b.fma(x, log2_e, b.sub(rounder, shifted)), shifted


def _sixteenths_restore(b: Builder, x: Vector, r: Vector, p: Vector, shifted: Vector) -> Vector:
    """2**(k / 16) * (1 + r * p)."""
    bits = b.bitcast(shifted, dtypes.int64)
    place = b.convert(b.bit_and(bits, b.like(bits, 15)), dtypes.int32)
    entry = b.lookup([float.fromhex(c) for c in _SIXTEENTHS], dtypes.float64, place)
    power = b.bitcast(b.add(b.bitcast(entry, dtypes.int64), b.shift_left(bits, 48)), dtypes.float64)
    return b.fma(b.mul(power, r), p, power)


# For rows where sixteen float64 are two registers, and looking them up is one instruction.
EXP_BY_TABLE = CorrectlyRounded(
    name="exp",
    low=EXP.low,
    high=EXP.high,
    reduce=_sixteenths_reduce,
    # (2**(r / 16) - 1) / r on |r| <= 1/2; relative error of 2**(r / 16) 2**-55.9.
    coefficients=(
        "0x1.62e42fefa39f3p-5",
        "0x1.ebfbdff82c590p-11",
        "0x1.c6b08d6f2a22ap-17",
        "0x1.3b2ab6fb411f3p-23",
        "0x1.5d897e564a638p-30",
        "0x1.430a1d0ba5e3cp-37",
    ),
    restore=_sixteenths_restore,
)

_ERF_CENTRE = 7.734375
_ERF_ONE = float.fromhex("0x1.f5a88ap+1")  # the first float32 whose erf rounds to 1


def _erf_reduce(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """x * x, centred; exact in the square."""
    return b.fma(x, x, b.like(x, -_ERF_CENTRE)), x


def _erf_restore(b: Builder, x: Vector, r: Vector, p: Vector, kept: Vector) -> Vector:
    """x * p keeps the sign of zero."""
    return b.mul(x, p)


# One polynomial for the whole range: erf(x) / x is a mean of exp(-x * x * t * t), completely monotone in x * x, so the
# terms of its expansion about any centre have equal signs where the ratio is largest and nothing cancels there.
# Sixteen short pieces cost as much on AVX-512 (a permute a coefficient) and several times as much where a table look-up
# is one load a lane.
ERF = CorrectlyRounded(
    name="erf",
    low=-_ERF_ONE,
    high=_ERF_ONE,
    reduce=_erf_reduce,
    # erf(x) / x in r = x * x - 7.734375, |r| <= 7.734375; relative error 2**-51.8.
    coefficients=(
        "0x1.702c10ea5e2a1p-2",
        "-0x1.7c4b24508f8c5p-6",
        "0x1.24ec888b1c8d8p-9",
        "-0x1.edd16642c8083p-13",
        "0x1.a89e9b37e53f6p-16",
        "-0x1.6795cdf97dd09p-19",
        "0x1.25580ed1a684bp-22",
        "-0x1.c6b34cea1a7d3p-26",
        "0x1.4c2171c82dea4p-29",
        "-0x1.c77f54593372ap-33",
        "0x1.24dbd89bbb4dbp-36",
        "-0x1.613d9d6a0cd8dp-40",
        "0x1.90396d6394d51p-44",
        "-0x1.aac6fbe65c277p-48",
        "0x1.ad4116fa5e7bap-52",
        "-0x1.98259fde6579cp-56",
        "0x1.6fc2ca91805acp-60",
        "-0x1.3ae476ec2f07ep-64",
        "0x1.0060701518be3p-68",
        "-0x1.8bea6368e33c1p-73",
        "0x1.2633aee663000p-77",
        "-0x1.b2f85ca5594e8p-82",
        "0x1.25d9dfe74cd81p-86",
        "-0x1.2cc7cc83aea98p-91",
        "0x1.881df2382046fp-96",
        "-0x1.dbeb452921aeep-100",
        "0x1.0ca4aa6b79e6bp-104",
    ),
    restore=_erf_restore,
    chains=4,
)

ROWS: tuple[CorrectlyRounded, ...] = (EXP, ERF)
