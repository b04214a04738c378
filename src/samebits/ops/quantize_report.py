"""What quantising did to an array: start at `report`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.errors import ShapeError
from samebits.frozen import dataclass
from samebits.kernels.functions import exact
from samebits.kernels.quantize.blocks import Blocking
from samebits.ops import block_parts
from samebits.ops.call import Call
from samebits.ops.quantized import Quantized
from samebits.shapes import check_type

__all__ = ["QuantizationReport", "report"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """How near the values of a quantised array are to what was quantised.

    Attributes:
        elements: How many there are.
        blocks: How many scales.
        sqnr_db: 10 log10(sum(x^2) / sum((x - value)^2)) of elements where both are finite; infinite without an error,
            NaN without such elements.
        largest_error: The largest |x - value| of those.
        clipped: Elements beyond the largest value that their block has.
        underflowed: Elements that are not 0 and whose value is.
        underflowed_blocks: Blocks all of whose values are 0, though an element is not.
        zero_blocks: Blocks of zeros.
        not_finite: Elements that are NaN or infinite.
        nan_blocks: Blocks with a value that is NaN or infinite.
        contained: Whether every such block has an element that is not finite.
        per_tensor: Whether one global scale of everything makes every value depend on all elements.
    """

    elements: int
    blocks: int
    sqnr_db: float
    largest_error: float
    clipped: int
    underflowed: int
    underflowed_blocks: int
    zero_blocks: int
    not_finite: int
    nan_blocks: int
    contained: bool
    per_tensor: bool

    def __str__(self) -> str:
        near = f"SQNR {self.sqnr_db:.2f} dB, largest error {self.largest_error:.6g}"
        lost = f"{self.underflowed_blocks} blocks underflowed, {self.zero_blocks} of zeros"
        lines = [
            f"{self.elements} elements in {self.blocks} blocks: {near}",
            f"{self.clipped} elements clipped, {self.underflowed} underflowed; {lost}",
        ]
        if self.not_finite or self.nan_blocks:
            within = "contained in" if self.contained else "spread beyond"
            lines.append(
                f"{self.not_finite} elements not finite, {within} their blocks; {self.nan_blocks} blocks are not"
            )
        if self.per_tensor:
            lines.append("one global scale: every value depends on all elements")
        return "\n".join(lines)


def report(x: Any, q: Quantized) -> QuantizationReport:
    """How near the values of q are to x, and what was clipped, lost or no number.

    Args:    x: what was quantised, of q's shape.   q: what `quantize` made of it.
    Raises:  OptionError if q is no Quantized; DTypeError, ShapeError.
    """
    call = Call("report", x)
    check_type("report", "q", q, Quantized, "pass what quantize gave")
    block_parts.check_open("report", q.parts, "q.")
    given = call.operand("x", x).tensor
    if given.shape != q.shape:
        raise ShapeError("report", "x", "shape", given.shape, f"{q.shape}, as q has", "pass what was quantised")
    blocks = Blocking(q.format, q.shape, q.axis)
    with np.errstate(all="ignore"):
        numbers = blocks.split(given.values().astype(np.float64))
        values = blocks.split(q.dequantize().values().astype(np.float64))
        return _counted(numbers, values, blocks, q)


def _counted(x: Array, y: Array, blocks: Blocking, q: Quantized) -> QuantizationReport:
    """The report of blocks of numbers and of their values."""
    within = blocks.within
    finite, valued = np.isfinite(x), np.isfinite(y)
    both = finite & valued
    error = np.where(both, x - y, 0.0)
    signal, noise = float((np.where(both, x, 0.0) ** 2).sum()), float((error**2).sum())
    lost = ((y == 0) & valued).all(axis=within)
    nothing = (x == 0).all(axis=within)
    unclean = (~valued).any(axis=within)
    scales = blocks.spread(_largest(q))
    whole = q.global_scale
    return QuantizationReport(
        elements=q.size,
        blocks=q.scales.size,
        sqnr_db=_decibels(signal, noise) if both.any() else math.nan,
        largest_error=float(abs(error).max(initial=0.0)),
        clipped=int((finite & (abs(x) > scales)).sum()),
        underflowed=int(((x != 0) & (y == 0)).sum()),
        underflowed_blocks=int((lost & ~nothing).sum()),
        zero_blocks=int(nothing.sum()),
        not_finite=int((~finite).sum()),
        nan_blocks=int(unclean.sum()),
        contained=not bool((unclean & finite.all(axis=within)).any()),
        per_tensor=whole is not None and not whole.shape,
    )


def _decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise), also where one of them is 0."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _largest(q: Quantized) -> Array:
    """The largest magnitude that each block can have; infinite with a zero point, whose limits are two."""
    if q.zero_points is not None:
        return np.full(q.scales.shape, np.inf)
    found = exact.widened(q.scales.numpy()).astype(np.float64) * q.format.largest
    if q.global_scale is None:
        return found
    whole = q.global_scale.values().astype(np.float64)
    return found / whole if q.divides else found * whole
