"""The microkernel: one microtile of C gains one chunk of K.

Contract (numerics.md section 2, steps 2 and 3), for `h` rows and the columns of `panels` adjacent panels:
`p := +0; p := fma(a_k, b_k, p)` ascending over the chunk, then `c := t + p`, where t starts as +0. k counts
words of the engine, whose `advance` is what stands for the fma. Starting at +0 gives what `t = p_0; ...; t = t + (+0)`
gives: the two differ only while t is -0, which a sum with +0 never is.

- A: `h` rows `PITCH` elements apart, k contiguous: every broadcast is a constant displacement from one pointer.
- B: micropanels of NR columns, `[k][NR]`, `b_step` elements apart.
- t and C: rows `t_step` and `c_step` elements apart, columns contiguous. They may be one tile. A zero tile of one row
  and `t_step` 0 starts a sum. All columns are read and written: edges go through scratch.
- The last chunk of a sum (`last` = 1) adds +0 where t may have begun as -0 (section 5), and makes NaN canonical.
- With scales of blocks along k (section 4), a block's chain d ends at the block's end: `p := fma(d, s, p)`. Where the
  chunk lies in the blocks, `first` says, counted in words from the first of K.
Lanes run over N; each lane of each accumulator is one sequential chain. Start at `emit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer, Vector
from samebits.dtypes import DType, uint8
from samebits.kernels.gemm.blocks import runs
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import LINE_BYTES

# Four steps of k a turn: the loop's own instructions cost nothing then, and the code of a 12 x 32 tile stays in the
# micro-operation cache.
UNROLL = 4
# Low tiles read B once, and ask for it this many rows ahead: farther is too late for the hardware's own prefetching
# (M = 1, 768 x 768 in the last cache, GB/s at 1, 2, 4, 8 rows: avx512 93 93 81 77, avx2 87 90 90 88; 4096 x 4096 in
# memory 32 33 30 31 and 34 34 36 32).
_AHEAD = 2
_AHEAD_WEIGHTS = 16


@dataclass(frozen=True, slots=True)
class Microtile:
    """`h` rows by `panels` micropanels of `nv` vectors; `pitch` between rows of A.

    `accumulates`: whether a sum may begin as -0.
    `asks`: lines of what comes next that are asked for every UNROLL steps, into the cache of level `into`.
    `weights`: how the panels' elements become words as they are read; None where they are words.
    """

    h: int
    nv: int
    panels: int
    pitch: int
    accumulates: bool = False
    asks: int = 1
    into: int = 1
    weights: Words | None = None

    @property
    def tall(self) -> bool:
        """Whether many rows use each panel, so that the next one is asked for meanwhile."""
        return self.panels == 1 and self.h > 2

    @property
    def name(self) -> str:
        """The emitted function's name."""
        return f"microkernel_{self.h}x{self.nv}x{self.panels}"


def emit(b: Builder, engine: Engine, tile: Microtile, name: str = "", *, scaled: bool = False) -> Function:
    """A function `(kc, a, panel, b_step, t, t_step, c, c_step, last, following, following_step)`; where b is `scaled`,
    then `(scales, scales_step, first, block)`.

    `following`: what of B to ask for meanwhile, `following_step` bytes farther every UNROLL steps.
    `scales`: of the panel, `[block][NR]`.
    """
    lanes, line = engine.lanes(b.isa), LINE_BYTES // engine.word.size_bytes
    vectors, weights = tile.nv * tile.panels, tile.weights
    nr = tile.nv * lanes
    ahead = _AHEAD_WEIGHTS if weights else _AHEAD

    def ahead_of(u: int) -> range:
        """The vectors that step u of a turn asks for."""
        if tile.tall:
            return range(0)
        if weights:  # several rows of each panel share a line
            return range(0, 0 if u % max(1, LINE_BYTES // (weights.pointer.size_bytes * nr)) else vectors, tile.nv)
        return range(0, vectors, max(1, line // lanes))

    def place(k: Index, v: int, b_step: Index) -> Index:
        """Where vector v of row k of B is."""
        return k * nr + (v // tile.nv) * b_step + (v % tile.nv) * lanes

    def advance(acc: list[list[Any]], k: Index, a: Pointer, panel: Pointer, b_step: Index) -> None:
        places = [place(k, v, b_step) for v in range(vectors)]
        bv = [weights.across(b, panel, at, 1, lanes) if weights else b.load(panel, at, lanes) for at in places]
        for i in range(tile.h):
            av = b.splat(b.load(a, k + i * tile.pitch, 1), lanes)
            acc[i] = [engine.advance(b, av, bv[v], acc[i][v]) for v in range(vectors)]

    def chain(
        low: Index, high: Index, a: Pointer, panel: Pointer, b_step: Index, following: Pointer, following_step: Index
    ) -> list[list[Any]]:
        """The sums of words low .. high-1 from +0."""
        acc = [[b.constant(0, engine.accumulator, lanes)] * vectors for _ in range(tile.h)]
        whole = low + (high - low) // UNROLL * UNROLL
        for k in b.loop(low, whole, UNROLL, carry=acc):
            if tile.tall:
                for i in range(tile.asks):
                    b.prefetch(following, k // UNROLL * following_step + i * LINE_BYTES, tile.into)
            for u in range(UNROLL):
                for v in ahead_of(u):
                    b.prefetch(panel, place(k + u + ahead, v, b_step))
                advance(acc, k + u, a, panel, b_step)
        for k in b.loop(whole, high, 1, carry=acc):
            advance(acc, k, a, panel, b_step)
        return acc

    def scaled_sums(acc: list[list[Any]], scales: Pointer, scales_step: Index, q: Index, onto: Any) -> None:
        """Each sum d of block q becomes fma(d, its scale, onto(i, v))."""
        for v in range(vectors):
            scale = b.load(scales, q * nr + (v // tile.nv) * scales_step + (v % tile.nv) * lanes, lanes)
            for i in range(tile.h):
                acc[i][v] = b.fma(b.convert(acc[i][v], engine.total), scale, onto(i, v))

    def several(
        kc: Index, a: Pointer, panel: Pointer, b_step: Index, following: Pointer, following_step: Index,
        scales: Pointer, scales_step: Index,
        first: Index, block: Index,
    ) -> list[list[Any]]:  # fmt: skip
        """The sum of the chunk's blocks; between them it waits in memory that stays in the first cache."""
        parts, zero = b.local(engine.total, tile.h * vectors * lanes), b.constant(0, engine.total, lanes)

        def kept(i: int, v: int) -> Vector:
            return b.load(parts, (i * vectors + v) * lanes, lanes)

        for i in range(tile.h * vectors):
            b.store(parts, i * lanes, zero)
        for q, low, high in runs(b, first, kc, block):
            acc = chain(low, high, a, panel, b_step, following, following_step)
            scaled_sums(acc, scales, scales_step, q, kept)
            for i in range(tile.h):
                for v in range(vectors):
                    b.store(parts, (i * vectors + v) * lanes, acc[i][v])
        return [[kept(i, v) for v in range(vectors)] for i in range(tile.h)]

    def one(
        kc: Index, a: Pointer, panel: Pointer, b_step: Index, following: Pointer, following_step: Index,
        scales: Pointer, scales_step: Index,
        first: Index, block: Index,
    ) -> list[list[Any]]:  # fmt: skip
        """The same where the chunk is in one block: nothing leaves the registers."""
        acc, zero = chain(0, kc, a, panel, b_step, following, following_step), b.constant(0, engine.total, lanes)
        scaled_sums(acc, scales, scales_step, first // block, lambda i, v: zero)
        return acc

    def body(
        kc: Index, a: Pointer, panel: Pointer, b_step: Index, t: Pointer, t_step: Index, c: Pointer, c_step: Index,
        last: Index, following: Pointer, following_step: Index, *blocks_of_b: Any,
    ) -> None:  # fmt: skip
        for i in range(tile.h):
            for j in range(0, vectors * lanes, line):
                b.prefetch(c, i * c_step + j)

        def add(sums: list[list[Any]], final: bool) -> None:
            found = []
            for i in range(tile.h):
                for v in range(vectors):
                    total = b.add(b.load(t, i * t_step + v * lanes, lanes), b.convert(sums[i][v], engine.total))
                    if final and tile.accumulates:
                        total = b.add(total, b.like(total, 0))
                    b.store(c, i * c_step + v * lanes, total)
                    found.append(total)
            if final:
                canonical(found)

        def canonical(found: list[Vector]) -> None:
            """NaN among the totals just stored become canonical. The sum of all is NaN where one is, or infinities
            meet: a third of the instructions of replacing it in each (512 cubed of bfloat16: 0.6 % of the time)."""
            while len(found) > 1:
                whole = len(found) // 2 * 2
                found = [*(b.add(found[i], found[i + 1]) for i in range(0, whole, 2)), *found[whole:]]
            for _ in b.when(b.any(b.is_nan(found[0]))):
                for i in b.loop(0, tile.h):
                    for v in range(vectors):
                        at = i * c_step + v * lanes
                        b.store(c, at, b.canonical(b.load(c, at, lanes)))

        def finish(sums: list[list[Any]]) -> None:
            if engine.exact:
                add(sums, final=False)
            else:
                for final in (False, True):
                    for _ in b.when(last == int(final)):
                        add(sums, final)

        if not blocks_of_b:
            finish(chain(0, kc, a, panel, b_step, following, following_step))
            return
        first, block = blocks_of_b[2:]
        alone = b.choose((kc > 0) & (first % block + kc <= block), 1, 0)
        for _ in b.when(alone == 1):
            finish(one(kc, a, panel, b_step, following, following_step, *blocks_of_b))
        for _ in b.when(alone == 0):
            finish(several(kc, a, panel, b_step, following, following_step, *blocks_of_b))

    word, total = engine.word, engine.total
    parameters: list[DType | None] = [
        None,
        word,
        weights.pointer if weights else word,
        None,
        total,
        None,
        total,
        None,
        None,
        uint8,
        None,
    ]
    if scaled:
        parameters += [total, None, None, None]
    return b.function(tile.name + name, parameters, body)
