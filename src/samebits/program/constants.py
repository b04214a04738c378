"""Values that are known or given, as NumPy has them, or packed within bytes as only a Tensor has them.

Start at `given`, which makes one of a tensor; `array_of` is any of them as NumPy has it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from samebits.errors import DeviceError
from samebits.kernels import spread
from samebits.memory import Buffer
from samebits.operations import registry
from samebits.operations.operation import Array
from samebits.tensor import Tensor

__all__ = ["Value", "array_of", "given", "sees_packed"]

Value = Array | Tensor
"""A Tensor holds elements of fewer than 8 bits, packed, dense in row-major order from a byte on."""


def given(x: Tensor) -> Value:
    """x as a value, on its own memory unless its elements are packed and not dense; packed it is read-only.

    Closing its buffer does not take the memory away.

    Raises:  DeviceError if it is elsewhere than on the host; ClosedError; DTypeError if NumPy has no such format.
    """
    if not spread.is_packed(x.layout):
        return x.numpy()
    if not x.device.is_host:
        raise DeviceError("given", "x", "device", x.device, "the host", "copy it to the host")
    from samebits.ops.move import to_packed  # few programs hold packed values

    x = to_packed(x)
    if x.dtype.width_bits == 8:
        return x.numpy()
    owner = x.buffer.owner
    held = Buffer(x.buffer.address, x.buffer.size_bytes, owner, x.buffer.device, read_only=True)
    return Tensor(held, x.layout, x.dtype)


def sees_packed(operation: str, operands: Iterable[Value | None]) -> bool:
    """Whether an operation is a view of a packed value, which stays packed as long as nobody computes the view."""
    return registry.ROWS[operation].view is not None and any(isinstance(x, Tensor) for x in operands)


def array_of(value: Value) -> Array:
    """The value as NumPy has it: packed elements are copied to a byte each."""
    return value if isinstance(value, np.ndarray) else value.numpy(copy=True)
