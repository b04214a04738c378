"""The microkernel by tiles of products whose blocks along K have scales: tiles sum the blocks, vectors scale the sums.

Its contract is that of `block_microkernel`, for an engine that sums blocks by tiles, with equal runs that are a
multiple of sixteen words. Two tiles of rows of A by two of columns of B, as in `tile_microkernel`, begin at zero in
each run; what they hold at its end goes to a part of the stack that stays in the first cache, where vectors find it.

By count, two by two tiles take 64 cycles for 64 elements along K; for the 64 vectors of sums of a run three operations
each (convert, multiply scales, fma), and one more a chunk, are 112 cycles of two ports in runs of 64, 128 in runs of
128. So that both work at once, the sums of a unit, a chunk or a part of one, go to one of two places by turns, and
behind each product of tiles stand some rows of the unit before, which vectors scale meanwhile. Runs that are too long
for that, and what is left behind whole units, are summed and scaled run by run. Start at `tiled_block_microkernel`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator

from samebits.codegen.isa import Isa
from samebits.codegen.rules import TILE_LANES, TILE_ROWS
from samebits.codegen.vocabulary import Builder, FunctionSpec, Index, Pointer, Vector
from samebits.dtypes import float32, int32
from samebits.frozen import dataclass
from samebits.kernels.gemm.block_microkernel import BlockMicrotile, BlockText, SharedByBlocks, parameters
from samebits.kernels.plan import LINE_BYTES

# Tiles of columns that are multiplied together.
_ACROSS = 2
# Words along K of the longest unit, whose text is straight, and its most runs, of whose sums two places have room in
# the first cache.
_STRAIGHT, _RUNS = 4 * TILE_LANES, 4
# Rows of C whose lines a unit asks for.
_ROWS = 4


@functools.lru_cache(maxsize=1024)
def function(tile: BlockMicrotile, isa: Isa) -> FunctionSpec:
    """A microtile's function."""
    return FunctionSpec(tiled_block_microkernel, tile, parameters(tile.engine), isa, unroll=False)


def tiled_block_microkernel(
    b: Builder, d: BlockMicrotile, kc: Index, a: Pointer, a_chunk: Index, panel: Pointer, t: Pointer, t_step: Index,
    c: Pointer, c_step: Index, last: Index, first: Index, a_values: Pointer,
    a_step: Index, a_block: Index, b_scales: Pointer, b_block: Index,
) -> None:  # fmt: skip
    """c = t + the sums of kc words, as `block_microkernel.blocked_microkernel` takes them."""
    text = BlockText(b, d, panel, SharedByBlocks(first, a_values, a_step, a_block, b_scales, b_block))
    total = b.local(d.engine.total, d.h * text.width)
    text.move(t, t_step, total, text.width)
    tiles = _Tiles(b, d, text, total)

    def chunk(q: Index, low: Index = 0) -> _ChunkPlace:
        at = q * a_chunk
        return _ChunkPlace(b.offset(a, at), b.offset(a_values, at), q * d.chunk, low)

    for j in range(0, text.width // TILE_LANES, _ACROSS):
        columns = _TileColumns(j * TILE_LANES, min(_ACROSS, text.width // TILE_LANES - j))
        if tiles.unit:
            _gain_units(b, tiles, columns, kc, chunk, (c, c_step))
            continue
        for q in b.loop(0, (kc + (d.chunk - 1)) // d.chunk):
            tiles.clear(columns)
            tiles.gain_runs(columns, chunk(q), b.min(kc - q * d.chunk, d.chunk))
            tiles.join(columns)
    for _ in b.when(last == 1):
        text.settle(total)
    text.move(total, text.width, c, c_step)


def _gain_units(
    b: Builder, tiles: _Tiles, columns: _TileColumns, kc: Index, chunk: Callable[[Index, Index], _ChunkPlace],
    following: tuple[Pointer, Index],
) -> None:  # fmt: skip
    """The microtile gains kc words, unit by unit, of which chunks are one each, or several."""
    several, whole = tiles.several, kc // tiles.unit

    def unit(q: Index) -> _ChunkPlace:
        return chunk(q // several, q % several * tiles.unit)

    def ends(q: Index) -> None:
        """After unit q - 1, with which a chunk may end."""
        for _ in b.when(q % several == 0) if several > 1 else ():
            tiles.join(columns)
            tiles.clear(columns)

    if several > 1:
        tiles.clear(columns)
    for _ in b.when(whole > 0):
        tiles.sum_unit(columns, unit(0), 0, ())
        for q in b.loop(1, whole):
            tiles.ask(*following, q - 1, columns)
            tiles.sum_unit(columns, unit(q), q % 2, tiles.scale_unit(columns, unit(q - 1), (q - 1) % 2))
            ends(q)
        for _ in tiles.scale_unit(columns, unit(whole - 1), (whole - 1) % 2):
            pass
        ends(whole)
    for _ in b.when(whole * tiles.unit < kc):
        if several == 1:
            tiles.clear(columns)
        tiles.gain_runs(columns, unit(whole), kc - whole * tiles.unit)
        if several == 1:
            tiles.join(columns)
    if several > 1:  # which adds +0 where a chunk has ended
        for _ in b.when(kc > 0):
            tiles.join(columns)


@dataclass(frozen=True, slots=True)
class _ChunkPlace:
    """Where a chunk's words of A begin and what its runs take from them; the word of the panel that it begins at; a
    word of the chunk."""

    a: Pointer
    values: Pointer
    first: Index
    low: Index


@dataclass(frozen=True, slots=True)
class _TileColumns:
    """Columns of the microtile that are summed together: the first, and how many tiles."""

    first: int
    tiles: int

    @property
    def width(self) -> int:
        """How many columns."""
        return self.tiles * TILE_LANES


class _Tiles:
    """The sums of one microtile being emitted.

    `total`: all of it, of finished chunks.   `acc`: those of the chunk that is summed, where it is several units or no
    whole one.   `found`: the integers that tiles leave.   `unit`: words of one, of `runs` runs, 0 where runs are too
    long or chunks no whole runs; `several`: units of a chunk.
    """

    def __init__(self, b: Builder, d: BlockMicrotile, text: BlockText, total: Pointer) -> None:
        self.b, self.d, self.text, self.total = b, d, text, total
        self.down, width = -(-d.h // TILE_ROWS), _ACROSS * TILE_LANES
        self.sums = [[b.tile() for _ in range(_ACROSS)] for _ in range(self.down)]
        self.left = [b.tile() for _ in range(self.down)]
        self.right = [b.tile() for _ in range(_ACROSS)]
        whole, words = d.runs.of(d.chunk), d.runs.words
        together = [n for n in range(1, _RUNS + 1) if d.chunk % (n * words) == 0 and n * words <= _STRAIGHT]
        self.runs = max(together, default=0)
        self.unit, self.several = self.runs * words, whole // max(1, self.runs)
        self.area = self.down * TILE_ROWS * width
        self.found = b.local(int32, max(1, 2 * self.runs) * self.area)
        self.rest = b.local(int32, TILE_ROWS * width)
        self.acc = b.local(d.engine.total, d.h * width)

    def ask(self, c: Pointer, c_step: Index, turn: Index, columns: _TileColumns) -> None:
        """Ask, in a turn, for some lines of the microtile below, which is written next."""
        b, d, line = self.b, self.d, LINE_BYTES // float32.size_bytes
        for _ in b.when(turn * _ROWS < d.h):
            for i in range(d.h, d.h + _ROWS):
                for j in range(columns.first, columns.first + columns.width, line):
                    b.prefetch(c, (turn * _ROWS + i) * c_step + j)

    def sum_unit(self, columns: _TileColumns, unit: _ChunkPlace, place: Index, meanwhile: Iterable[None]) -> None:
        """The sums of the runs of a unit go to a place; behind each product of tiles stands as much as comes
        `meanwhile`."""
        d, work, found = self.d, iter(meanwhile), self._found(place)
        rows = -(-d.h // (self.unit // TILE_LANES * self.down * columns.tiles))
        for q in range(self.runs):
            self._begin(columns)
            for k in range(q * d.runs.words, (q + 1) * d.runs.words, TILE_LANES):
                for _ in self._multiply(*self._words(columns, unit, k), columns):
                    for _ in itertools.islice(work, rows):
                        pass
            self._leave(columns, self.b.offset(found, q * self.area))

    def scale_unit(self, columns: _TileColumns, unit: _ChunkPlace, place: Index) -> Iterator[None]:
        """The microtile, or what it has of the chunk, gains the scaled sums of a unit that are at a place, a row at a
        time."""
        b, d, every, found = self.b, self.d, range(self.runs), self._found(place)
        right = [self._right(columns, unit, q * d.runs.words) for q in every]
        for i in range(d.h):
            acc = [b.constant(0, d.engine.total, TILE_LANES)] * columns.tiles
            if self.several > 1:
                acc = self._accumulated(columns, i)
            for q in every:
                acc = self._scaled(columns, unit, q, right[q], b.offset(found, q * self.area), i, acc)
            (self._accumulate if self.several > 1 else self._add)(columns, i, acc)
            yield

    def gain_runs(self, columns: _TileColumns, place: _ChunkPlace, size: Index) -> None:
        """What the microtile has of the chunk gains its `size` words from a place on, run by run."""
        b, d, words = self.b, self.d, self.d.runs.words
        for low in b.loop(0, size, words):
            self._sum_run(columns, place, low, b.min(size - low, words))
            right = self._right(columns, place, low)
            for i in b.loop(0, d.h):
                before = self._accumulated(columns, i)
                after = self._scaled(columns, place, low // words, right, self.found, i, before)
                self._accumulate(columns, i, after)

    def clear(self, columns: _TileColumns) -> None:
        """A chunk begins."""
        for i in self.b.loop(0, self.d.h):
            self._accumulate(columns, i, [self.b.constant(0, self.d.engine.total, TILE_LANES)] * columns.tiles)

    def join(self, columns: _TileColumns) -> None:
        """The microtile gains what it has of a chunk."""
        for i in self.b.loop(0, self.d.h):
            self._add(columns, i, self._accumulated(columns, i))

    def _found(self, place: Index) -> Pointer:
        """Where a unit's sums are."""
        return self.b.offset(self.found, place * (self.runs * self.area))

    def _accumulated(self, columns: _TileColumns, i: Index) -> list[Vector]:
        """Row i of what the microtile has of the chunk."""
        every = range(0, columns.width, TILE_LANES)
        return [self.b.load(self.acc, i * columns.width + v, TILE_LANES) for v in every]

    def _accumulate(self, columns: _TileColumns, i: Index, acc: list[Vector]) -> None:
        for v, x in enumerate(acc):
            self.b.store(self.acc, i * columns.width + v * TILE_LANES, x)

    def _add(self, columns: _TileColumns, i: Index, acc: list[Vector]) -> None:
        """Row i of the microtile gains sums of a chunk."""
        b, at = self.b, i * self.text.width + columns.first
        for v, x in enumerate(acc):
            b.store(self.total, at + v * TILE_LANES, b.add(b.load(self.total, at + v * TILE_LANES, TILE_LANES), x))

    def _sum_run(self, columns: _TileColumns, place: _ChunkPlace, low: Index, size: Index) -> None:
        """The sums of the `size` words of a run that begins `low` words behind a place go where the first do."""
        b, whole = self.b, size // TILE_LANES * TILE_LANES
        self._begin(columns)
        for k in b.loop(0, whole, TILE_LANES):
            for _ in self._multiply(*self._words(columns, place, low + k), columns):
                pass
        for _ in b.when(whole < size):
            self._multiply_rest(*self._words(columns, place, low + whole), size - whole, columns)
        self._leave(columns, self.found)

    def _words(self, columns: _TileColumns, place: _ChunkPlace, k: Index) -> tuple[Pointer, Index, Pointer, Index]:
        """Where the word k words behind a place is in A and in the panel, each with the step of its rows."""
        b, width = self.b, self.text.width
        panel = b.offset(self.text.panel, (place.first + place.low + k) * width + columns.first)
        return b.offset(place.a, place.low + k), self.d.pitch, panel, width

    def _begin(self, columns: _TileColumns) -> None:
        """Sums of a run begin."""
        for row in self.sums:
            for tile in row[: columns.tiles]:
                self.b.tile_zero(tile)

    def _multiply(
        self, a: Pointer, a_step: Index, panel: Pointer, step: Index, columns: _TileColumns
    ) -> Iterator[None]:
        """The sums gain the products of sixteen words: rows of A `a_step` apart, of B `step`; a tile at a time."""
        b = self.b
        for i, left in enumerate(self.left):
            b.tile_load(left, b.offset(a, i * TILE_ROWS * a_step), a_step)
            for j, right in enumerate(self.right[: columns.tiles]):
                if i == 0:
                    b.tile_load(right, b.offset(panel, j * TILE_LANES), step)
                self.d.engine.advance_tile(b, left, right, self.sums[i][j])
                yield

    def _multiply_rest(
        self, a: Pointer, a_step: Index, panel: Pointer, step: Index, words: Index, columns: _TileColumns
    ) -> None:
        """The same of fewer words: beyond the panel nothing is read, and zeros stand for what is not there. Beside
        them any integers will do, those that the block of A has room for."""
        b, width = self.b, columns.width
        for k in b.loop(0, TILE_ROWS):
            b.store(self.rest, k * width, b.load(panel, k * step, width, b.choose(k < words, width, 0)))
        for _ in self._multiply(a, a_step, self.rest, width, columns):
            pass

    def _leave(self, columns: _TileColumns, found: Pointer) -> None:
        """The sums of a run go where vectors find them: rows as wide as the columns."""
        for i, row in enumerate(self.sums):
            for j, tile in enumerate(row[: columns.tiles]):
                at = i * TILE_ROWS * columns.width + j * TILE_LANES
                self.b.tile_store(tile, self.b.offset(found, at), columns.width)

    def _right(self, columns: _TileColumns, place: _ChunkPlace, low: Index) -> list[Vector]:
        """The scales of b in the run that begins `low` words behind a place; none where b has no blocks."""
        if not self.d.runs.scaled[1]:
            return []
        at = self.text.block(place.first, place.low + low) * self.text.width + columns.first
        scales = self.text.shared.b_scales
        return [self.b.load(scales, at + v * TILE_LANES, TILE_LANES) for v in range(columns.tiles)]

    def _scaled(
        self, columns: _TileColumns, place: _ChunkPlace, q: Index, right: list[Vector], found: Pointer, i: Index,
        acc: list[Vector],
    ) -> list[Vector]:  # fmt: skip
        """acc and row i of the sums that were found of run q from a place on, times its scales."""
        b, runs, chunk_words = self.b, self.d.runs, self.d.chunk
        at, left, start = i * runs.values(chunk_words) + place.low // runs.words + q, None, None
        if runs.scaled[0]:
            left = b.splat(b.load(place.values, at, 1), TILE_LANES)
        if runs.offset:
            starts = b.cast(place.values, int32)
            start = b.splat(b.load(starts, at + runs.of(chunk_words) * runs.scaled[0], 1), TILE_LANES)
        result = []
        for v, before in enumerate(acc):
            whole = b.load(found, i * columns.width + v * TILE_LANES, TILE_LANES)
            x = b.convert(whole if start is None else b.add(whole, start), float32)
            if runs.unit != 1.0:
                x = b.mul(x, b.like(x, runs.unit))
            factors = [scale for scale in (left, right[v] if right else None) if scale is not None]
            result.append(b.fma(x, functools.reduce(b.mul, factors), before))
        return result
