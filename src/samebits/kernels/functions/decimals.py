"""Independent meanings of the correctly rounded functions: a float64 estimate, decided by exact arithmetic near ties.

An estimate from the platform's float64 function rounds to the right float32 unless it lies within its own error of the
midpoint of two neighbours. Those few inputs are decided in 60 decimal digits. Start at `rounded`.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

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
