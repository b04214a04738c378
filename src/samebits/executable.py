"""Memory that holds code: written while nobody can run it, then run while nobody can write it, and never taken away.

What lies there may be called until the process is gone, so it stays, and a child of a fork has it too. Pages are never
writable and executable at once. Start at `placed`.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Callable
from typing import Any

from samebits import driver

__all__ = ["PAGE", "placed", "refusal"]

PAGE = mmap.PAGESIZE
_FAILED = ctypes.c_void_p(-1).value


@functools.cache
def _calls() -> tuple[Callable[..., Any], Callable[..., int], Callable[..., int]]:
    """mmap, mprotect and munmap, with types of their own: others call them by the same library."""
    library, size, number, place = driver.libc(), ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
    kinds = {
        "mmap": (place, place, size, number, number, number, ctypes.c_long),
        "mprotect": (number, place, size, number),
        "munmap": (number, place, size),
    }
    reserve, protect, release = (
        ctypes.CFUNCTYPE(*kind, use_errno=True)((name, library)) for name, kind in kinds.items()
    )
    return reserve, protect, release


def placed(code_bytes: int, data_bytes: int, written: Callable[[int], bytes]) -> int:
    """The address of new memory: pages that can be run, and behind them pages that can be written.

    Args:
        code_bytes: Bytes of the first kind, a multiple of `PAGE` and more than 0.
        data_bytes: Bytes of the second kind.
        written: What lies in them, by the address where it is going to lie.

    Raises:  OSError if the system has no memory, or does not let a process run what it wrote.
    """
    reserve, protect, release = _calls()
    size = code_bytes + data_bytes
    address = reserve(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if address == _FAILED:
        raise _error()
    try:
        bytes_written = written(address)
        assert len(bytes_written) <= size
        ctypes.memmove(address, bytes_written, len(bytes_written))
        if protect(address, code_bytes, mmap.PROT_READ | mmap.PROT_EXEC):
            raise _error()
    except BaseException:
        release(address, size)
        raise
    return int(address)


def refusal() -> str:
    """Why the system lets this process run nothing that it wrote; empty where it does."""
    try:
        address = placed(PAGE, 0, lambda at: b"")
    except OSError as error:
        return str(error.strerror)
    _, _, release = _calls()
    release(address, PAGE)
    return ""


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
