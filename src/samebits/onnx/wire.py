"""Messages of Protocol Buffers, read from bytes (protobuf.dev/programming-guides/encoding).

A schema names the fields that somebody reads; all others are passed over. The values are those that protobuf's own
parser finds: of a field that is there twice the last one counts, messages are joined, repeated numbers may be packed.
Only enumerations are integers here, of which it drops those that it does not know. What it refuses in fields that are
read is refused. Start at `read`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Field", "FieldType", "MalformedError", "Message", "Schema", "read"]

_VARINT, _FIXED64, _BYTES, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_SIZES = {_FIXED64: 8, _FIXED32: 4}
# The tags of one byte of fields whose length is said.
_SHORT_TAGS = frozenset(number << 3 | _BYTES for number in range(1, 16))
# The most bytes of a varint, the most groups within each other, and the largest number of a field with its wire type.
_LONGEST, _DEEPEST, _LARGEST_TAG = 10, 100, (1 << 32) - 1

Message: TypeAlias = Any
"""The fields of a message as attributes, None where one is not there.

Text is a view of its bytes, and so is a float (little-endian). What may be there many times is a list, or () where none
is; an element of a list of floats is a view of one or more of them.
"""


class MalformedError(ValueError):
    """Bytes that are no message; the text says why."""


class FieldType(enum.Enum):
    """What a field holds that is no message."""

    INT32 = "int32"
    INT64 = "int64"
    UINT64 = "uint64"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"


# Other values are varints. Negative ones are written in 64 bits of two's complement.
_WIRES = {FieldType.FLOAT: _FIXED32, FieldType.DOUBLE: _FIXED64, FieldType.BYTES: _BYTES}
# The bit of the sign. Of a number that has more bits the low ones count.
_SIGNS = {FieldType.INT32: 1 << 31, FieldType.INT64: 1 << 63}


class Field:
    """One field: its name, what it holds, whether it may be there many times, and how one of it is written."""

    __slots__ = ("holds", "name", "repeated", "wire")

    def __init__(self, name: str, holds: FieldType | Schema, repeated: bool = False) -> None:
        self.name, self.holds, self.repeated = name, holds, repeated
        self.wire = _BYTES if isinstance(holds, Schema) else _WIRES.get(holds, _VARINT)


class Schema:
    """A kind of message: its fields by number; with `is_choice` only the one that came last is there."""

    __slots__ = ("absent", "fields", "is_choice")

    def __init__(self, fields: Mapping[int, Field], is_choice: bool = False) -> None:
        self.fields = fields
        self.is_choice = is_choice
        # What a message says before anything is read.
        self.absent = {field.name: () if field.repeated else None for field in fields.values()}


def read(schema: Schema, data: bytes | memoryview) -> Message:
    """The message that all of the bytes are.

    Raises:  MalformedError if they are none.
    """
    return _join(schema, memoryview(data), SimpleNamespace(**schema.absent))


def _join(schema: Schema, data: memoryview, message: Message) -> Message:
    """The message, with what the bytes say put into it."""
    at, end, fields = 0, len(data), schema.fields
    while at < end:
        tag, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at)
        if tag in _SHORT_TAGS and at < end and data[at] < 0x80 and at + data[at] < end:
            start, at = at + 1, at + 1 + data[at]  # a field of few bytes, as most are
        else:
            start, at = _passed(data, at, tag)
        field = fields.get(tag >> 3)
        if field is None:
            continue
        holds, part = field.holds, data[start:at]
        if tag & 7 == field.wire:
            if holds is FieldType.BYTES:
                _put(schema, field, message, part)
            elif isinstance(holds, Schema):
                before = None if field.repeated else getattr(message, field.name)
                _put(schema, field, message, _join(holds, part, before or SimpleNamespace(**holds.absent)))
            else:
                _put(schema, field, message, _value(holds, part))
        elif tag & 7 == _BYTES and field.repeated and not isinstance(holds, Schema):
            _unpack(field, holds, part, message)
    return message


def _put(schema: Schema, field: Field, message: Message, value: Any) -> None:
    """Set a field, or add to one that may be there many times."""
    if field.repeated:
        found = getattr(message, field.name)
        if found:
            found.append(value)
        else:
            setattr(message, field.name, [value])
        return
    if schema.is_choice:
        for other in schema.absent:
            setattr(message, other, None)
    setattr(message, field.name, value)


def _many(field: Field, message: Message) -> list[Any]:
    """The list of a field that may be there many times."""
    found = getattr(message, field.name)
    if not found:
        found = []
        setattr(message, field.name, found)
    return found  # type: ignore[no-any-return]


def _value(holds: FieldType, part: memoryview) -> int | memoryview:
    """What stands in the bytes of one field."""
    if holds in _WIRES:
        return part
    value, _ = _varint(part, 0)
    sign = _SIGNS.get(holds, 0)
    return ((value & (2 * sign - 1)) ^ sign) - sign if sign else value


def _unpack(field: Field, holds: FieldType, part: memoryview, message: Message) -> None:
    """Add numbers that follow each other without tags.

    Raises:  MalformedError if one is cut off.
    """
    if holds in _WIRES:
        if len(part) % _SIZES[_WIRES[holds]]:
            raise MalformedError(f"{field.name} ends within a number")
        _many(field, message).append(part)
        return
    data = np.frombuffer(part, np.uint8)
    ends = np.flatnonzero(data < 0x80) + 1
    if data.size and (not ends.size or ends[-1] != data.size):
        raise MalformedError(f"{field.name} ends within a number")
    starts = np.concatenate([[0], ends[:-1]])[: ends.size]
    sizes = ends - starts
    if sizes.max(initial=0) > _LONGEST:
        raise MalformedError(f"{field.name} has a number of more than {_LONGEST} bytes")
    shifts = (7 * (np.arange(data.size) - np.repeat(starts, sizes))).astype(np.uint64)
    bits = (data & 0x7F).astype(np.uint64) << shifts
    values = np.bitwise_or.reduceat(bits, starts) if bits.size else bits
    _many(field, message).extend(values.astype(holds.value).tolist())


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """An unsigned number of 64 bits, and where it ends."""
    try:
        value = data[at]
        if value < 0x80:
            return value, at + 1
        value &= 0x7F
        for place in range(1, _LONGEST):
            byte = data[at + place]
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value & (1 << 64) - 1, at + place + 1
    except IndexError:
        raise MalformedError("it ends within a number") from None
    raise MalformedError(f"a number has more than {_LONGEST} bytes")


def _passed(data: memoryview, at: int, tag: int) -> tuple[int, int]:
    """Where a field's own bytes begin, behind its tag and length, and where they end.

    Raises:  MalformedError if they are not all there, or the tag is none.
    """
    number, wire = tag >> 3, tag & 7
    if not number or tag > _LARGEST_TAG:
        raise MalformedError(f"a field has the number {number}")
    start = at
    if wire == _BYTES:
        size, start = _varint(data, at)
        at = start + size
    elif wire == _VARINT:
        _, at = _varint(data, at)
    elif wire == _START_GROUP:
        at = _behind_group(data, at, number)
    elif wire in _SIZES:
        at += _SIZES[wire]
    else:
        raise MalformedError(f"field {number} has the wire type {wire}")
    if at > len(data):
        raise MalformedError(f"field {number} is cut off")
    return start, at


def _behind_group(data: memoryview, at: int, number: int) -> int:
    """Where a group ends, which nobody reads: the fields up to the tag that closes it."""
    opened = [number]
    while opened:
        tag, at = _varint(data, at)
        if tag & 7 == _START_GROUP:
            opened.append(tag >> 3)
            if len(opened) > _DEEPEST:
                raise MalformedError(f"more than {_DEEPEST} groups are within each other")
        elif tag & 7 == _END_GROUP and tag >> 3 == opened[-1]:
            opened.pop()
        else:
            _, at = _passed(data, at, tag)
    return at
