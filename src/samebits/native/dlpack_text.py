"""What the emitted exchange functions share: the facts they are written for, and how a managed tensor ends.

A managed tensor of ours has the owner of its memory as manager_ctx: that one reference is all a consumer holds.
Structures and field offsets are those of dlpack.h 1.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from samebits.frozen import dataclass
from samebits.native.capi import CValue, Function, Module

__all__ = [
    "BYTE_OFFSET", "DATA", "DEVICE", "DEVICE_ID", "DTYPE", "FLAGS", "HEADER", "LEGACY", "LEGACY_AT", "NDIM",
    "READ_ONLY", "SHAPE", "STRIDES", "TAKEN", "VERSIONED", "VERSIONED_AT", "InterpreterFacts", "endings",
    "exception_kept", "give_up", "required",
]  # fmt: skip

LEGACY, VERSIONED = "dltensor", "dltensor_versioned"
# The name of a capsule that keeps a managed tensor which we consumed.
TAKEN = "samebits_taken"
READ_ONLY = 1
# DLTensor's fields, and where one stands in a DLManagedTensorVersioned.
DATA, DEVICE, DEVICE_ID, NDIM, DTYPE, SHAPE, STRIDES, BYTE_OFFSET = 0, 8, 12, 16, 20, 24, 32, 40
HEADER = 32
# (manager_ctx, deleter, size) of DLManagedTensor and DLManagedTensorVersioned.
LEGACY_AT, VERSIONED_AT = (48, 56, 64), (8, 16, 80)
FLAGS = 24


@dataclass(frozen=True, slots=True)
class InterpreterFacts:
    """What differs between interpreters and is part of the text: slots of our classes, and a symbol's name."""

    tensor: Mapping[str, int]
    buffer: Mapping[str, int]
    layout: Mapping[str, int]
    finalizing: str


@contextmanager
def exception_kept(f: Function) -> Iterator[None]:
    """What runs inside cannot change the exception in flight."""
    type, value, trace = f.stack("ptr"), f.stack("ptr"), f.stack("ptr")
    f.call("PyErr_Fetch", type, value, trace)
    yield
    f.call("PyErr_Restore", f.load(type), f.load(value), f.load(trace))


def required(f: Function, value: CValue) -> CValue:
    """Leave with NULL where a call gave NULL."""
    with f.when(value.is_null):
        f.ret(None)
    return value


def give_up(f: Function, *conditions: CValue) -> None:
    """Leave with NULL where one of the conditions holds."""
    for condition in conditions:
        with f.when(condition):
            f.ret(None)


def endings(m: Module, facts: InterpreterFacts) -> None:
    """The functions that call what Python wrote, and that let go of memory."""
    _slow(m)
    _release(m, facts)
    _deleter(m, "delete_legacy", LEGACY_AT)
    _deleter(m, "delete_versioned", VERSIONED_AT)
    _destructor(m, "drop_legacy", LEGACY, LEGACY_AT)
    _destructor(m, "drop_versioned", VERSIONED, VERSIONED_AT)
    _destructor(m, "drop_taken", TAKEN, VERSIONED_AT)


def _slow(m: Module) -> None:
    """`slow(function, self, args, nargs, kwnames)`: the function written in Python, with self in front."""
    f = m.function("slow", "ptr", "ptr", "ptr", "ptr", "i64", "ptr")
    function, self, args, nargs, kwnames = f.arguments
    bound = f.own(required(f, f.call("PyMethod_New", function, self)))
    f.ret(f.call("PyObject_Vectorcall", bound.now, args, nargs, kwnames))


def _release(m: Module, facts: InterpreterFacts) -> None:
    """`release(owner) -> i32`: one reference less, from any thread; 0 where the interpreter is gone and all must stay.

    A thread without the lock cannot take it any more once the interpreter is ending.
    """
    f = m.function("release", "i32", "ptr")
    (owner,) = f.arguments
    with f.when(f.call("Py_IsInitialized") == 0):
        f.ret(0)
    with f.when(f.call(facts.finalizing) != 0), f.when(f.call("PyGILState_Check") == 0):
        f.ret(0)
    lock = f.call("PyGILState_Ensure")
    with exception_kept(f):
        f.call("Py_DecRef", owner)
    f.call("PyGILState_Release", lock)
    f.ret(1)


def _deleter(m: Module, name: str, at: tuple[int, int, int]) -> None:
    """The deleter of a managed tensor of ours, whose manager_ctx is the owner of its memory."""
    f = m.function(name, "void", "ptr")
    (managed,) = f.arguments
    with f.when(managed.is_null):
        f.ret()
    with f.when(f.call("release", f.load(managed, at[0])) != 0):
        f.call("PyMem_RawFree", managed)
    f.ret()


def _destructor(m: Module, symbol: str, name: str, at: tuple[int, int, int]) -> None:
    """A capsule's destructor: calls the deleter unless a consumer took the tensor and renamed the capsule."""
    f = m.function(symbol, "void", "ptr")
    (capsule,) = f.arguments
    with f.when(f.call("PyCapsule_IsValid", capsule, f.name_of(name)) == 0):
        f.ret()
    managed = f.call("PyCapsule_GetPointer", capsule, f.name_of(name))
    deleter = f.load(managed, at[1])
    with f.when(deleter.is_set), exception_kept(f):
        f.call_pointer(deleter, "void", managed)
    f.ret()
