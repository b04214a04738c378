"""Codes of float4_e2m1fn of two elements at a time, in the halves of a lane, by one lookup. Start at `codes`.

The sum of a scaled magnitude below 8 and a number whose ulp is 2^-13 has it as a whole number of such steps in its
lowest 16 bits. Of that number the highest five bits name one of 32 stretches, in each of which the code turns at most
once, at its beginning; so what a table has of a stretch is added, and the code is in the bits above the twelve lowest.
"""

from __future__ import annotations

import functools

from samebits.codegen.vocabulary import Builder, Vector
from samebits.dtypes import uint32

# Scaled magnitudes are below this: 32 stretches of a quarter, less what a product may err by. No number of 16 bits that
# is below 8 is above it.
LIMIT = 8 - 2.0**-10
# A number whose ulp is 2^-13.
_FIXED = 1.5 * 2**10
_STRETCH, _STEP = 1 << 11, 1 << 12
# Quarters at which codes 1 to 7 begin, and whether those of even fraction, which take the tie, are above.
_TURNS = ((1, False), (3, True), (5, False), (7, True), (10, False), (14, True), (20, False))
# Above codes, so that nothing is ever taken away by the table.
_ABOVE = 1 << 15


@functools.cache
def _table() -> tuple[int, ...]:
    """What is added in each stretch."""
    found = []
    for k in range(32):
        code = sum(turn <= k for turn, _ in _TURNS)
        above = dict(_TURNS).get(k)
        behind = _STRETCH if above is None else 0 if above else -1
        found.append(_ABOVE + code * _STEP + behind - k * _STRETCH)
    return tuple(found)


def codes(b: Builder, even: Vector, odd: Vector, signs: Vector, by: tuple[Vector, Vector]) -> Vector:
    """Codes of pairs of elements in the lowest bits of lanes.

    Args:
        even, odd: their magnitudes.
        signs: of even elements in the highest bit of low halves, of odd ones in that of high halves.
        by: factors of even and of odd ones, by which products are below `LIMIT` and where they are due to be ties are
            wrong by less than 2^-14, elsewhere by less than their distance from a tie less that.
    """
    low, high = (
        b.bitcast(b.fma(x, factor, b.like(x, _FIXED)), uint32) for x, factor in zip((even, odd), by, strict=True)
    )
    steps = chosen(b, 0xFFFF, low, b.shift_left(high, 16))
    found = b.add(steps, b.lookup_halves(_table(), b.shift_right(steps, _STRETCH.bit_length() - 1)))
    found = chosen(b, 0x7FFF7FFF, found, signs)
    return chosen(b, 15, b.shift_right(found, 12), b.shift_right(found, 24))


def chosen(b: Builder, mask: int, x: Vector, y: Vector) -> Vector:
    """Bits of x where the mask has them, else of y."""
    return b.bit_or(b.bit_and(x, b.like(x, mask)), b.bit_and(y, b.like(y, 0xFFFFFFFF ^ mask)))


def is_within(b: Builder, amax: Vector, factor: Vector, divides: bool) -> Vector:
    """A mask of blocks whose scaled magnitudes are below the limit, by their largest and their factor."""
    limit = b.like(amax, LIMIT)
    return b.less(amax, b.mul(limit, factor)) if divides else b.less(b.mul(amax, factor), limit)
