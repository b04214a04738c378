"""Questions of a float's code: whether it is finite, its sign, and which number comes next (numerics.md section 7).

Start at `next_after`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.codegen.vocabulary import Builder, Vector
from samebits.dtypes import DType, bool_
from samebits.kernels import convert

Array = npt.NDArray[Any]


def is_finite(b: Builder, dtype: DType, x: Vector) -> Vector:
    """Whether x is neither infinite nor NaN."""
    return b.less(b.abs(x), b.like(x, float("inf")))


def is_infinite(b: Builder, dtype: DType, x: Vector) -> Vector:
    """Whether x is an infinity."""
    return b.equal(b.abs(x), b.like(x, float("inf")))


def sign_bit(b: Builder, dtype: DType, x: Vector) -> Vector:
    """Whether the sign bit of the code is set: of -0 and of a NaN too."""
    source: DType = x.dtype
    code = _code(b, x)
    return b.convert(b.bit_and(code, b.like(code, 1 << (source.width_bits - 1))), bool_)


def next_after(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    """The number beside x on the way to y; y itself where they are equal, NaN if one is."""
    code, goal = _code(b, x), _code(b, y)
    here, there = convert.number(b, x), convert.number(b, y)
    zero, one, top = b.like(here, 0.0), b.like(code, 1), 1 << (dtype.width_bits - 1)
    grows = b.invert(b.bit_xor(b.less(here, there), b.less(zero, here)))
    found = b.select(grows, b.add(code, one), b.sub(code, one))
    least = b.bit_or(b.bit_and(goal, b.like(code, top)), one)
    found = b.select(b.equal(here, zero), least, found)
    found = b.select(b.equal(here, there), goal, found)
    none = b.bit_or(b.is_nan(here), b.is_nan(there))
    return b.bitcast(b.select(none, b.like(code, dtype.canonical_nan or 0), found), dtype)


def next_by_order(dtype: DType, x: Array, y: Array) -> Array:
    """`next_after` by NumPy: a step in the order of the numbers, from whose places negative ones count down."""
    codes = np.dtype(f"i{x.dtype.itemsize}")
    lowest = np.iinfo(codes).min
    places = [np.where(v < 0, lowest - v, v) for v in (x.view(codes), y.view(codes))]
    step = places[0] + np.sign(y.astype(np.float64) - x.astype(np.float64)).astype(codes)
    down = np.signbit(x) & (step == 0)
    found = np.where((step < 0) | down, lowest - step, step).astype(codes).view(x.dtype)
    found = np.where(x == y, y, found)
    return np.where(np.isnan(x) | np.isnan(y), np.array(np.nan).astype(x.dtype), found)


def _code(b: Builder, x: Vector) -> Vector:
    """The bits of lanes of a float."""
    return b.bitcast(x, convert.unsigned(x.dtype))
