"""The microkernel of products whose blocks along K are scaled on both sides, or summed in integers, or several of b's
in a chunk.

Contract (numerics.md section 4), for `h` rows and the columns of one panel: over the runs between boundaries of blocks
of a, blocks of b and chunks, `d := +0; d := fma(a_k, b_k, d)` ascending, then `acc := fma(d, s, acc)`, s the float32
product of both scales, or the one that there is. Chunks combine as in `microkernel`: `c := t + acc`. Several chunks are
one call, between which the sums wait in a tile of the stack that stays in the first cache.

An engine whose accumulators are integers (`Engine.sums_blocks`) has the exact d in units, which become a float32 once;
`unit`, a power of two, is what a unit stands for. Where packing shifted integers of B, o each, sums start at -o times
the sum of A's elements in the run.

Where `Runs.floating` says so, sums start at BEGUN, an integer whose bits are the float32 1.5 * 2^23, so that a sum's
bits are those of 1.5 * 2^23 + d, exactly, while |d| < 2^22. With a's scales come their products with what was added:
`g := fma(1.5 * 2^23 + d, s_a, -1.5 * 2^23 * s_a)` is d * s_a, exactly where these have 24 bits together,
and so are s_a * s_b and d * s_a * s_b what they are in the reals before the one rounding of `acc := fma(g, s_b, acc)`:
the same number as that of `fma(d, s_a * s_b, acc)`, for two operations of floats a run instead of a conversion and two.
There o, a power of two, is taken away too: (1.5 * 2^23 + o * sum) * s_a has no more bits than s_a and 24 - log2 o.

What runs of equal length take from A's rows, scales and those numbers, lies behind the words of each chunk of a block
of A (`run_values`), a row after the other, so that a microtile reads that of all its rows from one address (1024 cubed,
NVFP4: 6.8 ms where scales lay by rows of all of K, 6.45 so; 5.6 where sums start from B's columns, 5.15 so).

One vector of accumulators wide and many rows high is best: each row keeps a d and an acc in registers, and the scales
of b are read once for all of them (Zen 4, float4_e2m1fn in blocks of 16, by microtiles of 12 x 16, 8 x 32 and 12 x 32:
313, 248 and 220 GFLOP/s). Of B nothing is asked for ahead: what follows would push scales out of the first cache (1024
cubed in blocks of 16: 15.6 ms with, 11.9 without). Start at `blocked_microkernel`.
"""

from __future__ import annotations

from typing import Any

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, FunctionSpec, Index, Pointer, Vector
from samebits.dtypes import DType, float32
from samebits.frozen import dataclass
from samebits.kernels.gemm.blocks import runs
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.microtile import UNROLL
from samebits.kernels.plan import LINE_BYTES

# Words of a run that are one straight text, and rows of it that are summed side by side: fewer wait for their own
# steps, more would leave the registers.
_STRAIGHT = 8
_TOGETHER = 3
# What sums start at whose bits are read as float32: as an integer and as what it stands for. |d| is less than LIMIT.
BEGUN, BEGUN_FLOAT, LIMIT = 0x4B400000, 1.5 * 2**23, 1 << 22


@dataclass(frozen=True, slots=True)
class Runs:
    """How the runs of K lie, and what scales them.

    `words`: of every run, where blocks of both sides and chunks are whole runs; 0 where runs vary in length.
    `scaled`: whether blocks of a, and of b, have scales.   `alone`: whether these blocks are one run each.
    `unit`: what the sum of a run is multiplied with, exactly.   `offset`: what packing added to elements of B.
    `floating`: whether sums start at BEGUN.
    """

    words: int
    scaled: tuple[bool, bool]
    alone: tuple[bool, bool]
    unit: float = 1.0
    offset: int = 0
    floating: bool = False

    def of(self, chunk: int) -> int:
        """Runs of a chunk, where they are equal."""
        return -(-chunk // self.words) if self.words else 0

    def values(self, chunk: int) -> int:
        """Numbers of a row of A that a chunk's runs take, where they are equal: scales, then those of an offset or of
        floating sums."""
        return self.of(chunk) * (self.scaled[0] + (self.floating or self.offset != 0))

    @property
    def is_short(self) -> bool:
        """Whether the words of a run are one straight text."""
        return 0 < self.words <= _STRAIGHT


@dataclass(frozen=True, slots=True)
class BlockMicrotile:
    """What specialises the text: `h` rows by a panel of `nv` vectors, by one engine's steps; `chunk` words of a chunk,
    `pitch` words from one row of A to the next in it.   `accumulates`: whether a sum may begin as -0."""

    engine: Engine
    h: int
    nv: int
    chunk: int
    pitch: int
    runs: Runs
    accumulates: bool = False


def parameters(engine: Engine) -> tuple[DType | None, ...]:
    """What every microtile of an engine takes, as `Builder.function` names it."""
    word, total = engine.word, engine.total
    tiles = (None, word, None, word, total, None, total, None, None)
    return (*tiles, None, total, None, None, total, None)


def function(tile: BlockMicrotile, isa: Isa) -> FunctionSpec:
    """A microtile's function."""
    return FunctionSpec(blocked_microkernel, tile, parameters(tile.engine), isa, unroll=False)


def blocked_microkernel(
    b: Builder, d: BlockMicrotile, kc: Index, a: Pointer, a_chunk: Index, panel: Pointer, t: Pointer, t_step: Index,
    c: Pointer, c_step: Index, last: Index, first: Index, a_values: Pointer,
    a_step: Index, a_block: Index, b_scales: Pointer, b_block: Index,
) -> None:  # fmt: skip
    """c = t + the sums of kc words, which begin at word `first` of K. `a_values`: what equal runs take from the first
    row, `a_chunk` words from chunk to chunk; of others A's scales, `a_step` from row to row, `a_block` words each."""
    shared = SharedByBlocks(first, a_values, a_step, a_block, b_scales, b_block)
    text = BlockText(b, d, panel, shared)
    tile = b.local(d.engine.total, d.h * text.width)
    text.move(t, t_step, tile, text.width)
    text.ask(c, c_step)
    for ck in b.loop(0, kc, d.chunk):
        at, step = ck // d.chunk * a_chunk, 1 if d.runs.words else 0
        text.gain(tile, (b.offset(a, at), b.offset(a_values, at * step)), ck, b.min(kc - ck, d.chunk))
    for _ in b.when(last == 1):
        text.settle(tile)
    text.move(tile, text.width, c, c_step)


@dataclass(frozen=True, slots=True)
class SharedByBlocks:
    """What blocks share: where a's rows and b's panel begin, and how many words a block has."""

    first: Index
    a_values: Pointer
    a_step: Index
    a_block: Index
    b_scales: Pointer
    b_block: Index


@dataclass(frozen=True, slots=True)
class BlockText:
    """One microtile being emitted."""

    b: Builder
    d: BlockMicrotile
    panel: Pointer
    shared: SharedByBlocks

    @property
    def lanes(self) -> int:
        """Sums of a vector."""
        return self.d.engine.lanes(self.b.isa)

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.d.nv * self.lanes

    def move(self, x: Pointer, x_step: Index, y: Pointer, y_step: Index) -> None:
        """y = x, tiles whose rows are so far apart."""
        for i in range(self.d.h):
            for v in range(self.d.nv):
                self.b.store(y, i * y_step + v * self.lanes, self.b.load(x, i * x_step + v * self.lanes, self.lanes))

    def ask(self, c: Pointer, c_step: Index) -> None:
        """Ask for the lines of the microtile below, which most often is the next: its rows are on as many pages."""
        for i in range(self.d.h, 2 * self.d.h):
            for v in range(0, self.width, LINE_BYTES // self.d.engine.total.size_bytes):
                self.b.prefetch(c, i * c_step + v)

    def settle(self, tile: Pointer) -> None:
        """A sum that may have begun as -0 gains +0, and NaN become canonical."""
        b = self.b
        for i in b.loop(0, self.d.h * self.d.nv):
            x = b.load(tile, i * self.lanes, self.lanes)
            b.store(tile, i * self.lanes, b.canonical(b.add(x, b.like(x, 0)) if self.d.accumulates else x))

    def gain(self, tile: Pointer, a: tuple[Pointer, Pointer], ck: Index, size: Index) -> None:
        """The tile gains the `size` words of the chunk that begins at word ck; a: its words and values."""
        b, d = self.b, self.d
        if d.runs.of(d.chunk) == 1:
            self._gain_run(tile, a, ck, size)
            return
        acc = self._nothing()
        whole = size // d.runs.words * d.runs.words if d.runs.words else 0
        if d.runs.words:
            for low in b.loop(0, whole, d.runs.words, carry=acc):
                self._run(acc, a, ck, low, None, (low // d.runs.words, self.block(ck, low)))
        for _ in b.when(whole < size, carry=acc):
            self._varied(acc, a, ck, whole, size)
        self._join(tile, acc)

    def _nothing(self) -> list[list[Any]]:
        """Accumulators of a chunk before its first run."""
        return [[self.b.constant(0, self.d.engine.total, self.lanes)] * self.d.nv for _ in range(self.d.h)]

    def _join(self, tile: Pointer, acc: list[list[Any]]) -> None:
        """The tile gains what a chunk gave."""
        b, lanes = self.b, self.lanes
        for i, row in enumerate(acc):
            for v, found in enumerate(row):
                at = i * self.width + v * lanes
                b.store(tile, at, b.add(b.load(tile, at, lanes), found))

    def _gain_run(self, tile: Pointer, a: tuple[Pointer, Pointer], ck: Index, size: Index) -> None:
        """The same where a chunk is one run: registers keep its sums alone, and no accumulator beside them."""
        b, words, places = self.b, self.d.runs.words, (0, self.block(ck, 0))
        for _ in b.when(size == words):
            acc = self._nothing()
            self._run(acc, a, ck, 0, None, places)
            self._join(tile, acc)
        for _ in b.when(size < words):
            acc = self._nothing()
            self._run(acc, a, ck, 0, size, places)
            self._join(tile, acc)

    def block(self, ck: Index, low: Index) -> Index:
        """The block of b that a run of constant length is in, which begins at word low of a chunk."""
        runs, shared = self.d.runs, self.shared
        return (shared.first + ck + low) // (runs.words if runs.alone[1] else shared.b_block)

    def _varied(self, acc: list[list[Any]], a: tuple[Pointer, Pointer], ck: Index, low: Index, high: Index) -> None:
        """The runs of words low .. high-1 of a chunk, wherever their boundaries are."""
        b, d, shared = self.b, self.d, self.shared
        begin = shared.first + ck + low
        if d.runs.words:  # less than a run is left
            self._run(acc, a, ck, low, high, (low // d.runs.words, self.block(ck, low)))
        elif all(d.runs.scaled):
            for p, i, j in runs(b, begin, high - low, shared.a_block, carry=acc):
                for q, m, n in runs(b, begin + i, j - i, shared.b_block, carry=acc):
                    self._run(acc, a, ck, low + i + m, low + i + n, (p, q))
        else:
            size = shared.a_block if d.runs.scaled[0] else shared.b_block
            for q, i, j in runs(b, begin, high - low, size, carry=acc):
                self._run(acc, a, ck, low + i, low + j, (q, q))

    def _run(
        self, acc: list[list[Any]], of_a: tuple[Pointer, Pointer], ck: Index, low: Index, high: Index | None,
        places: tuple[Index, Index],
    ) -> None:  # fmt: skip
        """acc gains the scaled sums of words low .. high-1 of a chunk, which are in these blocks of a and of b, or in
        this run of the chunk where runs are equal; without `high` of a whole run."""
        b, d, words = self.b, self.d, self.d.runs.words
        a, left, right = of_a[0], b.offset(of_a[1], places[0]), self._right(places[1])
        if high is None and d.runs.is_short and d.nv == 1:
            self._straight(acc, a, ck, low, left, right)
            return
        sums, stop = [[self._start(left, i)] * d.nv for i in range(d.h)], low + words if high is None else high
        if high is None and d.runs.is_short:
            for u in range(words):
                self._step(sums, a, ck, low + u)
            self._scale(acc, dict(enumerate(sums)), left, right)
            return
        whole = low + (stop - low) // UNROLL * UNROLL
        for k in b.loop(low, whole, UNROLL, carry=sums):
            for u in range(UNROLL):
                self._step(sums, a, ck, k + u)
        if high is not None or words % UNROLL:
            for k in b.loop(whole, stop, 1, carry=sums):
                self._step(sums, a, ck, k)
        self._scale(acc, dict(enumerate(sums)), left, right)

    def _straight(
        self, acc: list[list[Any]], a: Pointer, ck: Index, low: Index, of_a: Pointer, right: list[Vector | None]
    ) -> None:
        """A whole run of few words of one vector, row by row: B's words and the accumulators stay in registers, a sum
        only until it is scaled."""
        b, d, lanes = self.b, self.d, self.lanes
        words = [self._words(ck, low + u) for u in range(d.runs.words)]
        # What registers hold beside B's words and scales, the accumulators, a broadcast and a's scale.
        room = (b.isa.registers - 3) // d.nv - (d.h + d.runs.words + 1)
        together = max(1, min(_TOGETHER, room))
        for first in range(0, d.h, together):
            rows = range(first, min(first + together, d.h))
            before = [x for row in acc[max(0, first - together) : first] for x in row] if first else words[-1]
            source = b.anchor(b.offset(a, low + first * d.pitch), before)
            sums = {i: [self._start(of_a, i)] * d.nv for i in rows}
            for u, row in enumerate(words):
                for i in rows:
                    left = b.splat(b.load(source, u + (i - first) * d.pitch, 1), lanes)
                    sums[i] = [d.engine.advance(b, left, row[v], sums[i][v]) for v in range(d.nv)]
            self._scale(acc, sums, of_a, right)

    def _words(self, ck: Index, k: Index) -> list[Vector]:
        """Word k of a chunk, of every column."""
        at = (ck + k) * self.width
        return [self.b.load(self.panel, at + v * self.lanes, self.lanes) for v in range(self.d.nv)]

    def _step(self, sums: list[list[Any]], a: Pointer, ck: Index, k: Index) -> None:
        """Every sum gains the products of word k of the chunk."""
        b, d, lanes = self.b, self.d, self.lanes
        right = self._words(ck, k)
        for i in range(d.h):
            left = b.splat(b.load(a, k + i * d.pitch, 1), lanes)
            sums[i] = [d.engine.advance(b, left, right[v], sums[i][v]) for v in range(d.nv)]

    def _start(self, of_a: Pointer, i: int) -> Vector:
        """What sums of row i start from in a run whose values begin at `of_a`."""
        b, d, runs = self.b, self.d, self.d.runs
        if runs.floating or not runs.offset:
            return b.constant(BEGUN if runs.floating else 0, d.engine.accumulator, self.lanes)
        at = i * runs.values(d.chunk) + runs.of(d.chunk) * runs.scaled[0]
        return b.splat(b.load(b.cast(of_a, d.engine.accumulator), at, 1), self.lanes)

    def _right(self, q: Index) -> list[Vector | None]:
        """The scales of block q of b, a vector of columns each."""
        if not self.d.runs.scaled[1]:
            return [None] * self.d.nv
        at = q * self.width
        return [self.b.load(self.shared.b_scales, at + v * self.lanes, self.lanes) for v in range(self.d.nv)]

    def _scale(
        self, acc: list[list[Any]], sums: dict[int, list[Any]], of_a: Pointer, right: list[Vector | None]
    ) -> None:
        """The accumulators of some rows gain their sums times the scales; that of a row of a is read when its sums are
        there: those of all rows at once would leave the registers. An address is the last row's, which was used up,
        where rows are a constant apart."""
        b, d, runs, lanes = self.b, self.d, self.d.runs, self.lanes
        for i, found in sums.items():
            left = None
            if runs.scaled[0]:
                row = runs.values(d.chunk) if runs.words else self.shared.a_step
                if runs.words:
                    of_a = source = b.anchor(of_a, found)
                    left = b.splat(b.load(source, i * row, 1), lanes)
                else:
                    left = b.splat(b.load(b.anchor(b.offset(of_a, i * row), found), 0, 1), lanes)
            if runs.floating:
                assert left is not None  # both sides have scales
                less = b.splat(b.load(of_a, i * runs.values(d.chunk) + runs.of(d.chunk), 1), lanes)
                for v, other in enumerate(right):
                    assert other is not None
                    acc[i][v] = b.fma(b.fma(b.bitcast(found[v], float32), left, less), other, acc[i][v])
                continue
            for v in range(d.nv):
                x = b.convert(found[v], float32)
                if runs.unit != 1.0:
                    x = b.mul(x, b.like(x, runs.unit))
                scale = right[v] if left is None else left if right[v] is None else b.mul(left, right[v])
                acc[i][v] = b.fma(x, scale, acc[i][v])
