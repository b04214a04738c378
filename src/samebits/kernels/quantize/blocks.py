"""Blocking of an array by NumPy: which elements share a scale. Start at `Blocking`.

The axis of the blocks is turned to be the last, and the array becomes `[..., rows, r, columns, c]` with blocks of r by
c; an axis that a block does not divide is filled up, which `joined` takes away again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.frozen import dataclass
from samebits.kernels.quantize.formats import BlockFormat

__all__ = ["Blocking", "scales_shape"]

Array = npt.NDArray[Any]


def extents(row: BlockFormat, shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """For each axis of x how many neighbours along it share a scale; `axis`, -1 or -2, is that of the blocks."""
    found = [1] * len(shape)
    across, along = row.block
    found[axis] = shape[axis] if along is None else along
    if len(shape) > 1:
        other = -3 - axis
        found[other] = shape[other] if across is None else across
    return tuple(max(n, 1) for n in found)


def scales_shape(row: BlockFormat, shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """The shape of the scales of x: of each axis as many as there are blocks."""
    return tuple(-(-n // block) for n, block in zip(shape, extents(row, shape, axis), strict=True))


@dataclass(frozen=True, slots=True)
class Blocking:
    """How an array of a shape is cut into blocks of a format along an axis, -1 or -2."""

    row: BlockFormat
    shape: tuple[int, ...]
    axis: int

    def split(self, x: Array) -> Array:
        """x as [*count of blocks and extent of a block, for each axis in turn], the last block filled with 0."""
        block = extents(self.row, self.shape, self.axis)
        count = scales_shape(self.row, self.shape, self.axis)
        missing = [(0, n * b - extent) for n, b, extent in zip(count, block, self.shape, strict=True)]
        if any(after for _, after in missing):
            x = np.pad(x, missing)
        return x.reshape([k for pair in zip(count, block, strict=True) for k in pair])

    def joined(self, blocks: Array) -> Array:
        """What `split` took apart."""
        block = extents(self.row, self.shape, self.axis)
        count = scales_shape(self.row, self.shape, self.axis)
        whole = blocks.reshape([n * b for n, b in zip(count, block, strict=True)])
        return whole[tuple(slice(n) for n in self.shape)]

    def spread(self, scales: Array) -> Array:
        """Scales in the shape that broadcasts against `split`."""
        return scales.reshape([k for n in scales.shape for k in (n, 1)])

    @property
    def within(self) -> tuple[int, ...]:
        """The axes of `split` that run within a block."""
        return tuple(range(1, 2 * len(self.shape), 2))
