"""Emitted code in place of the hot exchange methods, where this interpreter allows it.

`compile_exchange` compiles `exchange_text` and sets its functions on `Tensor` and `Layout`. The functions written in
Python stay what they are: the reference, the fallback, and what the emitted ones call for every case that is not
common. Nothing but speed changes. What was set is never taken away: its code may be called by whoever holds a capsule,
until the process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import struct
import sys
import threading
from array import array
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from samebits import dtypes, errors, forks
from samebits.codegen import isa as isas
from samebits.frozen import own_method
from samebits.layout import Layout
from samebits.memory import CPU, Buffer
from samebits.native import compile, exchange_text, objects
from samebits.native.capi import Module
from samebits.native.consume_text import ARRAY_DTYPES, BYTE_STRIDES, SIZES
from samebits.native.dlpack_text import InterpreterFacts
from samebits.native.produce_text import DTYPES
from samebits.tensor import Tensor

__all__ = ["REFERENCE", "api_of", "compile_exchange", "is_installed", "python_function", "steps"]

_KEPT_LAYOUTS, _KEPT_PRODUCERS = 4096, 64
_lock = threading.RLock()
_installed: bool | None = None
# The methods that are replaced, as they are written in Python, by qualified name.
_VIEWS = ("permute", "reshape", "broadcast_to", "__getitem__")
_METHODS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (Tensor, ("from_dlpack", "from_any", "__dlpack__", "__dlpack_device__", "torch", *_VIEWS)),
    (Layout, ("__new__", "dense", "from_strides", "from_byte_strides", *_VIEWS, "__eq__")),
)


def _home(cls: type, name: str) -> type:
    """The class that a method is written in."""
    return next(base for base in cls.__mro__ if name in vars(base))


REFERENCE: dict[str, Any] = {
    f"{cls.__name__}.{name}": own_method(_home(cls, name), name) for cls, names in _METHODS for name in names
}
_SYMBOLS = ("state", "exchange_api", *(f"method_{name}" for name in REFERENCE))
_API_NAME = b"dlpack_exchange_api"
_NOT_BORROWED = (
    "__dlpack_c_exchange_api__", "tensor", "layout", "elsewhere or not in whole bytes", "on the host in whole bytes",
    "ask for a managed tensor",
)  # fmt: skip
# Everything that emitted code has the address of.
_held: list[object] = []

Entry = tuple[Layout, int, int]
Row = tuple[object, ...]
_layouts: dict[bytes, Entry] = {}
_producers: dict[type, Row | None] = {}


def is_installed() -> bool:
    """Whether `compile_exchange` did its work."""
    return _installed is True


def compile_exchange() -> bool:
    """Set emitted code in place of the hot exchange methods, now; whether it stands there.

    Without this it happens by itself: when a consumer looks for `Tensor.__dlpack_c_exchange_api__`, and in steps that
    no call notices: soon where LLVM is loaded anyway, else after 10,000 calls. Results are the same before and after.

    It does not where objects are not as expected (another Python than CPython, a build without the global lock, another
    processor), where LLVM cannot link the code, or where somebody has put a method of their own in the place of one.
    """
    global _installed
    if _installed is None:
        with _lock:
            if _installed is None:
                _installed = _is_possible() and _install_now()
    return _installed


def steps() -> Iterator[bool]:
    """What `compile_exchange` does, in steps of `hot.offer`; what has to be compiled, another process compiles.

    Raises:  NativeError or ValueError if it cannot be done so.
    """
    global _installed
    if _installed is None and _is_possible():
        unit, words = yield from _written()
        linked = yield from compile.arrive(unit, _SYMBOLS)
        yield True
        with _lock:
            if _installed is None and _are_ours():
                _set(linked, words)
                _installed = True


def _is_possible() -> bool:
    return objects.is_known() and objects.array_is_known() and _are_ours()


def _are_ours() -> bool:
    """Whether every method to replace is the one that its class, or a base, was written with: no wrapper, no mock."""
    for cls, names in _METHODS:
        for name in names:
            home = _home(cls, name)
            method, known = vars(home)[name], vars(sys.modules[home.__module__])
            function = getattr(method, "__func__", method)
            if method is not REFERENCE[f"{cls.__name__}.{name}"] or getattr(function, "__globals__", None) is not known:
                return False
    return True


def _install_now() -> bool:
    writing = _written()
    try:
        while True:
            next(writing)
    except StopIteration as end:
        unit, words = end.value
    except ValueError:
        return False
    try:
        _set(compile.addresses(unit, _SYMBOLS), words)
    except (errors.NativeError, ValueError):
        return False
    return True


def _written() -> Generator[bool, None, tuple[compile.Unit, dict[str, int]]]:
    """The code to be compiled, written in steps, and the words of its state.

    Raises:  ValueError if classes are not as expected.
    """
    facts = InterpreterFacts(
        tensor=objects.slot_offsets(Tensor),
        buffer=objects.slot_offsets(Buffer),
        layout=objects.slot_offsets(Layout),
        finalizing=objects.finalizing_symbol(),
    )
    docs = {name: _doc(name, method) for name, method in REFERENCE.items()}
    module = Module()
    yield True
    yield from exchange_text.parts(module, facts, docs)
    host = next(row for row in isas.ROWS if row.compiled and row.available)
    return compile.module_unit(module.text(), host.target()), module.words


def _set(linked: tuple[int, ...], words: dict[str, int]) -> None:
    """Put the linked code in place of the methods.

    Raises:  ValueError if its state is not as expected.
    """
    state, api, *tables = linked
    _fill(state, words)
    new_function = python_function(
        "PyCFunction_NewEx", ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
    )
    new_method = python_function("PyDescr_NewMethod", ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
    new_capsule = python_function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    places = [(cls, name) for cls, names in _METHODS for name in names]
    made: list[tuple[type, str, object]] = [
        # A built-in function is no descriptor: it is the same for the class and an instance, and nothing is bound.
        (cls, name, new_method(cls, table) if inspect.isfunction(method) else new_function(table, cls, None))
        for (cls, name), table, method in zip(places, tables, REFERENCE.values(), strict=True)
    ]
    made.append((Tensor, "__dlpack_c_exchange_api__", new_capsule(api, _API_NAME, None)))
    made.append((Layout, "__signature__", inspect.signature(Layout)))  # which a built-in __new__ hides
    # All is made before anything is set, so that what fails or is interrupted leaves the classes as they were.
    for cls, name, value in made:
        setattr(cls, name, value)


def python_function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the C API."""
    function = ctypes.pythonapi[name]  # an object of its own, whose types nobody else sets
    function.restype, function.argtypes = result, arguments
    return function


def _doc(name: str, method: Any) -> str:
    """The docstring, behind the signature in the form that `inspect` reads."""
    function = getattr(method, "__func__", method)
    parameters = list(inspect.signature(function).parameters.values())
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    signature = str(inspect.Signature(bare)).replace("(self", "($self").replace("(cls", "($type")
    return f"{name.partition('.')[2]}{signature}\n--\n\n{inspect.getdoc(function)}"


def _fill(state: int, words: dict[str, int]) -> None:
    """Give the emitted code the objects that it needs, for ever."""
    template = Buffer(0, 0, None, CPU)
    named: dict[str, object] = {
        "none": None, "true": True, "false": False, "tuple_type": tuple, "int_type": int,
        "tensor_type": Tensor, "buffer_type": Buffer, "layout_type": Layout, "array_type": np.ndarray,
        "buffer": template, "cpu": CPU, "cpu_pair": CPU.dlpack, "layouts": _layouts, "producers": _producers,
        "slow_export": _export, "slow_import": _import, "to_torch": _to_torch, "type_error": TypeError,
        "exchange_error": errors.ExchangeError, "not_borrowed": _NOT_BORROWED,
        "make_layout": _make_layout, "add_producer": _add_producer, "slice_type": slice,
        "ellipsis": ..., "packed": "packed", "padded": "padded",
    }  # fmt: skip
    for name, method in REFERENCE.items():
        # A method gets its instance as first argument; the others are called as they are found on the class.
        cls = Tensor if name.startswith("Tensor.") else Layout
        named[f"slow_{name}"] = method if inspect.isfunction(method) else method.__get__(None, cls)
    several = {"array_dtypes", "dtypes", "rows"}
    if words.keys() != named.keys() | several:
        raise ValueError(f"the state needs {sorted(words)}")
    places = (ctypes.c_size_t * (max(words.values()) + 1)).from_address(state)
    for name, value in named.items():
        places[words[name]] = id(value)
    _held.extend([*named.values(), _API_NAME])
    _fill_dtypes(state, words)
    # At the interpreter's end the list dies before the last capsule may.
    python_function("Py_IncRef", None, ctypes.py_object)(_held)


def _fill_dtypes(state: int, words: dict[str, int]) -> None:
    """The tables of dtypes: NumPy's and those of ml_dtypes, ours with their DLPack codes, and ours by these codes."""
    whole = [row for row in dtypes.ROWS if row.width_bits in (8, 16, 32, 64)]
    arrays = [(row.numpy, row) for row in whole if row.numpy is not None]
    _held.extend([whole, arrays])
    native, extended = (
        [
            word
            for dtype, row in arrays
            if (dtype.isbuiltin == 1) is own
            for word in (id(dtype), id(row), row.width_bits)
        ]
        for own in (True, False)
    )
    codes = [word for row in whole for word in (id(row), row.dlpack[0] | row.dlpack[1] << 8 | 1 << 16)]
    half = 3 * ARRAY_DTYPES
    for name, first, content, room in (
        ("array_dtypes", 0, native, half), ("array_dtypes", half, extended, half), ("dtypes", 0, codes, 2 * DTYPES)
    ):  # fmt: skip
        if len(content) > room:
            raise ValueError(f"{name} has {len(content)} words, there is room for {room}")
        ctypes.memmove(state + 8 * (words[name] + first), array("Q", content).tobytes(), 8 * len(content))
    for row in whole:
        code, bits = row.dlpack
        ctypes.c_size_t.from_address(state + 8 * (words["rows"] + code * SIZES + (bits >> 3))).value = id(row)


def _make_layout(key: bytes) -> Entry | None:
    """The layout of a key of `exchange_text`, remembered; None where the rules of the slow path decide."""
    tag, *rest = struct.unpack(f"{len(key) // 8}q", key)
    bits = tag & (BYTE_STRIDES - 1)
    shape, strides = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    try:
        if not tag & BYTE_STRIDES:
            found = Layout.from_strides(shape, strides, width_bits=bits).rebased()
        elif any(stride % (bits >> 3) for stride in strides):
            return None
        else:
            found = Layout.from_byte_strides(shape, strides, width_bits=bits).rebased()
    except errors.SamebitsError:
        return None
    if not found[2]:
        return None
    if len(_layouts) >= _KEPT_LAYOUTS:
        _layouts.clear()
    _layouts[key] = found
    return found


class _Once:
    """A producer of one capsule."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU.dlpack


def _export(tensor: Tensor) -> object:
    """A versioned capsule, by the method written in Python."""
    return REFERENCE["Tensor.__dlpack__"](tensor, max_version=(1, 3))


def _import(capsule: object) -> Tensor:
    """The tensor of a capsule, by the method written in Python."""
    made: Tensor = REFERENCE["Tensor.from_dlpack"].__get__(None, Tensor)(_Once(capsule))
    return made


def _to_torch(capsule: object) -> object:
    """torch's tensor of a capsule, or None where nobody has imported torch yet."""
    module = sys.modules.get("torch.utils.dlpack")
    return None if module is None else module.from_dlpack(capsule)


def _add_producer(type: type) -> Row | None:
    """How an object of that type is asked through C, remembered; None where it cannot be."""
    api = api_of(type)
    row: Row | None = None
    if api is not None:
        row = (api[0], None, None, None, None, None)
        if (type.__module__, type.__name__) == ("torch", "Tensor"):
            torch = sys.modules["torch"]
            row = (api[0], "requires_grad", "is_neg", "dtype", torch.int8, torch.uint8)
    if len(_producers) >= _KEPT_PRODUCERS:
        _producers.clear()
    _producers[type] = row
    return row


def api_of(type: type) -> tuple[object, int] | None:
    """The capsule and the address of a class's own exchange API; None where it has none of major version 1."""
    # What a class inherits says nothing of a `__dlpack__` that it overrides.
    name = "__dlpack_c_exchange_api__"
    if name in vars(type):
        # What cannot be had is not there: `__dlpack__` is the other way.
        with contextlib.suppress(Exception):
            capsule = getattr(type, name)
            valid = python_function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
            pointer = python_function("PyCapsule_GetPointer", ctypes.c_size_t, ctypes.py_object, ctypes.c_char_p)
            if valid(capsule, _API_NAME):
                address = pointer(capsule, _API_NAME)
                if objects.word(address, ctypes.c_uint32) == 1:
                    return capsule, address
    return None


forks.around(_lock.acquire, _lock.release, _lock.release)
