"""The kernel text of narrow: rows of elements of up to 8 bits, eight at a time where both sides are dense.

Eight packed elements of `width` bits are `width` bytes, which widen to the low bits of a 64-bit lane; `_spread` gives
each element a byte of it, `gathered` puts them back side by side. What is left at the ends of a row, and every other
layout, moves element by element in index arithmetic. Start at `text`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels.walk import numbered, offsets

_WORD = dtypes.uint64
# The unsigned integer of eight elements side by side; there is none of 48 bits.
_EIGHT: dict[int, DType] = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32}
# Packed elements of these widths move eight at a time.
WIDTHS = (*_EIGHT, 6)


@dataclass(frozen=True, slots=True)
class Narrow:
    """What specialises the kernel: width of an element, how both lie along a row, if axes lie above the stretches."""

    width: int
    source: str
    target: str
    above: bool


def text(b: Builder, d: Narrow) -> None:
    """A task is some rows, or a block of one long row."""
    x, y = b.pointer("x0", dtypes.uint8), b.pointer("x1", dtypes.uint8)
    n, head, block, blocks = b.index("n"), b.index("head"), b.index("block"), b.index("blocks")
    rows, rows_per_task = b.index("rows"), b.index("rows_per_task")
    for task in b.tasks():
        first, place = task // blocks * rows_per_task, task % blocks
        start = b.choose(place < 1, 0, place * block + head)
        stop = b.min((place + 1) * block + head, n)
        for number, begin, end in numbered(b, d.above, first, b.min(first + rows_per_task, rows)):
            # Where the part of the stretch's first row begins, in bits of both operands.
            before = offsets(b, 2, number) if d.above else (0, 0)
            at = [b.index(f"x{k}.bit") + start * b.index(f"x{k}.inner") + before[k] for k in range(2)]
            for r in b.loop(begin, end):
                source = Line(b, d.source, d.width, x, at[0] + r * b.index("x0.stretch"), b.index("x0.inner"))
                target = Line(b, d.target, d.width, y, at[1] + r * b.index("x1.stretch"), b.index("x1.inner"))
                _row(b, source, target, stop - start)


@dataclass(frozen=True, slots=True)
class Line:
    """One operand along one row: its class, and where its elements are, in bits."""

    b: Builder
    lie: str
    width: int
    pointer: Pointer
    bit: Index
    step: Index

    def load(self, i: Index) -> Index:
        """The code point of element i."""
        b, bit = self.b, self.bit + i * self.step
        byte, shift = bit >> 3, bit & 7
        found = b.load_index(self.pointer, byte)
        if self.width > 1:
            # The same byte again where the element ends in it: the next one may lie outside the operand.
            following = b.choose(shift + self.width > 8, byte + 1, byte)
            found = found | (b.load_index(self.pointer, following) << 8)
        return (found >> shift) & ((1 << self.width) - 1)

    def store(self, i: Index, code: Index) -> None:
        """Element i becomes `code`; other bits stay, except in a byte of its own."""
        b, bit = self.b, self.bit + i * self.step
        byte, shift = bit >> 3, bit & 7
        if self.lie in ("bytes", "whole"):
            self._put(byte, code)
            return
        mask, bits = ((1 << self.width) - 1) << shift, code << shift
        # -1 - mask is the complement.
        self._put(byte, b.load_index(self.pointer, byte) & (-1 - mask) | bits)
        if self.width > 1:
            for _ in b.when(shift + self.width > 8):
                kept = b.load_index(self.pointer, byte + 1) & (-1 - (mask >> 8))
                self._put(byte + 1, kept | (bits >> 8))

    def _put(self, byte: Index, value: Index) -> None:
        self.b.store(self.pointer, byte, self.b.from_index(value, dtypes.uint8))

    def at(self, i: Index) -> Pointer:
        """The byte in which element i begins."""
        return self.b.offset(self.pointer, (self.bit + i * self.step) >> 3)


def _row(b: Builder, source: Line, target: Line, count: Index) -> None:
    """Elements up to a byte, eights, the elements left."""
    if source.lie == "same":
        code = source.load(0)
        load: Callable[[Index], Index] = lambda i: code  # noqa: E731
    else:
        load = source.load
    pair = source.lie, target.lie
    done: Index = 0
    if target.lie == "packed" and source.lie != "any":
        done = b.min(_head(b, target), count)
    elif pair == ("packed", "bytes"):
        done = b.min(_head(b, source), count)
    if pair not in EIGHTS:
        for i in b.loop(0, count):
            target.store(i, load(i))
        return
    for i in b.loop(0, done):
        target.store(i, load(i))
    rest = count - done
    whole = rest // 8
    make, limit = EIGHTS[pair](b, source, target, done, rest)
    eights = b.max(b.min(whole, limit), 0)
    lanes = b.isa.lanes
    for i in b.loop(0, eights - (lanes - 1), lanes):
        make(i, lanes)
    if lanes > 1:
        for i in b.loop(eights // lanes * lanes, eights):
            make(i, 1)
    for i in b.loop(done + eights * 8, count):
        target.store(i, load(i))


def _head(b: Builder, side: Line) -> Index:
    """Elements before the first that begins at a byte; more than any row has where none does."""
    shift, width = side.bit & 7, side.width
    # (shift + head * width) % 8 == 0: a packed width has an inverse modulo 8 / gcd(width, 8).
    common = math.gcd(width, 8)
    turns = 8 // common
    head = ((8 - shift) // common * pow(width // common, -1, turns)) % turns if turns > 1 else 0 * shift
    return b.choose((shift & (common - 1)) > 0, 1 << 62, head)


Make = Callable[[Index, int], None]


def _unpack(b: Builder, source: Line, target: Line, done: Index, rest: Index) -> tuple[Make, Index]:
    """Packed to a byte each; the source is at a byte."""
    at, width = source.at(done), source.width
    out = b.cast(target.at(done), _WORD, aligned=False)

    def make(i: Index, lanes: int) -> None:
        b.store(out, i, _spread(b, _words(b, at, i, lanes, width), width))

    # A lane of six bytes is loaded as eight.
    return make, _room(b, rest, width)


def _pack(b: Builder, source: Line, target: Line, done: Index, rest: Index) -> tuple[Make, Index]:
    """A byte each to packed; the target is at a byte."""
    at, out, width = b.cast(source.at(done), _WORD, aligned=False), target.at(done), source.width

    def make(i: Index, lanes: int) -> None:
        put_words(b, out, i, gathered(b, b.load(at, i, lanes), width), width)

    return make, _room(b, rest, width)


def _shift(b: Builder, source: Line, target: Line, done: Index, rest: Index) -> tuple[Make, Index]:
    """Packed to packed; the target is at a byte, the source at any bit."""
    at, out, width = source.at(done), target.at(done), source.width
    begin = (source.bit + done * source.step) & 7

    def make(i: Index, lanes: int) -> None:
        words = _words(b, at, i, lanes, width)
        if width in _EIGHT:
            words = b.bit_or(words, b.shift_left(_words(b, at, i + 1, lanes, width), 8 * width))
        words = b.shift_right(words, begin)
        put_words(b, out, i, b.bit_and(words, b.like(words, (1 << 8 * width) - 1)), width)

    # The eight elements after are loaded too, or two bytes beyond six.
    available = (begin + rest * width + 7) // 8
    return make, b.min(available // width - 1 if width in _EIGHT else _sixes(b, available), _room(b, rest, width))


def _fill(b: Builder, source: Line, target: Line, done: Index, rest: Index) -> tuple[Make, Index]:
    """One element to packed; the target is at a byte."""
    out, width = target.at(done), source.width
    code = source.load(0)
    word = code
    for k in range(1, 8):
        word = word | (code << (k * width))
    one = b.from_index(word, _WORD)

    def make(i: Index, lanes: int) -> None:
        put_words(b, out, i, b.splat(one, lanes), width)

    return make, _room(b, rest, width)


def _fill_bytes(b: Builder, source: Line, target: Line, done: Index, rest: Index) -> tuple[Make, Index]:
    """One element to a byte each."""
    out = b.cast(target.at(done), _WORD, aligned=False)
    code = b.from_index(source.load(0), _WORD)
    one = b.mul(code, b.like(code, _every(8, 1)))

    def make(i: Index, lanes: int) -> None:
        b.store(out, i, b.splat(one, lanes))

    return make, rest


def _clean(b: Builder, source: Line, target: Line, done: Index, rest: Index) -> tuple[Make, Index]:
    """A byte each to a byte each, unused bits 0."""
    at = b.cast(source.at(done), _WORD, aligned=False)
    out = b.cast(target.at(done), _WORD, aligned=False)

    def make(i: Index, lanes: int) -> None:
        codes = b.load(at, i, lanes)
        b.store(out, i, b.bit_and(codes, b.like(codes, _every(8, source.width))))

    return make, rest


# How a row whose sides lie so moves eight elements at a time; others move one by one.
EIGHTS = {
    ("packed", "bytes"): _unpack,
    ("bytes", "packed"): _pack,
    ("packed", "packed"): _shift,
    ("same", "packed"): _fill,
    ("same", "bytes"): _fill_bytes,
    ("bytes", "bytes"): _clean,
}


def _room(b: Builder, rest: Index, width: int) -> Index:
    """Eights that may be moved: six bytes move as eight, of which the next move takes the last two."""
    return rest if width in _EIGHT else _sixes(b, rest * width // 8)


def _sixes(b: Builder, size_bytes: Index) -> Index:
    """How often six bytes lie in so many with two more behind them."""
    return b.max(size_bytes - 2, 0) // 6


def _words(b: Builder, at: Pointer, i: Index, lanes: int, width: int) -> Vector:
    """Eights i .. i+lanes-1 from a byte on, each in the low bits of its lane; with six bytes, two more above them."""
    if width in _EIGHT:
        return b.convert(b.load(b.cast(at, _EIGHT[width], aligned=False), i, lanes), _WORD)
    places = [b.cast(b.offset(at, (i + k) * width), _WORD, aligned=False) for k in range(lanes)]
    return b.concat([b.load(place, 0, 1) for place in places])


def put_words(b: Builder, at: Pointer, i: Index, words: Vector, width: int) -> None:
    """The low bits of each lane as eights i, i+1, ... from a byte on."""
    if width in _EIGHT:
        b.store(b.cast(at, _EIGHT[width], aligned=False), i, b.convert(words, _EIGHT[width]))
        return
    for k in range(words.width):
        b.store(b.cast(b.offset(at, (i + k) * width), _WORD, aligned=False), 0, b.slice(words, k, 1))


def _every(pitch: int, ones: int) -> int:
    """`ones` set bits at the bottom of every `pitch` bits of a word."""
    return sum(((1 << ones) - 1) << low for low in range(0, 64, pitch))


def _spread(b: Builder, words: Vector, width: int) -> Vector:
    """Eight elements side by side become a byte each: halves move apart, then quarters, then eighths."""
    for count in (4, 2, 1):
        low = _every(16 * count, width * count)
        moved = b.shift_left(words, count * (8 - width))
        words = _joined(b, words, low, moved, low << 8 * count, width)
    return words


def gathered(b: Builder, words: Vector, width: int) -> Vector:
    """A byte each become eight elements side by side: neighbours join, then pairs, then fours."""
    words = b.bit_and(words, b.like(words, _every(8, width)))
    for count in (1, 2, 4):
        low = _every(16 * count, width * count)
        moved = b.shift_right(words, count * (8 - width))
        words = _joined(b, words, low, moved, low << width * count, width)
    return words


def _joined(b: Builder, x: Vector, x_mask: int, y: Vector, y_mask: int, width: int) -> Vector:
    """x & x_mask | y & y_mask; of at most half a byte, elements do not meet before the masks."""
    if width <= 4:
        return b.bit_and(b.bit_or(x, y), b.like(x, x_mask | y_mask))
    return b.bit_or(b.bit_and(x, b.like(x, x_mask)), b.bit_and(y, b.like(y, y_mask)))
