"""What the words of the vocabulary accept: both builders ask here, so a text that one refuses, the other refuses too.

A breach is a defect of the text and raises TypeError while the text is emitted (or interpreted), naming the word.
Arithmetic is for float32, float64 and integers of whole bytes; every other format is loaded, moved and bitcast only, an
element in whole bytes (`kernels.convert` makes numbers of its codes).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol, cast

from samebits import dtypes
from samebits.dtypes import DType

# Tiles of a text; rows of one, and its lanes of 32 bits.
MOST_TILES, TILE_ROWS, TILE_LANES = 8, 16, 16


class Typed(Protocol):
    """What the rules look at: a vector of either builder."""

    @property
    def dtype(self) -> DType:
        """Format of the lanes."""

    @property
    def width(self) -> int:
        """How many lanes."""


def is_computed_float(dtype: DType) -> bool:
    """True for the floats that have arithmetic."""
    return dtype is dtypes.float32 or dtype is dtypes.float64


def is_computed_integer(dtype: DType) -> bool:
    """True for the integers that have arithmetic."""
    return dtype.is_integer and dtype.width_bits >= 8


def is_number(dtype: DType) -> bool:
    """True for what has arithmetic and an order."""
    return is_computed_float(dtype) or is_computed_integer(dtype)


def same(word: str, *vectors: Typed) -> None:
    """One dtype and one width."""
    first = vectors[0]
    for v in vectors[1:]:
        if v.dtype is not first.dtype or v.width != first.width:
            raise TypeError(f"{word} of {', '.join(f'{x.dtype.name} x {x.width}' for x in vectors)}: they must agree")


def numbers(word: str, *vectors: Typed) -> None:
    """Floats or integers with arithmetic, alike."""
    same(word, *vectors)
    _demand(word, vectors[0].dtype, is_number(vectors[0].dtype), "float32, float64 or an integer of whole bytes")


def floats(word: str, *vectors: Typed) -> None:
    """float32 or float64, alike."""
    same(word, *vectors)
    _demand(word, vectors[0].dtype, is_computed_float(vectors[0].dtype), "float32 or float64")


def integers(word: str, *vectors: Typed) -> None:
    """Integers of whole bytes, alike."""
    same(word, *vectors)
    _demand(word, vectors[0].dtype, is_computed_integer(vectors[0].dtype), "an integer of whole bytes")


def bits(word: str, *vectors: Typed) -> None:
    """Integers or masks, alike."""
    same(word, *vectors)
    dtype = vectors[0].dtype
    _demand(word, dtype, is_computed_integer(dtype) or dtype.kind == "bool", "an integer of whole bytes or a mask")


def mask(word: str, m: Typed) -> None:
    """Lanes of bool."""
    _demand(word, m.dtype, m.dtype.kind == "bool", "a mask")


def selection(m: Typed, x: Typed, y: Typed) -> None:
    """A mask and two vectors alike, all of one width."""
    mask("select", m)
    same("select", x, y)
    if m.width != x.width:
        raise TypeError(f"select of {m.width} mask lanes and {x.width} lanes: they must agree")


def shift(word: str, x: Typed, count: object) -> None:
    """0 <= count < width of the element, where the count is known; lanes of counts are like those of x."""
    if hasattr(count, "dtype"):
        integers(word, x, cast(Typed, count))
        return
    integers(word, x)
    if isinstance(count, int) and not 0 <= count < x.dtype.width_bits:
        raise TypeError(f"{word} of {x.dtype.name} by {count}: must be within 0 .. {x.dtype.width_bits - 1}")


def step(size: object) -> None:
    """At least 1, where it is known."""
    if isinstance(size, int) and size < 1:
        raise TypeError(f"loop step {size}: must be at least 1")


def single(word: str, v: Typed) -> None:
    """One lane."""
    if v.width != 1:
        raise TypeError(f"{word} of {v.width} lanes: must be 1")


def dot(word: str, acc: Typed, x: Typed, y: Typed) -> None:
    """Lanes of int32 that hold the elements; an accumulator of int32, for bfloat16 of float32."""
    same(word, x, y)
    _demand(word, x.dtype, x.dtype is dtypes.int32, "int32")
    due = dtypes.float32 if word == "dot2_bfloat16" else dtypes.int32
    _demand(word, acc.dtype, acc.dtype is due and acc.width == x.width, f"{due.name} x {x.width}")


def tile_number(count: int) -> None:
    """No more tiles than the machines that have them hold."""
    if count > MOST_TILES:
        raise TypeError(f"tile number {count}: a text has at most {MOST_TILES}")


def iota(dtype: DType, width: int) -> None:
    """Integers that hold width - 1."""
    _demand("iota", dtype, is_computed_integer(dtype), "an integer of whole bytes")
    constant(width - 1, dtype)


def part(v: Typed, start: int, width: int) -> None:
    """Lanes start .. start + width - 1 exist."""
    if start < 0 or width < 1 or start + width > v.width:
        raise TypeError(f"slice of lanes {start} .. {start + width - 1} from {v.width}")


def indexed(element: DType) -> None:
    """Elements that are integers of whole bytes, or bools."""
    holds = is_computed_integer(element) or element.kind == "bool"
    _demand("load_index", element, holds, "an integer of whole bytes or bool")


def passed(*arguments: object) -> None:
    """No pointer at any byte, because a function takes its pointers for aligned."""
    if any(getattr(x, "aligned", True) is False for x in arguments):
        raise TypeError("call with a pointer at any byte: must be aligned; cast it inside the function")


def sequence(word: str, vectors: Sequence[Typed]) -> None:
    """At least one vector, all of one dtype."""
    if not vectors or any(v.dtype is not vectors[0].dtype for v in vectors):
        raise TypeError(f"{word} of {[v.dtype.name for v in vectors]}: must be one dtype")


def picked(vectors: Sequence[Typed], lanes: Sequence[int]) -> None:
    """Check that the vectors are of one dtype, and that each lane number is one of theirs."""
    sequence("pick", vectors)
    total = sum(v.width for v in vectors)
    if not lanes or not all(0 <= lane < total for lane in lanes):
        raise TypeError(f"pick of lanes {list(lanes)} of {total}: must be at least one, within 0 .. {total - 1}")


def joined(v: Typed, dtype: DType) -> None:
    """Lanes of unsigned integers that fill lanes of a wider one."""
    each = dtype.width_bits // v.dtype.width_bits
    if {v.dtype.kind, dtype.kind} != {"uint"} or v.dtype.width_bits < 8 or each < 2 or v.width % each:
        raise TypeError(
            f"join of {v.dtype.name} x {v.width} to {dtype.name}: must be unsigned lanes that fill wider ones"
        )


def blocks(vectors: Sequence[Typed]) -> None:
    """Vectors alike, of whole blocks of as many lanes as there are vectors."""
    same("transpose_blocks", *vectors)
    if vectors[0].width % len(vectors):
        raise TypeError(f"transpose_blocks of {len(vectors)} x {vectors[0].width} lanes: must be whole squares")


def stored(element: DType, v: Typed) -> None:
    """The pointer's elements are the vector's lanes."""
    if element is not v.dtype:
        raise TypeError(f"store of {v.dtype.name} to elements of {element.name}: convert or cast first")


def table(entries: int, dtype: DType, index: Typed) -> None:
    """A non-empty table of numbers, indexed by int32."""
    _demand("lookup", dtype, is_number(dtype), "float32, float64 or an integer of whole bytes")
    if not entries or index.dtype is not dtypes.int32:
        raise TypeError(f"lookup of {index.dtype.name} in {entries} entries: must be int32 in at least one")


def table_in_memory(dtype: DType, index: Typed) -> None:
    """Numbers of 32 bits, indexed by uint32."""
    if not is_number(dtype) or dtype.width_bits != 32 or index.dtype is not dtypes.uint32:
        given = f"{dtype.name} by {index.dtype.name}"
        raise TypeError(f"lookup_at of {given}: must be of numbers of 32 bits by uint32")


def halves_table(table: Sequence[int], index: Typed) -> None:
    """Thirty-two codes of 16 bits, indexed by halves of uint32."""
    if len(table) != 32 or not all(0 <= code < 1 << 16 for code in table) or index.dtype is not dtypes.uint32:
        given = f"{len(table)} entries by {index.dtype.name}"
        raise TypeError(f"lookup_halves of {given}: must be of 32 codes of 16 bits by uint32")


def bytes_table(table: Sequence[int], index: Typed) -> None:
    """Sixteen codes of 8 bits, indexed by bytes of uint32."""
    if len(table) != 16 or not all(0 <= code < 1 << 8 for code in table) or index.dtype is not dtypes.uint32:
        given = f"{len(table)} entries by {index.dtype.name}"
        raise TypeError(f"lookup_bytes of {given}: must be of 16 codes of 8 bits by uint32")


def conversion(source: DType, target: DType, instructions: Sequence[str]) -> None:
    """Between numbers and masks; between float16 and float32 where one instruction does it."""
    if {source, target} == {dtypes.float16, dtypes.float32} and "float16" in instructions:
        return
    for dtype in (source, target):
        _demand("convert", dtype, is_number(dtype) or dtype.kind == "bool", "a computed number or a mask")


def bitcast(source: DType, target: DType) -> None:
    """Between elements of one width, what is narrower than a byte having a byte; a mask has no bits to speak of."""
    if "bool" in (source.kind, target.kind) or max(source.width_bits, 8) != max(target.width_bits, 8):
        raise TypeError(f"bitcast of {source.name} to {target.name}: must be elements of one width, not masks")


def constant(value: float | bool, dtype: DType) -> float | int | bool:
    """`value` as the dtype holds it: floats rounded once (every NaN the canonical one), integers in range."""
    if dtype.kind == "bool":
        return bool(value)
    _demand("constant", dtype, is_number(dtype), "a computed number or a mask")
    if dtype.kind == "float":
        return _rounded(float(value), dtype)
    if value != int(value) or not dtype.min <= value <= dtype.max:
        raise TypeError(f"constant {value} of {dtype.name}: must be within {dtype.min} .. {dtype.max}")
    return int(value)


def _rounded(value: float, dtype: DType) -> float:
    if value != value:
        return float("nan")
    if dtype is dtypes.float64:
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        raise TypeError(f"constant {value} of float32: must be finite in float32, or infinite itself") from None


def _demand(word: str, dtype: DType, holds: bool, expected: str) -> None:
    if not holds:
        raise TypeError(f"{word} of {dtype.name}: must be {expected}")
