"""Packing: a block of a matrix becomes rows of constant pitch, and a right operand becomes panels.

Both operands use one text: `block[r * pitch + c] = x[r * row + c * column]`. For A, r is m and c is k (the pitch is KC
and a little more, so that rows do not fall into one cache set); for B, r is k and c is n (the pitch is NR). Which of
the strides is 1 decides the kind: `copy` (c contiguous), `transpose` (r contiguous), else `gather`.
Start at `emit_block`; `pack_panels` is the kernel of a step that packs a whole operand.
"""

from __future__ import annotations

from dataclasses import dataclass

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer
from samebits.dtypes import float32
from samebits.kernels.gemm import batch
from samebits.kernels.gemm.contraction import Matrix

# Vectors of a row of A that are copied at a time.
COPIED_VECTORS = 4
_ROWS_A_TURN = 4
_ROWS_AHEAD = 4
_LINE = 16  # elements of a cache line


def kind(x: Matrix) -> str:
    """How a block with rows and columns as in x is packed."""
    if x.column == 1:
        return "copy"
    return "transpose" if x.row == 1 else "gather"


def emit_block(b: Builder, name: str, kind: str, pitch: int, width: int) -> Function:
    """A function `(x, row, column, rows, columns, block)`; `width` columns are copied at a time where c is contiguous.

    Each row of the block has room for its columns rounded up to `width`; the copy kind fills them with zeros.
    """
    emit = {"copy": _copy, "transpose": _transpose, "gather": _gather}[kind]

    def body(x: Pointer, row: Index, column: Index, rows: Index, columns: Index, block: Pointer) -> None:
        emit(b, pitch, width, x, row, column, rows, columns, block)

    return b.function(name, (float32, None, None, None, None, float32), body)


def _copy(
    b: Builder, pitch: int, width: int, x: Pointer, row: Index, column: Index, rows: Index, columns: Index,
    block: Pointer,
) -> None:  # fmt: skip
    whole = columns // width * width
    for c in b.loop(0, whole, width):
        several = rows // _ROWS_A_TURN * _ROWS_A_TURN
        for r in b.loop(0, several, _ROWS_A_TURN):
            for u in range(_ROWS_A_TURN):
                b.store(block, (r + u) * pitch + c, b.load(x, (r + u) * row + c, width))
        for r in b.loop(several, rows):
            b.store(block, r * pitch + c, b.load(x, r * row + c, width))
    for _ in b.when(whole < columns):
        for r in b.loop(0, rows):
            b.store(block, r * pitch + whole, b.load(x, r * row + whole, width, columns - whole))


def _transpose(
    b: Builder, pitch: int, width: int, x: Pointer, row: Index, column: Index, rows: Index, columns: Index,
    block: Pointer,
) -> None:  # fmt: skip
    """Squares of lanes x lanes; the last square of a row or column is moved back to overlap its neighbour."""
    lanes = b.isa.lanes
    roomy = (rows >= lanes) & (columns >= lanes)
    for _ in b.when(roomy):
        for c in b.loop(0, columns, lanes):
            c0 = b.min(c, columns - lanes)
            for r in b.loop(0, rows, lanes):
                r0 = b.min(r, rows - lanes)
                square = [b.load(x, r0 + (c0 + i) * column, lanes) for i in range(lanes)]
                for i, v in enumerate(b.transpose(square)):
                    b.store(block, (r0 + i) * pitch + c0, v)
    for _ in b.when((rows < lanes) | (columns < lanes)):
        _gather(b, pitch, width, x, row, column, rows, columns, block)


def _gather(
    b: Builder, pitch: int, width: int, x: Pointer, row: Index, column: Index, rows: Index, columns: Index,
    block: Pointer,
) -> None:  # fmt: skip
    for c in b.loop(0, columns):
        for r in b.loop(0, rows):
            b.store(block, r * pitch + c, b.load(x, r * row + c * column, 1))


def emit_panel(b: Builder, kind: str, nr: int) -> Function:
    """A function `(b, row, column, kc, columns, panel)` that packs one micropanel of B; missing columns are zero."""
    block = emit_block(b, "pack_b", kind, nr, nr)

    def body(x: Pointer, row: Index, column: Index, kc: Index, columns: Index, panel: Pointer) -> None:
        for _ in b.when(columns < nr):
            zero = b.constant(0.0, float32, nr)
            for k in b.loop(0, kc):
                b.store(panel, k * nr, zero)
        b.call(block, x, row, column, kc, columns, panel)

    return b.function("pack_panel", (float32, None, None, None, None, float32), body)


def emit_group(b: Builder, kind: str, nr: int, group: int) -> Function:
    """A function `(b, row, column, kc, panels, step)` that packs `group` whole micropanels, `step` elements apart.

    Rows of B are read across the whole group: a panel at a time would touch one line or two of every row, each in a
    page of its own (M = 4, K = N = 4096: 6.7 GB/s a panel at a time, 9.5 in groups of 8).
    """
    block = emit_block(b, "pack_group", kind, nr, nr) if kind != "copy" else None

    def body(x: Pointer, row: Index, column: Index, kc: Index, panels: Pointer, step: Index) -> None:
        if block is not None:
            for g in range(group):
                b.call(block, b.offset(x, g * nr * column), row, column, kc, nr, b.offset(panels, g * step))
            return
        for k in b.loop(0, kc):
            for j in range(0, group * nr, _LINE):
                b.prefetch(x, (k + _ROWS_AHEAD) * row + j)
            for g in range(group):
                b.store(panels, g * step + k * nr, b.load(x, k * row + g * nr, nr))

    return b.function("pack_panels", (float32, None, None, None, float32, None), body)


@dataclass(frozen=True, slots=True)
class PackPanels:
    """A right operand to panels of `nr` columns, `group` of them a task; `batch_rank` batch dimensions."""

    kind: str
    nr: int
    group: int
    batch_rank: int

    @property
    def parameters(self) -> tuple[str, ...]:
        """`row column` strides; `panels` of this launch from `first` on, in `groups`; `n` columns in all."""
        moving = batch.parameters(self.batch_rank, ["x", "out"])
        return ("x", "out", "k", "n", "row", "column", "panels", "groups", "first", *moving)


def pack_panels(b: Builder, d: PackPanels) -> None:
    """out[batch][panel][k][nr] = x[batch][k, panel * nr + j]; a task is some panels of one batch."""
    one, several = emit_panel(b, d.kind, d.nr), emit_group(b, d.kind, d.nr, d.group)
    k, n, row, column = b.index("k"), b.index("n"), b.index("row"), b.index("column")
    groups, first = b.index("groups"), b.index("first")
    for task in b.tasks():
        operands = batch.moved(b, d.batch_rank, task // groups, {"x": float32, "out": float32})
        p0 = task % groups * d.group
        j = (first + p0) * d.nr
        whole = (p0 + d.group <= b.index("panels")) & (j + d.group * d.nr <= n)
        for _ in b.when(whole):
            source, target = b.offset(operands["x"], j * column), b.offset(operands["out"], p0 * k * d.nr)
            b.call(several, source, row, column, k, target, k * d.nr)
        stop = b.choose(whole, p0, b.min(p0 + d.group, b.index("panels")))
        for p in b.loop(p0, stop):
            j = (first + p) * d.nr
            source, target = b.offset(operands["x"], j * column), b.offset(operands["out"], p * k * d.nr)
            b.call(one, source, row, column, k, b.min(n - j, d.nr), target)
