"""The values of every float format that kernels see as codes, and the code of the value that is nearest to a number.

Everything is found among the sorted values that `DType.decode` gives; nothing is computed as the sources do.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType

Array = np.ndarray[Any, Any]
FORMATS = tuple(row for row in dtypes.ROWS if row.is_float and row.width_bits < 32)


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
