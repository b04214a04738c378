"""Kernel text that quantises lines: what shares a scale is a block of a line, all of it, or lies in several lines.

A line is cut into chunks of some blocks. Of a chunk the scales of all blocks are found first, as many at a time as a
register has lanes; then its elements are encoded, so that neither waits for the other's divisions. Where several lines
share scales, their largest magnitudes come first, column by column; then each of them is encoded, while those of the
next chunk are asked for. Where each column has a scale, some lines are encoded side by side. Where a whole line
has one scale, that is found before its first chunk; scales that need more than a line are found by other kernels
before. A chunk that is short or does not lie densely is copied to the thread's scratch first, and its results from
there. Start at `text`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType, float32, uint8, uint32, uint64
from samebits.frozen import dataclass, replace
from samebits.kernels import convert
from samebits.kernels.plan import LINE_BYTES
from samebits.kernels.quantize import choice_text, global_text, magnitudes
from samebits.kernels.quantize.codes import Encoder, load_pairs, spread, store_pairs
from samebits.kernels.quantize.formulas import Formulas
from samebits.kernels.quantize.scales_text import ScalesText, ScaleTables, find_scales, wanted_parts
from samebits.kernels.walk import Cursor, numbered, offsets, stretch
from samebits.kernels.words import WordStream, words_room

PARAMETERS = (
    "lines", "lines_per_task", "spans", "span", "chunk", "length", "step", "table_size",
    "each", "runs", "height", "line", "line_bytes", "seed", "order", "order_line",
)  # fmt: skip
# The operands of a walk: x, the global scale, elements as bytes, scales or their tables, zero points; and the row-major
# index of an element, by which words are drawn, which lies nowhere.
X, WHOLE, ELEMENTS, SCALES, ZEROS, INDEX = range(6)
_WIDEST, _NARROWEST = 16, 4
# Vectors that are computed side by side, so that one does not wait for what it has just begun.
ABREAST = 2
# As many scales as a narrow vector has, where there are few.
LINE_LANES = 4
# Lines that are walked side by side, so that what belongs to their columns is read once for so many.
ROWS = 4
# Elements of a block of a line from which on what is read next is asked into the first cache, not the second (4096 x
# 4096 of bfloat16, milliseconds by the first and the second: fp8-1x128 3.7 and 4.0, NVFP4 5.3 and 4.9).
_LONG = 128
# Elements of a strided line that are loaded at a time.
_STRIDED = 8


Shared = Literal["block", "line", "element"]
"""What has one scale along a line."""


@dataclass(frozen=True, slots=True)
class LinesText:
    """What specialises the kernel.

    Attributes:
        x: The dtype of what is quantised.
        element: The format of elements, as `codes` has it.
        codebook: What their codes mean, where that is not their format's.
        scale: The format of scales.
        zero: The format of zero points; None without.
        along: Elements of a block along a line, a power of two of at least 16; what is taken for one where elements
            have no blocks along it.
        shared: Whether elements have one scale a block, a line or each its own.
        given: Whether the scales are found by other kernels before.
        several: Whether blocks have several lines.
        formulas: How scales and codes are found.
        dense: Whether x lies densely along a line.
        above: Whether axes lie above the stretches of lines.
        drawn: How the indices of a line's elements are, by which words are drawn for stochastic rounding: `counted` one
            by one, or `apart`; nothing where codes are nearest.
        height: Lines of a block.
        rows: Whether runs of lines are walked of which each element along them has a scale.
    """

    x: DType
    element: DType
    codebook: tuple[float, ...] | None
    scale: DType
    zero: DType | None
    along: int
    shared: Shared
    given: bool
    several: bool
    formulas: Formulas
    dense: bool
    above: bool
    drawn: Literal["", "counted", "apart"] = ""
    height: int = 1
    rows: bool = False

    @property
    def of_scales(self) -> ScalesText:
        """How the scales of some blocks are found."""
        return ScalesText(self.x, self.scale, self.zero, self.encoder, self.formulas)

    @property
    def encoder(self) -> Encoder:
        """How numbers become codes."""
        powers = self.scale.is_float and self.scale.mantissa_bits == 0
        return Encoder(self.x, self.element, self.formulas.element, powers, self.zero, self.codebook, bool(self.drawn))


def lanes_of(isa: Isa) -> int:
    """Blocks whose scales are found at a time, and pairs of elements that are encoded at a time."""
    return min(_WIDEST, max(_NARROWEST, 1 << isa.lanes.bit_length() - 1))


def text(b: Builder, d: LinesText) -> None:
    """Tasks are spans of blocks of some lines, or of some runs of lines that share scales."""
    spans, per_task, span = b.index("spans"), b.index("lines_per_task"), b.index("span")
    scale = float32 if d.given else convert.stored(d.scale)
    types = [d.x, float32, uint8, scale, convert.stored(d.zero or float32), *[uint8] * bool(d.drawn)]
    lies = ["unit" if d.dense else "strided", *["strided"] * (len(types) - 1)]
    for task in b.tasks():
        first, begin = task // spans * per_task, task % spans * span
        last, end = b.min(first + per_task, b.index("lines")), b.min(begin + span, b.index("n"))
        for number, from_line, to_line in numbered(b, d.above, first, last):
            lines = stretch(b, lies, types, d.above, number, from_line, to_line)
            before = number * b.index("stretch") if d.above else 0
            for r in b.loop(lines.begin, lines.end):
                each: Index = 1
                if d.several or d.rows:
                    each = b.min(b.index("each"), b.index("height") - (before + r) % b.index("runs") * b.index("each"))
                index: Index = 0
                if d.drawn:
                    start = offsets(b, len(types), number)[INDEX] if d.above else 0
                    index = start + r * b.index(f"x{INDEX}.stretch")
                _quantize_lines(b, d, lines.row(r), begin, end, each, index)


def _quantize_lines(
    b: Builder, d: LinesText, cursor: Cursor, begin: Index, end: Index, each: Index, index: Index
) -> None:
    """Blocks begin .. end-1 of a line, or of so many lines that share scales; `index` is that of its first element."""
    along, length, found = d.along, b.index("length"), None
    if d.shared == "line" and not d.given:
        tables = ScaleTables.at(b, b.scratch(float32), LINE_LANES)
        for k, part in enumerate(wanted_parts(d.formulas)):
            code = global_text.of_line(b, cursor, d.x, part, 0, length)
            b.store(tables.statistics[k], 0, b.splat(magnitudes.number(b, code, d.x), LINE_LANES))
        found = find_scales(b, d.of_scales, tables, [], cursor.places[SCALES], cursor.places[ZEROS], 1, LINE_LANES)
    for at in b.loop(begin, end, b.index("chunk")):
        count = b.min(b.index("chunk"), end - at)
        n = b.min(count * along, length - at * along)
        _QuantizedChunk(b, d, cursor, at, count, n, each, index).run(found)


class _QuantizedChunk:
    """`count` blocks of a line from block `at` of it on, `n` elements; or of `each` lines."""

    def __init__(
        self, b: Builder, d: LinesText, cursor: Cursor, at: Index, count: Index, n: Index, each: Index, index: Index
    ) -> None:
        self.b, self.d, self.cursor, self.at, self.count, self.n, self.each = b, d, cursor, at, count, n, each
        self.index = index
        self.lanes = LINE_LANES if d.several else lanes_of(b.isa)
        self.pairs = ABREAST * lanes_of(b.isa)
        self.encoder, chunk = d.encoder, b.index("chunk")
        # Whole vectors of elements, and whole groups of blocks where their largest magnitudes are found together.
        together, used = 2 * self.pairs, n
        if d.shared == "block":
            together, used = (together, count * d.along) if d.several else (self.lanes * d.along, n)
        self.padded = (used + (together - 1)) // together * together
        self.is_short = n < self.padded
        # The scratch of a thread: the tables of scales, largest magnitudes of columns, x, and elements.
        start = b.scratch(float32)
        capacity = LINE_LANES if d.shared == "line" else chunk
        self.tables = ScaleTables.at(b, start, capacity)
        self.top_room = b.cast(b.offset(start, ScaleTables.SIZE * capacity), d.x)
        self.x_room = b.offset(self.top_room, chunk * d.along if d.several else 0)
        self.word_room = b.cast(b.offset(self.x_room, chunk * d.along), uint32)
        words = chunk * d.along + words_room(b.isa.lanes) if d.drawn else 0
        self.element_room = b.cast(b.offset(self.word_room, words), uint8)
        if d.formulas.other is not None:  # of a second scale: tables, errors of lines by both, and the scales
            start = b.cast(b.offset(self.element_room, chunk * d.along * d.element.width_bits // 8), float32)
            self.second = ScaleTables.at(b, start, chunk)
            rooms = [b.offset(start, (ScaleTables.SIZE + k * d.height) * chunk) for k in range(3)]
            self.error_rooms, self.scale_room = (rooms[0], rooms[1]), b.cast(rooms[2], convert.stored(d.scale))

    def run(self, found: Index | None) -> None:
        """Statistics, scales, elements.

        Args:    found: whether the line's elements need plain encoding, where its scale is found already.
        """
        b, d = self.b, self.d
        source = None if d.several or d.rows else self._source(0)
        if d.given:
            found = self._given()
        elif d.shared == "block":
            self._find_magnitudes(self._largest() if source is None else source)
            found = self._find_scales() if d.formulas.other is None else self._choose_scales(source)
        assert found is not None  # one of three
        if source is not None:
            self._encode_line(0, source, found)
            return
        together: Index = 0
        if d.rows and d.dense and not d.drawn:
            together = b.choose((found < 1) & (self.n >= self.padded), self.each // ROWS * ROWS, 0)
            further = b.index("line") * ROWS
            for line in b.loop(0, together, ROWS):
                lines = [(self._numbers(line + k), self._elements(line + k)) for k in range(ROWS)]
                ahead = b.choose(line + ROWS < together, further, self._ahead(further) - line * b.index("line"))
                self._encode(lines, False, None, [b.offset(x, ahead) for x, _ in lines])
        for line in b.loop(together, self.each):
            self._encode_line(line, self._source(line), found)

    def _ahead(self, further: Index) -> Index:
        """How far behind this chunk the next one is: in the same lines, or in those that are `further` on."""
        b, along = self.b, self.d.along
        is_last = self.at + b.index("chunk") >= b.index("n")
        return b.choose(is_last, further - self.at * along, b.index("chunk") * along)

    def _line(self, line: Index) -> Pointer:
        """Where a line begins."""
        b, d = self.b, self.d
        apart = d.several or d.rows
        return b.offset(self.cursor.places[X], line * b.index("line")) if apart else self.cursor.places[X]

    def _numbers(self, line: Index) -> Pointer:
        """Where the numbers of a line's chunk are, if they lie densely."""
        return self.b.offset(self._line(line), self.at * self.d.along)

    def _elements(self, line: Index) -> Pointer:
        """Where the elements of a line's chunk go."""
        b, d = self.b, self.d
        place = self.cursor.places[ELEMENTS]
        if d.several or d.rows:
            place = b.offset(place, line * b.index("line_bytes"))
        return b.offset(place, self.at * (d.along * d.element.width_bits // 8))

    def _source(self, line: Index) -> Pointer:
        """Where the elements of a line lie densely, with room for whole groups."""
        b, d, room = self.b, self.d, self.x_room
        place = self._line(line)
        begin, width = self.at * d.along, min(self.pairs // ABREAST, _STRIDED)
        copied = self.is_short if d.dense else True
        for _ in b.when(copied):
            for i in b.loop(0, self.padded, width):
                rest = b.max(self.n - i, 0)
                if d.dense:
                    b.store(room, i, b.load(place, begin + i, width, rest))
                else:
                    step = b.index("step")
                    b.store(room, i, b.load_strided(place, (begin + i) * step, step, width, rest))
        return room if copied is True else b.choose(copied, room, b.offset(place, begin))

    def _largest(self) -> Pointer:
        """The largest magnitude of each column of the lines, as a code of x's dtype."""
        b, d, width = self.b, self.d, self.pairs
        codes = magnitudes.codes_of(d.x)
        room = b.cast(self.top_room, codes)
        for i in b.loop(0, self.padded, width):
            b.store(room, i, b.constant(0, codes, width))
        together: Index = 0
        if d.dense:
            together = b.choose(self.n >= self.padded, self.each // ROWS * ROWS, 0)
            for line in b.loop(0, together, ROWS):
                self._add_largest(room, [self._numbers(line + k) for k in range(ROWS)])
        for line in b.loop(together, self.each):
            self._add_largest(room, [self._source(line)])
        return self.top_room

    def _add_largest(self, room: Pointer, lines: Sequence[Pointer]) -> None:
        """Take some lines into the largest magnitudes of columns."""
        b, width = self.b, self.pairs
        for i in b.loop(0, self.padded, width):
            found = b.load(room, i, width)
            for line in lines:
                found = b.maximum(found, magnitudes.load(b, line, i, width))
            b.store(room, i, found)

    def _find_magnitudes(self, source: Pointer) -> None:
        """The largest magnitudes of each block, where its factor will be; 0 behind the last."""
        b, d, n = self.b, self.d, self.lanes
        groups = (self.count + (n - 1)) // n
        parts = wanted_parts(d.formulas)
        targets = self.tables.statistics[: len(parts)]
        for g in b.loop(0, groups):
            codes = [magnitudes.of_blocks(b, source, g * (n * d.along), d.along, n, part) for part in parts]
            for target, code in zip(targets, codes, strict=True):
                b.store(target, g * n, magnitudes.number(b, code, d.x))
        for g in b.loop(groups, b.index("chunk") // n):
            for target in targets:
                b.store(target, g * n, b.constant(0.0, float32, n))

    def _find_scales(self) -> Index:
        """The scales of all blocks, and their factors; whether a block's elements need plain encoding."""
        width = ABREAST * self.lanes
        return find_scales(self.b, self.d.of_scales, self.tables, *self._stored(), self.count, width)

    def _choose_scales(self, source: Pointer | None) -> Index:
        """As `_find_scales`, of each block the one of two by which the squared error is less."""
        b, d, n, chunk = self.b, self.d, ABREAST * self.lanes, self.b.index("chunk")
        for i in b.loop(0, chunk, n):
            b.store(self.second.statistics[0], i, b.load(self.tables.statistics[0], i, n))
        first, (_, scales, zeros) = self._find_scales(), self._stored()
        assert d.formulas.other is not None  # the caller looked
        other = replace(d.of_scales, formulas=replace(d.formulas, scale=d.formulas.other, other=None))
        both = self.tables, self.second
        found = find_scales(b, other, self.second, self._stored()[0], self.scale_room, zeros, self.count, n)
        found = b.choose(first > 0, first, found)
        blocks = self.padded // d.along
        for tables, room in zip(both, self.error_rooms, strict=True):
            for i in b.loop(0, d.height * chunk, n):
                b.store(room, i, b.constant(0.0, float32, n))
            for plain in (False, True):
                for _ in b.when(found > 0 if plain else found < 1):
                    for line in b.loop(0, self.each):
                        x = self._source(line) if source is None else source
                        place = b.offset(room, line * chunk)
                        choice_text.line_errors(b, self.encoder, tables, x, place, d.along, self.pairs, blocks, plain)
            choice_text.joined_lines(b, room, d.height, chunk, self.count, n)
        choice_text.keep_better(b, both, self.error_rooms, (scales, self.scale_room), self.count, n)
        return found

    def _stored(self) -> tuple[list[Vector], Pointer, Pointer]:
        """The global scale if there is one, in each lane, and where the scales and the zero points of blocks go."""
        b, d, n = self.b, self.d, ABREAST * self.lanes
        unit = [b.splat(b.load(self.cursor.places[WHOLE], 0, 1), n)] if d.formulas.whole is not None else []
        scales, zeros = (b.offset(self.cursor.places[k], self.at) for k in (SCALES, ZEROS))
        return unit, scales, zeros

    def _given(self) -> Index:
        """Take the tables of scales that were found before; whether elements need plain encoding."""
        b, d = self.b, self.d
        start = self.cursor.places[SCALES]
        if d.shared == "line":
            self.tables = ScaleTables.at(b, start, b.index("table_size"))
            return b.load_index(self.tables.plain, 0)
        self.tables = ScaleTables.at(b, b.offset(start, self.at * d.along), b.index("table_size"))
        seen = [b.constant(0, uint32, self.pairs)]
        for i in b.loop(0, self.padded, self.pairs, seen):
            seen[0] = b.bit_or(seen[0], b.load(self.tables.plain, i, self.pairs))
        return b.choose(b.any(b.equal(seen[0], b.like(seen[0], 1))), 1, 0)

    def _encode_line(self, line: Index, source: Pointer, found: Index) -> None:
        """Encode the elements of a line."""
        b, d, width_bits = self.b, self.d, self.d.element.width_bits
        place = self._elements(line)
        elements = b.choose(self.is_short, self.element_room, place)
        words = self._words(line) if d.drawn else None
        if words is None:
            for _ in b.when(found < 1):
                self._encode([(source, elements)], False, None, self._asked(line))
        for _ in b.when(found > 0 if words is None else True):
            self._encode([(source, elements)], True, words)
        for _ in b.when(self.is_short):
            copy_bytes(b, elements, place, self.n * width_bits // 8)

    def _asked(self, line: Index) -> list[Pointer]:
        """Where those numbers of a line are that are read next: memory would wait while codes are found (4096 x 4096 of
        bfloat16 by one thread, milliseconds without and with that: while another program reads memory NVFP4 7.1 and
        5.7, MXFP8 5.6 and 4.2, alone NVFP4 4.9 and 4.9)."""
        b, d = self.b, self.d
        if not (d.dense and d.shared == "block"):
            return []
        return [b.offset(self._numbers(line), self._ahead(self.each * b.index("line")))]

    def _words(self, line: Index) -> Pointer:
        """The words of a line's elements, drawn."""
        b, d = self.b, self.d
        first = self.index + line * b.index("order_line") + self.at * d.along * b.index("order")
        if d.drawn == "counted":
            return WordStream(b).fill(self.word_room, first, self.n)
        lanes = b.isa.lanes
        steps = b.mul(b.iota(uint64, lanes), b.splat(b.from_index(b.index("order"), uint64), lanes))
        for i in b.loop(0, self.n, lanes):
            start = b.splat(b.from_index(first + i * b.index("order"), uint64), lanes)
            b.store(self.word_room, i, WordStream(b).each(b.add(start, steps)))
        return self.word_room

    def _encode(
        self,
        lines: Sequence[tuple[Pointer, Pointer]],
        plain: bool,
        words: Pointer | None,
        ahead: Sequence[Pointer] = (),
    ) -> None:
        """Encode all groups of elements of some lines.

        Args:    lines: where their numbers are, and where their codes go.   ahead: where those are that are read next.
        """
        b, d, pairs = self.b, self.d, self.pairs
        tables = [getattr(self.tables, name) for name in self.encoder.takes(b, plain)]
        level = 2 if d.several or (d.shared == "block" and d.along < _LONG) else 1
        of_line = [b.splat(b.load(table, 0, 1), pairs) for table in tables] if d.shared == "line" else []
        several, times = several_and_times(d.along, pairs) if d.shared == "block" else (2 * pairs, 1)
        blocks = d.along if d.shared == "block" else 1
        for at in b.loop(0, self.padded // blocks, several):
            even = odd = of_line
            if d.shared == "block":
                even = odd = [spread(b, b.load(table, at, several), pairs) for table in tables]
            elif d.shared == "element":
                even, odd = ([b.load(table, at + k * pairs, pairs) for table in tables] for k in (0, 1))
            for k in range(times):
                i = at * blocks + k * 2 * pairs
                drawn = None
                if words is not None:
                    word = b.load(words, i, 2 * pairs)
                    drawn = b.pick([word], range(0, 2 * pairs, 2)), b.pick([word], range(1, 2 * pairs, 2))
                for x in ahead:
                    for j in range(0, 2 * pairs, LINE_BYTES // d.x.size_bytes):
                        b.prefetch(x, i + j, level)
                for source, elements in lines:
                    codes = self.encoder.lanes(b, load_pairs(b, source, i, pairs), even, odd, plain, drawn)
                    store_pairs(b, elements, i // 2, codes, d.element.width_bits)


def several_and_times(along: int, pairs: int) -> tuple[int, int]:
    """How many blocks a vector of pairs has, and how many vectors a block."""
    return max(1, 2 * pairs // along), max(1, along // (2 * pairs))


def copy_bytes(b: Builder, source: Pointer, target: Pointer, n: Index) -> None:
    """n bytes, nothing else."""
    width = 4 * b.isa.lanes
    for i in b.loop(0, n, width):
        b.store(target, i, b.load(source, i, width, n - i), n - i)
