"""Memory for arrays that are made one after the other and kept: pieces of blocks that are large enough for huge pages.

A first touch of small pages takes longer than writing them (`pages`), and a model's constants are often a few hundred
KiB each. Arrays that NumPy asks huge pages for itself stay where they are, and so do small ones. Start at `Chunks`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.memory.address import ALIGNMENT, address_of
from samebits.memory.pages import MAPPED

__all__ = ["Chunks"]

# Huge pages, as NumPy asks for from 4 MiB on.
_BLOCK, _HUGE = 16 << 20, 4 << 20


class Chunks:
    """Blocks that are filled with arrays; the memory of a block is free when none of its arrays is left."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)

    def keep(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A dense copy of an array in a block; the array itself where it lies as well, or if there is no memory."""
        if not MAPPED <= array.nbytes < _HUGE:
            return array
        try:
            made = self.empty(array.size, array.dtype).reshape(array.shape)
        except MemoryError:
            return array
        made[...] = array
        return made

    def empty(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Memory for so many elements that are going to be kept, in a block where they are many enough.

        Raises:  MemoryError if there is none.
        """
        kind = np.dtype(dtype)
        size = count * kind.itemsize
        if not MAPPED <= size < _HUGE:
            return np.empty(count, kind)
        if size + ALIGNMENT > self._left.nbytes:
            try:
                self._left = np.empty(_BLOCK, np.uint8)
            except MemoryError:
                return np.empty(count, kind)
        start = -address_of(self._left) % ALIGNMENT
        end = start + size
        place, self._left = self._left[start:end], self._left[end:]
        return place.view(kind)
