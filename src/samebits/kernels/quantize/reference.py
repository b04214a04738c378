"""What quantising means, by NumPy: slow, and independent of kernels. Start at `quantize`, then `dequantize`.

Everything is in float32, one rounding an operation (numerics.md section 9).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes, elements, ieee, philox
from samebits.conversions import SB1, Conversion
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels import values
from samebits.kernels.expression import Expression
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
    seed: int | None = None,
) -> StoredParts:
    """The stored parts of x by a dialect.

    Args:
        x: float32, bfloat16 or float16.
        axis: That of the blocks, -1 or -2.
        global_scale: As the dialect keeps it: float32 [], or one a line; None for that of x.
        line: Find one for each line along the axis, not one for everything.
        seed: Of stochastic rounding of the elements; None to nearest.
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
    words = None if seed is None else blocks.split(philox.words(seed, np.arange(x.size)).reshape(x.shape))
    given = _Given(blocks, formulas, split, [*statistics(split, blocks.within, formulas), *unit], words)
    scales, found = given.stored(formulas.scale)
    if formulas.other is not None:
        others, other_codes = given.stored(formulas.other)
        first, second = (
            given.error(dequantized(blocks, codes, made, global_scale, divides=dialect.divides))
            for made, codes in ((scales, found), (others, other_codes))
        )
        better = second < first
        found = np.where(blocks.spread(better), other_codes, found)
        scales = [
            np.where(better, other.view(np.uint8), scale.view(np.uint8)).view(scale.dtype)
            for scale, other in zip(scales, others, strict=True)
        ]
    return StoredParts(blocks.joined(found), scales[0], global_scale, scales[1] if len(scales) > 1 else None)


@dataclass(frozen=True, slots=True, eq=False)
class _Given:
    """What scales and codes are found from: x in blocks, what expressions are given of each, random words."""

    blocks: Blocking
    formulas: Formulas
    split: Array
    statistics: list[Array]
    words: Array | None

    def stored(self, scale: Expression) -> tuple[list[Array], Array]:
        """The scales by an expression, zero points behind them, and the codes of all elements in blocks."""
        blocks, formulas, given = self.blocks, self.formulas, self.statistics
        found = values.reference(scale, given)
        shape = tuple(np.delete(self.split.shape, blocks.within))
        scales = [np.broadcast_to(s, shape).copy() for s in found]
        (factor,) = values.reference(formulas.factor, [scales[0], *given])
        (nan,) = values.reference(formulas.nan, [scales[0], *given])
        y = scaled(self.split, blocks.spread(np.broadcast_to(factor, shape)), formulas.element)
        zero = blocks.spread(scales[1]) if len(scales) > 1 else None
        made = codes(y, blocks.row, formulas.element, zero, self.words)
        return scales, np.where(np.isnan(y), blocks.spread(np.broadcast_to(nan, shape)), made).astype(np.uint8)

    def error(self, value: Array) -> Array:
        """The squared error of each block: neighbours are added in pairs, row by row, until one number is left."""
        with np.errstate(all="ignore"):
            error = self.split - value
            rank = len(self.blocks.within)
            squares = np.moveaxis(error * error, self.blocks.within, range(-rank, 0))
            squares = squares.reshape(*squares.shape[:-rank], math.prod(squares.shape[-rank:]))
            while squares.shape[-1] > 1:
                squares = squares[..., ::2] + squares[..., 1::2]
        return np.asarray(squares[..., 0])


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


def codes(
    y: Array, row: BlockFormat, rule: ElementRule, zero: Array | None = None, words: Array | None = None
) -> Array:
    """The code of each scaled number y; of NaN it means nothing.

    Args:    words: a uint32 for each number, by which it is rounded stochastically.
    """
    element = row.element
    if row.codebook is not None:
        return _nearest_in(np.asarray(row.codebook, np.float64), y)
    if element.is_integer:
        return _integers(y, element, zero, words)
    with np.errstate(all="ignore"):
        conversion = SB1 if words is None else Conversion(rounding="stochastic")
        found = ieee.encode(np.clip(y, element.min, element.max), element, conversion, words)
        if rule.ties == "zero" and words is None:
            found = _ties_to_zero(found, y, element)
    sign = np.uint8(1 << (element.width_bits - 1))
    if rule.zero == "unsigned":
        found = np.where(found == sign, 0, found)
    elif rule.zero != "kept":
        found = np.where(y == 0, found & ~sign | (sign if rule.zero == "negative" else 0), found)
    return found.astype(np.uint8)


def _integers(y: Array, element: DType, zero: Array | None, words: Array | None) -> Array:
    """Codes of the nearest integers, ties to even, plus the zero point, within those that there are: of signed ones as
    many below 0 as above."""
    with np.errstate(all="ignore"):
        if zero is not None and zero.dtype == np.float32:
            y, zero = y + zero, None
        whole = np.where(np.isfinite(y), y, 0).astype(np.float64)
        whole = ieee.rounded_to_whole(whole, "nearest_even" if words is None else "stochastic", words)
        found = np.where(np.isfinite(y), whole, y) + (0 if zero is None else zero.astype(np.float64))
        least = -element.max if element.signed else element.min
        found = np.where(np.isnan(found), 0, np.clip(found, least, element.max))
    return (found.astype(np.int16) & ((1 << element.width_bits) - 1)).astype(np.uint8)


def _nearest_in(book: Array, y: Array) -> Array:
    """The code of the value of an ascending code book that is nearest, the smaller of two as near."""
    middles = (book[1:] + book[:-1]) / 2
    return np.searchsorted(middles, y.astype(np.float64), side="left").astype(np.uint8)


def _ties_to_zero(found: Array, y: Array, element: DType) -> Array:
    """The codes, each lowered by one where it was rounded up from a tie."""
    magnitude = found & np.uint8((1 << (element.width_bits - 1)) - 1)
    lower = np.maximum(magnitude, 1) - np.uint8(1)
    above, below = (elements.decode(c, element).astype(np.float64) for c in (magnitude, lower))
    tie = (above + below) / 2 == np.abs(y).astype(np.float64)
    return np.where(tie & (magnitude > 0), found - np.uint8(1), found)


def dequantize(parts: StoredParts, row: BlockFormat, divides: bool = False, axis: int = -1) -> Array:
    """element * scale, then times the global scale, or over it if it divides; each rounded to float32."""
    blocks = Blocking(row, parts.elements.shape, axis)
    scales = [parts.scales] if parts.zero_points is None else [parts.scales, parts.zero_points]
    return blocks.joined(dequantized(blocks, blocks.split(parts.elements), scales, parts.global_scale, divides=divides))


def dequantized(
    blocks: Blocking, codes_: Array, scales: Sequence[Array], global_scale: Array | None, *, divides: bool
) -> Array:
    """The values of codes in blocks.

    Args:    scales: of each block, and zero points behind them where there are any.
    """
    numbers = element_values(codes_, blocks.row)
    with np.errstate(all="ignore"):
        if len(scales) > 1:
            numbers = numbers - blocks.spread(scales[1]).astype(np.float32)
        found = numbers * blocks.spread(exact.widened(scales[0]))
        if global_scale is not None:
            whole = per_block(global_scale, blocks)
            whole = whole if not whole.ndim else blocks.spread(whole)
            found = found / whole if divides else found * whole
    return ieee.canonical(found.astype(np.float32))


def element_values(codes_: Array, row: BlockFormat) -> Array:
    """What the codes of elements mean, float32."""
    if row.codebook is not None:
        return np.asarray(row.codebook, np.float32)[codes_]
    return elements.decode(codes_, row.element).astype(np.float32) * np.float32(row.unit)
