"""Temporaries for kernels: 64-byte aligned blocks, kept and reused by the thread that borrowed them.

Fresh pages cost an order of magnitude more than warm ones, so a block is kept until a bigger one is needed. A borrow
inside a borrow (a kernel run while another one's scratch is in use on the same thread) gets a block of its own.
"""

from __future__ import annotations

import mmap
import threading

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
_EMPTY = Block(0)


def take(size_bytes: int) -> Block:
    """A block of at least `size_bytes` that is the caller's until it is given back."""
    if not size_bytes:
        return _EMPTY
    block, _kept.block = _kept.block, None
    return block if block is not None and block.size_bytes >= size_bytes else Block(size_bytes)


def give(block: Block) -> None:
    """Keep a block for this thread's next `take`."""
    if block.size_bytes:
        _kept.block = block
