"""The operands of a chunk, as the steps of a microtile read them and ask for what is read next.

A step takes a row of B, which is words already or becomes them here, and a word of each row of A in every lane. Where B
becomes words, or is read where it lies, they may be written down for other microtiles. The contract, where all of this
lies, is that of `microkernel`, which has the steps. Start at `MicrotileOperands`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import float32, uint32
from samebits.frozen import dataclass, replace
from samebits.kernels.gemm.microtile import MOST_ASKS, UNROLL, Microtile
from samebits.kernels.plan import LINE_BYTES

# Low tiles read B once, and ask for it this many rows ahead: farther is too late for the hardware's own prefetching
# (M = 1, 768 x 768 in the last cache, GB/s at 1, 2, 4, 8 rows: avx512 93 93 81 77, avx2 87 90 90 88; 4096 x 4096 in
# memory 32 33 30 31 and 34 34 36 32).
_AHEAD = 2
_AHEAD_WEIGHTS = 16


@dataclass(frozen=True, slots=True)
class MicrotileOperands:
    """What a chunk's steps read, and what they ask for.

    Attributes:
        b, d: The builder, and what specialises the microtile.
        a: The first word of A.
        panel, b_step: The first word of B, and its step (`microkernel`).
        following, following_step: What is asked for meanwhile, and how far that goes from one turn to the next.
        asks: Lines of it that a turn asks for.
        kept: Where words of B are written down, and how far apart panels are there; None where they are not.
        again: Where `a` is, but LLVM does not know so; None where words of A are read once.
    """

    b: Builder
    d: Microtile
    a: Pointer
    panel: Pointer
    b_step: Index
    following: Pointer
    following_step: Index
    asks: Index
    kept: tuple[Pointer, Index] | None = None
    again: Pointer | None = None

    @property
    def lanes(self) -> int:
        """Words of a vector."""
        return self.d.engine.lanes(self.b.isa)

    @property
    def nr(self) -> int:
        """Columns of a panel."""
        return self.d.nv * self.lanes

    def behind(self, k: Index, after: Sequence[Vector]) -> MicrotileOperands:
        """The same from word k on, to be read when the vectors `after` are made."""
        b = self.b
        a, panel = b.anchor(b.offset(self.a, k), after), b.anchor(b.offset(self.panel, k * self.nr), after)
        kept = self.kept and (b.offset(self.kept[0], k * self.nr), self.kept[1])
        return replace(self, a=a, panel=panel, kept=kept)

    def twice(self, at: Index) -> MicrotileOperands:
        """The same with A from `at` on, of which every second row is read once for each step that takes its word."""
        a = self.b.anchor(self.b.offset(self.a, at))
        return replace(self, a=a, again=self.b.anchor(a))

    def left(self, at: Index, row: int) -> list[Vector]:
        """The word of a row of A that is at `at` of the first row, in every lane; twice where it is read so."""
        b, place = self.b, at + row * (UNROLL if self.d.interleaved else self.d.pitch)
        sources = (self.a, self.again) if self.again and row % 2 else (self.a,)
        return [b.splat(b.load(x, place, 1), self.lanes) for x in sources]

    def right(self, k: Index) -> list[Vector]:
        """Row k of B as words, which are written down where others take them."""
        found = self._words(k)
        if self.kept is not None:
            kept, step = self.kept
            for v, words in enumerate(found):
                self.b.store(kept, self.place(k, v, step), words)
        return found

    def _words(self, k: Index) -> list[Vector]:
        b, panel, lanes, weights = self.b, self.panel, self.lanes, self.d.weights
        places = [self.place(k, v) for v in range(self.d.vectors)]
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

    def place(self, k: Index, v: int, step: Index | None = None) -> Index:
        """Where vector v of row k of B is, in panels that are `step` apart, or as far as those that are read."""
        if step is None and self.d.lies:
            return k * self.b_step + v * self.lanes
        step = self.b_step if step is None else step
        return k * self.nr + (v // self.d.nv) * step + (v % self.d.nv) * self.lanes

    def ask(self, turn: Index, k: Index, u: int) -> None:
        """Ask, before step u of a turn that begins at word k, for what follows: the next panel where many rows use each
        panel, at once, else the next row of this one. Rows asked for all at once wait for each other (M = 1, packed,
        Zen 4: 5 to 16 % of the time)."""
        weights = self.d.weights
        if self.d.panels == 1 and self.d.h > 2:
            if not u:
                for _ in self.b.when(self.asks < 2):
                    self.ask_for_following(turn)
                self.ask_for_more(turn, 1, 0)
        elif weights is None or not u % max(1, LINE_BYTES // (weights.pointer.size_bytes * self.nr)):
            self.ask_for_row(k + u + (_AHEAD_WEIGHTS if weights else _AHEAD))

    def ask_for_following(self, turn: Index) -> None:
        """A line of the next panel. Weights are converted for so long that it may wait in the second cache."""
        self.b.prefetch(self.following, turn * self.following_step, 2 if self.d.weights else 1)

    def ask_for_more(self, turn: Index, turns: int, first: int) -> None:
        """The lines of some turns from number `first` on, where a turn asks for several. Few rows use a panel then,
        and the next one waits in the second cache: the first has no room for both (Emerald Rapids, one thread, speed
        over that of the first: 32 x 3072 x 4096 of float32 beside columns 1.05, 4 rows of bfloat16 beside int8 1.03,
        uint4, a line a turn, 1.04; but 128 x 768 x 3072 of float32 packed, a line a turn, 0.97)."""

        def ask(lines: range) -> None:
            for i, line in itertools.product(range(turns), lines):
                self.b.prefetch(self.following, (turn + i) * self.following_step + line * LINE_BYTES, 2)

        for _ in self.b.when(self.asks > 1):
            ask(range(first, 2))
            for _ in self.b.when(self.asks > 2):
                ask(range(2, MOST_ASKS))

    def ask_for_row(self, k: Index) -> None:
        """Ask for row k of B; several rows of a panel of weights share a line."""
        b, d, weights = self.b, self.d, self.d.weights
        word_bytes = weights.pointer.size_bytes if weights else d.engine.word.size_bytes
        step = d.nv if weights else max(1, LINE_BYTES // (word_bytes * self.lanes))
        for v in range(0, d.vectors, step):
            b.prefetch(self.panel, self.place(k, v))
