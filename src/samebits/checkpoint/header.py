"""Headers of safetensors files (github.com/huggingface/safetensors, section "Format"), read and written.

A file is the length of its header in eight bytes, little-endian; the header, JSON; and the tensors' bytes, row-major
and little-endian, without a gap and without an overlap. A header may come from a stranger: `read` believes nothing of
it. It accepts and refuses what the official reader does, which tests compare, but for what the format forbids and that
reader lets pass: a name that is there twice, and a tensor's facts without their names.

A format that has no name there is stored as bytes, `U8`, and `__metadata__["samebits"]` says what they are. Elements
of fewer than 8 bits lie as DLPack has them, the first in the lowest bits. Start at `read` and `build`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn, TypeGuard

from samebits import dtypes
from samebits.checkpoint import parts
from samebits.checkpoint.parts import QuantizedNote
from samebits.checkpoint.stored import Refuse, StoredTensor
from samebits.dtypes import DType
from samebits.shapes import INTEGERS

__all__ = ["LENGTH_BYTES", "LONGEST", "NOTE", "Header", "build", "read"]

LENGTH_BYTES = 8
# The official reader's limit.
LONGEST = 100_000_000
# Of its numbers.
_MOST = (1 << 64) - 1
# From here on tensors begin at a multiple of this, as long as their sizes are: JAX shares such memory.
_ALIGNMENT = 64
METADATA, NOTE = "__metadata__", "samebits"

# The names there are, with the width and the format; the official writer puts later ones before earlier ones, so that
# every element is at a multiple of its size.
_NAMES: dict[str, tuple[int, DType | None]] = {
    "BOOL": (8, dtypes.bool_),
    "F4": (4, dtypes.float4_e2m1fn),
    "F6_E2M3": (6, dtypes.float6_e2m3fn),
    "F6_E3M2": (6, dtypes.float6_e3m2fn),
    "U8": (8, dtypes.uint8),
    "I8": (8, dtypes.int8),
    "F8_E5M2": (8, dtypes.float8_e5m2),
    "F8_E4M3": (8, dtypes.float8_e4m3fn),
    "F8_E8M0": (8, dtypes.float8_e8m0fnu),
    "F8_E4M3FNUZ": (8, dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": (8, dtypes.float8_e5m2fnuz),
    "I16": (16, dtypes.int16),
    "U16": (16, dtypes.uint16),
    "F16": (16, dtypes.float16),
    "BF16": (16, dtypes.bfloat16),
    "I32": (32, dtypes.int32),
    "U32": (32, dtypes.uint32),
    "F32": (32, dtypes.float32),
    "C64": (64, None),
    "F64": (64, dtypes.float64),
    "I64": (64, dtypes.int64),
    "U64": (64, dtypes.uint64),
}
_NAMED = {dtype: name for name, (_, dtype) in _NAMES.items() if dtype is not None}
_RANKS = {name: rank for rank, name in enumerate(_NAMES)}


class Header(NamedTuple):
    """What a header says: tensors by name, the free text beside them, and which tensors are quantised values' parts."""

    tensors: dict[str, StoredTensor]
    metadata: dict[str, str]
    quantized: dict[str, QuantizedNote]


class _TwiceError(ValueError):
    """A name of an object is there twice; the text is the name."""


def read(text: bytes, data_bytes: int, refuse: Refuse) -> Header:
    """The header that `text` is, of a file that has `data_bytes` bytes behind it.

    Raises:  what `refuse` makes, if it is none.
    """
    found = _parsed(text, refuse)
    metadata = _metadata(found.pop(METADATA, None), refuse)
    begin = LENGTH_BYTES + len(text)
    tensors = {name: _tensor(name, facts, begin, refuse) for name, facts in found.items()}
    at = begin
    for tensor in sorted(tensors.values(), key=_place):
        if tensor.offset != at:
            expected = f"{at - begin}, where the tensor before it ends"
            raise refuse(f"tensor {tensor.name!r} begin", _place(tensor)[0] - begin, expected)
        at += tensor.size_bytes
    if at != begin + data_bytes:
        raise refuse("size behind its header", f"{data_bytes} bytes", f"{at - begin}, as its tensors take")
    note = _note(metadata.pop(NOTE, "{}"), refuse)
    quantized = parts.read(note.get("quantized", {}), tensors, refuse)
    return Header(tensors | _renamed(note.get("dtypes", {}), tensors, refuse), metadata, quantized)


def _place(tensor: StoredTensor) -> tuple[int, int]:
    return tensor.offset or 0, tensor.size_bytes


def _parsed(text: bytes | str, refuse: Refuse, fact: str = "header") -> dict[str, Any]:
    """The JSON object that a text is."""
    expected = "a JSON object in UTF-8"
    try:
        words = text.decode() if isinstance(text, bytes) else text
        # Of -0 Python makes the integer 0, though the format has it as a float.
        whole = _integer if "-0" in words else None
        found = json.loads(words, object_pairs_hook=_unique, parse_constant=_no_number, parse_int=whole)
    except _TwiceError as error:
        raise refuse(f"{fact} name {error.args[0]!r}", "there twice", "there once") from None
    except UnicodeDecodeError:
        raise refuse(fact, "no text in UTF-8", expected) from None
    except (ValueError, RecursionError) as error:
        said = "nested too deeply" if isinstance(error, RecursionError) else str(error).partition(" (char")[0]
        raise refuse(fact, f"no JSON ({said})", expected) from None
    if not isinstance(found, dict):
        raise refuse(fact, f"a JSON {type(found).__name__}", expected)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    met: set[str] = set()
    for name, _ in pairs:
        if name in met:
            raise _TwiceError(name)
        met.add(name)
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _integer(digits: str) -> int | float:
    return -0.0 if digits == "-0" else int(digits)


def _metadata(found: object, refuse: Refuse) -> dict[str, str]:
    """The free text: strings by name."""
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise refuse(METADATA, f"a JSON {type(found).__name__}", "an object of strings")
    for name, value in found.items():
        if not isinstance(value, str):
            raise refuse(f"{METADATA} {name!r}", f"a JSON {type(value).__name__}", "a string")
        _check_text(name, refuse)
        _check_text(value, refuse)
    return found


def _check_text(text: str, refuse: Refuse) -> None:
    """Refuse half of a surrogate pair, which no UTF-8 has."""
    if not text.isascii() and not parts.is_text(text):
        raise refuse("header text", ascii(text), "one that UTF-8 has")


def _tensor(name: str, facts: object, begin: int, refuse: Refuse) -> StoredTensor:
    """One tensor, whose size is that of its elements."""
    _check_text(name, refuse)
    if not isinstance(facts, dict):
        raise refuse(f"tensor {name!r}", f"a JSON {type(facts).__name__}", "an object of dtype, shape and data_offsets")
    stored, shape, offsets = facts.get("dtype"), facts.get("shape"), facts.get("data_offsets")
    if not isinstance(stored, str) or stored not in _NAMES:
        raise refuse(f"tensor {name!r} dtype", _shown(stored), f"one of {', '.join(_NAMES)}")
    if not _are_counts(shape):
        raise refuse(f"tensor {name!r} shape", _shown(shape), "a list of integers from 0 to 2**64 - 1")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise refuse(f"tensor {name!r} data_offsets", _shown(offsets), "two integers from 0 to 2**64 - 1")
    width, dtype = _NAMES[stored]
    count = _bits(shape, width)
    if count is None:
        raise refuse(f"tensor {name!r} shape", _shown(shape), "of fewer than 2**64 bits")
    if count % 8:
        raise refuse(f"tensor {name!r} size", f"{count} bits", "whole bytes")
    first, end = offsets
    if end - first != count // 8:
        expected = f"{count // 8} bytes, as {stored} of shape {_shown(shape)} takes"
        raise refuse(f"tensor {name!r} data_offsets", _shown(offsets), expected)
    return StoredTensor(name, dtype, tuple(shape), stored, begin + first, count // 8)


def _bits(shape: list[int], width: int) -> int | None:
    """Bits of all elements; None where some of the extents make more than the official reader counts."""
    count = 1
    for extent in (*shape, width):
        count *= extent
        if count > _MOST:
            return None
    return count


def _are_counts(found: object) -> TypeGuard[list[int]]:
    if not isinstance(found, list):
        return False
    return not found or ({*map(type, found)} == INTEGERS and min(found) >= 0 and max(found) <= _MOST)


def _shown(found: object) -> str:
    """JSON for a message, cut where it is long."""
    text = ascii(found) if isinstance(found, str | int | float | type(None)) else json.dumps(found)
    return text if len(text) <= 80 else f"{text[:80]}..."


# Our note in the metadata.


def _note(text: str, refuse: Refuse) -> dict[str, Any]:
    """What our own metadata says."""
    note = _parsed(text, refuse, f"{METADATA} {NOTE!r}")
    if not isinstance(note.get("dtypes", {}), dict):
        raise refuse(f"{METADATA} {NOTE!r} dtypes", f"a JSON {type(note['dtypes']).__name__}", "an object")
    return note


def _renamed(
    found: Mapping[str, object], tensors: Mapping[str, StoredTensor], refuse: Refuse
) -> dict[str, StoredTensor]:
    """Tensors that are stored as bytes, with the formats and shapes that the note says."""
    made = {}
    for name, facts in found.items():
        fact, stored = f"{METADATA} {NOTE!r} dtypes {name!r}", tensors.get(name)
        if stored is None or stored.stored != "U8":
            raise refuse(fact, "of no U8 tensor" if stored else "of no tensor", "of a U8 tensor of this file")
        if not isinstance(facts, dict) or not _are_counts(facts.get("shape")):
            raise refuse(fact, _shown(facts), "an object of dtype and shape")
        dtype = next((row for row in dtypes.ROWS if row.name == facts.get("dtype")), None)
        if dtype is None:
            raise refuse(f"{fact} dtype", _shown(facts.get("dtype")), "a name of dtypes.ROWS")
        bits = _bits(facts["shape"], dtype.width_bits)
        if bits is None or -(-bits // 8) != stored.size_bytes:
            raise refuse(f"{fact} shape", _shown(facts["shape"]), f"of {stored.size_bytes} bytes of {dtype.name}")
        made[name] = StoredTensor(name, dtype, tuple(facts["shape"]), stored.stored, stored.offset, stored.size_bytes)
    return made


def build(
    tensors: Mapping[str, tuple[DType, tuple[int, ...]]],
    metadata: Mapping[str, str],
    quantized: Mapping[str, QuantizedNote],
    words: Mapping[str, str],
) -> tuple[bytes, dict[str, StoredTensor]]:
    """The first bytes of a file, length and header, and where in it each tensor's bytes go.

    Args:    tensors: format and shape by name.   metadata: free text.   quantized: what
             tensors are the parts of.   words: the file's own words for formats that are no row of `dtypes.ROWS`, by
             the names of tensors that are given as numbers as wide.
    """
    lost: dict[str, dict[str, object]] = {}
    described: dict[str, tuple[str, list[int], int]] = {}
    for name, (dtype, shape) in tensors.items():
        size_bytes = -(-math.prod(shape) * dtype.width_bits // 8)
        stored, extents = words.get(name) or _NAMED.get(dtype, "U8"), list(shape)
        row_bits = math.prod(shape[-1:]) * dtype.width_bits
        if (stored == "U8" and dtype is not dtypes.uint8) or row_bits % 8:
            # Rows of whole bytes keep their axes, so that other tools see the matrix.
            extents = [*shape[:-1], row_bits // 8] if shape and not row_bits % 8 else [size_bytes]
            stored, lost[name] = "U8", {"dtype": dtype.name, "shape": list(shape)}
        described[name] = stored, extents, size_bytes
    note: dict[str, object] = {"dtypes": lost} if lost else {}
    note |= {"quantized": parts.described(quantized)} if quantized else {}
    header: dict[str, object] = {}
    if metadata or note:
        header[METADATA] = dict(metadata) | ({NOTE: _text(note)} if note else {})
    at, places = 0, {}
    for name in sorted(described, key=lambda name: (-_RANKS[described[name][0]], name)):
        stored, extents, size_bytes = described[name]
        header[name] = {"dtype": stored, "shape": extents, "data_offsets": [at, at + size_bytes]}
        places[name], at = at, at + size_bytes
    text = _text(header).encode()
    text += b" " * (-(LENGTH_BYTES + len(text)) % _ALIGNMENT)
    begin = LENGTH_BYTES + len(text)
    made = {
        name: StoredTensor(name, *tensors[name], described[name][0], begin + places[name], described[name][2])
        for name in tensors
    }
    return len(text).to_bytes(LENGTH_BYTES, "little") + text, made


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
