"""The macrokernel: the loops around the microkernel for one block of C, MC x NC over all of K.

A task packs its block of A, KC of K at a time, then walks the panels of B; each microtile gains KC of K by one call,
in chunks. Loops from outside: task (batch, block of M, block of N), `pc` over K by KC, `j` over panels of B, `p` over
micropanels of A. Where B is not in panels yet, a panel is packed just before it is used.
Between KC blocks a microtile is kept in `out` itself; in the thread's scratch where out has no contiguous rows or is
also a source; the last panel, if it is narrow, in a strip of scratch. Start at `macrokernel`; `specialised.Macrokernel`
is what specialises it. The innermost loop, over micropanels, and its calls of microtiles are `micropanel_walk`, those
of microtiles by tiles `tile_walk`.

Nothing of it holds a size: extents, blocks, strides and how panels are grouped are arguments, and so are the functions
of the microtiles (`microkernel`), which all kernels share.

K is counted in words of the engine; packing alone knows elements. A guarded engine (`Engine.is_guarded`) runs where the
facts of A's block and B's columns allow it, and its `safe` form on the same words elsewhere. Integers of A that packing
shifted to fit start their sums at what that adds to a column, from the facts of B, taken away (numerics.md section 3).

Scratch: block of A | panels of B and their facts | what is kept of C | beside windows and by tiles, microtiles that
wait (`Macrokernel.waits`) | immediates; offsets are arguments.
"""

from __future__ import annotations

import functools

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Condition, Index, KernelSpec, Pointer
from samebits.dtypes import float32, int32, int64
from samebits.kernels.gemm import (
    batch,
    block_microkernel,
    blocks,
    facts,
    microkernel,
    micropanel_walk,
    pack,
    parts,
    run_values,
    tile_walk,
    window_panels,
)
from samebits.kernels.gemm.blocks import A_SCALE, SCALE, ZERO
from samebits.kernels.gemm.chunk_calls import PANEL_CALLS
from samebits.kernels.gemm.engine import LOWEST, lowest_bit
from samebits.kernels.gemm.epilogue import Finish
from samebits.kernels.gemm.following import Asking
from samebits.kernels.gemm.interleaved import COLUMNS, InterleavedColumns, InterleavedRows
from samebits.kernels.gemm.micropanel_walk import MultipliedPanels
from samebits.kernels.gemm.microtile import UNROLL
from samebits.kernels.gemm.pack import PACKED, WINDOWS
from samebits.kernels.gemm.specialised import Macrokernel, first_names, tile_names
from samebits.kernels.gemm.tile_blocks import TiledBlock
from samebits.kernels.gemm.tile_microkernel import parameters as tile_parameters
from samebits.kernels.gemm.tiles import columns as columns_of
from samebits.kernels.plan import LINE_BYTES


@functools.lru_cache(maxsize=1024)
def kernel(d: Macrokernel, isa: Isa) -> KernelSpec:
    """The kernel of a description, which products of any size share."""
    return KernelSpec(macrokernel, d, d.parameters, isa, unroll=False)


class _MacroText:
    """One kernel being emitted: its functions, its arguments, its temporaries."""

    def __init__(self, b: Builder, d: Macrokernel) -> None:
        self.b, self.d = b, d
        engine, lanes = d.engine, d.engine.lanes(b.isa)
        self.nr = d.tile.nv * lanes
        width = pack.copied_words(d.chunk, lanes)
        if d.by_tiles:
            self.pack_a = TiledBlock(d.words[0], d.a, lanes).emit(b, "pack_a")
        elif d.interleaved and d.a == "transpose":
            self.pack_a = InterleavedColumns(d.words[0]).emit(b, "pack_a")
        elif d.interleaved:
            self.pack_a = InterleavedRows(d.words[0], lanes).emit(b, "pack_a")
        else:
            self.pack_a = pack.PackedBlock(d.words[0], d.a, width, lanes, k_is_row=False).emit(b, "pack_a")
        block = pack.PackedBlock(d.words[1], d.b, self.nr, lanes, k_is_row=True)
        is_matrix = not (d.is_packed or d.b == WINDOWS)
        self.pack_panel = pack.emit_panel(b, block, self.nr) if is_matrix else None
        self.pack_group = pack.emit_group(b, block, self.nr) if is_matrix and not d.lies else None
        self.pack_windows = window_panels.emit(b, d.words[1], self.nr, lanes) if d.b == WINDOWS else None
        self.look_a = facts.emit_block(b) if d.checked else None
        has_values = d.runs is not None and d.runs.values(d.chunk) > 0
        self.values_a = run_values.emit(b, engine, d.runs, d.chunk, d.pitch) if d.runs and has_values else None
        # Where B's format says its lowest bit, as that of weights does, nothing looks.
        self.lowest_b = None if d.is_packed else lowest_bit(d.words[1].source)
        looks = d.shift or (d.checked and self.lowest_b is None)
        self.look_b = facts.emit(b, engine, self.nr) if looks and not d.is_packed else None
        self.subtract = blocks.emit_zeros(b, engine, self.nr) if ZERO in d.shared else None
        panels = {h: 1 if engine.takes_tiles else columns_of(h, d.tile, b.isa) for h in range(1, d.tile.mr + 1)}
        most = max(panels.values()) * self.nr
        self.finish = Finish(b, d.epilogue, self.nr, d.accumulates, most)
        taken = microkernel.parameters(engine, None if d.keeps else d.weights, SCALE in d.shared)
        if d.runs is not None:
            taken = block_microkernel.parameters(engine)
        of_tiles = tile_parameters(engine, d.epilogue.converts)
        of_engines = [of_tiles if d.by_tiles and x.takes_tiles else taken for x in d.engines]
        self.tiles = [[b.callee(name, x) for name in tile_names(i)] for i, x in enumerate(of_engines)]
        first = microkernel.parameters(engine, d.weights, False, True)
        self.first = [b.callee(name, first) for name in first_names()] if d.keeps else []
        self.n, self.kc = b.index("n"), b.index("kc")
        self.height, self.lower, self.tall = b.index("height"), b.index("lower"), b.index("tall")
        turns = self.kc // UNROLL if d.by_tiles else max(1, d.chunk // UNROLL)
        width = b.index("asks") * LINE_BYTES
        self.asking = Asking(d.b, self.nr, engine.depth, turns, width)
        self.block_a = b.scratch(engine.word)
        self.block_b = b.scratch(engine.word, b.index("scratch_b"))
        self.facts_b = b.scratch(int32, b.index("scratch_f"))
        self.block_c = b.scratch(engine.total, b.index("scratch_c"))
        self.waiting = b.scratch(engine.total, b.index("scratch_w")) if d.waits else self.block_c
        self.fact_a, self.runs = b.local(int32, 1), b.local(int64, 2 * self.nr if d.b == WINDOWS else 1)
        self.panel_calls = b.local(int64, len(PANEL_CALLS) if d.runs is None else 1)
        self.tile = b.local(engine.total, max(h * wide for h, wide in panels.items()) * self.nr)
        self.start = b.local(engine.total, most)
        b.store(self.start, 0, b.constant(0, engine.total, most))

    def row(self, p: Index) -> Index:
        """The first row of micropanel p: those after the tall ones are lower."""
        return p * self.height - self.b.max(0, p - self.tall) * self.lower

    def task(self, t: Index) -> None:
        """One block of C."""
        b, d = self.b, self.d
        n_blocks, m_blocks = b.index("n_blocks"), b.index("m_blocks")
        t, begin, end, part = parts.of(b, t)
        # Blocks are equally high, but for one micropanel: threads end together.
        i, panels = t // n_blocks % m_blocks, b.index("m_panels")
        p0, p1 = i * panels // m_blocks, (i + 1) * panels // m_blocks
        j0 = b.index("first") + t % n_blocks * b.index("n_step")
        j1 = b.min(j0 + b.index("n_step"), b.index("last"))
        operands = batch.moved(b, d.batch_rank, t // (n_blocks * m_blocks), d.pointers)
        operands["out"] = b.offset(operands["out"], part)
        block = TaskLoops(self, operands, p0, p1, j0, j1, begin, end)
        # Panels in groups, then what is left one by one; the last may be narrow.
        size = b.index("group")
        groups = b.max(b.min(j1, self.n // self.nr) - j0, 0) // size
        alone = j0 + groups * size
        for pc in b.loop(begin, b.max(end, begin + 1), self.kc):
            kc = b.min(end - pc, self.kc)
            block.pack(pc, kc)
            for visit in b.loop(0, groups + (j1 - alone)):
                grouped = visit < groups
                j = b.choose(grouped, j0 + visit * size, alone + (visit - groups))
                block.columns(j, b.choose(grouped, size, 1), b.choose(grouped, b.index("wide"), 1), pc, kc)

    def elements(self, pc: Index, kc: Index) -> Index:
        """Elements along K in words pc .. pc+kc-1: the last word may not be full."""
        depth = self.d.engine.depth
        return kc if depth == 1 else self.b.min(kc * depth, self.b.index("elements") - pc * depth)


class TaskLoops:
    """The loops inside one task, over its micropanels p0 .. p1-1, its panels j0 .. j1-1, and words of K from `begin` to
    `end`."""

    def __init__(
        self, text: _MacroText, operands: dict[str, Pointer], p0: Index, p1: Index, j0: Index, j1: Index, begin: Index,
        end: Index,
    ) -> None:  # fmt: skip
        self.text, self.operands = text, operands
        self.p0, self.p1, self.j0, self.j1 = p0, p1, j0, j1
        self.k_begin, self.k_end = begin, end
        self.r0 = text.row(p0)
        self.rows = text.row(p1) - self.r0

    def pack(self, pc: Index, kc: Index) -> None:
        """The block of A from word pc on: [chunk][row][pitch], or micropanels, each interleaved."""
        text = self.text
        b, d, row, column = text.b, text.d, text.b.index("a_row"), text.b.index("a_column")
        source = b.offset(self.operands["a"], self.r0 * row)
        if text.look_a is not None:
            b.store(text.fact_a, 0, b.constant(facts.NOTHING, int32, 1))
        if d.by_tiles:
            tile_walk.pack(self, b.offset(source, pc * d.engine.depth * column), pc, kc)
            return
        for ck in b.loop(0, b.max(kc, 1), d.chunk):
            size, x = b.min(kc - ck, d.chunk), b.offset(source, (pc + ck) * d.engine.depth * column)
            if d.interleaved:
                self.interleave(x, pc, ck, size)
                continue
            block = b.offset(text.block_a, ck // d.chunk * self.rows * d.row_words)
            b.call(text.pack_a, x, row, column, self.rows, text.elements(pc + ck, size), block, d.pitch)
            if text.look_a is not None:
                b.call(text.look_a, block, d.pitch, self.rows, size, text.fact_a)
            if text.values_a is not None:
                scales, step, words = self.scales_of_a(self.r0)
                b.call(text.values_a, block, self.rows, size, scales, step, words, pc + ck)

    def interleave(self, x: Pointer, pc: Index, ck: Index, size: Index) -> None:
        """Micropanels of a chunk, `size` words of A from word pc + ck on, interleaved."""
        text = self.text
        b, d, row, column = text.b, text.d, text.b.index("a_row"), text.b.index("a_column")
        turned = d.a == "transpose"
        for c in b.loop(0, size, COLUMNS) if turned else (0,):
            words, step = (b.min(size - c, COLUMNS), column) if turned else (size, row)
            for p in b.loop(self.p0, self.p1):
                r = text.row(p) - self.r0
                rows = b.choose(p < text.tall, text.height, text.height - text.lower)
                block = b.offset(self.left(r, ck // d.chunk, rows), c * rows)
                source = b.offset(x, r * row + c * d.engine.depth * column)
                b.call(text.pack_a, source, step, rows, text.elements(pc + ck + c, words), block)
                if text.look_a is not None:
                    whole = (words + (UNROLL - 1)) // UNROLL * UNROLL * rows
                    b.call(text.look_a, block, 0, 1, whole, text.fact_a)

    def left(self, r: Index, q: Index, rows: Index) -> Pointer:
        """Chunk q of the micropanel of `rows` rows from row r of the block of A."""
        text = self.text
        b, d = text.b, text.d
        if d.by_tiles:
            return b.offset(text.block_a, r * text.kc + q * (d.chunk * rows))
        if d.interleaved:
            return b.offset(text.block_a, (r * (text.kc // d.chunk) + q * rows) * d.pitch)
        return b.offset(text.block_a, (q * self.rows + r) * d.pitch)

    def columns(self, j: Index, size: Index, wide: Index, pc: Index, kc: Index) -> None:
        """All micropanels times `size` panels from j, `wide` of them at a time."""
        text = self.text
        b, d = text.b, text.d
        following = text.asking.following(b, self.operands["b"], j, size, (self.j0, self.j1), pc, kc)
        chunks = b.max((kc + (d.chunk - 1)) // d.chunk, 1)
        if d.b == WINDOWS:
            assert not (d.checked or d.shift)  # no plan of windows looks at facts
            for q in b.loop(0, chunks):
                ck = q * d.chunk
                words = b.min(kc - ck, d.chunk)
                panels = self.windows(j, size, pc + ck, words)
                if d.by_tiles:
                    tile_walk.column(self, j, pc, words, panels[0], following, 0, (q, q + 1 >= chunks))
                    continue
                micropanel_walk.expect(self, following, words, 1)
                micropanel_walk.column(self, MultipliedPanels(j, 0, wide, *panels, pc, kc, chunks, 0, following, q))
            return
        if d.runs is None:
            micropanel_walk.expect(self, following, kc, chunks)
        start, step = self.panels(j, size, pc, kc)
        for g in b.loop(0, size, wide):
            panels = (b.offset(start, g * step), step)
            unsafe = self.unsafe(j, g, wide) if d.checked else 0
            if d.shift:
                self.begin(j, g, wide)
            if d.by_tiles:
                for _ in b.when(unsafe == 0) if d.checked else (None,):
                    tile_walk.column(self, j + g, pc, kc, panels[0], following, g * (self.p1 - self.p0))
            if d.checked or not d.by_tiles:
                micropanel_walk.column(self, MultipliedPanels(j, g, wide, *panels, pc, kc, chunks, unsafe, following))

    def panels(self, j: Index, size: Index, pc: Index, kc: Index) -> tuple[Pointer, Index]:
        """(where `size` micropanels start, their step)."""
        text = self.text
        b, d, nr, x = text.b, text.d, text.nr, self.operands["b"]
        if d.is_packed:
            return b.offset(x, j * nr * b.index("k") + pc * nr), b.index("k") * nr
        row, column, first = b.index("b_row"), b.index("b_column"), pc * d.engine.depth
        source, k, step = b.offset(x, first * row + j * nr * column), text.elements(pc, kc), text.kc * nr
        if d.lies:
            for _ in b.when(text.n - j * nr < nr):
                b.call(text.pack_panel, source, row, column, k, text.n - j * nr, text.block_b)
            return text.block_b, step
        for _ in b.when(size > 1):
            b.call(text.pack_group, source, row, column, k, size, text.block_b, step)
        for _ in b.when(size <= 1):
            b.call(text.pack_panel, source, row, column, k, b.min(nr, text.n - j * nr), text.block_b)
        if text.subtract is not None:
            for g in b.loop(0, size):
                zeros = ZERO.panel(b, self.operands[ZERO.name], j + g, nr)
                b.call(text.subtract, b.offset(text.block_b, g * step), pc, kc, zeros, ZERO.words(b))
        if text.look_b is not None:
            for g in b.loop(0, size):
                b.call(text.look_b, b.offset(text.block_b, g * step), kc, b.offset(text.facts_b, g * nr))
        return text.block_b, step

    def windows(self, j: Index, size: Index, first: Index, count: Index) -> tuple[Pointer, Index]:
        """Words first .. first+count-1 of `size` panels from j, whose columns are windows, and their step: a chunk,
        which all micropanels use before it leaves the first cache."""
        text = self.text
        b, nr, step, further = text.b, text.nr, text.d.chunk * text.nr, text.b.further()
        how = [b.index(name) for name in window_panels.PARAMETERS]
        for g in b.loop(0, size):
            begin, panel = (j + g) * nr, b.offset(text.block_b, g * step)
            columns = b.min(nr, text.n - begin)
            b.call(text.pack_windows, self.operands["b"], further, *how, begin, columns, first, count, panel, text.runs)
        return text.block_b, step

    def facts(self, j: Index, g: Index) -> Pointer:
        """Those of panels j+g ..; in a group that is packed here they are the g-th."""
        text = self.text
        b, nr = text.b, text.nr
        if text.d.b == PACKED:
            return b.cast(b.offset(self.operands["b"], b.index("b_facts") + (j + g) * nr), int32)
        return b.offset(text.facts_b, g * nr)

    def begin(self, j: Index, g: Index, wide: Index) -> None:
        """The row that sums of panels j+g .. start from: what the shift of A adds to each column, taken away."""
        text = self.text
        b, nr, total = text.b, text.nr, text.d.engine.total
        for i in b.loop(0, wide):
            sums = b.convert(b.load(self.facts(j, g), i * nr, nr), total)
            b.store(text.start, i * nr, b.mul(sums, b.like(sums, -text.d.shift)))

    def unsafe(self, j: Index, g: Index, wide: Index) -> Index:
        """1 where the block of A and panels j+g .. may meet a subnormal, else 0."""
        b, nr = self.text.b, self.text.nr
        lowest_a = b.splat(b.load(self.text.fact_a, 0, 1), nr)
        if self.text.lowest_b is not None:
            lowest = [b.like(lowest_a, self.text.lowest_b)]
        else:
            found = self.facts(j, g)
            lowest = [b.load(found, 0, nr)]
            for i in b.loop(1, wide, carry=lowest):
                lowest[0] = b.minimum(lowest[0], b.load(found, i * nr, nr))
        sums = b.add(lowest[0], lowest_a)
        return b.choose(b.any(b.less(sums, b.like(sums, LOWEST))), 1, 0)

    def scales_of_a(self, r: Index) -> tuple[Pointer, Index, Index]:
        """Where those of row r begin, how far from one row's to the next's, and how many words share one; of an operand
        without blocks anything."""
        b = self.text.b
        if A_SCALE not in self.text.d.shared:
            return b.cast(self.text.start, float32), 0, 1
        step = A_SCALE.step(b, 1)
        return b.offset(self.operands[A_SCALE.name], r * step), step, A_SCALE.words(b)

    def kept(self, r: Index, j: Index, narrow: Condition) -> tuple[Pointer, Index]:
        """Where a microtile is kept between KC blocks, and the step of its rows."""
        text = self.text
        b, d, nr, step = text.b, text.d, text.nr, text.b.index("out_row")
        out = b.cast(b.offset(self.operands["out"], (self.r0 + r) * step + j * nr), d.engine.total)
        at, step = b.choose(narrow, b.offset(text.block_c, r * nr), out), b.choose(narrow, nr, step)
        if d.epilogue.plain:
            return at, step
        across, in_scratch = b.index("n_step") * nr, b.index("in_scratch") == 1
        inside = b.offset(text.block_c, r * across + (j - self.j0) * nr)
        return b.choose(in_scratch, inside, at), b.choose(in_scratch, across, step)


def macrokernel(b: Builder, d: Macrokernel) -> None:
    """out = epilogue(a @ b), one task a block."""
    text = _MacroText(b, d)
    for _ in b.tiles() if d.engine.takes_tiles else range(1):
        for t in b.tasks():
            text.task(t)
    if d.may_pass:
        b.fence()
