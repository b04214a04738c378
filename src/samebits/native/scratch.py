"""Temporaries for kernels: 64-byte aligned blocks, kept and reused by the thread that borrowed them.

Fresh pages cost an order of magnitude more than warm ones, so a thread keeps the few blocks it used last. Whoever takes
a block owns it until it is given back, so takes may nest. Parent and child of a fork keep copies: a block is private to
its process.
"""

from __future__ import annotations

import bisect
import threading

from samebits.errors import message
from samebits.memory.pages import PageBlock

__all__ = ["PageBlock", "give", "take"]


class _Kept(threading.local):
    """This thread's free blocks, the smallest first."""

    def __init__(self) -> None:
        self.blocks: list[PageBlock] = []


_KEEP = 4
_kept = _Kept()
_EMPTY = PageBlock(0)


def take(size_bytes: int) -> PageBlock:
    """A block of at least `size_bytes` that is the caller's until it is given back.

    Raises:  MemoryError if there is not that much.
    """
    if not size_bytes:
        return _EMPTY
    blocks = _kept.blocks
    for position, block in enumerate(blocks):
        if block.size_bytes >= size_bytes:
            del blocks[position]
            return block
    try:
        return PageBlock(size_bytes)
    except (OSError, OverflowError, ValueError) as error:
        expected, remedy = "at most what the system has left", "compute a part at a time"
        raise MemoryError(message("run", "workspace", "size", f"{size_bytes} bytes", expected, remedy)) from error


def give(block: PageBlock) -> None:
    """Keep a block for this thread's next `take`, the first of its size; of too many, the smallest is let go."""
    if block.size_bytes:
        blocks = _kept.blocks
        if blocks and block.size_bytes <= blocks[-1].size_bytes:
            bisect.insort_left(blocks, block, key=lambda kept: kept.size_bytes)
        else:
            blocks.append(block)
        if len(blocks) > _KEEP:
            del blocks[0]
