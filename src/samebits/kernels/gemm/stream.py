"""Streamed products: few rows of A, a right operand that is read once, where it lies, in long runs.

A task is a strip of columns over all of K. Its sums are tiles in scratch, [rows of A][columns]: the chunk's `p` and the
total `t` of numerics.md section 2, in other orders than sb1 the chains of a block too; lanes run over N, so each lane
is one ascending chain.
- Rows of B contiguous (`b` copy): a few rows of B at a time cross the whole strip, and each vector of p gains them
  all between a load and a store. So memory sees as few and as long runs as B has (float32 4096 x 4096, M = 1:
  24 GB/s in strips of 4096 columns, 20 of 1024, 15 of 512; a plain read 20 in the same run).
- Columns of B contiguous (`b` transpose: a weight [N, K]): squares are transposed in registers and used at once, a
  chunk of K or two at a time, with p in registers (`column_walk`); few rows of A ask for the next columns a chunk at a
  time into the second cache, so memory sees runs of a chunk. From a near cache more columns are read at once. What
  fills no square is packed first.

K is counted in words of the engine, and A is packed by chunks, as in the macrokernel. Nothing here holds a size.
Scratch: block of A | words that are packed | t, p, chains, zeros | immediates; offsets are arguments. Start at
`stream`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Function, FunctionSpec, Index, Pointer, Vector
from samebits.frozen import dataclass, replace
from samebits.kernels.gemm import batch, pack, parts
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.epilogue import Epilogue, Finish
from samebits.kernels.gemm.order import CHAIN, SumOrder
from samebits.kernels.gemm.strip import StripWalk
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import LINE_BYTES
from samebits.tape import entry

# Bytes of a row of B that are asked for ahead.
_AHEAD_BYTES = 256
# Rows of A whose chains run side by side.
_SEVERAL = 4
_WALKS = ("tall_walk", "low_walk")


@dataclass(frozen=True, slots=True)
class Stream:
    """What specialises the text; sizes and strides are arguments.

    `words`: how elements of A and B become words.   `b`: how B is packed: `copy` where its rows are contiguous,
    `transpose` where its columns are.   `a`, `chunk`, `pitch`, `accumulates`, `order`: as in the macrokernel.
    """

    engine: Engine
    words: tuple[Words, Words]
    chunk: int
    pitch: int
    a: str
    b: str
    batch_rank: int
    accumulates: bool
    epilogue: Epilogue
    order: SumOrder = CHAIN

    @property
    def tiles(self) -> int:
        """Tiles in scratch: t, p, and the chains of a block."""
        return 2 + (self.order.chains if self.order.block else 0)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The argument names in order; `rows` of A; `step`: from a row of a tile to the next.

        Where columns are walked: `bands` of rows, the first `tall` of them `height` high, the others one row less;
        `width` columns at once and `side` words, `in_place` where chunks are whole squares; `beside` columns side by
        side and chunks `together`, or 0.
        """
        names = ["a", "b", "rows", "n", "k_begin", "k_end", "kc", "elements", "n_step", "n_blocks", "step"]
        names += ["a_row", "a_column", "b_row", "b_column", "scratch_b", "scratch_t"]
        if self.b == "transpose":
            names += ["bands", "tall", "height", "width", "side", "in_place", "beside", "together", *_WALKS]
        names += parts.PARAMETERS
        moving = batch.parameters(self.batch_rank, ["a", "b", *self.epilogue.operands])
        return (*names, *self.epilogue.parameters, *moving)

    def panel(self, isa: Isa) -> int:
        """Columns of what is packed: the most that are walked at once."""
        return 2 * self.engine.lanes(isa)

    def walked(
        self, shape: StripWalk, rows: int, column: int, together: int, isa: Isa
    ) -> dict[str, int | FunctionSpec]:  # fmt: skip
        """The arguments that say how columns, `column` elements apart, are walked for so many rows."""
        size_bytes, bands = self.words[1].pointer.size_bytes, -(-rows // shape.high)
        beside = shape.unit if shape.wide and self.chunk * size_bytes % LINE_BYTES == 0 else 0
        if shape.wide and column * size_bytes % shape.crowded_bytes == 0:
            beside = 0
        heights, panel = (-(-rows // bands), rows // bands), self.panel(isa)
        # Squares in which chains do not begin alike are packed.
        side = shape.side if shape.side % self.order.chains == 0 else 2 * self.chunk
        walk = _walk_of(self, replace(shape, high=0), panel, together, isa)
        functions = [walk(high, rows) for high in heights]
        return {
            "bands": bands, "tall": rows % bands or bands, "height": heights[0],
            "width": shape.width, "side": side,
            "in_place": int(self.chunk % side == 0), "beside": beside,
            "together": together if shape.groups > 1 else 0, **dict(zip(_WALKS, functions, strict=True)),
        }  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _walk_of(
    d: Stream, shape: StripWalk, panel: int, together: int, isa: Isa
) -> Callable[[int, int], FunctionSpec]:  # fmt: skip
    """The function that walks columns for a band of so many rows, of so many in all."""
    from samebits.kernels.gemm import column_walk  # as below: which products whose panels are packed do without

    def made(high: int, rows: int) -> FunctionSpec:
        walk = column_walk.of(
            shape, high, rows, d.engine, d.words[1], d.chunk, d.pitch, panel, together, d.order
        )  # fmt: skip
        return column_walk.function(walk, isa)

    return entry(made)


class _StreamText:
    """One kernel being emitted: its functions, its arguments, its temporaries."""

    def __init__(self, b: Builder, d: Stream) -> None:
        self.b, self.d = b, d
        self.lanes = d.engine.lanes(b.isa)
        width = pack.copied_words(d.chunk, self.lanes)
        self.pack_a = pack.PackedBlock(d.words[0], d.a, width, self.lanes, k_is_row=False).emit(b, "pack_a")
        wide = StripWalk.across(b.isa)[1] if d.b == "copy" else 1
        self.finish = Finish(b, d.epilogue, wide * self.lanes, d.accumulates)
        self.seal = self._seal()
        self.rows, self.step = b.index("rows"), b.index("step")
        self.a_chunk = self.rows * d.pitch
        self.block_a = b.scratch(d.engine.word)
        self.block_b = b.scratch(d.engine.word, b.index("scratch_b"))
        tile = b.scratch(d.engine.total, b.index("scratch_t"))
        self.t = tile
        self.p = b.cast(b.offset(tile, self.step * self.rows), d.engine.accumulator)
        self.chains = b.offset(self.p, self.step * self.rows)
        self.zeros = b.offset(self.p, self.step * self.rows * (d.tiles - 1))
        strip: Callable[[_StreamText], _Across | _Down] = _Across if d.b == "copy" else _Down
        self.strip = strip(self)

    def _seal(self) -> Function:
        """A function: t gains +0, as one that began as -0 must (section 5), and its NaN become canonical."""
        b, d, width = self.b, self.d, self.lanes

        def body(t: Pointer, step: Index, rows: Index, columns: Index) -> None:
            for m in b.loop(0, rows):
                for j in b.loop(0, columns, width):
                    x = b.load(t, m * step + j, width)
                    b.store(t, m * step + j, b.canonical(b.add(x, b.like(x, 0))))

        return b.function("seal", (d.engine.total, None, None, None), body)

    def task(self, task: Index) -> None:
        """One strip."""
        b, d, rows = self.b, self.d, self.rows
        blocks, step = b.index("n_blocks"), self.step
        dtypes = {"a": d.words[0].pointer, "b": d.words[1].pointer, **d.epilogue.operands}
        task, begin, end, part = parts.of(b, task)
        operands = batch.moved(b, d.batch_rank, task // blocks, dtypes)
        operands["out"] = b.offset(operands["out"], part)
        j0 = task % blocks * b.index("n_step")
        columns = b.min(b.index("n_step"), b.index("n") - j0)
        zero = b.constant(0, d.engine.total, self.lanes)
        if d.accumulates:
            self.finish.begin(operands, self.t, step, 0, j0, rows, columns)
        else:
            for i in b.loop(0, step * rows, self.lanes):
                b.store(self.t, i, zero)
        self.strip.begin(columns)
        depth = d.engine.depth
        for pc in b.loop(begin, end, b.index("kc")):
            kc = b.min(end - pc, b.index("kc"))
            self.pack(operands["a"], pc, kc)
            x = b.offset(operands["b"], pc * depth * b.index("b_row") + j0 * b.index("b_column"))
            self.strip.gain(x, columns, kc, self.elements(pc, kc))
        b.call(self.seal, self.t, step, rows, columns)
        self.finish.call(operands, self.t, step, 0, j0, rows, columns)

    def elements(self, pc: Index, kc: Index) -> Index:
        """Elements along K in words pc .. pc+kc-1: the last word may not be full."""
        depth = self.d.engine.depth
        return self.b.min(kc * depth, self.b.index("elements") - pc * depth)

    def pack(self, a: Pointer, pc: Index, kc: Index) -> None:
        """All rows of A from word pc on: [chunk][row][pitch]."""
        b, d, column = self.b, self.d, self.b.index("a_column")
        for ck in b.loop(0, kc, d.chunk):
            x = b.offset(a, (pc + ck) * d.engine.depth * column)
            elements = self.elements(pc + ck, b.min(kc - ck, d.chunk))
            block = b.offset(self.block_a, ck // d.chunk * self.a_chunk)
            b.call(self.pack_a, x, b.index("a_row"), column, self.rows, elements, block, d.pitch)


class _Across:
    """A strip whose rows of B are contiguous."""

    def __init__(self, text: _StreamText) -> None:
        self.text, self.b, self.d = text, text.b, text.d
        deep, vectors = StripWalk.across(text.b.isa)
        # Of a block whole groups of rows are taken, each of which is as many of every chain.
        self.deep = 1 << deep.bit_length() - 1 if self.d.order.block else deep
        self.width = vectors * text.lanes
        self.gains = {deep: self._gain(deep) for deep in sorted({1, self.deep})}
        self.join = self._join()
        self.join_chains = self._join_chains() if self.d.order.block else None

    def _gain(self, deep: int) -> Function:
        """A function: every column of p gains `deep` rows of B, of words of `elements` elements. Several rows are
        gained by the order's chains in turn, which lie `chain` elements apart, and begin so far apart as `start_chain`
        says; one by the chain at p."""
        b, d, width = self.b, self.d, self.width
        word, words = d.engine.word, d.words[1]
        ahead, line = _AHEAD_BYTES // words.pointer.size_bytes, LINE_BYTES // words.pointer.size_bytes
        depth, chains = words.depth, min(deep, d.order.chains)

        def body(
            a: Pointer, rows: Index, x: Pointer, row: Index, columns: Index, start: Pointer, start_step: Index,
            p: Pointer, step: Index, elements: Index, start_chain: Index, chain: Index,
        ) -> None:  # fmt: skip
            present = elements if deep == 1 and depth > 1 else None

            def advance(m: Index, j: Index, held: list[Vector]) -> None:
                acc = [b.load(start, c * start_chain + m * start_step + j, width) for c in range(chains)]
                for r in range(deep):
                    left = b.splat(b.load(a, m * d.pitch + r, 1), width)
                    acc[r % chains] = d.engine.advance(b, left, held[r], acc[r % chains])
                for c in range(chains):
                    b.store(p, c * chain + m * step + j, acc[c])

            def gain(j: Index, count: Index | None, alone: bool) -> None:
                held: list[Vector] = []
                for r in range(deep):
                    source = b.offset(x, r * depth * row + j)
                    if not alone or not words.is_plain:
                        # A row of words after the other: else what they are made of is read at once and leaves
                        # registers.
                        source = b.anchor(source, held[-1:])
                    held.append(words.across(b, source, 0, row, width, count, present))
                    for s in range(depth) if count is None else ():
                        for i in range(0, width, line):
                            b.prefetch(source, s * row + ahead + i)
                if alone:
                    advance(0, j, held)
                    return
                several = rows // _SEVERAL * _SEVERAL
                for low, high, many in ((0, several, _SEVERAL), (several, rows, 1)):
                    for first in b.loop(low, high, many):
                        for m in range(many):
                            advance(first + m, j, held)

            def walk(alone: bool) -> None:
                whole = columns // width * width
                for j in b.loop(0, whole, width):
                    gain(j, None, alone)
                for _ in b.when(whole < columns):
                    gain(whole, columns - whole, alone)

            # A row alone has a text of its own: a loop over rows keeps registers from the addresses of B (Emerald
            # Rapids, the sum of 128 rows of 768: 0.89 of the time).
            for _ in b.when(rows == 1):
                walk(True)
            for _ in b.when(rows != 1):
                walk(False)

        acc, sizes = d.engine.accumulator, (None,) * 3
        taken = (word, None, words.pointer, None, None, acc, None, acc, None, *sizes)
        return b.function(f"gain_{deep}", taken, body)

    def _join(self) -> Function:
        """A function: t gains p."""
        b, d, width = self.b, self.d, self.width

        def body(t: Pointer, p: Pointer, step: Index, rows: Index, columns: Index) -> None:
            for j in b.loop(0, columns, width):
                for m in b.loop(0, rows):
                    part = b.convert(b.load(p, m * step + j, width), d.engine.total)
                    b.store(t, m * step + j, b.add(b.load(t, m * step + j, width), part))

        return b.function("join", (d.engine.total, d.engine.accumulator, None, None, None), body)

    def _join_chains(self) -> Function:
        """A function: p becomes `start` and the sum of the chains, which lie behind it."""
        b, d, width = self.b, self.d, self.width

        def body(start: Pointer, start_step: Index, p: Pointer, step: Index, rows: Index, columns: Index) -> None:
            for j in b.loop(0, columns, width):
                for m in b.loop(0, rows):
                    places = [(c * rows + m) * step + j for c in range(1, d.order.chains + 1)]
                    chains = [b.load(p, at, width) for at in places]
                    before = b.load(start, m * start_step + j, width)
                    b.store(p, m * step + j, b.add(before, functools.reduce(b.add, chains)))

        acc = d.engine.accumulator
        return b.function("join_chains", (acc, None, acc, None, None, None), body)

    def begin(self, columns: Index) -> None:
        """The zeros that a chunk starts from."""
        b = self.b
        nothing = b.constant(0, self.d.engine.accumulator, self.width)
        for i in b.loop(0, columns, self.width):
            b.store(self.text.zeros, i, nothing)

    def gain(self, x: Pointer, columns: Index, kc: Index, elements: Index) -> None:
        """The strip gains kc rows of words of B."""
        text, b, d = self.text, self.b, self.d
        for ck in b.loop(0, kc, d.chunk):
            stop = b.min(ck + d.chunk, kc)
            block = b.offset(text.block_a, ck // d.chunk * text.a_chunk)
            if not d.order.block:
                self._rows(x, b.offset(block, -ck), columns, ck, stop, elements, text.p)
            for low in b.loop(ck, stop, d.order.block) if d.order.block else ():
                high = b.min(low + d.order.block, stop)
                self._rows(x, b.offset(block, -ck), columns, low, high, elements, text.chains)
                fresh = low == ck
                start, step = b.choose(fresh, text.zeros, text.p), b.choose(fresh, 0, text.step)
                b.call(self.join_chains, start, step, text.p, text.step, text.rows, columns)
            b.call(self.join, text.t, text.p, text.step, text.rows, columns)

    def _rows(
        self, x: Pointer, a: Pointer, columns: Index, low: Index, high: Index, elements: Index, p: Pointer
    ) -> None:
        """The chains at p become the sums of words low .. high-1."""
        text, b, deep, depth = self.text, self.b, self.deep, self.d.engine.depth
        chains, row = self.d.order.chains, b.index("b_row")
        apart = text.rows * text.step
        whole = low + (b.min(high, elements // depth) - low) // deep * deep
        if chains > 1:
            # Where no group of rows begins them, single rows go on from zeros.
            for _ in b.when(whole == low):
                for i in b.loop(0, apart * chains, text.lanes):
                    b.store(p, i, b.constant(0, self.d.engine.accumulator, text.lanes))
        for first, last, many in ((low, whole, deep), (whole, high, 1)):
            for k in b.loop(first, last, many):
                fresh = (k == low) if many > 1 or chains == 1 else False
                mine = b.offset(p, (k - low) % chains * apart) if many == 1 and chains > 1 else p
                start, start_step = b.choose(fresh, text.zeros, mine), b.choose(fresh, 0, text.step)
                source = b.offset(x, k * depth * row)
                present = b.min(elements - k * depth, depth)
                b.call(
                    self.gains[many], b.offset(a, k), text.rows, source, row, columns, start, start_step, mine,
                    text.step, present, b.choose(fresh, 0, apart), apart,
                )  # fmt: skip


class _Down:
    """A strip whose columns of B are contiguous."""

    def __init__(self, text: _StreamText) -> None:
        from samebits.kernels.gemm import column_walk

        self.text, self.b, self.d = text, text.b, text.d
        block = pack.PackedBlock(self.d.words[1], self.d.b, text.lanes, text.lanes, k_is_row=True)
        self.pack_b = pack.emit_panel(self.b, block, self.d.panel(self.b.isa))
        self.walks = [self.b.callee(name, column_walk.parameters(self.d.engine, self.d.words[1])) for name in _WALKS]

    def begin(self, columns: Index) -> None:
        """Chunks start in registers."""

    def gain(self, x: Pointer, columns: Index, kc: Index, elements: Index) -> None:
        """The strip gains kc words of every column of B."""
        text, b, depth = self.text, self.b, self.d.engine.depth
        column, width, side, chunk = b.index("b_column"), b.index("width"), b.index("side"), self.d.chunk
        # Whole chunks of whole squares are walked where they lie; what is left of K, and of a narrow strip, is packed.
        straight = b.choose(b.index("in_place") == 1, b.min(kc, elements // depth) // chunk, 0)
        lying = columns // width * width
        for _ in b.when(straight > 0):
            together, beside = b.index("together"), b.index("beside")
            lone = straight // b.max(together, 1) * together
            wide = lying // b.max(beside, 1) * beside
            self.walk(0, x, 0, wide, lying, lone, straight, chunk, 0)
        for j in b.loop(0, columns, width):
            count = b.min(columns - j, width)
            source = b.offset(x, j * column)
            for ck in b.loop(b.choose(count < width, 0, straight * chunk), kc, chunk):
                stop = b.min(ck + chunk, kc)
                whole = (b.min(stop, elements // depth) - ck) // side * side
                whole = b.choose(count < width, 0, whole)
                size = b.min(stop * depth, elements) - (ck + whole) * depth
                part = b.offset(source, ck * depth)
                for _ in b.when(size > 0):
                    b.call(self.pack_b, b.offset(part, whole * depth), 1, column, size, count, text.block_b)
                self.walk(ck, part, j, 0, width, 0, 1, whole, stop - ck - whole)

    def walk(
        self, k: Index, x: Pointer, j: Index, wide: Index, columns: Index, lone: Index, chunks: Index, whole: Index,
        rest: Index,
    ) -> None:  # fmt: skip
        """Every row of t gains words from k on, at `columns` columns of the strip from j on, the first `wide` side by
        side; a band of rows after the other."""
        text, b, d = self.text, self.b, self.d
        height, tall = b.index("height"), b.index("tall")
        block = b.offset(text.block_a, k // d.chunk * text.a_chunk)
        for band in b.loop(0, b.index("bands")):
            low = band * height - b.max(0, band - tall)
            function = b.choose(band < tall, *self.walks)
            a, t = b.offset(block, low * d.pitch), b.offset(text.t, low * text.step + j)
            b.call(
                function, a, text.a_chunk, x, b.index("b_column"), wide, columns, lone, chunks, whole, text.block_b,
                rest, t, text.step,
            )  # fmt: skip


def stream(b: Builder, d: Stream) -> None:
    """out = epilogue(a @ b), one task a strip of columns."""
    text = _StreamText(b, d)
    for t in b.tasks():
        text.task(t)
