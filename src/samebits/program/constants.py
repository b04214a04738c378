"""Values that are known or given: as NumPy has them, packed within bytes as only a Tensor has them, or yet to compute.

Start at `given`, which makes one of a tensor; `array_of` is any of them as NumPy has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from samebits import driver
from samebits.errors import DeviceError
from samebits.kernels import spread
from samebits.memory import Buffer
from samebits.operations import registry
from samebits.operations.operation import Array, Source
from samebits.tensor import Tensor

__all__ = ["Constant", "Deferred", "Value", "array_of", "given", "sees_packed"]


class Deferred:
    """An array that is computed whenever somebody asks for it, since what it follows from takes much less memory.

    Attributes:
        dtype: Its format.
        shape: Its extents.
        source: What it follows from.
    """

    __slots__ = ("dtype", "shape", "source")

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...], source: Source) -> None:
        self.dtype, self.shape, self.source = dtype, shape, source

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @driver.default_float_environment()
    def array(self) -> Array:
        """Its elements, read-only."""
        (made,) = registry.ROWS[self.source.operation].reference(self.source.attributes, self.source.operands)
        made.flags.writeable = False
        return made


Value = Array | Tensor
"""A Tensor holds elements of fewer than 8 bits, packed, dense in row-major order from a byte on."""
Constant = Value | Deferred
"""What a program knows."""


def given(x: Tensor) -> Value:
    """x as a value, on its own memory unless its elements are packed and not dense; packed it is read-only.

    Closing its buffer does not take the memory away.

    Raises:  DeviceError if it is elsewhere than on the host; ClosedError; DTypeError if NumPy has no such format.
    """
    if not spread.is_packed(x.layout):
        return x.numpy()
    if not x.device.is_host:
        raise DeviceError("given", "x", "device", x.device, "the host", "copy it to the host")
    if x.layout.storage != "packed" or not x.layout.is_contiguous() or x.layout.offset_bits % 8:
        from samebits.ops.move import to_packed  # few programs hold packed values

        x = to_packed(x)
    if x.dtype.width_bits == 8:
        return x.numpy()
    owner = x.buffer.owner
    held = Buffer(x.buffer.address, x.buffer.size_bytes, owner, x.buffer.device, read_only=True)
    return Tensor(held, x.layout, x.dtype)


def sees_packed(operation: str, operands: Iterable[Constant | None]) -> bool:
    """Whether an operation is a view of a packed value, which stays packed as long as nobody computes the view."""
    return registry.ROWS[operation].view is not None and any(isinstance(x, Tensor) for x in operands)


def array_of(value: Constant) -> Array:
    """The value as NumPy has it: packed elements are copied to a byte each."""
    if isinstance(value, np.ndarray):
        return value
    return value.array() if isinstance(value, Deferred) else value.numpy(copy=True)
