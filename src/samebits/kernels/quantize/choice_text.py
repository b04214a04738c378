"""Kernel text that chooses between two scales of each block by the lesser squared error (`Formulas.other`).

Both are found for the blocks of a chunk, and with each all elements are encoded and their values compared with x. The
products of elements and scales are exact there (numerics.md section 9), so one multiplication makes a value. Start at
`line_errors`; `keep_better` puts what is better where encoding reads it.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Index, Pointer
from samebits.kernels import convert
from samebits.kernels.quantize.codes import Encoder, load_pairs, spread
from samebits.kernels.quantize.scales_text import ScaleTables


def line_errors(
    b: Builder, encoder: Encoder, tables: ScaleTables, source: Pointer, room: Pointer, along: int, pairs: int,
    blocks: Index, plain: bool,
) -> None:  # fmt: skip
    """The squared errors of the parts of `blocks` blocks that are in one line, whose elements begin at `source`:
    neighbours are added in pairs, first the two of a lane."""
    several, width = 2 * pairs // along, encoder.element.width_bits
    assert several * along == 2 * pairs  # blocks are whole within a vector
    for at in b.loop(0, blocks, several):
        given = [spread(b, b.load(getattr(tables, name), at, several), pairs) for name in encoder.takes(b, plain)]
        factor = spread(b, b.load(tables.factor, at, several), pairs)
        x = load_pairs(b, source, at * along, pairs)
        codes, squares = encoder.lanes(b, x, given, given, plain), []
        for number, shift in ((x.even, 0), (x.odd, width)):
            value = convert.decode(b, b.shift_right(codes, shift), encoder.element, often_subnormal=True)
            error = b.sub(number, b.mul(value, factor))
            squares.append(b.mul(error, error))
        total = b.add(*squares)
        while total.width > several:
            halves = [b.pick([total], range(k, total.width, 2)) for k in (0, 1)]
            total = b.add(*halves)
        b.store(room, at, total)


def joined_lines(b: Builder, room: Pointer, lines: int, step: Index, blocks: Index, width: int) -> None:
    """The errors of the lines of blocks, `step` apart, added in pairs of neighbours until the first line has them."""
    while lines > 1:
        lines //= 2
        for line in range(lines):
            for i in b.loop(0, blocks, width):
                first, second = (b.load(room, (2 * line + k) * step + i, width) for k in (0, 1))
                b.store(room, line * step + i, b.add(first, second))


def keep_better(
    b: Builder, tables: tuple[ScaleTables, ScaleTables], errors: tuple[Pointer, Pointer],
    scales: tuple[Pointer, Pointer], count: Index, width: int,
) -> None:  # fmt: skip
    """The first tables and scales become the second ones where the error of these is less; NaN is not."""
    for i in b.loop(0, count, width):
        better = b.less(*(b.load(errors[k], i, width) for k in (1, 0)))
        for name in ("factor", "inverse", "nan", "plain"):
            first, second = (getattr(x, name) for x in tables)
            b.store(first, i, b.select(better, b.load(second, i, width), b.load(first, i, width)))
        first, second = (b.load(x, i, width, count - i) for x in scales)
        b.store(scales[0], i, b.select(better, second, first), count - i)
