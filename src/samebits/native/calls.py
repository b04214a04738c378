"""Emitted code for eager calls like one before, where this interpreter allows it: `call_text` told what it needs.

`known` gives the function that looks a call up, `record` keeps one for it. Results are those of Python, which does
every call that is not kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import Any

import numpy as np

from samebits import errors, kinds
from samebits.codegen import isa as isas
from samebits.dtypes import DType
from samebits.layout import Layout
from samebits.memory import CPU, Buffer, allocation
from samebits.memory.pages import PageBlock
from samebits.native import call_text, compile, exchange, objects, pool, scratch
from samebits.native.argument_text import MOST_RESULTS, ClassSlots
from samebits.native.call_text import BLOCK, FRAME, FRAME_WORDS, HEAD
from samebits.native.table import FIXED, HEADER, RESULT, STEP, WORKSPACE, Bound, CallPlace, Table
from samebits.tensor import Tensor

__all__ = [
    "MakerOf", "Span", "forget", "head_of", "kept", "known", "like", "pool_address", "put_place", "put_record",
    "record", "share", "steps",
]  # fmt: skip

# An array by its number, and the bytes from its address that it spans: the first, and the one after the last.
Span = tuple[int, int, int]
# What makes a result of two arguments, and they; None: torch does, after `like` as the first.
MakerOf = tuple[Callable[..., object] | None, object, object]
_KEPT = 4096
_records: dict[bytes, tuple[Any, ...]] = {}
_SYMBOLS = ("state", "method_known")
# By the classes that `known` takes, the addresses that steps came by.
_linked: dict[tuple[type, type], tuple[int, ...]] = {}
# DLPackExchangeAPI: managed_tensor_allocator, managed_tensor_to_py_object_no_sync, dltensor_from_py_object_no_sync.
_OF_TORCH = ("torch_type", "parameter_type", "increment_version", "function_modes", "is_tracing")
_API = {"torch_allocate": 16, "torch_object": 32, "torch_borrow": 40}


def known(packed: type, spec: type) -> Any:
    """`known(function, arguments, options)` of `call_text`; None where there can be none.

    It knows torch's tensors where torch was imported before this was called last.

    Args:    packed, spec: the classes of packed matrices and of orders of sums.
    """
    made = _compiled(packed, spec)
    if made is None:
        return None
    function, words = made
    torch = getattr(sys.modules.get("torch"), "Tensor", None)
    api = None if torch is None else exchange.api_of(torch)
    found = {name: objects.word(api[1] + at) if api else 0 for name, at in _API.items()}
    if all(found.values()):
        parameter = getattr(sys.modules.get("torch.nn.parameter"), "Parameter", torch)
        module: Any = sys.modules["torch"]
        objects_of_it = {
            "torch_type": torch, "parameter_type": parameter, "increment_version": _increment_version(module),
            "function_modes": module._C._len_torch_function_stack, "is_tracing": module._C._is_tracing,
        }  # fmt: skip
        function.__self__["torch"] = api, objects_of_it
        for name, value in (found | {name: id(x) for name, x in objects_of_it.items()}).items():
            words[name].value = value
    return function


def _increment_version(torch: Any) -> Any:
    """The function that counts the tensors of a tuple as written.

    It is the private one that torch's public `increment_version` calls, where that is there and does so: the public one
    is Python, which takes half as long as a small product.
    """
    with contextlib.suppress(Exception):
        tensor = torch.empty(0)
        torch._C._increment_version((tensor,))
        if tensor._version == 1:
            return torch._C._increment_version
    return torch.autograd.graph.increment_version


def steps(packed: type, spec: type) -> Iterator[bool]:
    """Steps of `hot.offer` after which `known` takes no time; what has to be compiled, another process compiles.

    Raises:  NativeError or ValueError if it cannot be done so.
    """
    if objects.is_known() and objects.array_is_known():
        unit, _ = _written(packed, spec)
        yield True
        _linked[packed, spec] = yield from compile.arrive(unit, _SYMBOLS)


@functools.cache
def _written(packed: type, spec: type) -> tuple[compile.Unit, dict[str, int]]:
    """The code to be compiled, and the words of its state."""
    slots = (objects.slot_offsets(cls) for cls in (Tensor, Buffer, Layout, packed, spec, PageBlock))
    module = call_text.module(ClassSlots(*slots))
    host = next(row for row in isas.ROWS if row.compiled and row.available)
    return compile.module_unit(module.text(), host.target()), module.words


@functools.cache
def _compiled(packed: type, spec: type) -> tuple[Any, dict[str, ctypes.c_size_t]] | None:
    """The function, and the words of its state."""
    if not (objects.is_known() and objects.array_is_known()):
        return None
    try:
        unit, places = _written(packed, spec)
        state, method = _linked.pop((packed, spec), ()) or compile.addresses(unit, _SYMBOLS)
    except (errors.NativeError, ValueError):
        return None
    named: dict[str, object] = {
        "none": None, "true": True, "false": False, "int_type": int, "float_type": float, "text_type": str,
        "tuple_type": tuple, "array_type": np.ndarray, "tensor_type": Tensor, "buffer_type": Buffer,
        "layout_type": Layout, "packed_type": packed, "spec_type": spec, "cpu": CPU, "packed": "packed",
        "padded": "padded", "forced": isas.FORCED, "no_key": b"", "records": _records, "take": scratch.take,
        "give": scratch.give, "is_traced": kinds.is_traced, "requires_grad": "requires_grad", "is_neg": "is_neg",
        "exception": Exception,
        "resource": allocation.CURRENT, "host": allocation.HOST,
    }  # fmt: skip
    values = {name: id(value) for name, value in named.items()} | {"run": pool.run_address()}
    if places.keys() != values.keys() | {"last_block", *_OF_TORCH, *_API}:
        raise ValueError(f"the state needs {sorted(places)}")
    words = {name: ctypes.c_size_t.from_address(state + 8 * at) for name, at in places.items()}
    for name, value in values.items():
        words[name].value = value
    make = exchange.python_function(
        "PyCFunction_NewEx", ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
    )
    function = make(method, named, None)
    # It holds what its code has the address of, and stays: it may be called when the interpreter ends and modules died.
    exchange.python_function("Py_IncRef", None, ctypes.py_object)(function)
    return function, words


def record(
    key: bytes, table: Table, places: Sequence[CallPlace], workspace_bytes: int, misaligned: int,
    made: Sequence[MakerOf], target: tuple[Span, Sequence[Span]] | None, keep: object, bounds: Sequence[Bound] = (),
    status_bytes: int = 0,
) -> None:  # fmt: skip
    """Keep what a call of this key runs.

    Args:    table: compiled.   places: one for each of its slots.   workspace_bytes: how large `WORKSPACE` is.
             misaligned: bits that no address may have.
             made: what makes each new result, of which there are none where `out` is given.
             target: the array given as out, and those that must lie apart from it.
             keep: what the key tells by its address alone, and whoever has the memory at fixed addresses.
             bounds: of arrays whose elements decide whether the call is one like this.
             status_bytes: of the workspace, from its start, where kernels say what they refuse.
    """
    words, patches = table.template[:], list[tuple[int, int, int]]()
    if len(words) > FRAME_WORDS or len(made) > MOST_RESULTS:
        return
    for step, start in enumerate(table.starts):
        patches.append((HEADER + STEP * step + 1, FRAME, 8 * start))
    shared_bytes = table.scratch_bytes * table.threads
    for slot, place in enumerate(places):
        for at, offset in table.moves(slot):
            put_place(words, patches, at, place, offset, shared_bytes)
    found = [
        *head_of(words, patches, shared_bytes, workspace_bytes, misaligned, status_bytes, target, len(bounds)),
        *words,
    ]
    for some in (*patches, *(target or ((), ()))[1], *bounds):
        found.extend(some)
    workers = pool_address if table.shares else None
    put_record(key, (array("q", found).tobytes(), tuple(made), workers, table.threads, keep))


def put_place(
    words: MutableSequence[int], patches: list[tuple[int, int, int]], at: int, place: CallPlace, offset: int,
    shared_bytes: int,
) -> None:  # fmt: skip
    """Have a word of a table be the address so many bytes behind a place; that of a fixed one is known.

    Args:    shared_bytes: what the threads have of the block before the workspace.
    """
    number, begin = place
    if number == FIXED:
        words[at] = begin + offset
    elif number == WORKSPACE:
        patches.append((at, BLOCK, shared_bytes + begin + offset))
    else:
        source = call_text.RESULT + RESULT - number if number <= RESULT else number
        patches.append((at, source, begin + offset))


def head_of(
    words: Sequence[int], patches: list[tuple[int, int, int]], shared_bytes: int, workspace_bytes: int,
    misaligned: int, status_bytes: int = 0, target: tuple[Span, Sequence[Span]] | None = None, bounds: int = 0,
) -> list[int]:  # fmt: skip
    """The words of a record before those of its table; the patches get one for the block, and their order."""
    patches.append((2, BLOCK, 0))
    patches.sort(key=operator.itemgetter(0))
    own, others = target or ((-1, 0, 0), ())
    found = {
        "misaligned": misaligned, "block_bytes": shared_bytes + workspace_bytes, "status": shared_bytes,
        "status_words": status_bytes // 8, "words": len(words),
        "patches": len(patches), "target": own[0], "low": own[1], "high": own[2], "others": len(others),
        "bounds": bounds,
    }  # fmt: skip
    return [found[name] for name in HEAD]


def put_record(key: bytes, found: tuple[Any, ...]) -> None:
    """Keep the words of a call, what makes its results, what gives the pool, threads, and what the key tells of."""
    if len(_records) >= _KEPT:
        _records.clear()
    _records[key] = found


def kept(key: bytes) -> tuple[bytes, object] | None:
    """The words of the record of a key, and who keeps alive what these and it tell by addresses alone."""
    found = _records.get(key)
    return None if found is None else (found[0], found[-1])


def share(key: bytes, known: bytes, numbers: Sequence[int], keep: object) -> None:
    """Let calls of one key run what calls of another, whose result is new, do on arrays of theirs.

    Args:    numbers: of each array of a call of the other, that in a call of the first.
             keep: what the first key tells by its address alone.
    """
    found = _records.get(known)
    if found is None:
        return
    words = array("q", found[0])
    head = dict(zip(HEAD, words, strict=False))
    at = len(HEAD) + head["words"]
    bounds = at + 3 * head["patches"]
    for place in (*range(at + 1, bounds, 3), *range(bounds, len(words), 4)):
        if words[place] < len(numbers):
            words[place] = numbers[words[place]]
    put_record(key, (words.tobytes(), *found[1:-1], (found[-1], keep)))


def forget(keys: Iterable[bytes]) -> None:
    """Let go what calls of these keys run."""
    for key in keys:
        _records.pop(key, None)


def like(layout: Layout, dtype: DType) -> bytes:
    """A dense DLTensor on the host with its extents and strides behind it, after which torch makes a result."""
    (code, bits), shape = dtype.dlpack, layout.shape
    tensor = struct.pack("<QiiiBBHQQQ", 0, *CPU.dlpack, len(shape), code, bits, 1, 0, 0, 0)
    return tensor + struct.pack(f"<{2 * len(shape)}q", *shape, *layout.strides)


def pool_address(threads: int) -> int:
    return pool.pool(threads).address
