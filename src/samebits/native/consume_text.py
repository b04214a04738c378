"""The text of taking tensors in: what `Tensor.from_dlpack` and `Tensor.from_any` do for the common case.

Layouts are not computed here: Python makes each once, and a dictionary of the state keeps it under the bytes of its
extents and strides. In what returns an object, NULL without an exception says "not common". Start at `consumption`.
"""

from __future__ import annotations

from collections.abc import Mapping

from samebits.memory.address import LEAST_ADDRESS
from samebits.native.capi import FASTCALL, OBJECT_TYPE, Module
from samebits.native.dlpack_text import (
    BYTE_OFFSET,
    DATA,
    DEVICE,
    DEVICE_ID,
    DTYPE,
    FLAGS,
    HEADER,
    NDIM,
    READ_ONLY,
    SHAPE,
    STRIDES,
    TAKEN,
    VERSIONED_AT,
    InterpreterFacts,
    exception_kept,
    give_up,
    required,
)
from samebits.native.objects import ALIGNED, ARRAY, WARNS, WRITABLE
from samebits.shapes import MAX_RANK

__all__ = ["ARRAY_DTYPES", "BYTE_STRIDES", "CODES", "SIZES", "consumption"]

# Room for dtypes of NumPy's own and of ml_dtypes each, for DLPack's type codes, and for sizes in bytes of an element.
ARRAY_DTYPES, CODES, SIZES = 16, 32, 17
# In a key of the layouts: the strides that follow count bytes, not elements.
BYTE_STRIDES = 1 << 16
# DLPackExchangeAPI: managed_tensor_from_py_object_no_sync.
_FROM_OBJECT = 24


def consumption(m: Module, facts: InterpreterFacts, docs: Mapping[str, str]) -> None:
    """`from_dlpack` and `from_any` with their method tables, and `from_managed`."""
    m.reserve("array_dtypes", 2 * 3 * ARRAY_DTYPES)
    m.reserve("rows", CODES * SIZES)
    _entry(m)
    _tensor(m, facts)
    _from_array(m)
    _from_managed(m)
    _is_false(m)
    _is_named(m)
    _from_producer(m)
    # NumPy's DLPack knows its own dtypes alone.
    _from(m, "from_dlpack", ARRAY_DTYPES, docs)
    _from(m, "from_any", 2 * ARRAY_DTYPES, docs)


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
    key = f.own(required(f, f.call("PyBytes_FromStringAndSize", words, half * 2 + 8)))
    found = f.call("PyDict_GetItemWithError", f.state("layouts"), key.now)
    with f.when(found.is_set):
        f.ret(f.incref(found))
    with f.when(f.call("PyErr_Occurred").is_set):
        f.ret(None)
    made = f.own(required(f, f.call("PyObject_Vectorcall", f.state("make_layout"), key.address, 1, None)))
    with f.when(made.now == f.state("none")):
        f.ret(None)
    f.ret(f.take(made))


def _tensor(m: Module, facts: InterpreterFacts) -> None:
    """`tensor(entry, data, dtype, owner, read_only) -> Tensor`, or NULL where the memory is not where it may be."""
    f = m.function("tensor", "ptr", "ptr", "i64", "ptr", "ptr", "ptr")
    entry, data, dtype, owner, read_only = f.arguments
    layout, span = f.call("PyTuple_GetItem", entry, 0), f.call("PyTuple_GetItem", entry, 2)
    low, size = f.call("PyLong_AsLongLong", f.call("PyTuple_GetItem", entry, 1)), f.call("PyLong_AsLongLong", span)
    start = data + low
    # The upper half of the address space is no process's.
    give_up(f, data <= 0, start < 0, start + size < start)
    buffer = f.own(required(f, f.call("PyType_GenericAlloc", f.state("buffer_type"), 0)))
    address = f.call("PyLong_FromUnsignedLongLong", start)
    f.store(required(f, address), buffer.now, facts.buffer["_address"])
    varying = {"_owner": owner, "size_bytes": span, "read_only": read_only}
    for name, offset in facts.buffer.items():
        if name != "_address":
            value = varying.get(name)
            # What does not vary is as in a buffer that Python made.
            value = f.load(f.state("buffer"), offset) if value is None else value
            f.store(f.incref(value), buffer.now, offset)
    made = required(f, f.call("PyType_GenericAlloc", f.state("tensor_type"), 0))
    f.store(f.incref(layout), made, facts.tensor["layout"])
    f.store(f.incref(dtype), made, facts.tensor["dtype"])
    f.store(f.take(buffer), made, facts.tensor["buffer"])
    f.ret(made)


def _from_array(m: Module) -> None:
    """`from_array(array, dtypes) -> Tensor` of a NumPy array of one of the first dtypes, read from its structure."""
    f = m.function("from_array", "ptr", "ptr", "i64")
    array, dtypes = f.arguments
    flags = f.load(array, ARRAY["flags"], "i32")
    give_up(f, (flags & (ALIGNED | WARNS)) != ALIGNED)
    descr = f.load(array, ARRAY["descr"])
    rows = f.state_address("array_dtypes")
    with f.loop(dtypes) as i, f.when(f.load(rows, i * 24) == descr):
        dtype, bits = f.load(rows, i * 24 + 8), f.load(rows, i * 24 + 16, "i64")
        data = f.load(array, ARRAY["data"], "i64")
        give_up(f, (data & ((bits >> 3) - 1)) != 0)
        ndim = f.as_(f.load(array, ARRAY["ndim"], "i32"), "i64", signed=True)
        shape, strides = f.load(array, ARRAY["shape"]), f.load(array, ARRAY["strides"])
        entry = f.own(required(f, f.call("entry", bits + BYTE_STRIDES, ndim, shape, strides)))
        access = f.select((flags & WRITABLE) == 0, f.state("true"), f.state("false"))
        f.ret(f.call("tensor", entry.now, data, dtype, array, access))
    f.ret(None)


def _from_managed(m: Module) -> None:
    """`from_managed(managed) -> Tensor`, which calls the deleter when it dies; NULL leaves the caller with it."""
    f = m.function("from_managed", "ptr", "ptr")
    (managed,) = f.arguments
    # What stands behind the header of another version is unknown.
    give_up(f, f.load(managed, 0, "i32") != 1)
    at = f.at(managed, HEADER)
    ndim, lanes = f.load(at, NDIM, "i32"), f.load(at, DTYPE + 2, "i16")
    code, bits = (f.as_(f.load(at, DTYPE + i, "i8"), "i64") for i in range(2))
    shape, strides = f.load(at, SHAPE), f.load(at, STRIDES)
    flags = f.load(managed, FLAGS, "i64")
    give_up(
        f,
        (flags & ~READ_ONLY) != 0,
        f.load(at, DEVICE, "i32") != 1,
        f.load(at, DEVICE_ID, "i32") != 0,
        ~f.unsigned_below(ndim, MAX_RANK + 1),
        lanes != 1,
        code >= CODES,
        (bits & 7) != 0,
        (bits >> 3) >= SIZES,
    )
    with f.when(ndim != 0):
        give_up(f, shape.is_null, strides.is_null)
    dtype = required(f, f.load(f.state_address("rows"), (code * SIZES + (bits >> 3)) * 8))
    base, offset = f.load(at, DATA, "i64"), f.load(at, BYTE_OFFSET, "i64")
    data = base + offset
    # Both are unsigned: a sum that wraps around is no address.
    give_up(f, base < LEAST_ADDRESS, offset < 0, (data & ((bits >> 3) - 1)) != 0)
    entry = f.own(required(f, f.call("entry", bits, f.as_(ndim, "i64"), shape, strides)))
    destructor = f.function_address("drop_taken")
    owner = f.own(required(f, f.call("PyCapsule_New", managed, f.name_of(TAKEN), destructor)))
    access = f.select((flags & READ_ONLY) != 0, f.state("true"), f.state("false"))
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

    A row of `producers` is the API's capsule, and for torch, whose function is less careful than its `__dlpack__`:
    an attribute and a method that must be False; an attribute that for 8-bit integers must be one of two, signed first.
    """
    f = m.function("from_producer", "ptr", "ptr")
    (x,) = f.arguments
    type = f.load(x, OBJECT_TYPE)
    found = f.call("PyDict_GetItemWithError", f.state("producers"), type)
    row = f.own()
    row.set(f.incref(found))
    with f.when(found.is_null):
        with f.when(f.call("PyErr_Occurred").is_set):
            # A class whose metaclass has no hash.
            f.call("PyErr_Clear")
            f.ret(None)
        arguments = f.variable("ptr", type)
        row.set(f.call("PyObject_Vectorcall", f.state("add_producer"), arguments.address, 1, None))
        required(f, row.now)
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
    api = required(f, f.call("PyCapsule_GetPointer", f.call("PyTuple_GetItem", row.now, 0), name))
    managed = f.variable("ptr")
    managed.set(None)
    failed = f.call_pointer(f.load(api, _FROM_OBJECT), "i32", x, managed.address)
    with f.when(failed != 0):
        # The producer's own `__dlpack__` says why, in its words.
        f.call("PyErr_Clear")
        f.ret(None)
    required(f, managed.now)
    made = f.variable("ptr")
    made.set(None)
    # What stands behind the header of another version is unknown.
    with (
        f.when(f.load(managed.now, 0, "i32") == 1),
        f.when(f.call("is_named", x, row.now, managed.now) != 0),
    ):
        made.set(f.call("from_managed", managed.now))
    with f.when(made.now.is_null):
        deleter = f.load(managed.now, VERSIONED_AT[1])
        with f.when(deleter.is_set), exception_kept(f):
            f.call_pointer(deleter, "void", managed.now)
    f.ret(made.now)


def _is_named(m: Module) -> None:
    """`is_named(x, row, managed) -> i32`: whether the 8-bit integers of a DLTensor are what x calls its elements.

    torch hands over int4 and other types that have a name but no meaning in torch as int8 or uint8.
    """
    f = m.function("is_named", "i32", "ptr", "ptr", "ptr")
    x, row, managed = f.arguments
    code = f.as_(f.load(managed, HEADER + DTYPE, "i8"), "i64")
    attribute = f.call("PyTuple_GetItem", row, 3)
    with (
        f.when(attribute != f.state("none")),
        f.when(f.load(managed, HEADER + DTYPE + 1, "i8") == 8),
        f.when(f.unsigned_below(code, 2)),
    ):
        found = f.own(f.call("PyObject_GetAttr", x, attribute))
        f.ret(f.as_(found.now == f.call("PyTuple_GetItem", row, code + 4), "i32"))
    f.ret(1)


def _from(m: Module, name: str, dtypes: int, docs: Mapping[str, str]) -> None:
    """`Tensor.from_dlpack(x)` or `Tensor.from_any(x)`."""
    f = m.function(name, "ptr", "ptr", "ptr", "i64", "ptr")
    _, args, nargs, kwnames = f.arguments
    with f.when(nargs == 1), f.when(kwnames.is_null):
        x = f.load(args)
        type = f.load(x, OBJECT_TYPE)
        if name == "from_any":
            with f.when(type == f.state("tensor_type")):
                f.ret(f.incref(x))
        made = f.variable("ptr")
        made.set(None)
        is_array = type == f.state("array_type")
        with f.when(is_array):
            made.set(f.call("from_array", x, dtypes))
        with f.when(~is_array):
            made.set(f.call("from_producer", x))
        with f.when(made.now.is_set):
            f.ret(made.now)
        with f.when(f.call("PyErr_Occurred").is_set):
            f.ret(None)
    f.ret(f.call("PyObject_Vectorcall", f.state(f"slow_Tensor.{name}"), args, nargs, kwnames))
    m.method(f"method_Tensor.{name}", name, name, FASTCALL, docs[f"Tensor.{name}"])
