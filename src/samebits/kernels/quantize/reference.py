"""What quantising means, by NumPy: slow, and independent of kernels. Start at `quantize`, then `dequantize`.

Everything is in float32, one rounding an operation (numerics.md section 9).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes, elements, ieee
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels import values
from samebits.kernels.functions import exact
from samebits.kernels.quantize.blocks import Blocking
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat
from samebits.kernels.quantize.formulas import ElementRule, Formulas, Nan

__all__ = ["StoredParts", "codes", "dequantize", "quantize", "scaled"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class StoredParts:
    """What is stored of x.

    Attributes:
        elements: Code points [*x.shape].
        scales: Elements of the format's scale dtype, one a block.
        global_scale: float32 [] or one a line; None without.
        zero_points: Of the format's zero point dtype, one a block; None without.
    """

    elements: Array
    scales: Array
    global_scale: Array | None = None
    zero_points: Array | None = None


def quantize(
    x: Array,
    row: BlockFormat,
    dialect: Dialect,
    axis: int = -1,
    global_scale: Array | None = None,
    *,
    line: bool = False,
) -> StoredParts:
    """The stored parts of x by a dialect.

    Args:
        x: float32, bfloat16 or float16.
        axis: That of the blocks, -1 or -2.
        global_scale: As the dialect keeps it: float32 [], or one a line; None for that of x.
        line: Find one for each line along the axis, not one for everything.
    """
    formulas = dialect.formulas(row, dtypes.of(x.dtype))
    numbers = exact.widened(x)
    blocks = Blocking(row, x.shape, axis)
    if formulas.whole is not None and global_scale is None:
        over = axis if line else None
        global_scale = values.reference(formulas.whole, amax(numbers, over, formulas.whole_nan))[0]
    unit: list[Array] = []
    if global_scale is not None:
        unit = [per_block(global_scale, blocks)]
    split = blocks.split(numbers)
    given = [*statistics(split, blocks.within, formulas), *unit]
    found = values.reference(formulas.scale, given)
    shape = tuple(np.delete(split.shape, blocks.within))
    scales = [np.broadcast_to(s, shape).copy() for s in found]
    (factor,) = values.reference(formulas.factor, [scales[0], *given])
    y = scaled(split, blocks.spread(np.broadcast_to(factor, shape)), formulas.element)
    (nan,) = values.reference(formulas.nan, [scales[0], *given])
    zero = blocks.spread(scales[1]) if len(scales) > 1 else None
    found_codes = np.where(
        np.isnan(y), blocks.spread(np.broadcast_to(nan, shape)), codes(y, row, formulas.element, zero)
    )
    elements_ = blocks.joined(found_codes.astype(np.uint8))
    return StoredParts(elements_, scales[0], global_scale, scales[1] if len(scales) > 1 else None)


def per_block(global_scale: Array, blocks: Blocking) -> Array:
    """A global scale in the shape that broadcasts against scales: one of a line is that of all blocks in it."""
    return np.asarray(global_scale, np.float32)


def amax(x: Array, axis: int | None, nan: Nan) -> list[Array]:
    """The largest magnitude of x, of all of it or of each line along an axis; +0 of nothing."""
    magnitude = np.abs(x)
    if nan == "finite":
        magnitude = np.where(np.isfinite(magnitude), magnitude, np.float32(0))
    return [ieee.canonical(np.max(magnitude, axis=axis, keepdims=axis is not None, initial=0))]


def statistics(split: Array, within: tuple[int, ...], formulas: Formulas) -> list[Array]:
    """What the formulas are given of each block."""
    if formulas.statistic == "amax":
        return [ieee.canonical(np.max(np.abs(split), axis=within, initial=0))]
    return [ieee.canonical(found(split, axis=within)) for found in (np.min, np.max)]


def scaled(x: Array, factor: Array, rule: ElementRule) -> Array:
    """x * factor or x / factor, one rounding, and another where the rule says so."""
    with np.errstate(all="ignore"):
        found = ieee.canonical(x * factor if rule.apply == "multiply" else x / factor)
    return exact.widened(exact.cast(rule.within, found))


def codes(y: Array, row: BlockFormat, rule: ElementRule, zero: Array | None = None) -> Array:
    """The code of each scaled number y; of NaN it means nothing."""
    element = row.element
    if row.codebook is not None:
        return _nearest_in(np.asarray(row.codebook, np.float64), y)
    if element.is_integer:
        return _integers(y, element, zero)
    with np.errstate(all="ignore"):
        found = ieee.encode(np.clip(y, element.min, element.max), element)
        if rule.ties == "zero":
            found = _ties_to_zero(found, y, element)
    sign = np.uint8(1 << (element.width_bits - 1))
    if rule.zero == "unsigned":
        found = np.where(found == sign, 0, found)
    elif rule.zero != "kept":
        found = np.where(y == 0, found & ~sign | (sign if rule.zero == "negative" else 0), found)
    return found.astype(np.uint8)


def _integers(y: Array, element: DType, zero: Array | None) -> Array:
    """Codes of the nearest integers, ties to even, plus the zero point, within those that there are."""
    with np.errstate(all="ignore"):
        if zero is not None and zero.dtype == np.float32:
            y, zero = y + zero, None
        found = np.rint(y).astype(np.float64) + (0 if zero is None else zero.astype(np.float64))
        found = np.where(np.isnan(found), 0, np.clip(found, element.min, element.max))
    return (found.astype(np.int16) & ((1 << element.width_bits) - 1)).astype(np.uint8)


def _nearest_in(book: Array, y: Array) -> Array:
    """The code of the value of an ascending code book that is nearest, the smaller of two as near."""
    middles = (book[1:] + book[:-1]) / 2
    return np.searchsorted(middles, y.astype(np.float64), side="left").astype(np.uint8)


def _ties_to_zero(found: Array, y: Array, element: DType) -> Array:
    """Codes, of which one that a tie raised is lowered again."""
    magnitude = found & np.uint8((1 << (element.width_bits - 1)) - 1)
    lower = np.maximum(magnitude, 1) - np.uint8(1)
    above, below = (elements.decode(c, element).astype(np.float64) for c in (magnitude, lower))
    tie = (above + below) / 2 == np.abs(y).astype(np.float64)
    return np.where(tie & (magnitude > 0), found - np.uint8(1), found)


def dequantize(parts: StoredParts, row: BlockFormat, divides: bool = False, axis: int = -1) -> Array:
    """element * scale, then times the global scale, or over it if it divides; each rounded to float32."""
    blocks = Blocking(row, parts.elements.shape, axis)
    numbers = blocks.split(element_values(parts.elements, row))
    with np.errstate(all="ignore"):
        if parts.zero_points is not None:
            numbers = numbers - blocks.spread(parts.zero_points).astype(np.float32)
        found = numbers * blocks.spread(exact.widened(parts.scales))
        if parts.global_scale is not None:
            whole = per_block(parts.global_scale, blocks)
            whole = whole if not whole.ndim else blocks.spread(whole)
            found = found / whole if divides else found * whole
    return blocks.joined(ieee.canonical(found.astype(np.float32)))


def element_values(codes_: Array, row: BlockFormat) -> Array:
    """What the codes of elements mean, float32."""
    if row.codebook is not None:
        return np.asarray(row.codebook, np.float32)[codes_]
    return elements.decode(codes_, row.element).astype(np.float32)
