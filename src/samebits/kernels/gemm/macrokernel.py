"""The macrokernel: the loops around the microkernel for one block of C, MC x NC over all of K.

A task packs its block of A, KC of K at a time, then walks the panels of B; each microtile gains KC of K in chunks.
Loops from outside: task (batch, block of M, block of N), `pc` over K by KC, `j` over panels of B, `p` over
micropanels of A, `ck` over chunks. Where B is not in panels yet the panel is packed just before it is used, or read in place.
C gains its chunks in `out` itself; in the thread's scratch where out has no contiguous rows, or is also a source;
the last panel, if it is narrow, in a strip of scratch. Start at `macrokernel`; `Scratch` draws the temporaries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer
from samebits.dtypes import DType, float32
from samebits.kernels.expression import Expression
from samebits.kernels.gemm import epilogue, microkernel, pack
from samebits.kernels.gemm.microkernel import Microtile

PACKED, IN_PLACE = "packed", "in place"


@dataclass(frozen=True, slots=True)
class Macrokernel:
    """What specialises the text; sizes and strides are arguments.

    `heights`: those of the micropanels, tallest first.   `wide`: for each, the panels that its microtile covers.
    `a`: kind of packing.   `b`: kind of packing, PACKED or IN_PLACE.   `copy_b`: kind of packing the narrow last panel
    in place.   `in_scratch`: C gains its chunks in scratch.   `sources`: classes, see `epilogue`.
    """

    heights: tuple[int, ...]
    wide: int
    nv: int
    kc: int
    pitch: int
    chunk: int
    a: str
    b: str
    batch_rank: int
    in_scratch: bool
    out: str
    expression: Expression | None
    sources: tuple[str, ...]

    @property
    def out_dtype(self) -> DType:
        """What the epilogue stores."""
        return self.expression.dtype(self.expression.outputs[0]) if self.expression else float32

    def dtype(self, operand: str) -> DType:
        """The elements of a moving operand."""
        if operand == "out":
            return self.out_dtype
        if operand in ("a", "b") or self.expression is None:
            return float32
        return self.expression.inputs[1 + int(operand[1:])]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The argument names in order."""
        names = ["a", "b", "out", "m_panels", "tall", "n", "k", "m_step", "n_step", "m_blocks", "n_blocks", "first"]
        names += ["a_row", "a_column", "b_row", "b_column", "out_row", "out_column"]
        names += ["scratch_b", "scratch_c", "scratch_s"]
        moving = ["a", "b", "out"]
        for i, kind in enumerate(self.sources):
            names.append(f"s{i}")
            if kind != epilogue.IMMEDIATE:
                names += [f"s{i}_row", f"s{i}_column"]
                moving.append(f"s{i}")
        for d in range(self.batch_rank):
            names += [f"batch{d}", *(f"{x}_batch{d}" for x in moving)]
        return tuple(names)


class _Text:
    """One kernel being emitted: its functions, its arguments, and the loops from the outside in."""

    def __init__(self, b: Builder, d: Macrokernel) -> None:
        self.b, self.d = b, d
        self.nr = d.nv * b.isa.lanes
        self.pack_a = pack.emit_block(b, "pack_a", d.a, d.pitch, 4 * b.isa.lanes)
        self.pack_b = pack.emit_panel(b, "copy" if d.b == IN_PLACE else d.b, self.nr) if d.b != PACKED else None
        self.finish = epilogue.emit(b, d.expression, d.sources, d.out, d.out_dtype, self.nr)
        self.tiles: dict[tuple[int, int, bool], Function] = {}
        place = d.b == IN_PLACE
        for h in d.heights:
            for tile in sorted({(d.wide, place), (1, place), (1, False)}):
                self.tiles[h, *tile] = microkernel.emit(b, Microtile(h, d.nv, tile[0], d.pitch, tile[1]))
        self.k, self.n = b.index("k"), b.index("n")
        self.block_a = b.scratch(float32)
        self.block_b = b.scratch(float32, b.index("scratch_b"))
        self.block_c = b.scratch(float32, b.index("scratch_c"))
        width = d.wide * self.nr
        self.tile = b.local(float32, d.heights[0] * width)
        self.zeros = b.local(float32, width)
        b.store(self.zeros, 0, b.constant(0.0, float32, width))
        for i, kind in enumerate(d.sources):
            if kind == epilogue.IMMEDIATE:
                b.store(self.immediate(i), 0, b.scalar(f"s{i}", d.dtype(f"s{i}")))

    def immediate(self, i: int) -> Pointer:
        """Where source i, a value of the plan, lies so that the epilogue can read it like any other."""
        return self.b.scratch(self.d.dtype(f"s{i}"), self.b.index("scratch_s") + 8 * i)

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
        batch = t // (n_blocks * m_blocks)
        p0 = t // n_blocks % m_blocks * b.index("m_step")
        p1 = b.min(p0 + b.index("m_step"), b.index("m_panels"))
        panels = (self.n + (self.nr - 1)) // self.nr
        j0 = b.index("first") + t % n_blocks * b.index("n_step")
        j1 = b.min(j0 + b.index("n_step"), panels)
        block = _Block(self, self.offsets(batch), p0, p1, j0)
        for pc in b.loop(0, b.max(self.k, 1), d.kc):
            kc = b.min(self.k - pc, d.kc)
            source = b.offset(block.a, block.r0 * b.index("a_row") + pc * b.index("a_column"))
            rows = self.row(p1) - block.r0
            b.call(self.pack_a, source, b.index("a_row"), b.index("a_column"), rows, kc, self.block_a)
            full = b.min(j1, self.n // self.nr)
            paired = j0 + b.max(full - j0, 0) // d.wide * d.wide
            for j in b.loop(j0, paired, d.wide):
                block.columns(j, d.wide, pc, kc)
            if d.wide > 1:
                for j in b.loop(paired, full):
                    block.columns(j, 1, pc, kc)
            for j in b.loop(b.max(j0, full), j1):
                block.columns(j, 0, pc, kc)

    def offsets(self, batch: Index) -> dict[str, Pointer]:
        """The operands moved to a batch; batch dimensions count row-major."""
        b, d = self.b, self.d
        moving = ["a", "b", "out", *(f"s{i}" for i, kind in enumerate(d.sources) if kind != epilogue.IMMEDIATE)]
        at: dict[str, Any] = dict.fromkeys(moving, 0)
        for dimension in reversed(range(d.batch_rank)):
            extent = b.index(f"batch{dimension}")
            i, batch = batch % extent, batch // extent
            for x in moving:
                at[x] = at[x] + i * b.index(f"{x}_batch{dimension}")
        return {x: b.offset(b.pointer(x, d.dtype(x)), at[x]) for x in moving}


class _Block:
    """The loops inside one task, over its micropanels p0 .. p1-1 and its panels from j0."""

    def __init__(self, text: _Text, operands: dict[str, Pointer], p0: Index, p1: Index, j0: Index) -> None:
        self.text, self.operands = text, operands
        self.a = operands["a"]
        self.p0, self.p1, self.j0 = p0, p1, j0
        self.r0 = text.row(p0)

    def columns(self, j: Index, wide: int, pc: Index, kc: Index) -> None:
        """All micropanels times `wide` panels from j; 0: the narrow last panel."""
        text = self.text
        b, d, nr = text.b, text.d, text.nr
        panel, step, in_place = self.panels(j, wide, pc, kc)
        for i, h in enumerate(d.heights):
            tile = text.tiles[h, max(wide, 1), in_place]
            low, high = self.p0, self.p1
            if len(d.heights) == 2:
                low = b.max(self.p0, b.index("tall")) if i else self.p0
                high = self.p1 if i else b.min(self.p1, b.index("tall"))
            for p in b.loop(low, high):
                self.microtile(h, tile, p, j, wide, pc, kc, panel, step, in_place)

    def microtile(
        self, h: int, tile: Function, p: Index, j: Index, wide: int, pc: Index, kc: Index, panel: Pointer, step: Index,
        in_place: bool,
    ) -> None:  # fmt: skip
        """One microtile gains KC of K. Between its chunks it stays in a dense tile, because rows of C that are a power
        of two apart share one set of the first cache and would evict each other."""
        text = self.text
        b, d, nr = text.b, text.d, text.nr
        r = text.row(p) - self.r0
        width = max(wide, 1) * nr
        keep, keep_step = self.place(r, j, wide)
        whole = pc + d.kc >= text.k
        straight = d.expression is None and d.out == epilogue.ROW and not d.in_scratch and bool(wide)
        for ck in b.loop(0, b.max(kc, 1), d.chunk):
            begins, ends = ck == 0, ck + d.chunk >= kc
            t = b.choose(begins, b.choose(pc == 0, text.zeros, keep), text.tile)
            t_step = b.choose(begins, b.choose(pc == 0, 0, keep_step), width)
            into_keep = ends if straight else ends & (pc + d.kc < text.k)
            c, c_step = b.choose(into_keep, keep, text.tile), b.choose(into_keep, keep_step, width)
            last = b.choose(ends & whole, 1, 0)
            rows = b.offset(text.block_a, r * d.pitch + ck)
            chunk = b.offset(panel, ck * (step if in_place else nr))
            b.call(tile, b.min(kc - ck, d.chunk), rows, chunk, step, t, t_step, c, c_step, last)
        if not straight:
            for _ in b.when(whole):
                self.finish(h, r, j, wide, width)

    def panels(self, j: Index, wide: int, pc: Index, kc: Index) -> tuple[Pointer, Index, bool]:
        """(where the micropanels start, their step, whether they are rows of B itself)."""
        text = self.text
        b, d, nr, x = text.b, text.d, text.nr, self.operands["b"]
        if d.b == PACKED:
            return b.offset(x, j * nr * text.k + pc * nr), text.k * nr, False
        row, column = b.index("b_row"), b.index("b_column")
        if d.b == IN_PLACE and wide:
            return b.offset(x, pc * row + j * nr), row, True
        for g in range(max(wide, 1)):
            source = b.offset(x, pc * row + (j + g) * nr * column)
            columns = nr if wide else text.n - j * nr
            assert text.pack_b is not None
            b.call(text.pack_b, source, row, column, kc, columns, b.offset(text.block_b, g * d.kc * nr))
        return text.block_b, d.kc * nr, False

    def place(self, r: Index, j: Index, wide: int) -> tuple[Pointer, Index]:
        """Where the microtile at row r of the block and panel j gains its chunks, and the step of its rows."""
        text = self.text
        b, nr = text.b, text.nr
        if text.d.in_scratch:
            step = b.index("n_step") * nr
            return b.offset(text.block_c, r * step + (j - self.j0) * nr), step
        if not wide:
            return b.offset(text.block_c, r * nr), nr
        step = b.index("out_row")
        return b.offset(self.operands["out"], (self.r0 + r) * step + j * nr), step

    def finish(self, h: int, r: Index, j: Index, wide: int, width: int) -> None:
        """After the last chunk: the epilogue, and the move out of scratch."""
        text = self.text
        b, d, nr = text.b, text.d, text.nr
        columns = width if wide else text.n - j * nr
        at, column = self.r0 + r, j * nr
        arguments: list[Any] = []
        for i, kind in enumerate(d.sources):
            if kind == epilogue.IMMEDIATE:
                arguments += [text.immediate(i), 0, 0]
            else:
                row_step, column_step = b.index(f"s{i}_row"), b.index(f"s{i}_column")
                source = b.offset(self.operands[f"s{i}"], at * row_step + column * column_step)
                arguments += [source, row_step, column_step]
        out_row, out_column = b.index("out_row"), b.index("out_column")
        out = b.offset(self.operands["out"], at * out_row + column * out_column)
        b.call(text.finish, text.tile, width, out, out_row, out_column, h, columns, *arguments)


def macrokernel(b: Builder, d: Macrokernel) -> None:
    """out = epilogue(a @ b), one task a block."""
    text = _Text(b, d)
    for t in b.tasks():
        text.task(t)
