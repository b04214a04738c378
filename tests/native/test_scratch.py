"""Temporaries: aligned, reused by their thread, private to their process."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import warnings

import pytest

from samebits.memory.pages import HUGE
from samebits.native import scratch

SIZES = (1, 64, 12345, 1 << 21, (1 << 22) + 5)


@pytest.mark.parametrize("size_bytes", SIZES)
def test_blocks_are_aligned_and_writable_to_their_end(size_bytes: int) -> None:
    block = scratch.take(size_bytes)
    assert block.address % 64 == 0
    assert block.size_bytes >= size_bytes
    ctypes.memset(block.address, 1, block.size_bytes)
    scratch.give(block)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("size_bytes", SIZES)
def test_a_forked_child_computes_in_blocks_of_its_own(size_bytes: int) -> None:
    block = scratch.take(size_bytes)
    ctypes.memset(block.address, 1, size_bytes)
    scratch.give(block)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork beside threads of other tests, JAX's among them
        child = os.fork()
    if child == 0:
        try:
            ctypes.memset(scratch.take(size_bytes).address, 7, size_bytes)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert ctypes.string_at(block.address, size_bytes) == b"\x01" * size_bytes


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system names no huge pages")
def test_a_kernel_without_huge_pages_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Small(mmap.mmap):
        def madvise(self, advice: int, *_: int) -> None:
            asked.append(advice)
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Small)
    for size_bytes, due in ((HUGE - 1, []), (HUGE, [mmap.MADV_HUGEPAGE]), (2 * HUGE, [mmap.MADV_HUGEPAGE])):
        block = scratch.PageBlock(size_bytes)
        assert asked == due
        assert block.address % (HUGE if due else 64) == 0
        ctypes.memset(block.address, 1, block.size_bytes)
        asked.clear()


def test_more_than_there_is_is_refused_by_name() -> None:
    for size_bytes in (1 << 62, 1 << 80):
        with pytest.raises(MemoryError) as error:
            scratch.take(size_bytes)
        assert str(error.value) == (
            f"run: workspace size is {size_bytes} bytes, must be at most what the system has left; "
            "compute a part at a time"
        )
