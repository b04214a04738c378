"""What the kernel that quantises lines is specialised by, and one chunk of lines: where its numbers are, where its
elements go, and what of the thread's scratch it has. Start at `LineChunk`; the kernel is `lines_text`.
"""

from __future__ import annotations

from typing import Literal

from samebits.codegen.vocabulary import Builder, Index, Pointer
from samebits.dtypes import DType, float32, uint8, uint32
from samebits.frozen import dataclass
from samebits.kernels import convert
from samebits.kernels.quantize.codes import Encoder
from samebits.kernels.quantize.formulas import Formulas
from samebits.kernels.quantize.scales_text import ScalesText, ScaleTables
from samebits.kernels.quantize.widths import ABREAST, LINE_LANES, lanes_of
from samebits.kernels.walk import Cursor
from samebits.kernels.words import words_room

# The operands of a walk: x, the global scale, elements as bytes, scales or their tables, zero points; and the row-major
# index of an element, by which words are drawn, which lies nowhere.
X, WHOLE, ELEMENTS, SCALES, ZEROS, INDEX = range(6)
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


class LineChunk:
    """`count` blocks of a line from block `at` of it on, `n` elements; or of `each` lines. `index` is that of the first
    element of the first line."""

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

    @property
    def has_several_lines(self) -> bool:
        """Whether it has several lines."""
        return self.d.several or self.d.rows

    def ahead(self, further: Index) -> Index:
        """How far behind this chunk the next one is: in the same lines, or in those that are `further` on."""
        b, along = self.b, self.d.along
        is_last = self.at + b.index("chunk") >= b.index("n")
        return b.choose(is_last, further - self.at * along, b.index("chunk") * along)

    def _line(self, line: Index) -> Pointer:
        """Where a line begins."""
        b, place = self.b, self.cursor.places[X]
        return b.offset(place, line * b.index("line")) if self.has_several_lines else place

    def numbers(self, line: Index) -> Pointer:
        """Where the numbers of a line's chunk are, if they lie densely."""
        return self.b.offset(self._line(line), self.at * self.d.along)

    def elements(self, line: Index) -> Pointer:
        """Where the elements of a line's chunk go."""
        b, d, place = self.b, self.d, self.cursor.places[ELEMENTS]
        if self.has_several_lines:
            place = b.offset(place, line * b.index("line_bytes"))
        return b.offset(place, self.at * (d.along * d.element.width_bits // 8))

    def source(self, line: Index) -> Pointer:
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
