"""Compiled objects come into a process whatever else its memory holds."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Anonymous memory that takes no pages: 4 GiB of it, below which the system places what follows, every hole above
# filled, and then single pages given back at its top. A section of one page comes to lie there, a longer one below.
SCATTERED = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_size_t, [ctypes.c_size_t] * 2 + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_size_t] * 2

def reserve(size):
    at = libc.mmap(0, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)  # MAP_NORESERVE
    assert at != 2**64 - 1, ctypes.get_errno()
    return at

def scatter():
    size = 4 << 30
    block = reserve(size)
    for bits in range(31, mmap.PAGESIZE.bit_length() - 2, -1):
        while (at := reserve(1 << bits)) > block:
            pass
        libc.munmap(at, 1 << bits)
    for k in range(64):
        libc.munmap(block + size - 2 * (k + 1) * mmap.PAGESIZE, mmap.PAGESIZE)
"""

KERNELS = """
import numpy as np, samebits as sb
from samebits.native import compile
sb.exp(np.zeros(3, np.float32))
scatter()
a = np.arange(30, dtype=np.float32).reshape(5, 6)
assert (sb.matmul(a, a.T) == a @ a.T).all()
assert (sb.matmul(a.astype(np.int8), a.T.astype(np.int8)) == a @ a.T).all()
assert sb.softmax(np.zeros((3, 4), np.float32)).tolist() == [[0.25] * 4] * 3
"""

EXCHANGE = """
import samebits as sb
scatter()
assert sb.compile_exchange()
assert sb.Tensor.arange(5, dtype="int32").tolist() == [0, 1, 2, 3, 4]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it fills the address space as Linux lays it out")
@pytest.mark.parametrize("program", [KERNELS, EXCHANGE], ids=["kernels", "exchange"])
def test_objects_link_where_memory_is_scattered(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCATTERED + program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
