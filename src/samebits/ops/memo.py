"""Calls like one before: `remembered` takes them straight to their table, past validation and planning.

Two ways give the same results. The one written in Python is the reference and the fallback. Emitted code
(`native.calls`) takes what it knows in a tenth of the time, once so many calls came that it pays to have it compiled.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from samebits import hot
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.dtypes import int32, int64
from samebits.kernels.gemm import PackedMatrix
from samebits.kernels.gemm.contraction import Spec
from samebits.kinds import ArrayKind, is_traced, note_written
from samebits.memory import CPU, address_of
from samebits.native.table import FIXED, RESULT, WORKSPACE, Bound, CallPlace, Table
from samebits.ops.makers import Maker, emitted, maker_of
from samebits.ops.recipe import CallOperand, Prepared, alignment, places_of
from samebits.ops.recording import asked
from samebits.tensor import Tensor


class Signature(NamedTuple):
    """A call that may be remembered: its key, its arrays in the order in which they came, and itself."""

    key: tuple[Any, ...]
    arrays: list[Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def number(self, x: object) -> int | None:
        """Which of the arrays x is."""
        for number, array in enumerate(self.arrays):
            if array is x:
                return number
        return None

    def is_unchanged(self) -> bool:
        """Whether the arrays are still described so: another thread may set the shape of one in place."""
        now = _described(self.function, self.arguments, self.options)
        return now is not None and now[0] == self.key


class RememberedCall(NamedTuple):
    """The array given as `out`: its number among the arrays, the bytes from its address that it spans, and those of
    the other arrays."""

    number: int
    span: tuple[int, int]
    others: tuple[tuple[int, tuple[int, int]], ...]

    def is_apart(self, addresses: list[int]) -> bool:
        """Whether it lies before or behind every other array; one among the others has to be looked at."""
        at = addresses[self.number]
        low, high = at + self.span[0], at + self.span[1]
        for i, (first, end) in self.others:  # each call waits for it: a generator would cost twice as much
            if low < addresses[i] + end and addresses[i] + first < high:
                break
        else:
            return True
        return False


class Memo(NamedTuple):
    """What a call with known kinds, dtypes, shapes, strides and options runs, and on what.

    `places` are those of the plan's operands. `isa` and `constants` are here to stay alive: the key holds the one's id,
    places the others' addresses. `target` is the result where it was given. `misaligned` are bits that no address
    may have. `bounds` are those of indices, which emitted code looks at: with any Python runs the function itself.
    """

    isa: Isa
    prepared: Prepared
    places: tuple[CallPlace, ...]
    constants: tuple[Tensor, ...]
    maker: Maker
    misaligned: int
    target: RememberedCall | None
    bounds: tuple[Bound, ...]

    def fits(self, addresses: list[int]) -> bool:
        """Whether arrays of the same signature that lie at these addresses may be taken as they are."""
        every = 0
        for address in addresses:
            every |= address
        return not every & self.misaligned and (self.target is None or self.target.is_apart(addresses))

    def run(self, arrays: list[Any], addresses: list[int]) -> Any:
        """The result for other arrays of the same signature, which lie at these addresses."""
        if self.target is not None:
            out, place = arrays[self.target.number], 0
        else:
            make, form, dtype = self.maker
            out = make(form, dtype)
            place = address_of(out) if type(out) is np.ndarray else Tensor.from_any(out).address
        addresses += place, 0, 0  # what RESULT and FIXED count from, which are numbers from the end
        self.prepared.run([addresses[number] + offset for number, offset in self.places])
        return out


_MEMOS = 4096
_memos: dict[Any, Memo] = {}
# Emitted code, where there is some: `native.call_text` says what it takes.
known: Callable[..., Any] | None = None
_PLAIN = frozenset([int, float, str, bool, type(None), Spec])
# What tells floats apart: zeros by their sign, and NaNs by sign and payload, which `where` copies.
_bits = struct.Struct("<d").pack
# A key, arrays, where they lie, and who owns what may be closed meanwhile by another thread.
_Described = tuple[tuple[Any, ...], list[Any], list[int], list[object]]
P = ParamSpec("P")
R = TypeVar("R")


def keep(
    signature: Signature, isa: Isa, kind: ArrayKind, prepared: Prepared, operands: Sequence[CallOperand],
    result: CallOperand, given: Sequence[CallOperand], made_of_it: Any, indices: Sequence[tuple[CallOperand, int]],
) -> None:  # fmt: skip
    """Let `remembered` have what this call ran, so that calls like it run that at once, if its arguments were not
    changed meanwhile.

    Nothing is kept where an operand is of memory that no other call has, or the result of elements that NumPy has not.

    Args:    prepared, operands: what ran, on what.   result: of that kind.   given: all arrays among the arguments.
             made_of_it: the result as the caller gets it.   indices: operands, and what their elements are below.
    """
    number, made = result.number, result.tensor
    if number is None or made.dtype.numpy is None or made.dtype.width_bits < 8:
        return
    places = places_of(operands, {RESULT: result.start} | {x.number: x.start for x in given if x.number is not None})
    if places is None:
        return
    target = None
    if number != RESULT:
        spans = {x.number: _span(x.tensor) for x in given if x.number is not None}
        target = RememberedCall(number, spans.pop(number), tuple(spans.items()))
    constants, bounds = tuple(x.tensor for x in operands if x.number == FIXED), list[Bound]()
    for x, extent in indices:
        if x.number is None or x.dtype not in (int32, int64) or not x.tensor.layout.is_contiguous():
            return
        bounds.append((x.number, x.dtype.width_bits // 8, x.tensor.size, extent))
    maker, misaligned = maker_of(kind, made.shape, made.dtype), alignment(operands) - 1
    found = Memo(isa, prepared, tuple(places), constants, maker, misaligned, target, tuple(bounds))
    if signature.is_unchanged():
        asked.kept = found, kind, made_of_it


def _span(x: Tensor) -> tuple[int, int]:
    """The bytes that x may touch, from its address: the first, and the one after the last."""
    steps = [stride * (extent - 1) for stride, extent in zip(x.layout.strides_bits, x.shape, strict=True)]
    last = x.dtype.width_bits + 7 + sum(step for step in steps if step > 0)
    return sum(step for step in steps if step < 0) >> 3, -(-last >> 3) + 1


def _of_torch(x: object) -> Tensor | None:
    """A tensor on the host that is exactly torch's, as ours; none where torch traces, which the function refuses."""
    # While another thread imports torch, the module is there and the class is not.
    if type(x) is getattr(sys.modules.get("torch"), "Tensor", None) and not is_traced():
        with contextlib.suppress(Exception):  # the function itself says why it cannot be had
            tensor = Tensor.from_any(x)
            return tensor if tensor.buffer.device is CPU else None
    return None


def _is_read_only(out: object) -> bool:
    if type(out) is np.ndarray:
        return not out.flags.writeable
    return type(out) is Tensor and out.read_only


def _described(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> _Described | None:
    """What decides the plan of a call, and where its arrays lie; None where that is not told by a key."""
    arrays: list[Any] = []
    addresses: list[int] = []
    owners: list[object] = []
    key: list[Any] = [function, id(isas.current()), *options]
    for value in (*arguments, *options.values()) if options else arguments:
        kind = type(value)
        if kind is PackedMatrix:
            key += (kind, value.fits)
            value = value.tensor
            kind = Tensor
        if kind is np.ndarray:
            address = address_of(value)
            key += (value.dtype, value.shape, value.strides)
        elif kind in _PLAIN:
            key += (kind, _bits(value) if kind is float else value)
            continue
        elif kind is tuple and {int}.issuperset(map(type, value)):
            key += (kind, value)
            continue
        elif kind is Tensor and value.buffer.device is CPU and not value.buffer.is_closed:
            owners.append(value.buffer.owner)
            address = value.buffer.address + (value.layout.offset_bits >> 3)
            key += (value.dtype, value.layout)
        elif (tensor := _of_torch(value)) is not None:
            owners.append(tensor)
            address = tensor.address
            key += (kind, tensor.dtype, tensor.layout)
        else:
            return None
        arrays.append(value)
        addresses.append(address)
    if len(set(addresses)) < len(addresses):
        ids = [id(x) for x in arrays]
        if len(set(ids)) < len(ids):
            key += ("one array as", *map(ids.index, ids))
    if (out := options.get("out")) is not None:
        key.append(_is_read_only(out))
    return tuple(key), arrays, addresses, owners


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, except that a call on arrays of NumPy and torch, host Tensors and packed matrices like one before
    (kinds, dtypes, shapes, strides, options, Isa row) goes straight to that call's table: validation and planning have
    given the same answer already. Only where `out` lies among the other arrays is looked at each time.

    Such a function makes one `Call` of its arguments and returns its result; what does more is not remembered. It may
    do so through another's `itself`.
    """

    @functools.wraps(function)
    def wrapper(*arguments: P.args, **options: P.kwargs) -> R:
        unknown = b""
        if known is not None:
            found = known(function, arguments, options)
            if type(found) is not bytes:
                return found  # type: ignore[no-any-return]
            if found and _rebound().bind(found, arguments, options):
                found = known(function, arguments, options)
                if type(found) is not bytes:
                    return found  # type: ignore[no-any-return]
            unknown = found
        described = _described(function, arguments, options)
        if described is None:
            return function(*arguments, **options)
        key, arrays, addresses, _owners = described
        memo = _memos.get(key)
        if memo is not None and memo.fits(addresses):
            if memo.prepared.table.compiled:
                if unknown:
                    _record(unknown, memo, Signature(key, arrays, function, arguments, options))
                else:
                    hot.count_call()
            if not memo.bounds:
                if memo.target is not None:
                    note_written(options["out"])
                return memo.run(arrays, addresses)  # type: ignore[no-any-return]
        signature = asked.by = Signature(key, arrays, function, arguments, options)
        try:
            made = function(*arguments, **options)
            kept = asked.kept
        finally:
            asked.by = asked.kept = None
        if kept is not None and kept[2] is made:
            if len(_memos) >= _MEMOS:
                _memos.clear()
            _memos[key] = kept[0]
            if kept[0].prepared.table.compiled:
                _met(unknown, signature, kept[0], kept[1])
        return made

    return wrapper


@functools.cache
def _rebound() -> Any:
    """The room of calls of sizes not met before, which needs what emits code."""
    from samebits.ops import rebound

    return rebound


# By function, how many of its calls were like none before; from so many on they pay.
_new: dict[object, int] = {}
_NEW = 3


def _met(key: bytes, call: Signature, memo: Memo, kind: ArrayKind) -> None:
    """A call was like none before. Let calls be bound that differ from it in sizes alone; where there is no emitted
    code yet, many of a function let it come, as those do that are alike."""
    if key and memo.target is None and not memo.bounds:

        def own() -> tuple[bytes, object] | None:
            from samebits.native import calls

            _record(key, memo, call)
            return calls.kept(key)

        _rebound().met(key, call.function, call.arguments, call.options, kind, memo.places, memo.maker, own)
    elif known is None:
        _new[call.function] = count = _new.get(call.function, 0) + 1
        if count >= _NEW:
            hot.count_call()


def itself(function: Callable[P, R]) -> Callable[P, R]:
    """What a `remembered` function does, for one that is remembered instead of it."""
    return function.__wrapped__  # type: ignore[attr-defined,no-any-return]


def recalled(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The result of a call of a `remembered` function that emitted code knows; None where it knows none like it.

    Of torch's tensors memory alone counts, whether or not they need gradients, and a parameter is a tensor.
    """
    if known is None:
        return None
    inner = function.__wrapped__  # type: ignore[attr-defined]
    found = known(inner, arguments, options, True)
    if type(found) is bytes and found and _rebound().bind(found, arguments, options):
        found = known(inner, arguments, options, True)
    if type(found) is bytes:
        return None
    if asked.recalls is not None:
        asked.recalls.append((inner, arguments, options, found))
    return found


def as_one(
    key: bytes, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any],
    told: tuple[Any, ...],
) -> Any:  # fmt: skip
    """`function(*arguments, **options)`; where that is one call of `recalled` on arrays among its own, `known` has the
    result for the key from then on.

    Args:    key: that which `known` gave for `function` and `told`, whose tensors are taken for their memory.
             told: the arguments, then numbers and texts: all else that decides what the function does.
    """
    recalls = asked.recalls = list[tuple[Any, Any, Any, Any]]()
    try:
        made = function(*arguments, **options)
    finally:
        asked.recalls = None
    if len(recalls) == 1 and recalls[0][3] is made:
        ((inner, given, named, _),) = recalls
        own, others = _arrays(told, options), _arrays(given, named)
        keep = _told(key, function, told, options, True) if set(others) <= set(own) else None
        if keep is not None:
            from samebits.native import calls

            calls.share(key, _key(inner, given, named, True), [own.index(x) for x in others], keep)
    return made


def _arrays(arguments: tuple[Any, ...], options: dict[str, Any]) -> list[int]:
    """Which arrays a call has, one that is there twice as often."""
    return [id(x) for x in (*arguments, *options.values()) if hasattr(x, "shape")]


def compile_known() -> bool:
    """Set up emitted code for remembered calls now; whether there is any. Without this it comes with the first few."""
    global known
    from samebits.native import calls

    known = calls.known(PackedMatrix, Spec)
    hot.act()  # results for torch go out by exchange
    return known is not None


def _steps() -> Iterator[bool]:
    """What happens when calls like one before come."""
    global known
    from samebits.native import calls

    yield True
    yield from calls.steps(PackedMatrix, Spec)
    while hot.others():  # results for torch go out by exchange, and no call is counted from then on
        yield False
    known = calls.known(PackedMatrix, Spec)


hot.offer(_steps)


def answer(owner: object, arguments: tuple[Any, ...], options: dict[str, Any], *is_memory: bool) -> Any:
    """What a call gives that emitted code was taught, a tuple where that is several results; else the key of the call,
    as bytes: none of them where the call has no key, or emitted code is not there.

    Args:    is_memory: given, memory alone counts of torch's tensors, whether or not they need gradients, and a
                 parameter is a tensor.
    """
    return b"" if known is None else known(owner, arguments, options, *is_memory)


def teach(
    key: bytes, owner: object, arguments: tuple[Any, ...], options: dict[str, Any], table: Table,
    places: Sequence[CallPlace], workspace_bytes: int, status_bytes: int, misaligned: int, kind: ArrayKind,
    results: Sequence[Tensor], held: object, *is_memory: bool,
) -> None:  # fmt: skip
    """Let `answer` run a table for calls of this key; `forget` ends it.

    Args:
        key: That of the call, as `answer` gave it.
        owner, arguments, options: The call.
        table: Compiled.
        places: Of each of its slots.
        workspace_bytes: How large `WORKSPACE` is.
        status_bytes: Of it, from its start, where kernels say what they refuse: then Python does the call.
        misaligned: Bits that no address may have.
        kind, results: The kind of the results, and those of this call, of elements of whole bytes that NumPy has.
        held: What has the memory of the table's constants.
        is_memory: As for `answer`.
    """
    from samebits.native import calls

    keep = _told(key, owner, arguments, options, *is_memory)
    if keep is not None:
        made = [emitted(maker_of(kind, x.shape, x.dtype)) for x in results]
        held_on = [held, *keep]
        calls.record(key, table, places, workspace_bytes, misaligned, made, None, held_on, status_bytes=status_bytes)


def forget(keys: Iterable[bytes]) -> None:
    """Let go what calls of these keys run."""
    from samebits.native import calls

    calls.forget(keys)


def _record(key: bytes, memo: Memo, call: Signature) -> None:
    """Let emitted code run a memo."""
    from samebits.native import calls

    keep = _told(key, call.function, call.arguments, call.options)
    if keep is None:
        return
    target = memo.target and ((memo.target.number, *memo.target.span), [(i, *span) for i, span in memo.target.others])
    table, workspace_bytes, places = memo.prepared.table, memo.prepared.workspace_bytes, (*memo.places, (WORKSPACE, 0))
    made, kept = [emitted(memo.maker)] if target is None else [], [memo, *keep]
    calls.record(key, table, places, workspace_bytes, memo.misaligned, made, target, kept, memo.bounds)


def _told(
    key: bytes, function: object, arguments: tuple[Any, ...], options: dict[str, Any], *is_memory: bool
) -> list[object] | None:
    """What a key tells by addresses alone, which its record holds: of arrays not their memory.

    None if it is not the call's key: another thread may have set a shape in place.
    """
    keep: list[object] = [function]
    for x in (*arguments, *options, *options.values()):
        if isinstance(x, PackedMatrix):
            keep += x.dtype, x.engine, x.scale, x.tensor.dtype
        else:
            keep.append(getattr(x, "dtype", x))
    return keep if _key(function, arguments, options, *is_memory) == key else None


def _key(function: object, arguments: tuple[Any, ...], options: dict[str, Any], *is_memory: bool) -> bytes:
    """The key of a call, which is not made: no record is of None."""
    return b"" if known is None else struct.pack("<Q", id(function)) + known(None, arguments, options, *is_memory)[8:]
