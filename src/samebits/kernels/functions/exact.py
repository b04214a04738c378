"""Independent meanings of conversions: by value, in NumPy's arithmetic or in fractions. Start at `cast`.

Those of the correctly rounded functions are in `decimals`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes, ieee
from samebits.conversions import SB1, Conversion
from samebits.dtypes import DType

Array = npt.NDArray[Any]


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
    assert dtype.numpy is not None  # every format that operations give has a NumPy dtype
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


def quantize(x: Array, scale: Array, zero: Array) -> Array:
    """rint(x / scale), IEEE float32, plus zero, saturating in zero's dtype (an integer's); NaN gives zero."""
    limits = np.iinfo(zero.dtype)
    with np.errstate(all="ignore"):
        whole = np.rint(x / scale).astype(np.float64)
    total = np.where(np.isnan(whole), 0.0, whole) + zero.astype(np.float64)
    return np.asarray(np.clip(total, limits.min, limits.max).astype(zero.dtype))


def requantize_sum(acc: Array, bias: Array, s_a: Array, s_b: Array, s_y: Array, zero: Array) -> Array:
    """The same of acc + bias, added exactly."""
    return requantize(acc.astype(np.int64) + bias.astype(np.int64), s_a, s_b, s_y, zero)


def requantize(acc: Array, s_a: Array, s_b: Array, s_y: Array, zero: Array) -> Array:
    """acc * s_a * s_b / s_y, rounded once to nearest even, plus zero, saturating in zero's dtype (an integer's).

    Where that is no finite rational, what IEEE arithmetic makes of it: an infinity saturates, NaN gives zero.
    """
    from fractions import Fraction  # which a start does without

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
