"""The text of the layout operations that exchange and views make most: construction, indexing, permute and reshape.

Common is: tuples of exactly `int`, no empty axis, every number within int64. Whatever is not, and every error, goes to
the functions of `samebits.layout`, whose results these must be; the formulas are explained there. Start at `layouts`.
A function that returns NULL without an exception says "not common".
"""

from __future__ import annotations

from collections.abc import Mapping

from samebits.native.capi import FASTCALL, OBJECT_TYPE, ONE, Function, Module, Value
from samebits.native.dlpack_text import Facts, give_up, required
from samebits.native.objects import SLICE
from samebits.shapes import MAX_RANK

__all__ = ["layouts"]


def layouts(m: Module, facts: Facts, docs: Mapping[str, str]) -> None:
    """The methods of Layout with their method tables."""
    _read(m)
    _pack(m)
    _product(m)
    _pitch(m)
    _settle(m)
    _build(m, facts)
    _view(m, facts)
    _new(m)
    _dense(m)
    _permute(m, facts)
    _reshape(m, facts)
    _part(m)
    _getitem(m, facts)
    for name, function, flags in (
        ("__new__", "layout_new", FASTCALL), ("dense", "layout_dense", FASTCALL), ("permute", "permute", FASTCALL),
        ("reshape", "reshape", FASTCALL), ("__getitem__", "getitem", ONE),
    ):  # fmt: skip
        m.method(f"method_{name}", name, function, flags, docs[name])


def _multiplied(f: Function, a: Value, b: Value) -> Value:
    """A product that fits; the function gives up on another."""
    pair = f.call("llvm.smul.with.overflow.i64", a, b)
    give_up(f, f.value(f"extractvalue {pair.type} {pair.text}, 1", "i1"))
    return f.value(f"extractvalue {pair.type} {pair.text}, 0", "i64")


def _added(f: Function, a: Value, b: Value) -> Value:
    """A sum that fits; the function gives up on another."""
    pair = f.call("llvm.sadd.with.overflow.i64", a, b)
    give_up(f, f.value(f"extractvalue {pair.type} {pair.text}, 1", "i1"))
    return f.value(f"extractvalue {pair.type} {pair.text}, 0", "i64")


def _integer(f: Function, x: Value) -> Value:
    """An exact `int` within int64; the function gives up on another object."""
    give_up(f, f.load(x, OBJECT_TYPE) != f.state("int_type"))
    number = f.call("PyLong_AsLongLong", x)
    with f.when(number == -1), f.when(f.call("PyErr_Occurred").is_set):
        f.call("PyErr_Clear")
        f.ret(None)
    return number


def _read(m: Module) -> None:
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


def _build(m: Module, facts: Facts) -> None:
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


def _view(m: Module, facts: Facts) -> None:
    """`view(layout, shape, strides, count, offset) -> Layout` of the same elements, once the strides are settled."""
    f = m.function("view", "ptr", "ptr", "ptr", "ptr", "i64", "i64")
    self, shape, strides, count, offset = f.arguments
    width, storage = f.load(self, facts.layout["width_bits"]), f.load(self, facts.layout["storage"])
    pitch = f.call("pitch", _integer(f, width), storage)
    give_up(f, pitch < 0)
    give_up(f, f.call("settle", shape, strides, count, pitch) == 0)
    f.ret(f.call("build", shape, strides, count, offset, width, storage))


def _new(m: Module) -> None:
    """`Layout.__new__(cls, shape, strides_bits, offset_bits, width_bits, storage='packed')`."""
    f = m.function("new_of", "ptr", "ptr", "i64")
    args, nargs = f.arguments
    shape, strides = f.stack("i64", MAX_RANK), f.stack("i64", MAX_RANK)
    offset, width = _integer(f, f.load(args, 24)), _integer(f, f.load(args, 32))
    storage = f.variable("ptr", f.state("packed"))
    with f.when(nargs == 6):
        storage.set(f.load(args, 40))
    pitch = f.call("pitch", width, storage.now)
    give_up(f, pitch < 0)
    with f.when(pitch == width):
        storage.set(f.state("packed"))
    count, steps = f.call("read", f.load(args, 8), shape), f.call("read", f.load(args, 16), strides)
    give_up(f, count < 0, count != steps, f.call("product", shape, count) < 0)
    with f.when(pitch != width):
        # Padded elements begin at bytes.
        odd = f.variable("i64", offset)
        with f.loop(count) as i:
            odd.set(odd.now | f.load(strides, i * 8, "i64"))
        give_up(f, (odd.now & 7) != 0)
    give_up(f, f.call("settle", shape, strides, count, pitch) == 0)
    low, high = f.variable("i64", offset), f.variable("i64", _added(f, offset, width))
    with f.loop(count) as i:
        stride = f.load(strides, i * 8, "i64")
        reach = _multiplied(f, stride, f.load(shape, i * 8, "i64") - 1)
        low.set(_added(f, low.now, f.select(reach < 0, reach, f.constant(0))))
        high.set(_added(f, high.now, f.select(reach > 0, reach, f.constant(0))))
    f.ret(f.call("build", shape, strides, count, offset, f.load(args, 32), storage.now))

    f = m.function("layout_new", "ptr", "ptr", "ptr", "i64", "ptr")
    _, args, nargs, kwnames = f.arguments
    with f.when(kwnames.is_null & ((nargs == 5) | (nargs == 6))), f.when(f.load(args) == f.state("layout_type")):
        _return_or_go_on(f, f.call("new_of", args, nargs))
    f.ret(f.call("PyObject_Vectorcall", f.state("slow___new__"), args, nargs, kwnames))


def _dense(m: Module) -> None:
    """`Layout.dense(shape, *, width_bits)`."""
    f = m.function("dense_of", "ptr", "ptr", "ptr")
    extents, width = f.arguments
    shape, strides = f.stack("i64", MAX_RANK), f.stack("i64", MAX_RANK)
    bits, count = _integer(f, width), f.call("read", extents, shape)
    give_up(f, count < 0, f.call("pitch", bits, f.state("packed")) < 0)
    step = f.variable("i64", bits)
    with f.loop(count) as i:
        place = (count - 1 - i) * 8
        extent = f.load(shape, place, "i64")
        give_up(f, extent <= 0)
        f.store(step.now, strides, place)
        step.set(_multiplied(f, step.now, extent))
    f.ret(f.call("build", shape, strides, count, f.constant(0), width, f.state("packed")))

    f = m.function("layout_dense", "ptr", "ptr", "ptr", "i64", "ptr")
    _, args, nargs, kwnames = f.arguments
    with f.when((nargs == 1) & kwnames.is_set), f.when(f.call("PyTuple_Size", kwnames) == 1):
        name = f.call("PyTuple_GetItem", kwnames, 0)
        with f.when(f.call("PyUnicode_CompareWithASCIIString", name, f.name_of("width_bits")) == 0):
            _return_or_go_on(f, f.call("dense_of", f.load(args), f.load(args, 8)))
    f.ret(f.call("PyObject_Vectorcall", f.state("slow_dense"), args, nargs, kwnames))


def _return_or_go_on(f: Function, made: Value) -> None:
    """Return what is common, or raise; anything else is Python's."""
    with f.when(made.is_set):
        f.ret(made)
    with f.when(f.call("PyErr_Occurred").is_set):
        f.ret(None)


def _unary(m: Module, name: str) -> None:
    """A method of one argument, whose common case is `name_of(self, argument)`."""
    f = m.function(name, "ptr", "ptr", "ptr", "i64", "ptr")
    self, args, nargs, kwnames = f.arguments
    with f.when((nargs == 1) & kwnames.is_null):
        _return_or_go_on(f, f.call(f"{name}_of", self, f.load(args)))
    f.ret(f.call("slow", f.state(f"slow_{name}"), self, args, nargs, kwnames))


def _own(f: Function, self: Value, facts: Facts) -> tuple[Value, Value, Value, Value]:
    """Shape and strides on the stack, their count, and the offset of a layout."""
    # One more, so that what is loaded past the last axis and never used is there.
    shape, strides = f.stack("i64", MAX_RANK + 1), f.stack("i64", MAX_RANK + 1)
    extents, steps, offset = (f.load(self, facts.layout[name]) for name in ("shape", "strides_bits", "offset_bits"))
    give_up(f, extents.is_null, steps.is_null, offset.is_null)
    count = f.call("read", extents, shape)
    give_up(f, count < 0, f.call("read", steps, strides) != count)
    return shape, strides, count, _integer(f, offset)


def _permute(m: Module, facts: Facts) -> None:
    """`Layout.permute(axes)`."""
    f = m.function("permute_of", "ptr", "ptr", "ptr")
    self, given = f.arguments
    shape, strides, count, offset = _own(f, self, facts)
    axes, extents, steps = (f.stack("i64", MAX_RANK) for _ in range(3))
    give_up(f, f.call("read", given, axes) != count)
    seen = f.variable("i64", 0)
    with f.loop(count) as i:
        axis = f.load(axes, i * 8, "i64")
        axis = f.select(axis < 0, axis + count, axis)
        give_up(f, ~f.unsigned_below(axis, count))
        seen.set(seen.now | (f.constant(1) << axis))
        f.store(f.load(shape, axis * 8, "i64"), extents, i * 8)
        f.store(f.load(strides, axis * 8, "i64"), steps, i * 8)
    # Of distinct axes, the first `count` bits are set; the shift of 64 by 64 has no value.
    every = f.select(count == 64, f.constant(-1), (f.constant(1) << (count & 63)) - 1)
    give_up(f, seen.now != every)
    f.ret(f.call("view", self, extents, steps, count, offset))
    _unary(m, "permute")


def _reshape(m: Module, facts: Facts) -> None:
    """`Layout.reshape(shape)`: runs of axes that one stride steps through are filled from the last."""
    f = m.function("reshape_of", "ptr", "ptr", "ptr")
    self, given = f.arguments
    shape, strides, count, offset = _own(f, self, facts)
    wanted, steps, runs, hops = (f.stack("i64", MAX_RANK) for _ in range(4))
    axes = f.call("read", given, wanted)
    size = f.call("product", shape, count)
    give_up(f, axes < 0, size < 0)
    open_at = f.variable("i64", -1)
    with f.loop(axes) as i, f.when(f.load(wanted, i * 8, "i64") == -1):
        give_up(f, open_at.now >= 0)
        open_at.set(i)
        f.store(f.constant(1), wanted, i * 8)
    known = f.call("product", wanted, axes)
    give_up(f, known < 0)
    with f.when(open_at.now >= 0):
        f.store(f.value(f"sdiv i64 {size.text}, {known.text}", "i64"), wanted, open_at.now * 8)
        give_up(f, f.load(wanted, open_at.now * 8, "i64") * known != size)
    with f.when(open_at.now < 0):
        give_up(f, known != size)
    last = f.variable("i64", -1)
    with f.loop(count) as i:
        extent, stride = f.load(shape, i * 8, "i64"), f.load(strides, i * 8, "i64")
        joins = f.variable("i64", 0)
        with f.when((extent > 1) & (last.now >= 0)):
            at = last.now * 8
            with f.when(f.load(hops, at, "i64") == _multiplied(f, extent, stride)):
                f.store(f.load(runs, at, "i64") * extent, runs, at)
                f.store(stride, hops, at)
                joins.set(1)
        with f.when((extent > 1) & (joins.now == 0)):
            last.set(last.now + 1)
            f.store(extent, runs, last.now * 8)
            f.store(stride, hops, last.now * 8)
    room, step = f.variable("i64", 1), f.variable("i64", 0)
    with f.loop(axes) as i:
        place = (axes - 1 - i) * 8
        extent = f.load(wanted, place, "i64")
        with f.when(extent > 1):
            with f.when(room.now == 1):
                room.set(f.load(runs, last.now * 8, "i64"))
                step.set(f.load(hops, last.now * 8, "i64"))
                last.set(last.now - 1)
            give_up(f, f.value(f"srem i64 {room.now.text}, {extent.text}", "i64") != 0)
            f.store(step.now, steps, place)
            room.set(f.value(f"sdiv i64 {room.now.text}, {extent.text}", "i64"))
            # Beyond the first element of a run no step may overflow, and after its last none is used.
            step.set(step.now * extent)
    f.ret(f.call("view", self, wanted, steps, axes, offset))
    _unary(m, "reshape")


def _part(m: Module) -> None:
    """`part(slice, extent, start, step) -> i64`: how many places a slice selects, from which and how far apart.

    -1 where it is not a slice of exact integers and None.
    """
    f = m.function("part", "i64", "ptr", "i64", "ptr", "ptr")
    item, extent, start, step = f.arguments
    for name in SLICE:
        bound = f.load(item, SLICE[name])
        with f.when((bound != f.state("none")) & (f.load(bound, OBJECT_TYPE) != f.state("int_type"))):
            f.ret(-1)
    stop = f.stack("i64")
    with f.when(f.call("PySlice_Unpack", item, start, stop, step) != 0):
        f.call("PyErr_Clear")
        f.ret(-1)
    f.ret(f.call("PySlice_AdjustIndices", extent, start, stop, f.load(step, 0, "i64")))


def _getitem(m: Module, facts: Facts) -> None:
    """`Layout.__getitem__(key)`: integers, slices, None and one Ellipsis, alone or in a tuple."""
    f = m.function("getitem_of", "ptr", "ptr", "ptr", "ptr", "i64")
    self, key, items, given = f.arguments
    shape, strides, count, first = _own(f, self, facts)
    extents, steps = f.stack("i64", MAX_RANK), f.stack("i64", MAX_RANK)
    start, step = f.stack("i64"), f.stack("i64")
    none, ellipsis = f.state("none"), f.state("ellipsis")
    give_up(f, given > MAX_RANK)
    used, dots = f.variable("i64", 0), f.variable("i64", 0)
    with f.loop(given) as i:
        item = f.load(items, i * 8)
        dots.set(dots.now + f.as_(item == ellipsis, "i64"))
        used.set(used.now + f.as_((item != none) & (item != ellipsis), "i64"))
    give_up(f, used.now > count, dots.now > 1, count - used.now + given > MAX_RANK)
    axis, place, offset = f.variable("i64", 0), f.variable("i64", 0), f.variable("i64", first)

    def keep(extent: Value, stride: Value) -> None:
        f.store(extent, extents, place.now * 8)
        f.store(stride, steps, place.now * 8)
        place.set(place.now + 1)

    def keep_axes(many: Value) -> None:
        with f.loop(many):
            keep(f.load(shape, axis.now * 8, "i64"), f.load(strides, axis.now * 8, "i64"))
            axis.set(axis.now + 1)

    with f.loop(given) as i:
        item = f.load(items, i * 8)
        type = f.load(item, OBJECT_TYPE)
        extent, stride = f.load(shape, axis.now * 8, "i64"), f.load(strides, axis.now * 8, "i64")
        is_slice, is_number = type == f.state("slice_type"), type == f.state("int_type")
        with f.when(item == ellipsis):
            keep_axes(count - used.now)
        with f.when(item == none):
            keep(f.constant(1), f.constant(0))
        with f.when(is_number):
            index = _integer(f, item)
            index = f.select(index < 0, index + extent, index)
            give_up(f, ~f.unsigned_below(index, extent))
            offset.set(offset.now + index * stride)
            axis.set(axis.now + 1)
        with f.when(is_slice):
            length = f.call("part", item, extent, start, step)
            give_up(f, length <= 0)
            offset.set(offset.now + f.load(start, 0, "i64") * stride)
            hop = f.variable("i64", 0)
            with f.when(length > 1):
                hop.set(_multiplied(f, stride, f.load(step, 0, "i64")))
            keep(length, hop.now)
            axis.set(axis.now + 1)
        give_up(f, ~(is_slice | is_number | (item == ellipsis) | (item == none)))
    keep_axes(count - axis.now)
    f.ret(f.call("view", self, extents, steps, place.now, offset.now))

    f = m.function("getitem", "ptr", "ptr", "ptr")
    self, key = f.arguments
    argument = f.variable("ptr", key)
    with f.when(f.load(key, OBJECT_TYPE) == f.state("tuple_type")):
        given = f.call("PyTuple_Size", key)
        with f.when(given <= MAX_RANK):
            items = f.stack("ptr", MAX_RANK)
            with f.loop(given) as i:
                f.store(f.call("PyTuple_GetItem", key, i), items, i * 8)
            _return_or_go_on(f, f.call("getitem_of", self, key, items, given))
    with f.when(f.load(key, OBJECT_TYPE) != f.state("tuple_type")):
        _return_or_go_on(f, f.call("getitem_of", self, key, argument.address, 1))
    f.ret(f.call("slow", f.state("slow___getitem__"), self, argument.address, 1, None))
