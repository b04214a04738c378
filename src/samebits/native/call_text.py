"""The text of `known`: an eager call like one before goes straight to its table.

`known(function, arguments, options)` writes a key of the call: the function, the Isa row that is forced, and of each
argument what decides the plan, the addresses left out. Under that key a dictionary of the state holds records, which
`native.calls` makes from what Python remembers. With one, the addresses are put into a copy of the table's words on
the stack, which is run. Without one the key itself is the answer, and empty bytes where the call has none: Python goes
on then. Start at `_known`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from samebits.native.capi import FASTCALL, OBJECT_TYPE, Function, Module, Value
from samebits.native.dlpack_text import BYTE_OFFSET, DATA, DEVICE, DEVICE_ID, NDIM, SHAPE, STRIDES, required
from samebits.native.layout_text import reading
from samebits.native.objects import ARRAY, WARNS, WRITABLE

__all__ = ["BLOCK", "FRAME", "FRAME_WORDS", "HEAD", "RESULT", "Facts", "module"]

# Arguments of a call, axes of one, and words of a table's copy, beyond which Python does all.
MOST, RANK, FRAME_WORDS = 24, 8, 512
# Words of a key: before the arguments, and of each (most: a packed matrix by its name).
_HEADER, _ROOM = 3, 3 * RANK + 16
# What an address is of: an array by its number, or one of these.
RESULT, BLOCK, FRAME = MOST, MOST + 1, MOST + 2
# Words of a record before the table's: bits no address may have, bytes of the block, words and patches of the table,
# then the number of the array given as out (or -1), its first byte and the one after its last, and how many others are
# compared with them. Behind the table's words come patches (position, address, offset) and others (number, span).
HEAD = ("misaligned", "block_bytes", "words", "patches", "target", "low", "high", "others")
# Bytes to the places' words: first how many arrays, then of each the object, its address, and a reference to what owns
# its memory: a buffer may be closed by another thread, or by what a garbage collection runs, as soon as it was read.
# Behind the arguments' addresses there is room for those of `RESULT`, `BLOCK` and `FRAME`.
_OBJECTS, _ADDRESSES, _OWNERS, _PLACES = (8 * word for word in (1, 2 + MOST, 5 + 2 * MOST, 6 + 3 * MOST))
# The word of a table that holds the pool.
_POOL = 4


@dataclass(frozen=True, slots=True)
class Facts:
    """The slots of our classes."""

    tensor: Mapping[str, int]
    buffer: Mapping[str, int]
    layout: Mapping[str, int]
    packed: Mapping[str, int]
    block: Mapping[str, int]


def module(facts: Facts) -> Module:
    """All functions, and the method table `method_known`."""
    m = Module()
    reading(m)
    _placed(m)
    _array(m)
    _tensor(m, facts)
    _packed(m, facts)
    _torch(m)
    _described(m)
    _is_apart(m)
    _filled(m)
    _block(m, facts)
    _answer(m, facts)
    _known(m)
    m.method("method_known", "known", "known", FASTCALL, "The result of a call like one before, or its key.")
    return m


def _refuse(f: Function, *conditions: Value) -> None:
    """Leave with 0, which says that an argument has no key."""
    for condition in conditions:
        with f.when(condition):
            f.ret(0)


def _placed(m: Module) -> None:
    """`placed(places, object, address, owner) -> i64`: one more array; the number of the first that is this object."""
    f = m.function("placed", "i64", "ptr", "ptr", "i64", "ptr")
    places, x, address, owner = f.arguments
    count = f.load(places, 0, "i64")
    f.store(x, places, count * 8 + _OBJECTS)
    f.store(address, places, count * 8 + _ADDRESSES)
    f.store(f.incref(owner), places, count * 8 + _OWNERS)
    f.store(count + 1, places)
    with f.loop(count) as i, f.when(f.load(places, i * 8 + _OBJECTS) == x):
        f.ret(i)
    f.ret(count)


def _array(m: Module) -> None:
    """`array(x, key, places) -> i64`: the words that tell of a NumPy array."""
    f = m.function("array", "i64", "ptr", "ptr", "ptr")
    x, key, places = f.arguments
    flags, ndim = f.load(x, ARRAY["flags"], "i32"), f.load(x, ARRAY["ndim"], "i32")
    _refuse(f, (flags & WARNS) != 0, ndim > RANK)
    rank = f.as_(ndim, "i64")
    first = f.call("placed", places, x, f.load(x, ARRAY["data"], "i64"), x)
    f.store(f.load(x, ARRAY["descr"]), key)
    f.store(f.as_(flags & WRITABLE, "i64"), key, 8)
    f.store(first, key, 16)
    f.store(rank, key, 24)
    f.ret(_steps(f, key, rank, f.load(x, ARRAY["shape"]), f.load(x, ARRAY["strides"])))


def _steps(f: Function, key: Value, rank: Value, shape: Value, strides: Value) -> Value:
    """Put extents and strides behind four words of a key; how many words there are."""
    with f.loop(rank) as i:
        f.store(f.load(shape, i * 8, "i64"), key, i * 16 + 32)
        f.store(f.load(strides, i * 8, "i64"), key, i * 16 + 40)
    return rank * 2 + 4


def _numbers(f: Function, source: Value, key: Value) -> Value:
    """How many integers a tuple holds, which are put into the key."""
    _refuse(f, source.is_null)
    _refuse(f, f.load(source, OBJECT_TYPE) != f.state("tuple_type"))
    _refuse(f, f.call("PyTuple_Size", source) > RANK)
    count = f.call("read", source, key)
    _refuse(f, count < 0)
    return count


def _integer(f: Function, x: Value) -> Value:
    """An exact `int` within int64."""
    _refuse(f, x.is_null)
    _refuse(f, f.load(x, OBJECT_TYPE) != f.state("int_type"))
    number = f.call("PyLong_AsLongLong", x)
    with f.when(number == -1), f.when(f.call("PyErr_Occurred").is_set):
        f.call("PyErr_Clear")
        f.ret(0)
    return number


def _tensor(m: Module, facts: Facts) -> None:
    """`tensor(x, key, places) -> i64`: the words that tell of a Tensor on the host whose buffer is open."""
    f = m.function("tensor", "i64", "ptr", "ptr", "ptr")
    x, key, places = f.arguments
    buffer, layout, dtype = (f.load(x, facts.tensor[name]) for name in ("buffer", "layout", "dtype"))
    _refuse(f, buffer.is_null, layout.is_null, dtype.is_null)
    for part, type in ((buffer, "buffer_type"), (layout, "layout_type")):
        _refuse(f, f.load(part, OBJECT_TYPE) != f.state(type))
    read_only, owner = f.load(buffer, facts.buffer["read_only"]), f.load(buffer, facts.buffer["_owner"])
    is_packed = f.load(layout, facts.layout["storage"]) == f.state("packed")
    _refuse(
        f,
        f.load(buffer, facts.buffer["device"]) != f.state("cpu"),
        owner.is_null,
        (read_only != f.state("true")) & (read_only != f.state("false")),
        ~is_packed & (f.load(layout, facts.layout["storage"]) != f.state("padded")),
    )
    offset = _integer(f, f.load(layout, facts.layout["offset_bits"]))
    address = _integer(f, f.load(buffer, facts.buffer["_address"]))  # None where it is closed
    f.store(dtype, key)
    f.store(read_only, key, 8)
    f.store(f.call("placed", places, x, address + (offset >> 3), owner), key, 16)
    f.store(f.as_(is_packed, "i64"), key, 24)
    f.store(offset, key, 32)
    rank = _numbers(f, f.load(layout, facts.layout["shape"]), f.at(key, 48))
    f.store(rank, key, 40)
    _refuse(f, _numbers(f, f.load(layout, facts.layout["strides_bits"]), f.at(key, rank * 8 + 48)) != rank)
    f.ret(rank * 2 + 6)


def _packed(m: Module, facts: Facts) -> None:
    """`packed(x, key, places) -> i64`: the words that tell of a PackedMatrix, and of its tensor."""
    f = m.function("packed", "i64", "ptr", "ptr", "ptr")
    x, key, places = f.arguments
    tensor, engine, dtype = (f.load(x, facts.packed[name]) for name in ("tensor", "engine", "dtype"))
    _refuse(f, tensor.is_null, engine.is_null, dtype.is_null)
    _refuse(f, f.load(tensor, OBJECT_TYPE) != f.state("tensor_type"))
    f.store(f.load(x, OBJECT_TYPE), key)
    f.store(engine, key, 8)
    f.store(dtype, key, 16)
    f.store(_integer(f, f.load(x, facts.packed["nr"])), key, 24)
    rank = _numbers(f, f.load(x, facts.packed["shape"]), f.at(key, 40))
    f.store(rank, key, 32)
    count = f.call("tensor", tensor, f.at(key, rank * 8 + 40), places)
    _refuse(f, count == 0)
    f.ret(count + rank + 5)


def _torch(m: Module) -> None:
    """`torch(x, key, places) -> i64`: the words that tell of torch's tensor on the host, which torch itself describes.

    What needs a gradient or is still to be negated is no plain memory, as in `consume_text`.
    """
    f = m.function("torch", "i64", "ptr", "ptr", "ptr")
    x, key, places = f.arguments
    own, false = f.variable("ptr", x), f.state("false")
    gradient = f.own(f.call("PyObject_GetAttr", x, f.state("requires_grad")))
    negated = f.own(f.call("PyObject_VectorcallMethod", f.state("is_neg"), own.address, 1, None))
    dtype, at = f.own(f.call("PyObject_GetAttr", x, f.state("dtype"))), f.stack("i64", 6)  # a DLTensor
    with f.when(gradient.now.is_null | negated.now.is_null | dtype.now.is_null):
        f.call("PyErr_Clear")
        f.ret(0)
    _refuse(f, (gradient.now != false) | (negated.now != false))
    with f.when(f.call_pointer(f.state("torch_borrow"), "i32", x, at) != 0):
        f.call("PyErr_Clear")
        f.ret(0)
    ndim, data = f.load(at, NDIM, "i32"), f.load(at, DATA, "i64")
    _refuse(f, f.load(at, DEVICE, "i32") != 1, f.load(at, DEVICE_ID, "i32") != 0, ndim > RANK, data == 0)
    rank = f.as_(ndim, "i64")
    f.store(f.load(x, OBJECT_TYPE), key)
    f.store(dtype.now, key, 8)
    f.store(f.call("placed", places, x, data + f.load(at, BYTE_OFFSET, "i64"), x), key, 16)
    f.store(rank, key, 24)
    f.ret(_steps(f, key, rank, f.load(at, SHAPE), f.load(at, STRIDES)))


def _described(m: Module) -> None:
    """`described(x, key, places) -> i64`: the words that tell of an argument; 0 where there are none."""
    f = m.function("described", "i64", "ptr", "ptr", "ptr")
    x, key, places = f.arguments
    type = f.load(x, OBJECT_TYPE)
    for name in ("array", "packed", "tensor", "torch"):
        with f.when(type == f.state(f"{name}_type")):
            f.ret(f.call(name, x, key, places))
    none, true, false = (x == f.state(name) for name in ("none", "true", "false"))
    with f.when(none | true | false | (type == f.state("str_type"))):
        f.store(x, key)
        f.ret(1)
    f.store(type, key)
    with f.when(type == f.state("int_type")):
        f.store(_integer(f, x), key, 8)
        f.ret(2)
    with f.when(type == f.state("float_type")):
        f.store(f.call("PyFloat_AsDouble", x), key, 8)
        f.ret(2)
    f.ret(0)


def _is_apart(m: Module) -> None:
    """`is_apart(head, others, addresses) -> i32`: whether the array given as out lies before or behind each other."""
    f = m.function("is_apart", "i32", "ptr", "ptr", "ptr")
    head, others, addresses = f.arguments
    at = f.load(addresses, _field(f, head, "target") * 8, "i64")
    low, high = at + _field(f, head, "low"), at + _field(f, head, "high")
    with f.loop(_field(f, head, "others")) as i:
        number, first, end = (f.load(others, i * 24 + 8 * j, "i64") for j in range(3))
        other = f.load(addresses, number * 8, "i64")
        with f.when((low < other + end) & (other + first < high)):
            f.ret(0)
    f.ret(1)


def _field(f: Function, head: Value, name: str) -> Value:
    return f.load(head, 8 * HEAD.index(name), "i64")


def _filled(m: Module) -> None:
    """`filled(frame, head, addresses)`: a copy of the table's words that knows its operands."""
    f = m.function("filled", "void", "ptr", "ptr", "ptr")
    frame, head, addresses = f.arguments
    size = _field(f, head, "words") * 8
    words = f.at(head, 8 * len(HEAD))
    f.call("llvm.memcpy.p0.p0.i64", frame, words, size, f.constant(0, "i1"))
    patches = f.at(words, size)
    with f.loop(_field(f, head, "patches")) as i:
        position, source, offset = (f.load(patches, i * 24 + 8 * j, "i64") for j in range(3))
        f.store(f.load(addresses, source * 8, "i64") + offset, frame, position * 8)
    f.ret()


def _block(m: Module, facts: Facts) -> None:
    """`block(size_bytes) -> Block`: the one that was used last, if it is free and big enough, else one of Python's."""
    f = m.function("block", "ptr", "i64")
    (size,) = f.arguments
    last = f.state("last_block")
    with f.when(last.is_set), f.when(f.call("PyLong_AsLongLong", f.load(last, facts.block["size_bytes"])) >= size):
        f.store(f.constant(None, "ptr"), f.state_address("last_block"))
        f.ret(last)
    number = f.own(required(f, f.call("PyLong_FromLongLong", size)))
    f.ret(f.call("PyObject_Vectorcall", f.state("take"), number.address, 1, None))


def _known(m: Module) -> None:
    """`known(function, arguments, options)`: the answer, after which the owners of memory are let go."""
    f = m.function("known", "ptr", "ptr", "ptr", "i64", "ptr")
    _, args, _, _ = f.arguments
    places = f.stack("i64", _PLACES // 8)
    f.store(f.constant(0), places)
    answer = f.call("answer", args, places)
    with f.loop(f.load(places, 0, "i64")) as i:
        f.call("Py_DecRef", f.load(places, i * 8 + _OWNERS))
    f.ret(answer)


def _answer(m: Module, facts: Facts) -> None:
    """`answer(args, places)`: the result, or the key of a call without a record."""
    f = m.function("answer", "ptr", "ptr", "ptr")
    args, places = f.arguments
    function, arguments, options = (f.load(args, 8 * i) for i in range(3))
    positional = f.call("PyTuple_Size", arguments)

    def give_up(condition: Value) -> None:
        with f.when(condition):
            f.ret(f.incref(f.state("no_key")))

    give_up(positional + f.call("PyDict_Size", options) > MOST)
    # The result is described behind the last argument.
    key = f.stack("i64", _HEADER + _ROOM * (MOST + 1))
    forced = f.own()
    with f.when(f.call("PyContextVar_Get", f.state("forced"), f.state("none"), forced.address) != 0):
        f.ret(None)
    f.store(function, key)
    f.store(forced.now, key, 8)
    f.store(positional, key, 16)
    end = f.variable("ptr", f.at(key, 8 * _HEADER))

    def describe(x: Value) -> None:
        count = f.call("described", x, end.now, places)
        give_up(count == 0)
        end.set(f.at(end.now, count * 8))

    with f.loop(positional) as i:
        describe(f.call("PyTuple_GetItem", arguments, i))
    position, name, value = f.stack("i64"), f.stack("ptr"), f.stack("ptr")
    f.store(f.constant(0), position)
    with f.loop(f.call("PyDict_Size", options)):
        give_up(f.call("PyDict_Next", options, position, name, value) == 0)
        f.store(f.load(name), end.now)
        end.set(f.at(end.now, 8))
        describe(f.load(value))
    size = f.as_(end.now, "i64") - f.as_(key, "i64")
    made_key = f.own(required(f, f.call("PyBytes_FromStringAndSize", key, size)))
    found = f.call("PyDict_GetItemWithError", f.state("records"), made_key.now)
    with f.when(found.is_null):
        with f.when(f.call("PyErr_Occurred").is_set):
            f.ret(None)
        f.ret(f.take(made_key))
    _run(f, facts, f.own(f.incref(found)).now, end.now, places, give_up)


def _run(f: Function, facts: Facts, record: Value, end: Value, places: Value, give_up: Callable[[Value], None]) -> None:
    """Go to the table of a record: (words, what makes a result, shape, dtype, what gives the pool, threads, ...)."""
    item = [f.call("PyTuple_GetItem", record, i) for i in range(6)]
    head, count, addresses = f.call("PyBytes_AsString", item[0]), f.load(places, 0, "i64"), f.at(places, _ADDRESSES)
    every = f.variable("i64", 0)
    with f.loop(count) as i:
        every.set(every.now | f.load(addresses, i * 8, "i64"))
    give_up((every.now & _field(f, head, "misaligned")) != 0)
    patched = f.at(f.at(head, 8 * len(HEAD)), (_field(f, head, "words") + _field(f, head, "patches") * 3) * 8)
    target = _field(f, head, "target")
    result = f.own()
    with f.when(target >= 0):
        give_up(f.call("is_apart", head, patched, addresses) == 0)
        result.set(f.incref(f.load(places, target * 8 + _OBJECTS)))
    with f.when(target < 0):
        facts_of_it = f.stack("ptr", 2)
        f.store(item[2], facts_of_it)
        f.store(item[3], facts_of_it, 8)
        result.set(f.call("PyObject_Vectorcall", item[1], facts_of_it, 2, None))
        required(f, result.now)
        give_up(f.call("described", result.now, end, places) == 0)
        f.store(f.load(addresses, count * 8, "i64"), addresses, 8 * RESULT)
    frame = f.stack("i64", FRAME_WORDS)
    f.store(frame, addresses, 8 * FRAME)
    pool = f.variable("i64", 0)
    with f.when(item[4] != f.state("none")):
        threads = f.variable("ptr", item[5])
        workers = f.own(f.call("PyObject_Vectorcall", item[4], threads.address, 1, None))
        pool.set(f.call("PyLong_AsUnsignedLongLong", required(f, workers.now)))
    size, block = _field(f, head, "block_bytes"), f.own()
    with f.when(size != 0):
        block.set(f.call("block", size))
        address = f.call("PyLong_AsLongLong", f.load(required(f, block.now), facts.block["address"]))
        f.store(address, addresses, 8 * BLOCK)
    f.call("filled", frame, head, addresses)
    f.store(pool.now, frame, 8 * _POOL)
    lock = f.call("PyEval_SaveThread")
    f.call_pointer(f.state("run"), "void", frame)
    f.call("PyEval_RestoreThread", lock)
    with f.when(size != 0):
        last = f.own(f.state("last_block"))
        f.store(f.take(block), f.state_address("last_block"))
        with f.when(last.now.is_set):
            given = f.own(f.call("PyObject_Vectorcall", f.state("give"), last.address, 1, None))
            required(f, given.now)
    f.ret(f.take(result))
