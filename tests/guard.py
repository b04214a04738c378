"""Arrays beside memory that nobody may touch: one element too far ends the process instead of passing unseen."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.memory import ALIGNMENT, CPU, address_of

_PAGE = mmap.PAGESIZE


def empty(shape: int | Sequence[int], dtype: npt.DTypeLike, *, at_start: bool = False) -> npt.NDArray[Any]:
    """An uninitialised C-contiguous array whose last byte (`at_start`: first byte) is next to a PROT_NONE page.

    A whole page is forbidden on either side; on the other side than the one asked for there may be slack of less
    than a page, which is filled with 0xA5.
    """
    kind, extents = np.dtype(dtype), (shape,) if isinstance(shape, int) else tuple(shape)
    size = math.prod(extents) * kind.itemsize
    body = max(-(-size // _PAGE), 1) * _PAGE
    block = mmap.mmap(-1, body + 2 * _PAGE)
    whole = np.frombuffer(block, np.uint8)
    whole[:] = 0xA5
    base = whole.ctypes.data
    _forbid(base)
    _forbid(base + _PAGE + body)
    start = _PAGE if at_start else _PAGE + body - size
    return whole[start : start + size].view(kind).reshape(extents)


def array(values: npt.ArrayLike, dtype: npt.DTypeLike | None = None, *, at_start: bool = False) -> npt.NDArray[Any]:
    """A copy of `values` as `empty` places it."""
    source = np.asarray(values, dtype)
    result = empty(source.shape, source.dtype, at_start=at_start)
    result[...] = source
    return result


def _forbid(address: int) -> None:
    """Let nobody touch a page, until it is unmapped with its block."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(_PAGE), 0):  # PROT_NONE
        raise OSError(ctypes.get_errno(), "mprotect")


class GuardResource:
    """Host memory that ends, but for the bytes that alignment to 64 leaves, at a page that nobody may touch.

    Those bytes are looked at when the memory comes back; `lent` counts blocks that have not, `count` all there were.
    """

    device = CPU
    is_host_accessible = True
    is_device_accessible = False
    _SLACK = 0xA5

    def __init__(self) -> None:
        self._blocks: dict[int, npt.NDArray[np.uint8]] = {}
        self.count = 0

    @property
    def lent(self) -> int:
        """How many blocks are out."""
        return len(self._blocks)

    def allocate(self, size_bytes: int, *, stream: object = None) -> int:
        """Bytes of 0x5A before the slack of 0xA5."""
        assert stream is None
        self.count += 1
        block = empty(-(-size_bytes // ALIGNMENT) * ALIGNMENT, np.uint8)
        block[:size_bytes] = 0x5A
        block[size_bytes:] = self._SLACK
        self._blocks[address_of(block)] = block
        return int(address_of(block))

    def deallocate(self, address: int, size_bytes: int, *, stream: object = None) -> None:
        """Raise AssertionError where somebody wrote past the end."""
        assert stream is None
        block = self._blocks.pop(address)
        assert (block[size_bytes:] == self._SLACK).all(), f"written past the end of {size_bytes} bytes"
