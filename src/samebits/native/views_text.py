"""The text of views: indexing, permute, reshape and broadcast_to of a Layout and of a Tensor.

Layouts are compared here, too. What is common is said in `layout_text`, whose functions make the results. Start at
`views`.
"""

from __future__ import annotations

from collections.abc import Mapping

from samebits.native.capi import FASTCALL, OBJECT_TYPE, ONE, CValue, Function, Module
from samebits.native.dlpack_text import InterpreterFacts, give_up, required
from samebits.native.layout_text import integer, multiplied, return_or_go_on
from samebits.native.objects import SLICE
from samebits.shapes import MAX_RANK

__all__ = ["views"]

_FIELDS = ("shape", "strides_bits", "offset_bits", "width_bits", "storage")


def views(m: Module, facts: InterpreterFacts, docs: Mapping[str, str]) -> None:
    """The methods with their method tables."""
    _permute(m, facts)
    _reshape(m, facts)
    _broadcast_to(m, facts)
    _part(m)
    _selected(m, facts)
    _getitem(m)
    _with_layout(m, facts)
    for name in ("permute", "reshape", "broadcast_to"):
        _method(m, name, docs)
        _tensor_method(m, facts, name, docs)
    _indexing(m, facts, docs)
    _equal(m, facts, docs)


def _method(m: Module, name: str, docs: Mapping[str, str]) -> None:
    """A method of Layout with one argument, whose common case is `name_of(layout, argument)`."""
    f = m.function(name, "ptr", "ptr", "ptr", "i64", "ptr")
    self, args, nargs, kwnames = f.arguments
    with f.when((nargs == 1) & kwnames.is_null):
        return_or_go_on(f, f.call(f"{name}_of", self, f.load(args)))
    f.ret(f.call("slow", f.state(f"slow_Layout.{name}"), self, args, nargs, kwnames))
    m.method(f"method_Layout.{name}", name, name, FASTCALL, docs[f"Layout.{name}"])


def _tensor_method(m: Module, facts: InterpreterFacts, name: str, docs: Mapping[str, str]) -> None:
    """The method of Tensor that gives the view of this layout."""
    f = m.function(f"tensor_{name}", "ptr", "ptr", "ptr", "i64", "ptr")
    self, args, nargs, kwnames = f.arguments
    layout = f.load(self, facts.tensor["layout"])
    with f.when((nargs == 1) & kwnames.is_null & layout.is_set):
        return_or_go_on(f, f.call("with_layout", self, f.call(f"{name}_of", layout, f.load(args))))
    f.ret(f.call("slow", f.state(f"slow_Tensor.{name}"), self, args, nargs, kwnames))
    m.method(f"method_Tensor.{name}", name, f"tensor_{name}", FASTCALL, docs[f"Tensor.{name}"])


def _with_layout(m: Module, facts: InterpreterFacts) -> None:
    """`with_layout(tensor, layout) -> Tensor` of the same memory; takes the layout's reference, and NULL gives NULL."""
    f = m.function("with_layout", "ptr", "ptr", "ptr")
    self, given = f.arguments
    layout = f.own(required(f, given))
    buffer, dtype = (required(f, f.load(self, facts.tensor[name])) for name in ("buffer", "dtype"))
    made = required(f, f.call("PyType_GenericAlloc", f.state("tensor_type"), 0))
    f.store(f.incref(buffer), made, facts.tensor["buffer"])
    f.store(f.incref(dtype), made, facts.tensor["dtype"])
    f.store(f.take(layout), made, facts.tensor["layout"])
    f.ret(made)


def _own(f: Function, self: CValue, facts: InterpreterFacts) -> tuple[CValue, CValue, CValue, CValue]:
    """Shape and strides on the stack, their count, and the offset of a layout."""
    # One more, so that what is loaded past the last axis and never used is there.
    shape, strides = f.stack("i64", MAX_RANK + 1), f.stack("i64", MAX_RANK + 1)
    extents, steps, offset = (f.load(self, facts.layout[name]) for name in ("shape", "strides_bits", "offset_bits"))
    give_up(f, extents.is_null, steps.is_null, offset.is_null)
    count = f.call("read", extents, shape)
    give_up(f, count < 0, f.call("read", steps, strides) != count)
    return shape, strides, count, integer(f, offset)


def _permute(m: Module, facts: InterpreterFacts) -> None:
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


def _reshape(m: Module, facts: InterpreterFacts) -> None:
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
            with f.when(f.load(hops, at, "i64") == multiplied(f, extent, stride)):
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


def _selected(m: Module, facts: InterpreterFacts) -> None:
    """`selected(layout, items, given) -> Layout`: what so many integers, slices, None and one Ellipsis select."""
    f = m.function("selected", "ptr", "ptr", "ptr", "i64")
    self, items, given = f.arguments
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

    def keep(extent: CValue, stride: CValue) -> None:
        f.store(extent, extents, place.now * 8)
        f.store(stride, steps, place.now * 8)
        place.set(place.now + 1)

    def keep_axes(many: CValue) -> None:
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
            index = integer(f, item)
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
                hop.set(multiplied(f, stride, f.load(step, 0, "i64")))
            keep(length, hop.now)
            axis.set(axis.now + 1)
        give_up(f, ~(is_slice | is_number | (item == ellipsis) | (item == none)))
    keep_axes(count - axis.now)
    f.ret(f.call("view", self, extents, steps, place.now, offset.now))


def _getitem(m: Module) -> None:
    """`getitem_of(layout, key) -> Layout`."""
    f = m.function("getitem_of", "ptr", "ptr", "ptr")
    self, key = f.arguments
    alone = f.variable("ptr", key)
    with f.when(f.load(key, OBJECT_TYPE) != f.state("tuple_type")):
        f.ret(f.call("selected", self, alone.address, 1))
    given = f.call("PyTuple_Size", key)
    give_up(f, given > MAX_RANK)
    items = f.stack("ptr", MAX_RANK)
    with f.loop(given) as i:
        f.store(f.call("PyTuple_GetItem", key, i), items, i * 8)
    f.ret(f.call("selected", self, items, given))


def _indexing(m: Module, facts: InterpreterFacts, docs: Mapping[str, str]) -> None:
    """`Layout.__getitem__(key)` and `Tensor.__getitem__(key)`."""
    for owner in ("Layout", "Tensor"):
        f = m.function(f"{owner}_getitem", "ptr", "ptr", "ptr")
        self, key = f.arguments
        if owner == "Layout":
            return_or_go_on(f, f.call("getitem_of", self, key))
        else:
            layout = f.load(self, facts.tensor["layout"])
            with f.when(layout.is_set):
                return_or_go_on(f, f.call("with_layout", self, f.call("getitem_of", layout, key)))
        argument = f.variable("ptr", key)
        f.ret(f.call("slow", f.state(f"slow_{owner}.__getitem__"), self, argument.address, 1, None))
        m.method(f"method_{owner}.__getitem__", "__getitem__", f"{owner}_getitem", ONE, docs[f"{owner}.__getitem__"])


def _broadcast_to(m: Module, facts: InterpreterFacts) -> None:
    """`Layout.broadcast_to(shape)`."""
    f = m.function("broadcast_to_of", "ptr", "ptr", "ptr")
    self, given = f.arguments
    shape, strides, count, offset = _own(f, self, facts)
    wanted, steps = f.stack("i64", MAX_RANK), f.stack("i64", MAX_RANK)
    axes = f.call("read", given, wanted)
    fresh = axes - count
    give_up(f, axes < 0, fresh < 0, f.call("product", wanted, axes) < 0)
    with f.loop(fresh) as i:
        f.store(f.constant(0), steps, i * 8)
    with f.loop(count) as i:
        place = (fresh + i) * 8
        extent, target = f.load(shape, i * 8, "i64"), f.load(wanted, place, "i64")
        give_up(f, (extent != target) & (extent != 1))
        f.store(f.select(extent == target, f.load(strides, i * 8, "i64"), f.constant(0)), steps, place)
    f.ret(f.call("view", self, wanted, steps, axes, offset))


def _fields(f: Function, facts: InterpreterFacts, layout: CValue) -> list[CValue]:
    """The five facts of a layout; the function gives up on another type and on one that is not made."""
    give_up(f, f.load(layout, OBJECT_TYPE) != f.state("layout_type"))
    found = [f.load(layout, facts.layout[name]) for name in _FIELDS]
    give_up(f, *(value.is_null for value in found))
    return found


def _equal(m: Module, facts: InterpreterFacts, docs: Mapping[str, str]) -> None:
    """`Layout.__eq__(other)`."""
    f = m.function("equal_of", "ptr", "ptr", "ptr")
    self, other = f.arguments
    mine, theirs = _fields(f, facts, self), _fields(f, facts, other)
    for a, b in zip(mine, theirs, strict=True):
        same = f.call("PyObject_RichCompareBool", a, b, 2)
        give_up(f, same < 0)
        with f.when(same == 0):
            f.ret(f.incref(f.state("false")))
    f.ret(f.incref(f.state("true")))

    f = m.function("equal", "ptr", "ptr", "ptr")
    self, other = f.arguments
    return_or_go_on(f, f.call("equal_of", self, other))
    argument = f.variable("ptr", other)
    f.ret(f.call("slow", f.state("slow_Layout.__eq__"), self, argument.address, 1, None))
    m.method("method_Layout.__eq__", "__eq__", "equal", ONE, docs["Layout.__eq__"])
