"""Walk: how a kernel visits operands of any strides together: outer axes by row number, one inner axis by vectors.

The axes of all operands are merged jointly where every operand allows it, so that contiguous operands of any rank are
one row. Rows are numbered along the outer axes, and those along the last of them are a stretch. Start at `walk`;
`stretches` is the same walk inside a kernel text, which knows neither extents nor strides, nor how many axes there are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType
from samebits.errors import ShapeError
from samebits.frozen import dataclass
from samebits.kernels.plan import Operand
from samebits.tape import cached

# Lanes that are strided from one address: those of a whole vector would wait, one behind the other, for theirs.
_STRIDED = 8

AxisSteps = tuple[tuple[int, ...], tuple[int, ...]]
"""An operand's shape and its strides in elements."""


# The class of an operand that is every second element along the row: of two loads half the lanes are picked.
SECOND = "every second"
# The class of an operand whose elements of four bits lie two a byte along the row, which begins with a byte.
NIBBLES = "nibbles"
# Elements of a word of 32 bits of them.
_NIBBLES = 8
# Of sixteen of them, which one each lane has where lanes take turns between their two words.
PAIRED = tuple([lane % 2 * _NIBBLES + lane // 2 for lane in range(2 * _NIBBLES)])
# Positions that an element of a row can be repeated for without being written out.
BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256)


def blocks(size: int) -> str:
    """The class of an operand whose every element is that of so many positions along the row, one after the other."""
    return f"blocks of {size}"


def block_of(name: str) -> int:
    """The positions of an element of such a class; 0 of any other."""
    return int(name.removeprefix("blocks of ")) if name.startswith("blocks") else 0


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its extent and each operand's stride along it."""

    extent: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """Outer axes, slowest first, and the inner axis.

    Attributes:
        outer: The axes above rows.
        inner: The axis along the row.
        special: The class of operands that have another than strides say. The stride of one in blocks is from one
            element to the next, strides of one in nibbles count bytes.
    """

    outer: tuple[Axis, ...]
    inner: Axis
    special: tuple[tuple[int, str], ...] = ()

    @property
    def rows(self) -> int:
        """How many times the inner axis is walked."""
        return math.prod(axis.extent for axis in self.outer)

    @property
    def classes(self) -> tuple[str, ...]:
        """Per operand how it lies along the inner axis: `unit`, `same` (stride 0), `strided`, or something special."""
        special = dict(self.special)
        return tuple([special.get(k) or _lies(stride) for k, stride in enumerate(self.inner.strides)])

    @property
    def stretch(self) -> Axis:
        """The last outer axis, along which rows follow one another."""
        return self.outer[-1] if self.outer else Axis(1, (0,) * len(self.inner.strides))

    @property
    def above(self) -> bool:
        """Whether axes lie above the stretches."""
        return len(self.outer) > 1

    def parameters(self) -> tuple[str, ...]:
        """Names of the kernel arguments that `stretches` and `Cursor` read, in the order of `arguments`."""
        return _parameters(len(self.inner.strides))

    def arguments(self, addresses: Sequence[int | Operand]) -> tuple[int | Operand, ...]:
        """Their values, `addresses` being the operands'; then, unnamed, the axes above stretches, the nearest first."""
        above = self.outer[-2::-1]
        words = [word for axis in above for word in (axis.extent, *axis.strides)]
        stretch = self.stretch
        return (
            self.inner.extent,
            stretch.extent,
            len(above),
            *addresses,
            *self.inner.strides,
            *stretch.strides,
            *words,
        )


def _lies(stride: int) -> str:
    """The class of an operand that has this stride along the inner axis."""
    if stride == 0:
        return "same"
    return "unit" if stride == 1 else "strided"


@functools.cache
def _parameters(operands: int) -> tuple[str, ...]:
    names = [f"x{k}" for k in range(operands)]
    return ("n", "stretch", "axes", *names, *[f"{x}.{along}" for along in ("inner", "stretch") for x in names])


@cached(4096)
def broadcast(call: str, layout: AxisSteps, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that make an operand have `shape`: 0 along the axes it is repeated on.

    Raises:  ShapeError if its shape does not broadcast to `shape`.
    """
    given, strides = layout
    missing = len(shape) - len(given)
    if missing < 0 or any(g not in (1, s) for g, s in zip(given, shape[missing:], strict=True)):
        raise ShapeError(call, "an operand", "shape", given, f"one that broadcasts to {shape}", "reshape it")
    own = tuple(0 if g == 1 else s for g, s in zip(given, strides, strict=True))
    return (0,) * missing + own


def walk(axes: Sequence[Axis]) -> Walk:
    """Axes, slowest first, merged jointly; the last is walked by vectors."""
    merged: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if merged and merged[-1].strides == tuple(s * axis.extent for s in axis.strides):
            axis = Axis(axis.extent * merged.pop().extent, axis.strides)
        merged.append(axis)
    if not merged:
        return Walk((), Axis(1, tuple(1 for _ in axes[0].strides) if axes else ()))
    return Walk(tuple(merged[:-1]), merged[-1])


def stretches(
    b: Builder, classes: Sequence[str], types: Sequence[DType], above: bool, first: Index, last: Index
) -> Iterator[Stretch]:
    """Rows first .. last-1 of a walk, stretch by stretch; `above` as for `stretch`."""
    for number, begin, end in numbered(b, above, first, last):
        yield stretch(b, classes, types, above, number, begin, end)


def numbered(b: Builder, above: bool, first: Index, last: Index) -> Iterator[tuple[Index, Index, Index]]:
    """The stretches of rows first .. last-1: the number of each, and which of its rows those are, begin and end."""
    if not above:
        yield 0, first, last
        return
    extent, number = b.index("stretch"), [first // b.index("stretch")]
    for before in b.loop(number[0] * extent, last, extent, number):
        yield number[0], b.max(first - before, 0), b.min(last - before, extent)
        number[0] = number[0] + 1


def stretch(
    b: Builder, classes: Sequence[str], types: Sequence[DType], above: bool, number: Index, begin: Index, end: Index
) -> Stretch:
    """Rows begin .. end-1 of a stretch.

    Args:    above: whether axes lie above the stretches, as many as the step says; else there is stretch 0 alone.
    """
    starts = [b.pointer(f"x{k}", dtype) for k, dtype in enumerate(types)]
    if above:
        starts = [b.offset(p, at) for p, at in zip(starts, offsets(b, len(types), number), strict=True)]
    return Stretch(b, tuple(classes), tuple(starts), begin, end)


def offsets(b: Builder, operands: int, number: Index) -> list[Index]:
    """How far on a stretch begins in each operand, in what its strides count."""
    further, carry = b.further(), [number, *(0 for _ in range(operands))]
    for a in b.loop(0, b.index("axes"), carry=carry):
        at = a * (1 + operands)
        extent = b.load_index(further, at)
        place, carry[0] = carry[0] % extent, carry[0] // extent
        for k in range(1, 1 + operands):
            carry[k] = carry[k] + place * b.load_index(further, at + k)
    return carry[1:]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some rows along the last outer axis, inside a kernel text.

    Attributes:
        classes: How each operand lies along a row.
        starts: Where the stretch's first row begins in each.
        begin: The first row, counted along the stretch.
        end: The row after the last.
    """

    b: Builder
    classes: tuple[str, ...]
    starts: tuple[Pointer, ...]
    begin: Index
    end: Index

    def row(self, r: Index) -> Cursor:
        """Row r of the stretch.

        Its addresses are made where it is entered: LLVM would keep one for each row and operand of a group, and each
        place in it, on the stack from the start, which cost a layer norm of one row of 33 elements 40 ns of 70.
        """
        b, operands = self.b, enumerate(self.starts)
        places = [b.anchor(b.offset(start, r * b.index(f"x{k}.stretch"))) for k, start in operands]
        return Cursor(b, self.classes, tuple(places))


@dataclass(frozen=True, slots=True)
class Cursor:
    """One row of a walk inside a kernel text: the operands' addresses there, and vectors along it."""

    b: Builder
    classes: tuple[str, ...]
    places: tuple[Pointer, ...]

    def on(self, name: str, times: Index) -> Cursor:
        """The same, each operand some times its argument `x{k}.{name}` on."""
        b, operands = self.b, enumerate(self.places)
        places = [b.offset(place, times * b.index(f"x{k}.{name}")) for k, place in operands]
        return Cursor(b, self.classes, tuple(places))

    def load(self, k: int, i: Index, width: int, count: Index | None = None) -> Vector:
        """Operand k at positions i .. i+width-1 of the row (the first `count` of them)."""
        if self.classes[k] in ("strided", "turned"):
            parts = [
                self.b.load_strided(place, 0, self._stride(k), size, None if count is None else count - lane)
                for lane, size, place in self._strided(k, i, width)
            ]
            return self.b.concat(parts)
        if self.classes[k] == "same":
            return self.b.splat(self.load_one(k), width)
        if self.classes[k] == SECOND:
            return self._load_second(k, i, width, count)
        if self.classes[k] == NIBBLES:
            return self._load_nibbles(k, i, width, count)
        if block_of(self.classes[k]):
            return self.load_blocks(k, i, width, count)
        return self.b.load(self.places[k], i, width, count)

    def _load_second(self, k: int, i: Index, width: int, count: Index | None) -> Vector:
        """Operand k, every second element: the second load begins with the last element of the first, so that it ends
        with the last that is asked for."""
        b, place = self.b, self.places[k]
        first = b.load(place, i * 2, width, None if count is None else count * 2 - 1)
        if width == 1:
            return first
        rest = b.load(place, i * 2 + (width - 1), width, None if count is None else count * 2 - width)
        return b.pick([first, rest], [2 * lane + (2 * lane >= width) for lane in range(width)])

    def _load_nibbles(self, k: int, i: Index, width: int, count: Index | None) -> Vector:
        """Operand k, two elements a byte, the first in the low bits; i, width, the count and n are even."""
        b, half = self.b, width // 2
        if count is None and width % _NIBBLES == 0:
            code = self.load_nibbles(k, i, width)
            code = b.bit_and(code, b.like(code, 15))
            return b.bitcast(b.convert(code, dtypes.uint8), self.places[k].dtype)
        pairs = b.load(self.places[k], i // 2, half, None if count is None else count // 2)
        code = b.bitcast(pairs, dtypes.uint8)
        low, high = b.bit_and(code, b.like(code, 15)), b.shift_right(code, 4)
        both = b.pick([low, high], [lane // 2 + half * (lane % 2) for lane in range(width)])
        return b.bitcast(both, pairs.dtype)

    def load_nibbles(self, k: int, i: Index, width: int, paired: bool = False) -> Vector:
        """The same, whole words of eight elements: uint32 lanes, of which each has its element in the low four bits.

        Words go to all lanes that take their elements from them, and each lane shifts its own down: two steps, where
        halves of bytes, put side by side and widened, are five. If `paired`, lanes take turns between the two words of
        sixteen elements, as `PAIRED` says: then a load does the first step.
        """
        b, lanes = self.b, range(width)
        start = b.cast(b.offset(self.places[k], i // 2), dtypes.uint32, aligned=False)
        words = b.load(start, 0, width // _NIBBLES)
        places = b.iota(dtypes.uint32, width)
        if paired:
            places = b.shift_right(places, 1)
            picked = [lane // len(PAIRED) * 2 + PAIRED[lane % len(PAIRED)] // _NIBBLES for lane in lanes]
        else:
            picked = [lane // _NIBBLES for lane in lanes]
        shifts = b.shift_left(b.bit_and(places, b.constant(_NIBBLES - 1, dtypes.uint32, width)), 2)
        return b.shift_right(b.pick([words], picked), shifts)

    def block_code(self, k: int, i: Index, count: Index | None) -> Index:
        """The code of the block, of operand k, that position i is in; behind the end of the row, that of the last."""
        b, block = self.b, i // block_of(self.classes[k])
        if count is not None:
            block = b.min(block, b.index("n") // block_of(self.classes[k]) - 1)
        return b.load_index(b.cast(self.places[k], dtypes.uint8), block * self._stride(k))

    def load_blocks(
        self, k: int, i: Index, width: int, count: Index | None, made: Callable[[Vector], Vector] = lambda x: x
    ) -> Vector:
        """Operand k, each element of which, or what is made of it, is that of several positions; where neither vectors
        divide blocks nor blocks vectors, each lane has its own."""
        size = block_of(self.classes[k])
        b, last = self.b, self.b.index("n") // size - 1
        lanes = min(width, size) if width % size == 0 or size % width == 0 else 1
        parts = []
        for lane in range(0, width, lanes):
            block = (i + lane) // size
            if count is not None:
                block = b.min(block, last)  # lanes behind the end of the row read its last element
            parts.append(b.splat(made(b.load(self.places[k], block * self._stride(k), 1)), lanes))
        return b.concat(parts) if len(parts) > 1 else parts[0]

    def prefetch(self, k: int, i: Index) -> None:
        """Have position i of operand k, which is dense along the row, in the first cache soon."""
        self.b.prefetch(self.places[k], i)

    def load_across(self, k: int, i: Index, width: int) -> Vector:
        """Operand k, turned, at position i of `width` rows: it is dense along the stretch."""
        return self.b.load(self.places[k], i * self._stride(k), width)

    def load_one(self, k: int) -> Vector:
        """The one element of an operand that is the same along the row."""
        return self.b.load(self.places[k], 0, 1)

    def store(self, k: int, i: Index, v: Vector, count: Index | None = None) -> None:
        """Write operand k at positions i .. of the row."""
        if self.classes[k] in ("strided", "turned"):
            for lane, size, place in self._strided(k, i, v.width):
                part, rest = self.b.slice(v, lane, size), None if count is None else count - lane
                self.b.store_strided(place, 0, self._stride(k), part, rest)
        else:
            self.b.store(self.places[k], i, v, count)

    def _strided(self, k: int, i: Index, width: int) -> Iterator[tuple[int, int, Pointer]]:
        """Positions i .. i+width-1 of operand k in parts: the first lane and the lanes of each, and where it is."""
        for lane in range(0, width, _STRIDED):
            place = self.b.offset(self.places[k], (i + lane) * self._stride(k))
            yield lane, min(_STRIDED, width - lane), self.b.anchor(place)

    def _stride(self, k: int) -> Index:
        return self.b.index(f"x{k}.inner")
