"""Kernel text that quantises lines: what shares a scale is a block of a line, all of it, or lies in several lines.

A line is cut into chunks of some blocks. Of a chunk the scales of all blocks are found first, as many at a time as a
register has lanes; then its elements are encoded, so that neither waits for the other's divisions. Where several lines
share scales, their largest magnitudes come first, column by column; then each of them is encoded, while those of the
next chunk are asked for. Where each column has a scale, some lines are encoded side by side. Where a whole line
has one scale, that is found before its first chunk; scales that need more than a line are found by other kernels
before. A chunk that is short or does not lie densely is copied to the thread's scratch first, and its results from
there. Start at `text`; `line_chunk` has a chunk's places, `chunk_scales` finds its scales, and its elements are encoded
here.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits.codegen.vocabulary import Builder, Index, Pointer
from samebits.dtypes import float32, uint8, uint64
from samebits.kernels import convert
from samebits.kernels.plan import LINE_BYTES
from samebits.kernels.quantize import chunk_scales, global_text, magnitudes
from samebits.kernels.quantize.codes import copy_bytes, load_pairs, spread, store_pairs
from samebits.kernels.quantize.line_chunk import INDEX, SCALES, ZEROS, LineChunk, LinesText
from samebits.kernels.quantize.scales_text import ScaleTables, find_scales, wanted_parts
from samebits.kernels.quantize.widths import LINE_LANES, LINES_ABREAST, several_and_times
from samebits.kernels.walk import Cursor, numbered, offsets, stretch
from samebits.kernels.words import WordStream

PARAMETERS = (
    "lines", "lines_per_task", "spans", "span", "chunk", "length", "step", "table_size",
    "each", "runs", "height", "line", "line_bytes", "seed", "order", "order_line",
)  # fmt: skip
# Elements of a block of a line from which on what is read next is asked into the first cache, not the second (4096 x
# 4096 of bfloat16, milliseconds by the first and the second: fp8-1x128 3.7 and 4.0, NVFP4 5.3 and 4.9).
_LONG = 128


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
        _QuantizedChunk(LineChunk(b, d, cursor, at, count, n, each, index)).run(found)


class _QuantizedChunk:
    """A chunk being quantised, and the tables of its scales."""

    def __init__(self, chunk: LineChunk) -> None:
        self.b, self.d, self.chunk = chunk.b, chunk.d, chunk
        self.tables = chunk.tables

    def run(self, found: Index | None) -> None:
        """Statistics, scales, elements.

        Args:    found: whether the line's elements need plain encoding, where its scale is found already.
        """
        b, d, chunk = self.b, self.d, self.chunk
        source = None if chunk.has_several_lines else chunk.source(0)
        if d.given:
            self.tables, found = chunk_scales.given(chunk)
        elif d.shared == "block":
            found = chunk_scales.find(chunk, source)
        assert found is not None  # one of three
        if source is not None:
            self._encode_line(0, source, found)
            return
        together: Index = 0
        if d.rows and d.dense and not d.drawn:
            allowed = (found < 1) & (chunk.n >= chunk.padded)
            together = b.choose(allowed, chunk.each // LINES_ABREAST * LINES_ABREAST, 0)
            further = b.index("line") * LINES_ABREAST
            for line in b.loop(0, together, LINES_ABREAST):
                lines = [(chunk.numbers(line + k), chunk.elements(line + k)) for k in range(LINES_ABREAST)]
                ahead = b.choose(
                    line + LINES_ABREAST < together, further, chunk.ahead(further) - line * b.index("line")
                )
                self._encode(lines, False, None, [b.offset(x, ahead) for x, _ in lines])
        for line in b.loop(together, chunk.each):
            self._encode_line(line, chunk.source(line), found)

    def _encode_line(self, line: Index, source: Pointer, found: Index) -> None:
        """Encode the elements of a line."""
        b, d, chunk, width_bits = self.b, self.d, self.chunk, self.d.element.width_bits
        place = chunk.elements(line)
        elements = b.choose(chunk.is_short, chunk.element_room, place)
        words = self._words(line) if d.drawn else None
        if words is None:
            for _ in b.when(found < 1):
                self._encode([(source, elements)], False, None, self._asked(line))
        for _ in b.when(found > 0 if words is None else True):
            self._encode([(source, elements)], True, words)
        for _ in b.when(chunk.is_short):
            copy_bytes(b, elements, place, chunk.n * width_bits // 8)

    def _asked(self, line: Index) -> list[Pointer]:
        """Where those numbers of a line are that are read next: memory would wait while codes are found (4096 x 4096 of
        bfloat16 by one thread, milliseconds without and with that: while another program reads memory NVFP4 7.1 and
        5.7, MXFP8 5.6 and 4.2, alone NVFP4 4.9 and 4.9)."""
        b, d, chunk = self.b, self.d, self.chunk
        if not (d.dense and d.shared == "block"):
            return []
        return [b.offset(chunk.numbers(line), chunk.ahead(chunk.each * b.index("line")))]

    def _words(self, line: Index) -> Pointer:
        """The words of a line's elements, drawn."""
        b, d, chunk = self.b, self.d, self.chunk
        first = chunk.index + line * b.index("order_line") + chunk.at * d.along * b.index("order")
        if d.drawn == "counted":
            return WordStream(b).fill(chunk.word_room, first, chunk.n)
        lanes = b.isa.lanes
        steps = b.mul(b.iota(uint64, lanes), b.splat(b.from_index(b.index("order"), uint64), lanes))
        for i in b.loop(0, chunk.n, lanes):
            start = b.splat(b.from_index(first + i * b.index("order"), uint64), lanes)
            b.store(chunk.word_room, i, WordStream(b).each(b.add(start, steps)))
        return chunk.word_room

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
        b, d, chunk, pairs = self.b, self.d, self.chunk, self.chunk.pairs
        tables = [getattr(self.tables, name) for name in chunk.encoder.takes(b, plain)]
        level = 2 if d.several or (d.shared == "block" and d.along < _LONG) else 1
        of_line = [b.splat(b.load(table, 0, 1), pairs) for table in tables] if d.shared == "line" else []
        several, times = several_and_times(d.along, pairs) if d.shared == "block" else (2 * pairs, 1)
        blocks = d.along if d.shared == "block" else 1
        for at in b.loop(0, chunk.padded // blocks, several):
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
                    codes = chunk.encoder.lanes(b, load_pairs(b, source, i, pairs), even, odd, plain, drawn)
                    store_pairs(b, elements, i // 2, codes, d.element.width_bits)
