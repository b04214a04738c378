"""Kernel text that quantises lines of blocks: elements side by side share a scale. Start at `text`.

A line is cut into chunks of some blocks. Of a chunk the scales of all blocks are found first, as many at a time as a
register has lanes; then its elements are encoded, so that neither waits for the other's divisions. A chunk that is
short or does not lie densely is copied to the thread's scratch first, and its results from there.
"""

from __future__ import annotations

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType, float32, uint8, uint32
from samebits.frozen import dataclass
from samebits.kernels import convert, values
from samebits.kernels.quantize import magnitudes
from samebits.kernels.quantize.codes import Encoder, load_pairs, store_pairs
from samebits.kernels.quantize.formulas import Formulas
from samebits.kernels.walk import Cursor, numbered, stretch

PARAMETERS = ("elements", "scales", "lines", "lines_per_task", "blocks", "spans", "span", "chunk")
_WIDEST, _NARROWEST = 16, 4
# Vectors that are computed side by side, so that one does not wait for what it has just begun.
ABREAST = 2


@dataclass(frozen=True, slots=True)
class LinesText:
    """What specialises the kernel.

    Attributes:
        x: The dtype of what is quantised.
        element: The format of elements, as `codes` has it.
        scale: The format of scales.
        along: Elements of a block, a power of two of at least 16.
        formulas: How scales and codes are found.
        lie: How x lies along a line, as `walk` names it.
        above: Whether axes lie above the stretches of lines.
    """

    x: DType
    element: DType
    scale: DType
    along: int
    formulas: Formulas
    lie: str
    above: bool


def lanes_of(isa: Isa) -> int:
    """Blocks whose scales are found at a time, and pairs of elements that are encoded at a time."""
    return min(_WIDEST, max(_NARROWEST, 1 << isa.lanes.bit_length() - 1))


def text(b: Builder, d: LinesText) -> None:
    """Tasks are spans of blocks of some lines."""
    spans, per_task, blocks = b.index("spans"), b.index("lines_per_task"), b.index("blocks")
    for task in b.tasks():
        first, begin = task // spans * per_task, task % spans * b.index("span")
        last, end = b.min(first + per_task, b.index("lines")), b.min(begin + b.index("span"), blocks)
        for number, from_line, to_line in numbered(b, d.above, first, last):
            lines = stretch(b, (d.lie, "same"), (d.x, float32), d.above, number, from_line, to_line)
            before = number * b.index("stretch") if d.above else 0
            for r in b.loop(lines.begin, lines.end):
                cursor = lines.row(r)
                for at in b.loop(begin, end, b.index("chunk")):
                    count = b.min(b.index("chunk"), end - at)
                    _QuantizedChunk(b, d, cursor, at, count, (before + r) * blocks + at).run()


class _QuantizedChunk:
    """Some blocks of one line: `count` from block `at` of it on, whose results begin at block `place`."""

    def __init__(self, b: Builder, d: LinesText, cursor: Cursor, at: Index, count: Index, place: Index) -> None:
        self.b, self.d, self.cursor, self.at, self.count = b, d, cursor, at, count
        self.lanes = lanes_of(b.isa)
        self.groups = (count + (self.lanes - 1)) // self.lanes
        self.block_bytes = d.along * d.element.width_bits // 8
        self.is_short = count % self.lanes > 0
        self.elements = b.offset(b.pointer("elements", uint8), place * self.block_bytes)
        self.scales = b.offset(b.pointer("scales", uint8), place * d.scale.size_bytes)
        chunk, self.encoder = (
            b.index("chunk"),
            Encoder(d.element, d.formulas.element, d.scale.is_float and d.scale.mantissa_bits == 0),
        )
        # The scratch of a thread: of each block of a chunk the factor, its inverse, the code of NaN, and the scale; x
        # and elements.
        self.factors = b.scratch(float32)
        self.inverses = b.offset(self.factors, chunk)
        self.nans = b.cast(b.offset(self.inverses, chunk), uint32)
        self.scale_room = b.cast(b.offset(self.nans, chunk), uint8)
        self.x_room = b.cast(b.offset(self.nans, 2 * chunk), d.x)
        self.element_room = b.cast(b.offset(self.x_room, chunk * d.along), uint8)

    def run(self) -> None:
        """Statistics, scales, elements, and what was written to scratch."""
        b, d = self.b, self.d
        source = self._source()
        self._find_magnitudes(source)
        plain = self._find_scales()
        copy_bytes(b, self.scale_room, self.scales, self.count * d.scale.size_bytes)
        elements = b.choose(self.is_short, self.element_room, self.elements)
        for _ in b.when(plain < 1):
            self._encode(source, elements, False)
        for _ in b.when(plain > 0):
            self._encode(source, elements, True)
        for _ in b.when(self.is_short):
            copy_bytes(b, elements, self.elements, self.count * self.block_bytes)

    def _source(self) -> Pointer:
        """Where the elements lie densely, with room for whole groups."""
        b, d = self.b, self.d
        begin, n, room = self.at * d.along, self.count * d.along, self.x_room
        copied = self.is_short if d.lie == "unit" else True
        for _ in b.when(copied):
            for i in b.loop(0, n, self.lanes):
                b.store(room, i, self.cursor.load(0, begin + i, self.lanes))
            for i in b.loop(n, self.groups * self.lanes * d.along, self.lanes):
                code = b.constant(0, convert.stored(d.x), self.lanes)
                b.store(room, i, b.bitcast(code, d.x))
        return room if copied is True else b.choose(copied, room, b.offset(self.cursor.places[0], begin))

    def _find_magnitudes(self, source: Pointer) -> None:
        """The largest magnitude of each block, where its factor will be; 0 behind the last."""
        b, d, n = self.b, self.d, self.lanes
        for g in b.loop(0, self.groups):
            code = magnitudes.of_blocks(b, source, g * (n * d.along), d.along, n)
            b.store(self.factors, g * n, magnitudes.number(b, code, d.x))
        for g in b.loop(self.groups, b.index("chunk") // n):
            b.store(self.factors, g * n, b.constant(0.0, float32, n))

    def _find_scales(self) -> Index:
        """The scales of all blocks, and their factors; whether a block's elements need plain encoding."""
        b, d, n = self.b, self.d, ABREAST * self.lanes
        rule = d.formulas.element
        unit = [b.splat(self.cursor.load_one(1), n)] if d.formulas.whole is not None else []
        seen = [b.constant(0, uint32, n)]
        for i in b.loop(0, self.count, n, seen):
            amax = b.load(self.factors, i, n)
            (scale,) = values.emit(b, d.formulas.scale, [amax, *unit], n)
            (factor,) = values.emit(b, d.formulas.factor, [scale, amax, *unit], n)
            (nan,) = values.emit(b, d.formulas.nan, [scale, amax, *unit], n)
            b.store(b.cast(self.scale_room, convert.stored(d.scale)), i, b.bitcast(scale, convert.stored(d.scale)))
            b.store(self.nans, i, b.convert(nan, uint32))
            if rule.apply == "divide":
                # Of zeros any factor makes zeros, but one that is zero or NaN.
                empty = b.bit_and(b.equal(amax, b.like(amax, 0.0)), b.less(b.like(amax, 0.0), factor))
                factor = b.select(empty, b.like(factor, 1.0), factor)
                b.store(self.inverses, i, b.div(b.like(factor, 1.0), factor))
            b.store(self.factors, i, factor)
            seen[0] = b.bit_or(seen[0], b.convert(self.encoder.is_plain(b, amax, factor), uint32))
        return b.choose(b.any(b.equal(seen[0], b.like(seen[0], 1))), 1, 0)

    def _encode(self, source: Pointer, elements: Pointer, plain: bool) -> None:
        """Encode the elements of all groups."""
        b, d, pairs = self.b, self.d, ABREAST * self.lanes
        rooms = {"factor": self.factors, "inverse": self.inverses, "nan": self.nans}
        tables = [rooms[name] for name in self.encoder.takes(plain)]
        several, times = several_and_times(d.along, pairs)
        for at in b.loop(0, self.groups * self.lanes, several):
            of_block = [spread(b, b.load(table, at, several), pairs) for table in tables]
            for k in range(times):
                i = at * d.along + k * 2 * pairs
                codes = self.encoder.lanes(b, load_pairs(b, source, i, pairs), of_block, plain)
                store_pairs(b, elements, i // 2, codes, d.element.width_bits)


def several_and_times(along: int, pairs: int) -> tuple[int, int]:
    """How many blocks a vector of pairs has, and how many vectors a block."""
    return max(1, 2 * pairs // along), max(1, along // (2 * pairs))


def spread(b: Builder, of_block: Vector, pairs: int) -> Vector:
    """A number a block in the lanes of its pairs."""
    several = of_block.width
    if several == 1:
        return b.splat(of_block, pairs)
    return b.pick([of_block], [k * several // pairs for k in range(pairs)])


def copy_bytes(b: Builder, source: Pointer, target: Pointer, n: Index) -> None:
    """n bytes, nothing else."""
    width = 4 * b.isa.lanes
    for i in b.loop(0, n, width):
        b.store(target, i, b.load(source, i, width, n - i), n - i)
