"""Columns of microtiles by tiles: the microtiles of a panel of B gain words of K, by products of tiles of the machine.

Contract, for `count` micropanels of `h` rows and the columns of a panel: c = t + the sums of kc words, as `microkernel`
says for a chunk; a call takes several. Two tiles of rows of A by two of columns of B are multiplied at a time, each
sixteen words long along K. A lies in steps of so many (`tile_blocks`), micropanels `a_step` words apart, and is read in
whole tiles, so that its block has room behind it; what stands there reaches no row of C that is kept. The words of K
behind the last whole tile are copied, with zeros on both sides: beside a NaN no other zero would do.

Integers have one sum for all of K. A tile of pairs of bfloat16 is a block of the order that they sum in
(`order.PAIRS32`), and chunks are whole blocks. When a chunk ends its sums are put down, and vectors settle them while
tiles multiply what comes next, some rows a step: they are added to the total of the chunks before, or, the last, become
C. Between chunks the total is dense: rows of C a power of two apart would share one set of the first cache.
Start at `tile_column`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from samebits.codegen.isa import Isa
from samebits.codegen.rules import TILE_LANES, TILE_ROWS
from samebits.codegen.vocabulary import Builder, FunctionSpec, Index, Pointer
from samebits.dtypes import DType, int32, uint8
from samebits.frozen import dataclass
from samebits.kernels import convert
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.microtile import UNROLL
from samebits.kernels.plan import LINE_BYTES

# Words along K of a tile, and tiles of columns that are multiplied together.
_WORDS, _ACROSS = TILE_LANES, 2
# Rows of C whose lines a step asks for.
_ROWS = 4
# The cache that what is read next is asked for into.
_LEVEL = 2


@dataclass(frozen=True, slots=True)
class TiledColumn:
    """What specialises the text: micropanels of `h` rows by a panel of `nv` vectors, by one engine's steps.

    `chunk`: words of a chunk; 0 of integers.   `accumulates`: whether a sum may begin as -0.
    `out`: the narrower floats that finished sums may become.
    """

    engine: Engine
    h: int
    nv: int
    chunk: int
    accumulates: bool
    out: DType | None


def parameters(engine: Engine, out: DType | None = None) -> tuple[DType | None, ...]:
    """What every column of microtiles of an engine takes, as `Builder.function` names it."""
    word, total = engine.word, engine.total
    taken = (None, word, None, word, None, total, None, total, None, None, None, uint8, None, None, None)
    return (*taken, convert.stored(out), None, None) if out else taken


@functools.lru_cache(maxsize=1024)
def function(column: TiledColumn, isa: Isa) -> FunctionSpec:
    """A column's function."""
    return FunctionSpec(tile_column, column, parameters(column.engine, column.out), isa, unroll=False)


def tile_column(
    b: Builder, d: TiledColumn, kc: Index, a: Pointer, a_step: Index, panel: Pointer, count: Index, t: Pointer,
    t_step: Index, c: Pointer, c_step: Index, last: Index, passes: Index, following: Pointer, following_step: Index,
    following_each: Index, asks: Index, *out: Any,
) -> None:  # fmt: skip
    """c = t + the sums of kc words, past the caches where `passes` is 1. Micropanel p asks for what follows
    `following_each` bytes after the one before. `out`: narrower floats, the step of their rows, and whether sums become
    these (1) and not c."""
    text = _ColumnText(b, d, kc, panel, _Ends(t, t_step, c, c_step, last, passes, out))
    asked = _NextPanel(following, following_step, following_each, asks)
    for j in range(0, text.nr // TILE_LANES, _ACROSS):
        text.turn(j)
        for p in b.loop(0, count):
            text.micropanel(p, b.offset(a, p * a_step), asked)
        text.settle(count, 0, 0, d.h)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where sums begin and where they go, with the steps of their rows; whether these are the last of K, and go past
    the caches; and where they go as narrower floats, if anywhere, with the step, and whether they do."""

    t: Pointer
    t_step: Index
    c: Pointer
    c_step: Index
    last: Index
    passes: Index
    out: tuple[Any, ...]

    @property
    def narrows(self) -> Index:
        """1 where sums go as narrower floats."""
        return self.out[2] if self.out else 0


@dataclass(frozen=True, slots=True)
class _NextPanel:
    """What of B to ask for meanwhile, as of `microkernel`, and how much further each micropanel asks."""

    following: Pointer
    step: Index
    each: Index
    asks: Index


class _ColumnText:
    """The microtiles of a panel being emitted, `across` tiles of its columns from j on at a time."""

    def __init__(self, b: Builder, d: TiledColumn, kc: Index, panel: Pointer, ends: _Ends) -> None:
        self.b, self.d, self.kc, self.panel, self.ends = b, d, kc, panel, ends
        self.nr = d.nv * d.engine.lanes(b.isa)
        # Words of a chunk: of integers all.
        self.size = d.chunk or b.max(kc, 1)
        self.down = -(-d.h // TILE_ROWS)
        self.sums = [[b.tile() for _ in range(_ACROSS)] for _ in range(self.down)]
        self.left = [b.tile() for _ in range(self.down)]
        self.right = [b.tile() for _ in range(_ACROSS)]
        self.rest_a = b.local(int32, self.down * TILE_ROWS * TILE_LANES)
        self.rest_b = b.local(int32, TILE_ROWS * TILE_LANES * _ACROSS)
        self.part = b.local(d.engine.accumulator, self.down * _ACROSS * TILE_ROWS * TILE_LANES)
        self.total = b.local(d.engine.total, d.h * _ACROSS * TILE_LANES)
        self.turn(0)

    def turn(self, j: int) -> None:
        """To the tiles of columns from j on."""
        self.j, self.across = j, min(_ACROSS, self.nr // TILE_LANES - j)

    def micropanel(self, p: Index, a: Pointer, asked: _NextPanel) -> None:
        """The sums of micropanel p of A, but for the last rows that nothing settles yet."""
        b, h = self.b, self.d.h
        for k0 in b.loop(0, b.max(self.kc, 1), self.size) if self.d.chunk else (0,):
            for tile in itertools.chain(*(row[: self.across] for row in self.sums)):
                b.tile_zero(tile)
            words = b.min(self.size, self.kc - k0)
            steps = words // _WORDS
            rows = (h + b.max(steps, 1) - 1) // b.max(steps, 1)
            for step in b.loop(0, steps):
                k = k0 + step * _WORDS
                if self.j == 0:
                    self.ask(p, k, asked)
                    self.expect(p, k // _WORDS)
                self.multiply(b.offset(a, k * h), self._panel(k), self.nr)
                first = b.min(step * rows, h)
                self.settle(p, k0, first, b.min(first + rows, h))
            for _ in b.when(steps * _WORDS < words):
                self.multiply_rest(a, k0 + steps * _WORDS, words - steps * _WORDS)
            self.settle(p, k0, b.min(steps * rows, h), h)
            for i, row in enumerate(self.sums):
                for q, tile in enumerate(row[: self.across]):
                    b.tile_store(tile, b.offset(self.part, self._waiting(i * TILE_ROWS, q)), TILE_LANES)

    def _panel(self, k: Index) -> Pointer:
        return self.b.offset(self.panel, k * self.nr + self.j * TILE_LANES)

    def _waiting(self, r: Index, q: int) -> Index:
        """Where row r of the sums of tile q of a row of tiles waits."""
        return (q * self.down * TILE_ROWS + r) * TILE_LANES

    def ask(self, p: Index, k: Index, x: _NextPanel) -> None:
        """Ask, in the turns that begin at word k, for what follows, a line each, or two, where micropanels share the
        asking (Emerald Rapids, packed, GFLOP/s where four do not ask and where they do: bfloat16 128 x 4096 x 4096 827
        and 987, 4096 cubed 904 and 956, int8 128 x 4096 x 4096 2034 and 2173). Fewer than four would ask for so much
        that what they read waits (int8, of the speed without: 32 x 768 x 3072 0.88, 32 x 4096 x 4096 0.91)."""
        for lines in (1, 2):
            for _ in self.b.when(x.asks == lines):
                for u, line in itertools.product(range(_WORDS // UNROLL), range(lines)):
                    place = p * x.each + (k // UNROLL + u) * x.step + line * LINE_BYTES
                    self.b.prefetch(x.following, place, _LEVEL)

    def expect(self, p: Index, step: Index) -> None:
        """Ask, in a step, for some lines that this micropanel's sums become: all at once they would keep what the step
        reads waiting (Emerald Rapids, int8, of the speed without asking: 512 cubed 1.11, 1024 cubed 1.11). Rows of A
        are not asked for: they come from the second cache as fast as it can send them (2048 cubed of int8, of the speed
        without: 0.90)."""
        b, x, h = self.b, self.ends, self.d.h
        is_far = (x.c_step > self.nr) & (x.passes == 0) & (x.narrows == 0)
        places = [(is_far, x.c, x.c_step), *([(x.narrows == 1, *x.out[:2])] if x.out else [])]
        for is_this, c, c_step in places:
            for _ in b.when(b.choose(is_this, step * _ROWS, h) < h):
                for i in range(_ROWS):
                    for j in range(0, self.nr, LINE_BYTES // c.dtype.size_bytes):
                        b.prefetch(c, (p * h + step * _ROWS + i) * c_step + j)

    def multiply(self, a: Pointer, panel: Pointer, step: Index) -> None:
        """The sums gain the products of sixteen words: rows of A that follow each other, of B `step` apart."""
        b = self.b
        for i, left in enumerate(self.left):
            b.tile_load(left, b.offset(a, i * TILE_ROWS * TILE_LANES), TILE_LANES)
            for q in range(self.across):
                if i == 0:
                    b.tile_load(self.right[q], b.offset(panel, q * TILE_LANES), step)
                self.d.engine.advance_tile(b, left, self.right[q], self.sums[i][q])

    def multiply_rest(self, a: Pointer, k: Index, words: Index) -> None:
        """The same of fewer words, from k on: of what is not there nothing is read, and zeros stand for it on both
        sides."""
        b, width, h = self.b, self.across * TILE_LANES, self.d.h
        a, panel = b.offset(a, k * h), self._panel(k)
        for r in b.loop(0, h):
            b.store(self.rest_a, r * TILE_LANES, b.load(a, r * TILE_LANES, TILE_LANES, words))
        for i in b.loop(0, TILE_ROWS):
            row = b.load(panel, i * self.nr, width, b.choose(i < words, width, 0))
            b.store(self.rest_b, i * width, row)
        self.multiply(self.rest_a, self.rest_b, width)

    def settle(self, p: Index, k0: Index, first: Index, end: Index) -> None:
        """Rows first .. end-1 of the sums that were put down before those of chunk k0 of micropanel p begin."""
        b, x, h = self.b, self.ends, self.d.h
        if self.d.chunk:
            for _ in b.when(k0 > 0):
                is_first = k0 == self.size
                before = b.choose(is_first, self._row(x.t, x.t_step, p * h), self.total)
                step = b.choose(is_first, x.t_step, _ACROSS * TILE_LANES)
                for r in b.loop(first, end):
                    for q in range(self.across):
                        b.store(self.total, (r * _ACROSS + q) * TILE_LANES, self._added(before, step, r, q))
        for _ in b.when((k0 == 0) & (p > 0)):
            c = self._row(x.c, x.c_step, (p - 1) * h)
            before, step = self._row(x.t, x.t_step, (p - 1) * h), x.t_step
            if self.d.chunk:
                several = self.kc > self.size
                before = b.choose(several, self.total, before)
                step = b.choose(several, _ACROSS * TILE_LANES, step)
            # Whether the sums are the last, which integers need not know.
            for is_last in (True,) if self.d.engine.exact else (False, True):
                for _ in b.when(x.last == int(is_last)) if not self.d.engine.exact else (None,):
                    self._settle_last(p - 1, (c, before, step), first, end, is_last)

    def _settle_last(
        self, p: Index, places: tuple[Pointer, Pointer, Index], first: Index, end: Index, is_last: bool
    ) -> None:
        """The same of the sums of all chunks of micropanel p, which go where `_Ends` says."""
        b, x, (c, before, step) = self.b, self.ends, places

        def rows(store: Callable[[Index, int, Any], None]) -> None:
            for r in b.loop(first, end):
                for q in range(self.across):
                    store(r, q * TILE_LANES, self._finished(self._added(before, step, r, q), is_last))

        if not is_last:
            rows(lambda r, j, total: b.store(c, r * x.c_step + j, total))
            return
        for _ in b.when((x.passes == 0) & (x.narrows == 0)):
            rows(lambda r, j, total: b.store(c, r * x.c_step + j, total))
        for _ in b.when(x.passes == 1):
            rows(lambda r, j, total: b.store_nontemporal(c, r * x.c_step + j, total))
        if x.out:
            out, out_step, _ = x.out
            line = self._row(out, out_step, p * self.d.h)
            for _ in b.when(x.narrows == 1):
                rows(lambda r, j, total: b.store(line, r * out_step + j, self._narrowed(total)))

    def _narrowed(self, total: Any) -> Any:
        """A canonical sum as the narrower float."""
        assert self.d.out is not None  # only then is there a place
        return convert.encode(self.b, total, self.d.out, canonical=True)

    def _row(self, p: Pointer, step: Index, r: Index) -> Pointer:
        """Row r of these columns."""
        return self.b.offset(p, r * step + self.j * TILE_LANES)

    def _added(self, before: Pointer, step: Index, r: Index, q: int) -> Any:
        """Row r of tile q of columns: what was there before, and the sums that wait."""
        b = self.b
        sums = b.convert(b.load(self.part, self._waiting(r, q), TILE_LANES), self.d.engine.total)
        return b.add(b.load(before, r * step + q * TILE_LANES, TILE_LANES), sums)

    def _finished(self, total: Any, is_last: bool) -> Any:
        """Of floats the last without -0 and with canonical NaN."""
        if self.d.engine.exact or not is_last:
            return total
        total = self.b.add(total, self.b.like(total, 0)) if self.d.accumulates else total
        return self.b.canonical(total)
