"""Memory as a fact: where bytes are, how many, who keeps them alive, and whether they may be written.

Start at `allocate`, which makes host memory, and `Buffer`, which also describes memory that others own. A buffer keeps
its owner alive until `close`; whatever was exported from it keeps the owner by itself, so closing never pulls memory
from under a consumer.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from samebits.errors import ClosedError, DeviceError, ExchangeError, OptionError, message
from samebits.shapes import check_integers

__all__ = ["ALIGNMENT", "CPU", "Buffer", "Device", "address_of", "allocate"]

# A cache line and an AVX-512 vector; jax takes host memory without copying from this alignment on.
ALIGNMENT = 64

# DLDeviceType of dlpack.h 1.3.
_DLPACK_CODES = {"cpu": 1, "cuda": 2, "cuda_host": 3, "metal": 8, "rocm": 10, "rocm_host": 11, "cuda_managed": 13}
_DLPACK_KINDS = {code: kind for kind, code in _DLPACK_CODES.items()}
_HOST_KINDS = ("cpu", "cuda_host", "rocm_host", "cuda_managed")


@dataclass(frozen=True, slots=True)
class Device:
    """Where memory is: a kind of memory and which of its devices.

    Attributes:
        kind: `cpu`, `cuda`, `cuda_host` (pinned), `cuda_managed`, `rocm`, `rocm_host` or `metal`.
        index: Which device; 0 for host memory.
    """

    kind: str
    index: int = 0

    def __post_init__(self) -> None:
        if self.kind not in _DLPACK_CODES:
            expected = f"one of {sorted(_DLPACK_CODES)}"
            raise DeviceError(message("Device", "kind", "", repr(self.kind), expected, "name one of these"))

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"

    @property
    def is_host(self) -> bool:
        """Whether the host can read the memory."""
        return self.kind in _HOST_KINDS

    @property
    def dlpack(self) -> tuple[int, int]:
        """`(device_type, device_id)` of DLDevice."""
        return _DLPACK_CODES[self.kind], self.index

    @classmethod
    def from_dlpack(cls, code: int, index: int) -> "Device | None":
        """The device of a DLDevice, or None for a device type without a name here."""
        kind = _DLPACK_KINDS.get(code)
        return None if kind is None else CPU if code == 1 and index == 0 else cls(kind, index)


CPU = Device("cpu")


class Buffer:
    """`size_bytes` bytes from `address` on, kept alive by `owner` until `close`.

    Attributes:
        size_bytes: Number of bytes.
        device: Where they are.
        read_only: Whether nobody may write them through this library.
    """

    __slots__ = ("_address", "_bytes", "_owner", "device", "read_only", "size_bytes")

    def __init__(
        self, address: int, size_bytes: int, owner: object, device: Device = CPU, read_only: bool = False
    ) -> None:
        self._address: int | None = address
        self._owner = owner
        self._bytes: npt.NDArray[np.uint8] | None = None
        self.size_bytes = size_bytes
        self.device = device
        self.read_only = read_only

    def __repr__(self) -> str:
        place = "closed" if self._address is None else f"{self._address:#x}"
        access = "read-only" if self.read_only else "writable"
        return f"Buffer({place}, size_bytes={self.size_bytes}, {self.device}, {access})"

    def __reduce__(self) -> NoReturn:
        remedy = "pickle tensor.numpy() instead"
        raise ExchangeError(message("pickle", "Buffer", "", "an address in this process", "a value", remedy))

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._address is None

    @property
    def address(self) -> int:
        """Address of the first byte.

        Raises:
            ClosedError: The buffer was closed.
        """
        if self._address is None:
            raise self._closed("address")
        return self._address

    @property
    def owner(self) -> object:
        """What keeps the memory alive.

        Raises:
            ClosedError: The buffer was closed.
        """
        if self._address is None:
            raise self._closed("owner")
        return self._owner

    def close(self) -> None:
        """Let go of the owner; every later use raises ClosedError. Closing twice is allowed."""
        self._address = self._owner = self._bytes = None

    def array(self) -> npt.NDArray[np.uint8]:
        """All bytes as a NumPy array that keeps the owner alive by itself; read-only where the buffer is.

        Raises:
            ClosedError: The buffer was closed.
            DeviceError: The host cannot read the memory.
        """
        if self._address is None:
            raise self._closed("array")
        if self._bytes is None:
            if not self.device.is_host:
                remedy = "copy it to the host first"
                raise DeviceError(
                    message("Buffer.array", "buffer", "device", self.device, "readable by the host", remedy)
                )
            self._bytes = np.asarray(_Span(self._address, self.size_bytes, self.read_only, self._owner))
        return self._bytes

    def _closed(self, use: str) -> ClosedError:
        """The one error for every use after close."""
        return ClosedError(message(f"Buffer.{use}", "buffer", "", "closed", "open", "close it after its last use"))


class _Span:
    """Memory as NumPy's array interface; the array made from it keeps this object, and so the owner, alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, size_bytes: int, read_only: bool, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size_bytes,),
            # NumPy takes address 0 for "allocate"; of no bytes any address is as good.
            "data": (address or 1, read_only),
        }


def allocate(size_bytes: int, *, zero: bool = False) -> Buffer:
    """Host memory of size_bytes bytes at a multiple of 64.

    NumPy allocates: it keeps small blocks for reuse, asks for huge pages where a block is large, and gets zeros from
    the system without touching them.

    Args:
        size_bytes: Number of bytes; the buffer has exactly as many.
        zero: Whether the bytes are 0; otherwise they are arbitrary.

    Raises:
        OptionError: size_bytes is negative.
        MemoryError: There is not that much.
    """
    if size_bytes < 0:
        (size_bytes,) = check_integers("allocate", "size_bytes", (size_bytes,))
        raise OptionError(message("allocate", "size_bytes", "", size_bytes, "at least 0", "count bytes"))
    block = (np.zeros if zero else np.empty)(size_bytes + ALIGNMENT - 1, np.uint8)
    address = address_of(block)
    skip = -address % ALIGNMENT
    array = block[skip : skip + size_bytes]
    buffer = Buffer(address + skip, size_bytes, array)
    buffer._bytes = array
    return buffer


def _address_documented(array: npt.NDArray[Any]) -> int:
    """Address of the first element, by the array interface: about 1 us."""
    address: int = array.__array_interface__["data"][0]
    return address


def _address_from_struct(array: npt.NDArray[Any]) -> int:
    """Address of the first element, from the first field after the object header of NumPy's array struct: about 0.1 us.

    `PyArrayObject_fields.data` has stood there since NumPy 1.0 and is part of its ABI, which compiled extensions read
    directly.
    """
    return _read_word(id(array) + _HEADER).value or 0


_HEADER = object.__basicsize__
_read_word = ctypes.c_size_t.from_address


def _choose_address_of() -> Any:
    """The fast way where it gives what the documented one does."""
    probe = np.zeros(3, np.uint8)
    if ctypes.sizeof(ctypes.c_void_p) == ctypes.sizeof(ctypes.c_size_t) and np.ndarray.__basicsize__ > _HEADER:
        for view in (probe, probe[1:], probe[::-1]):
            if _address_from_struct(view) != _address_documented(view):
                return _address_documented
        return _address_from_struct
    return _address_documented


address_of = _choose_address_of()
