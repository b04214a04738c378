"""Kernel text that makes numbers of quantised parts: element * scale, then the global scale. Start at `text`.

Lines are cut into chunks of some blocks. The scales of a chunk become float32 first, then its elements are decoded,
two a lane. A chunk that is short or whose result does not lie densely goes through the thread's scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType, bfloat16, float32, int32, uint8, uint16, uint32
from samebits.frozen import dataclass
from samebits.kernels import convert
from samebits.kernels.quantize.codes import copy_bytes, spread
from samebits.kernels.quantize.widths import ABREAST, lanes_of, several_and_times
from samebits.kernels.walk import Cursor, numbered, stretch

PARAMETERS = (
    "lines", "lines_per_task", "spans", "span", "chunk", "length", "step",
    "each", "runs", "height", "line_out", "line_bytes",
)  # fmt: skip
# The operands of a walk: what is made, elements as bytes, scales, zero points, global scales.
OUT, ELEMENTS, SCALES, ZEROS, WHOLE = range(5)


@dataclass(frozen=True, slots=True)
class ValuesText:
    """What specialises the kernel.

    Attributes:
        element: The format of elements.
        codebook: What their codes mean, where that is not their format's.
        unit: What an element of 1 is.
        scale: The format of scales.
        zero: The format of zero points; None without.
        whole: What a global scale does to the product of element and scale; None without.
        out: The dtype that is made: float32, bfloat16 or float16.
        along: Elements of a block, a power of two of at least 16.
        shared: Whether elements have one scale a block, a line or each its own.
        is_exact: Whether every number is one of bfloat16.
        dense: Whether what is made lies densely along a line.
        above: Whether axes lie above the stretches of lines.
    """

    element: DType
    codebook: tuple[float, ...] | None
    unit: float
    scale: DType
    zero: DType | None
    whole: Literal["multiply", "divide"] | None
    out: DType
    along: int
    shared: Literal["block", "line", "element"]
    is_exact: bool
    dense: bool
    above: bool


def text(b: Builder, d: ValuesText) -> None:
    """Tasks are spans of blocks of some lines, or of some runs of lines, which have the same scales."""
    spans, per_task, span = b.index("spans"), b.index("lines_per_task"), b.index("span")
    along, length = d.along, b.index("length")
    types = (convert.stored(d.out), uint8, convert.stored(d.scale), convert.stored(d.zero or float32), float32)
    lies = ("strided",) * len(types)
    for task in b.tasks():
        first, begin = task // spans * per_task, task % spans * span
        last, end = b.min(first + per_task, b.index("lines")), b.min(begin + span, b.index("n"))
        for number, from_line, to_line in numbered(b, d.above, first, last):
            lines = stretch(b, lies, types, d.above, number, from_line, to_line)
            before = number * b.index("stretch") if d.above else 0
            for r in b.loop(lines.begin, lines.end):
                cursor, each = lines.row(r), b.index("each")
                if d.shared == "element":
                    each = b.min(each, b.index("height") - (before + r) % b.index("runs") * each)
                for at in b.loop(begin, end, b.index("chunk")):
                    count = b.min(b.index("chunk"), end - at)
                    n = b.min(count * along, length - at * along)
                    _DequantizedChunk(b, d, cursor, at, count, n, each).run()


class _DequantizedChunk:
    """`count` blocks of a line from block `at` of it on, `n` elements; of `each` lines where each element along them
    has a scale."""

    def __init__(
        self, b: Builder, d: ValuesText, cursor: Cursor, at: Index, count: Index, n: Index, each: Index
    ) -> None:
        self.b, self.d, self.cursor, self.at, self.count, self.n, self.each = b, d, cursor, at, count, n, each
        self.pairs = ABREAST * lanes_of(b.isa)
        self.is_short = (n < count * d.along) | (n % (2 * self.pairs) > 0)
        along, room = d.along, b.index("chunk") * d.along
        self.elements = b.offset(cursor.places[ELEMENTS], at * (along * d.element.width_bits // 8))
        # The scratch of a thread: scales, zero points, elements, and what is made of a chunk.
        self.factors = b.scratch(float32)
        self.zeros = b.offset(self.factors, room)
        self.out_room = b.cast(b.offset(self.zeros, room), convert.stored(d.out))
        self.element_room = b.cast(b.offset(self.zeros, 2 * room), uint8)

    def run(self) -> None:
        """Numbers of a chunk."""
        b, d = self.b, self.d
        rooms = [self.factors]
        self._table(SCALES, d.scale, self.factors)
        if d.zero is not None:
            rooms.append(self.zeros)
            self._table(ZEROS, d.zero, self.zeros)
        if d.shared != "element":
            self._make(rooms, self.elements, self.cursor.places[OUT])
            return
        for line in b.loop(0, self.each):
            elements = b.offset(self.elements, line * b.index("line_bytes"))
            self._make(rooms, elements, b.offset(self.cursor.places[OUT], line * b.index("line_out")))

    def _make(self, rooms: Sequence[Pointer], elements: Pointer, place: Pointer) -> None:
        """Numbers of a line's chunk.

        Args:    rooms: tables of scales and zero points.   elements: where the chunk is.   place: where the line goes.
        """
        b, d = self.b, self.d
        for _ in b.when(self.is_short):
            copy_bytes(b, elements, self.element_room, self.n * d.element.width_bits // 8)
        elements = b.choose(self.is_short, self.element_room, elements)
        step = b.index("step")
        start = b.offset(place, self.at * d.along * step)
        out = b.choose(self.is_short, self.out_room, start) if d.dense else self.out_room
        several, times = several_and_times(d.along, self.pairs)
        for at in b.loop(0, self.count, several):
            shared = [[self._of_blocks(room, at, several) for room in rooms]] if d.shared != "element" else []
            for k in range(times):
                i = at * d.along + k * 2 * self.pairs
                each = shared * 2 or [[self._of_elements(room, i, odd) for room in rooms] for odd in (0, 1)]
                codes = zip(self._codes(elements, i), each, strict=True)
                self._store(out, i, *[self._number(code, *parts) for code, parts in codes])
        for _ in b.when(self.is_short if d.dense else True):
            for i in b.loop(0, self.n, self.pairs):
                made = b.load(out, i, self.pairs, self.n - i)
                if d.dense:
                    b.store(start, i, made, self.n - i)
                else:
                    b.store_strided(start, i * step, step, made, self.n - i)

    def _table(self, operand: int, dtype: DType, room: Pointer) -> None:
        """Scales or zero points as float32, one for each block, or element, of the chunk."""
        b, d, width = self.b, self.d, self.pairs
        place, along = self.cursor.places[operand], d.along
        if d.shared == "line":
            b.store(room, 0, self._read(place, 0, 1, None, dtype))
            return
        first, count = (self.at, self.count) if d.shared == "block" else (self.at * along, self.n)
        if d.shared == "block":
            for i in b.loop(0, count, width):
                b.store(room, i, self._read(place, first + i, width, count - i, dtype))
            return
        # Of even elements first, then of odd ones, as many as are decoded together.
        for i in b.loop(0, count, 2 * width):
            found = self._read(place, first + i, 2 * width, count - i, dtype)
            for odd in (0, 1):
                b.store(room, i + odd * width, b.pick([found], range(odd, 2 * width, 2)))

    def _read(self, place: Pointer, i: Index, width: int, count: Index | None, dtype: DType) -> Vector:
        b = self.b
        code = b.load(place, i, width, count)
        return b.convert(convert.number(b, b.bitcast(code, dtype)), float32)

    def _codes(self, elements: Pointer, i: Index) -> tuple[Vector, Vector]:
        """The codes of elements i, i+2, ... and i+1, i+3, ..., uint32 or, of floats of 8 bits, uint16."""
        b, width = self.b, self.d.element.width_bits
        if width == 6:
            return self._sixes(b.offset(elements, i // 4 * 3))
        kind = uint8 if width == 4 else uint16
        whole = b.offset(elements, i * width // 8)
        both = b.load(b.cast(whole, kind, aligned=False), 0, self.pairs)
        if width < 8 or self.d.element.is_integer:
            both = b.convert(both, uint32)
        return b.bit_and(both, b.like(both, (1 << width) - 1)), b.shift_right(both, width)

    def _sixes(self, start: Pointer) -> tuple[Vector, Vector]:
        """Four elements are 24 bits, and four such are three words."""
        b, n = self.b, self.pairs // 2
        words = b.load(b.cast(start, uint32, aligned=False), 0, n, n * 3 // 4)
        first, second = [3 * k // 4 for k in range(n)], [min(3 * k // 4 + 1, n - 1) for k in range(n)]
        turn = b.bit_and(b.convert(b.iota(uint8, n), uint32), b.like(words, 3))
        bits = b.shift_left(b.bit_and(b.mul(turn, b.like(turn, 3)), b.like(turn, 3)), 3)
        fours = b.bit_or(
            b.shift_right(b.pick([words], first), bits),
            # By 32 in two steps where nothing is left over.
            b.shift_left(b.shift_left(b.pick([words], second), 1), b.sub(b.like(bits, 31), bits)),
        )
        each = [b.bit_and(b.shift_right(fours, 6 * k), b.like(fours, 63)) for k in range(4)]
        order = [k // 2 + k % 2 * n for k in range(2 * n)]
        return b.pick([each[0], each[2]], order), b.pick([each[1], each[3]], order)

    def _number(self, code: Vector, factor: Vector, zero: Vector | None = None) -> Vector:
        """The numbers that elements stand for."""
        b, d = self.b, self.d
        x = self._value(code)
        if zero is not None:
            x = b.sub(x, zero)
        x = b.mul(x, factor)
        if d.whole is None:
            return x
        whole = b.splat(b.load(self.cursor.places[WHOLE], 0, 1), self.pairs)
        return b.mul(x, whole) if d.whole == "multiply" else b.div(x, whole)

    def _value(self, code: Vector) -> Vector:
        """What codes mean, float32."""
        b, d = self.b, self.d
        table, sign = d.codebook, 1 << (d.element.width_bits - 1)
        if table is None and d.element.width_bits < 8 and "lookup" in b.isa.instructions:
            table = tuple(float(d.element.decode(k)) for k in range(2 * sign if sign <= 8 else sign))
        if table is not None:
            index = b.bitcast(b.bit_and(code, b.like(code, len(table) - 1)), int32)
            found = b.lookup(table, float32, index)
            if len(table) > sign:
                return found
            signs = b.shift_left(b.bit_and(code, b.like(code, sign)), 32 - d.element.width_bits)
            return b.bitcast(b.bit_or(b.bitcast(found, uint32), signs), float32)
        if d.element.is_integer:
            whole = b.convert(convert.integer(b, code, d.element), float32)
            return whole if d.unit == 1 else b.mul(whole, b.like(whole, d.unit))
        return convert.decode(b, code, d.element, often_subnormal=True)

    def _of_blocks(self, room: Pointer, at: Index, several: int) -> Vector:
        """A number of each of some blocks, or of the line, in the lanes of its pairs."""
        b = self.b
        if self.d.shared == "line":
            return b.splat(b.load(room, 0, 1), self.pairs)
        return spread(b, b.load(room, at, several), self.pairs)

    def _of_elements(self, room: Pointer, i: Index, odd: int) -> Vector:
        """A number each of elements i + odd, i + odd + 2, ..."""
        return self.b.load(room, i + odd * self.pairs, self.pairs)

    def _store(self, out: Pointer, i: Index, even: Vector, odd: Vector) -> None:
        b, d = self.b, self.d
        if d.out is float32:
            order = [k // 2 + k % 2 * self.pairs for k in range(2 * self.pairs)]
            b.store(out, i, b.canonical(b.pick([even, odd], order)))
            return
        low, high = (b.convert(self._narrowed(x), uint32) for x in (even, odd))
        both = b.bit_or(low, b.shift_left(high, 16))
        b.store(b.cast(b.offset(out, i), uint32, aligned=False), 0, both)

    def _narrowed(self, x: Vector) -> Vector:
        """The code of x in the format that is made."""
        b, d = self.b, self.d
        if d.out is not bfloat16 or not d.is_exact:
            return convert.encode(b, x, d.out)
        code = b.shift_right(b.bitcast(x, uint32), 16)
        nan = bfloat16.canonical_nan
        assert nan is not None
        return b.convert(b.select(b.is_nan(x), b.like(code, nan), code), uint16)
