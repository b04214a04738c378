"""Correctly rounded float32 functions: one frozen row each, one emitter for all (numerics.md section 7).

A row evaluates in float64, where a polynomial's error of 2**-50 leaves few float32 results in doubt, and rounds once
at the end; that none of the 2**32 inputs is wrong is not argued but run (`make exhaustive`). Where a few inputs do come
out wrong, the row lists them as exceptions. The coefficients are printed by tools/fit_functions.py. Start at `emit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.frozen import dataclass

# Adding 3 * 2**51 to |x| < 2**51 rounds x to an integer and leaves it, in two's complement, in the low bits.
ROUNDER = float.fromhex("0x1.8p+52")
# The bits of a float64 that no float32 has, and what they are half-way between two.
_BELOW_FLOAT32, _MIDDLE = (1 << 29) - 1, 1 << 28


@dataclass(frozen=True, slots=True)
class CorrectlyRounded:
    """f(x) = round(restore(x, P(reduce(x)), kept)), all but the last rounding in float64.

    Attributes:
        name: The function.
        reduce: `(b, x)` to `(the polynomial's argument, whatever restore needs)`, float64 vectors.
        coefficients: Of P, the constant first, as hex floats.
        restore: `(b, x, r, p, kept)` to the result in float64.
        low: Below it f is f(low), by float32 rounding or because it has saturated; -inf where there is no such limit.
        high: Above it f is f(high), or infinity. NaN passes both limits.
        settle: `(b, x, result)`, float32 vectors, to the result: zeros, infinities and signs that arithmetic misses.
        chains: Independent chains that the polynomial is split into: a long one waits for its own results.
        exceptions: `(code of x, code of f(x))` where the float64 result rounds the wrong way. If there are more than
            three, it lies in the middle of two float32 at each of them, to which the true value is too close for
            float64: then they are looked for where a result does.
    """

    name: str
    reduce: Callable[[Builder, Vector], tuple[Vector, Any]]
    coefficients: tuple[str, ...]
    restore: Callable[[Builder, Vector, Vector, Vector, Any], Vector]
    low: float = -math.inf
    high: float = math.inf
    settle: Callable[[Builder, Vector, Vector], Vector] | None = None
    chains: int = 1
    exceptions: tuple[tuple[int, int], ...] = ()


def emit(b: Builder, row: CorrectlyRounded, x: Vector) -> Vector:
    """The row's function of float32 lanes, NaN canonical."""
    return b.canonical(computed(b, row, x))


def computed(b: Builder, row: CorrectlyRounded, x: Vector) -> Vector:
    """The row's function of float32 lanes, NaN of any code."""
    wide = b.convert(_clamped(b, row, x), dtypes.float64)
    r, kept = row.reduce(b, wide)
    p = polynomial(b, row.coefficients, r, row.chains)
    double = row.restore(b, wide, r, p, kept)
    result = _mend(b, row, x, double, b.convert(double, dtypes.float32))
    return row.settle(b, x, result) if row.settle else result


def _clamped(b: Builder, row: CorrectlyRounded, x: Vector) -> Vector:
    """x within the row's limits; as written, each select is one minimum or maximum instruction that passes on NaN."""
    low, high = (b.like(x, limit) for limit in (row.low, row.high))
    if row.high < math.inf:
        x = b.select(b.less(high, x), high, x)
    return b.select(b.less(x, low), low, x) if row.low > -math.inf else x


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


def _mend(b: Builder, row: CorrectlyRounded, x: Vector, double: Vector, result: Vector) -> Vector:
    """The listed results where x is one of the listed inputs."""
    if len(row.exceptions) <= 3:
        return _replaced(b, row, x, result)
    bits, mended = b.bitcast(double, dtypes.int64), [result]
    middle = b.equal(b.bit_and(bits, b.like(bits, _BELOW_FLOAT32)), b.like(bits, _MIDDLE))
    for _ in b.when(b.any(middle), mended):
        mended[0] = _replaced(b, row, x, mended[0])
    return mended[0]


def _replaced(b: Builder, row: CorrectlyRounded, x: Vector, result: Vector) -> Vector:
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


def signed(b: Builder, x: Vector, result: Vector) -> Vector:
    """The result with the sign of x: what settles an odd function that is positive where x is."""
    codes = b.bitcast(result, dtypes.int32)
    sign = b.bit_and(b.bitcast(x, dtypes.int32), b.like(codes, _signed(1 << 31)))
    return b.bitcast(b.bit_or(codes, sign), dtypes.float32)
