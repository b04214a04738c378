"""The text of handing tensors out: `Tensor.__dlpack__`, `__dlpack_device__`, and the C functions behind them."""

from __future__ import annotations

from collections.abc import Mapping

from samebits.native.capi import FASTCALL, NOARGS, OBJECT_TYPE, Module
from samebits.native.dlpack_text import (
    BYTE_OFFSET,
    DATA,
    DEVICE,
    DTYPE,
    FLAGS,
    HEADER,
    LEGACY,
    LEGACY_AT,
    NDIM,
    SHAPE,
    STRIDES,
    VERSIONED,
    VERSIONED_AT,
    InterpreterFacts,
    give_up,
    required,
)

__all__ = ["DTYPES", "production"]

# Room for dtypes of ours.
DTYPES = 32


def production(m: Module, facts: InterpreterFacts, docs: Mapping[str, str]) -> None:
    """`__dlpack__`, `__dlpack_device__` and `torch` with their method tables, `describe` and `managed`."""
    m.reserve("dtypes", 2 * DTYPES)
    _code(m)
    _rank(m, facts)
    _describe(m, facts)
    _managed(m, facts)
    _capsule(m)
    _asked(m)
    _dlpack(m)
    _dlpack_device(m, facts)
    _torch(m, facts)
    for name, function, flags in (
        ("__dlpack__", "dlpack", FASTCALL), ("__dlpack_device__", "dlpack_device", NOARGS), ("torch", "torch", FASTCALL)
    ):  # fmt: skip
        m.method(f"method_Tensor.{name}", name, function, flags, docs[f"Tensor.{name}"])


def _rank(m: Module, facts: InterpreterFacts) -> None:
    """`rank(tensor) -> i64`: how many axes it has, or -1 where it is not common."""
    f = m.function("rank", "i64", "ptr")
    (self,) = f.arguments
    buffer, layout, dtype = (f.load(self, facts.tensor[name]) for name in ("buffer", "layout", "dtype"))
    for part in (buffer, layout, dtype):
        with f.when(part.is_null):
            f.ret(-1)
    none = f.state("none")
    for wrong in (
        f.load(buffer, OBJECT_TYPE) != f.state("buffer_type"),
        f.load(layout, OBJECT_TYPE) != f.state("layout_type"),
        f.load(buffer, facts.buffer["device"]) != f.state("cpu"),
        f.load(buffer, facts.buffer["_owner"]) == none,
        f.load(buffer, facts.buffer["_address"]) == none,
        f.call("code", dtype) == 0,
    ):
        with f.when(wrong):
            f.ret(-1)
    f.ret(f.call("PyTuple_Size", f.load(layout, facts.layout["shape"])))


def _code(m: Module) -> None:
    """`code(dtype) -> i64`: DLDataType of one of our dtypes, or 0 where its elements are not whole bytes."""
    f = m.function("code", "i64", "ptr")
    (dtype,) = f.arguments
    rows = f.state_address("dtypes")
    with f.loop(DTYPES) as i, f.when(f.load(rows, i * 16) == dtype):
        f.ret(f.load(rows, i * 16 + 8, "i64"))
    f.ret(0)


def _describe(m: Module, facts: InterpreterFacts) -> None:
    """`describe(tensor, at, room) -> i32`: the DLTensor at an address, whose shape and strides are put into the room.

    0 where it is not common; the tensor has a rank.
    """
    f = m.function("describe", "i32", "ptr", "ptr", "ptr")
    self, at, extents = f.arguments
    buffer, layout, dtype = (f.load(self, facts.tensor[name]) for name in ("buffer", "layout", "dtype"))
    shape, strides = (f.load(layout, facts.layout[name]) for name in ("shape", "strides_bits"))
    kind, ndim = f.call("code", dtype), f.call("PyTuple_Size", shape)
    # Widths are powers of two.
    bits = (kind >> 8) & 255
    shift = f.call("llvm.cttz.i64", bits, f.constant(1, "i1"))
    steps = f.at(extents, ndim * 8)
    unfit = f.variable("i64", 0)
    with f.loop(ndim) as i:
        extent = f.call("PyLong_AsLongLong", f.call("PyTuple_GetItem", shape, i))
        step = f.call("PyLong_AsLongLong", f.call("PyTuple_GetItem", strides, i))
        unfit.set(unfit.now | (step & (bits - 1)) | (step & -(1 << 63)) | f.as_(extent <= 0, "i64"))
        f.store(extent, extents, i * 8)
        f.store(step >> shift, steps, i * 8)
    offset = f.call("PyLong_AsLongLong", f.load(layout, facts.layout["offset_bits"]))
    start = f.call("PyLong_AsUnsignedLongLong", f.load(buffer, facts.buffer["_address"]))
    with f.when((unfit.now | (offset & 7) | (offset & -(1 << 63)) | f.as_(start == -1, "i64")) != 0):
        # -1 is also what a number too large gives.
        f.call("PyErr_Clear")
        f.ret(0)
    f.store(start + (offset >> 3), at, DATA)
    f.store(f.constant(1), at, DEVICE)  # kDLCPU, and device 0
    f.store(f.as_(ndim, "i32"), at, NDIM)
    f.store(f.as_(kind, "i32"), at, DTYPE)
    f.store(extents, at, SHAPE)
    f.store(steps, at, STRIDES)
    f.store(f.constant(0), at, BYTE_OFFSET)
    f.ret(1)


def _managed(m: Module, facts: InterpreterFacts) -> None:
    """`managed(tensor, versioned) -> DLManagedTensor or DLManagedTensorVersioned`; NULL where it is not common."""
    f = m.function("managed", "ptr", "ptr", "i64")
    self, versioned = f.arguments
    ndim = f.call("rank", self)
    give_up(f, ndim < 0)
    buffer = f.load(self, facts.tensor["buffer"])
    read_only = f.load(buffer, facts.buffer["read_only"]) != f.state("false")
    legacy = versioned == 0
    with f.when(read_only):
        give_up(f, legacy)
    size = f.select(legacy, f.constant(LEGACY_AT[2]), f.constant(VERSIONED_AT[2]))
    managed = f.call("PyMem_RawMalloc", size + ndim * 16)
    with f.when(managed.is_null):
        f.ret(f.call("PyErr_NoMemory"))
    at = f.at(managed, f.select(legacy, f.constant(0), f.constant(HEADER)))
    with f.when(f.call("describe", self, at, f.at(managed, size)) == 0):
        f.call("PyMem_RawFree", managed)
        f.ret(None)
    owner = f.incref(f.load(buffer, facts.buffer["_owner"]))
    with f.when(legacy):
        f.store(owner, managed, LEGACY_AT[0])
        f.store(f.function_address("delete_legacy"), managed, LEGACY_AT[1])
        f.ret(managed)
    f.store(f.constant(1 | 3 << 32), managed)  # version 1.3
    f.store(owner, managed, VERSIONED_AT[0])
    f.store(f.function_address("delete_versioned"), managed, VERSIONED_AT[1])
    f.store(f.as_(read_only, "i64"), managed, FLAGS)
    f.ret(managed)


def _capsule(m: Module) -> None:
    """`capsule(tensor, versioned)`: a capsule of it, or NULL where it is not common."""
    f = m.function("capsule", "ptr", "ptr", "i64")
    self, versioned = f.arguments
    managed = required(f, f.call("managed", self, versioned))
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
    f.ret(f.call("slow", f.state("slow_Tensor.__dlpack__"), self, args, nargs, kwnames))


def _dlpack_device(m: Module, facts: InterpreterFacts) -> None:
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
    f.ret(f.call("slow", f.state("slow_Tensor.__dlpack_device__"), self, None, 0, None))


def _torch(m: Module, facts: InterpreterFacts) -> None:
    """`Tensor.torch()` of writable memory, in a process that has torch; what torch does not take is Python's."""
    f = m.function("torch", "ptr", "ptr", "ptr", "i64", "ptr")
    self, args, nargs, kwnames = f.arguments
    buffer = f.load(self, facts.tensor["buffer"])
    with (
        f.when((nargs == 0) & kwnames.is_null & buffer.is_set),
        f.when(f.load(buffer, OBJECT_TYPE) == f.state("buffer_type")),
        f.when(f.load(buffer, facts.buffer["read_only"]) == f.state("false")),
    ):
        capsule = f.own(f.call("capsule", self, 1))
        with f.when(capsule.now.is_set):
            made = f.own(f.call("PyObject_Vectorcall", f.state("to_torch"), capsule.address, 1, None))
            with f.when(made.now.is_set), f.when(made.now != f.state("none")):
                f.ret(f.take(made))
        f.call("PyErr_Clear")
    f.ret(f.call("slow", f.state("slow_Tensor.torch"), self, args, nargs, kwnames))
