"""Functions that walk down columns of B where they lie, for some rows of A: each is compiled alone, for one height.

`walk` takes squares of B, which it transposes in registers and uses at once: lanes run over N, and each lane is one
ascending chain of a chunk. `dot` is for sums of free order: lanes run over K. Both are functions
`(a, a_chunk, x, column, wide, end, lone, chunks, whole, block, rest, t, step)`: t gains `chunks` chunks of the columns
of x from 0 to `end`, `column` elements apart, in `whole` words each, then `rest` words of `block`, packed [k][panel],
which belong to the last of them. The first `wide` columns are walked side by side, one chunk at a time. Of the others
the first `lone` chunks are walked for a group of columns after the other, `together` at once, the rest for all groups
at once. A lies [chunk][row][pitch], `a_chunk` words from a chunk to the next. Start at `function`.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, FunctionSpec, Index, Pointer
from samebits.dtypes import DType, bfloat16, uint32
from samebits.frozen import dataclass
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.order import CHAIN, SumOrder
from samebits.kernels.gemm.strip import FEW_ROWS, StripWalk
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import LINE_BYTES

# For each chain of the order, each column and chunk that is walked, and each row of A.
_Found = list[list[list[Any]]]
# Bytes of a column that are asked for ahead, and what it asks for where columns are walked side by side.
_AHEAD_BYTES, _NEXT_BYTES = 128, 64


@dataclass(frozen=True, slots=True)
class ColumnWalk:
    """What specialises the text: `high` rows of A, and how B is walked for them, as in `strip.StripWalk`.

    `words`: how elements of B become words.   `pitch`: words between rows of A.   `panel`: columns of a packed block.
    `order`: how a chunk is summed.
    `together`: chunks of a group of columns that are walked side by side.   `asks_along`: whether columns ask for their
    own next elements, not for those of other columns.
    """

    engine: Engine
    words: Words
    chunk: int
    pitch: int
    panel: int
    high: int
    columns: int
    side: int
    piece: int
    groups: int
    wide: int
    together: int
    asks_along: bool
    order: SumOrder = CHAIN

    @property
    def width(self) -> int:
        """Columns that are walked at once."""
        return self.columns * self.groups


def parameters(engine: Engine, words: Words) -> tuple[DType | None, ...]:
    """What the functions of an engine take, as `Builder.function` names it."""
    word = engine.word
    return (word, None, words.pointer, None, None, None, None, None, None, word, None, engine.total, None)


def function(d: ColumnWalk, isa: Isa) -> FunctionSpec:
    """The function of a height."""
    if d.engine.exact:  # its text unrolls nothing itself
        return FunctionSpec(dot, d, parameters(d.engine, d.words), isa)
    return FunctionSpec(walk, d, parameters(d.engine, d.words), isa, unroll=False)


def of(
    shape: StripWalk, high: int, rows: int, engine: Engine, words: Words, chunk: int, pitch: int, panel: int,
    together: int, order: SumOrder,
) -> ColumnWalk:  # fmt: skip
    """The walk of `high` among `rows` rows of A by `shape`."""
    along = not shape.piece and (not words.is_plain or rows > FEW_ROWS)
    together = together if shape.groups > 1 else 1
    return ColumnWalk(
        engine, words, chunk, pitch, panel, high, shape.columns, shape.side, shape.piece, shape.groups, shape.wide,
        together, along, order,
    )  # fmt: skip


def walk(
    b: Builder, d: ColumnWalk, a: Pointer, a_chunk: Index, x: Pointer, column: Index, wide: Index, end: Index,
    lone: Index, chunks: Index, whole: Index, block: Pointer, rest: Index, t: Pointer, step: Index,
) -> None:  # fmt: skip
    """Sums in the order of K, by squares."""
    text = _WalkText(b, d, a, a_chunk, x, column, whole, block, t, step)
    columns = d.columns
    for j in b.loop(0, wide, d.wide) if d.wide else ():
        for c in b.loop(0, chunks):
            text.gain([(j + i, c) for i in range(0, d.wide, columns)], 0, 0)
    for j in b.loop(wide, end, d.width):
        if d.groups > 1:
            for first in b.loop(j, j + d.width, columns):
                for c in b.loop(0, lone, d.together):
                    text.gain([(first, c + i) for i in range(d.together)], 0, columns)
        for c in b.loop(lone, chunks):
            text.gain([(j + i * columns, c) for i in range(d.groups)], rest, d.width)


@dataclass(frozen=True, slots=True)
class _WalkText:
    """A walk being emitted: what its chains read and write."""

    b: Builder
    d: ColumnWalk
    a: Pointer
    a_chunk: Index
    x: Pointer
    column: Index
    whole: Index
    block: Pointer
    t: Pointer
    step: Index

    def factor(self, m: int, c: Index, s: Index) -> Any:
        """Word s of chunk c of row m of A, for every column."""
        b, at = self.b, c * self.a_chunk + m * self.d.pitch + s
        return b.splat(b.load(self.a, at, 1), self.d.columns)

    def gain(self, chains: list[tuple[Index, Index]], rest: Index, beyond: int) -> None:
        """The sums of each (column, chunk) and `rest` packed words; `beyond`: see `_asks`, 0 for next lines."""
        b, d, columns = self.b, self.d, self.d.columns
        end = self.whole + rest
        if d.order.block:
            sums = self._blocks(chains, end, beyond)
        else:
            found = self._zeros(len(chains))
            self._squares(found, chains, 0, self.whole, beyond)
            self._packed(found, chains, self.whole, end)
            (sums,) = found
        for m in range(d.high):
            for (j, _), x in zip(chains, sums, strict=True):
                at = m * self.step + j
                b.store(self.t, at, b.add(b.load(self.t, at, columns), b.convert(x[m], d.engine.total)))

    def _blocks(self, chains: list[tuple[Index, Index]], end: Index, beyond: int) -> list[list[Any]]:
        """The sums of words 0 .. end-1 in an order of blocks."""
        b, d, size = self.b, self.d, self.d.order.block
        count, columns, start = len(chains), d.columns, 0
        parts = b.local(d.engine.total, count * d.high * columns)
        for i in range(count * d.high):
            b.store(parts, i * columns, b.constant(0, d.engine.total, columns))
        if d.side > size:  # a square is several blocks
            found = self._zeros(count)
            self._squares(found, chains, 0, self.whole, beyond, parts)
            start = self.whole
        for low in b.loop(start, end, size):
            found, high = self._zeros(count), b.min(low + size, end)
            turned = b.min(high, b.max(low, self.whole))
            self._squares(found, chains, low, turned, beyond)
            self._packed(found, chains, turned, high)
            for i in range(count):
                self._join(parts, found, i)
        return [[b.load(parts, (i * d.high + m) * columns, columns) for m in range(d.high)] for i in range(count)]

    def _zeros(self, count: int) -> _Found:
        zero = self.b.constant(0, self.d.engine.accumulator, self.d.columns)
        return [[[zero] * self.d.high for _ in range(count)] for _ in range(self.d.order.chains)]

    def _join(self, parts: Pointer, found: _Found, i: int) -> None:
        """The sum of a block's chains joins that of the blocks before it, of the i-th column and chunk."""
        b, d = self.b, self.d
        for m, chains in enumerate(zip(*(sums[i] for sums in found), strict=True)):
            at = (i * d.high + m) * d.columns
            b.store(parts, at, b.add(b.load(parts, at, d.columns), functools.reduce(b.add, chains)))

    def _squares(
        self, found: _Found, chains: list[tuple[Index, Index]], low: Index, end: Index, beyond: int,
        parts: Pointer | None = None,
    ) -> None:  # fmt: skip
        """Words low .. end-1, whole squares from the beginning of a block on, join the sums; with `parts` blocks end
        within a square, and join those."""
        b, d, side, columns, column = self.b, self.d, self.d.side, self.d.columns, self.column
        high, size, count = range(d.high), d.order.block, d.order.chains
        squares = 1 if beyond else LINE_BYTES // d.words.pointer.size_bytes // side
        squares = min(squares, size // side) if size and squares > 1 else squares
        # Chains of one chunk take the same factors of A, if registers hold these beside the sums, a square and what
        # turning it takes.
        shares = not beyond and d.high * (len(chains) * count + side) + 5 * side <= b.isa.registers
        for s in b.loop(low, end, side * squares, carry=found):
            asks = self._asks(chains, beyond, s) if beyond else []
            for part, (i, (j, c)) in itertools.product(range(squares), enumerate(chains)):
                at = s + part * side
                asking, after = (range(0), []) if beyond else (range(part, columns, squares), found[0][i])
                square = self._turned((c * d.chunk + at) * d.words.depth + j * column, asking, after)
                for place, cache in asks[i :: len(chains)]:
                    b.prefetch(self.x, place, cache)
                if shares and i == 0:
                    shared = [[self.factor(m, c, at + v) for m in high] for v in range(side)]
                for v, row in enumerate(square):
                    sums = found[v % count][i]
                    for m in high:
                        left = shared[v][m] if shares else self.factor(m, c, at + v)
                        sums[m] = d.engine.advance(b, left, row, sums[m])
                    if parts is not None and (v + 1) % size == 0:
                        self._join(parts, found, i)
                        for chain, zeros in zip(found, self._zeros(1), strict=True):
                            (chain[i],) = zeros

    def _packed(self, found: _Found, chains: list[tuple[Index, Index]], low: Index, end: Index) -> None:
        """Words low .. end-1, which are packed, join the sums; the first is the first chain's."""
        b, d, columns, count = self.b, self.d, self.d.columns, self.d.order.chains
        for first, sums in enumerate(found):
            for s in b.loop(low + first, end, count, carry=sums):
                for i, (_, c) in enumerate(chains):
                    row = b.load(self.block, (s - self.whole) * d.panel + i * columns, columns)
                    for m in range(d.high):
                        sums[i][m] = d.engine.advance(b, self.factor(m, c, s), row, sums[i][m])

    def _turned(self, at: Index, asking: range, after: list[Any]) -> list[Any]:
        """A square of words of `columns` columns from element `at` on, as vectors across them, read when `after` is
        made; the columns in `asking` ask for their next line."""
        b, d, words, columns, piece, column = (
            self.b, self.d, self.d.words, self.d.columns, self.d.piece, self.column
        )  # fmt: skip
        if not piece:
            return b.transpose([words.along(b, self.x, at + v * column, d.side) for v in range(d.side)])
        places = [b.anchor(b.offset(self.x, at), after)]
        while len(places) < columns // piece:
            places.append(b.anchor(b.offset(places[-1], piece * column)))
        for v in asking:
            b.prefetch(places[v // piece], v % piece * column + _NEXT_BYTES // words.pointer.size_bytes)
        halved = words.source is bfloat16
        if halved:  # two words of K are turned as one
            rows = [[b.cast(b.offset(p, v * column), uint32, aligned=False) for p in places] for v in range(piece)]
        else:
            rows = [[b.offset(p, v * column) for p in places] for v in range(piece)]
        pieces = [[b.load(p, 0, piece) for p in row] for row in rows]
        turned: list[Any] = b.transpose_blocks([b.concat(row) for row in pieces])
        if halved:
            halves = [(b.shift_left(v, 16), b.bit_and(v, b.like(v, 0xFFFF0000))) for v in turned]
            turned = [b.bitcast(v, words.word) for pair in halves for v in pair]
        return turned

    def _asks(self, chains: list[tuple[Index, Index]], beyond: int, s: Index) -> list[tuple[Index, int]]:
        """(element, cache) of the lines that a step at word s asks for: as much as it reads of the same chunk `beyond`
        columns on, one of those after the other; else what comes next of its columns."""
        d, words, columns, column, chunk = self.d, self.d.words, self.d.columns, self.column, self.d.chunk
        line = LINE_BYTES // words.pointer.size_bytes
        if d.asks_along:
            ahead = _AHEAD_BYTES // words.pointer.size_bytes
            starts = [(c * chunk + s) * words.depth + j * column + ahead for j, c in chains]
            return [(start + v * column, 1) for start in starts for v in range(columns)]
        found, size = [], d.side * columns
        for p in range(0, size, min(chunk, size)):
            place = s * columns + p
            for j, c in chains:
                at = c * chunk + (j + beyond + place // chunk) * column + place % chunk
                found += [(at + e, 2) for e in range(0, min(chunk, size), line)]
        return found


def dot(
    b: Builder, d: ColumnWalk, a: Pointer, a_chunk: Index, x: Pointer, column: Index, wide: Index, end: Index,
    lone: Index, chunks: Index, whole: Index, block: Pointer, rest: Index, t: Pointer, step: Index,
) -> None:  # fmt: skip
    """Sums of free order, for some columns at a time."""
    lanes = d.columns
    words, total, held = d.words, d.engine.total, d.engine.accumulator
    ahead = _AHEAD_BYTES // words.pointer.size_bytes
    # One column after the other is the longest run (4096 x 4096, GB/s of int8 at M = 1 and 2: 27 and 24, by four
    # columns 18 and 15, a plain read 27); more rows of A load fewer of its words a sum beside several (M = 4: 11 and
    # 15).
    some = 1 if d.high <= 2 else max(n for n in (1, 2, 4) if lanes % n == 0 and (n == 1 or n * d.high <= lanes))
    sums, zero = b.local(held, d.high * lanes * lanes), b.constant(0, held, lanes)

    def gain(left: Pointer, right: Pointer, first: int) -> None:
        """The sums of `some` columns of `right`, from `first` on."""
        acc = [[zero] * some for _ in range(d.high)]
        for s in b.loop(0, whole, lanes, carry=acc):
            rows = [b.load(left, m * d.pitch + s, lanes) for m in range(d.high)]
            for v in range(some):
                at = s * words.depth + (first + v) * column
                across = words.along(b, right, at, lanes)
                b.prefetch(right, at + ahead)
                for m in range(d.high):
                    acc[m][v] = d.engine.advance(b, rows[m], across, acc[m][v])
        for m in range(d.high):
            for v in range(some):
                b.store(sums, (m * lanes + first + v) * lanes, acc[m][v])

    for j in b.loop(0, end, lanes):
        for c in b.loop(0, chunks):
            left, right = b.offset(a, c * a_chunk), b.offset(x, c * d.chunk * words.depth + j * column)
            last = [zero] * d.high
            for s in b.loop(0, rest, carry=last):
                row = b.load(block, s * d.panel, lanes)
                for m in range(d.high):
                    factor = b.splat(b.load(left, m * d.pitch + whole + s, 1), lanes)
                    last[m] = d.engine.advance(b, factor, row, last[m])
            for first in range(0, lanes, some):
                gain(left, right, first)
            for m in range(d.high):
                rows = [b.load(sums, (m * lanes + v) * lanes, lanes) for v in range(lanes)]
                found = [last[m], *b.transpose(rows)]
                while len(found) > 1:
                    found = [*map(b.add, found[::2], found[1::2]), *found[len(found) // 2 * 2 :]]
                at = m * step + j
                b.store(t, at, b.add(b.load(t, at, lanes), b.convert(found[0], total)))
