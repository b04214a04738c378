"""The scales of the blocks of a chunk as kernel text: found from its numbers, or taken from tables found before.

The largest magnitudes of all blocks come first, as many at a time as a register has lanes, of several lines column by
column; then their scales. Where a dialect has two scales to choose from, both are tried on all elements. Start at
`find`; where scales are found by other kernels, at `given`.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits.codegen.vocabulary import Index, Pointer, Vector
from samebits.dtypes import float32, uint32
from samebits.frozen import replace
from samebits.kernels.quantize import choice_text, magnitudes
from samebits.kernels.quantize.line_chunk import SCALES, WHOLE, ZEROS, LineChunk
from samebits.kernels.quantize.scales_text import ScaleTables, find_scales, wanted_parts
from samebits.kernels.quantize.widths import ABREAST, LINES_ABREAST


def given(x: LineChunk) -> tuple[ScaleTables, Index]:
    """The tables of scales that were found before; whether elements need plain encoding."""
    b, d = x.b, x.d
    start = x.cursor.places[SCALES]
    if d.shared == "line":
        tables = ScaleTables.at(b, start, b.index("table_size"))
        return tables, b.load_index(tables.plain, 0)
    tables = ScaleTables.at(b, b.offset(start, x.at * d.along), b.index("table_size"))
    seen = [b.constant(0, uint32, x.pairs)]
    for i in b.loop(0, x.padded, x.pairs, seen):
        seen[0] = b.bit_or(seen[0], b.load(tables.plain, i, x.pairs))
    return tables, b.choose(b.any(b.equal(seen[0], b.like(seen[0], 1))), 1, 0)


def find(x: LineChunk, source: Pointer | None) -> Index:
    """Fill the chunk's tables and store its scales; whether a block's elements need plain encoding.

    Args:    source: where the numbers of its only line lie densely; None where it has several.
    """
    _find_magnitudes(x, _largest(x) if source is None else source)
    return _find_scales(x) if x.d.formulas.other is None else _choose_scales(x, source)


def _largest(x: LineChunk) -> Pointer:
    """The largest magnitude of each column of the lines, as a code of the numbers' dtype."""
    b, d, width = x.b, x.d, x.pairs
    codes = magnitudes.codes_of(d.x)
    room = b.cast(x.top_room, codes)
    for i in b.loop(0, x.padded, width):
        b.store(room, i, b.constant(0, codes, width))
    together: Index = 0
    if d.dense:
        together = b.choose(x.n >= x.padded, x.each // LINES_ABREAST * LINES_ABREAST, 0)
        for line in b.loop(0, together, LINES_ABREAST):
            _add_largest(x, room, [x.numbers(line + k) for k in range(LINES_ABREAST)])
    for line in b.loop(together, x.each):
        _add_largest(x, room, [x.source(line)])
    return x.top_room


def _add_largest(x: LineChunk, room: Pointer, lines: Sequence[Pointer]) -> None:
    """Take some lines into the largest magnitudes of columns."""
    b, width = x.b, x.pairs
    for i in b.loop(0, x.padded, width):
        found = b.load(room, i, width)
        for line in lines:
            found = b.maximum(found, magnitudes.load(b, line, i, width))
        b.store(room, i, found)


def _find_magnitudes(x: LineChunk, source: Pointer) -> None:
    """The largest magnitudes of each block, where its factor will be; 0 behind the last."""
    b, d, n = x.b, x.d, x.lanes
    groups = (x.count + (n - 1)) // n
    parts = wanted_parts(d.formulas)
    targets = x.tables.statistics[: len(parts)]
    for g in b.loop(0, groups):
        codes = [magnitudes.of_blocks(b, source, g * (n * d.along), d.along, n, part) for part in parts]
        for target, code in zip(targets, codes, strict=True):
            b.store(target, g * n, magnitudes.number(b, code, d.x))
    for g in b.loop(groups, b.index("chunk") // n):
        for target in targets:
            b.store(target, g * n, b.constant(0.0, float32, n))


def _find_scales(x: LineChunk) -> Index:
    """The scales of all blocks, and their factors; whether a block's elements need plain encoding."""
    return find_scales(x.b, x.d.of_scales, x.tables, *_stored(x), x.count, ABREAST * x.lanes)


def _choose_scales(x: LineChunk, source: Pointer | None) -> Index:
    """As `_find_scales`, of each block the one of two by which the squared error is less."""
    b, d, n, chunk = x.b, x.d, ABREAST * x.lanes, x.b.index("chunk")
    for i in b.loop(0, chunk, n):
        b.store(x.second.statistics[0], i, b.load(x.tables.statistics[0], i, n))
    first, (_, scales, zeros) = _find_scales(x), _stored(x)
    assert d.formulas.other is not None  # the caller looked
    other = replace(d.of_scales, formulas=replace(d.formulas, scale=d.formulas.other, other=None))
    both = x.tables, x.second
    found = find_scales(b, other, x.second, _stored(x)[0], x.scale_room, zeros, x.count, n)
    found = b.choose(first > 0, first, found)
    blocks = x.padded // d.along
    for tables, room in zip(both, x.error_rooms, strict=True):
        for i in b.loop(0, d.height * chunk, n):
            b.store(room, i, b.constant(0.0, float32, n))
        for plain in (False, True):
            for _ in b.when(found > 0 if plain else found < 1):
                for line in b.loop(0, x.each):
                    numbers = x.source(line) if source is None else source
                    place = b.offset(room, line * chunk)
                    choice_text.line_errors(b, x.encoder, tables, numbers, place, d.along, x.pairs, blocks, plain)
        choice_text.joined_lines(b, room, d.height, chunk, x.count, n)
    choice_text.keep_better(b, both, x.error_rooms, (scales, x.scale_room), x.count, n)
    return found


def _stored(x: LineChunk) -> tuple[list[Vector], Pointer, Pointer]:
    """The global scale if there is one, in each lane, and where the scales and the zero points of blocks go."""
    b, d, n = x.b, x.d, ABREAST * x.lanes
    unit = [b.splat(b.load(x.cursor.places[WHOLE], 0, 1), n)] if d.formulas.whole is not None else []
    scales, zeros = (b.offset(x.cursor.places[k], x.at) for k in (SCALES, ZEROS))
    return unit, scales, zeros
