"""The macrokernel: the loops around the microkernel for one block of C, MC x NC over all of K.

A task packs its block of A, KC of K at a time, then walks the panels of B; each microtile gains KC of K in chunks.
Loops from outside: task (batch, block of M, block of N), `pc` over K by KC, `j` over panels of B, `p` over micropanels
of A, `ck` over chunks. Where B is not in panels yet, a panel is packed just before it is used.
Between KC blocks a microtile is kept in `out` itself; in the thread's scratch where out has no contiguous rows or is
also a source; the last panel, if it is narrow, in a strip of scratch. Start at `macrokernel`.

K is counted in words of the engine; packing alone knows elements. A guarded engine (`Engine.is_guarded`) runs where the
facts of A's block and B's columns allow it, and its `safe` form on the same words elsewhere. Integers of A that packing
shifted to fit start their sums at what that adds to a column, from the facts of B, taken away (numerics.md section 3).

Scratch: block of A | panels of B and their facts | what is kept of C | immediates; offsets are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer
from samebits.dtypes import DType, float32, int32, uint8
from samebits.kernels.gemm import batch, blocks, facts, microkernel, pack, parts
from samebits.kernels.gemm.blocks import SCALE, ZERO, Shared
from samebits.kernels.gemm.engine import LOWEST, Engine, lowest_bit
from samebits.kernels.gemm.epilogue import Epilogue, Finish
from samebits.kernels.gemm.microkernel import Microtile
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import LINE_BYTES

PACKED, DECODED = "packed", "decoded"


@dataclass(frozen=True, slots=True)
class Macrokernel:
    """What specialises the text; sizes and strides are arguments.

    `words`: how elements of A and B become words.   `checked`: whether a guarded engine must look at the facts.
    `heights`: those of the micropanels, tallest first.   `wide`: panels that a microtile covers.
    `group`: panels that are packed together, a multiple of `wide`.
    `kc`, `pitch`: words of a row of A's block, and from one row to the next.   `a`: kind of packing.
    `b`: kind of packing, or PACKED, or DECODED (packed weights, which the microkernel converts).
    `in_scratch`: C is kept in scratch between KC blocks.   `accumulates`: the sum starts from what out holds.
    `shared`: what blocks of b share (`blocks.SCALE`, `ZERO`); zero points only where b is packed here.
    `asks`: of what is read next, as in `Microtile`.
    """

    engine: Engine
    words: tuple[Words, Words]
    checked: bool
    heights: tuple[int, ...]
    wide: int
    group: int
    nv: int
    kc: int
    pitch: int
    chunk: int
    a: str
    b: str
    batch_rank: int
    in_scratch: bool
    accumulates: bool
    epilogue: Epilogue
    shared: tuple[Shared, ...] = ()
    asks: int = 1
    in_parts: bool = False

    @property
    def pointers(self) -> dict[str, DType]:
        """The operands that move with the batch, and what they are read as."""
        right = self.engine.word if self.b == PACKED else self.words[1].pointer
        shared = {x.name: float32 for x in self.shared}
        return {"a": self.words[0].pointer, "b": right, **shared, **self.epilogue.operands}

    @property
    def is_packed(self) -> bool:
        """Whether B is in panels."""
        return self.b in (PACKED, DECODED)

    @property
    def shift(self) -> int:
        """What packing added to integers of A; sums start without its product with B's columns."""
        return self.words[0].offset

    @property
    def parameters(self) -> tuple[str, ...]:
        """The argument names in order."""
        names = ["a", "b", "m_panels", "tall", "n", "k", "k_begin", "k_end", "n_step", "m_blocks", "n_blocks"]
        names += ["first", "last", "elements", "a_row", "a_column", "b_row", "b_column", "b_facts"]
        names += ["scratch_b", "scratch_f", "scratch_c"]
        names += [name for x in self.shared for name in x.parameters]
        names += parts.PARAMETERS if self.in_parts else []
        return (*names, *self.epilogue.parameters, *batch.parameters(self.batch_rank, self.pointers))


class _MacroText:
    """One kernel being emitted: its functions, its arguments, its temporaries."""

    def __init__(self, b: Builder, d: Macrokernel) -> None:
        self.b, self.d = b, d
        engine, lanes = d.engine, d.engine.lanes(b.isa)
        self.nr = d.nv * lanes
        width = pack.COPIED_VECTORS * lanes
        self.pack_a = pack.PackedBlock(d.words[0], d.a, d.pitch, width, lanes, k_is_row=False).emit(b, "pack_a")
        block = pack.PackedBlock(d.words[1], d.b, self.nr, self.nr, lanes, k_is_row=True)
        weights = d.words[1] if d.b == DECODED else None
        self.pack_panel = pack.emit_panel(b, block) if not d.is_packed else None
        self.pack_group = pack.emit_group(b, block, d.group) if not d.is_packed else None
        self.look_a = facts.emit_block(b, d.pitch) if d.checked else None
        # Where B's format says its lowest bit, as that of weights does, nothing looks.
        self.lowest_b = None if d.is_packed else lowest_bit(d.words[1].source)
        looks = d.shift or (d.checked and self.lowest_b is None)
        self.look_b = facts.emit(b, engine, self.nr) if looks and not d.is_packed else None
        self.subtract = blocks.emit_zeros(b, engine, self.nr) if ZERO in d.shared else None
        self.finish = Finish(b, d.epilogue, self.nr, d.accumulates)
        self.tiles: dict[tuple[int, int], list[Function]] = {}
        engines = [(engine, ""), (engine.safe, "_safe")] if d.checked else [(engine, "")]
        for h in d.heights:
            for wide in sorted({d.wide, 1}):
                tile = Microtile(h, d.nv, wide, d.pitch, d.accumulates, d.asks, 1 if d.b == PACKED else 2, weights)
                self.tiles[h, wide] = [
                    microkernel.emit(b, x, tile, name, scaled=SCALE in d.shared) for x, name in engines
                ]
        self.n = b.index("n")
        self.block_a = b.scratch(engine.word)
        self.block_b = b.scratch(engine.word, b.index("scratch_b"))
        self.facts_b = b.scratch(int32, b.index("scratch_f"))
        self.block_c = b.scratch(engine.total, b.index("scratch_c"))
        self.fact_a = b.local(int32, 1)
        columns = d.wide * self.nr
        self.tile = b.local(engine.total, d.heights[0] * columns)
        self.start = b.local(engine.total, columns)
        b.store(self.start, 0, b.constant(0, engine.total, columns))

    def row(self, p: Index) -> Index:
        """The first row of micropanel p: those after the tall ones are one lower."""
        q = self.d.heights[0]
        if len(self.d.heights) == 1:
            return p * q
        return p * q - self.b.max(0, p - self.b.index("tall"))

    def task(self, t: Index) -> None:
        """One block of C."""
        b, d = self.b, self.d
        n_blocks, m_blocks = b.index("n_blocks"), b.index("m_blocks")
        t, begin, end, part = parts.of(b, d.in_parts, t)
        # Blocks are equally high, but for one micropanel: threads end together.
        i, panels = t // n_blocks % m_blocks, b.index("m_panels")
        p0, p1 = i * panels // m_blocks, (i + 1) * panels // m_blocks
        j0 = b.index("first") + t % n_blocks * b.index("n_step")
        j1 = b.min(j0 + b.index("n_step"), b.index("last"))
        operands = batch.moved(b, d.batch_rank, t // (n_blocks * m_blocks), d.pointers)
        operands["out"] = b.offset(operands["out"], part)
        block = _TaskLoops(self, operands, p0, p1, j0, j1, begin, end)
        for pc in b.loop(begin, b.max(end, begin + 1), d.kc):
            kc = b.min(end - pc, d.kc)
            k = self.elements(pc, kc)
            column = b.index("a_column")
            source = b.offset(block.operands["a"], block.r0 * b.index("a_row") + pc * d.engine.depth * column)
            rows = self.row(p1) - block.r0
            b.call(self.pack_a, source, b.index("a_row"), column, rows, k, self.block_a)
            if self.look_a is not None:
                b.call(self.look_a, self.block_a, rows, kc, self.fact_a)
            full = b.min(j1, self.n // self.nr)
            grouped = j0 + b.max(full - j0, 0) // d.group * d.group
            for j in b.loop(j0, grouped, d.group):
                block.columns(j, d.group, pc, kc)
            if d.group > 1:
                for j in b.loop(grouped, full):
                    block.columns(j, 1, pc, kc)
            for j in b.loop(b.max(j0, full), j1):
                block.columns(j, 0, pc, kc)

    def elements(self, pc: Index, kc: Index) -> Index:
        """Elements along K in words pc .. pc+kc-1: the last word may not be full."""
        depth = self.d.engine.depth
        return kc if depth == 1 else self.b.min(kc * depth, self.b.index("elements") - pc * depth)


@dataclass(frozen=True, slots=True)
class _Following:
    """What of B is read after a group of panels: `runs` of `run` bytes, `step` apart, from `start`.

    Calls of the microkernel ask for it, so that all is in the second cache in time (2048 cubed, packed: avx512 109.8 to
    111.6, avx2 104.7 to 108.4 GFLOP/s; 32 x 4096 x 4096 of bfloat16, a weight [N, K] packed on the way: 136 to 148; few
    micropanels ask for more each, `Choice.asks`).
    """

    start: Pointer
    runs: Index
    run: Index
    step: Index

    def asked(self, b: Builder, d: Macrokernel, call: Index) -> tuple[Pointer, Index]:
        """Where call number `call` begins to ask, and how far it goes every turn."""
        turns, width = max(1, d.chunk // microkernel.UNROLL), d.asks * LINE_BYTES
        if d.b == PACKED:
            return b.offset(self.start, b.min(call * turns * width, self.run)), width
        if d.b == "copy":  # runs are short: a turn asks for a part of each
            calls = b.max(self.runs // turns, 1)
            part = call // calls
            row = (call - part * calls) * turns * self.step
            return b.offset(self.start, row + b.min(part * width, self.run)), self.step
        calls = b.max((self.run + (turns * width - 1)) // (turns * width), 1)
        n = call // calls
        return b.offset(self.start, b.min(n, self.runs) * self.step + (call - n * calls) * turns * width), width


class _TaskLoops:
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

    def columns(self, j: Index, group: int, pc: Index, kc: Index) -> None:
        """All micropanels times `group` panels from j; 0: the narrow last panel."""
        text = self.text
        b, d = text.b, text.d
        start, step = self.panels(j, group, pc, kc)
        following = self.following(j, max(group, 1), pc, kc)
        wide = d.wide if group > 1 else group
        for g in b.loop(0, group, wide) if group > wide else (0,):
            panels = (b.offset(start, g * step), step)
            unsafe = self.unsafe(j, g, wide) if d.checked else 0
            if d.shift:
                self.begin(j, g, wide)
            for i, h in enumerate(d.heights):
                low, high = self.p0, self.p1
                if len(d.heights) == 2:
                    low = b.max(self.p0, b.index("tall")) if i else self.p0
                    high = self.p1 if i else b.min(self.p1, b.index("tall"))
                for p in b.loop(low, high):
                    done = g * (self.p1 - self.p0) + (p - self.p0)
                    self.microtile(h, p, j + g, wide, pc, kc, panels, unsafe, following, done)

    def panels(self, j: Index, group: int, pc: Index, kc: Index) -> tuple[Pointer, Index]:
        """(where the micropanels start, their step)."""
        text = self.text
        b, d, nr, x = text.b, text.d, text.nr, self.operands["b"]
        if d.is_packed:
            return b.offset(x, j * nr * b.index("k") + pc * nr), b.index("k") * nr
        row, column, first = b.index("b_row"), b.index("b_column"), pc * d.engine.depth
        source, k = b.offset(x, first * row + j * nr * column), text.elements(pc, kc)
        if group > 1:
            b.call(text.pack_group, source, row, column, k, text.block_b, d.kc * nr)
        else:
            b.call(text.pack_panel, source, row, column, k, nr if group else text.n - j * nr, text.block_b)
        if text.subtract is not None:
            for g in range(max(group, 1)):
                zeros = ZERO.panel(b, self.operands[ZERO.name], j + g, nr)
                b.call(text.subtract, b.offset(text.block_b, g * d.kc * nr), pc, kc, zeros, ZERO.words(b))
        if text.look_b is not None:
            for g in range(max(group, 1)):
                b.call(text.look_b, b.offset(text.block_b, g * d.kc * nr), kc, b.offset(text.facts_b, g * nr))
        return text.block_b, d.kc * nr

    def facts(self, j: Index, g: Index) -> Pointer:
        """Those of panels j+g ..; in a group that is packed here they are the g-th."""
        text = self.text
        b, nr = text.b, text.nr
        if text.d.b == PACKED:
            return b.cast(b.offset(self.operands["b"], b.index("b_facts") + (j + g) * nr), int32)
        return b.offset(text.facts_b, g * nr)

    def begin(self, j: Index, g: Index, wide: int) -> None:
        """The row that sums of panels j+g .. start from: what the shift of A adds to each column, taken away."""
        text = self.text
        b, nr, total = text.b, text.nr, text.d.engine.total
        for i in range(max(wide, 1)):
            sums = b.convert(b.load(self.facts(j, g), i * nr, nr), total)
            b.store(text.start, i * nr, b.mul(sums, b.like(sums, -text.d.shift)))

    def unsafe(self, j: Index, g: Index, wide: int) -> Index:
        """1 where the block of A and panels j+g .. may meet a subnormal, else 0."""
        b, nr = self.text.b, self.text.nr
        lowest_a = b.splat(b.load(self.text.fact_a, 0, 1), nr)
        if self.text.lowest_b is not None:
            lowest = b.like(lowest_a, self.text.lowest_b)
        else:
            found = self.facts(j, g)
            lowest = b.load(found, 0, nr)
            for i in range(1, wide):
                lowest = b.minimum(lowest, b.load(found, i * nr, nr))
        lowest = b.add(lowest, lowest_a)
        return b.choose(b.any(b.less(lowest, b.like(lowest, LOWEST))), 1, 0)

    def microtile(
        self, h: int, p: Index, j: Index, wide: int, pc: Index, kc: Index, panels: tuple[Pointer, Index],
        unsafe: Index, following: _Following, done: Index,
    ) -> None:  # fmt: skip
        """One microtile, of micropanel p, gains KC of K, after `done` others of the group.

        Between its chunks it stays in a dense tile, because rows of C that are a power of two apart share one set of
        the first cache and would evict each other (1024 cubed: 102 GFLOP/s in C, 106 in the tile)."""
        text = self.text
        b, d = text.b, text.d
        panel, b_step = panels
        r = text.row(p) - self.r0
        functions, width = text.tiles[h, max(wide, 1)], max(wide, 1) * text.nr
        kept, kept_step = self.kept(r, j, wide)
        fresh, whole = pc == self.k_begin, pc + d.kc >= self.k_end
        straight = d.epilogue.plain and not d.in_scratch and bool(wide)
        columns = width if wide else text.n - j * text.nr
        start, start_step = text.start, 0
        if d.accumulates:
            start, start_step = (kept, kept_step) if straight else (text.tile, width)
        if d.accumulates and not straight:
            for _ in b.when(fresh):
                text.finish.begin(self.operands, text.tile, width, self.r0 + r, j * text.nr, h, columns)
        for ck in b.loop(0, b.max(kc, 1), d.chunk):
            begins, ends = ck == 0, ck + d.chunk >= kc
            t = b.choose(begins, b.choose(fresh, start, kept), text.tile)
            t_step = b.choose(begins, b.choose(fresh, start_step, kept_step), width)
            keep = ends if straight else ends & (pc + d.kc < self.k_end)
            c, c_step = b.choose(keep, kept, text.tile), b.choose(keep, kept_step, width)
            a = b.offset(text.block_a, r * d.pitch + ck)
            chunk = b.offset(panel, ck * text.nr)
            last = b.choose(ends & whole, 1, 0)
            asked = following.asked(b, d, done * ((kc + (d.chunk - 1)) // d.chunk) + ck // d.chunk)
            arguments = [b.min(kc - ck, d.chunk), a, chunk, b_step, t, t_step, c, c_step, last, *asked]
            if SCALE in d.shared:
                scales = SCALE.panel(b, self.operands[SCALE.name], j, text.nr)
                arguments += [scales, SCALE.step(b, text.nr), pc + ck, SCALE.words(b)]
            if not straight:
                for _ in b.when(ends & whole):
                    text.finish.ask(self.operands, self.r0 + r, j * text.nr, h, width)
            for i, function in enumerate(functions):
                for _ in b.when(unsafe == i):
                    b.call(function, *arguments)
        if not straight:
            for _ in b.when(whole):
                text.finish.call(self.operands, text.tile, width, self.r0 + r, j * text.nr, h, columns)

    def following(self, j: Index, group: int, pc: Index, kc: Index) -> _Following:
        """What is read after `group` panels from j: the next ones, or the first ones' next KC; packed or as it lies."""
        text = self.text
        b, d, nr, x = text.b, text.d, text.nr, self.operands["b"]
        more, columns = j + group < self.j1, group * nr
        if d.is_packed:
            size, panel = x.dtype.size_bytes, b.index("k") * nr
            at = b.choose(more, (j + group) * panel + pc * nr, self.j0 * panel + (pc + kc) * nr)
            return _Following(b.cast(b.offset(x, at), uint8), group, kc * nr * size, panel * size)
        row, column, k = b.index("b_row"), b.index("b_column"), kc * d.engine.depth
        first, size = pc * d.engine.depth * row, d.words[1].pointer.size_bytes
        at = b.choose(more, first + (j + group) * nr * column, first + k * row + self.j0 * nr * column)
        start = b.cast(b.offset(x, at), uint8)
        if d.b == "copy":
            return _Following(start, k, columns * size, row * size)
        if d.b == pack.FROM_PANELS:
            return _Following(start, group, k * nr * size, column * nr * size)
        return _Following(start, columns, k * size, column * size)

    def kept(self, r: Index, j: Index, wide: int) -> tuple[Pointer, Index]:
        """Where a microtile is kept between KC blocks, and the step of its rows."""
        text = self.text
        b, d, nr = text.b, text.d, text.nr
        if d.in_scratch:
            step = b.index("n_step") * nr
            return b.offset(text.block_c, r * step + (j - self.j0) * nr), step
        if not wide:
            return b.offset(text.block_c, r * nr), nr
        step = b.index("out_row")
        out = b.offset(self.operands["out"], (self.r0 + r) * step + j * nr)
        return b.cast(out, d.engine.total), step


def macrokernel(b: Builder, d: Macrokernel) -> None:
    """out = epilogue(a @ b), one task a block."""
    text = _MacroText(b, d)
    for t in b.tasks():
        text.task(t)
