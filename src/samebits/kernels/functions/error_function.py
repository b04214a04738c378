"""The error function, correctly rounded (numerics.md section 7)."""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions.rounded import CorrectlyRounded

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
