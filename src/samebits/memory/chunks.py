"""Memory for arrays that are made one after the other and kept: pieces of blocks that are large enough for huge pages.

A first touch of small pages takes longer than writing them (`pages`), and a model's constants are often a few hundred
KiB each. Arrays that NumPy asked huge pages for itself stay where they are, and so do small ones. Start at `Chunks`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.memory.address import ALIGNMENT, address_of
from samebits.memory.pages import MAPPED, FreshPages

__all__ = ["Chunks"]

# Huge pages, as NumPy asks for from 4 MiB on.
_BLOCK, _HUGE = 16 << 20, 4 << 20


class Chunks:
    """Blocks that are filled with arrays; the memory of a block is free when none of its arrays is left."""

    __slots__ = ("_block", "_used")

    def __init__(self) -> None:
        self._block, self._used = FreshPages(0), 0

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
        if size < MAPPED:
            return np.empty(count, kind)
        if size >= _HUGE:
            whole = FreshPages(size)
            whole.reach(size)
            return whole.array.view(kind)
        if self._used + size + ALIGNMENT > self._block.array.nbytes:
            try:
                self._block, self._used = FreshPages(_BLOCK), 0
            except MemoryError:
                return np.empty(count, kind)
        start = self._used + -address_of(self._block.array[self._used :]) % ALIGNMENT
        end = self._used = start + size
        self._block.reach(end)
        place = self._block.array[start:end]
        return place.view(kind)
