"""The microkernel: one microtile of C gains some of K, a chunk after the other.

Contract (numerics.md section 2, steps 2 and 3), for `h` rows and the columns of `panels` adjacent panels, of each
chunk: `p := +0; p := fma(a_k, b_k, p)` ascending over the chunk, then `c := t + p`, where t starts as +0. k counts
words of the engine, whose `advance` is what stands for the fma. Starting at +0 gives what `t = p_0; ...; t = t + (+0)`
gives: the two differ only while t is -0, which a sum with +0 never is.

- What a call takes, and what it reads and asks for of each chunk, `chunk_calls` says. Between chunks c is a dense tile.
- A: `h` rows `pitch` words apart, k contiguous; or `interleaved`, UNROLL words of each row after those of the row
  before. Every broadcast is a constant displacement from one pointer.
- B: micropanels of NR columns, `[k][NR]`, `b_step` elements apart; or one of an operand as it `lies`, rows `b_step`
  elements apart.
- t and C: rows `t_step` and `c_step` elements apart, columns contiguous. They may be one tile. A zero tile of one row
  and `t_step` 0 starts a sum. All columns are read and written: edges go through scratch.
- The last chunk of a sum (`last` = 1) adds +0 where t may have begun as -0 (section 5), and makes NaN canonical.
- Another order (`order.SumOrder`) sums blocks of a chunk: `p := p + s` for the sum s of each block's chains. p is kept
  in memory meanwhile, as are the chains that registers do not hold together with the others.
- With scales of blocks along k (section 4), a block's chain d ends at the block's end: `p := fma(d, s, p)`. `scales`:
  of the panel, `[block][NR]`, those of the next panel `scales_step` elements on. `before`: where the call begins,
  counted in words from the first of K; `block`: words of a block.
Lanes run over N; each lane of each accumulator is one sequential chain.

Each microtile is a function that is compiled alone and shared by all kernels of the machine: `function` names it,
`microkernel` and `scaled_microkernel` are its text, `_MicroText` has what both say.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, FunctionSpec, Index, Pointer, Vector
from samebits.dtypes import DType, float32, uint32
from samebits.frozen import dataclass, replace
from samebits.kernels.gemm.asked_sums import AskedSums
from samebits.kernels.gemm.blocks import runs
from samebits.kernels.gemm.chunk_calls import ARGUMENTS, CalledChunk, MicrotileCall, chunks_of, taken
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.machine import WIDE_LANES
from samebits.kernels.gemm.order import CHAIN, SumOrder
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
# Where words of every second row are read twice: vectors of columns; rows, of which fewer leave no time for the loads
# (Cascade Lake, 16 x 384 x 384 in tiles of 8 rows 0.97 times as fast, 64 x 384 x 1536 of 10 and 11 rows 1.07).
_FOLDED, _FOLDED_ROWS = 2, 10
# Sums of a microtile: a vector for each row and each vector of its columns.
_Sums = list[list[Any]]


@dataclass(frozen=True, slots=True)
class Microtile:
    """What specialises the text: `h` rows by `panels` micropanels of `nv` vectors, by one engine's steps; `pitch` words
    from one row of A to the next, which depends on how long chunks are and on nothing else.

    `accumulates`: whether a sum may begin as -0.
    `weights`: how the panels' elements become words as they are read; None where they are words.
    `scaled`: whether blocks along k have scales.
    `order`: how a chunk is summed.
    `keeps`: whether the words that are read, or that weights become, are written down as a panel too, for other
    microtiles, which take them as they are.
    `apart`: whether of two vectors of columns one has the even columns and the other the odd ones until the sum is
    finished, also where it and words are kept meanwhile: then two operations widen both vectors of bfloat16, not four
    (Emerald Rapids, one thread, time without over with: 1 x 768 x 768 1.29, 24 x 768 x 768 1.05, 512 x 768 x 768 1.01).
    `interleaved`: whether A lies so; `pitch` does not matter then.
    `lies`: whether B is one panel of an operand that is not packed; `weights` then says how its elements become words.
    `four_wide`: whether instructions of a turn are saved (`machine.Machine.four_wide`).
    `in_steps`: whether A lies in steps of tiles (`tile_blocks`), each a block of the order; `pitch` is that of a step.
    """

    engine: Engine
    h: int
    nv: int
    panels: int
    pitch: int
    accumulates: bool = False
    weights: Words | None = None
    scaled: bool = False
    order: SumOrder = CHAIN
    keeps: bool = False
    apart: bool = False
    interleaved: bool = False
    lies: bool = False
    four_wide: bool = False
    in_steps: bool = False

    def asks_for_sums(self, isa: Isa) -> bool:
        """Whether turns ask for the lines of what sums are added to and become, one each: in vectors of 64 bytes, where
        A is interleaved, or where words are of one element and many rows use one panel (Emerald Rapids, 768 x 128 x
        768, speed over that of asking for all at once: 1.03, by vectors of 32 bytes 0.95)."""
        is_plain = self.engine.depth == 1 and not self.order.block and self.weights is None
        is_tall = self.interleaved or (is_plain and self.panels == 1 and self.h > 2)
        return is_tall and isa.lanes >= WIDE_LANES


def parameters(engine: Engine, weights: Words | None, scaled: bool, keeps: bool = False) -> tuple[DType | None, ...]:
    """What every microtile of an engine takes, as `Builder.function` names it."""
    word, total, panel = engine.word, engine.total, weights.pointer if weights else engine.word
    plain = taken(word, panel, total)
    if keeps:
        return (*plain, word, None)
    return (*plain, total, None, None, None) if scaled else plain


@functools.lru_cache(maxsize=1024)
def function(tile: Microtile, isa: Isa) -> FunctionSpec:
    """A microtile's function."""
    taken = parameters(tile.engine, tile.weights, tile.scaled, tile.keeps)
    text = keeping_microkernel if tile.keeps else scaled_microkernel if tile.scaled else microkernel
    return FunctionSpec(text, tile, taken, isa, unroll=False)


def microkernel(b: Builder, d: Microtile, *given: Any) -> None:
    """c = t + the sums of chunks."""
    for tile, chunk in _chunks(b, d, given):
        tile.finish(tile.gain(chunk), chunk)


def keeping_microkernel(b: Builder, d: Microtile, *given: Any) -> None:
    """c = t + the sums of chunks, whose words of B are in `kept` then, panels `kept_step` apart."""
    for tile, chunk in _chunks(b, d, given, given[ARGUMENTS:]):
        tile.finish(tile.gain(chunk), chunk)


def scaled_microkernel(b: Builder, d: Microtile, *given: Any) -> None:
    """c = t + the sums of the scaled sums of the blocks of chunks; one block alone never leaves the registers."""
    scales, scales_step, before, block = given[ARGUMENTS:]
    for tile, chunk in _chunks(b, d, given):
        kc, first = chunk.size, before + chunk.first
        alone = b.choose((kc > 0) & (first % block + kc <= block), 1, 0)
        for _ in b.when(alone == 1):
            tile.finish(tile.one_block(kc, scales, scales_step, first // block), chunk)
        for _ in b.when(alone == 0):
            tile.finish(tile.several_blocks(kc, scales, scales_step, first, block), chunk)


def _chunks(
    b: Builder, d: Microtile, given: tuple[Any, ...], kept: tuple[Any, ...] = ()
) -> Iterator[tuple[_MicroText, CalledChunk]]:
    """Every chunk of a call, and its text. The lines of what the last becomes are asked for, unless turns do that."""
    call, nr = MicrotileCall(*given[:ARGUMENTS]), d.nv * d.engine.lanes(b.isa)
    rows = d.h if d.interleaved or d.in_steps else 1
    for chunk in chunks_of(b, call, rows, nr * d.panels, call.b_step if d.lies else nr):
        down = (b.offset(kept[0], chunk.first * nr), kept[1]) if kept else None
        asks = chunk.following, chunk.panels.line, chunk.panels.asks
        tile = _MicroText(b, d, _Read(chunk.a, chunk.panel, call.b_step, *asks, down))
        if not d.asks_for_sums(b.isa):
            for _ in b.when(chunk.ends):
                tile.expect(call.c, call.c_step)
        yield tile, chunk


@dataclass(frozen=True, slots=True)
class _Read:
    """What a chunk's steps read, and what they ask for. `again` is where `a` is, but LLVM does not know so."""

    a: Pointer
    panel: Pointer
    b_step: Index
    following: Pointer
    following_step: Index
    asks: Index
    kept: tuple[Pointer, Index] | None = None
    again: Pointer | None = None


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

    def gain(self, x: CalledChunk) -> _Sums:
        """The sums of a chunk; meanwhile turns may ask for the lines of what they are added to."""
        kept = (x.t, x.c) if self.d.asks_for_sums(self.b.isa) else None
        return self.turns(x.size, kept) if kept is not None or self.d.interleaved else self.chunk(x.size)

    def chunk(self, kc: Index) -> _Sums:
        """The sums of a chunk, in the order of the tile."""
        b, d, size = self.b, self.d, self.d.order.block // self.d.engine.depth
        if not size:
            return self.chain(0, kc)
        parts, zero = self._room(), b.constant(0, d.engine.total, self.lanes)
        # LLVM aligns the stack for this, so that no sum that waits there lies in two lines (Zen 3, of the speed of sb1:
        # 0.83 to 0.90 by where the stack was, 0.89 to 0.90 with it).
        b.prefetch(b.anchor(b.local(d.engine.total, self.lanes)), 0)
        self._keep(parts, [[zero] * self.vectors] * d.h)
        whole = kc // size * size
        for low in b.loop(0, whole, size):
            self._gain_block(parts, low, low + size, True)
        for _ in b.when(whole < kc):
            self._gain_block(parts, whole, kc, False)
        return self._kept(parts)

    def _gain_block(self, parts: Pointer, low: Index, high: Index, is_whole: bool) -> None:
        """`parts` gain the sums of the chains of words low .. high-1.

        The chains of as many rows at a time as registers hold beside a row of B; but where that would take more than
        two loads for three steps, one chain of all rows after the other."""
        d, count, width = self.d, self.d.order.chains, self.vectors
        if d.engine.depth > 1:
            self._gain_halves(parts, low, high)
            return
        most = max(1, (self.b.isa.registers - width - 1) // (count * width))
        step = -(-d.h // -(-d.h // most))
        if step < d.h and 3 * (step + width) > 2 * step * width:
            self._keep(parts, self._added(self._kept(parts), self._in_turn(low, high, is_whole)))
            return
        for first in range(0, d.h, step):
            rows = range(first, min(first + step, d.h))
            sums = functools.reduce(self._added, self._chains(low, high, range(count), rows))
            self._keep(parts, self._added(self._kept(parts, rows), sums), rows)

    def _gain_halves(self, parts: Pointer, low: Index, high: Index) -> None:
        """The same where a word holds an element of each chain, for as many rows at a time as registers hold."""
        b, d, width = self.b, self.d, self.vectors
        step = max(1, (b.isa.registers - 2 * width - 2) // (2 * width))
        a = b.offset(self.read.a, low * (d.h - 1)) if d.in_steps else self.read.a
        for first in range(0, d.h, step):
            rows = range(first, min(first + step, d.h))
            found = [[[sums] * 2 for sums in row] for row in self._zeros(rows)]
            for k in b.loop(low, high, carry=found):
                right = [b.load(self.read.panel, self._place(k, v), self.lanes) for v in range(width)]
                for i, row in enumerate(rows):
                    left = b.splat(b.load(a, k + row * d.pitch, 1), self.lanes)
                    found[i] = [
                        d.engine.advance_chains(b, left, x, chains) for x, chains in zip(right, found[i], strict=True)
                    ]
            sums = [[b.add(*chains) for chains in row] for row in found]
            self._keep(parts, self._added(self._kept(parts, rows), sums), rows)

    def _in_turn(self, low: Index, high: Index, is_whole: bool) -> _Sums:
        """The sum of a block's chains, of which each waits in memory for the next."""
        d, waiting, sums = self.d, self._room(), list[list[Any]]()
        for chain in range(d.order.chains):
            if is_whole:
                found = self._straight(low, chain)
            else:
                (found,) = self._chains(low, high, range(chain, chain + 1), range(d.h))
            sums = self._added(self._kept(waiting), found) if chain else found
            self._keep(waiting, sums)
        return sums

    def _straight(self, low: Index, chain: int) -> _Sums:
        """The sums of one chain of a whole block in one text, which asks for the rows of B that the next chain reads,
        as this one passes over them (Zen 3, 6 x 16 of float32, of the speed of sb1: a loop of 4 words 0.85, one text
        0.87, with what it asks for 0.89)."""
        b, d, read = self.b, self.d, self.read
        size, count = d.order.block, d.order.chains
        sums, turns = self._zeros(range(d.h)), size // count // UNROLL
        self._ask_for_more(low // UNROLL + chain * turns, turns, 1)
        ahead = 1 if chain < count - 1 else size - chain
        for turn in range(turns):
            first = low + turn * UNROLL * count + chain
            self._ask_for_following(low // UNROLL + chain * turns + turn)
            after = sums[-1] if turn else []
            near = b.anchor(b.offset(read.a, first), after), b.anchor(b.offset(read.panel, first * self.nr), after)
            kept = read.kept and (b.offset(read.kept[0], first * self.nr), read.kept[1])
            self.read = replace(read, a=near[0], panel=near[1], kept=kept)
            for u in range(0, UNROLL * count, count):
                self._ask_for_row(u + ahead)
                self._step(sums, range(d.h), u)
            self.read = read
        return sums

    def chain(self, low: Index, high: Index) -> _Sums:
        """The sums of words low .. high-1 from +0, one chain each."""
        return self._chains(low, high, range(1), range(self.d.h))[0]

    def _chains(self, low: Index, high: Index, chains: range, rows: range) -> list[_Sums]:
        """For these among the order's chains the sums of words low .. high-1 from +0, of these rows."""
        b, count = self.b, self.d.order.chains
        found = [self._zeros(rows) for _ in chains]
        # Words of a turn, of which the chains take UNROLL.
        turn = UNROLL * count // len(chains)
        whole = low + (high - low) // turn * turn
        for k in b.loop(low, whole, turn, carry=found):
            for u in range(turn):
                if rows.start == 0 and u < UNROLL:
                    self._ask(k // UNROLL, k, u)
                if u % count in chains:
                    self._step(found[u % count - chains.start], rows, k + u)
        for sums, first in zip(found, chains, strict=True):
            for k in b.loop(whole + first, high, count, carry=sums):
                self._step(sums, rows, k)
        return found

    def turns(self, kc: Index, kept: tuple[tuple[Pointer, Index], tuple[Pointer, Index]] | None) -> _Sums:
        """The sums of a chunk. Turns ask for lines of the one of two tiles `kept` that comes from afar."""
        b, h, sums, read = self.b, self.d.h, self._zeros(range(self.d.h)), self.read
        of_turn = UNROLL * (h if self.d.interleaved else 1)  # words of A, of each row that lies by itself
        count = kc // UNROLL
        asked = AskedSums(h, self.vectors * self.lanes, self.d.engine.total, self.d.four_wide)
        for low, high, tile in asked.spans(b, count, kept):
            for turn in b.loop(low, high, carry=sums):
                if tile is not None:
                    asked.ask(b, tile, turn)
                k, first = turn * UNROLL, turn * of_turn
                if self.d.four_wide and self.vectors == _FOLDED and h >= _FOLDED_ROWS:
                    near = b.anchor(b.offset(read.a, first))
                    self.read, first = replace(read, a=near, again=b.anchor(near)), 0
                for u in range(UNROLL):
                    self._ask(turn, k, u)
                    self._step(sums, range(h), k + u, first + u)
        self.read = read
        for k in b.loop(count * UNROLL, kc, carry=sums):
            self._step(sums, range(h), k, count * of_turn + (k - count * UNROLL))
        return sums

    def _zeros(self, rows: range) -> _Sums:
        zero = self.b.constant(0, self.d.engine.accumulator, self.lanes)
        return [[zero] * self.vectors for _ in rows]

    def _room(self) -> Pointer:
        """Where sums wait, which stays in the first cache."""
        return self.b.local(self.d.engine.total, self.d.h * self.vectors * self.lanes)

    def _keep(self, place: Pointer, sums: _Sums, rows: range | None = None) -> None:
        for i, row in zip(rows or range(self.d.h), sums, strict=True):
            for v, x in enumerate(row):
                self.b.store(place, (i * self.vectors + v) * self.lanes, x)

    def _kept(self, place: Pointer, rows: range | None = None) -> _Sums:
        b, lanes, width = self.b, self.lanes, self.vectors
        return [[b.load(place, (i * width + v) * lanes, lanes) for v in range(width)] for i in rows or range(self.d.h)]

    def _added(self, x: _Sums, y: _Sums) -> _Sums:
        return [[self.b.add(*both) for both in zip(*rows, strict=True)] for rows in zip(x, y, strict=True)]

    def _step(self, sums: _Sums, rows: range, k: Index, at: Index | None = None) -> None:
        """The sums of these rows gain the products of word k, which is at `at` of the first row of A, if not at k."""
        b, d, lanes, right = self.b, self.d, self.lanes, self._row(k)
        apart = UNROLL if d.interleaved else d.pitch
        if self.read.kept is not None:
            kept, step = self.read.kept
            for v, words in enumerate(right):
                b.store(kept, self._place(k, v, step), words)
        for i, row in enumerate(rows):
            place = (k if at is None else at) + row * apart
            # Each word of every second row is read once for each fma that takes it.
            sources = (self.read.a, self.read.again) if self.read.again and row % 2 else (self.read.a,)
            lefts = [b.splat(b.load(x, place, 1), lanes) for x in sources]
            sums[i] = [d.engine.advance(b, lefts[v % len(lefts)], right[v], sums[i][v]) for v in range(self.vectors)]

    def _row(self, k: Index) -> list[Vector]:
        """Row k of B as words."""
        b, panel, lanes, weights = self.b, self.read.panel, self.lanes, self.d.weights
        places = [self._place(k, v) for v in range(self.vectors)]
        if weights is None:
            return [b.load(panel, at, lanes) for at in places]
        if not self.d.apart:
            return [weights.across(b, panel, at, 1, lanes) for at in places]
        found = list[Vector]()
        for at in places[::2]:
            codes = b.load(b.cast(b.offset(panel, at), uint32, aligned=False), 0, lanes)
            even, odd = b.shift_left(codes, 16), b.bit_and(codes, b.like(codes, 0xFFFF0000))
            found += [b.bitcast(even, float32), b.bitcast(odd, float32)]
        return found

    def _place(self, k: Index, v: int, step: Index | None = None) -> Index:
        """Where vector v of row k of B is, in panels that are `step` apart, or as far as those that are read."""
        if step is None and self.d.lies:
            return k * self.read.b_step + v * self.lanes
        step = self.read.b_step if step is None else step
        return k * self.nr + (v // self.d.nv) * step + (v % self.d.nv) * self.lanes

    def _ask(self, turn: Index, k: Index, u: int) -> None:
        """Ask, before step u of a turn that begins at word k, for what follows: the next panel where many rows use each
        panel, at once, else the next row of this one. Rows asked for all at once wait for each other (M = 1, packed,
        Zen 4: 5 to 16 % of the time)."""
        weights = self.d.weights
        if self.d.panels == 1 and self.d.h > 2:
            if not u:
                for _ in self.b.when(self.read.asks < 2):
                    self._ask_for_following(turn)
                self._ask_for_more(turn, 1, 0)
        elif weights is None or not u % max(1, LINE_BYTES // (weights.pointer.size_bytes * self.nr)):
            self._ask_for_row(k + u + (_AHEAD_WEIGHTS if weights else _AHEAD))

    def _ask_for_following(self, turn: Index) -> None:
        """A line of the next panel. Weights are converted for so long that it may wait in the second cache."""
        self.b.prefetch(self.read.following, turn * self.read.following_step, 2 if self.d.weights else 1)

    def _ask_for_more(self, turn: Index, turns: int, first: int) -> None:
        """The lines of some turns from number `first` on, where a turn asks for several. Few rows use a panel then,
        and the next one waits in the second cache: the first has no room for both (Emerald Rapids, one thread, speed
        over that of the first: 32 x 3072 x 4096 of float32 beside columns 1.05, 4 rows of bfloat16 beside int8 1.03,
        uint4, a line a turn, 1.04; but 128 x 768 x 3072 of float32 packed, a line a turn, 0.97)."""

        def ask(lines: range) -> None:
            for i, line in itertools.product(range(turns), lines):
                self.b.prefetch(self.read.following, (turn + i) * self.read.following_step + line * LINE_BYTES, 2)

        for _ in self.b.when(self.read.asks > 1):
            ask(range(first, 2))
            for _ in self.b.when(self.read.asks > 2):
                ask(range(2, MOST_ASKS))

    def _ask_for_row(self, k: Index) -> None:
        """Ask for row k of B; several rows of a panel of weights share a line."""
        b, d, weights = self.b, self.d, self.d.weights
        word_bytes = weights.pointer.size_bytes if weights else d.engine.word.size_bytes
        step = d.nv if weights else max(1, LINE_BYTES // (word_bytes * self.lanes))
        for v in range(0, self.vectors, step):
            b.prefetch(self.read.panel, self._place(k, v))

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
        parts, zero = self._room(), b.constant(0, d.engine.total, lanes)
        self._keep(parts, [[zero] * vectors] * d.h)
        for q, low, high in runs(b, first, kc, block):
            sums = self.chain(low, high)
            self._scale(sums, scales, scales_step, q, lambda i, v: b.load(parts, (i * vectors + v) * lanes, lanes))
            self._keep(parts, sums)
        return self._kept(parts)

    def finish(self, sums: _Sums, x: CalledChunk) -> None:
        """c = t + the sums; integers have no -0 and no NaN to look for."""
        places = *x.t, *x.c
        if self.d.engine.exact:
            self._add(sums, *places, final=False)
            return
        for final in (False, True):
            for _ in self.b.when(x.last == int(final)):
                found = self._add(sums, *places, final)
                if final:
                    self._canonical(found, *x.c)

    def _add(
        self, sums: _Sums, t: Pointer, t_step: Index, c: Pointer, c_step: Index, final: bool
    ) -> list[Vector]:  # fmt: skip
        """c = t + the sums, and its vectors."""
        b, d, lanes, found = self.b, self.d, self.lanes, list[Vector]()
        for i in range(d.h):
            row = list[Vector]()
            for v in range(self.vectors):
                before = b.load(t, i * t_step + v * lanes, lanes)
                total = b.add(before, b.convert(sums[i][v], d.engine.total))
                row.append(b.add(total, b.like(total, 0)) if final and d.accumulates else total)
            if final and d.apart:
                row = [x for pair in zip(row[::2], row[1::2], strict=True) for x in self._joined(pair)]
            for v, total in enumerate(row):
                b.store(c, i * c_step + v * lanes, total)
            found += row
        return found

    def _joined(self, pair: tuple[Vector, Vector]) -> list[Vector]:
        """Two vectors, of even and of odd columns, interleaved."""
        order = [x for lane in range(self.lanes) for x in (lane, self.lanes + lane)]
        return [self.b.pick(pair, order[: self.lanes]), self.b.pick(pair, order[self.lanes :])]

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
