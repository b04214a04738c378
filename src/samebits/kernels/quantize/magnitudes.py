"""Largest magnitudes as kernel text: of each of several blocks at once, and of everything.

Without their signs, the codes of a float format are in the order of its magnitudes, with infinity above all numbers and
NaN above that. So a largest magnitude is the largest code, an integer; it is decoded once. Start at `of_blocks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType, float32
from samebits.kernels import convert

Part = Literal["both", "positive", "negative"]
"""Of which numbers magnitudes are looked at."""

_CODES = {16: dtypes.uint16, 32: dtypes.uint32}
_SIGNED = {16: dtypes.int16, 32: dtypes.int32}
# Vectors within which lanes change places fastest have this many bits on every machine.
_SEGMENT_BITS = 128


def codes_of(dtype: DType) -> DType:
    """The unsigned integers that the magnitudes of a float format are compared as."""
    return _CODES[dtype.width_bits]


def load(b: Builder, x: Pointer, i: Index, width: int, part: Part = "both") -> Vector:
    """The codes of the magnitudes of elements i .. i+width-1."""
    dtype: DType = x.dtype
    code = b.load(b.cast(x, codes_of(dtype)), i, width)
    return without_sign(b, code, dtype, part)


def without_sign(b: Builder, code: Vector, dtype: DType, part: Part = "both", finite: bool = False) -> Vector:
    """Codes of a float format without their signs, 0 of what is of the other sign than `part`.

    Args:    finite: whether those of infinities and NaN are 0 too.
    """
    sign = 1 << (dtype.width_bits - 1)
    if part == "both":
        code = b.bit_and(code, b.like(code, sign - 1))
    else:
        turned = code if part == "positive" else b.bit_xor(code, b.like(code, sign))
        signed = b.bitcast(turned, _SIGNED[dtype.width_bits])
        code = b.bitcast(b.maximum(signed, b.like(signed, 0)), code.dtype)
    if not finite:
        return code
    infinity = b.like(code, sign - (1 << dtype.mantissa_bits))
    return b.select(b.less(code, infinity), code, b.like(code, 0))


def number(b: Builder, code: Vector, dtype: DType) -> Vector:
    """The magnitude as float32, NaN canonical."""
    if dtype is float32:
        return b.canonical(b.bitcast(code, float32))
    return b.canonical(convert.decode(b, code, dtype))


def of_blocks(b: Builder, x: Pointer, i: Index, along: int, width: int, part: Part = "both") -> Vector:
    """For `width` blocks of `along` elements from position i on, the code of the largest magnitude of each.

    `width` and `along` are powers of two, and `along` is the larger one or the same.
    """
    rows = []
    for block in range(width):
        first, *others = (load(b, x, i + (block * along + k), width, part) for k in range(0, along, width))
        for other in others:
            first = b.maximum(first, other)
        rows.append(first)
    return _folded(b, rows)


def _folded(b: Builder, rows: Sequence[Vector]) -> Vector:
    """Lane k: the largest lane of row k. Two vectors become one, which has the larger of two lanes of each block."""
    width = len(rows)
    found = [(row, [k] * width) for k, row in enumerate(rows)]
    segment = max(1, _SEGMENT_BITS // rows[0].dtype.width_bits)
    run = width
    while run > 1:
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [_halved(b, first, second, run, segment) for first, second in pairs]
        run //= 2
    ((folded, owners),) = found
    return b.pick([folded], [owners.index(k) for k in range(width)])


_Owned = tuple[Vector, list[int]]


def _halved(b: Builder, first: _Owned, second: _Owned, run: int, segment: int) -> _Owned:
    """The larger of the first and second half of each run of lanes, of both vectors side by side.

    Lanes are placed so that a machine has one instruction for it: halves of vectors, or within segments of them.
    """
    (x, of_x), (y, of_y) = first, second
    width = len(of_x)
    window = width if run > segment else min(segment, width)
    if run == 2:
        window = 2
    low, high = list[int](), list[int]()
    for start in range(0, width, window):
        for whole in (0, width):
            for at in range(start, start + window, run):
                low += range(whole + at, whole + at + run // 2)
                high += range(whole + at + run // 2, whole + at + run)
    owners = [*of_x, *of_y]
    return b.maximum(b.pick([x, y], low), b.pick([x, y], high)), [owners[k] for k in low]
