"""Blocks of host memory from the system: aligned, private to their process, on huge pages where they are big."""

import contextlib
import mmap

import numpy as np

from samebits.memory.address import ALIGNMENT, address_of

__all__ = ["HUGE", "MAPPED", "PageBlock"]

# The size of a huge page of x86-64 and of AArch64 with 4 KiB pages. A first touch of 8 MiB takes 3.8 ms by small pages
# and 0.2 ms by huge ones (Zen 4).
HUGE = 2 * 1024 * 1024
# From here on pages come from the system for one block alone, and go back to it.
MAPPED = 128 * 1024


class PageBlock:
    """`size_bytes` of memory at `address`: at a multiple of 64, a page where it is mapped, a huge page from 2 MiB on.

    Attributes:
        address: The first byte.
        size_bytes: How many.
        is_mapped: Whether the pages are this block's alone; their bytes begin as 0.
    """

    __slots__ = ("__weakref__", "_owner", "_pages", "address", "is_mapped", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.is_mapped = size_bytes >= MAPPED and hasattr(mmap, "MAP_ANONYMOUS")
        align = HUGE if size_bytes >= HUGE else ALIGNMENT
        if self.is_mapped:
            # Not the default, which is shared: a child of a fork would compute in its parent's blocks.
            self._pages = mmap.mmap(-1, size_bytes + align, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._advise("MADV_HUGEPAGE")
            self._owner = np.frombuffer(self._pages, np.uint8)
        else:
            self._owner = np.empty(size_bytes + align, np.uint8)
        self.address: int = -(-address_of(self._owner) // align) * align

    def offer(self) -> None:
        """Let the system take pages that it runs short of; the bytes become arbitrary.

        For huge pages this costs a hundredth of writing them; for small ones as much, so those are not offered.
        """
        self._advise("MADV_FREE")

    def _advise(self, advice: str) -> None:
        if self.is_mapped and self.size_bytes >= HUGE and hasattr(mmap, advice):
            with contextlib.suppress(OSError):  # a kernel that does not know it, or locked memory
                self._pages.madvise(getattr(mmap, advice))
