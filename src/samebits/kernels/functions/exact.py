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
from samebits.conversions import SB1, Conversion
from samebits.dtypes import DType

Array = npt.NDArray[Any]

# Eight ulps of float64: no libm's function errs by more than four.
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
        return high if abs(value) > abs(_middle(low, high)) else low


def _middle(low: float, high: float) -> Decimal:
    """The number half-way between two neighbours; to infinity, where the next float32 would have been."""
    ends = [math.copysign(2.0**128, v) if math.isinf(v) else v for v in (low, high)]
    return (Decimal(ends[0]) + Decimal(ends[1])) / 2


def widened(x: Array) -> Array:
    """x in NumPy's own arithmetic, exactly: float32 for narrower floats, int8 and uint8 for narrower integers."""
    dtype = dtypes.of(x.dtype)
    if dtype.width_bits < 8:  # what a byte has above the element means nothing
        x = (x.view(np.uint8) & np.uint8((1 << dtype.width_bits) - 1)).view(x.dtype)
    if dtype.is_float and dtype.width_bits < 32:
        wide = x.astype(np.float32)
        return ieee.canonical(wide) if dtype.nan == "negative_zero" else wide  # that NaN has no sign
    return x.astype(np.int8 if dtype.signed else np.uint8) if dtype.width_bits < 8 else x


def cast(dtype: DType, x: Array, conversion: Conversion = SB1, words: Array | None = None) -> Array:
    """x by value, as a conversion says (numerics.md section 9); what it would refuse becomes what `ieee` gives.

    Args:    words: a uint32 for each element, which stochastic rounding takes.
    """
    x = widened(x)
    assert dtype.numpy is not None  # what operations give has one
    if dtype.kind == "bool":
        return np.asarray(x != 0)
    if dtype.is_float:
        plain = dtype.width_bits >= 32 and conversion == SB1
        return np.asarray(
            x.astype(dtype.numpy) if plain else ieee.encode(x, dtype, conversion, words).view(dtype.numpy)
        )
    if x.dtype.kind == "f":
        x = _whole(dtype, x, conversion, words)
    elif conversion.overflow == "saturate":
        own = dtypes.of(x.dtype)
        limits = max(int(dtype.min), int(own.min)), min(int(dtype.max), int(own.max))
        x = np.minimum(np.maximum(x, x.dtype.type(limits[0])), x.dtype.type(limits[1]))
    if dtype.width_bits >= 8:
        return np.asarray(x.astype(dtype.numpy))
    code = x.astype(np.uint8) & np.uint8((1 << dtype.width_bits) - 1)
    return np.asarray(code).view(dtype.numpy)


def misfits(dtype: DType, x: Array, conversion: Conversion, words: Array | None = None) -> npt.NDArray[np.bool_]:
    """Which elements of x a conversion with `error` refuses: those without a value to stand for them in a format."""
    x = widened(x)
    if dtype.kind == "bool":
        return np.zeros(x.shape, np.bool_)
    nan, infinite = np.isnan(x), np.isinf(x)
    with np.errstate(all="ignore"):
        if dtype.is_float:
            values = ieee.numbers(x, dtype, conversion)
            over = ieee.rounded(values, dtype, conversion.rounding_to(dtype), words)[1]
            if not (dtype.signed or conversion.absolute):
                over = over | (values <= 0)
        elif x.dtype.kind == "f":
            whole = ieee.rounded_to_whole(
                np.where(nan | infinite, 0, x).astype(np.float64), conversion.rounding_to(dtype), words
            )
            over = (whole >= float(dtype.max) + 1) | (whole <= float(dtype.min) - 1)
        else:
            over = np.array([not dtype.min <= number <= dtype.max for number in x.ravel().tolist()], np.bool_)
            over = over.reshape(x.shape)
    over = np.where(infinite, conversion.inf == "overflow" and not dtype.has_infinity, over & ~nan)
    return np.asarray(over | (nan & (conversion.nan is None and dtype.canonical_nan is None)))


def _whole(dtype: DType, x: Array, conversion: Conversion, words: Array | None) -> Array:
    """Floats as int64 or uint64 within the limits of an integer format; NaN as its code."""
    nan = np.isnan(x) | (np.isinf(x) & (conversion.inf == "nan"))
    whole = ieee.rounded_to_whole(np.where(np.isnan(x), 0, x).astype(np.float64), conversion.rounding_to(dtype), words)
    # Next to 2**63 a float steps by more than one: these are the first numbers outside.
    above, below = whole >= float(dtype.max) + 1, whole <= float(dtype.min) - 1
    wide = np.dtype(np.int64 if dtype.signed else np.uint64)
    inside = np.where(above | below, 0, whole).astype(wide)
    found = np.where(above, wide.type(dtype.max), np.where(below, wide.type(dtype.min), inside))
    return np.where(nan, np.array(dtype.decode(conversion.nan_code(dtype)), wide), found)


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


def log(x: Array) -> Array:
    """The natural logarithm, correctly rounded to float32."""
    with np.errstate(all="ignore"):
        estimate = np.log(x.astype(np.float64))
    return rounded(x, estimate, Decimal.ln)


def log2(x: Array) -> Array:
    """The logarithm to base 2, correctly rounded to float32."""
    with np.errstate(all="ignore"):
        estimate = np.log2(x.astype(np.float64))
    return rounded(x, estimate, lambda value: value.ln() / Decimal(2).ln())


def log10(x: Array) -> Array:
    """The logarithm to base 10, correctly rounded to float32."""
    with np.errstate(all="ignore"):
        estimate = np.log10(x.astype(np.float64))
    return rounded(x, estimate, Decimal.log10)


def log1p(x: Array) -> Array:
    """log(1 + x), correctly rounded to float32."""
    with np.errstate(all="ignore"):
        estimate = np.log1p(x.astype(np.float64))
    return rounded(x, estimate, _log1p)


def exp2(x: Array) -> Array:
    """2**x, correctly rounded to float32."""
    with np.errstate(all="ignore"):
        estimate = np.exp2(x.astype(np.float64))
    return rounded(x, estimate, lambda value: (value * Decimal(2).ln()).exp())


def expm1(x: Array) -> Array:
    """e**x - 1, correctly rounded to float32."""
    with np.errstate(all="ignore"):
        estimate = np.expm1(x.astype(np.float64))
    return rounded(x, estimate, _expm1)


def tanh(x: Array) -> Array:
    """The hyperbolic tangent, correctly rounded to float32."""
    return rounded(x, np.tanh(x.astype(np.float64)), _tanh)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e**-x), correctly rounded to float32."""
    with np.errstate(all="ignore"):
        estimate = 1 / (1 + np.exp(-x.astype(np.float64)))
    return rounded(x, estimate, lambda value: 1 / (1 + (-value).exp()))


def sin(x: Array) -> Array:
    """The sine, correctly rounded to float32."""
    with np.errstate(all="ignore"):
        estimate = np.sin(x.astype(np.float64))
    return rounded(x, estimate, _sin)


def cos(x: Array) -> Array:
    """The cosine, correctly rounded to float32."""
    with np.errstate(all="ignore"):
        estimate = np.cos(x.astype(np.float64))
    return rounded(x, estimate, lambda value: _sin(value + _PI / 2))


def pow(x: Array, y: Array) -> Array:
    """x to the y, correctly rounded to float32; a number within 2**-200 of the middle of two is taken for it."""
    with np.errstate(all="ignore"):
        x, y = np.broadcast_arrays(x, y)
        estimate = np.power(x.astype(np.float64), y.astype(np.float64))
        low, high = ((estimate * (1 + d)).astype(np.float32) for d in (-_DOUBT, _DOUBT))
        result = np.array(estimate.astype(np.float32))
    for place in zip(*np.nonzero(np.atleast_1d((low != high) & np.isfinite(estimate))), strict=True):
        at = place if result.ndim else ()
        result[at] = _decide_power(low[at], high[at], abs(float(x[at])), float(y[at]))
    return result


def _decide_power(low: Any, high: Any, x: float, y: float) -> Any:
    """The one of two float32 neighbours that is nearest to x**y, or minus that; the even one in the middle."""
    with decimal.localcontext() as context:
        context.prec = 80
        difference = (Decimal(y) * Decimal(x).ln()).exp() / _middle(float(low), float(high)).copy_abs() - 1
        if abs(difference) < Decimal(2) ** -200:
            return low if low.view(np.uint32) % 2 == 0 else high
        return high if (difference > 0) == (abs(high) > abs(low)) else low


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


def _log1p(x: Decimal) -> Decimal:
    """log(1 + x) in as many digits as 1 + x has to have for x to keep its own."""
    with decimal.localcontext() as context:
        context.prec = _DIGITS + 50
        return (1 + x).ln()


def _expm1(x: Decimal) -> Decimal:
    with decimal.localcontext() as context:
        context.prec = _DIGITS + 50
        return x.exp() - 1


def _tanh(x: Decimal) -> Decimal:
    power = (2 * x).exp()
    return (power - 1) / (power + 1)


def _sin(x: Decimal) -> Decimal:
    """Maclaurin's series of what is left of x beside whole turns."""
    with decimal.localcontext() as context:
        context.prec = _DIGITS + 40  # x may have 39 digits before the point
        x -= (x / (2 * _PI)).to_integral_value() * 2 * _PI
    term, total, n = x, Decimal(0), 1
    while total + term != total:
        total += term
        term *= -x * x / ((n + 1) * (n + 2))
        n += 2
    return total


_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211707")
