"""Calls of sizes that were not met before: bound to what was recorded of others.

Calls whose keys differ in extents and strides alone are a class. Once a class met several sizes, a call of it is
recorded (`ops.recording`): what it runs as words on a tape, guarded by the comparisons that led there. For other sizes
the tapes of the class are replayed, and where one goes the same way emitted code has a record of the call, which is a
tenth of the work of planning. Where none does, the call is planned as ever, and recorded too. Start at `bind`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from samebits import driver
from samebits.errors import NativeError
from samebits.kernels.gemm import PackedMatrix
from samebits.kernels.gemm.contraction import Spec
from samebits.kinds import ArrayKind
from samebits.native import call_keys
from samebits.native.call_keys import ArrayWords, KeyParts
from samebits.native.sized_records import SizedRecord
from samebits.native.table import FIXED, CallPlace
from samebits.ops import recording
from samebits.ops.makers import Maker, emitted, maker_of
from samebits.ops.recording import RecordedCall, stand_in
from samebits.tape import Tape, Ways
from samebits.tensor import Tensor

__all__ = ["bind", "forget", "met"]

# Sets of sizes that a class has met before one is recorded: two are an example and a batch of it.
_MET = 3
# Tapes of a class. Where more come up sizes have little in common, and recording takes longer than planning.
_MADE = 32
# As many count as made where a call cannot be recorded, which may be so for some sizes alone.
_REFUSED = 11
_CLASSES = 256


class _Class:
    """Calls that differ in sizes alone.

    Attributes:
        met: How many of them were planned.
        made: How many tapes, and what counts as some.
        ways: These tapes.
    """

    __slots__ = ("made", "met", "ways")

    def __init__(self) -> None:
        self.met = self.made = 0
        self.ways = Ways()


class _Bound(NamedTuple):
    """What is at the end of a tape: a record, what makes results, and who keeps alive what keys and words tell by
    addresses alone."""

    record: SizedRecord
    kind: ArrayKind
    dtype: Any
    held: object


_classes: dict[tuple[int, ...], _Class] = {}


def bind(key: bytes, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Have emitted code know the call of a key, if another was recorded that compares alike; whether it does."""
    parts = call_keys.taken_apart(key, arguments, options, PackedMatrix, Spec)
    found = None if parts is None else _classes.get(_name(parts))
    if parts is None or found is None:
        return False
    replayed = found.ways.replay(parts.numbers)
    if replayed is None:
        return False
    numbers, bound = replayed
    try:
        words, shape = bound.record.words(numbers)
        made = emitted(maker_of(bound.kind, shape, bound.dtype))
    except (OverflowError, NativeError):  # the call itself says why
        return False
    bound.record.keep(key, words, made, bound.held)
    return True


def _name(parts: KeyParts) -> tuple[int, ...]:
    """What tells a class from others: also how many threads share large work where nobody says it."""
    return (driver.usable_cores(), *parts.others)


def met(
    key: bytes, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], kind: ArrayKind,
    places: Sequence[CallPlace], maker: Maker, recorded: Callable[[], tuple[bytes, object] | None],
) -> None:  # fmt: skip
    """Note that a call was planned, which others of its class may be bound to.

    Args:    kind: that of its result.   places: of its plan's operands, constants among them.   maker: of its result.
             recorded: has emitted code know the call, and gives the words of its record and who keeps alive what these
             and the key tell by addresses alone; None if the key is not that of the call any more.
    """
    parts = call_keys.taken_apart(key, arguments, options, PackedMatrix, Spec)
    if parts is None or not parts.numbers:
        return
    name = _name(parts)
    if len(_classes) >= _CLASSES and name not in _classes:
        _classes.clear()
    found = _classes.setdefault(name, _Class())
    found.met += 1
    if found.met < _MET or found.made >= _MADE:
        return
    found.made += 1
    tape = Tape(strict=True)
    try:
        call, own = _recorded(tape, parts, function, arguments, options, kind), recorded()
        if call is not None and own is not None:
            record = _record(tape, call, places)
            words, shape = record.words(tape.values.copy())
            # What was recorded is what ran, unless the function decides by what no number of the tape is.
            is_same = words == own[0] and maker_of(kind, shape, call.dtype)[1:] == maker[1:]
            if is_same and found.ways.add(tape, _Bound(record, kind, call.dtype, own[1])):
                return
    except Exception:  # it needs more than stand-ins tell, or holds a number: the call itself was no error
        pass
    found.made += _REFUSED - 1


def _record(tape: Tape, call: RecordedCall, places: Sequence[CallPlace]) -> SizedRecord:
    """The record of a call, with the constants of the one that ran at these places."""
    both = [own if own[0] == FIXED else place for own, place in zip(places, call.places, strict=True)]
    return SizedRecord(tape, call.plan, both, call.misaligned, call.shape)


def _recorded(
    tape: Tape, parts: KeyParts, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any],
    kind: ArrayKind,
) -> RecordedCall | None:  # fmt: skip
    """What the call runs, its extents and strides being the variables of a tape."""
    numbers, values = list(map(tape.variable, parts.numbers)), [*arguments, *options.values()]
    arrays, known = list[Tensor](), dict[int, Tensor]()
    for at, (value, words) in enumerate(zip(values, parts.arrays, strict=True)):
        if type(value) is PackedMatrix:
            arrays.append(value.tensor)
        elif words is not None:
            own, numbers = numbers[: 2 * words.rank], numbers[2 * words.rank :]
            values[at] = known[id(value)] = known.get(id(value)) or _stand_in(value, words, own)
            arrays.append(values[at])
    given, named = values[: len(arguments)], dict(zip(options, values[len(arguments) :], strict=True))
    return recording.recorded(function, tuple(given), named, kind, arrays)


def _stand_in(value: Any, words: ArrayWords, numbers: list[int]) -> Tensor:
    """What stands in for an array of whole bytes an element.

    Raises:  ValueError for any other.
    """
    dtype, layout = (x := Tensor.from_any(value)).dtype, x.layout
    if dtype.width_bits < 8 or layout.offset_bits % 8:
        raise ValueError("elements of parts of bytes")
    strides = tuple([step * (words.unit or dtype.width_bits) for step in numbers[words.rank :]])
    return stand_in(tuple(numbers[: words.rank]), strides, dtype)


def forget() -> None:
    """Every class is met for the first time again."""
    _classes.clear()
