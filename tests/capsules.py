"""DLPack by hand: the structures of dlpack.h 1.3, and a producer whose every field a test chooses."""

import ctypes
import threading
from typing import Any, ClassVar

import guard
import numpy as np

from samebits.memory import address_of

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
name_of = ctypes.pythonapi.PyCapsule_GetName
name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Legacy(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


class HandMade:
    """A producer whose every field the test chooses, and which counts the calls of its deleter."""

    kept: ClassVar[list["HandMade"]] = []

    def __init__(self, shape: Any = (2, 3), strides: Any = (3, 1), *, legacy: bool = False, **fields: Any) -> None:
        self.memory = np.arange(64, dtype=np.float32)
        self.deleted: list[int] = []
        self.managed = Legacy() if legacy else Versioned(major=1, minor=3)
        tensor = self.managed.tensor
        tensor.data, tensor.device_type, tensor.ndim = address_of(self.memory), 1, len(shape)
        tensor.code, tensor.bits, tensor.lanes = 2, 32, 1
        tensor.shape = (ctypes.c_int64 * len(shape))(*shape)
        if strides is not None:
            tensor.strides = (ctypes.c_int64 * len(strides))(*strides)
        self.deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: self.deleted.append(threading.get_ident()))
        self.managed.deleter = ctypes.cast(self.deleter, ctypes.c_void_p)
        self.name = fields.pop("name", b"dltensor" if legacy else b"dltensor_versioned")
        # Its memory and its deleter must outlive every tensor made of it, as those of a correct producer do.
        HandMade.kept.append(self)
        self.capsule: object = None
        for field, value in fields.items():
            setattr(self.managed if hasattr(self.managed, field) else tensor, field, value)

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, stream: int | None = None) -> object:
        assert max_version == (1, 3)
        self.capsule = new_capsule(ctypes.addressof(self.managed), self.name, None)
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.managed.tensor.device_type, self.managed.tensor.device_id


def exported(x: Any, **options: Any) -> Any:
    """The managed tensor of a capsule, and the capsule."""
    capsule = x.__dlpack__(**options)
    name = name_of(capsule)
    kind = Versioned if name == b"dltensor_versioned" else Legacy
    return kind.from_address(pointer_of(capsule, name)), capsule


class HeaderOnly:
    """What another major version of DLPack may be: version, context and deleter, and a page behind them that nobody may
    touch. It counts the calls of its deleter."""

    kept: ClassVar[list["HeaderOnly"]] = []

    def __init__(self, major: int) -> None:
        self.deleted: list[int] = []
        self.deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.deleted.append)
        self.words = guard.array([major | 3 << 32, 0, ctypes.cast(self.deleter, ctypes.c_void_p).value], np.uint64)
        self.address = address_of(self.words)
        HeaderOnly.kept.append(self)

    def __dlpack__(self, **_: object) -> object:
        return new_capsule(self.address, b"dltensor_versioned", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.managed.tensor.device_type, self.managed.tensor.device_id
