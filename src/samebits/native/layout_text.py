"""The text of making layouts: `Layout()`, `dense`, `from_strides`, `from_byte_strides`.

Common is: tuples of exactly `int`, no empty axis, every number within int64. Whatever is not, and every error, goes to
the functions of `samebits.layout`, whose results these must be; the formulas are explained there. Start at `layouts`.
A function that returns NULL without an exception says "not common".
"""

from __future__ import annotations

from collections.abc import Mapping

from samebits.native.capi import FASTCALL, OBJECT_TYPE, CValue, Function, Module
from samebits.native.dlpack_text import InterpreterFacts, give_up, required
from samebits.shapes import MAX_RANK

__all__ = ["added", "integer", "layouts", "multiplied", "reading", "return_or_go_on"]


def layouts(m: Module, facts: InterpreterFacts, docs: Mapping[str, str]) -> None:
    """The constructors with their method tables, and what views are made with."""
    reading(m)
    _pack(m)
    _product(m)
    _pitch(m)
    _settle(m)
    _build(m, facts)
    _view(m, facts)
    _made(m)
    _new(m)
    _dense(m)
    _strided(m, "from_strides", None)
    _strided(m, "from_byte_strides", 8)
    for name, function in (
        ("__new__", "layout_new"), ("dense", "layout_dense"), ("from_strides", "layout_from_strides"),
        ("from_byte_strides", "layout_from_byte_strides"),
    ):  # fmt: skip
        m.method(f"method_Layout.{name}", name, function, FASTCALL, docs[f"Layout.{name}"])


def multiplied(f: Function, a: CValue, b: CValue) -> CValue:
    """A product that fits; the function gives up on another."""
    pair = f.call("llvm.smul.with.overflow.i64", a, b)
    give_up(f, f.value(f"extractvalue {pair.type} {pair.text}, 1", "i1"))
    return f.value(f"extractvalue {pair.type} {pair.text}, 0", "i64")


def added(f: Function, a: CValue, b: CValue) -> CValue:
    """A sum that fits; the function gives up on another."""
    pair = f.call("llvm.sadd.with.overflow.i64", a, b)
    give_up(f, f.value(f"extractvalue {pair.type} {pair.text}, 1", "i1"))
    return f.value(f"extractvalue {pair.type} {pair.text}, 0", "i64")


def integer(f: Function, x: CValue) -> CValue:
    """An exact `int` within int64; the function gives up on another object."""
    give_up(f, f.load(x, OBJECT_TYPE) != f.state("int_type"))
    number = f.call("PyLong_AsLongLong", x)
    with f.when(number == -1), f.when(f.call("PyErr_Occurred").is_set):
        f.call("PyErr_Clear")
        f.ret(None)
    return number


def reading(m: Module) -> None:
    """`read(tuple, out) -> i64`: its integers, and how many they are; -1 where it is not a tuple of such."""
    f = m.function("read", "i64", "ptr", "ptr")
    source, out = f.arguments
    with f.when(f.load(source, OBJECT_TYPE) != f.state("tuple_type")):
        f.ret(-1)
    count = f.call("PyTuple_Size", source)
    with f.when(count > MAX_RANK):
        f.ret(-1)
    with f.loop(count) as i:
        item = f.call("PyTuple_GetItem", source, i)
        with f.when(f.load(item, OBJECT_TYPE) != f.state("int_type")):
            f.ret(-1)
        number = f.call("PyLong_AsLongLong", item)
        with f.when(number == -1), f.when(f.call("PyErr_Occurred").is_set):
            f.call("PyErr_Clear")
            f.ret(-1)
        f.store(number, out, i * 8)
    f.ret(count)


def _pack(m: Module) -> None:
    """`pack(numbers, count) -> tuple`."""
    f = m.function("pack", "ptr", "ptr", "i64")
    numbers, count = f.arguments
    made = f.own(required(f, f.call("PyTuple_New", count)))
    with f.loop(count) as i:
        number = required(f, f.call("PyLong_FromLongLong", f.load(numbers, i * 8, "i64")))
        f.call("PyTuple_SetItem", made.now, i, number)
    f.ret(f.take(made))


def _product(m: Module) -> None:
    """`product(numbers, count) -> i64`: that of positive numbers, or -1 where there is another or it does not fit."""
    f = m.function("product", "i64", "ptr", "i64")
    numbers, count = f.arguments
    total = f.variable("i64", 1)
    with f.loop(count) as i:
        number = f.load(numbers, i * 8, "i64")
        pair = f.call("llvm.smul.with.overflow.i64", total.now, number)
        overflow = f.value(f"extractvalue {pair.type} {pair.text}, 1", "i1")
        with f.when((number <= 0) | overflow):
            f.ret(-1)
        total.set(f.value(f"extractvalue {pair.type} {pair.text}, 0", "i64"))
    f.ret(total.now)


def _pitch(m: Module) -> None:
    """`pitch(width, storage) -> i64`: bits from one dense element to the next; -1 where the width is none."""
    f = m.function("pitch", "i64", "i64", "ptr")
    width, storage = f.arguments
    with f.when((width < 1) | (width > 1 << 32)):
        f.ret(-1)
    with f.when(storage == f.state("packed")):
        f.ret(width)
    with f.when(storage == f.state("padded")):
        f.ret((width + 7) & -8)
    f.ret(-1)


def _settle(m: Module) -> None:
    """`settle(shape, strides, count, pitch) -> i32`: the strides of extents 1 made dense; 0 where it is not common."""
    f = m.function("settle", "i32", "ptr", "ptr", "i64", "i64")
    shape, strides, count, pitch = f.arguments
    step = f.variable("i64", pitch)
    with f.loop(count) as i:
        place = (count - 1 - i) * 8
        extent, stride = f.load(shape, place, "i64"), f.load(strides, place, "i64")
        with f.when(extent <= 0):
            f.ret(0)
        with f.when(extent == 1):
            f.store(step.now, strides, place)
        with f.when(extent != 1):
            pair = f.call("llvm.smul.with.overflow.i64", f.select(stride < 0, stride * -1, stride), extent)
            with f.when(f.value(f"extractvalue {pair.type} {pair.text}, 1", "i1")):
                f.ret(0)
            step.set(f.value(f"extractvalue {pair.type} {pair.text}, 0", "i64"))
    f.ret(1)


def _build(m: Module, facts: InterpreterFacts) -> None:
    """`build(shape, strides, count, offset, width, storage) -> Layout` of settled facts."""
    f = m.function("build", "ptr", "ptr", "ptr", "i64", "i64", "ptr", "ptr")
    shape, strides, count, offset, width, storage = f.arguments
    made = f.own(required(f, f.call("PyType_GenericAlloc", f.state("layout_type"), 0)))
    f.store(f.incref(width), made.now, facts.layout["width_bits"])
    f.store(f.incref(storage), made.now, facts.layout["storage"])
    f.store(required(f, f.call("pack", shape, count)), made.now, facts.layout["shape"])
    f.store(required(f, f.call("pack", strides, count)), made.now, facts.layout["strides_bits"])
    f.store(required(f, f.call("PyLong_FromLongLong", offset)), made.now, facts.layout["offset_bits"])
    f.ret(f.take(made))


def _view(m: Module, facts: InterpreterFacts) -> None:
    """`view(layout, shape, strides, count, offset) -> Layout` of the same elements, once the strides are settled."""
    f = m.function("view", "ptr", "ptr", "ptr", "ptr", "i64", "i64")
    self, shape, strides, count, offset = f.arguments
    width, storage = f.load(self, facts.layout["width_bits"]), f.load(self, facts.layout["storage"])
    pitch = f.call("pitch", integer(f, width), storage)
    give_up(f, pitch < 0)
    give_up(f, f.call("settle", shape, strides, count, pitch) == 0)
    f.ret(f.call("build", shape, strides, count, offset, width, storage))


def _made(m: Module) -> None:
    """`made(shape, strides, count, offset, width, width as a number, storage) -> Layout`, all that a layout must be
    checked."""
    f = m.function("made", "ptr", "ptr", "ptr", "i64", "i64", "ptr", "i64", "ptr")
    shape, strides, count, offset, width, bits, given = f.arguments
    pitch = f.call("pitch", bits, given)
    give_up(f, pitch < 0, f.call("product", shape, count) < 0)
    storage = f.select(pitch == bits, f.state("packed"), given)
    with f.when(pitch != bits):
        # Padded elements begin at bytes.
        odd = f.variable("i64", offset)
        with f.loop(count) as i:
            odd.set(odd.now | f.load(strides, i * 8, "i64"))
        give_up(f, (odd.now & 7) != 0)
    give_up(f, f.call("settle", shape, strides, count, pitch) == 0)
    low, high = f.variable("i64", offset), f.variable("i64", added(f, offset, bits))
    with f.loop(count) as i:
        reach = multiplied(f, f.load(strides, i * 8, "i64"), f.load(shape, i * 8, "i64") - 1)
        low.set(added(f, low.now, f.select(reach < 0, reach, f.constant(0))))
        high.set(added(f, high.now, f.select(reach > 0, reach, f.constant(0))))
    f.ret(f.call("build", shape, strides, count, offset, width, storage))


def _new(m: Module) -> None:
    """`Layout.__new__(cls, shape, strides_bits, offset_bits, width_bits, storage='packed')`."""
    f = m.function("new_of", "ptr", "ptr", "ptr")
    args, storage = f.arguments
    shape, strides = f.stack("i64", MAX_RANK), f.stack("i64", MAX_RANK)
    offset, width = integer(f, f.load(args, 24)), integer(f, f.load(args, 32))
    count, steps = f.call("read", f.load(args, 8), shape), f.call("read", f.load(args, 16), strides)
    give_up(f, count < 0, count != steps)
    f.ret(f.call("made", shape, strides, count, offset, f.load(args, 32), width, storage))

    f = m.function("layout_new", "ptr", "ptr", "ptr", "i64", "ptr")
    _, args, nargs, kwnames = f.arguments
    with f.when(kwnames.is_null & ((nargs == 5) | (nargs == 6))), f.when(f.load(args) == f.state("layout_type")):
        named = f.variable("ptr", f.state("packed"))
        with f.when(nargs == 6):
            named.set(f.load(args, 40))
        return_or_go_on(f, f.call("new_of", args, named.now))
    f.ret(f.call("PyObject_Vectorcall", f.state("slow_Layout.__new__"), args, nargs, kwnames))


def _width_alone(f: Function, kwnames: CValue) -> CValue:
    """Whether `width_bits` is the one argument given by name."""
    found = f.variable("i64", 0)
    with f.when(kwnames.is_set), f.when(f.call("PyTuple_Size", kwnames) == 1):
        name = f.call("PyTuple_GetItem", kwnames, 0)
        with f.when(f.call("PyUnicode_CompareWithASCIIString", name, f.name_of("width_bits")) == 0):
            found.set(1)
    return found.now != 0


def _strided(m: Module, name: str, unit: int | None) -> None:
    """`Layout.from_strides(shape, strides, offset=0, *, width_bits)`, or of a unit of so many bits."""
    f = m.function(f"{name}_of", "ptr", "ptr", "i64")
    args, nargs = f.arguments
    shape, strides = f.stack("i64", MAX_RANK), f.stack("i64", MAX_RANK)
    width = f.load(args, nargs * 8)
    bits = integer(f, width)
    count, steps = f.call("read", f.load(args), shape), f.call("read", f.load(args, 8), strides)
    give_up(f, count < 0, count != steps)
    scale = bits if unit is None else f.constant(unit)
    offset = f.variable("i64", 0)
    with f.when(nargs == 3):
        offset.set(multiplied(f, integer(f, f.load(args, 16)), scale))
    with f.loop(count) as i:
        f.store(multiplied(f, f.load(strides, i * 8, "i64"), scale), strides, i * 8)
    f.ret(f.call("made", shape, strides, count, offset.now, width, bits, f.state("packed")))

    f = m.function(f"layout_{name}", "ptr", "ptr", "ptr", "i64", "ptr")
    _, args, nargs, kwnames = f.arguments
    with f.when((nargs == 2) | (nargs == 3)), f.when(_width_alone(f, kwnames)):
        return_or_go_on(f, f.call(f"{name}_of", args, nargs))
    f.ret(f.call("PyObject_Vectorcall", f.state(f"slow_Layout.{name}"), args, nargs, kwnames))


def _dense(m: Module) -> None:
    """`Layout.dense(shape, *, width_bits)`."""
    f = m.function("dense_of", "ptr", "ptr", "ptr")
    extents, width = f.arguments
    shape, strides = f.stack("i64", MAX_RANK), f.stack("i64", MAX_RANK)
    bits, count = integer(f, width), f.call("read", extents, shape)
    give_up(f, count < 0, f.call("pitch", bits, f.state("packed")) < 0)
    step = f.variable("i64", bits)
    with f.loop(count) as i:
        place = (count - 1 - i) * 8
        extent = f.load(shape, place, "i64")
        give_up(f, extent <= 0)
        f.store(step.now, strides, place)
        step.set(multiplied(f, step.now, extent))
    f.ret(f.call("build", shape, strides, count, f.constant(0), width, f.state("packed")))

    f = m.function("layout_dense", "ptr", "ptr", "ptr", "i64", "ptr")
    _, args, nargs, kwnames = f.arguments
    with f.when(nargs == 1), f.when(_width_alone(f, kwnames)):
        return_or_go_on(f, f.call("dense_of", f.load(args), f.load(args, 8)))
    f.ret(f.call("PyObject_Vectorcall", f.state("slow_Layout.dense"), args, nargs, kwnames))


def return_or_go_on(f: Function, made: CValue) -> None:
    """Return what is common, or raise; anything else is Python's."""
    with f.when(made.is_set):
        f.ret(made)
    with f.when(f.call("PyErr_Occurred").is_set):
        f.ret(None)
