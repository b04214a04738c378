"""Sine and cosine of float64 as kernel text: the sequence of operations that numerics.md section 7 writes.

Start at `sin`. As in `trigonometric`, x is turned by n half turns to r, at most a quarter of a turn; from 2**20 on by a
product with a power of two over pi, less an even number of half turns, here in four parts.
"""

from __future__ import annotations

import functools
from fractions import Fraction

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions import pairs, trigonometric
from samebits.kernels.functions.rounded import ROUNDER, polynomial

# pi and 1 / pi, and from where on the table is used.
PI = tuple(float.fromhex(c) for c in ("0x1.921fb54442d18p+1", "0x1.1a62633145c07p-53", "-0x1.f1976b7ed8fbcp-109"))
PER_PI = float.fromhex("0x1.45f306dc9c883p-2")
FAR = range(20, 1024)
SINE = trigonometric.SIN.coefficients
_FRACTION, _SIGN = (1 << 52) - 1, -(1 << 63)
_WHOLE = (1023 + 52) << 52


@functools.cache
def parts() -> tuple[tuple[float, ...], ...]:
    """For each exponent 2**(exponent - 52) / pi less an even number, as a sum of four float64."""
    entries = []
    for exponent in FAR:
        even = 2 << (trigonometric.UNITS + 52)
        rest = (trigonometric.PER_PI_UNITS << exponent) % even
        rest -= even if 2 * rest > even else 0
        found = []
        for _ in range(4):
            found.append(rest / (1 << (trigonometric.UNITS + 52)))
            rest -= int(Fraction(found[-1]) * (1 << (trigonometric.UNITS + 52)))
        entries.append(found)
    return tuple(zip(*entries, strict=True))


def _near(b: Builder, x: Vector, phase: float) -> tuple[Vector, Vector]:
    """x / pi + phase = n + r / pi: r and n."""
    n = b.rint(b.fma(x, b.like(x, PER_PI), b.like(x, phase)))
    back, r = b.sub(b.like(x, phase), n), x
    for part in PI:
        r = b.fma(back, b.like(x, part), r)
    return r, n


def _far(b: Builder, x: Vector, far: Vector, phase: float) -> tuple[Vector, Vector]:
    """As `_near`, of the lanes that are far; n by its parity."""
    bits = b.bitcast(b.abs(x), dtypes.int64)
    exponent = b.sub(b.shift_right(bits, 52), b.like(bits, 1023 + FAR.start))
    place = b.convert(b.select(far, exponent, b.like(bits, 0)), dtypes.int32)
    per_pi = [b.lookup(part, dtypes.float64, place) for part in parts()]
    whole = b.bitcast(b.bit_or(b.bit_and(bits, b.like(bits, _FRACTION)), b.like(bits, _WHOLE)), dtypes.float64)
    products = [b.mul(whole, part) for part in per_pi]
    lost = [b.fma(whole, part, b.neg(p)) for part, p in zip(per_pi, products, strict=True)]
    n = b.rint(products[0])
    high, low = b.add(b.sub(products[0], n), b.like(x, phase)), b.like(x, 0.0)
    for term in (lost[0], products[1], lost[1], products[2], lost[2], products[3]):
        high, error = pairs.sum_of(b, high, term)
        low = b.add(low, error)
    more = b.rint(high)
    high, low = pairs.sum_of(b, b.sub(high, more), low)
    r = b.fma(high, b.like(x, PI[0]), b.fma(high, b.like(x, PI[1]), b.mul(low, b.like(x, PI[0]))))
    if not phase:  # the sine is odd, the cosine even
        sign = b.bit_and(b.bitcast(x, dtypes.int64), b.like(bits, _SIGN))
        r = b.bitcast(b.bit_xor(b.bitcast(r, dtypes.int64), sign), dtypes.float64)
    half = b.mul(n, b.like(n, 0.5))
    return r, b.add(b.mul(b.sub(half, b.rint(half)), b.like(n, 2.0)), more)


def _turned(b: Builder, x: Vector, phase: float) -> Vector:
    """r + r * z * P(z), z = r * r, its sign turned if n is odd."""
    kept = list(_near(b, x, phase))
    size = b.abs(x)
    far = b.bit_and(b.less_equal(b.like(x, 2.0**FAR.start), size), b.less(size, b.like(x, float("inf"))))
    for _ in b.when(b.any(far), kept):
        kept[:] = [b.select(far, y, n) for y, n in zip(_far(b, x, far, phase), kept, strict=True)]
    r, n = kept
    z = b.mul(r, r)
    found = b.fma(b.mul(r, z), polynomial(b, SINE, z), r)
    odd = b.shift_left(b.bitcast(b.add(n, b.like(n, ROUNDER)), dtypes.int64), 63)
    return b.bitcast(b.bit_xor(b.bitcast(found, dtypes.int64), odd), dtypes.float64)


def sin(b: Builder, x: Vector) -> Vector:
    return b.select(b.less(b.abs(x), b.like(x, 2.0**-27)), x, _turned(b, x, 0.0))


def cos(b: Builder, x: Vector) -> Vector:
    return _turned(b, x, 0.5)
