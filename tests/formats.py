"""The values of every float format that kernels see as codes, and the code of the value that is nearest to a number.

Everything is found among the sorted values that `DType.decode` gives; nothing is computed as the sources do.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.conversions import INFINITIES, ROUNDINGS, Conversion
from samebits.dtypes import DType

Array = np.ndarray[Any, Any]
FORMATS = tuple(row for row in dtypes.ROWS if row.is_float and row.width_bits < 32)
CERTAIN = tuple(rounding for rounding in ROUNDINGS if rounding != "stochastic")


def every_code(dtype: DType, above: bool = False) -> Array:
    """All codes; those of a format narrower than a byte with whatever `above` the element too."""
    width = max(dtype.width_bits, 8)
    return np.arange(1 << (width if above else dtype.width_bits)).astype(f"u{width // 8}").view(dtype.numpy)


@functools.cache
def magnitudes(dtype: DType) -> Array:
    """The finite values that are not negative, ascending: code i is value i."""
    codes = range(1 << (dtype.width_bits - dtype.signed))
    return np.array([v for v in map(dtype.decode, codes) if np.isfinite(v)])


@functools.cache
def midpoints(dtype: DType) -> Array:
    """Half way from each to the next, and from the largest to what would follow it; exact in float64."""
    found = magnitudes(dtype)
    # Formats of powers of two have no largest step but that to the next power.
    last = found[-1] + (found[-1] - found[-2]) / 2 if dtype.has_zero else 1.5 * found[-1]
    return np.append((found[:-1] + found[1:]) / 2, last)


def nearest(x: Array, dtype: DType, saturates: bool = False) -> Array:
    """The code of float64 numbers, found among the midpoints."""
    middles, top = midpoints(dtype), len(magnitudes(dtype)) - 1
    size = np.abs(x)
    below = np.searchsorted(middles, size, "left")
    tie = middles[np.minimum(below, top)] == size
    up = below % 2 == 1 if dtype.has_zero else np.ones(x.shape, bool)
    code = below + (tie & up)
    over, nan = code > top, np.isnan(x)
    code = np.minimum(code, top)
    if saturates:
        over &= False
    lost = dtype.canonical_nan or 0
    if dtype.has_infinity:
        code = np.where(over, top + 1, code)
    if not dtype.signed:
        nan = nan | ((x <= 0) & (not saturates))
        code = np.where(x <= 0, 0, code)
    elif dtype.has_negative_zero:
        code |= np.signbit(x).astype(np.int64) << dtype.width_bits - 1
    else:
        code = np.where(np.signbit(x) & (code != 0), code | 1 << dtype.width_bits - 1, code)
    if not dtype.has_infinity and dtype.canonical_nan is not None:
        nan = nan | over
    return np.where(nan, lost, code).astype(f"u{max(dtype.width_bits, 8) // 8}")


def by(x: Array, dtype: DType, how: Conversion, words: Array | None = None) -> Array:
    """The code of float64 numbers by a conversion without `via`, found among the values of a format.

    `error` gives what `ieee` does; float32 and float64 have too many values to be listed.
    """
    values = magnitudes(dtype)
    beyond = 2 * values[-1] - values[-2] if dtype.has_zero else 2 * values[-1]
    steps = np.append(values, beyond)
    size, negative, top = np.abs(x), np.signbit(x), len(values) - 1
    low = np.clip(np.searchsorted(steps, size, "right") - 1, 0, top)
    with np.errstate(all="ignore"):
        part = np.clip((size - steps[low]) / (steps[low + 1] - steps[low]), 0, 1)
    rounding = how.rounding_to(dtype)
    drawn = np.zeros(x.shape) if words is None else words
    nearer = part > 0.5
    away = {
        "nearest_even": nearer | ((part == 0.5) & (low % 2 == 1 if dtype.has_zero else True)),
        "nearest_away": nearer | (part == 0.5),
        "toward_zero": part < 0,
        "up": (part > 0) & ~negative,
        "down": (part > 0) & negative,
        "stochastic": np.floor(np.where(part < 1, part, 0) * 2.0**32) > drawn,
    }[rounding]
    over = (low + away > top) | (size >= beyond)
    code = np.where(over, top, np.minimum(low + away, top))
    infinite, nan = np.isinf(x), np.isnan(x)
    inward = (rounding == "toward_zero") | ((rounding == "up") & negative) | ((rounding == "down") & ~negative)
    held = np.where(infinite, how.infinity() == "saturate", (how.overflow == "saturate") | inward)
    lost = over & ~held
    if not dtype.signed:
        code = np.where(x <= 0, 0, code)
        kept = np.where(infinite, how.infinity() == "saturate", how.overflow == "saturate")
        lost = np.where(x <= 0, ~kept, lost)
    if dtype.has_infinity:
        code = np.where(lost, top + 1, code)
    if dtype.signed:
        signed = code | negative.astype(np.int64) << dtype.width_bits - 1
        code = signed if dtype.has_negative_zero else np.where(code == 0, 0, signed)
    if not dtype.has_infinity and dtype.canonical_nan is not None:
        code = np.where(lost, dtype.canonical_nan, code)
    nan = nan | (infinite & (how.inf == "nan"))
    becomes = (dtype.canonical_nan or 0) if how.nan is None else how.nan
    sign = how.nan_sign == "always" and dtype.signed and dtype.nan != "negative_zero"
    lost_sign = how.nan_sign != "never" and dtype.signed and dtype.nan == "all_ones"
    turned = negative.astype(np.int64) << dtype.width_bits - 1
    if lost_sign:
        code = np.where(lost & ~nan, code ^ turned, code)
    return np.where(nan, becomes ^ turned * sign, code).astype(f"u{max(dtype.width_bits, 8) // 8}")


def every_conversion(dtype: DType) -> list[Conversion]:
    """Every certain rounding with every overflow, and every rule for infinities and NaN with some of them."""
    found = [Conversion(rounding, overflow) for rounding in CERTAIN for overflow in ("ieee", "saturate")]
    top = (1 << dtype.width_bits) - 1
    for inf, (rounding, overflow) in itertools.product(
        INFINITIES[1:], (("nearest_even", "saturate"), ("toward_zero", "ieee"), ("up", "ieee"))
    ):
        found.append(Conversion(rounding, overflow, nan=top // 3, inf=inf))
    found.append(Conversion(nan_sign="always"))
    found.append(Conversion("down", nan_sign="overflow"))
    return found
