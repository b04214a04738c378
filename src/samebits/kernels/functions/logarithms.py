"""Correctly rounded logarithms (numerics.md section 7). Start at `LOG`.

All are log(1 + f) and a multiple of what 2 has: of x, or of x + 1.
"""

from __future__ import annotations

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions.rounded import CorrectlyRounded

_LN2 = float.fromhex("0x1.62e42fefa39efp-1")
LOG2_E = float.fromhex("0x1.71547652b82fep+0")
_LOG10_E = float.fromhex("0x1.bcb7b1526e50ep-2")
_LOG10_2 = float.fromhex("0x1.34413509f79ffp-2")
# The bits of sqrt(1/2) and of 1, and what lies between them.
_LEAST, _ONE = 0x3FE6A09E667F3BCD, 0x3FF0000000000000
_FRACTION = (1 << 52) - 1
# 2**52, whose low bits count units; and the number that it is with an exponent field of 0 in them.
_UNITS = 0x4330000000000000
_BIASED_ZERO = float(2**52 + 1023)


def reduced(b: Builder, x: Vector) -> tuple[Vector, tuple[Vector, Vector, Vector]]:
    """x = 2**k * (1 + f), 1 + f between the roots of 1/2 and 2, s = f / (2 + f): s * s, and k, f, s.

    x is a float32, so that 1 + f has 24 bits: f, and f + 2, are exact.
    """
    bits = b.bitcast(x, dtypes.uint64)
    shifted = b.add(bits, b.like(bits, _ONE - _LEAST))
    exponent = b.bit_or(b.shift_right(shifted, 52), b.like(bits, _UNITS))
    k = b.sub(b.bitcast(exponent, dtypes.float64), b.like(x, _BIASED_ZERO))
    m = b.bitcast(b.add(b.bit_and(shifted, b.like(bits, _FRACTION)), b.like(bits, _LEAST)), dtypes.float64)
    f = b.sub(m, b.like(x, 1.0))
    s = b.div(f, b.add(m, b.like(x, 1.0)))
    return b.mul(s, s), (k, f, s)


def of_fraction(b: Builder, z: Vector, p: Vector, f: Vector, s: Vector) -> Vector:
    """log(1 + f) = f - (h - s * (h + z * p)), h = f * f / 2, which is exact where f has 24 bits."""
    half = b.mul(b.mul(f, b.like(f, 0.5)), f)
    return b.sub(f, b.fma(b.neg(s), b.fma(z, p, half), half))


def _log_restore(b: Builder, x: Vector, r: Vector, p: Vector, kept: tuple[Vector, Vector, Vector]) -> Vector:
    """k * log(2) + log(1 + f)."""
    k, f, s = kept
    return b.fma(k, b.like(k, _LN2), of_fraction(b, r, p, f, s))


def _log_settle(b: Builder, x: Vector, result: Vector) -> Vector:
    """-inf for zeros, NaN below them, infinity for itself."""
    infinity, zero = b.like(x, float("inf")), b.like(x, 0.0)
    edge = b.select(b.equal(x, zero), b.neg(infinity), b.like(x, float("nan")))
    result = b.select(b.less(zero, x), result, edge)
    return b.select(b.equal(x, infinity), infinity, result)


LOG = CorrectlyRounded(
    name="log",
    reduce=reduced,
    # (log((1 + s) / (1 - s)) - 2 * s) / s**3 in r = s * s <= 0.02944; relative error of the logarithm 2**-57.6.
    coefficients=(
        "0x1.5555555555558p-1",
        "0x1.99999999952d8p-2",
        "0x1.2492492df26cep-2",
        "0x1.c71c62e40b94ep-3",
        "0x1.7462b5152e8a6p-3",
        "0x1.39fe52a20dc69p-3",
        "0x1.2b58f4c8d5f63p-3",
    ),
    restore=_log_restore,
    settle=_log_settle,
    exceptions=(
        (0x3C413D3A, 0xC08E158F),
        (0x41178FEB, 0x400FE5E7),
        (0x4C5D65A5, 0x418F034B),
        (0x65D890D3, 0x4254D1F9),
        (0x6F31A8EC, 0x42845A89),
    ),
)


def _log2_restore(b: Builder, x: Vector, r: Vector, p: Vector, kept: tuple[Vector, Vector, Vector]) -> Vector:
    """k + log(1 + f) * log2(e)."""
    k, f, s = kept
    return b.fma(of_fraction(b, r, p, f, s), b.like(k, LOG2_E), k)


LOG2 = CorrectlyRounded(
    name="log2",
    reduce=reduced,
    coefficients=LOG.coefficients,
    restore=_log2_restore,
    settle=_log_settle,
)


def _log10_restore(b: Builder, x: Vector, r: Vector, p: Vector, kept: tuple[Vector, Vector, Vector]) -> Vector:
    """k * log10(2) + log(1 + f) * log10(e)."""
    k, f, s = kept
    log10 = b.mul(of_fraction(b, r, p, f, s), b.like(k, _LOG10_E))
    return b.fma(k, b.like(k, _LOG10_2), log10)


LOG10 = CorrectlyRounded(
    name="log10",
    reduce=reduced,
    coefficients=LOG.coefficients,
    restore=_log10_restore,
    settle=_log_settle,
    exceptions=((0x0EFEEE7A, 0xC1E99D23),),
)


def _log1p_reduce(b: Builder, x: Vector) -> tuple[Vector, tuple[Vector, Vector, Vector]]:
    """As `reduced` of 1 + x; where that is 1 + f, f is x, of which 1 + x may lose all bits.

    Elsewhere 1 + x is exact, or so large that what it loses does not matter.
    """
    _, (k, f, _) = reduced(b, b.add(x, b.like(x, 1.0)))
    f = b.select(b.equal(k, b.like(k, 0.0)), x, f)
    s = b.div(f, b.add(f, b.like(f, 2.0)))
    return b.mul(s, s), (k, f, s)


def _log1p_settle(b: Builder, x: Vector, result: Vector) -> Vector:
    """-inf for -1, NaN below it, infinity and zeros for themselves."""
    infinity, least = b.like(x, float("inf")), b.like(x, -1.0)
    edge = b.select(b.equal(x, least), b.neg(infinity), b.like(x, float("nan")))
    result = b.select(b.less(least, x), result, edge)
    return b.select(b.bit_or(b.equal(x, infinity), b.equal(x, b.like(x, 0.0))), x, result)


LOG1P = CorrectlyRounded(
    name="log1p",
    reduce=_log1p_reduce,
    coefficients=LOG.coefficients,
    restore=_log_restore,
    settle=_log1p_settle,
    exceptions=(
        (0x35400003, 0x353FFFFF),
        (0x3710001B, 0x370FFFF3),
        (0x3EFD81AD, 0x3ECDEEE1),
        (0x41078FEB, 0x400FE5E7),
        (0x65D890D3, 0x4254D1F9),
        (0x6F31A8EC, 0x42845A89),
        (0xB53FFFFD, 0xB5400001),
        (0xB70FFFE5, 0xB710000D),
        (0xBB0EC8C4, 0xBB0EF0A5),
    ),
)
