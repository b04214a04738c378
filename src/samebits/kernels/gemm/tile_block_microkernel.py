"""The microkernel by tiles of products whose blocks along K have scales: tiles sum the blocks, vectors scale the sums.

Its contract is that of `block_microkernel`, for an engine that sums blocks by tiles, with equal runs that are a
multiple of sixteen words. Two tiles of rows of A by two of columns of B, as in `tile_microkernel`, begin at zero in
each run; what they hold at its end goes to a part of the stack that stays in the first cache, where vectors find it.

By count, two by two tiles take 64 cycles for 64 elements along K; for the 64 vectors of sums of a run three operations
each (convert, multiply scales, fma), and one more a chunk, are 112 cycles of two ports in runs of 64, 128 in runs of
128. So that both work at once, the sums of a chunk go to one of two places by turns, and behind each product of tiles
stand some rows of the chunk before, which vectors scale meanwhile. Chunks that are too long for that, and the last one,
where it is not whole, are summed and scaled run by run. Start at `tiled_block_microkernel`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator

from samebits.codegen.isa import Isa
from samebits.codegen.rules import TILE_LANES, TILE_ROWS
from samebits.codegen.vocabulary import Builder, FunctionSpec, Index, Pointer, Vector
from samebits.dtypes import float32, int32
from samebits.frozen import dataclass
from samebits.kernels.gemm.block_microkernel import BlockMicrotile, BlockText, SharedByBlocks, parameters
from samebits.kernels.plan import LINE_BYTES

# Tiles of columns that are multiplied together.
_ACROSS = 2
# Words along K of the longest chunk whose text is straight.
_STRAIGHT = 4 * TILE_LANES
# Rows of C whose lines a chunk asks for.
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
    whole = kc // d.chunk if d.chunk <= _STRAIGHT else 0

    def chunk(q: Index) -> _Chunk:
        at = q * a_chunk
        return _Chunk(b.offset(a, at), b.offset(a_values, at), q * d.chunk)

    for j in range(0, text.width // TILE_LANES, _ACROSS):
        columns = _TileColumns(j * TILE_LANES, min(_ACROSS, text.width // TILE_LANES - j))
        if d.chunk <= _STRAIGHT:
            for _ in b.when(whole > 0):
                tiles.sum_chunk(columns, chunk(0), 0, ())
                for q in b.loop(1, whole):
                    tiles.ask(c, c_step, q - 1, columns)
                    tiles.sum_chunk(columns, chunk(q), q % 2, tiles.scale_chunk(columns, chunk(q - 1), (q - 1) % 2))
                for _ in tiles.scale_chunk(columns, chunk(whole - 1), (whole - 1) % 2):
                    pass
        for q in b.loop(whole, (kc + (d.chunk - 1)) // d.chunk):
            tiles.gain_runs(columns, chunk(q), b.min(kc - q * d.chunk, d.chunk))
    for _ in b.when(last == 1):
        text.settle(total)
    text.move(total, text.width, c, c_step)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Where a chunk's words of A begin and what its runs take from them; the word of the panel that it begins at."""

    a: Pointer
    values: Pointer
    first: Index


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
    """The sums of one microtile being emitted."""

    def __init__(self, b: Builder, d: BlockMicrotile, text: BlockText, total: Pointer) -> None:
        self.b, self.d, self.text, self.total = b, d, text, total
        self.down, width = -(-d.h // TILE_ROWS), _ACROSS * TILE_LANES
        self.sums = [[b.tile() for _ in range(_ACROSS)] for _ in range(self.down)]
        self.left = [b.tile() for _ in range(self.down)]
        self.right = [b.tile() for _ in range(_ACROSS)]
        self.area = self.down * TILE_ROWS * width
        self.of_chunk = self.area * (d.runs.of(d.chunk) if d.chunk <= _STRAIGHT else 1)
        self.found = b.local(int32, 2 * self.of_chunk)
        self.rest = b.local(int32, TILE_ROWS * width)
        self.acc = b.local(d.engine.total, d.h * width)

    def ask(self, c: Pointer, c_step: Index, turn: Index, columns: _TileColumns) -> None:
        """Ask, in a turn, for some lines of the microtile below, which is written next."""
        b, d, line = self.b, self.d, LINE_BYTES // float32.size_bytes
        for _ in b.when(turn * _ROWS < d.h):
            for i in range(d.h, d.h + _ROWS):
                for j in range(columns.first, columns.first + columns.width, line):
                    b.prefetch(c, (turn * _ROWS + i) * c_step + j)

    def sum_chunk(self, columns: _TileColumns, chunk: _Chunk, place: Index, meanwhile: Iterable[None]) -> None:
        """The sums of the runs of a whole chunk go to a place; behind each product of tiles stands as much as comes
        `meanwhile`."""
        d, work = self.d, iter(meanwhile)
        products = d.chunk // TILE_LANES * self.down * columns.tiles
        rows = -(-d.h // products)
        found = self.b.offset(self.found, place * self.of_chunk)
        for q in range(d.runs.of(d.chunk)):
            self._begin(columns)
            for k in range(q * d.runs.words, (q + 1) * d.runs.words, TILE_LANES):
                for _ in self._multiply(*self._words(columns, chunk, k), columns):
                    for _ in itertools.islice(work, rows):
                        pass
            self._leave(columns, self.b.offset(found, q * self.area))

    def scale_chunk(self, columns: _TileColumns, chunk: _Chunk, place: Index) -> Iterator[None]:
        """The microtile gains the scaled sums of a chunk that are at a place, a row at a time."""
        b, d, every = self.b, self.d, range(self.d.runs.of(self.d.chunk))
        found = b.offset(self.found, place * self.of_chunk)
        right = [self._right(columns, chunk, q * d.runs.words) for q in every]
        for i in range(d.h):
            acc = [b.constant(0, d.engine.total, TILE_LANES)] * columns.tiles
            for q in every:
                acc = self._scaled(columns, chunk, q, right[q], b.offset(found, q * self.area), i, acc)
            for v, x in enumerate(acc):
                self._add(self.total, i * self.text.width + columns.first + v * TILE_LANES, x)
            yield

    def gain_runs(self, columns: _TileColumns, chunk: _Chunk, size: Index) -> None:
        """The microtile gains the `size` words of a chunk, run by run."""
        b, d, acc = self.b, self.d, self.acc
        every = range(0, columns.width, TILE_LANES)
        for i in b.loop(0, d.h):
            for v in every:
                b.store(acc, i * columns.width + v, b.constant(0, d.engine.total, TILE_LANES))
        for low in b.loop(0, size, d.runs.words):
            self._sum_run(columns, chunk, low, b.min(size - low, d.runs.words))
            right = self._right(columns, chunk, low)
            for i in b.loop(0, d.h):
                before = [b.load(acc, i * columns.width + v, TILE_LANES) for v in every]
                after = self._scaled(columns, chunk, low // d.runs.words, right, self.found, i, before)
                for v, x in zip(every, after, strict=True):
                    b.store(acc, i * columns.width + v, x)
        for i in b.loop(0, d.h):
            for v in every:
                found = b.load(acc, i * columns.width + v, TILE_LANES)
                self._add(self.total, i * self.text.width + columns.first + v, found)

    def _sum_run(self, columns: _TileColumns, chunk: _Chunk, low: Index, size: Index) -> None:
        """The sums of the `size` words of a run, which begins at word low of a chunk, go to the first place."""
        b, whole = self.b, size // TILE_LANES * TILE_LANES
        self._begin(columns)
        for k in b.loop(0, whole, TILE_LANES):
            for _ in self._multiply(*self._words(columns, chunk, low + k), columns):
                pass
        for _ in b.when(whole < size):
            self._multiply_rest(*self._words(columns, chunk, low + whole), size - whole, columns)
        self._leave(columns, self.found)

    def _words(self, columns: _TileColumns, chunk: _Chunk, k: Index) -> tuple[Pointer, Index, Pointer, Index]:
        """Where word k of a chunk is in A and in the panel, each with the step of its rows."""
        b, width = self.b, self.text.width
        panel = b.offset(self.text.panel, (chunk.first + k) * width + columns.first)
        return b.offset(chunk.a, k), self.d.pitch, panel, width

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

    def _right(self, columns: _TileColumns, chunk: _Chunk, low: Index) -> list[Vector]:
        """The scales of b in the run that begins at word low of a chunk; none where b has no blocks."""
        if not self.d.runs.scaled[1]:
            return []
        at = self.text.block(chunk.first, low) * self.text.width + columns.first
        scales = self.text.shared.b_scales
        return [self.b.load(scales, at + v * TILE_LANES, TILE_LANES) for v in range(columns.tiles)]

    def _scaled(
        self, columns: _TileColumns, chunk: _Chunk, q: Index, right: list[Vector], found: Pointer, i: Index,
        acc: list[Vector],
    ) -> list[Vector]:  # fmt: skip
        """acc and row i of the sums that were found of run q, times its scales."""
        b, runs, chunk_words = self.b, self.d.runs, self.d.chunk
        at, left, start = i * runs.values(chunk_words) + q, None, None
        if runs.scaled[0]:
            left = b.splat(b.load(chunk.values, at, 1), TILE_LANES)
        if runs.offset:
            starts = b.cast(chunk.values, int32)
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

    def _add(self, p: Pointer, i: Index, x: Vector) -> None:
        """p[i ..] gains x."""
        self.b.store(p, i, self.b.add(self.b.load(p, i, TILE_LANES), x))
