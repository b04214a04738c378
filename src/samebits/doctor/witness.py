"""Elements as bytes, by NumPy alone: what exchange is checked against.

`pack` and `unpack` share no code with the library's own.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits.dtypes import DType
from samebits.layout import Shape

__all__ = ["Codes", "aligned", "codes_for", "pack", "unpack", "unsigned"]

# Code points, unsigned, one an array element.
Codes = NDArray[Any]


def aligned(codes: Codes) -> Codes:
    """The same codes in memory of their own at a multiple of 64 bytes."""
    block = np.empty(codes.nbytes + 63, np.uint8)
    start = -block.ctypes.data % 64
    new = block[start : start + codes.nbytes].view(codes.dtype).reshape(codes.shape)
    new[...] = codes
    return new


def pack(codes: Codes, width_bits: int) -> NDArray[np.uint8]:
    """Codes side by side, the first in the lowest bits."""
    bits = np.unpackbits(codes.astype("<u8").reshape(-1, 1).view(np.uint8), axis=1, bitorder="little")
    return np.packbits(bits[:, :width_bits].reshape(-1), bitorder="little")


def unpack(packed: NDArray[np.uint8], width_bits: int, shape: Shape) -> Codes:
    """The codes that `pack` put there."""
    size = int(np.prod(shape))
    bits = np.unpackbits(packed.reshape(-1), bitorder="little")[: size * width_bits].reshape(size, width_bits)
    wide = np.zeros((size, 8 * unsigned(width_bits).itemsize), np.uint8)
    wide[:, :width_bits] = bits
    return np.packbits(wide, axis=1, bitorder="little").view(unsigned(width_bits)).reshape(shape)


def unsigned(width_bits: int) -> np.dtype[Any]:
    """The unsigned dtype that holds a code of so many bits."""
    return np.dtype(f"<u{max(1, width_bits // 8)}")


def codes_for(dtype: DType, shape: Shape = (2, 48)) -> Codes:
    """Code points that are different and cover the format as far as they reach; those of bool are 0 and 1."""
    count = 2 if dtype.kind == "bool" else 1 << dtype.width_bits
    size = int(np.prod(shape))
    step = max(1, count // size) | 1
    codes = [index * step % count for index in range(size)]
    return np.array(codes, unsigned(dtype.width_bits)).reshape(shape)
