"""Calls of sizes that were not met before: bound to what was recorded of others.

Calls whose keys differ in extents and strides alone are a class; those of them that differ in the same few numbers are
a group, as the calls of a layer whose input has any length. Once a group met several sizes, a call of it is recorded
(`ops.recording`): what it runs as words on a tape, guarded by the comparisons that led there. For other sizes the tapes
of the group are replayed, and where one goes the same way emitted code has a record of the call, which is a tenth of
the work of planning. Where none does, the call is planned as ever, and recorded too. Start at `bind`.
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

# Others of a group that were met before a call of it is recorded: two are an example and a batch of it.
_BEFORE = 2
# Sizes that a class remembers. Before it has so many, calls are a group only where none is closer.
_MET = 48
# Tapes of a group. Where more come up sizes have little in common, and recording takes longer than planning.
_MADE = 32
# Calls of a class that could not be recorded, which may be so for some sizes alone, before no more are tried.
_REFUSED = 6
# Classes, which are forgotten together, and groups of one, of which the first stay.
_CLASSES, _GROUPS = 256, 256

_Numbers = tuple[int, ...]


class _CallClass:
    """Calls that differ in sizes alone.

    Attributes:
        met: The numbers of those that were planned last.
        refused: How many of them could not be recorded.
        groups: By the places of the numbers that differ, then by the other numbers.
    """

    __slots__ = ("groups", "met", "refused")

    def __init__(self) -> None:
        self.met = list[_Numbers]()
        self.refused = 0
        self.groups: dict[_Numbers, dict[_Numbers, _CallGroup]] = {}


class _CallGroup:
    """Calls of a class that differ in the same numbers: how many tapes there are, and these."""

    __slots__ = ("made", "ways")

    def __init__(self) -> None:
        self.made = 0
        self.ways = Ways()


class _Bound(NamedTuple):
    """What is at the end of a tape: a record, what makes results, and who keeps alive what keys and words tell by
    addresses alone."""

    record: SizedRecord
    kind: ArrayKind
    dtype: Any
    held: object


_classes: dict[_Numbers, _CallClass] = {}


def bind(key: bytes, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Have emitted code know the call of a key, if another was recorded that compares alike; whether it does."""
    parts = call_keys.taken_apart(key, arguments, options, PackedMatrix, Spec)
    found = None if parts is None else _classes.get(_name(parts))
    if parts is None or found is None:
        return False
    for varying, groups in tuple(found.groups.items()):
        group = groups.get(_others(parts.numbers, varying))
        replayed = group and group.ways.replay([parts.numbers[at] for at in varying])
        if replayed:
            break
    else:
        return False
    numbers, bound = replayed
    try:
        words, shape = bound.record.words(numbers)
        made = emitted(maker_of(bound.kind, shape, bound.dtype))
    except (OverflowError, NativeError):  # the call itself says why
        return False
    bound.record.keep(key, words, made, bound.held)
    return True


def _others(numbers: _Numbers, varying: _Numbers) -> _Numbers:
    """The numbers that are not at these places."""
    return tuple([x for at, x in enumerate(numbers) if at not in varying])


def _name(parts: KeyParts) -> _Numbers:
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
    found = _classes.setdefault(name, _CallClass())
    varying = _varying(parts.numbers, found.met)
    found.met = [*found.met[1 - _MET :], parts.numbers]
    if not varying or found.refused >= _REFUSED:
        return
    groups, others = found.groups.setdefault(varying, {}), _others(parts.numbers, varying)
    if others not in groups and sum(map(len, found.groups.values())) >= _GROUPS:
        return
    group = groups.setdefault(others, _CallGroup())
    if group.made >= _MADE:
        return
    group.made += 1
    tape = Tape(strict=True)
    try:
        call, own = _recorded(tape, parts, varying, function, arguments, options, kind), recorded()
        if call is not None and own is not None:
            record = _record(tape, call, places)
            words, shape = record.words(tape.values.copy())
            # What was recorded is what ran, unless the function decides by what no number of the tape is.
            is_same = words == own[0] and maker_of(kind, shape, call.dtype)[1:] == maker[1:]
            if is_same and group.ways.add(tape, _Bound(record, kind, call.dtype, own[1])):
                return
    except Exception:  # it needs more than stand-ins tell, or holds a number: the call itself was no error
        pass
    found.refused += 1


def _varying(numbers: _Numbers, met: Sequence[_Numbers]) -> _Numbers | None:
    """The places of the numbers in which calls differ that this one is a group with; None where there are no such yet:
    the fewest in which it differs from one, if others differ from it in these alone."""
    places_of = [[at for at, (x, y) in enumerate(zip(numbers, others, strict=True)) if x != y] for others in met]
    differ = sorted(filter(None, places_of), key=len)
    for places in differ:
        if len(places) > len(differ[0]) and len(met) < _MET:
            break
        if sum(map({*places}.issuperset, differ)) >= _BEFORE:
            return tuple(places)
    return None


def _record(tape: Tape, call: RecordedCall, places: Sequence[CallPlace]) -> SizedRecord:
    """The record of a call, with the constants of the one that ran at these places."""
    both = [own if own[0] == FIXED else place for own, place in zip(places, call.places, strict=True)]
    return SizedRecord(tape, call.plan, both, call.misaligned, call.shape)


def _recorded(
    tape: Tape, parts: KeyParts, varying: _Numbers, function: Callable[..., Any], arguments: tuple[Any, ...],
    options: dict[str, Any], kind: ArrayKind,
) -> RecordedCall | None:  # fmt: skip
    """What the call runs, those of its extents and strides that vary being the variables of a tape."""
    numbers, values = list(parts.numbers), [*arguments, *options.values()]
    for at in varying:
        numbers[at] = tape.variable(numbers[at])
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
