"""The text of `known`: an eager call like one before goes straight to its table.

`known(function, arguments, options)` writes a key of the call: the function, the Isa row that is forced, and of each
argument what decides the plan, the addresses left out. Under that key a dictionary of the state holds records, which
`native.calls` makes from what Python remembers. With one, the addresses are put into a copy of the table's words on
the stack, which is run. Without one the key itself is the answer, and empty bytes where the call has none: Python goes
on then. With a fourth argument torch's tensors are taken for their memory alone. A fifth is a tuple of functions: where
one of them says that it is so, the call has no key. Arguments are described in `argument_text`. Start at `_answer`.
"""

from __future__ import annotations

from collections.abc import Callable

from samebits.native.argument_text import (
    ADDRESSES,
    DLTENSOR,
    IS_MEMORY,
    MOST,
    MOST_RESULTS,
    OBJECTS,
    OWNERS,
    PLACES,
    RESULT,
    ROOM,
    ClassSlots,
    descriptions,
)
from samebits.native.capi import FASTCALL, OBJECT_TYPE, CValue, Function, Module, Variable
from samebits.native.dlpack_text import (
    BYTE_OFFSET,
    DATA,
    DEVICE,
    HEADER,
    NDIM,
    SHAPE,
    STRIDES,
    VERSIONED_AT,
    required,
)

__all__ = ["BLOCK", "FRAME", "FRAME_WORDS", "HEAD", "RESULT", "module"]

# Words of a table's copy, beyond which Python does all, and those of a key before the arguments.
FRAME_WORDS, _HEADER = 2048, 3
# What an address is of: an array by its number, a result by its number from `RESULT` on, or one of these.
BLOCK = RESULT + MOST_RESULTS
FRAME = BLOCK + 1
# Words of a record before the table's: bits no address may have, bytes of the block, where in it the status begins and
# its words, which are zero before a run and after one that Python need not do again, words and patches of the table,
# then the number of the array given as out (or -1), its first byte and the one after its last, how many others are
# compared with them, and how many arrays have bounds. Behind the table's words come patches (position, address,
# offset), others (number, span) and bounds (number, bytes of an integer, how many lie there, what each is below).
HEAD = (
    "misaligned", "block_bytes", "status", "status_words", "words", "patches", "target", "low", "high", "others",
    "bounds",
)  # fmt: skip
# The word of a table that holds the pool.
_POOL = 4


def module(facts: ClassSlots) -> Module:
    """All functions, and the method table `method_known`."""
    m = Module()
    descriptions(m, facts)
    _is_apart(m)
    _is_within(m)
    _filled(m)
    _block(m, facts)
    _torch_made(m)
    _made(m)
    _answer(m, facts)
    _known(m)
    m.method("method_known", "known", "known", FASTCALL, "The result of a call like one before, or its key.")
    return m


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


def _is_within(m: Module) -> None:
    """`is_within(bounds, count, addresses) -> i32`: whether each array of indices counts places that there are."""
    f = m.function("is_within", "i32", "ptr", "i64", "ptr")
    bounds, count, addresses = f.arguments
    with f.loop(count) as i:
        number, width, size, extent = (f.load(bounds, i * 32 + 8 * j, "i64") for j in range(4))
        indices = f.load(addresses, number * 8)
        for type in ("i32", "i64"):
            each = int(type[1:]) // 8
            with f.when(width == each), f.loop(size) as j:
                index = f.as_(f.load(indices, j * each, type), "i64", signed=True)
                with f.when(~f.unsigned_below(index, extent)):
                    f.ret(0)
    f.ret(1)


def _field(f: Function, head: CValue, name: str) -> CValue:
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


def _block(m: Module, facts: ClassSlots) -> None:
    """`block(size_bytes) -> PageBlock`: the one used last, if it is free and big enough, else one of Python's."""
    f = m.function("block", "ptr", "i64")
    (size,) = f.arguments
    last = f.state("last_block")
    with f.when(last.is_set), f.when(f.call("PyLong_AsLongLong", f.load(last, facts.block["size_bytes"])) >= size):
        f.store(f.constant(None, "ptr"), f.state_address("last_block"))
        f.ret(last)
    number = f.own(required(f, f.call("PyLong_FromLongLong", size)))
    f.ret(f.call("PyObject_Vectorcall", f.state("take"), number.address, 1, None))


def _known(m: Module) -> None:
    """`known(function, arguments, options[, _[, watchers]])`: the answer, after which owners of memory are let go."""
    f = m.function("known", "ptr", "ptr", "ptr", "i64", "ptr")
    _, args, count, _ = f.arguments
    places = f.stack("i64", PLACES // 8)
    f.store(f.constant(0), places)
    f.store(f.as_(count > 3, "i64"), places, IS_MEMORY)
    with f.when(count > 4):
        watchers = f.load(args, 32)
        with f.loop(f.call("PyTuple_Size", watchers)) as i:
            watcher = f.call("PyTuple_GetItem", watchers, i)
            said = required(f, f.call("PyObject_Vectorcall", watcher, None, 0, None))
            is_so = f.call("PyObject_IsTrue", said)
            f.call("Py_DecRef", said)
            with f.when(is_so != 0):
                f.ret(f.incref(f.state("no_key")))
    answer = f.call("answer", args, places)
    with f.loop(f.load(places, 0, "i64")) as i:
        f.call("Py_DecRef", f.load(places, i * 8 + OWNERS))
    f.ret(answer)


def _answer(m: Module, facts: ClassSlots) -> None:
    """`answer(args, places)`: the result, or the key of a call without a record."""
    f = m.function("answer", "ptr", "ptr", "ptr")
    args, places = f.arguments
    function, arguments, options = (f.load(args, 8 * i) for i in range(3))
    positional = f.call("PyTuple_Size", arguments)

    def give_up(condition: CValue) -> None:
        with f.when(condition):
            with f.when(f.call("PyErr_Occurred").is_set):
                f.ret(None)
            f.ret(f.incref(f.state("no_key")))

    give_up(positional + f.call("PyDict_Size", options) > MOST)
    # A result is described behind the last argument.
    key = f.stack("i64", _HEADER + ROOM * (2 * MOST + 1))
    forced = f.own()
    with f.when(f.call("PyContextVar_Get", f.state("forced"), f.state("none"), forced.address) != 0):
        f.ret(None)
    f.store(function, key)
    f.store(forced.now, key, 8)
    f.store(positional, key, 16)
    end = f.variable("ptr", f.at(key, 8 * _HEADER))

    def describe(x: CValue, *, is_name: bool = False) -> None:
        count = f.call("text", x, end.now) if is_name else f.call("described", x, end.now, places)
        give_up(count == 0)
        end.set(f.at(end.now, count * 8))

    with f.loop(positional) as i:
        describe(f.call("PyTuple_GetItem", arguments, i))
    position, name, value, held = f.stack("i64"), f.stack("ptr"), f.stack("ptr"), f.own()
    f.store(f.constant(0), position)
    with f.loop(f.call("PyDict_Size", options)):
        give_up(f.call("PyDict_Next", options, position, name, value) == 0)
        # The inputs of a session are a dictionary of the user's: while torch describes a value, another thread may take
        # it out.
        held.set(f.incref(f.load(value)))
        describe(f.load(name), is_name=True)
        describe(held.now)
        f.call("Py_DecRef", f.take(held))
    size = f.as_(end.now, "i64") - f.as_(key, "i64")
    made_key = f.own(required(f, f.call("PyBytes_FromStringAndSize", key, size)))
    found = f.call("PyDict_GetItemWithError", f.state("records"), made_key.now)
    with f.when(found.is_null):
        with f.when(f.call("PyErr_Occurred").is_set):
            f.ret(None)
        f.ret(f.take(made_key))
    _run(f, facts, f.own(f.incref(found)).now, end.now, places, give_up)


def _torch_made(m: Module) -> None:
    """`torch_made(like, data) -> object`: a tensor by torch's own allocator, and where its elements begin.

    `like` is the DLTensor that it shall be like, with its extents and strides behind it. NULL where torch makes none,
    or another (a mode of the user's may have it make one without memory, or with less), and where memory is to be from
    a resource of the user's.
    """
    quiet = m.function("quiet", "void", "ptr", "ptr", "ptr")  # a reason is Python's to give
    quiet.ret()
    f = m.function("torch_made", "ptr", "ptr", "ptr")
    like, data = f.arguments
    resource = f.own()
    with f.when(f.call("PyContextVar_Get", f.state("resource"), None, resource.address) != 0):
        f.call("failed")
    with f.when(resource.now != f.state("host")):
        f.ret(None)
    prototype, managed, made = f.stack("i64", DLTENSOR // 8), f.variable("ptr", None), f.variable("ptr", None)
    f.call("llvm.memcpy.p0.p0.i64", prototype, like, DLTENSOR, f.constant(0, "i1"))
    f.store(f.at(like, DLTENSOR), prototype, SHAPE)
    nothing, reason = f.constant(None, "ptr"), f.function_address("quiet")
    failed = f.call_pointer(f.state("torch_allocate"), "i32", prototype, managed.address, nothing, reason)
    with f.when((failed != 0) | managed.now.is_null):
        f.call("failed")
        f.ret(None)
    at = f.at(managed.now, HEADER)
    wrong = f.variable("i1", f.load(managed.now, 0, "i32") != 1)  # behind another version's header may be anything
    with f.when(~wrong.now):
        wrong.set(f.load(at, DATA).is_null)
        for place in (DEVICE, NDIM):  # each a word with what follows it, the index of the device and the dtype
            wrong.set(wrong.now | (f.load(at, place, "i64") != f.load(like, place, "i64")))
    with f.when(~wrong.now):
        rank = f.as_(f.load(at, NDIM, "i32"), "i64")
        with f.loop(rank) as i:
            extent, stride = (f.load(f.load(at, place), i * 8, "i64") for place in (SHAPE, STRIDES))
            due, step = (f.load(f.at(like, DLTENSOR), place * 8, "i64") for place in (i, i + rank))
            wrong.set(wrong.now | (extent != due) | ((stride != step) & (due != 1)))
    with f.when(wrong.now):
        f.call_pointer(f.load(managed.now, VERSIONED_AT[1]), "void", managed.now)
        f.ret(None)
    f.store(f.load(at, DATA, "i64") + f.load(at, BYTE_OFFSET, "i64"), data)
    failed = f.call_pointer(f.state("torch_object"), "i32", managed.now, made.address)
    with f.when((failed != 0) | made.now.is_null):
        f.call("failed")
        f.ret(None)
    f.ret(made.now)


def _made(m: Module) -> None:
    """`made(maker, key, places, number) -> object`: a new result by (function, of, these), and where it lies.

    Without a function torch makes it, like the first of the two. NULL if there is none. What a call says of it goes to
    `key`, and is nothing that is looked at.
    """
    f = m.function("made", "ptr", "ptr", "ptr", "ptr", "i64")
    maker, key, places, number = f.arguments
    function, first, second = (f.call("PyTuple_GetItem", maker, i) for i in range(3))
    at = f.at(places, number * 8 + (ADDRESSES + 8 * RESULT))
    with f.when(function == f.state("none")):
        f.ret(f.call("torch_made", f.call("PyBytes_AsString", first), at))
    given = f.stack("ptr", 2)
    f.store(first, given)
    f.store(second, given, 8)
    count, result = f.load(places, 0, "i64"), f.own()
    result.set(f.call("PyObject_Vectorcall", function, given, 2, None))
    with f.when(f.call("described", required(f, result.now), key, places) == 0):
        f.ret(None)
    f.store(f.load(places, count * 8 + ADDRESSES, "i64"), at)
    f.ret(f.take(result))


def _results(f: Function, makers: CValue, end: CValue, places: CValue, give_up: Callable[[CValue], None]) -> Variable:
    """A new result, or a tuple of several."""
    result, several = f.own(), f.call("PyTuple_Size", makers)
    with f.when(several > 1):
        result.set(required(f, f.call("PyTuple_New", several)))
    with f.loop(several) as i:
        one = f.call("made", f.call("PyTuple_GetItem", makers, i), end, places, i)
        with f.when(one.is_null):  # Python says why there is no room
            f.call("failed")
        give_up(one.is_null)
        with f.when(several > 1):
            f.call("PyTuple_SetItem", result.now, i, one)
        with f.when(several == 1):
            result.set(one)
    return result


def _run(
    f: Function, facts: ClassSlots, record: CValue, end: CValue, places: CValue, give_up: Callable[[CValue], None]
) -> None:
    """Go to the table of a record: (words, what makes each new result, what gives the pool, threads, ...)."""
    item = [f.call("PyTuple_GetItem", record, i) for i in range(4)]
    head, count, addresses = f.call("PyBytes_AsString", item[0]), f.load(places, 0, "i64"), f.at(places, ADDRESSES)
    every = f.variable("i64", 0)
    with f.loop(count) as i:
        every.set(every.now | f.load(addresses, i * 8, "i64"))
    give_up((every.now & _field(f, head, "misaligned")) != 0)
    others = f.at(f.at(head, 8 * len(HEAD)), (_field(f, head, "words") + _field(f, head, "patches") * 3) * 8)
    bounds = f.at(others, _field(f, head, "others") * 24)
    give_up(f.call("is_within", bounds, _field(f, head, "bounds"), addresses) == 0)
    target = _field(f, head, "target")
    result = _results(f, item[1], end, places, give_up)
    with f.when(target >= 0):
        give_up(f.call("is_apart", head, others, addresses) == 0)
        result.set(f.incref(f.load(places, target * 8 + OBJECTS)))
    # No more of the stack than this table has words: a thread may have few pages of it.
    frame = f.value(f"alloca i64, i64 {_field(f, head, 'words').text}, align 8", "ptr")
    f.store(frame, addresses, 8 * FRAME)
    pool = f.variable("i64", 0)
    with f.when(item[2] != f.state("none")):
        threads = f.variable("ptr", item[3])
        workers = f.own(f.call("PyObject_Vectorcall", item[2], threads.address, 1, None))
        pool.set(f.call("PyLong_AsUnsignedLongLong", required(f, workers.now)))
    size, block = _field(f, head, "block_bytes"), f.own()
    with f.when(size != 0):
        block.set(f.call("block", size))
        address = f.call("PyLong_AsLongLong", f.load(required(f, block.now), facts.block["address"]))
        f.store(address, addresses, 8 * BLOCK)
        with f.loop(_field(f, head, "status_words")) as i:
            f.store(f.constant(0), _status(f, head, addresses), i * 8)
    f.call("filled", frame, head, addresses)
    f.store(pool.now, frame, 8 * _POOL)
    lock = f.call("PyEval_SaveThread")
    f.call_pointer(f.state("run"), "void", frame)
    f.call("PyEval_RestoreThread", lock)
    refused = f.variable("i64", 0)
    with f.when(size != 0):
        with f.loop(_field(f, head, "status_words")) as i:
            refused.set(refused.now | f.load(_status(f, head, addresses), i * 8, "i64"))
        last = f.own(f.state("last_block"))
        f.store(f.take(block), f.state_address("last_block"))
        with f.when(last.now.is_set):
            given = f.own(f.call("PyObject_Vectorcall", f.state("give"), last.address, 1, None))
            required(f, given.now)
    give_up(refused.now != 0)  # Python says what is wrong with an index
    with f.when(target >= 0):
        _note(f, result.now)
    f.ret(f.take(result))


def _status(f: Function, head: CValue, addresses: CValue) -> CValue:
    """Where in the block kernels say what they refuse."""
    return f.at(f.load(addresses, 8 * BLOCK), _field(f, head, "status"))


def _note(f: Function, out: CValue) -> None:
    """Raise the version counter of a torch tensor that is written; other arrays have none."""
    type = f.load(out, OBJECT_TYPE)
    with f.when((type == f.state("torch_type")) | (type == f.state("parameter_type"))):
        written = f.own(required(f, f.call("PyTuple_New", 1)))
        f.call("PyTuple_SetItem", written.now, 0, f.incref(out))
        noted = f.own(f.call("PyObject_Vectorcall", f.state("increment_version"), written.address, 1, None))
        required(f, noted.now)
