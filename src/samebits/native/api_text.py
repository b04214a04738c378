"""The text of `Tensor.__dlpack_c_exchange_api__`: DLPackExchangeAPI 1.3, which other libraries call without Python.

Start at `exchange_api`. What is not common goes through the functions written in Python here too; only the borrowed
DLTensor, for which there is none, is refused. The allocator and its deleter need neither interpreter nor lock.
"""

from __future__ import annotations

from samebits.native.capi import OBJECT_TYPE, CValue, Function, Module
from samebits.native.dlpack_text import (
    BYTE_OFFSET,
    DATA,
    DEVICE,
    DEVICE_ID,
    DTYPE,
    FLAGS,
    HEADER,
    NDIM,
    SHAPE,
    STRIDES,
    VERSIONED,
    VERSIONED_AT,
    InterpreterFacts,
    exception_kept,
)
from samebits.shapes import MAX_RANK

__all__ = ["exchange_api"]

_USED = "used_dltensor_versioned"
# Where a tensor that we allocate begins: a cache line and an AVX-512 vector.
_ALIGNMENT = 64


def exchange_api(m: Module, facts: InterpreterFacts) -> None:
    """The structure `exchange_api` and its five functions."""
    _check(m)
    _free(m)
    _allocate(m)
    _from_object(m)
    _to_object(m)
    _borrow(m, facts)
    _stream(m)
    functions = ("allocate", "from_object", "to_object", "borrow", "stream")
    m.table("exchange_api", "i32 1", "i32 3", "ptr null", *(f"ptr @{name}" for name in functions))


def _check(m: Module) -> None:
    """`check(object) -> i32`: whether it is a Tensor; TypeError where it is not."""
    f = m.function("check", "i32", "ptr")
    (x,) = f.arguments
    expected = f.state("tensor_type")
    with f.when(f.load(x, OBJECT_TYPE) == expected):
        f.ret(1)
    # Not isinstance, which believes what an object says of itself: slots are read next.
    found = f.call("PyType_IsSubtype", f.load(x, OBJECT_TYPE), expected)
    with f.when(found == 0):
        text = "__dlpack_c_exchange_api__: object is of another type, must be a samebits.Tensor; ask its own type"
        f.call("PyErr_SetString", f.state("type_error"), f.name_of(text))
    f.ret(found)


def _free(m: Module) -> None:
    """The deleter of what `allocate` made."""
    f = m.function("free_allocated", "void", "ptr")
    f.call("free", f.arguments[0])
    f.ret()


def _allocate(m: Module) -> None:
    """managed_tensor_allocator: a dense row-major host tensor of arbitrary values, like the prototype."""
    f = m.function("allocate", "i32", "ptr", "ptr", "ptr", "ptr")
    like, out, context, set_error = f.arguments
    f.store(f.constant(None, "ptr"), out)

    def refuse(condition: CValue, kind: str, text: str) -> None:
        with f.when(condition):
            f.call_pointer(set_error, "void", context, f.name_of(kind), f.name_of(text))
            f.ret(-1)

    ndim, shape = f.as_(f.load(like, NDIM, "i32"), "i64", signed=True), f.load(like, SHAPE)
    elsewhere = (f.load(like, DEVICE, "i32") != 1) | (f.load(like, DEVICE_ID, "i32") != 0)
    refuse(elsewhere, "BufferError", "allocate: prototype device is none of ours, must be the CPU; allocate it there")
    wrong_rank = ~f.unsigned_below(ndim, MAX_RANK + 1) | ((ndim > 0) & shape.is_null)
    refuse(wrong_rank, "ValueError", "allocate: prototype rank is not in [0, 64] with a shape, must be; reshape it")
    bits, lanes = f.as_(f.load(like, DTYPE + 1, "i8"), "i64"), f.as_(f.load(like, DTYPE + 2, "i16"), "i64")
    total, broken = f.variable("i64", bits * lanes), f.variable("i1", f.constant(0, "i1"))
    with f.loop(ndim) as i:
        extent = f.load(shape, i * 8, "i64")
        product, overflow = _multiplied(f, total.now, extent)
        broken.set(broken.now | overflow | (extent < 0))
        total.set(product)
    # Half of the address space, so that no sum below overflows.
    broken.set(broken.now | (bits == 0) | (lanes == 0) | (total.now > 1 << 62))
    refuse(broken.now, "ValueError", "allocate: prototype size is no number of bytes, must be below 2**59; use less")
    fixed = ndim * 16 + (VERSIONED_AT[2] + _ALIGNMENT)
    managed = f.call("malloc", fixed + ((total.now + 7) >> 3))
    refuse(managed.is_null, "MemoryError", "allocate: prototype size is more than there is memory, must fit; use less")
    at, extents = f.at(managed, HEADER), f.at(managed, VERSIONED_AT[2])
    steps = f.at(extents, ndim * 8)
    step = f.variable("i64", 1)
    with f.loop(ndim) as i:
        place = (ndim - 1 - i) * 8
        extent = f.load(shape, place, "i64")
        f.store(extent, extents, place)
        f.store(step.now, steps, place)
        step.set(step.now * f.select(extent == 0, f.constant(1), extent))
    start = (f.as_(managed, "i64") + fixed) & -_ALIGNMENT
    f.store(start, at, DATA)
    f.store(f.constant(1), at, DEVICE)  # kDLCPU, and device 0
    f.store(f.as_(ndim, "i32"), at, NDIM)
    f.store(f.load(like, DTYPE, "i32"), at, DTYPE)
    f.store(extents, at, SHAPE)
    f.store(steps, at, STRIDES)
    f.store(f.constant(0), at, BYTE_OFFSET)
    f.store(f.constant(1 | 3 << 32), managed)  # version 1.3
    f.store(f.constant(None, "ptr"), managed, VERSIONED_AT[0])
    f.store(f.function_address("free_allocated"), managed, VERSIONED_AT[1])
    f.store(f.constant(0), managed, FLAGS)
    f.store(managed, out)
    f.ret(0)


def _multiplied(f: Function, a: CValue, b: CValue) -> tuple[CValue, CValue]:
    """A product, and whether it is too large."""
    pair = f.call("llvm.smul.with.overflow.i64", a, b)
    return tuple(f.value(f"extractvalue {pair.type} {pair.text}, {i}", ("i64", "i1")[i]) for i in range(2))  # type: ignore[return-value]


def _from_object(m: Module) -> None:
    """managed_tensor_from_py_object_no_sync."""
    f = m.function("from_object", "i32", "ptr", "ptr")
    x, out = f.arguments
    f.store(f.constant(None, "ptr"), out)
    with f.when(f.call("check", x) == 0):
        f.ret(-1)
    managed = f.call("managed", x, 1)
    with f.when(managed.is_set):
        f.store(managed, out)
        f.ret(0)
    with f.when(f.call("PyErr_Occurred").is_set):
        f.ret(-1)
    argument = f.variable("ptr", x)
    capsule = f.own(f.call("PyObject_Vectorcall", f.state("slow_export"), argument.address, 1, None))
    with f.when(capsule.now.is_null):
        f.ret(-1)
    taken = f.call("PyCapsule_GetPointer", capsule.now, f.name_of(VERSIONED))
    with f.when(taken.is_null):
        f.ret(-1)
    f.call("PyCapsule_SetName", capsule.now, f.name_of(_USED))
    f.store(taken, out)
    f.ret(0)


def _to_object(m: Module) -> None:
    """managed_tensor_to_py_object_no_sync, which takes the tensor even where it fails."""
    f = m.function("to_object", "i32", "ptr", "ptr")
    managed, out = f.arguments
    made = f.call("from_managed", managed)
    f.store(made, out)
    with f.when(made.is_set):
        f.ret(0)
    with f.when(f.call("PyErr_Occurred").is_set):
        deleter = f.load(managed, VERSIONED_AT[1])
        with f.when(deleter.is_set), exception_kept(f):
            f.call_pointer(deleter, "void", managed)
        f.ret(-1)
    destructor = f.function_address("drop_versioned")
    capsule = f.own(f.call("PyCapsule_New", managed, f.name_of(VERSIONED), destructor))
    with f.when(capsule.now.is_null):
        f.ret(-1)
    slow = f.call("PyObject_Vectorcall", f.state("slow_import"), capsule.address, 1, None)
    f.store(slow, out)
    f.ret(f.select(slow.is_null, f.constant(-1, "i32"), f.constant(0, "i32")))


def _borrow(m: Module, facts: InterpreterFacts) -> None:
    """dltensor_from_py_object_no_sync: shape and strides stand in bytes that the tensor keeps."""
    f = m.function("borrow", "i32", "ptr", "ptr")
    x, out = f.arguments
    with f.when(f.call("check", x) == 0):
        f.ret(-1)
    ndim = f.call("rank", x)
    with f.when(ndim >= 0):
        kept = f.variable("ptr", f.load(x, facts.tensor["_extents"]))
        with f.when(kept.now.is_null):
            kept.set(f.call("PyBytes_FromStringAndSize", None, ndim * 16))
            with f.when(kept.now.is_null):
                f.ret(-1)
            f.store(kept.now, x, facts.tensor["_extents"])
        with f.when(f.call("describe", x, out, f.call("PyBytes_AsString", kept.now)) != 0):
            f.ret(0)
    # A tuple is what the exception's class is called with.
    f.call("PyErr_SetObject", f.state("exchange_error"), f.state("not_borrowed"))
    f.ret(-1)


def _stream(m: Module) -> None:
    """current_work_stream: no work of ours is in flight when a call returns, on any device."""
    f = m.function("stream", "i32", "i32", "i32", "ptr")
    f.store(f.constant(None, "ptr"), f.arguments[2])
    f.ret(0)
