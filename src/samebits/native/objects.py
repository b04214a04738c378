"""What emitted code must know of this interpreter's objects, found by looking and never assumed.

Start at `is_known`: whether this interpreter's objects are as `native.capi` has them. `slot_offsets` tells where a
class with `__slots__` keeps what: it puts an object of its own into every slot of an instance and looks for them.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import sysconfig
import types
from typing import Any

import numpy as np

from samebits.codegen import isa
from samebits.native import capi

__all__ = [
    "ALIGNED",
    "ARRAY",
    "SLICE",
    "WARNS",
    "WRITABLE",
    "array_is_known",
    "finalizing_symbol",
    "is_known",
    "slot_offsets",
    "word",
]

# Where NumPy's array object keeps its facts, after the object's header: `PyArrayObject_fields` of its C API, which
# compiled extensions read directly. dlpack.h's DLTensor is not like it: strides are bytes here.
ARRAY = {"data": 16, "ndim": 24, "shape": 32, "strides": 40, "descr": 56, "flags": 64}
ALIGNED, WRITABLE = 0x100, 0x400
# The sign of the flags: NumPy warns where such an array (of `broadcast_arrays`) is written or asked whether it may be.
WARNS = -(1 << 31)

# The fields of a slice object, which its public header has.
SLICE = {"start": 16, "stop": 24, "step": 32}


def word(address: int, type: Any = ctypes.c_size_t) -> int:
    """The number at an address."""
    return int(type.from_address(address).value)


@functools.cache
def is_known() -> bool:
    """Whether objects here are those of a 64-bit CPython with a global lock, on a processor with emitted code."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    if sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8 or sys.platform == "win32":
        return False
    if isa.host_arch() not in ("x86_64", "aarch64"):
        return False
    probe = slice(object(), object(), object())
    if any(word(id(probe) + at) != id(getattr(probe, name)) for name, at in SLICE.items()):
        return False
    return all(word(id(x) + capi.OBJECT_TYPE) == id(type(x)) for x in (object(), 1, "a", (), int, np.zeros(1)))


@functools.cache
def finalizing_symbol() -> str:
    """The function that says whether the interpreter is ending, by the name that this version exports."""
    return "Py_IsFinalizing" if hasattr(ctypes.pythonapi, "Py_IsFinalizing") else "_Py_IsFinalizing"


def slot_offsets(cls: type) -> dict[str, int]:
    """Bytes from an instance's address to each of its slots.

    Raises:  ValueError if an instance does not show each slot in one place.
    """
    instance: Any = object.__new__(cls)
    slots = {
        name: member
        for base in cls.__mro__
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    }
    marks = {name: object() for name in slots}
    for name, mark in marks.items():
        slots[name].__set__(instance, mark)
    words = range(capi.OBJECT_TYPE + 8, cls.__basicsize__, 8)
    found = {name: [at for at in words if word(id(instance) + at) == id(mark)] for name, mark in marks.items()}
    for name in marks:
        slots[name].__delete__(instance)
    if any(len(places) != 1 for places in found.values()):
        raise ValueError(f"slots of {cls.__name__} are at {found}")
    return {name: places[0] for name, places in found.items()}


@functools.cache
def array_is_known() -> bool:
    """Whether `ARRAY` says of arrays what their documented attributes do."""
    base = np.arange(48, dtype=np.float32).reshape(2, 4, 6)
    constant = np.zeros(3, np.int16)
    constant.flags.writeable = False
    skewed = np.zeros(9, np.uint8)[1:].view(np.float64)
    probes = (base, base[::-1, 1:, ::2], base[0, 0, 0:0], np.array(1.5), constant, skewed, base.T, constant.view(">i2"))
    return np.ndarray.__basicsize__ > ARRAY["flags"] and all(_agrees(probe) for probe in probes)


def _agrees(array: np.ndarray[Any, Any]) -> bool:
    at = {name: id(array) + offset for name, offset in ARRAY.items()}
    rank = word(at["ndim"], ctypes.c_int32)
    if rank != array.ndim or word(at["data"]) != array.__array_interface__["data"][0]:
        return False
    shape, strides = word(at["shape"]), word(at["strides"])
    flags = word(at["flags"], ctypes.c_int32)
    return (
        [word(shape + 8 * i, ctypes.c_int64) for i in range(rank)] == list(array.shape)
        and [word(strides + 8 * i, ctypes.c_int64) for i in range(rank)] == list(array.strides)
        and word(at["descr"]) == id(array.dtype)
        and bool(flags & WRITABLE) is array.flags.writeable
        and bool(flags & ALIGNED) is array.flags.aligned
    )
