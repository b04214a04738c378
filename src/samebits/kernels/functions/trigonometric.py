"""Correctly rounded sine and cosine (numerics.md section 7). Start at `SIN`.

x is turned by n half turns to r, at most a quarter of a turn, of which one polynomial gives the sine; an odd n turns
the sign. Below 2**20 the product of n and pi in two parts is taken from x. Above, where the error of pi would be
multiplied, the half turns are the product of a whole number of 24 bits and a power of two over pi, from which an even
number of half turns was taken before it was written down in three parts (Payne and Hanek, 1983).
"""

from __future__ import annotations

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions.rounded import ROUNDER, CorrectlyRounded

_PI = tuple(float.fromhex(c) for c in ("0x1.921fb54442d18p+1", "0x1.1a62633145c07p-53"))
_PER_PI = float.fromhex("0x1.45f306dc9c883p-2")
# 1 / pi in units of 2**-1280: the exponents of float64 reach to 2**1024.
UNITS = 1280
PER_PI_UNITS = int(
    "517CC1B727220A94FE13ABE8FA9A6EE06DB14ACC9E21C820FF28B1D5EF5DE2B0DB92371D2126E9700324977504E8C90E7F0E"
    "F58E5894D39F74411AFA975DA24274CE38135A2FBF209CC8EB1CC1A99CFA4E422FC5DEFC941D8FFC4BFFEF02CC07F79788C5"
    "AD05368FB69B3F6793E584DBA7A31FB34F2FF516BA93DD63F5F2F8BD9E839CFBC529497535FDAFD88FC6AE842B0198237E3D"
    "B5D5F867DE104D7A1B0E"
    , 16
)  # fmt: skip
# From 2**20 on a float32 is reduced by the table: the exponents that it has an entry for.
_FAR = range(20, 128)
# What a float64 of 52 fraction bits, as bits, is made of.
_FRACTION, _SIGN = (1 << 52) - 1, -(1 << 63)
_WHOLE = (1023 + 23) << 52


def _parts(exponent: int) -> tuple[float, float, float]:
    """2**(exponent - 23) / pi less an even number, in parts: multiples of 2**-28, of 2**-57, and the rest.

    A whole number of 24 bits times either of the first two is exact in float64.
    """
    even = 2 << (UNITS + 23)
    rest = (PER_PI_UNITS << exponent) % even
    rest -= even if 2 * rest > even else 0
    parts = []
    for place in (28, 57):
        unit = 1 << (UNITS + 23 - place)
        count = (2 * rest + unit) // (2 * unit)
        parts.append(count / 2.0**place)
        rest -= count * unit
    return parts[0], parts[1], rest / (1 << (UNITS + 23))


_FAR_PARTS = tuple(zip(*(_parts(exponent) for exponent in _FAR), strict=True))


def _near(b: Builder, x: Vector, phase: float) -> tuple[Vector, Vector]:
    """x + phase * pi = n * pi + r: r, and n in the low bits of a float64.

    The first product is taken from x without an error, as it is a multiple of 2**-52 near x.
    """
    turns = b.mul(x, b.like(x, _PER_PI)) if not phase else b.fma(x, b.like(x, _PER_PI), b.like(x, phase))
    shifted = b.add(turns, b.like(x, ROUNDER))
    back = (
        b.sub(b.like(x, ROUNDER + phase), shifted)
        if not phase
        else b.sub(b.like(x, phase), b.sub(shifted, b.like(x, ROUNDER)))
    )
    r = b.fma(back, b.like(x, _PI[0]), x)
    return b.fma(back, b.like(x, _PI[1]), r), shifted


def _far(b: Builder, x: Vector, far: Vector, phase: float) -> tuple[Vector, Vector]:
    """As `_near`, of |x| from 2**20 on; anything in the other lanes."""
    bits = b.bitcast(x, dtypes.int64)
    exponent = b.sub(b.shift_right(b.bit_and(bits, b.like(bits, ~_SIGN)), 52), b.like(bits, 1023 + _FAR.start))
    place = b.convert(b.select(far, exponent, b.like(bits, 0)), dtypes.int32)
    first, second, third = (b.lookup(part, dtypes.float64, place) for part in _FAR_PARTS)
    whole = b.bitcast(b.bit_or(b.bit_and(bits, b.like(bits, _FRACTION)), b.like(bits, _WHOLE)), dtypes.float64)
    turns = b.add(b.mul(whole, first), b.like(x, phase))
    shifted = b.add(turns, b.like(x, ROUNDER))
    rest = b.add(turns, b.sub(b.like(x, ROUNDER), shifted))
    middle = b.mul(whole, second)
    high = b.add(rest, middle)
    total = b.fma(whole, third, high)
    lost = b.add(b.add(b.sub(rest, high), middle), b.fma(whole, third, b.sub(high, total)))
    r = b.fma(total, b.like(x, _PI[0]), b.fma(total, b.like(x, _PI[1]), b.mul(lost, b.like(x, _PI[0]))))
    if not phase:  # the sine is odd, the cosine even
        sign = b.bit_and(bits, b.like(bits, _SIGN))
        r = b.bitcast(b.bit_xor(b.bitcast(r, dtypes.int64), sign), dtypes.float64)
    return r, shifted


def _reduce(b: Builder, x: Vector, phase: float) -> tuple[Vector, tuple[Vector, Vector]]:
    """The square of r, and r and n as `_near` gives them; an infinity stays one there, and its r is NaN."""
    kept = list(_near(b, x, phase))
    size = b.abs(x)
    far = b.bit_and(b.less_equal(b.like(x, 2.0**_FAR.start), size), b.less(size, b.like(x, float("inf"))))
    for _ in b.when(b.any(far), kept):
        kept[:] = [b.select(far, y, n) for y, n in zip(_far(b, x, far, phase), kept, strict=True)]
    r, shifted = kept
    return b.mul(r, r), (r, shifted)


def _sin_reduce(b: Builder, x: Vector) -> tuple[Vector, tuple[Vector, Vector]]:
    """As `_reduce` without a phase."""
    return _reduce(b, x, 0.0)


def _cos_reduce(b: Builder, x: Vector) -> tuple[Vector, tuple[Vector, Vector]]:
    """The cosine of x is the sine of x and half a half turn."""
    return _reduce(b, x, 0.5)


def _restore(b: Builder, x: Vector, z: Vector, p: Vector, kept: tuple[Vector, Vector]) -> Vector:
    """r + r * z * p, its sign turned for an odd number of half turns."""
    r, shifted = kept
    sine = b.bitcast(b.fma(b.mul(r, z), p, r), dtypes.int64)
    odd = b.shift_left(b.bitcast(shifted, dtypes.int64), 63)
    return b.bitcast(b.bit_xor(sine, odd), dtypes.float64)


def _sin_settle(b: Builder, x: Vector, result: Vector) -> Vector:
    """A zero is its own sine."""
    return b.select(b.equal(x, b.like(x, 0.0)), x, result)


# (sin(r) / r - 1) / z in z = r * r, |r| <= pi / 2; relative error of the sine 2**-54.6.
_SINE = (
    "-0x1.5555555555555p-3",
    "0x1.1111111111107p-7",
    "-0x1.a01a01a018aacp-13",
    "0x1.71de3a54566a4p-19",
    "-0x1.ae6455a1d2859p-26",
    "0x1.61240159e8809p-33",
    "-0x1.ae513849999e2p-41",
    "0x1.89a47787e7d60p-49",
)

SIN = CorrectlyRounded(
    name="sin",
    reduce=_sin_reduce,
    coefficients=_SINE,
    restore=_restore,
    settle=_sin_settle,
    exceptions=(
        (0x46199998, 0xBEB1FA5D),
        (0xC6199998, 0x3EB1FA5D),
    ),
)

COS = CorrectlyRounded(
    name="cos",
    reduce=_cos_reduce,
    coefficients=_SINE,
    restore=_restore,
    exceptions=(
        (0x5F18B878, 0x3F7F14BB),
        (0x6115CB11, 0x3F78142F),
        (0x7908CD73, 0x3F798BB5),
        (0xDF18B878, 0x3F7F14BB),
        (0xE115CB11, 0x3F78142F),
        (0xF908CD73, 0x3F798BB5),
    ),
)
