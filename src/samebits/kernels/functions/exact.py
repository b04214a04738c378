"""Independent meanings of the correctly rounded functions: a float64 estimate, decided by exact arithmetic near ties.

An estimate from the platform's float64 function rounds to the right float32 unless it lies within its own error of the
midpoint of two neighbours. Those few inputs are decided in 60 decimal digits. `requantize` is in fractions throughout.
Start at `rounded`.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes, ieee
from samebits.dtypes import DType

Array = npt.NDArray[Any]

# Eight ulps of float64: no libm's exp or erf errs by more than one.
_DOUBT = 2.0**-49
_DIGITS = 60


def rounded(x: Array, estimate: Array, exact: Callable[[Decimal], Decimal]) -> Array:
    """float32(exact(x)), given a float64 estimate of it within 2**-49."""
    with np.errstate(all="ignore"):
        low = (estimate * (1 - _DOUBT)).astype(np.float32)
        high = (estimate * (1 + _DOUBT)).astype(np.float32)
        result = np.array(estimate.astype(np.float32))
    for place in zip(*np.nonzero(np.atleast_1d((low != high) & np.isfinite(estimate))), strict=True):
        at = place if result.ndim else ()
        result[at] = _decide(float(low[at]), float(high[at]), x[at], exact)
    return result


def _decide(low: float, high: float, x: float, exact: Callable[[Decimal], Decimal]) -> float:
    """The one of two float32 neighbours that is nearest to exact(x)."""
    with decimal.localcontext() as context:
        context.prec = _DIGITS
        value = exact(Decimal(float(x)))
        # Halfway to infinity is where the next float32 would have been, had there been one.
        ends = [math.copysign(2.0**128, v) if math.isinf(v) else v for v in (low, high)]
        middle = (Decimal(ends[0]) + Decimal(ends[1])) / 2
        return high if abs(value) > abs(middle) else low


def widened(x: Array) -> Array:
    """x in NumPy's own arithmetic, exactly: float32 for narrower floats, int8 and uint8 for narrower integers."""
    dtype = dtypes.of(x.dtype)
    if dtype.width_bits < 8:  # what a byte has above the element means nothing
        x = (x.view(np.uint8) & np.uint8((1 << dtype.width_bits) - 1)).view(x.dtype)
    if dtype.is_float and dtype.width_bits < 32:
        return x.astype(np.float32)
    return x.astype(np.int8 if dtype.signed else np.uint8) if dtype.width_bits < 8 else x


def cast(dtype: DType, x: Array) -> Array:
    """x by value: to floats rounded once, from floats to integers toward zero and saturating, NaN giving 0; integers
    wrap."""
    x = widened(x)
    assert dtype.numpy is not None  # what operations give has one
    if dtype.kind == "bool":
        return np.asarray(x != 0)
    if dtype.is_float:
        return np.asarray(x.astype(dtype.numpy) if dtype.width_bits >= 32 else ieee.encode(x, dtype).view(dtype.numpy))
    if x.dtype.kind == "f":
        x = _truncated(dtype, x)
    if dtype.width_bits >= 8:
        return np.asarray(x.astype(dtype.numpy))
    code = x.astype(np.uint8) & np.uint8((1 << dtype.width_bits) - 1)
    return np.asarray(code).view(dtype.numpy)


def saturating_cast(dtype: DType, x: Array) -> Array:
    """As `cast`, but what is beyond the values of a float narrower than float32 becomes its largest or least."""
    found, x = cast(dtype, x), widened(x)
    if dtype.is_float and dtype.width_bits < 32:
        for beyond, limit in ((x > dtype.max, dtype.max), (x < dtype.min, dtype.min)):
            found = np.where(beyond, np.array(limit, np.float32).astype(dtype.numpy), found)
    return found


def _truncated(dtype: DType, x: Array) -> Array:
    """Floats as int64 or uint64 within the limits of an integer format: toward zero, saturating, 0 for NaN."""
    whole = np.trunc(np.where(np.isnan(x), 0, x)).astype(np.float64)
    # Next to 2**63 a float steps by more than one: these are the first numbers outside.
    above, below = whole >= float(dtype.max) + 1, whole <= float(dtype.min) - 1
    wide = np.dtype(np.int64 if dtype.signed else np.uint64)
    inside = np.where(above | below, 0, whole).astype(wide)
    return np.where(above, wide.type(dtype.max), np.where(below, wide.type(dtype.min), inside))


def exp(x: Array) -> Array:
    """e**x, correctly rounded to float32."""
    with np.errstate(all="ignore"):
        estimate = np.exp(x.astype(np.float64))
    return rounded(x, estimate, Decimal.exp)


def erf(x: Array) -> Array:
    """2 / sqrt(pi) * integral of exp(-t * t) from 0 to x, correctly rounded to float32."""
    wide = x.astype(np.float64)
    estimate = np.fromiter(map(math.erf, wide.ravel()), np.float64, wide.size).reshape(wide.shape)
    return rounded(x, estimate, _erf)


def quantize(x: Array, scale: Array, zero: Array) -> Array:
    """rint(x / scale), IEEE float32, plus zero, saturating in zero's dtype (an integer's); NaN gives zero."""
    limits = np.iinfo(zero.dtype)
    with np.errstate(all="ignore"):
        whole = np.rint(x / scale).astype(np.float64)
    total = np.where(np.isnan(whole), 0.0, whole) + zero.astype(np.float64)
    return np.asarray(np.clip(total, limits.min, limits.max).astype(zero.dtype))


def requantize(acc: Array, s_a: Array, s_b: Array, s_y: Array, zero: Array) -> Array:
    """acc * s_a * s_b / s_y, rounded once to nearest even, plus zero, saturating in zero's dtype (an integer's).

    Where that is no finite rational, what IEEE arithmetic makes of it: an infinity saturates, NaN gives zero.
    """
    limits = np.iinfo(zero.dtype)

    def one(n: Any, a: Any, b: Any, y: Any, z: Any) -> int:
        if math.isfinite(a) and math.isfinite(b) and math.isfinite(y) and y:
            whole = round(Fraction(int(n)) * Fraction(a) * Fraction(b) / Fraction(y))
        else:
            ratio = np.float64(n) * np.float64(a) * np.float64(b) / np.float64(y)
            whole = 0 if np.isnan(ratio) else int(np.clip(ratio, -1024, 1024))
        return min(max(whole + int(z), limits.min), limits.max)

    with np.errstate(all="ignore"):
        arrays = np.broadcast_arrays(acc, s_a, s_b, s_y, zero)
        found = [one(*values) for values in zip(*(x.ravel().tolist() for x in arrays), strict=True)]
    return np.array(found, zero.dtype).reshape(arrays[0].shape)


def _erf(x: Decimal) -> Decimal:
    """Maclaurin's series, summed until the terms are below the precision; |x| < 4 wherever erf is in doubt."""
    term, total, n = x, Decimal(0), 0
    while total + term / (2 * n + 1) != total:
        total += term / (2 * n + 1)
        n += 1
        term *= -x * x / n
    return total * 2 / _PI.sqrt()


_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211707")
