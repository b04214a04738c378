"""Formats and tensors that tests of the tensor's methods begin with."""

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.layout import Layout
from samebits.memory import Buffer, address_of
from samebits.tensor import Tensor

NUMPY_ROWS = [row for row in dtypes.ROWS if row.numpy is not None]
NARROW = [row for row in dtypes.ROWS if row.width_bits < 8]


def sample(row: DType, shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, np.ndarray]:
    """A packed tensor and its code points, one a byte, packed by np.packbits."""
    codes = np.random.default_rng(seed).integers(0, 1 << row.width_bits, shape, np.uint8)
    bits = np.unpackbits(codes.reshape(-1, 1), axis=1, bitorder="little")[:, : row.width_bits]
    data = np.packbits(bits, bitorder="little")
    buffer = Buffer(address_of(data), data.size, data)
    return Tensor(buffer, Layout.dense(shape, width_bits=row.width_bits), row), codes
