"""What is under us: libc and the machine's facts. An absence is a fact, not an error."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Iterator


@functools.cache
def libc() -> ctypes.CDLL:
    """The C library (and whatever else this process has loaded)."""
    return ctypes.CDLL(None)


def usable_cores() -> int:
    """Cores that this process may run on (its affinity, not the machine's count)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def page_bytes() -> int:
    """Size of a memory page."""
    return mmap.PAGESIZE


@functools.cache
def _default_environment() -> ctypes.c_void_p:
    """FE_DFL_ENV: a variable of Apple's libm, the pointer -1 of glibc and musl."""
    if sys.platform == "darwin":
        return ctypes.cast(ctypes.byref(ctypes.c_char.in_dll(libc(), "_FE_DFL_ENV")), ctypes.c_void_p)
    return ctypes.c_void_p(-1)


@contextlib.contextmanager
def default_float_environment() -> Iterator[None]:
    """Round to nearest even with subnormals in this thread until the block ends, whatever the caller had set."""
    kept = ctypes.create_string_buffer(256)  # larger than any fenv_t
    library = libc()
    library.fegetenv(kept)
    library.fesetenv(_default_environment())
    try:
        yield
    finally:
        library.fesetenv(kept)
