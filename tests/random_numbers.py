"""Random numbers without the package's arithmetic: words by Python's integers, floats by NumPy's, functions by MPFR.

Start at `numbers`.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import formats
import numpy as np

from samebits import dtypes
from samebits.conversions import Conversion
from samebits.dtypes import DType

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
import exhaustive

Array = np.ndarray[Any, Any]
_LOW = 0xFFFFFFFF


def word(seed: int, offset: int, index: int, number: int) -> int:
    """Which 32 bits numerics.md section 13 gives: the rounds of Philox4x32-10 as its paper draws them."""
    low, high = (index >> 2) + number * 2**62, offset | 1 << 63
    c, key = [low & _LOW, low >> 32, high & _LOW, high >> 32], [seed & _LOW, seed >> 32]
    for _ in range(10):
        x, y = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(y >> 32) ^ c[1] ^ key[0], y & _LOW, (x >> 32) ^ c[3] ^ key[1], x & _LOW]
        key = [(key[0] + 0x9E3779B9) & _LOW, (key[1] + 0xBB67AE85) & _LOW]
    return c[index & 3]


def numbers(
    distribution: str, dtype: DType, shape: Sequence[int], first: float, second: float, seed: int, offset: int
) -> Array:
    """The numbers; normal ones of float64 are none of these, as no function of theirs is correctly rounded."""
    wide = np.float64 if dtype is dtypes.float64 else np.float32
    x, y = (wide(float(np.asarray(each).astype(dtype.numpy))) for each in (first, second))
    found = []
    for i in range(int(np.prod(shape, dtype=np.int64))):
        if distribution == "uniform":
            if wide is np.float64:
                u = (word(seed, offset, i, 0) << 21 | word(seed, offset, i, 1) >> 11) / 2**53
            else:
                u = (word(seed, offset, i, 0) >> 8) / 2**24
            t = x + wide(u) * (y - x)
            found.append(np.nextafter(y, x) if t == y else t)
            continue
        a, b = (word(seed, offset, i, number) for number in (0, 1))
        # Both terms are multiples of 2^-33 below 2^1: their sum is a float64.
        v = np.float32(float(np.float32(a)) * 2.0**-32 + 2.0**-33)
        angle = np.float32((b >> 8) / 2**24) * np.uint32(0x40C90FDB).view(np.float32)
        z = np.sqrt(exhaustive.mpfr("log", v) * np.float32(-2)) * exhaustive.mpfr("cos", angle)
        found.append(x + y * z)
    made = np.array(found, wide).reshape(tuple(shape))
    if dtype.width_bits >= 32:
        return made
    how = Conversion("down" if distribution == "uniform" else "nearest_even")
    return formats.by(made.astype(np.float64), dtype, how, None).view(dtype.numpy)
