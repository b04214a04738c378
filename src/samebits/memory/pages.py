"""Blocks of host memory from the system: aligned, private to their process, on huge pages where they are big."""

import contextlib
import mmap
import time

import numpy as np
import numpy.typing as npt

from samebits.memory.address import ALIGNMENT, address_of

__all__ = ["HUGE", "MAPPED", "FreshPages", "PageBlock"]

# The size of a huge page of x86-64 and of AArch64 with 4 KiB pages. A first touch of 8 MiB takes 3.8 ms by small pages
# and 0.2 ms by huge ones (Zen 4).
HUGE = 2 * 1024 * 1024
# From here on pages come from the system for one block alone, and go back to it.
MAPPED = 128 * 1024
# A first touch of a huge page that takes longer waited for the host: to zero a page takes 0.1 to 0.2 ms.
_SLOW_NS = 1_500_000
# What Linux calls MADV_POPULATE_WRITE: many small pages at once take two thirds of the time of as many first touches.
_POPULATE = 23
_are_slow = False


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
            _advise(self._pages, getattr(mmap, advice))


class FreshPages:
    """Memory that is written once, from its start on, and kept: on huge pages for as long as these come quickly.

    A virtual machine that gives its host the memory that it does not use (virtio-balloon's reports of free pages) gives
    huge pages, and gets one back in 5 ms; small ones come from pieces that it never gave. There the first touch of 42
    MB takes 115 to 130 ms by huge pages and 15 to 25 by small ones, elsewhere 6 to 10 by huge ones.

    Attributes:
        array: Its bytes, which are what they happen to be.

    Raises:  MemoryError if there is not that much.
    """

    __slots__ = ("_begin", "_is_huge", "_pages", "_reached", "array")

    def __init__(self, size_bytes: int) -> None:
        self._pages: mmap.mmap | None = None
        self._is_huge, self._begin, self._reached = True, 0, 0
        self.array: npt.NDArray[np.uint8]
        if size_bytes < HUGE or not hasattr(mmap, "MADV_NOHUGEPAGE"):
            self.array = np.empty(size_bytes, np.uint8)
            return
        try:
            self._pages = mmap.mmap(-1, size_bytes + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError):
            raise MemoryError from None
        _advise(self._pages, mmap.MADV_HUGEPAGE)
        self._begin = -address_of(np.frombuffer(self._pages, np.uint8)) % HUGE
        self.array = np.frombuffer(self._pages, np.uint8, size_bytes, self._begin)

    def reach(self, end: int) -> None:
        """The bytes before `end` are going to be written now, after all before them."""
        global _are_slow
        while self._pages is not None and self._reached < end:
            if not _are_slow:
                begun = time.thread_time_ns()
                self.array[self._reached] = 0
                _are_slow = time.thread_time_ns() - begun > _SLOW_NS
                self._reached += HUGE
                continue
            if self._is_huge:
                self._is_huge = False
                _advise(self._pages, mmap.MADV_NOHUGEPAGE)
            size = -(-(end - self._reached) // mmap.PAGESIZE) * mmap.PAGESIZE
            _advise(self._pages, _POPULATE, self._begin + self._reached, size)
            self._reached += size


def _advise(pages: mmap.mmap, advice: int, *part: int) -> None:
    with contextlib.suppress(OSError):  # a kernel that does not know it, or locked memory
        pages.madvise(advice, *part)
