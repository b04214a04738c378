"""Arrays on memory that is not NumPy's own: aligned blocks that sessions keep, and parts of an arena.

Start at `aligned`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from samebits.errors import message
from samebits.memory.pages import PageBlock
from samebits.operations.operation import Array

__all__ = ["aligned", "viewed"]


def aligned(shape: Sequence[int], dtype: Any) -> Array:
    """An array of that shape, 64-byte aligned, large ones on huge pages; not initialised.

    Raises:  MemoryError if there is not that much.
    """
    count, kind = math.prod(shape), np.dtype(dtype)
    size = max(1, count * kind.itemsize)
    try:
        block = PageBlock(size)
    except (MemoryError, OSError, OverflowError, ValueError) as error:  # those of numpy.empty and of mmap
        expected, remedy = "at most what the system has left", "give smaller inputs"
        raise MemoryError(message("run", "an array", "size", f"{size} bytes", expected, remedy)) from error
    return viewed(block, block.address, count, kind).reshape(tuple(shape))


def viewed(owner: object, address: int, count: int, dtype: Any) -> Array:
    """`count` elements at an address, which keep their owner alive."""
    kind = np.dtype(dtype)
    memory: Any = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    memory.owner = owner
    array: Array = np.frombuffer(memory, kind, count)
    return array
