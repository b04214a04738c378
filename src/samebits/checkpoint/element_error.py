"""How far converted tensors are from what they were, summed part by part. Start at `ElementError`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import driver

__all__ = ["ElementError"]

Array = npt.NDArray[Any]
# Cells of a picture along each axis.
_CELLS = 96
# Elements of a block: its temporaries stay in a cache, and in memory that was touched before.
_BLOCK = 1 << 15


class ElementError:
    """Sums over the elements of one tensor, taken part by part in row-major order.

    Attributes:
        largest: The largest |x - y| of elements where both are finite.
        lost: Elements that are not 0 and became it.
        not_finite: Elements that are NaN or infinite now.
        cells: With `pictured`, the error and the signal of cells of the tensor as a matrix: sums of squares.
    """

    def __init__(self, shape: tuple[int, ...], *, pictured: bool = False) -> None:
        self.largest, self.lost, self.not_finite = 0.0, 0, 0
        self._signal = self._noise = 0.0
        self._columns = max(shape[-1] if shape else 1, 1)
        self._rows, self._at = max(math.prod(shape[:-1]), 1), 0
        high, wide = min(self._rows, _CELLS), min(self._columns, _CELLS)
        self.cells = np.zeros((2, high, wide)) if pictured else None

    @driver.default_float_environment()
    def add(self, x: Array, y: Array) -> None:
        """Take the next elements [n], before and after, as numbers."""
        for start in range(0, x.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            noise, signal = self._sum(x[part], y[part])
            if self.cells is not None:
                self._picture(self.cells, noise, signal)

    def _sum(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Add a block of elements; what is finite of their error and of themselves, in float64."""
        zero = y == 0
        if zero.any():
            self.lost += int(np.count_nonzero(zero & (x != 0)))
        with np.errstate(all="ignore"):
            x = x.astype(np.float64)
            error = x - y
            noise, signal = float((error * error).sum()), float((x * x).sum())
            if not math.isfinite(noise + signal):
                finite = np.isfinite(error)
                self.not_finite += int(np.count_nonzero(~np.isfinite(y)))
                x, error = np.where(finite, x, 0.0), np.where(finite, error, 0.0)
                noise, signal = float((error * error).sum()), float((x * x).sum())
        self.largest = max(self.largest, float(error.max(initial=0.0)), float(-error.min(initial=0.0)))
        self._noise += noise
        self._signal += signal
        return error, x

    def _picture(self, cells: Array, error: Array, x: Array) -> None:
        """Sum the squares of elements into the cells that these lie in."""
        _, high, wide = cells.shape
        row, column = np.divmod(self._at + np.arange(x.size), self._columns)
        places = row * high // self._rows * wide + column * wide // self._columns
        for layer, numbers in zip(cells, (error, x), strict=True):
            layer += np.bincount(places, numbers * numbers, high * wide).reshape(high, wide)
        self._at += x.size

    @property
    def sqnr_db(self) -> float:
        """10 log10(signal / noise) of elements where both are finite; infinite without an error."""
        if not self._noise:
            return math.inf
        return 10 * math.log10(self._signal / self._noise) if self._signal else -math.inf
