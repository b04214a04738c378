"""Streamed products: few rows of A, a right operand that is read once, where it lies, in long runs.

A task is a strip of columns over all of K. Its sums are tiles in scratch, [rows of A][columns]: the chunk's `p` and the
total `t` of numerics.md section 2; lanes run over N, so each lane is one ascending chain.
- Rows of B contiguous (`b` copy): a few rows of B at a time cross the whole strip, and each vector of p gains them
  all between a load and a store. So memory sees as few and as long runs as B has (float32 4096 x 4096, M = 1:
  24 GB/s in strips of 4096 columns, 20 of 1024, 15 of 512; a plain read 20 in the same run).
- Columns of B contiguous (`b` transpose: a weight [N, K]): squares are transposed in registers and used at once, a
  chunk of K or two at a time, with p in registers; few rows of A ask for the next columns a chunk at a time into the
  second cache, so memory sees runs of a chunk. From a near cache more columns are read at once. What fills no square
  is packed first.

K is counted in words of the engine, as in the macrokernel. Scratch: block of A | words that are packed | zeros, p, t
| immediates; offsets are arguments. Start at `stream`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer
from samebits.dtypes import bfloat16, uint32
from samebits.kernels.gemm import batch, pack, parts
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.epilogue import Epilogue, Finish
from samebits.kernels.gemm.strip import FEW_ROWS, StripWalk
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import LINE_BYTES

# Bytes of a row of B, and of a column, that are asked for ahead.
_AHEAD_BYTES, _AHEAD_DOWN = 256, 128
# What a column asks for where columns are walked side by side.
_NEXT_BYTES = 64


@dataclass(frozen=True, slots=True)
class Stream:
    """What specialises the text; sizes and strides are arguments.

    `rows`: of A, all of M.   `words`: how elements of A and B become words.   `b`: how B is packed: `copy` where its
    rows are contiguous, `transpose` where its columns are.   `together`: chunks of columns that are walked side by
    side, if registers hold them.   `near`: whether B is in a near cache.   `a`, `kc`, `pitch`, `chunk`, `accumulates`:
    as in the macrokernel.
    """

    engine: Engine
    words: tuple[Words, Words]
    rows: int
    kc: int
    pitch: int
    chunk: int
    together: int
    near: bool
    a: str
    b: str
    batch_rank: int
    accumulates: bool
    epilogue: Epilogue
    in_parts: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """The argument names in order; `step`: from a row of a tile to the next."""
        names = ["a", "b", "n", "k_begin", "k_end", "elements", "n_step", "n_blocks", "step"]
        names += ["a_row", "a_column", "b_row", "b_column", "scratch_b", "scratch_t"]
        names += parts.PARAMETERS if self.in_parts else []
        moving = batch.parameters(self.batch_rank, ["a", "b", *self.epilogue.operands])
        return (*names, *self.epilogue.parameters, *moving)


class _StreamText:
    """One kernel being emitted: its functions, its arguments, its temporaries."""

    def __init__(self, b: Builder, d: Stream) -> None:
        self.b, self.d = b, d
        self.lanes = d.engine.lanes(b.isa)
        self.shape = StripWalk.of(d.rows, self.lanes, b.isa, d.words[1], d.near)
        width = pack.COPIED_VECTORS * self.lanes
        self.pack_a = pack.PackedBlock(d.words[0], d.a, width, self.lanes, k_is_row=False).emit(b, "pack_a")
        self.width = self.shape.width(d.b, self.lanes)
        self.finish = Finish(b, d.epilogue, self.width, d.accumulates)
        if d.b == "copy":
            self.gains = {deep: self._gain(deep) for deep in sorted({1, self.shape.deep})}
            self.join = self._join()
        else:
            block = pack.PackedBlock(d.words[1], d.b, self.width, self.lanes, k_is_row=True)
            self.pack_b = pack.emit_panel(b, block, self.width)
            walk = self._dot if d.engine.exact else self._walk
            self.walks = {high: walk(high) for high in {h for _, h in self._bands()}}
        self.seal = self._seal()
        self.block_a = b.scratch(d.engine.word)
        self.block_b = b.scratch(d.engine.word, b.index("scratch_b"))
        tile = b.scratch(d.engine.total, b.index("scratch_t"))
        self.step = b.index("step")
        self.t = tile
        self.p = b.cast(b.offset(tile, self.step * d.rows), d.engine.accumulator)
        self.zeros = b.offset(self.p, self.step * d.rows)

    def _bands(self) -> list[tuple[int, int]]:
        """(first row, rows) of the bands of A, each what one walk serves."""
        rows, high = self.d.rows, self.shape.high
        count = -(-rows // high)
        cuts = [rows * i // count for i in range(count + 1)]
        return [(low, end - low) for low, end in itertools.pairwise(cuts)]

    def _gain(self, deep: int) -> Function:
        """A function: every column of p gains `deep` rows of B, of words of `present` elements."""
        b, d, width = self.b, self.d, self.width
        word, words = d.engine.word, d.words[1]
        ahead, line = _AHEAD_BYTES // words.pointer.size_bytes, LINE_BYTES // words.pointer.size_bytes
        depth = words.depth

        def body(
            a: Pointer, x: Pointer, row: Index, columns: Index, start: Pointer, start_step: Index, p: Pointer,
            step: Index, elements: Index,
        ) -> None:  # fmt: skip
            present = elements if deep == 1 and depth > 1 else None

            def gain(j: Index, count: Index | None) -> None:
                held = [words.across(b, x, r * depth * row + j, row, width, count, present) for r in range(deep)]
                for r in range(deep * depth) if count is None else ():
                    for i in range(0, width, line):
                        b.prefetch(x, r * row + j + ahead + i)
                for m in range(d.rows):
                    acc = b.load(start, m * start_step + j, width)
                    for r in range(deep):
                        acc = d.engine.advance(b, b.splat(b.load(a, m * d.pitch + r, 1), width), held[r], acc)
                    b.store(p, m * step + j, acc)

            whole = columns // width * width
            for j in b.loop(0, whole, width):
                gain(j, None)
            for _ in b.when(whole < columns):
                gain(whole, columns - whole)

        acc = d.engine.accumulator
        return b.function(f"gain_{deep}", (word, words.pointer, None, None, acc, None, acc, None, None), body)

    def _join(self) -> Function:
        """A function: t gains p."""
        b, d, width = self.b, self.d, self.width

        def body(t: Pointer, p: Pointer, step: Index, columns: Index) -> None:
            for j in b.loop(0, columns, width):
                for m in range(d.rows):
                    part = b.convert(b.load(p, m * step + j, width), d.engine.total)
                    b.store(t, m * step + j, b.add(b.load(t, m * step + j, width), part))

        return b.function("join", (d.engine.total, d.engine.accumulator, None, None), body)

    def _turned(self, x: Pointer, at: Index, column: Index, asking: range, after: list[Any]) -> list[Any]:
        """A square of words of `columns` columns from element `at` on, as vectors across them, read when `after` is
        made; the columns in `asking` ask for their next line."""
        b, words, columns, side, piece = self.b, self.d.words[1], self.shape.columns, self.shape.side, self.shape.piece
        if not piece:
            return b.transpose([words.along(b, x, at + v * column, side) for v in range(side)])
        places = [b.anchor(b.offset(x, at), after)]
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

    def _walk(self, high: int) -> Function:
        """A function: `high` rows of t gain `chunks` chunks of columns of B where they lie, in `whole` words each, then
        `rest` packed words, which belong to the last of them. The first `wide` columns are walked `shape.wide` at once.
        Of the others the first `lone` chunks are walked for a group of columns after the other, `together` at once,
        the rest for all groups at once."""
        b, d, shape = self.b, self.d, self.shape
        word, words, total, held = d.engine.word, d.words[1], d.engine.total, d.engine.accumulator
        width, columns, side = self.width, shape.columns, shape.side
        line = LINE_BYTES // words.pointer.size_bytes

        def body(
            a: Pointer, x: Pointer, column: Index, wide: Index, end: Index, lone: Index, chunks: Index, whole: Index,
            block: Pointer, rest: Index, t: Pointer, step: Index,
        ) -> None:  # fmt: skip
            def factor(m: int, k: Index) -> Any:
                return b.splat(b.load(a, m * d.pitch + k, 1), columns)

            def advance(sums: list[Any], k: Index, row: Any, left: list[Any] | None = None) -> None:
                for m in range(high):
                    sums[m] = d.engine.advance(b, left[m] if left else factor(m, k), row, sums[m])

            def gain(chains: list[tuple[Index, Index]], rest: Index, beyond: int) -> None:
                """The sums of each (column, chunk) and `rest` packed words; `beyond`: see `_asks`, 0 for next lines."""
                acc = [[b.constant(0, held, columns)] * high for _ in chains]
                squares = 1 if beyond else line // side
                # Chains of one chunk take the same factors of A, if registers hold these beside the sums, a square and
                # what turning it takes.
                shares = not beyond and high * (len(chains) + side) + 5 * side <= b.isa.registers
                for s in b.loop(0, whole, side * squares, carry=acc):
                    asks = self._asks(column, chains, beyond, s) if beyond else []
                    for part, (i, (j, c)) in itertools.product(range(squares), enumerate(chains)):
                        k = c * d.chunk + s + part * side
                        asking, after = (range(0), []) if beyond else (range(part, columns, squares), acc[i])
                        square = self._turned(x, k * words.depth + j * column, column, asking, after)
                        for place, cache in asks[i :: len(chains)]:
                            b.prefetch(x, place, cache)
                        if shares and i == 0:
                            shared = [[factor(m, k + v) for m in range(high)] for v in range(side)]
                        for v, row in enumerate(square):
                            advance(acc[i], k + v, row, shared[v] if shares else None)
                for s in b.loop(0, rest, carry=acc):
                    for i, (_, c) in enumerate(chains):
                        row = b.load(block, s * width + i * columns, columns)
                        advance(acc[i], c * d.chunk + whole + s, row)
                for m in range(high):
                    for (j, _), sums in zip(chains, acc, strict=True):
                        at = m * step + j
                        b.store(t, at, b.add(b.load(t, at, columns), b.convert(sums[m], total)))

            for j in b.loop(0, wide, shape.wide) if shape.wide else ():
                for c in b.loop(0, chunks):
                    gain([(j + i, c) for i in range(0, shape.wide, columns)], 0, 0)
            for j in b.loop(wide, end, width):
                if shape.groups > 1:
                    for first in b.loop(j, j + width, columns):
                        for c in b.loop(0, lone, d.together):
                            gain([(first, c + i) for i in range(d.together)], 0, columns)
                for c in b.loop(lone, chunks):
                    gain([(j + i * columns, c) for i in range(shape.groups)], rest, width)

        parameters = (word, words.pointer, None, None, None, None, None, None, word, None, total, None)
        return b.function(f"walk_{high}", parameters, body)

    def _asks(self, column: Index, chains: list[tuple[Index, Index]], beyond: int, s: Index) -> list[tuple[Index, int]]:
        """(element, cache) of the lines that a step at word s asks for: for few rows as much as it reads of the same
        chunk `beyond` columns on, one of those after the other; else what comes next of its columns."""
        d, words, columns = self.d, self.d.words[1], self.shape.columns
        line, chunk = LINE_BYTES // words.pointer.size_bytes, d.chunk
        if not self.shape.piece and (not words.is_plain or d.rows > FEW_ROWS):
            ahead = _AHEAD_DOWN // words.pointer.size_bytes
            starts = [(c * d.chunk + s) * words.depth + j * column + ahead for j, c in chains]
            return [(start + v * column, 1) for start in starts for v in range(columns)]
        found, size = [], self.shape.side * columns
        for p in range(0, size, min(chunk, size)):
            place = s * columns + p
            for j, c in chains:
                at = c * chunk + (j + beyond + place // chunk) * column + place % chunk
                found += [(at + e, 2) for e in range(0, min(chunk, size), line)]
        return found

    def _dot(self, high: int) -> Function:
        """The function of `_walk` for sums of free order: lanes run over K, for some columns at a time."""
        b, d, lanes = self.b, self.d, self.lanes
        word, words, total, held = d.engine.word, d.words[1], d.engine.total, d.engine.accumulator
        ahead = _AHEAD_DOWN // words.pointer.size_bytes
        # One column after the other is the longest run (4096 x 4096, GB/s of int8 at M = 1 and 2: 27 and 24, by four
        # columns 18 and 15, a plain read 27); more rows of A load fewer of its words a sum beside several (M = 4: 11
        # and 15).
        some = 1 if high <= 2 else max(x for x in (1, 2, 4) if lanes % x == 0 and (x == 1 or x * high <= lanes))

        def body(
            a: Pointer, x: Pointer, column: Index, wide: Index, end: Index, lone: Index, chunks: Index, whole: Index,
            block: Pointer, rest: Index, t: Pointer, step: Index,
        ) -> None:  # fmt: skip
            sums, zero = b.local(held, high * lanes * lanes), b.constant(0, held, lanes)

            def gain(start: Index, j: Index, first: int) -> None:
                """The sums of `some` columns from j + `first`."""
                acc = [[zero] * some for _ in range(high)]
                for s in b.loop(start, start + whole, lanes, carry=acc):
                    left = [b.load(a, m * d.pitch + s, lanes) for m in range(high)]
                    for v in range(some):
                        at = s * words.depth + (j + first + v) * column
                        right = words.along(b, x, at, lanes)
                        b.prefetch(x, at + ahead)
                        for m in range(high):
                            acc[m][v] = d.engine.advance(b, left[m], right, acc[m][v])
                for m in range(high):
                    for v in range(some):
                        b.store(sums, (m * lanes + first + v) * lanes, acc[m][v])

            for j in b.loop(0, end, lanes):
                for c in b.loop(0, chunks):
                    start = c * d.chunk
                    last = [zero] * high
                    for s in b.loop(0, rest, carry=last):
                        row = b.load(block, s * lanes, lanes)
                        for m in range(high):
                            left = b.splat(b.load(a, m * d.pitch + start + whole + s, 1), lanes)
                            last[m] = d.engine.advance(b, left, row, last[m])
                    for first in range(0, lanes, some):
                        gain(start, j, first)
                    for m in range(high):
                        found = [
                            last[m],
                            *b.transpose([b.load(sums, (m * lanes + v) * lanes, lanes) for v in range(lanes)]),
                        ]
                        while len(found) > 1:
                            found = [*map(b.add, found[::2], found[1::2]), *found[len(found) // 2 * 2 :]]
                        b.store(t, m * step + j, b.add(b.load(t, m * step + j, lanes), b.convert(found[0], total)))

        parameters = (word, words.pointer, None, None, None, None, None, None, word, None, total, None)
        return b.function(f"walk_{high}", parameters, body)

    def _seal(self) -> Function:
        """A function: t gains +0, as one that began as -0 must (section 5), and its NaN become canonical."""
        b, d, width = self.b, self.d, self.width

        def body(t: Pointer, step: Index, columns: Index) -> None:
            for m in b.loop(0, d.rows):
                for j in b.loop(0, columns, width):
                    x = b.load(t, m * step + j, width)
                    b.store(t, m * step + j, b.canonical(b.add(x, b.like(x, 0))))

        return b.function("seal", (d.engine.total, None, None), body)

    def task(self, task: Index) -> None:
        """One strip."""
        b, d, rows = self.b, self.d, self.d.rows
        blocks, step = b.index("n_blocks"), self.step
        dtypes = {"a": d.words[0].pointer, "b": d.words[1].pointer, **d.epilogue.operands}
        task, begin, end, part = parts.of(b, d.in_parts, task)
        operands = batch.moved(b, d.batch_rank, task // blocks, dtypes)
        operands["out"] = b.offset(operands["out"], part)
        j0 = task % blocks * b.index("n_step")
        columns = b.min(b.index("n_step"), b.index("n") - j0)
        zero = b.constant(0, d.engine.total, self.width)
        if d.accumulates:
            self.finish.begin(operands, self.t, step, 0, j0, rows, columns)
        else:
            for i in b.loop(0, step * rows, self.width):
                b.store(self.t, i, zero)
        if d.b == "copy":
            nothing = b.constant(0, d.engine.accumulator, self.width)
            for i in b.loop(0, columns, self.width):
                b.store(self.zeros, i, nothing)
        depth = d.engine.depth
        for pc in b.loop(begin, end, d.kc):
            kc = b.min(end - pc, d.kc)
            elements = b.min(kc * depth, b.index("elements") - pc * depth)
            a = b.offset(operands["a"], pc * depth * b.index("a_column"))
            b.call(self.pack_a, a, b.index("a_row"), b.index("a_column"), rows, elements, self.block_a, d.pitch)
            x = b.offset(operands["b"], pc * depth * b.index("b_row") + j0 * b.index("b_column"))
            (self.across if d.b == "copy" else self.down)(x, columns, kc, elements)
        b.call(self.seal, self.t, step, columns)
        self.finish.call(operands, self.t, step, 0, j0, rows, columns)

    def across(self, x: Pointer, columns: Index, kc: Index, elements: Index) -> None:
        """The strip gains kc rows of words of B."""
        b, d, deep, depth = self.b, self.d, self.shape.deep, self.d.engine.depth
        row = b.index("b_row")
        for ck in b.loop(0, kc, d.chunk):
            stop = b.min(ck + d.chunk, kc)
            whole = ck + (b.min(stop, elements // depth) - ck) // deep * deep
            for low, high, rows in ((ck, whole, deep), (whole, stop, 1)):
                for k in b.loop(low, high, rows):
                    fresh = k == ck
                    start, start_step = b.choose(fresh, self.zeros, self.p), b.choose(fresh, 0, self.step)
                    a, source = b.offset(self.block_a, k), b.offset(x, k * depth * row)
                    present = b.min(elements - k * depth, depth)
                    b.call(
                        self.gains[rows], a, source, row, columns, start, start_step, self.p, self.step, present
                    )  # fmt: skip
            b.call(self.join, self.t, self.p, self.step, columns)

    def down(self, x: Pointer, columns: Index, kc: Index, elements: Index) -> None:
        """The strip gains kc words of every column of B."""
        b, d, depth, width = self.b, self.d, self.d.engine.depth, self.width
        column = b.index("b_column")
        chunk = d.chunk
        # Whole chunks of whole squares are walked where they lie; what is left of K, and of a narrow strip, is packed.
        straight = b.min(kc, elements // depth) // chunk if chunk % self.shape.side == 0 else 0
        lying = columns // width * width
        for _ in b.when(straight > 0):
            lone = straight // d.together * d.together if self.shape.groups > 1 else 0
            wide, size_bytes = 0, d.words[1].pointer.size_bytes
            if self.shape.wide and chunk * size_bytes % LINE_BYTES == 0:
                unit = self.shape.unit(d.b, self.lanes)
                wide = b.choose(column * size_bytes % self.shape.crowded_bytes == 0, 0, lying // unit * unit)
            self.walk(0, x, 0, wide, lying, lone, straight, chunk, 0)
        for j in b.loop(0, columns, width):
            count = b.min(columns - j, width)
            source = b.offset(x, j * column)
            for ck in b.loop(b.choose(count < width, 0, straight * chunk), kc, chunk):
                stop = b.min(ck + chunk, kc)
                whole = (b.min(stop, elements // depth) - ck) // self.shape.side * self.shape.side
                whole = b.choose(count < width, 0, whole)
                size = b.min(stop * depth, elements) - (ck + whole) * depth
                part = b.offset(source, ck * depth)
                b.call(self.pack_b, b.offset(part, whole * depth), 1, column, size, count, self.block_b)
                self.walk(ck, part, j, 0, width, 0, 1, whole, stop - ck - whole)

    def walk(
        self, k: Index, x: Pointer, j: Index, wide: Index, columns: Index, lone: Index, chunks: Index, whole: Index,
        rest: Index,
    ) -> None:  # fmt: skip
        """Every row of t gains words from k on, at `columns` columns of the strip from j on, the first `wide` side by
        side."""
        b, d = self.b, self.d
        column = b.index("b_column")
        for low, high in self._bands():
            a, t = b.offset(self.block_a, low * d.pitch + k), b.offset(self.t, low * self.step + j)
            b.call(self.walks[high], a, x, column, wide, columns, lone, chunks, whole, self.block_b, rest, t, self.step)


def stream(b: Builder, d: Stream) -> None:
    """out = epilogue(a @ b), one task a strip of columns."""
    text = _StreamText(b, d)
    for t in b.tasks():
        text.task(t)
