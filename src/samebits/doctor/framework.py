"""What a framework's row says, and what all rows read memory with. Start at `Framework`."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import field
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits import dtypes
from samebits.doctor.witness import Codes, aligned, pack, unpack, unsigned
from samebits.dtypes import DType
from samebits.errors import DTypeError
from samebits.frozen import dataclass
from samebits.layout import Layout, Shape, Storage
from samebits.memory import Buffer
from samebits.tensor import Tensor

__all__ = ["CannotHold", "Framework", "Held", "Stated", "at", "codes_in", "dense_at", "row_of", "shared"]


class CannotHold(Exception):
    """The framework has no such format."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a framework says that it holds.

    Attributes:
        dtype: The format, or None for one without a row here.
        called: The framework's own name for it.
        shape: Extents in elements.
        codes: Code points, unsigned, of that shape.
        address: Of the first element, or None where the framework does not tell.
    """

    dtype: DType | None
    called: str
    shape: Shape
    codes: Codes
    address: int | None


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework.

    Attributes:
        name: What people call it.
        distribution: Whose version it is.
        module: What is imported.
        make: (module, dtype, codes) -> its own tensor; raises CannotHold.
        read: (module, its tensor) -> what it says it holds.
        take: (module, Tensor, copy) -> its tensor of ours, of the same memory unless a copy is allowed.
        give: (module, its tensor) -> Tensor, where `Tensor.from_any` cannot; None where it always can.
        put: (module, Tensor) -> its tensor of ours, where `take` cannot; None where it always can.
        prepare: (module) -> None, once after import.
        limits: `direction dtype` -> whose fault it is that the format is not kept; a `*` for every one that it holds.
    """

    name: str
    distribution: str
    module: str
    make: Callable[[Any, DType, Codes], Any]
    read: Callable[[Any, Any], Held]
    take: Callable[[Any, Tensor, bool], Any]
    give: Callable[[Any, Any], Tensor] | None = None
    put: Callable[[Any, Tensor], Any] | None = None
    prepare: Callable[[ModuleType], None] = lambda module: None
    limits: Mapping[str, str] = field(default_factory=dict)


def at(address: int, size_bytes: int) -> NDArray[np.uint8]:
    """A copy of memory."""
    return np.frombuffer(ctypes.string_at(address, size_bytes), np.uint8)


def dense_at(address: int, dtype: DType, shape: Shape) -> Codes:
    """Code points that lie side by side, packed where they are narrow."""
    return unpack(at(address, -(-int(np.prod(shape)) * dtype.width_bits // 8)), dtype.width_bits, shape)


def shared(address: int, dtype: DType, shape: Shape, owner: object, storage: Storage = "packed") -> Tensor:
    """A tensor over memory that another object keeps: dense and row-major."""
    layout = Layout.dense(shape, width_bits=dtype.width_bits, storage=storage)
    return Tensor(Buffer(address, layout.required_bytes, owner), layout, dtype)


def row_of(name: str) -> DType | None:
    """The row of that name, or None."""
    try:
        return dtypes.of(name)
    except DTypeError:
        return None


def codes_in(array: NDArray[Any], dtype: DType) -> Codes:
    """The code points of a NumPy array; bits that the format lacks are dropped."""
    codes = np.ascontiguousarray(array).view(unsigned(dtype.width_bits))
    return codes & codes.dtype.type((1 << dtype.width_bits) - 1) if dtype.width_bits < 8 else codes


class Stated:
    """NumPy's legacy capsule with another DLDataType written into it; the narrow elements lie at its beginning."""

    def __init__(self, dtype: DType, codes: Codes) -> None:
        self._array = aligned(codes.view(unsigned(dtype.width_bits)))
        packed = pack(codes, dtype.width_bits)
        self._array.view(np.uint8).reshape(-1)[: packed.size] = packed
        self._dtype = dtype

    def __dlpack__(self, **_: object) -> object:
        capsule = self._array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_size_t, [ctypes.py_object, ctypes.c_char_p]
        # DLTensor: data, device type and id, ndim, then the code and the bits of its dtype.
        at = pointer(capsule, b"dltensor") + struct.calcsize("@Piii")
        ctypes.c_uint16.from_address(at).value = int.from_bytes(bytes(self._dtype.dlpack), sys.byteorder)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)
