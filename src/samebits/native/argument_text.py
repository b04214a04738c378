"""The text of describing arguments: what of each decides a plan goes into a key, and its address among the places.

A function of an object, a key and the places gives how many words of the key it wrote, and 0 where the object is of a
kind, or in a state, that Python looks at. Start at `_described`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from samebits.frozen import dataclass
from samebits.memory.address import LEAST_ADDRESS
from samebits.native.capi import OBJECT_TYPE, CValue, Function, Module
from samebits.native.dlpack_text import BYTE_OFFSET, DATA, DEVICE, DEVICE_ID, NDIM, SHAPE, STRIDES
from samebits.native.layout_text import reading
from samebits.native.objects import ARRAY, WARNS, WRITABLE

__all__ = [
    "ADDRESSES",
    "ADDRESS_BITS",
    "DLTENSOR",
    "IS_MEMORY",
    "MOST",
    "MOST_RESULTS",
    "OBJECTS",
    "OWNERS",
    "PLACES",
    "RESULT",
    "ROOM",
    "SMALL",
    "ClassSlots",
    "descriptions",
]

# Arguments of a call and axes of one, beyond which there is no key, results that it makes at most, and words of a key
# that an argument takes at most, which is a packed matrix with its name.
MOST, RANK, MOST_RESULTS, ROOM = 24, 8, 8, 40
# Arrays that a call may be about.
_ARRAYS = MOST + MOST_RESULTS
# Bytes to the places' words: first how many arrays, then of each the object, its address, and a reference to what owns
# its memory: a buffer may be closed by another thread, or by what a garbage collection runs, as soon as it was read.
# Behind the addresses there is room for those of the results, in their order, and for two more. Last comes whether of
# torch's tensors memory alone counts.
RESULT = _ARRAYS
OBJECTS, ADDRESSES, OWNERS, IS_MEMORY, PLACES = itertools.accumulate(
    [8, 8 * _ARRAYS, 8 * (_ARRAYS + MOST_RESULTS + 2), 8 * _ARRAYS, 8]
)
# Bytes of dlpack.h's DLTensor.
DLTENSOR = 48
# Addresses have so many bits. A word of a key whose last byte has the bit `_SHORT` holds a whole text; one with the bit
# `SMALL` an integer of at most as many bits as an address.
ADDRESS_BITS, _SHORT, SMALL = 48, 0x80, 1 << 62


@dataclass(frozen=True, slots=True)
class ClassSlots:
    """The slots of our classes."""

    tensor: Mapping[str, int]
    buffer: Mapping[str, int]
    layout: Mapping[str, int]
    packed: Mapping[str, int]
    spec: Mapping[str, int]
    block: Mapping[str, int]


def descriptions(m: Module, facts: ClassSlots) -> None:
    """Emit `described` and the functions that it calls."""
    reading(m)
    _placed(m)
    _array(m)
    _tensor(m, facts)
    _packed(m, facts)
    _failed(m)
    _traced(m)
    _torch(m)
    _text(m)
    _spec(m, facts)
    _described(m)


def _refuse(f: Function, *conditions: CValue) -> None:
    """Leave with 0, which says that an argument has no key."""
    for condition in conditions:
        with f.when(condition):
            f.ret(0)


def _placed(m: Module) -> None:
    """`placed(places, object, address, owner) -> i64`: one more array; the number of the first that is this object."""
    f = m.function("placed", "i64", "ptr", "ptr", "i64", "ptr")
    places, x, address, owner = f.arguments
    count = f.load(places, 0, "i64")
    f.store(x, places, count * 8 + OBJECTS)
    f.store(address, places, count * 8 + ADDRESSES)
    f.store(f.incref(owner), places, count * 8 + OWNERS)
    f.store(count + 1, places)
    with f.loop(count) as i, f.when(f.load(places, i * 8 + OBJECTS) == x):
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
    f.store(_with(f, f.load(x, ARRAY["descr"]), first), key)
    f.store(rank | f.as_(flags & WRITABLE, "i64"), key, 8)
    f.ret(_steps(f, key, rank, f.load(x, ARRAY["shape"]), f.load(x, ARRAY["strides"])))


def _with(f: Function, address: CValue, number: CValue) -> CValue:
    """A word of an address and a number above its bits."""
    return f.as_(address, "i64") + number * (1 << ADDRESS_BITS)


def _steps(f: Function, key: CValue, rank: CValue, shape: CValue, strides: CValue) -> CValue:
    """Put extents and strides behind two words of a key; how many words there are."""
    with f.loop(rank) as i:
        f.store(f.load(shape, i * 8, "i64"), key, i * 16 + 16)
        f.store(f.load(strides, i * 8, "i64"), key, i * 16 + 24)
    return rank * 2 + 2


def _numbers(f: Function, source: CValue, key: CValue) -> CValue:
    """How many integers a tuple holds, which are put into the key."""
    _refuse(f, source.is_null)
    _refuse(f, f.load(source, OBJECT_TYPE) != f.state("tuple_type"))
    _refuse(f, f.call("PyTuple_Size", source) > RANK)
    count = f.call("read", source, key)
    _refuse(f, count < 0)
    return count


def _integer(f: Function, x: CValue) -> CValue:
    """An exact `int` within int64."""
    _refuse(f, x.is_null)
    _refuse(f, f.load(x, OBJECT_TYPE) != f.state("int_type"))
    number = f.call("PyLong_AsLongLong", x)
    with f.when(number == -1), f.when(f.call("PyErr_Occurred").is_set):
        f.call("PyErr_Clear")
        f.ret(0)
    return number


def _tensor(m: Module, facts: ClassSlots) -> None:
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
    f.store(_with(f, dtype, f.call("placed", places, x, address + (offset >> 3), owner)), key)
    f.store(offset, key, 8)
    rank = _numbers(f, f.load(layout, facts.layout["shape"]), f.at(key, 24))
    is_read_only = f.as_(read_only == f.state("true"), "i64")
    f.store(rank * 4 + f.as_(is_packed, "i64") * 2 + is_read_only, key, 16)
    _refuse(f, _numbers(f, f.load(layout, facts.layout["strides_bits"]), f.at(key, rank * 8 + 24)) != rank)
    f.ret(rank * 2 + 3)


def _packed(m: Module, facts: ClassSlots) -> None:
    """`packed(x, key, places) -> i64`: the words that tell of a PackedMatrix with its scales, and of its tensor."""
    f = m.function("packed", "i64", "ptr", "ptr", "ptr")
    x, key, places = f.arguments
    names = ("tensor", "engine", "dtype", "scale", "global_scale")
    tensor, engine, dtype, scale, factor = given = [f.load(x, facts.packed[name]) for name in names]
    _refuse(f, *(part.is_null for part in given))
    _refuse(f, f.load(tensor, OBJECT_TYPE) != f.state("tensor_type"))
    f.store(f.load(x, OBJECT_TYPE), key)
    f.store(engine, key, 8)
    f.store(dtype, key, 16)
    f.store(_integer(f, f.load(x, facts.packed["nr"])), key, 24)
    f.store(_integer(f, f.load(x, facts.packed["block"])), key, 32)
    f.store(scale, key, 40)
    f.store(f.load(factor, OBJECT_TYPE), key, 48)
    f.store(f.constant(0), key, 56)
    with f.when(factor != f.state("none")):
        _refuse(f, f.load(factor, OBJECT_TYPE) != f.state("float_type"))
        f.store(f.call("PyFloat_AsDouble", factor), key, 56)
    rank = _numbers(f, f.load(x, facts.packed["shape"]), f.at(key, 72))
    f.store(rank, key, 64)
    count = f.call("tensor", tensor, f.at(key, rank * 8 + 72), places)
    _refuse(f, count == 0)
    f.ret(count + rank + 9)


def _failed(m: Module) -> None:
    """`failed() -> i64`: 0, the exception cleared, which Python meets again; an interruption stays."""
    f = m.function("failed", "i64")
    with f.when(f.call("PyErr_ExceptionMatches", f.state("exception")) != 0):
        f.call("PyErr_Clear")
    f.ret(0)


def _traced(m: Module) -> None:
    """`traced() -> i32`: whether torch records operators to run them again, which Python refuses.

    It may where a mode of functions is on, as within `make_fx`; only then it is asked for more than that.
    """
    f = m.function("traced", "i32")
    for question in ("function_modes", "is_tracing"):
        said = f.own(f.call("PyObject_Vectorcall", f.state(question), None, 0, None))
        with f.when(said.now.is_null):
            f.call("failed")
            f.ret(1)
        with f.when(f.call("PyObject_IsTrue", said.now) != 0):
            found = f.own(f.call("PyObject_Vectorcall", f.state("is_traced"), None, 0, None))
            with f.when(found.now.is_null):
                f.call("failed")
                f.ret(1)
            f.ret(f.call("PyObject_IsTrue", found.now))
    f.ret(0)


def _torch(m: Module) -> None:
    """`torch(x, key, places) -> i64`: the words that tell of torch's tensor on the host, which torch itself describes.

    What needs a gradient or is still to be negated is no plain memory, as in `consume_text`. Whether it needs one, and
    whether torch traces what computes with it, is not asked where memory alone counts. A parameter is told as the
    tensor that it is.
    """
    f = m.function("torch", "i64", "ptr", "ptr", "ptr")
    x, key, places = f.arguments
    own, at = f.variable("ptr", x), f.stack("i64", DLTENSOR // 8)

    def give_up(condition: CValue) -> None:
        with f.when(condition):
            f.ret(f.call("failed"))

    gradient, negated = f.own(), f.own()
    with f.when(f.load(places, IS_MEMORY, "i64") == 0):
        gradient.set(f.call("PyObject_GetAttr", x, f.state("requires_grad")))
        give_up(gradient.now.is_null)
        _refuse(f, gradient.now != f.state("false"), f.call("traced") != 0)
    negated.set(f.call("PyObject_VectorcallMethod", f.state("is_neg"), own.address, 1, None))
    give_up(negated.now.is_null)
    _refuse(f, negated.now != f.state("false"))
    give_up(f.call_pointer(f.state("torch_borrow"), "i32", x, at) != 0)
    ndim, data = f.load(at, NDIM, "i32"), f.load(at, DATA, "i64")
    _refuse(f, f.load(at, DEVICE, "i32") != 1, f.load(at, DEVICE_ID, "i32") != 0, ndim > RANK, data < LEAST_ADDRESS)
    rank = f.as_(ndim, "i64")
    f.store(_with(f, f.state("torch_type"), f.call("placed", places, x, data + f.load(at, BYTE_OFFSET, "i64"), x)), key)
    f.store(f.load(at, NDIM, "i64"), key, 8)  # and the dtype behind it
    f.ret(_steps(f, key, rank, f.load(at, SHAPE), f.load(at, STRIDES)))


def _text(m: Module) -> None:
    """`text(x, key) -> i64`: the words that tell of a `str`, by its characters: an equal one may lie elsewhere.

    Fewer than eight UTF-8 bytes are a word with their number in its last byte, where no address has bits, read at once:
    an aligned word is in one page. Others are the type with their number above the bits of an address, then the bytes
    with at least one zero byte behind them.
    """
    f = m.function("text", "i64", "ptr", "ptr")
    x, key = f.arguments
    _refuse(f, f.load(x, OBJECT_TYPE) != f.state("text_type"))  # one of the user's may be equal to others
    length = f.stack("i64")
    characters = f.call("PyUnicode_AsUTF8AndSize", x, length)
    with f.when(characters.is_null):  # half of a surrogate pair has no bytes
        f.call("PyErr_Clear")
        f.ret(0)
    size = f.load(length, 0, "i64")
    is_short = f.unsigned_below(size, 8) & ((f.as_(characters, "i64") & 7) == 0)
    with f.when(is_short):
        whole = f.load(characters, 0, "i64") & ((f.constant(1) << (size * 8)) - 1)
        f.store(whole | ((size | _SHORT) << 56), key)
        f.ret(1)
    _refuse(f, size >= 8 * (ROOM - 1))
    f.store(_with(f, f.load(x, OBJECT_TYPE), size), key)
    words = (size >> 3) + 1
    f.store(f.constant(0), key, words * 8)
    f.call("llvm.memcpy.p0.p0.i64", f.at(key, 8), characters, size, f.constant(0, "i1"))
    f.ret(words + 1)


def _spec(m: Module, facts: ClassSlots) -> None:
    """`spec(x, key) -> i64`: the words that tell of an order of sums, by what it says."""
    f = m.function("spec", "i64", "ptr", "ptr")
    x, key = f.arguments
    f.store(f.load(x, OBJECT_TYPE), key)
    for i, name in enumerate(("chunk", "segments"), 1):
        f.store(_integer(f, f.load(x, facts.spec[name])), key, 8 * i)
    order = f.load(x, facts.spec["order"])
    _refuse(f, order.is_null)
    count = f.call("text", order, f.at(key, 24))
    _refuse(f, count == 0, count > ROOM - 3)
    f.ret(count + 3)


def _described(m: Module) -> None:
    """`described(x, key, places) -> i64`: the words that tell of an argument; 0 where there are none."""
    f = m.function("described", "i64", "ptr", "ptr", "ptr")
    x, key, places = f.arguments
    type = f.load(x, OBJECT_TYPE)
    for name in ("array", "packed", "tensor", "torch"):
        with f.when(type == f.state(f"{name}_type")):
            f.ret(f.call(name, x, key, places))
    with f.when((type == f.state("parameter_type")) & (f.load(places, IS_MEMORY, "i64") != 0)):
        f.ret(f.call("torch", x, key, places))
    none, true, false = (x == f.state(name) for name in ("none", "true", "false"))
    with f.when(none | true | false):
        f.store(x, key)
        f.ret(1)
    for name in ("text", "spec"):
        with f.when(type == f.state(f"{name}_type")):
            f.ret(f.call(name, x, key))
    with f.when(type == f.state("tuple_type")):
        count = _numbers(f, x, f.at(key, 8))
        f.store(_with(f, type, count), key)
        f.ret(count + 1)
    with f.when(type == f.state("int_type")):
        number = _integer(f, x)
        f.store(number | SMALL, key)
        with f.when(f.unsigned_below(number, 1 << ADDRESS_BITS)):
            f.ret(1)
        f.store(type, key)
        f.store(number, key, 8)
        f.ret(2)
    f.store(type, key)
    with f.when(type == f.state("float_type")):
        f.store(f.call("PyFloat_AsDouble", x), key, 8)
        f.ret(2)
    f.ret(0)
