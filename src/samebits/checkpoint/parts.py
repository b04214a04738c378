"""Quantised values in files: each part is a tensor of its own, and a note says which parts make a value, and how.

Of a value `w` the elements are called `w`, its scales `w_scale`, then `w_global_scale` and `w_zero_point`, where its
format has them. The note names format, dialect and axis, so that reading gives the same value: nothing is guessed from
a name or a shape. Start at `described` and `value`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

from samebits.checkpoint.stored import Refuse
from samebits.errors import SamebitsError
from samebits.frozen import dataclass
from samebits.tensor import Tensor

if TYPE_CHECKING:
    from samebits.ops.quantized import Quantized

__all__ = ["QuantizedNote", "as_quantized", "described", "names", "read", "value"]

# What each part's name ends with.
_ENDINGS = {"elements": "", "scales": "_scale", "global_scale": "_global_scale", "zero_points": "_zero_point"}


@dataclass(frozen=True, slots=True)
class QuantizedNote:
    """What a file says of a quantised value.

    Attributes:
        format: The name of its block format.
        dialect: That of its dialect, None where nobody knows.
        axis: Along which the elements of a block lie, -1 or -2.
        parts: The names of the tensors that are its parts, by what `Quantized.parts` calls them.
    """

    format: str
    dialect: str | None
    axis: int
    parts: Mapping[str, str]


def as_quantized(x: object) -> Quantized | None:
    """x if it is a Quantized, else None; what only quantised values need is imported if there may be one."""
    if not hasattr(type(x), "dequantize"):
        return None
    from samebits.ops.quantized import Quantized

    return x if isinstance(x, Quantized) else None


def names(name: str, parts: Container[str]) -> dict[str, str]:
    """What a file calls the parts of a value."""
    return {part: name + ending for part, ending in _ENDINGS.items() if part in parts}


def described(notes: Mapping[str, QuantizedNote]) -> dict[str, Any]:
    """Notes as JSON."""
    return {
        name: {"format": note.format, "dialect": note.dialect, "axis": note.axis, "parts": dict(note.parts)}
        for name, note in notes.items()
    }


def read(found: object, tensors: Container[str], refuse: Refuse) -> dict[str, QuantizedNote]:
    """The notes that JSON is.

    Raises:  what `refuse` makes, if it is none.
    """
    if not isinstance(found, dict):
        raise refuse("quantized", f"a JSON {type(found).__name__}", "an object")
    notes = {}
    for name, facts in found.items():
        fact = f"quantized {name!r}"
        if not is_text(name):
            raise refuse("quantized name", ascii(name), "text that UTF-8 has")
        if not isinstance(facts, dict) or facts.keys() != {"format", "dialect", "axis", "parts"}:
            raise refuse(fact, "another", "an object of format, dialect, axis and parts")
        row, dialect, axis, parts = facts["format"], facts["dialect"], facts["axis"], facts["parts"]
        if not isinstance(row, str) or not isinstance(dialect, str | None) or axis not in (-1, -2):
            raise refuse(fact, "another", "of a format's and a dialect's name, and axis -1 or -2")
        if not isinstance(parts, dict) or not {"elements", "scales"} <= parts.keys() <= _ENDINGS.keys():
            raise refuse(f"{fact} parts", "others", f"elements, scales, and of {', '.join(_ENDINGS)} the rest")
        for part, stored in parts.items():
            if not isinstance(stored, str) or stored not in tensors:
                raise refuse(f"{fact} {part}", repr(stored), "the name of a tensor of this file")
        if name in tensors and name not in parts.values():
            raise refuse("quantized name", repr(name), "that of one of its parts, or of no tensor")
        notes[name] = QuantizedNote(row, dialect, int(axis), parts)
    return notes


def is_text(x: object) -> bool:
    """Whether it is a str that UTF-8 has: half of a surrogate pair is none."""
    try:
        return isinstance(x, str) and x.encode() is not None
    except UnicodeEncodeError:
        return False


def value(call: str, name: str, note: QuantizedNote, tensor: Callable[[str], Tensor]) -> Quantized:
    """The value that its parts make.

    Raises:  OptionError if there is no such format or dialect; DTypeError, ShapeError if a part is not what the format
             gives it.
    """
    from samebits.kernels.quantize import dialects, formats
    from samebits.ops.quantized import Quantized

    parts = {part: tensor(stored) for part, stored in note.parts.items()}
    try:
        row = formats.of(note.format)
        dialect = None if note.dialect is None else dialects.of(note.dialect)
        return Quantized.of_parts(parts, row, dialect, note.axis)
    except SamebitsError as error:
        raise error.renamed(call, f"{error.operand} of {name!r}") from None
