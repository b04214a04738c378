"""The microkernel: one microtile of C gains one chunk of K.

Contract (numerics.md section 2, steps 2 and 3), for `h` rows and the columns of `panels` adjacent panels:
`p := +0; p := fma(a_k, b_k, p)` ascending over the chunk, then `c := t + p`, where t starts as +0. k counts
words of the engine, whose `advance` is what stands for the fma. Starting at +0 gives what `t = p_0; ...; t = t + (+0)`
gives: the two differ only while t is -0, which a sum with +0 never is.

- A: `h` rows `pitch` words apart, k contiguous: every broadcast is a constant displacement from one pointer.
- B: micropanels of NR columns, `[k][NR]`, `b_step` elements apart.
- t and C: rows `t_step` and `c_step` elements apart, columns contiguous. They may be one tile. A zero tile of one row
  and `t_step` 0 starts a sum. All columns are read and written: edges go through scratch.
- The last chunk of a sum (`last` = 1) adds +0 where t may have begun as -0 (section 5), and makes NaN canonical.
- `following`: what of B to ask for meanwhile, every UNROLL steps `following_step` bytes farther: a line, or where
  `asks` is more than 1 MOST_ASKS of them.
- With scales of blocks along k (section 4), a block's chain d ends at the block's end: `p := fma(d, s, p)`. `scales`:
  of the panel, `[block][NR]`, those of the next panel `scales_step` elements on. `first`: where the chunk begins,
  counted in words from the first of K; `block`: words of a block.
Lanes run over N; each lane of each accumulator is one sequential chain.

Each microtile is a function that is compiled alone and shared by all kernels of the machine: `function` names it,
`microkernel` and `scaled_microkernel` are its text, `_MicroText` has what both say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, FunctionSpec, Index, Pointer, Vector
from samebits.dtypes import DType, uint8
from samebits.frozen import dataclass
from samebits.kernels.gemm.blocks import runs
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import LINE_BYTES

# Four steps of k a turn: the loop's own instructions cost nothing then, and the code of a 12 x 32 tile stays in the
# micro-operation cache.
UNROLL = 4
# Lines that a turn asks for at most.
MOST_ASKS = 4
# Low tiles read B once, and ask for it this many rows ahead: farther is too late for the hardware's own prefetching
# (M = 1, 768 x 768 in the last cache, GB/s at 1, 2, 4, 8 rows: avx512 93 93 81 77, avx2 87 90 90 88; 4096 x 4096 in
# memory 32 33 30 31 and 34 34 36 32).
_AHEAD = 2
_AHEAD_WEIGHTS = 16

# Sums of a microtile: a vector for each row and each vector of its columns.
_Sums = list[list[Any]]


@dataclass(frozen=True, slots=True)
class Microtile:
    """What specialises the text: `h` rows by `panels` micropanels of `nv` vectors, by one engine's steps; `pitch` words
    from one row of A to the next, which depends on how long chunks are and on nothing else.

    `accumulates`: whether a sum may begin as -0.
    `weights`: how the panels' elements become words as they are read; None where they are words.
    `scaled`: whether blocks along k have scales.
    """

    engine: Engine
    h: int
    nv: int
    panels: int
    pitch: int
    accumulates: bool = False
    weights: Words | None = None
    scaled: bool = False


def parameters(engine: Engine, weights: Words | None, scaled: bool) -> tuple[DType | None, ...]:
    """What every microtile of an engine takes, as `Builder.function` names it."""
    word, total, panel = engine.word, engine.total, weights.pointer if weights else engine.word
    plain = (None, word, panel, None, total, None, total, None, None, uint8, None, None)
    return (*plain, total, None, None, None) if scaled else plain


@functools.lru_cache(maxsize=1024)
def function(tile: Microtile, isa: Isa) -> FunctionSpec:
    """A microtile's function."""
    taken = parameters(tile.engine, tile.weights, tile.scaled)
    return FunctionSpec(scaled_microkernel if tile.scaled else microkernel, tile, taken, isa, unroll=False)


def microkernel(
    b: Builder, d: Microtile, kc: Index, a: Pointer, panel: Pointer, b_step: Index, t: Pointer,
    t_step: Index, c: Pointer, c_step: Index, last: Index, following: Pointer, following_step: Index, asks: Index,
) -> None:  # fmt: skip
    """c = t + the sum of a chunk."""
    tile = _MicroText(b, d, _Read(a, panel, b_step, following, following_step, asks))
    tile.expect(c, c_step)
    tile.finish(tile.chain(0, kc), t, t_step, c, c_step, last)


def scaled_microkernel(
    b: Builder, d: Microtile, kc: Index, a: Pointer, panel: Pointer, b_step: Index, t: Pointer,
    t_step: Index, c: Pointer, c_step: Index, last: Index, following: Pointer, following_step: Index, asks: Index,
    scales: Pointer, scales_step: Index, first: Index, block: Index,
) -> None:  # fmt: skip
    """c = t + the sum of the scaled sums of a chunk's blocks; one block alone never leaves the registers."""
    tile = _MicroText(b, d, _Read(a, panel, b_step, following, following_step, asks))
    tile.expect(c, c_step)
    alone = b.choose((kc > 0) & (first % block + kc <= block), 1, 0)
    for _ in b.when(alone == 1):
        sums = tile.one_block(kc, scales, scales_step, first // block)
        tile.finish(sums, t, t_step, c, c_step, last)
    for _ in b.when(alone == 0):
        sums = tile.several_blocks(kc, scales, scales_step, first, block)
        tile.finish(sums, t, t_step, c, c_step, last)


@dataclass(frozen=True, slots=True)
class _Read:
    """What a chunk's steps read, and what they ask for."""

    a: Pointer
    panel: Pointer
    b_step: Index
    following: Pointer
    following_step: Index
    asks: Index


class _MicroText:
    """One microtile being emitted."""

    def __init__(self, b: Builder, d: Microtile, read: _Read) -> None:
        self.b, self.d, self.read = b, d, read
        self.lanes = d.engine.lanes(b.isa)
        self.nr, self.vectors = d.nv * self.lanes, d.nv * d.panels

    def expect(self, c: Pointer, c_step: Index) -> None:
        """Ask for the lines of c."""
        line = LINE_BYTES // self.d.engine.total.size_bytes
        for i in range(self.d.h):
            for j in range(0, self.vectors * self.lanes, line):
                self.b.prefetch(c, i * c_step + j)

    def chain(self, low: Index, high: Index) -> _Sums:
        """The sums of words low .. high-1 from +0."""
        b, d = self.b, self.d
        sums: _Sums = [[b.constant(0, d.engine.accumulator, self.lanes)] * self.vectors for _ in range(d.h)]
        whole = low + (high - low) // UNROLL * UNROLL
        for k in b.loop(low, whole, UNROLL, carry=sums):
            self._ask(k)
            for u in range(UNROLL):
                self._step(sums, k + u)
        for k in b.loop(whole, high, 1, carry=sums):
            self._step(sums, k)
        return sums

    def _step(self, sums: _Sums, k: Index) -> None:
        """Every sum gains the products of word k."""
        b, d, lanes, weights = self.b, self.d, self.lanes, self.d.weights
        places = [self._place(k, v) for v in range(self.vectors)]
        panel = self.read.panel
        right = [weights.across(b, panel, at, 1, lanes) if weights else b.load(panel, at, lanes) for at in places]
        for i in range(d.h):
            left = b.splat(b.load(self.read.a, k + i * d.pitch, 1), lanes)
            sums[i] = [d.engine.advance(b, left, right[v], sums[i][v]) for v in range(self.vectors)]

    def _place(self, k: Index, v: int) -> Index:
        """Where vector v of row k of B is."""
        return k * self.nr + (v // self.d.nv) * self.read.b_step + (v % self.d.nv) * self.lanes

    def _ask(self, k: Index) -> None:
        """Ask, in a turn that begins at word k, for what follows: the next panel where many rows use each panel, else
        the next rows of this one."""
        b, d, read, weights = self.b, self.d, self.read, self.d.weights
        if d.panels == 1 and d.h > 2:
            place = k // UNROLL * read.following_step
            b.prefetch(read.following, place)
            for _ in b.when(read.asks > 1):
                for i in range(1, MOST_ASKS):
                    b.prefetch(read.following, place + i * LINE_BYTES)
            return
        ahead = _AHEAD_WEIGHTS if weights else _AHEAD
        for u in range(UNROLL):
            if weights:  # several rows of each panel share a line
                shared = max(1, LINE_BYTES // (weights.pointer.size_bytes * self.nr))
                asking = range(0, 0 if u % shared else self.vectors, d.nv)
            else:
                asking = range(0, self.vectors, max(1, LINE_BYTES // (d.engine.word.size_bytes * self.lanes)))
            for v in asking:
                b.prefetch(read.panel, self._place(k + u + ahead, v))

    def _scale(
        self, sums: _Sums, scales: Pointer, scales_step: Index, q: Index, onto: Callable[[int, int], Vector]
    ) -> None:
        """Each sum d of block q becomes fma(d, its scale, onto(i, v))."""
        b, d, lanes = self.b, self.d, self.lanes
        for v in range(self.vectors):
            scale = b.load(scales, q * self.nr + (v // d.nv) * scales_step + (v % d.nv) * lanes, lanes)
            for i in range(d.h):
                sums[i][v] = b.fma(b.convert(sums[i][v], d.engine.total), scale, onto(i, v))

    def one_block(self, kc: Index, scales: Pointer, scales_step: Index, q: Index) -> _Sums:
        """The scaled sums of a chunk that lies in block q."""
        sums, zero = self.chain(0, kc), self.b.constant(0, self.d.engine.total, self.lanes)
        self._scale(sums, scales, scales_step, q, lambda i, v: zero)
        return sums

    def several_blocks(self, kc: Index, scales: Pointer, scales_step: Index, first: Index, block: Index) -> _Sums:
        """The sum of the scaled sums of the chunk's blocks; between them it waits in memory that stays in the first
        cache."""
        b, d, lanes, vectors = self.b, self.d, self.lanes, self.vectors
        parts, zero = b.local(d.engine.total, d.h * vectors * lanes), b.constant(0, d.engine.total, lanes)

        def kept(i: int, v: int) -> Vector:
            return b.load(parts, (i * vectors + v) * lanes, lanes)

        for i in range(d.h * vectors):
            b.store(parts, i * lanes, zero)
        for q, low, high in runs(b, first, kc, block):
            sums = self.chain(low, high)
            self._scale(sums, scales, scales_step, q, kept)
            for i in range(d.h):
                for v in range(vectors):
                    b.store(parts, (i * vectors + v) * lanes, sums[i][v])
        return [[kept(i, v) for v in range(vectors)] for i in range(d.h)]

    def finish(self, sums: _Sums, t: Pointer, t_step: Index, c: Pointer, c_step: Index, last: Index) -> None:
        """c = t + the sums; integers have no -0 and no NaN to look for."""
        if self.d.engine.exact:
            self._add(sums, t, t_step, c, c_step, final=False)
            return
        for final in (False, True):
            for _ in self.b.when(last == int(final)):
                found = self._add(sums, t, t_step, c, c_step, final)
                if final:
                    self._canonical(found, c, c_step)

    def _add(
        self, sums: _Sums, t: Pointer, t_step: Index, c: Pointer, c_step: Index, final: bool
    ) -> list[Vector]:  # fmt: skip
        """c = t + the sums, and its vectors."""
        b, d, lanes, found = self.b, self.d, self.lanes, list[Vector]()
        for i in range(d.h):
            for v in range(self.vectors):
                before = b.load(t, i * t_step + v * lanes, lanes)
                total = b.add(before, b.convert(sums[i][v], d.engine.total))
                if final and d.accumulates:
                    total = b.add(total, b.like(total, 0))
                b.store(c, i * c_step + v * lanes, total)
                found.append(total)
        return found

    def _canonical(self, found: list[Vector], c: Pointer, c_step: Index) -> None:
        """NaN among the totals just stored become canonical. The sum of all is NaN where one is, or infinities meet: a
        third of the instructions of replacing it in each (512 cubed of bfloat16: 0.6 % of the time)."""
        b, lanes = self.b, self.lanes
        while len(found) > 1:
            whole = len(found) // 2 * 2
            found = [*(b.add(found[i], found[i + 1]) for i in range(0, whole, 2)), *found[whole:]]
        for _ in b.when(b.any(b.is_nan(found[0]))):
            for i in b.loop(0, self.d.h):
                for v in range(self.vectors):
                    at = i * c_step + v * lanes
                    b.store(c, at, b.canonical(b.load(c, at, lanes)))
