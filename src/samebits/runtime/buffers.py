"""Memory that sessions own: arrays on aligned blocks, large ones on huge pages.

Start at `aligned`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from samebits.native.scratch import Block
from samebits.program.graph import Array

__all__ = ["Arena", "aligned"]


def aligned(shape: Sequence[int], dtype: Any) -> Array:
    """An array of that shape, 64-byte aligned, not initialised."""
    count, kind = math.prod(shape), np.dtype(dtype)
    block = Block(max(1, count * kind.itemsize))
    return _viewed(block, block.address, count, kind).reshape(tuple(shape))


def _viewed(owner: object, address: int, count: int, dtype: Any) -> Array:
    """`count` elements at an address, which keep their owner alive."""
    kind = np.dtype(dtype)
    memory: Any = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    memory.owner = owner
    array: Array = np.frombuffer(memory, kind, count)
    return array


class Arena:
    """The temporaries of one run, and the words in front in which kernels report what they refuse."""

    __slots__ = ("_block", "address", "status")

    def __init__(self, size_bytes: int, status_bytes: int) -> None:
        self._block = Block(max(size_bytes, 64))
        self.address = self._block.address
        self.status = (ctypes.c_int64 * (status_bytes // 8)).from_address(self.address) if status_bytes else None
        self.clear()

    def clear(self) -> None:
        """No complaints."""
        if self.status is not None:
            ctypes.memset(self.status, 0, ctypes.sizeof(self.status))

    def array(self, offset: int, count: int, dtype: Any) -> Array:
        """`count` elements from byte `offset` on, where they lie."""
        return _viewed(self, self.address + offset, count, dtype)
