"""DLPack capsules: what a producer hands over, checked; and what we hand over.

Start at `receive` (consumer) and `capsule_of` (producer). The protocol is that of dlpack.h 1.3 and of the Python array
API: a capsule is named `dltensor` (legacy) or `dltensor_versioned`, the consumer renames it to `used_...` and calls the
deleter once when it is done; an unused capsule calls it when it dies.

NumPy makes our capsules, over an array of the same memory, and we correct the fields it has no dtype for. A capsule's
destructor runs while an exception may be in flight (a consumer refused the capsule), and a destructor written in Python
would lose that exception; NumPy's is written in C, and so is its deleter, which any thread may call.
"""

import ctypes
import struct
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, ExchangeError, LayoutError, message
from samebits.layout import Layout, Shape
from samebits.memory import Buffer, Device
from samebits.shapes import MAX_RANK

__all__ = ["EXCHANGED", "Producer", "capsule_of", "check_exchanged", "receive"]

# Formats whose elements are whole bytes each.
EXCHANGED = frozenset(row for row in dtypes.ROWS if row.width_bits % 8 == 0)

_VERSION = (1, 3)
_READ_ONLY, _COPIED, _PADDED = 1, 2, 4

# DLTensor: data, device type and id, ndim, dtype (code, bits, lanes), shape, strides, byte_offset.
_TENSOR = "PiiiBBHPPQ"
# DLManagedTensor: DLTensor, manager_ctx, deleter.
_LEGACY = struct.Struct("@" + _TENSOR + "PP")
# DLManagedTensorVersioned: major, minor, manager_ctx, deleter, flags, DLTensor. The header is stable across versions.
_HEADER = struct.Struct("@IIPPQ")
_VERSIONED = struct.Struct("@IIPPQ" + _TENSOR)
_DTYPE_IN_TENSOR = struct.calcsize("@Piii")
_FLAGS_IN_HEADER = struct.calcsize("@IIPP")


class Producer(Protocol):
    """Anything that exports DLPack."""

    def __dlpack__(self, **options: Any) -> Any:
        """A capsule."""

    def __dlpack_device__(self) -> tuple[Any, int]:
        """`(device_type, device_id)`."""


def _api(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the C API, called with the GIL held."""
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, arguments
    return function


_is_valid = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _api("PyCapsule_GetPointer", ctypes.c_size_t, ctypes.py_object, ctypes.c_char_p)
_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_name = _api("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
_hold = _api("Py_IncRef", None, ctypes.py_object)

_LEGACY_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
_USED = {_LEGACY_NAME: b"used_dltensor", _VERSIONED_NAME: b"used_dltensor_versioned"}
for _used in _USED.values():
    # A capsule keeps only a pointer to its name, and may outlive this module.
    _hold(_used)


class _Managed:
    """A managed tensor that is ours: its deleter is called once, when the last user lets go, on that thread."""

    __slots__ = ("_address", "_deleter")

    _call = ctypes.CFUNCTYPE(None, ctypes.c_size_t)

    def __init__(self, address: int, deleter: int) -> None:
        self._address = address
        self._deleter = deleter

    def __del__(self) -> None:
        if self._deleter:
            self._call(self._deleter)(self._address)


def receive(producer: Producer, call: str = "from_dlpack") -> tuple[Buffer, Layout, DType]:
    """The producer's memory, layout and dtype, without copying; the buffer's owner calls the deleter.

    A legacy capsule cannot say whether its memory may be written, and is taken as read-only.

    Args:
        producer: Anything with `__dlpack__`.
        call: The public function, for messages.

    Raises:
        ExchangeError: There is no capsule, or one that breaks the protocol or is of another major version.
        DTypeError: Its elements are not of a row in `EXCHANGED`.
    """
    capsule = _requested(producer, call)
    name = _VERSIONED_NAME if _is_valid(capsule, _VERSIONED_NAME) else _LEGACY_NAME
    if name is _LEGACY_NAME and not _is_valid(capsule, name):
        actual = _name(capsule) if type(capsule).__name__ == "PyCapsule" else type(capsule).__name__
        expected = "b'dltensor_versioned' or b'dltensor'"
        raise ExchangeError(message(call, "capsule", "name", repr(actual), expected, "ask for a new one"))
    address = _pointer(capsule, name)
    _rename(capsule, _USED[name])
    if name == _LEGACY_NAME:
        *tensor, _, deleter = _LEGACY.unpack(ctypes.string_at(address, _LEGACY.size))
        return _checked(call, tensor, _Managed(address, deleter), read_only=True)
    # Another major version shares only the header, which is what it takes to give the tensor back.
    major, minor, _, deleter, flags = _HEADER.unpack(ctypes.string_at(address, _HEADER.size))
    owner = _Managed(address, deleter)
    if major != _VERSION[0]:
        raise ExchangeError(
            message(call, "capsule", "version", f"{major}.{minor}", "1.x", "export it with max_version=(1, 3)")
        )
    if flags & ~(_READ_ONLY | _COPIED | _PADDED):
        raise ExchangeError(
            message(call, "capsule", "flags", f"{flags:#x}", "a subset of 0x7", "export it with max_version=(1, 3)")
        )
    tensor = list(_VERSIONED.unpack(ctypes.string_at(address, _VERSIONED.size))[5:])
    return _checked(call, tensor, owner, read_only=bool(flags & _READ_ONLY))


def _requested(producer: Producer, call: str) -> object:
    """The capsule of a producer, which may be too old to know any keyword."""
    export = getattr(producer, "__dlpack__", None)
    if export is None:
        raise ExchangeError(
            message(call, "x", "type", type(producer).__name__, "one with __dlpack__", "use Tensor.from_any")
        )
    try:
        return export(max_version=_VERSION)
    except TypeError:
        return export()


def _checked(call: str, tensor: list[int], owner: _Managed, *, read_only: bool) -> tuple[Buffer, Layout, DType]:
    """The facts of a DLTensor, refused where they cannot be true."""
    data, device_type, device_id, ndim, code, bits, lanes, shape_at, strides_at, byte_offset = tensor
    device = Device.from_dlpack(device_type, device_id)
    if device is None:
        raise ExchangeError(
            message(call, "x", "DLPack device type", device_type, "a known one", "copy it to the host first")
        )
    if not 0 <= ndim <= MAX_RANK:
        raise ExchangeError(message(call, "x", "rank", ndim, f"in [0, {MAX_RANK}]", "reshape it first"))
    dtype = dtypes.of_dlpack(code, bits)
    if lanes != 1 or dtype is None:
        actual = f"(code {code}, bits {bits}, lanes {lanes})"
        raise DTypeError(
            message(call, "x", "DLPack dtype", actual, "that of a row in dlpack.EXCHANGED", "convert it first")
        )
    check_exchanged(dtype, call)
    if ndim and not shape_at:
        raise _broken(call, "shape pointer", "NULL", f"{ndim} extents")
    shape = struct.unpack(f"{ndim}q", ctypes.string_at(shape_at, 8 * ndim)) if ndim else ()
    strides = struct.unpack(f"{ndim}q", ctypes.string_at(strides_at, 8 * ndim)) if ndim and strides_at else None
    try:
        layout, low, span = _layout_of(shape, strides, bits)
    except LayoutError as error:
        raise _broken(call, "(shape, strides)", (shape, strides), "those of a layout") from error
    if not span:
        return Buffer(0, 0, owner, device, read_only), layout, dtype
    address = data + byte_offset
    if not data:
        raise _broken(call, "data pointer", "NULL", "that of its elements")
    if address + low < 0 or address + low + span > 1 << 64:
        raise _broken(call, "span", f"{span} bytes from {address + low:#x}", "addressable")
    if address % (bits >> 3):
        raise ExchangeError(
            message(call, "x", "address", f"{address:#x}", f"a multiple of {bits >> 3}", "copy it first")
        )
    return Buffer(address + low, span, owner, device, read_only), layout, dtype


@lru_cache(maxsize=4096)
def _layout_of(shape: Shape, strides: Shape | None, bits: int) -> tuple[Layout, int, int]:
    """The layout from its lowest byte, how far from element (0, 0, ...) that is, and the bytes spanned."""
    if strides is None:
        return Layout.dense(shape, width_bits=bits).rebased()
    return Layout.from_strides(shape, strides, width_bits=bits).rebased()


def _broken(call: str, fact: str, actual: object, expected: object) -> ExchangeError:
    """What no correct producer hands over."""
    return ExchangeError(message(call, "x", fact, actual, expected, "report it to the producer"))


def check_exchanged(dtype: DType, call: str) -> None:
    """Raise DTypeError unless the dtype travels by DLPack."""
    if dtype not in EXCHANGED:
        names = ", ".join(row.name for row in dtypes.ROWS if row in EXCHANGED)
        raise DTypeError(message(call, "x", "dtype", dtype.name, f"one of {names}", "exchange its bytes as uint8"))


def capsule_of(array: npt.NDArray[Any], dtype: DType, *, versioned: bool, copied: bool = False) -> object:
    """A capsule over the array's memory, whose elements are of that dtype; it keeps the array alive.

    Args:
        array: Of a NumPy dtype of the same width; read-only ones need a versioned capsule, which says so.
        dtype: The format to declare, a row in `EXCHANGED`.
        versioned: DLManagedTensorVersioned instead of DLManagedTensor.
        copied: Whether to say that the memory is the consumer's alone (versioned only).
    """
    if not versioned:
        capsule, name, tensor_at = array.__dlpack__(), _LEGACY_NAME, 0
    else:
        capsule, name, tensor_at = array.__dlpack__(max_version=(1, 0)), _VERSIONED_NAME, _HEADER.size
    if array.dtype != dtype.numpy:
        ctypes.c_uint8.from_address(_pointer(capsule, name) + tensor_at + _DTYPE_IN_TENSOR).value = dtype.dlpack[0]
    if copied and versioned:
        ctypes.c_uint64.from_address(_pointer(capsule, name) + _FLAGS_IN_HEADER).value |= _COPIED
    return capsule


def carrier_of(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype under which the bytes of that dtype travel: its own, or the unsigned integer of its width."""
    own = dtype.numpy
    return own if own is not None and own.isbuiltin == 1 else np.dtype(f"u{dtype.size_bytes}")
