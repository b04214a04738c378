"""Philox4x32-10: the random words of stochastic rounding and of random numbers, a function of a seed and of where an
element is.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): ten rounds of two 32-bit products on a counter
of four words, keyed by two. numerics.md says which word belongs to which element, in section 9 for roundings and in
section 13 for numbers. Start at `words`, the NumPy meaning; kernels have it as text in `kernels.words`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MULTIPLIERS", "ROUNDS", "WEYL", "block", "words"]

Array = npt.NDArray[Any]

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
# What the two words of the key grow by from one round to the next: the golden ratio and sqrt(3) - 1.
WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)


def words(seed: int, index: npt.ArrayLike, above: int = 0, number: int = 0) -> Array:
    """The uint32 word of each element: key = the seed, counter = index >> 2 plus number * 2**62 as 64 bits, then
    `above` as 64 bits; word = index & 3.

    Args:    seed: 0 <= seed < 2**64.   index: the elements' row-major logical indices.
             above: the upper half of the counters, 0 of roundings.   number: which word of each element, below 4.
    """
    index = np.asarray(index, np.uint64)
    low = (index >> np.uint64(2)) + np.uint64(number << 62)
    upper = [np.full_like(low, part) for part in (above & 0xFFFFFFFF, above >> 32)]
    found = block((low & _LOW, low >> np.uint64(32), upper[0], upper[1]), (seed & 0xFFFFFFFF, seed >> 32))
    return np.choose((index & np.uint64(3)).astype(np.intp), found).astype(np.uint32)


def block(counter: tuple[Array, Array, Array, Array], key: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
    """The four words of each counter; words are 32 bits in uint64."""
    a, b, c, d = counter
    first, second = (np.uint64(multiplier) for multiplier in MULTIPLIERS)
    for number in range(ROUNDS):
        keys = [(word + number * step) & 0xFFFFFFFF for word, step in zip(key, WEYL, strict=True)]
        x, y = a * first, c * second
        a, b, c, d = (
            (y >> np.uint64(32)) ^ b ^ np.uint64(keys[0]),
            y & _LOW,
            (x >> np.uint64(32)) ^ d ^ np.uint64(keys[1]),
            x & _LOW,
        )
    return a, b, c, d
