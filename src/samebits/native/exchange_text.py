"""The text of exchange's fast functions: what `Tensor.from_dlpack` and `Tensor.__dlpack__` do for the common case.

Common is: host memory, elements of whole bytes, lanes 1, no flag but read-only, at least one element. Everything else,
and every error, is the business of the functions written in Python: an emitted function that meets a case which it
does not know gives back what it took and calls them. So the rules have one home, and this page holds only their
shortest path. Start at `module`. In what returns an object, NULL without an exception says "not common".

Layouts are not computed here: Python makes each once, and a dictionary of the state keeps it under the extents'
and strides' bytes. Structures and field offsets are those of dlpack.h 1.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from samebits.native.capi import FASTCALL, NOARGS, OBJECT_TYPE, Function, Module, Value
from samebits.native.objects import ALIGNED, ARRAY, WRITABLE
from samebits.shapes import MAX_RANK

__all__ = ["ARRAY_DTYPES", "BYTE_STRIDES", "CODES", "DTYPES", "SIZES", "Facts", "module"]

# Room for NumPy's own dtypes, for dtypes of ours, for DLPack's type codes, and for sizes in bytes of an element.
ARRAY_DTYPES, DTYPES, CODES, SIZES = 16, 32, 32, 17
# In a key of the layouts: the strides that follow count bytes, not elements.
BYTE_STRIDES = 1 << 16

LEGACY, VERSIONED = "dltensor", "dltensor_versioned"
_READ_ONLY = 1
# DLTensor's fields, and where one stands in the two managed structures.
_DATA, _DEVICE, _DEVICE_ID, _NDIM, _DTYPE, _SHAPE, _STRIDES, _BYTE_OFFSET = 0, 8, 12, 16, 20, 24, 32, 40
_HEADER = 32
# (manager_ctx, deleter, size) of DLManagedTensor and DLManagedTensorVersioned.
_LEGACY_AT, _VERSIONED_AT = (48, 56, 64), (8, 16, 80)
_FLAGS = 24
# DLPackExchangeAPI: managed_tensor_from_py_object_no_sync.
_FROM_OBJECT = 24


@dataclass(frozen=True, slots=True)
class Facts:
    """What differs between interpreters and is part of the text: slots of our classes, and a symbol's name."""

    tensor: Mapping[str, int]
    buffer: Mapping[str, int]
    layout: Mapping[str, int]
    finalizing: str


def module(facts: Facts, docs: Mapping[str, str]) -> Module:
    """All functions and method tables.

    Args:    docs: docstrings by method name, with the signature that `inspect` reads in front.
    """
    m = Module()
    m.reserve("array_dtypes", 3 * ARRAY_DTYPES)
    m.reserve("dtypes", 2 * DTYPES)
    m.reserve("rows", CODES * SIZES)
    _slow(m)
    _release(m, facts)
    _deleter(m, "delete_legacy", _LEGACY_AT)
    _deleter(m, "delete_versioned", _VERSIONED_AT)
    _destructor(m, "drop_legacy", LEGACY, _LEGACY_AT)
    _destructor(m, "drop_versioned", VERSIONED, _VERSIONED_AT)
    _destructor(m, "drop_taken", TAKEN, _VERSIONED_AT)
    _entry(m)
    _tensor(m, facts)
    _from_array(m)
    _from_managed(m)
    _is_false(m)
    _from_producer(m)
    _from_dlpack(m)
    _managed(m, facts)
    _capsule(m)
    _asked(m)
    _dlpack(m)
    _dlpack_device(m, facts)
    m.method("method_from_dlpack", "from_dlpack", "from_dlpack", FASTCALL, docs["from_dlpack"])
    m.method("method_dlpack", "__dlpack__", "dlpack", FASTCALL, docs["__dlpack__"])
    m.method("method_dlpack_device", "__dlpack_device__", "dlpack_device", NOARGS, docs["__dlpack_device__"])
    return m


# The name of a capsule that keeps a managed tensor which we consumed.
TAKEN = "samebits_taken"


@contextmanager
def _exception_kept(f: Function) -> Iterator[None]:
    """What runs inside cannot change the exception in flight."""
    type, value, trace = f.stack("ptr"), f.stack("ptr"), f.stack("ptr")
    f.call("PyErr_Fetch", type, value, trace)
    yield
    f.call("PyErr_Restore", f.load(type), f.load(value), f.load(trace))


def _return_if_null(f: Function, value: Value) -> Value:
    """Leave with NULL where a call gave NULL."""
    with f.when(value.is_null):
        f.ret(None)
    return value


def _slow(m: Module) -> None:
    """`slow(function, self, args, nargs, kwnames)`: the function written in Python, with self in front."""
    f = m.function("slow", "ptr", "ptr", "ptr", "ptr", "i64", "ptr")
    function, self, args, nargs, kwnames = f.arguments
    bound = f.own(_return_if_null(f, f.call("PyMethod_New", function, self)))
    f.ret(f.call("PyObject_Vectorcall", bound.now, args, nargs, kwnames))


def _release(m: Module, facts: Facts) -> None:
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
    with _exception_kept(f):
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
    with f.when(deleter.is_set), _exception_kept(f):
        f.call_pointer(deleter, "void", managed)
    f.ret()


def _entry(m: Module) -> None:
    """`entry(tag, ndim, shape, strides) -> (layout, low, span)`: a layout and its place, made by Python once."""
    f = m.function("entry", "ptr", "i64", "i64", "ptr", "ptr")
    tag, ndim, shape, strides = f.arguments
    with f.when(ndim > MAX_RANK):
        f.ret(None)
    words = f.stack("i64", 1 + 2 * MAX_RANK)
    f.store(tag, words)
    half = ndim * 8
    f.call("llvm.memcpy.p0.p0.i64", f.at(words, 8), shape, half, f.constant(0, "i1"))
    f.call("llvm.memcpy.p0.p0.i64", f.at(f.at(words, 8), half), strides, half, f.constant(0, "i1"))
    key = f.own(_return_if_null(f, f.call("PyBytes_FromStringAndSize", words, half * 2 + 8)))
    found = f.call("PyDict_GetItemWithError", f.state("layouts"), key.now)
    with f.when(found.is_set):
        f.ret(f.incref(found))
    with f.when(f.call("PyErr_Occurred").is_set):
        f.ret(None)
    made = f.own(_return_if_null(f, f.call("PyObject_Vectorcall", f.state("make_layout"), key.address, 1, None)))
    with f.when(made.now == f.state("none")):
        f.ret(None)
    f.ret(f.take(made))


def _tensor(m: Module, facts: Facts) -> None:
    """`tensor(entry, data, dtype, owner, read_only) -> Tensor`, or NULL where the memory is not where it may be."""
    f = m.function("tensor", "ptr", "ptr", "i64", "ptr", "ptr", "ptr")
    entry, data, dtype, owner, read_only = f.arguments
    layout, span = f.call("PyTuple_GetItem", entry, 0), f.call("PyTuple_GetItem", entry, 2)
    low, size = f.call("PyLong_AsLongLong", f.call("PyTuple_GetItem", entry, 1)), f.call("PyLong_AsLongLong", span)
    start = data + low
    # The upper half of the address space is no process's.
    for wrong in (data <= 0, start < 0, start + size < start):
        with f.when(wrong):
            f.ret(None)
    buffer = f.own(_return_if_null(f, f.call("PyType_GenericAlloc", f.state("buffer_type"), 0)))
    address = f.call("PyLong_FromUnsignedLongLong", start)
    f.store(_return_if_null(f, address), buffer.now, facts.buffer["_address"])
    varying = {"_owner": owner, "size_bytes": span, "read_only": read_only}
    for name, offset in facts.buffer.items():
        if name != "_address":
            value = varying.get(name)
            # What does not vary is as in a buffer that Python made.
            value = f.load(f.state("buffer"), offset) if value is None else value
            f.store(f.incref(value), buffer.now, offset)
    made = _return_if_null(f, f.call("PyType_GenericAlloc", f.state("tensor_type"), 0))
    f.store(f.incref(layout), made, facts.tensor["layout"])
    f.store(f.incref(dtype), made, facts.tensor["dtype"])
    f.store(f.take(buffer), made, facts.tensor["buffer"])
    f.ret(made)


def _from_array(m: Module) -> None:
    """`from_array(array) -> Tensor` of a NumPy array of a NumPy dtype, read from NumPy's own structure."""
    f = m.function("from_array", "ptr", "ptr")
    (array,) = f.arguments
    flags = f.load(array, ARRAY["flags"], "i32")
    with f.when((flags & ALIGNED) == 0):
        f.ret(None)
    descr = f.load(array, ARRAY["descr"])
    rows = f.state_address("array_dtypes")
    with f.loop(ARRAY_DTYPES) as i, f.when(f.load(rows, i * 24) == descr):
        dtype, bits = f.load(rows, i * 24 + 8), f.load(rows, i * 24 + 16, "i64")
        data = f.load(array, ARRAY["data"], "i64")
        with f.when((data & ((bits >> 3) - 1)) != 0):
            f.ret(None)
        ndim = f.as_(f.load(array, ARRAY["ndim"], "i32"), "i64", signed=True)
        shape, strides = f.load(array, ARRAY["shape"]), f.load(array, ARRAY["strides"])
        entry = f.own(_return_if_null(f, f.call("entry", bits + BYTE_STRIDES, ndim, shape, strides)))
        access = f.select((flags & WRITABLE) == 0, f.state("true"), f.state("false"))
        f.ret(f.call("tensor", entry.now, data, dtype, array, access))
    f.ret(None)


def _from_managed(m: Module) -> None:
    """`from_managed(managed) -> Tensor`, which calls the deleter when it dies; NULL leaves the caller with it."""
    f = m.function("from_managed", "ptr", "ptr")
    (managed,) = f.arguments
    at = f.at(managed, _HEADER)
    ndim, lanes = f.load(at, _NDIM, "i32"), f.load(at, _DTYPE + 2, "i16")
    code, bits = (f.as_(f.load(at, _DTYPE + i, "i8"), "i64") for i in range(2))
    shape, strides = f.load(at, _SHAPE), f.load(at, _STRIDES)
    flags = f.load(managed, _FLAGS, "i64")
    for wrong in (
        f.load(managed, 0, "i32") != 1, (flags & ~_READ_ONLY) != 0,
        f.load(at, _DEVICE, "i32") != 1, f.load(at, _DEVICE_ID, "i32") != 0,
        ndim < 0, ndim > MAX_RANK, lanes != 1, code >= CODES, (bits & 7) != 0, (bits >> 3) >= SIZES,
    ):  # fmt: skip
        with f.when(wrong):
            f.ret(None)
    with f.when(ndim != 0):
        for pointer in (shape, strides):
            with f.when(pointer.is_null):
                f.ret(None)
    dtype = _return_if_null(f, f.load(f.state_address("rows"), (code * SIZES + (bits >> 3)) * 8))
    base = f.load(at, _DATA, "i64")
    data = base + f.load(at, _BYTE_OFFSET, "i64")
    for wrong in (base == 0, (data & ((bits >> 3) - 1)) != 0):
        with f.when(wrong):
            f.ret(None)
    entry = f.own(_return_if_null(f, f.call("entry", bits, f.as_(ndim, "i64"), shape, strides)))
    destructor = f.function_address("drop_taken")
    owner = f.own(_return_if_null(f, f.call("PyCapsule_New", managed, f.name_of(TAKEN), destructor)))
    access = f.select((flags & _READ_ONLY) != 0, f.state("true"), f.state("false"))
    made = f.call("tensor", entry.now, data, dtype, owner.now, access)
    with f.when(made.is_null):
        # Not consumed after all: the capsule lets go of it without calling the deleter.
        f.call("PyCapsule_SetName", owner.now, None)
    f.ret(made)


def _is_false(m: Module) -> None:
    """`is_false(value) -> i32`: whether it is False; takes the reference, and NULL is not."""
    f = m.function("is_false", "i32", "ptr")
    (value,) = f.arguments
    with f.when(value.is_null):
        f.ret(0)
    f.call("Py_DecRef", value)
    f.ret(f.as_(value == f.state("false"), "i32"))


def _from_producer(m: Module) -> None:
    """`from_producer(x) -> Tensor` of an object whose type has `__dlpack_c_exchange_api__`.

    A row of `producers` is (its capsule, an attribute or None, a method or None): both must be False, or the memory
    does not hold what the object means, which only the object's own `__dlpack__` knows how to refuse.
    """
    f = m.function("from_producer", "ptr", "ptr")
    (x,) = f.arguments
    type = f.load(x, OBJECT_TYPE)
    found = f.call("PyDict_GetItemWithError", f.state("producers"), type)
    row = f.own()
    row.set(f.incref(found))
    with f.when(found.is_null):
        with f.when(f.call("PyErr_Occurred").is_set):
            f.ret(None)
        arguments = f.variable("ptr", type)
        row.set(f.call("PyObject_Vectorcall", f.state("add_producer"), arguments.address, 1, None))
        _return_if_null(f, row.now)
    none = f.state("none")
    with f.when(row.now == none):
        f.ret(None)
    attribute, method = f.call("PyTuple_GetItem", row.now, 1), f.call("PyTuple_GetItem", row.now, 2)
    with f.when(attribute != none), f.when(f.call("is_false", f.call("PyObject_GetAttr", x, attribute)) == 0):
        f.ret(None)
    self = f.variable("ptr", x)
    with (
        f.when(method != none),
        f.when(f.call("is_false", f.call("PyObject_VectorcallMethod", method, self.address, 1, None)) == 0),
    ):
        f.ret(None)
    name = f.name_of("dlpack_exchange_api")
    api = _return_if_null(f, f.call("PyCapsule_GetPointer", f.call("PyTuple_GetItem", row.now, 0), name))
    managed = f.variable("ptr")
    managed.set(None)
    failed = f.call_pointer(f.load(api, _FROM_OBJECT), "i32", x, managed.address)
    with f.when(failed != 0):
        # The producer's own `__dlpack__` says why, in its words.
        f.call("PyErr_Clear")
        f.ret(None)
    _return_if_null(f, managed.now)
    made = f.call("from_managed", managed.now)
    with f.when(made.is_null):
        deleter = f.load(managed.now, _VERSIONED_AT[1])
        with f.when(deleter.is_set), _exception_kept(f):
            f.call_pointer(deleter, "void", managed.now)
    f.ret(made)


def _from_dlpack(m: Module) -> None:
    """`Tensor.from_dlpack(x)`."""
    f = m.function("from_dlpack", "ptr", "ptr", "ptr", "i64", "ptr")
    _, args, nargs, kwnames = f.arguments
    with f.when(nargs == 1), f.when(kwnames.is_null):
        x = f.load(args)
        made = f.variable("ptr")
        made.set(None)
        is_array = f.load(x, OBJECT_TYPE) == f.state("array_type")
        with f.when(is_array):
            made.set(f.call("from_array", x))
        with f.when(~is_array):
            made.set(f.call("from_producer", x))
        with f.when(made.now.is_set):
            f.ret(made.now)
        with f.when(f.call("PyErr_Occurred").is_set):
            f.ret(None)
    f.ret(f.call("PyObject_Vectorcall", f.state("slow_from_dlpack"), args, nargs, kwnames))


def _managed(m: Module, facts: Facts) -> None:
    """`managed(tensor, versioned) -> DLManagedTensor or DLManagedTensorVersioned`; NULL where it is not common."""
    f = m.function("managed", "ptr", "ptr", "i64")
    self, versioned = f.arguments
    buffer, layout, dtype = (_return_if_null(f, f.load(self, facts.tensor[n])) for n in ("buffer", "layout", "dtype"))
    read_only = f.load(buffer, facts.buffer["read_only"])
    owner, address = (f.load(buffer, facts.buffer[name]) for name in ("_owner", "_address"))
    for wrong in (
        f.load(buffer, OBJECT_TYPE) != f.state("buffer_type"), f.load(layout, OBJECT_TYPE) != f.state("layout_type"),
        f.load(buffer, facts.buffer["device"]) != f.state("cpu"), owner == f.state("none"),
        address == f.state("none"),
    ):  # fmt: skip
        with f.when(wrong):
            f.ret(None)
    with f.when(read_only != f.state("false")), f.when(versioned == 0):
        f.ret(None)
    kind = f.variable("i64", 0)
    rows = f.state_address("dtypes")
    with f.loop(DTYPES) as i, f.when(f.load(rows, i * 16) == dtype):
        kind.set(f.load(rows, i * 16 + 8, "i64"))
    bits = (kind.now >> 8) & 255
    with f.when(kind.now == 0):
        f.ret(None)
    shape, strides = (f.load(layout, facts.layout[name]) for name in ("shape", "strides_bits"))
    ndim = f.call("PyTuple_Size", shape)
    size = f.select(versioned == 0, f.constant(_LEGACY_AT[2]), f.constant(_VERSIONED_AT[2]))
    managed = f.call("PyMem_RawMalloc", size + ndim * 16)
    with f.when(managed.is_null):
        f.ret(f.call("PyErr_NoMemory"))
    at = f.at(managed, f.select(versioned == 0, f.constant(0), f.constant(_HEADER)))
    extents = f.at(managed, size)
    steps = f.at(extents, ndim * 8)
    unfit = f.variable("i64", 0)
    with f.loop(ndim) as i:
        extent = f.call("PyLong_AsLongLong", f.call("PyTuple_GetItem", shape, i))
        step = f.call("PyLong_AsLongLong", f.call("PyTuple_GetItem", strides, i))
        # Widths are powers of two; -1 is also what an error gives.
        shift = f.call("llvm.cttz.i64", bits, f.constant(1, "i1"))
        unfit.set(unfit.now | (step & (bits - 1)) | (step & -(1 << 63)) | (f.as_(extent <= 0, "i64")))
        f.store(extent, extents, i * 8)
        f.store(step >> shift, steps, i * 8)
    offset = f.call("PyLong_AsLongLong", f.load(layout, facts.layout["offset_bits"]))
    start = f.call("PyLong_AsUnsignedLongLong", address)
    with f.when((unfit.now | (offset & 7) | (offset & -(1 << 63)) | f.as_(start == -1, "i64")) != 0):
        f.call("PyErr_Clear")
        f.call("PyMem_RawFree", managed)
        f.ret(None)
    f.store(start + (offset >> 3), at, _DATA)
    f.store(f.constant(1), at, _DEVICE)
    f.store(f.as_(ndim, "i32"), at, _NDIM)
    f.store(f.as_(kind.now, "i32"), at, _DTYPE)
    f.store(extents, at, _SHAPE)
    f.store(steps, at, _STRIDES)
    f.store(f.constant(0), at, _BYTE_OFFSET)
    with f.when(versioned == 0):
        f.store(f.incref(owner), managed, _LEGACY_AT[0])
        f.store(f.function_address("delete_legacy"), managed, _LEGACY_AT[1])
        f.ret(managed)
    f.store(f.constant(1 | 3 << 32), managed)  # version 1.3
    f.store(f.incref(owner), managed, _VERSIONED_AT[0])
    f.store(f.function_address("delete_versioned"), managed, _VERSIONED_AT[1])
    f.store(f.as_(read_only != f.state("false"), "i64"), managed, _FLAGS)
    f.ret(managed)


def _capsule(m: Module) -> None:
    """`capsule(tensor, versioned)`: a capsule of it, or NULL where it is not common."""
    f = m.function("capsule", "ptr", "ptr", "i64")
    self, versioned = f.arguments
    managed = _return_if_null(f, f.call("managed", self, versioned))
    names = [f.name_of(name) for name in (LEGACY, VERSIONED)]
    drops = [f.function_address(name) for name in ("drop_legacy", "drop_versioned")]
    legacy = versioned == 0
    made = f.call("PyCapsule_New", managed, f.select(legacy, *names), f.select(legacy, *drops))
    with f.when(made.is_null):
        with f.when(legacy):
            f.call("delete_legacy", managed)
        with f.when(versioned != 0):
            f.call("delete_versioned", managed)
    f.ret(made)


def _asked(m: Module) -> None:
    """`asked(values, kwnames) -> i64`: 1 for a versioned capsule, 0 for a legacy one, -1 for what is not common.

    Common is max_version as a pair of integers, and None for everything else that `__dlpack__` knows.
    """
    f = m.function("asked", "i64", "ptr", "ptr")
    values, kwnames = f.arguments
    versioned = f.variable("i64", 0)
    with f.when(kwnames.is_null):
        f.ret(0)
    with f.loop(f.call("PyTuple_Size", kwnames)) as i:
        name, value = f.call("PyTuple_GetItem", kwnames, i), f.load(values, i * 8)
        known = f.variable("i64", 0)
        for keyword in ("stream", "dl_device", "copy"):
            with f.when(value == f.state("none")), f.when(
                f.call("PyUnicode_CompareWithASCIIString", name, f.name_of(keyword)) == 0
            ):  # fmt: skip
                known.set(1)
        with f.when(f.call("PyUnicode_CompareWithASCIIString", name, f.name_of("max_version")) == 0):
            with f.when(value == f.state("none")):
                known.set(1)
            with f.when(f.load(value, OBJECT_TYPE) == f.state("tuple_type")), f.when(
                f.call("PyTuple_Size", value) == 2
            ):  # fmt: skip
                major, minor = f.call("PyTuple_GetItem", value, 0), f.call("PyTuple_GetItem", value, 1)
                with f.when(f.load(major, OBJECT_TYPE) == f.state("int_type")), f.when(
                    f.load(minor, OBJECT_TYPE) == f.state("int_type")
                ):  # fmt: skip
                    numbers = [f.call("PyLong_AsLongLong", number) for number in (major, minor)]
                    with f.when((numbers[0] | numbers[1]) >= 0):
                        known.set(1)
                        versioned.set(f.as_(numbers[0] >= 1, "i64"))
                    # A number too large for the machine gives -1 and raises; Python says what is to be said.
                    f.call("PyErr_Clear")
        with f.when(known.now == 0):
            f.ret(-1)
    f.ret(versioned.now)


def _dlpack(m: Module) -> None:
    """`Tensor.__dlpack__(...)`."""
    f = m.function("dlpack", "ptr", "ptr", "ptr", "i64", "ptr")
    self, args, nargs, kwnames = f.arguments
    with f.when(nargs == 0):
        versioned = f.call("asked", args, kwnames)
        with f.when(versioned >= 0):
            made = f.call("capsule", self, versioned)
            with f.when(made.is_set):
                f.ret(made)
            with f.when(f.call("PyErr_Occurred").is_set):
                f.ret(None)
    f.ret(f.call("slow", f.state("slow_dlpack"), self, args, nargs, kwnames))


def _dlpack_device(m: Module, facts: Facts) -> None:
    """`Tensor.__dlpack_device__()`."""
    f = m.function("dlpack_device", "ptr", "ptr", "ptr")
    self, _ = f.arguments
    buffer = f.load(self, facts.tensor["buffer"])
    with (
        f.when(buffer.is_set),
        f.when(f.load(buffer, OBJECT_TYPE) == f.state("buffer_type")),
        f.when(f.load(buffer, facts.buffer["device"]) == f.state("cpu")),
    ):
        f.ret(f.incref(f.state("cpu_pair")))
    f.ret(f.call("slow", f.state("slow_dlpack_device"), self, None, 0, None))
