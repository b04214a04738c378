"""Correctly rounded functions that are made of e to the x (numerics.md section 7). Start at `EXP`."""

from __future__ import annotations

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions.rounded import ROUNDER, CorrectlyRounded, signed

_LOG2_E = float.fromhex("0x1.71547652b82fep+0")


def _exp_reduce(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """x * log2(e) = n + r, n an integer: r, and n in the low bits of a float64.

    The product is rounded once, after n is taken off: r errs by 2**-54, and by x times the 2**-55.5 of the constant.
    """
    log2_e, rounder = (b.like(x, c) for c in (_LOG2_E, ROUNDER))
    shifted = b.fma(x, log2_e, rounder)
    return b.fma(x, log2_e, b.sub(rounder, shifted)), shifted


def _exp_restore(b: Builder, x: Vector, r: Vector, p: Vector, shifted: Vector) -> Vector:
    return power_of_two(b, r, p, shifted)


def power_of_two(b: Builder, r: Vector, p: Vector, shifted: Vector) -> Vector:
    """2**n * (1 + r * p), n in the low bits of `shifted`."""
    return scaled(b, b.fma(p, r, b.like(r, 1.0)), shifted)


def scaled(b: Builder, x: Vector, shifted: Vector) -> Vector:
    """2**n * x: n moves into the exponent field, where float32's whole range, subnormals too, fits."""
    exponent = b.shift_left(b.bitcast(shifted, dtypes.int64), 52)
    return b.bitcast(b.add(b.bitcast(x, dtypes.int64), exponent), dtypes.float64)


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
    log2_e, rounder = (b.like(x, c) for c in (16 * _LOG2_E, ROUNDER))
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


def _exp2_reduce(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """x = n + r, n an integer: r, exactly, and n in the low bits of a float64."""
    rounder = b.like(x, ROUNDER)
    shifted = b.add(x, rounder)
    return b.sub(x, b.sub(shifted, rounder)), shifted


EXP2 = CorrectlyRounded(
    name="exp2",
    low=-151.0,
    high=129.0,
    reduce=_exp2_reduce,
    coefficients=EXP.coefficients,
    restore=_exp_restore,
    exceptions=(
        (0x3B429D37, 0x3F804385),
        (0xBCF3A937, 0x3F7AC6B1),
    ),
)


def _grown(b: Builder, x: Vector, r: Vector, p: Vector, shifted: Vector) -> Vector:
    """2**n * (1 + r * p) - 1 as 2**n * r * p + (2**n - 1), which is as small as it should be where n is 0."""
    one = b.like(r, 1.0)
    power = scaled(b, one, shifted)
    return b.fma(b.mul(power, r), p, b.sub(power, one))


EXPM1 = CorrectlyRounded(
    name="expm1",
    low=-18.0,  # from -17.33 on it rounds to -1
    high=EXP.high,
    reduce=_exp_reduce,
    coefficients=EXP.coefficients,
    restore=_grown,
    settle=signed,
    exceptions=(
        (0x33B504F3, 0x33B504F3),
        (0x34CA62C1, 0x34CA62C3),
        (0x36322B1B, 0x36322B2A),
    ),
)


def _tanh_reduce(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """2 * x * log2(e) = n + r, as `EXP` does x."""
    return _exp_reduce(b, b.add(x, x))


def _tanh_restore(b: Builder, x: Vector, r: Vector, p: Vector, shifted: Vector) -> Vector:
    """g / (g + 2), g = exp(2 * x) - 1."""
    grown = _grown(b, x, r, p, shifted)
    return b.div(grown, b.add(grown, b.like(x, 2.0)))


TANH = CorrectlyRounded(
    name="tanh",
    low=-9.015625,  # from where on it rounds to 1
    high=9.015625,
    reduce=_tanh_reduce,
    coefficients=EXP.coefficients,
    restore=_tanh_restore,
    settle=signed,
)


def _sigmoid_reduce(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """As `EXP` of -x."""
    return _exp_reduce(b, b.neg(x))


def _sigmoid_restore(b: Builder, x: Vector, r: Vector, p: Vector, shifted: Vector) -> Vector:
    """1 / (1 + exp(-x)); 0.5 + x / 4 below 2**-12, less than that by 2**-27 of x / 4.

    There 0.5 + x / 4 may be the middle of two float32, and the function is nearer to 0.5 by x**3 / 48, which float64
    would not tell: what is taken off is more than that, and less than the distance of any x / 4 from a middle.
    """
    one = b.like(x, 1.0)
    found = b.div(one, b.add(one, _exp_restore(b, x, r, p, shifted)))
    close = b.less(b.abs(x), b.like(x, 2.0**-12))
    return b.select(close, b.fma(x, b.like(x, 0.25 - 2.0**-29), b.like(x, 0.5)), found)


SIGMOID = CorrectlyRounded(
    name="sigmoid",
    low=-104.0,
    high=18.0,  # from 17.33 on it rounds to 1
    reduce=_sigmoid_reduce,
    coefficients=EXP.coefficients,
    restore=_sigmoid_restore,
    exceptions=((0xBA928601, 0x3EFFDB5F),),
)
