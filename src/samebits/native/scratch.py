"""Temporaries for kernels: 64-byte aligned blocks, kept and reused by the thread that borrowed them.

Fresh pages cost an order of magnitude more than warm ones, so a block is kept until a bigger one is needed. A borrow
inside a borrow (a kernel run while another one's scratch is in use on the same thread) gets a block of its own.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections.abc import Iterator

import numpy as np

_ALIGN = 64
_HUGE = 2 * 1024 * 1024


class _Kept(threading.local):
    def __init__(self) -> None:
        self.block: Block | None = None


class Block:
    """`size_bytes` of aligned memory at `address`; big ones ask for huge pages."""

    __slots__ = ("_owner", "address", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        extra = _HUGE if size_bytes >= _HUGE else _ALIGN
        if size_bytes >= _HUGE:
            pages = mmap.mmap(-1, size_bytes + extra)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                pages.madvise(mmap.MADV_HUGEPAGE)
            self._owner = np.frombuffer(pages, np.uint8)
        else:
            self._owner = np.empty(size_bytes + extra, np.uint8)
        self.address = -(-self._owner.__array_interface__["data"][0] // extra) * extra


_kept = _Kept()


@contextlib.contextmanager
def borrowed(size_bytes: int) -> Iterator[int]:
    """The address of `size_bytes` of scratch (0 if none are needed), until the block ends."""
    if not size_bytes:
        yield 0
        return
    block, _kept.block = _kept.block, None
    if block is None or block.size_bytes < size_bytes:
        block = Block(size_bytes)
    try:
        yield block.address
    finally:
        _kept.block = block
