"""What we hand over by DLPack: start at `capsule_of`.

NumPy makes our capsules, over an array that stands for the memory, and we correct the fields it cannot know. A
capsule's destructor runs while an exception may be in flight (a consumer refused the capsule), and a destructor written
in Python would lose that exception; NumPy's is written in C, and so is its deleter, which any thread may call.

The array is never read. Its shape and strides are the numbers of the DLTensor, whatever they count, so that NumPy keeps
them in the managed tensor's own memory, and its base is what owns the bytes.
"""

import ctypes
import struct

import numpy as np

from samebits.dlpack.abi import HEADER, LEGACY, LEGACY_NAME, TENSOR_AT, VERSION, VERSIONED, VERSIONED_NAME, pointer_of
from samebits.dlpack.encoding import COPIED, PADDED, READ_ONLY, Encoding
from samebits.memory import Buffer

__all__ = ["capsule_of"]

_FLAGS_AT = HEADER.size
_DEVICE_AT = struct.calcsize("@P")
_DTYPE_AT = struct.calcsize("@Piii")
_STRIDES_AT = struct.calcsize("@PiiiBBHP")
_POINTER = struct.calcsize("@P")


class _Stand:
    """Facts as NumPy's array interface; the array made from it keeps this object, and so the owner, alive."""

    __slots__ = ("__array_interface__", "owner", "strides")

    def __init__(self, address: int, encoding: Encoding, owner: object) -> None:
        self.owner = owner
        self.strides: object = None
        # NumPy takes address 0 for "allocate".
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": encoding.shape,
            "strides": encoding.strides,
            "data": (address or 1, False),
        }


def capsule_of(
    buffer: Buffer,
    encoding: Encoding,
    device: tuple[int, int],
    *,
    versioned: bool,
    read_only: bool,
    copied: bool = False,
) -> object:
    """A capsule over a buffer's memory, which it keeps alive.

    Args:
        buffer: Where the bytes are.
        encoding: What they mean; its offset counts from the start of the buffer. A legacy capsule has no flags, so it
            takes none that matter: not `PADDED`, and read-only memory only for a consumer that never writes.
        device: DLDevice to declare: the buffer's own, or the CPU where the host can read it.
        versioned: DLManagedTensorVersioned 1.3 instead of DLManagedTensor.
        read_only: Whether to say that nobody may write.
        copied: Whether to say that the memory is the consumer's alone.

    Raises:
        ClosedError: The buffer was closed.
    """
    address = buffer.address + encoding.byte_offset
    stand = _Stand(address, encoding, buffer.owner)
    array = np.asarray(stand)
    if not versioned:
        capsule, name, start, size = array.__dlpack__(), LEGACY_NAME, 0, LEGACY.size
    else:
        capsule, name = array.__dlpack__(max_version=(1, 0)), VERSIONED_NAME
        start, size = TENSOR_AT, VERSIONED.size
    fields = (ctypes.c_ubyte * size).from_address(pointer_of(capsule, name))
    if versioned:
        struct.pack_into("@II", fields, 0, *VERSION)
        flags = encoding.flags & PADDED | (READ_ONLY if read_only else 0) | (COPIED if copied else 0)
        struct.pack_into("@Q", fields, _FLAGS_AT, flags)
    struct.pack_into("@ii", fields, start + _DEVICE_AT, *device)
    struct.pack_into("@BBH", fields, start + _DTYPE_AT, encoding.code, encoding.bits, encoding.lanes)
    _add_strides(fields, start, stand, encoding)
    if not array.size:
        struct.pack_into("@P", fields, start, 0)
    return capsule


def _add_strides(fields: ctypes.Array[ctypes.c_ubyte], start: int, stand: _Stand, encoding: Encoding) -> None:
    """Give a DLTensor strides where it has none: NumPy before 2.4 leaves those of a contiguous array out.

    DLPack 1.2 and later forbid that. The array that the capsule keeps alive keeps them.
    """
    if encoding.strides and not any(fields[start + _STRIDES_AT : start + _STRIDES_AT + _POINTER]):
        stand.strides = strides = (ctypes.c_int64 * len(encoding.strides))(*encoding.strides)
        struct.pack_into("@P", fields, start + _STRIDES_AT, ctypes.addressof(strides))
