"""What dlpack.h 1.3 and Python's capsules fix: structures, names, and the functions that read a capsule."""

import ctypes
import struct
from typing import Any

__all__ = [
    "HEADER",
    "LEGACY",
    "LEGACY_NAME",
    "TENSOR_AT",
    "USED",
    "VERSION",
    "VERSIONED",
    "VERSIONED_NAME",
    "is_valid",
    "name_of",
    "pointer_of",
    "rename",
]

VERSION = (1, 3)

_TENSOR = "PiiiBBHPPQ"
# DLTensor: data, device type and id, ndim, dtype (code, bits, lanes), shape, strides, byte_offset.
# DLManagedTensor: DLTensor, manager_ctx, deleter.
LEGACY = struct.Struct("@" + _TENSOR + "PP")
# DLManagedTensorVersioned: major, minor, manager_ctx, deleter, flags, DLTensor. Of another major version only the
# header is known: what stands behind it may be anything, and need not be memory.
HEADER = struct.Struct("@IIPP")
VERSIONED = struct.Struct("@IIPPQ" + _TENSOR)
TENSOR_AT = struct.calcsize("@IIPPQ")


def _api(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the C API, called with the GIL held."""
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, arguments
    return function


is_valid = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
pointer_of = _api("PyCapsule_GetPointer", ctypes.c_size_t, ctypes.py_object, ctypes.c_char_p)
rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
name_of = _api("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
_hold = _api("Py_IncRef", None, ctypes.py_object)

LEGACY_NAME, VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
USED = {LEGACY_NAME: b"used_dltensor", VERSIONED_NAME: b"used_dltensor_versioned"}
for _used in USED.values():
    # A capsule keeps only a pointer to its name, and may outlive this module.
    _hold(_used)
