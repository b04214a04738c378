"""Panels of weights of four bits, two to a byte: how they lie, are packed, and are opened for many rows.

A panel is [k / 8][NR] uint32: a lane holds eight elements of its column. Shifted right by 4 p its two halves begin with
elements 2 p (high) and 2 p + 1 (low), so that one table of bfloat16 makes a pair of both (`Builder.lookup_halves`).
Scales of blocks lie beside, [panel][block][NR], as bfloat16 where their format is of 8 bits. Products of few rows read
panels as they are (`nibbles`); for more rows they are opened first: elements get a byte each in the workspace. Start at
`plan_pack`, and at `opened`.
"""

from __future__ import annotations

from collections.abc import Callable

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.dtypes import DType, bfloat16, float32, uint8, uint16, uint32
from samebits.frozen import dataclass, replace
from samebits.kernels.gemm import pack, unpack
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels, Shared
from samebits.kernels.gemm.engine import FMA32, NIBBLES
from samebits.kernels.gemm.exact_runs import EIGHT
from samebits.kernels.gemm.inner import words_of
from samebits.kernels.gemm.packed import scales_at
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import Operand, Plan, Step, in_lines

__all__ = [
    "Open", "PackNibbles", "PackScales", "kept_as", "open_panels", "opened", "pack_nibbles", "pack_scales", "place",
    "plan_pack",
]  # fmt: skip


def place(i: int) -> int:
    """Bits below element i of eight in a word."""
    return 4 * (i // 2) + (0 if i % 2 else 16)


def kept_as(scale: DType | None) -> DType:
    """What scales are read as, by what is kept of them."""
    return uint16 if scale is bfloat16 else float32


@dataclass(frozen=True, slots=True)
class PackNibbles:
    """What specialises the kernel that packs: `kind` is how b lies, `copy` where its rows are contiguous."""

    kind: str
    nr: int

    @property
    def parameters(self) -> tuple[str, ...]:
        """`row column` strides of b [k, n], whose elements have a byte each."""
        return ("x", "out", "k", "n", "row", "column")


def pack_nibbles(b: Builder, d: PackNibbles) -> None:
    """out[panel][k / 8][column] = eight codes of a column of x; a task is a panel."""
    x, out, k, n = b.pointer("x", uint8), b.pointer("out", uint32), b.index("k"), b.index("n")
    row, column, nr = b.index("row"), b.index("column"), d.nr
    for p in b.tasks():
        count = b.min(n - p * nr, nr)
        for s in b.loop(0, k // EIGHT):
            word = b.constant(0, uint32, nr)
            for i in range(EIGHT):
                at = (s * EIGHT + i) * row + p * nr * column
                codes = b.load(x, at, nr, count) if d.kind == "copy" else b.load_strided(x, at, column, nr, count)
                code = b.convert(codes, uint32)
                word = b.bit_or(word, b.shift_left(b.bit_and(code, b.like(code, 15)), place(i)))
            b.store(out, (p * (k // EIGHT) + s) * nr, word)


@dataclass(frozen=True, slots=True)
class PackScales:
    """What specialises the kernel that packs scales: how values become float32, and what is kept of these."""

    words: Words
    kept: DType
    nr: int

    @property
    def parameters(self) -> tuple[str, ...]:
        """`row column` strides of x [blocks, n / lines], `lines` columns sharing a value."""
        return ("x", "out", "blocks", "n", "row", "column", "lines")


def pack_scales(b: Builder, d: PackScales) -> None:
    """out[panel][block][column] = the scale of that block of a column; a task is a panel."""
    out = b.pointer("out", uint16 if d.kept is bfloat16 else float32)
    x, n, blocks, lines = b.pointer("x", d.words.pointer), b.index("n"), b.index("blocks"), b.index("lines")
    row, column, nr = b.index("row"), b.index("column"), d.nr
    for p in b.tasks():
        for c in b.loop(0, b.min(n - p * nr, nr)):
            source = (p * nr + c) // lines * column
            for q in b.loop(0, blocks):
                value = d.words.along(b, x, source + q * row, 1)
                if d.kept is bfloat16:
                    value = b.convert(b.shift_right(b.bitcast(value, uint32), 16), uint16)
                b.store(out, (p * blocks + q) * nr + c, value)


def plan_pack(k: int, n: int, b: Matrix, scale: Shared, nr: int, isa: Isa, threads: int) -> Plan:
    """How b[k, n], elements of four bits, and the scales of its blocks are packed: operands b, scale, panels."""
    if unpack.has_packed(b):
        return unpack.unpacked(plan_pack(k, n, replace(b, packed=None), scale, nr, isa, threads), (b,))
    count, x = -(-n // nr), scale.operand
    d = PackNibbles(pack.kind(b) if n > 1 else "gather", nr)
    e = PackScales(words_of(FMA32, float32, x.dtype)[1], NIBBLES[0].kept_scale(x.dtype), nr)
    given = (Operand(0), Operand(2), k, n, b.row, b.column)
    of_scales = (
        Operand(1), Operand(2, scales_at(k, n, nr, NIBBLES[0])), -(-k // scale.size), n, x.row, x.column, scale.lines
    )  # fmt: skip
    steps = (
        Step(KernelSpec(pack_nibbles, d, d.parameters, isa), count, given),
        Step(KernelSpec(pack_scales, e, e.parameters, isa), count, of_scales),
    )
    facts_of = (("engine", f"{b.dtype.name} nibbles"), ("panels", f"{count} of {k // EIGHT} x {nr}"))
    return Plan(
        what=f"pack b[{k},{n}] of {b.dtype.name}", isa=isa, threads=threads, steps=steps if k and n else (),
        operands=("b", "scale", "panels"), facts=facts_of,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Open:
    """What specialises the kernel that opens panels: what scales are kept as, None without."""

    scale: DType | None
    nr: int

    @property
    def parameters(self) -> tuple[str, ...]:
        """`x` becomes `out`, `scales` become `out_scales`, matrices whose rows are `row` apart."""
        return ("x", "scales", "out", "out_scales", "k", "blocks", "row")


def open_panels(b: Builder, d: Open) -> None:
    """Codes of a byte each [k][column], and scales [block][column]; a task is a panel."""
    kind, lanes = kept_as(d.scale), b.isa.lanes
    x, scales = b.pointer("x", uint32), b.pointer("scales", kind)
    out, out_scales = b.pointer("out", uint8), b.pointer("out_scales", kind)
    k, blocks, row, nr = b.index("k"), b.index("blocks"), b.index("row"), d.nr
    for p in b.tasks():
        for s in b.loop(0, k // EIGHT):
            for v in range(0, nr, lanes):
                word = b.load(x, (p * (k // EIGHT) + s) * nr + v, lanes)
                for i in range(EIGHT):
                    code = b.bit_and(b.shift_right(word, place(i)), b.like(word, 15))
                    b.store(out, (s * EIGHT + i) * row + p * nr + v, b.convert(code, uint8))
        for q in b.loop(0, blocks):
            for v in range(0, nr, lanes):
                b.store(out_scales, q * row + p * nr + v, b.load(scales, (p * blocks + q) * nr + v, lanes))


def opened(c: Contraction, isa: Isa, threads: int, again: Callable[[Contraction], Plan]) -> Plan:
    """The plan of many rows: a step opens the panels, and the product is of matrices."""
    panels = c.b.values
    assert isinstance(panels, Panels)  # the caller looked
    count = -(-c.n // panels.nr)
    row, still = count * panels.nr, (0,) * len(c.batch)
    scale = c.b.scale
    if panels.scale is not None:
        scale = Shared(Matrix(row, 1, still, panels.scale), panels.block)
    inner = again(replace(c, b=replace(c.b, values=Matrix(row, 1, still, panels.dtype), scale=scale)))
    blocks = -(-c.k // panels.block) if panels.block else 0
    outer, sizes = len(c.operands), (c.k * row, blocks * row * (panels.scale.size_bytes if panels.scale else 0))
    codes = Operand(outer, in_lines(inner.workspace_bytes))
    scales = Operand(outer, codes.offset_bytes + in_lines(sizes[0]))
    places = {name: Operand(i) for i, name in enumerate(c.operands)} | {"b": codes, "b_scale": scales}
    if panels.scale is None and scale is not None and scale.is_by_block:
        places["b_scale"] = Operand(c.operands.index("b_scale"))
    renamed = [*(places[name] for name in inner.operands), Operand(outer)]
    d = Open(panels.scale, panels.nr)
    given = (Operand(1), Operand(1, scales_at(c.k, c.n, panels.nr, NIBBLES[0])), codes, scales, c.k, blocks, row)
    first = Step(KernelSpec(open_panels, d, d.parameters, isa), count, given)
    steps = tuple(step.on(*renamed) for step in inner.steps)
    if steps and c.k:
        steps = (first, *steps)
    fact = ("b", f"opened to {sizes[0] + sizes[1]} bytes of the workspace")
    return replace(
        inner, what=str(c), steps=steps, facts=(*inner.facts, fact), operands=c.operands,
        workspace_bytes=scales.offset_bytes + in_lines(sizes[1]),
    )  # fmt: skip
