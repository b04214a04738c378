"""Headers of .npy files (NumPy Enhancement Proposal 1), read and written.

A header is a Python dict as text: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`. It is read word by
word, never as Python. Where NumPy has no name for a format, the elements are its code points under a field of that
name: `[('bfloat16', '<u2')]`. So a file says by itself what it holds, and `numpy.load(path)["bfloat16"]` are the bits.
Packed elements are read as groups that fill whole bytes: `[('float4_e2m1fn_x2', '|u1')]`, two elements a byte along the
last axis, `[('float6_e2m3fn_x4', '|u1', (3,))]`, four in three bytes. Start at `read` and `build`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Literal

from samebits import dtypes
from samebits.checkpoint.stored import Refuse, StoredTensor
from samebits.dtypes import DType
from samebits.layout.checks import Storage

__all__ = ["LONGEST", "MAGIC", "build", "length_of", "read"]

MAGIC = b"\x93NUMPY"
# NumPy's own limit.
LONGEST = 10_000
_ALIGNMENT = 64
_KINDS = {"f": "float", "i": "int", "u": "uint"}
_WORD = re.compile(
    r"[ \t\r\n]*(?:(?P<text>'[^'\\\n]*'|\"[^\"\\\n]*\")|(?P<number>0|[1-9][0-9]{0,18})L?"
    r"|(?P<name>True|False)|(?P<mark>[][(){},:]))"
)
_DESCR = re.compile(r"[<|=]([bfiu])(1|2|4|8)")
_GROUP = re.compile(r"(?P<name>\w+?)_x(?P<count>[248])")
_DEEPEST = 8
_CLOSING = {"[": "]", "(": ")", "{": "}"}


def length_of(start: bytes, refuse: Refuse) -> tuple[int, int]:
    """Where the header's text begins, and how many bytes it has.

    Args:    start: the first 12 bytes of the file.
    Raises:  what `refuse` makes, if they are of no .npy file.
    """
    version, size = tuple(start[6:8]), 2 if start[6:7] == b"\1" else 4
    if not start.startswith(MAGIC) or version not in ((1, 0), (2, 0), (3, 0)):
        raise refuse("start", repr(start[:8]), "'\\x93NUMPY' and version 1.0, 2.0 or 3.0")
    if len(start) < 8 + size:
        raise refuse("size", f"{len(start)} bytes", "a header")
    length = int.from_bytes(start[8 : 8 + size], "little")
    if length > LONGEST:
        raise refuse("header length", length, f"at most {LONGEST}")
    return 8 + size, length


def read(text: bytes, name: str, begin: int | None, refuse: Refuse) -> StoredTensor:
    """The tensor that a header's text describes.

    Args:    text: what stands between the length and the elements.   name: what the tensor is called.   begin: where in
             the file its elements begin, None where they are compressed.
    Raises:  what `refuse` makes, if it is none.
    """
    found = _parsed(text, refuse)
    if not isinstance(found, dict) or set(found) != {"descr", "fortran_order", "shape"}:
        raise refuse("header", _shown(found), "a dict of descr, fortran_order and shape")
    descr, is_fortran, shape = found["descr"], found["fortran_order"], found["shape"]
    if not isinstance(is_fortran, bool):
        raise refuse("fortran_order", _shown(is_fortran), "True or False")
    if not isinstance(shape, tuple) or not all(type(x) is int for x in shape):
        raise refuse("shape", _shown(shape), "a tuple of integers")
    order: Literal["C", "F"] = "F" if is_fortran else "C"
    stored = descr if isinstance(descr, str) else _shown(descr)
    dtype, storage, group = _format(descr)
    if dtype is None:
        return StoredTensor(name, None, shape, stored, begin, 0, order)
    if group > 1:
        if not shape or is_fortran:
            raise refuse("shape", _shown(shape), f"row-major, with a last axis of groups of {group}")
        shape = (*shape[:-1], shape[-1] * group)
    width = 8 if storage == "padded" else dtype.width_bits
    bits = math.prod(shape) * width
    if bits >= 1 << 63:
        raise refuse("shape", _shown(shape), "of fewer than 2**63 bits")
    return StoredTensor(name, dtype, shape, stored, begin, bits // 8, order, storage)


def _format(descr: object) -> tuple[DType | None, Storage, int]:
    """The format, whether an element has a byte of its own, and how many elements are a group."""
    if isinstance(descr, str):
        found = _DESCR.fullmatch(descr)
        if found is None or (found[1] == "b") != (descr[1:] == "b1"):
            return None, "packed", 1
        row = _row("bool" if found[1] == "b" else f"{_KINDS[found[1]]}{8 * int(found[2])}")
        return row, "packed", 1
    match descr:
        case [(str(name), str(code))]:
            shape: tuple[object, ...] = ()
        case [(str(name), str(code), tuple(shape))]:
            pass
        case _:
            return None, "packed", 1
    dtype = _row(name)
    if dtype is not None:
        fits = code[1:] == f"u{dtype.element_bytes}" and code[:1] in "<|=" and not shape
        return (dtype if fits else None), "padded" if dtype.width_bits % 8 else "packed", 1
    grouped = _GROUP.fullmatch(name)
    dtype, group = (_row(grouped["name"]), int(grouped["count"])) if grouped else (None, 1)
    if dtype is None or group != _group(dtype) or code not in ("|u1", "<u1"):
        return None, "packed", 1
    size_bytes = group * dtype.width_bits // 8
    return (dtype if shape == (() if size_bytes == 1 else (size_bytes,)) else None), "packed", group


def _row(name: str) -> DType | None:
    return next((row for row in dtypes.ROWS if row.name == name), None)


def _group(dtype: DType) -> int:
    """How many elements of a narrow format fill whole bytes."""
    return 8 // math.gcd(8, dtype.width_bits)


def build(dtype: DType, shape: tuple[int, ...], storage: Storage) -> tuple[bytes, Storage]:
    """The first bytes of a file, up to its elements, and whether these are to be packed.

    Packed elements whose last axis is no whole number of groups get a byte each.
    """
    group = _group(dtype)
    if dtype.width_bits % 8 and storage == "packed" and shape and not shape[-1] % group:
        size_bytes = group * dtype.width_bits // 8
        bytes_of_group = "" if size_bytes == 1 else f", ({size_bytes},)"
        descr, shape = f"[('{dtype.name}_x{group}', '|u1'{bytes_of_group})]", (*shape[:-1], shape[-1] // group)
    else:
        storage = "padded" if dtype.width_bits % 8 else "packed"
        descr = _descr(dtype)
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape!r}, }}"
    # Version 1.0 has 65535 bytes for it; an array of NumPy has at most 64 axes.
    text += " " * (-(len(MAGIC) + 4 + len(text) + 1) % _ALIGNMENT) + "\n"
    return MAGIC + b"\1\0" + len(text).to_bytes(2, "little") + text.encode("latin1"), storage


def _descr(dtype: DType) -> str:
    """What NumPy calls the format, or the field of its codes."""
    if dtype.kind == "bool":
        return "'|b1'"
    mark = "|" if dtype.element_bytes == 1 else "<"
    for letter, kind in _KINDS.items():
        if dtype.name == f"{kind}{dtype.width_bits}" and dtype.width_bits >= 8:
            return f"'{mark}{letter}{dtype.element_bytes}'"
    return f"[('{dtype.name}', '{mark}u{dtype.element_bytes}')]"


# The header's text: strings without escapes, integers, truths, tuples, lists, dicts.


def _parsed(text: bytes, refuse: Refuse) -> Any:
    """The value that a header is."""
    words = _words(text, refuse)
    found = _value(next(words), words, _DEEPEST, refuse)
    if next(words) != "":
        raise refuse("header", "more than one value", "one dict")
    return found


def _words(text: bytes, refuse: Refuse) -> Iterator[Any]:
    """Marks as text, then "" at the end; a string in a tuple of its own, integers and truths as they are."""
    said, at = text.decode("latin1").rstrip(" \t\r\n"), 0
    while at < len(said):
        word = _WORD.match(said, at)
        if word is None:
            raise refuse("header", f"{said[at : at + 20]!r} at {at}", "strings, integers, tuples, lists and a dict")
        at = word.end()
        if word["text"]:
            yield (word["text"][1:-1],)
        elif word["number"]:
            yield int(word["number"])
        else:
            yield word["name"] == "True" if word["name"] else word["mark"]
    while True:
        yield ""


def _value(word: Any, words: Iterator[Any], depth: int, refuse: Refuse) -> Any:
    """The value that begins with a word."""
    if isinstance(word, tuple):
        return word[0]
    if not isinstance(word, str):
        return word
    if word not in _CLOSING or not depth:
        raise refuse("header", f"{word!r} where a value begins" if depth else "nested too deeply", "a dict")
    end, found, pairs = _CLOSING[word], [], {}
    following, is_apart = next(words), True
    while following != end:
        if not is_apart:
            raise refuse("header", f"{following!r} where a comma is due", "a dict")
        item = _value(following, words, depth - 1, refuse)
        following = next(words)
        if word == "{":
            if following != ":" or not isinstance(item, str) or item in pairs:
                raise refuse("header", f"the key {_shown(item)}", "a string that is there once, and its value")
            pairs[item] = _value(next(words), words, depth - 1, refuse)
            following = next(words)
        found.append(item)
        is_apart = following == ","
        following = next(words) if is_apart else following
    if word == "(" and len(found) == 1 and not is_apart:
        return found[0]  # in brackets, no tuple
    return pairs if word == "{" else tuple(found) if word == "(" else found


def _shown(found: object) -> str:
    """A value for a message, cut where it is long."""
    text = ascii(found)
    return text if len(text) <= 80 else f"{text[:80]}..."
