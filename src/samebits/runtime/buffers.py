"""Arrays on memory that is not NumPy's own: results, in blocks that are used again, and parts of an arena.

Start at `empty`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from samebits.memory.allocation import allocate
from samebits.memory.pages import MAPPED
from samebits.operations.operation import Array

__all__ = ["aligned", "empty", "viewed"]


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """An array of that shape, not initialised: a small one is NumPy's own, a big one as `aligned` makes it.

    Raises:  MemoryError if there is not that much.
    """
    kind = np.dtype(dtype)
    if math.prod(shape) * kind.itemsize < MAPPED:
        return np.empty(shape, kind)
    return aligned(shape, kind)


def aligned(shape: Sequence[int], dtype: Any) -> Array:
    """The same, 64-byte aligned, in memory of the resource in use, to which it goes back after the array's last use.

    Raises:  MemoryError if there is not that much.
    """
    kind = np.dtype(dtype)
    memory = allocate(math.prod(shape) * kind.itemsize).array()
    return np.ndarray(shape, kind, memory)


def viewed(owner: object, address: int, count: int, dtype: Any) -> Array:
    """`count` elements at an address, which keep their owner alive."""
    kind = np.dtype(dtype)
    memory: Any = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    memory.owner = owner
    array: Array = np.frombuffer(memory, kind, count)
    return array
