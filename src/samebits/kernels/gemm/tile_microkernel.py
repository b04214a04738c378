"""The microkernel by tiles: one microtile of C gains one chunk of K, by products of tiles of the machine.

Its contract is that of `microkernel`, for an engine that takes tiles: two tiles of rows of A by two of columns of B at
a time, each sixteen words long along K. Rows of A are read in whole tiles, so that the block of A has room behind it;
what stands there reaches no row of C that is kept. The words of K behind the last whole tile are copied, with zeros on
both sides: beside a NaN no other zero would do. A tile of pairs of bfloat16 is a block of the order that they sum in
(`order.PAIRS32`), and chunks are whole blocks. Start at `tile_microkernel`.
"""

from __future__ import annotations

import functools
import itertools

from samebits.codegen.isa import Isa
from samebits.codegen.rules import TILE_LANES, TILE_ROWS
from samebits.codegen.vocabulary import Builder, FunctionSpec, Index, Pointer
from samebits.dtypes import int32
from samebits.frozen import dataclass
from samebits.kernels.gemm.microkernel import UNROLL, Microtile, parameters
from samebits.kernels.plan import LINE_BYTES

# Words along K of a tile, and tiles of columns that are multiplied together.
_WORDS, _ACROSS = TILE_LANES, 2
# Rows of C whose lines a step asks for.
_ROWS = 4


@functools.lru_cache(maxsize=1024)
def function(tile: Microtile, isa: Isa) -> FunctionSpec:
    """A microtile's function."""
    return FunctionSpec(tile_microkernel, tile, parameters(tile.engine, None, False), isa, unroll=False)


def tile_microkernel(
    b: Builder, d: Microtile, kc: Index, a: Pointer, panel: Pointer, b_step: Index, t: Pointer,
    t_step: Index, c: Pointer, c_step: Index, last: Index, following: Pointer, following_step: Index, asks: Index,
) -> None:  # fmt: skip
    """c = t + the sum of a chunk."""
    text = _TileText(b, d, _Ends(t, t_step, c, c_step))
    columns = text.nr // TILE_LANES
    for j in range(0, columns, _ACROSS):
        across = min(_ACROSS, columns - j)
        text.begin(j, across)
        whole = kc // _WORDS * _WORDS
        for k in b.loop(0, whole, _WORDS):
            if j == 0:
                _ask(b, k, following, following_step, asks)
                if text.goes_straight(0):
                    text.expect(k // _WORDS)
            text.multiply(b.offset(a, k), d.pitch, b.offset(panel, k * text.nr + j * TILE_LANES), text.nr, across)
        for _ in b.when(whole < kc):
            text.multiply_rest(
                b.offset(a, whole), b.offset(panel, whole * text.nr + j * TILE_LANES), kc - whole, across
            )
        text.finish(j, across, last)


def _ask(b: Builder, k: Index, following: Pointer, following_step: Index, asks: Index) -> None:
    """Ask, in the turns that begin at word k, for what follows, a line each, where many micropanels share the asking.
    Few would ask for so much that what they read waits (Emerald Rapids, int8, packed, of the speed without: 32 x 768 x
    3072 0.88, 32 x 4096 x 4096 0.91; but 2048 cubed 1.06)."""
    for _ in b.when(asks == 1):
        for u in range(_WORDS // UNROLL):
            b.prefetch(following, (k // UNROLL + u) * following_step)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where sums begin and where they go, with the steps of their rows."""

    t: Pointer
    t_step: Index
    c: Pointer
    c_step: Index


class _TileText:
    """One microtile being emitted."""

    def __init__(self, b: Builder, d: Microtile, ends: _Ends) -> None:
        self.b, self.d, self.ends = b, d, ends
        self.nr = d.nv * d.engine.lanes(b.isa)
        self.down = -(-d.h // TILE_ROWS)
        self.sums = [[b.tile() for _ in range(_ACROSS)] for _ in range(self.down)]
        self.left = [b.tile() for _ in range(self.down)]
        self.right = [b.tile() for _ in range(_ACROSS)]
        self.rest_a = b.local(int32, self.down * TILE_ROWS * TILE_LANES)
        self.rest_b = b.local(int32, TILE_ROWS * TILE_LANES * _ACROSS)
        self.part = b.local(d.engine.accumulator, self.down * _ACROSS * TILE_ROWS * TILE_LANES)

    def expect(self, step: Index) -> None:
        """Ask, in a step, for some lines of the microtile below, which is written next: all at once they would keep
        what the step reads waiting (Emerald Rapids, int8, of the speed without asking: 512 cubed 1.11, 1024 cubed
        1.11). Rows of A are not asked for: they come from the second cache as fast as it can send them (2048 cubed of
        int8, of the speed without: 0.90)."""
        b, x, line = self.b, self.ends, LINE_BYTES // self.d.engine.total.size_bytes
        for _ in b.when(step * _ROWS < self.d.h):
            for i in range(self.d.h, self.d.h + _ROWS):
                for j in range(0, self.nr, line):
                    b.prefetch(x.c, (step * _ROWS + i) * x.c_step + j)

    def goes_straight(self, i: int) -> bool:
        """Whether the sums of tiles i begin as what t holds and are c: exact, in the lanes of tiles, and whole rows."""
        d = self.d
        return d.engine.exact and d.engine.total is d.engine.accumulator and (i + 1) * TILE_ROWS <= d.h

    def begin(self, j: int, across: int) -> None:
        """The sums of `across` tiles of columns from j on begin."""
        for i, row in enumerate(self.sums):
            for q, tile in enumerate(row[:across]):
                if self.goes_straight(i):
                    self.b.tile_load(tile, self._place(self.ends.t, self.ends.t_step, i, j + q), self.ends.t_step)
                else:
                    self.b.tile_zero(tile)

    def _place(self, p: Pointer, step: Index, i: int, j: int) -> Pointer:
        return self.b.offset(p, i * TILE_ROWS * step + j * TILE_LANES)

    def multiply(self, a: Pointer, a_step: Index, panel: Pointer, step: Index, across: int) -> None:
        """The sums gain the products of sixteen words: rows of A `a_step` apart, of B `step`."""
        b = self.b
        for i, left in enumerate(self.left):
            b.tile_load(left, b.offset(a, i * TILE_ROWS * a_step), a_step)
            for j in range(across):
                if i == 0:
                    b.tile_load(self.right[j], b.offset(panel, j * TILE_LANES), step)
                self.d.engine.advance_tile(b, left, self.right[j], self.sums[i][j])

    def multiply_rest(self, a: Pointer, panel: Pointer, words: Index, across: int) -> None:
        """The same of fewer words: of what is not there nothing is read, and zeros stand for it on both sides."""
        b, d, width = self.b, self.d, across * TILE_LANES
        for r in b.loop(0, d.h):
            b.store(self.rest_a, r * TILE_LANES, b.load(a, r * d.pitch, TILE_LANES, words))
        for k in b.loop(0, TILE_ROWS):
            row = b.load(panel, k * self.nr, width, b.choose(k < words, width, 0))
            b.store(self.rest_b, k * width, row)
        self.multiply(self.rest_a, TILE_LANES, self.rest_b, width, across)

    def finish(self, j: int, across: int, last: Index) -> None:
        """c = t + the sums; of floats the last without -0 and with canonical NaN."""
        b, x, every = self.b, self.ends, range(self.down)
        self._store([i for i in every if self.goes_straight(i)], j, across)
        others = [i for i in every if not self.goes_straight(i)]
        fresh = [i for i in others if self.may_be_fresh(i)]
        if not fresh:
            self._add(others, j, across, last)
            return
        for _ in b.when(x.t_step == 0):
            self._store(fresh, j, across)
            for _ in b.when(last == 1):
                for i in fresh:
                    self._make_canonical(i, j, across)
            self._add([i for i in others if i not in fresh], j, across, last)
        for _ in b.when(x.t_step != 0):
            self._add(others, j, across, last)

    def _store(self, tiles: list[int], j: int, across: int) -> None:
        """c = the sums of these tiles of rows."""
        for i in tiles:
            for q, tile in enumerate(self.sums[i][:across]):
                self.b.tile_store(tile, self._place(self.ends.c, self.ends.c_step, i, j + q), self.ends.c_step)

    def may_be_fresh(self, i: int) -> bool:
        """Whether sums of floats of tiles i, of whole rows, are c where t is the row of zeros that sums start from: a
        chunk's sum is never -0. Rows of t are one there alone, as those of no result are."""
        d = self.d
        return not d.engine.exact and not d.accumulates and (i + 1) * TILE_ROWS <= d.h

    def _make_canonical(self, i: int, j: int, across: int) -> None:
        """NaN among the sums just stored become canonical; the sum of all is NaN where one is, or infinities meet."""
        b, x, width = self.b, self.ends, across * TILE_LANES
        c = self._place(x.c, x.c_step, i, j)
        rows = [b.load(c, r * x.c_step, width) for r in range(TILE_ROWS)]
        for _ in b.when(b.any(b.is_nan(functools.reduce(b.add, rows)))):
            for r in b.loop(0, TILE_ROWS):
                b.store(c, r * x.c_step, b.canonical(b.load(c, r * x.c_step, width)))

    def _add(self, tiles: list[int], j: int, across: int, last: Index) -> None:
        """c = t + the sums of these tiles of rows, of the rows that there are."""
        b, exact = self.b, self.d.engine.exact
        for i in tiles:
            for q, tile in enumerate(self.sums[i][:across]):
                b.tile_store(tile, b.offset(self.part, self._waiting(i, q)), TILE_LANES)
        for final in (False,) if exact else (False, True):
            for _ in range(1) if exact else b.when(last == int(final)):
                for i in tiles:
                    rows = min(TILE_ROWS, self.d.h - i * TILE_ROWS)
                    turn = _ROWS if rows % _ROWS == 0 else 1
                    for r in b.loop(0, rows, turn):
                        for u, q in itertools.product(range(turn), range(across)):
                            self._add_row(i, j, q, r + u, final)

    def _waiting(self, i: int, q: int) -> int:
        """Where the sums of tile q of tiles i wait."""
        return (i * _ACROSS + q) * TILE_ROWS * TILE_LANES

    def _add_row(self, i: int, j: int, q: int, r: Index, final: bool) -> None:
        """Row r of one tile."""
        b, d, x = self.b, self.d, self.ends
        t, c = self._place(x.t, x.t_step, i, j + q), self._place(x.c, x.c_step, i, j + q)
        sums = b.convert(b.load(self.part, self._waiting(i, q) + r * TILE_LANES, TILE_LANES), d.engine.total)
        total = b.add(b.load(t, r * x.t_step, TILE_LANES), sums)
        if final and d.accumulates:
            total = b.add(total, b.like(total, 0))
        b.store(c, r * x.c_step, b.canonical(total) if final else total)
