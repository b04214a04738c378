"""Blocks along K in kernel text: where they begin and end, what they share, and their zero points (numerics.md
section 4).

What blocks of b share lies in panels of its own, float32 [panel][block][nr], packed like b: one row a block. What
blocks of a share lies by rows, float32 [row][block], of which products broadcast one value at a time. Start at `runs`,
the walk that everything over blocks takes; `spread` is the kernel of a step that puts values there which several lines
share, or which are a's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer, Vector
from samebits.dtypes import float32
from samebits.frozen import dataclass
from samebits.kernels.gemm import batch
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.words import Words

# Rows of a whose values one task spreads.
ROWS_OF_TASK = 64


@dataclass(frozen=True, slots=True)
class BlockOperand:
    """Arguments of a kernel for what blocks share, an operand called `name`."""

    name: str

    @property
    def parameters(self) -> list[str]:
        """`x`: its panels, or its rows; `x_rows`: blocks along K; `x_words`: words along K of one block."""
        return [self.name, f"{self.name}_rows", f"{self.name}_words"]

    def panel(self, b: Builder, x: Pointer, j: Index, nr: int) -> Pointer:
        """Where panel j begins, from the operand of the batch."""
        return b.offset(x, j * b.index(f"{self.name}_rows") * nr)

    def step(self, b: Builder, nr: int) -> Index:
        """From a panel to the next; with nr = 1 from a row to the next."""
        return b.index(f"{self.name}_rows") * nr

    def words(self, b: Builder) -> Index:
        """Words of a block."""
        return b.index(f"{self.name}_words")


A_SCALE, SCALE, ZERO = BlockOperand("a_scale"), BlockOperand("b_scale"), BlockOperand("b_zero")


def runs(
    b: Builder, first: Index, count: Index, block: Index, carry: list[Any] | None = None
) -> Iterator[tuple[Index, Index, Index]]:
    """(number of the block, low, high) for each block that words first .. first+count-1 touch, relative to first."""
    for q in b.loop(first // block, (first + count + block - 1) // block, carry=carry):
        yield q, b.max(q * block, first) - first, b.min(q * block + block, first + count) - first


def emit_zeros(b: Builder, engine: Engine, nr: int) -> Function:
    """A function `(words, first, count, zeros, block)`: zero points leave words first .. first+count-1 of a panel.

    `words`: where word `first` is; `zeros`: where those of the panel begin. Exact: elements are integers of at most 8
    bits, and float32 and bfloat16 hold their differences. Words that fill K up hold zero points then, which meet zeros.
    """

    def body(words: Pointer, first: Index, count: Index, zeros: Pointer, block: Index) -> None:
        for q, low, high in runs(b, first, count, block):
            zero = b.load(zeros, q * nr, nr)
            for s in b.loop(low, high):
                b.store(words, s * nr, engine.without(b, b.load(words, s * nr, nr), zero))

    return b.function("zero_points", (engine.word, None, None, float32, None), body)


@dataclass(frozen=True, slots=True)
class Spread:
    """What blocks share becomes float32 where products read it: rows of a, or panels of `nr` columns of b.

    `words`: how values become float32.   `nr`: None for a.   `across`: whether values of several blocks of a line lie
    side by side.   `unit`: a power of two that values of a are multiplied with, exactly.
    """

    words: Words
    nr: int | None
    across: bool
    batch_rank: int
    unit: float = 1.0

    @property
    def parameters(self) -> tuple[str, ...]:
        """`lines`: of the matrix; `shared`: how many of them share a value; `blocks`: along K; `line block`: strides;
        `pieces`: tasks of one batch."""
        moving = batch.parameters(self.batch_rank, ["x", "out"])
        return ("x", "out", "lines", "shared", "blocks", "line", "block", "pieces", *moving)


def spread(b: Builder, d: Spread) -> None:
    """out[batch][line][block], or out[batch][panel][block][column] = x of the block of that line.

    A task is some rows, or a panel."""
    lines, shared, blocks = b.index("lines"), b.index("shared"), b.index("blocks")
    line, block, pieces = b.index("line"), b.index("block"), b.index("pieces")
    for task in b.tasks():
        operands = batch.moved(b, d.batch_rank, task // pieces, {"x": d.words.pointer, "out": float32})
        x, out, piece = operands["x"], operands["out"], task % pieces
        if d.nr is None:
            low = piece * ROWS_OF_TASK
            for r in b.loop(low, b.min(low + ROWS_OF_TASK, lines)):
                source = b.offset(x, r // shared * line)
                _row(b, d, source, blocks, block, b.offset(out, r * blocks))
            continue
        low = piece * d.nr
        for c in b.loop(0, b.min(d.nr, lines - low)):
            source = b.offset(x, (low + c) // shared * line)
            for q in b.loop(0, blocks):
                b.store(out, (low * blocks + q * d.nr) + c, d.words.along(b, source, q * block, 1))


def _row(b: Builder, d: Spread, x: Pointer, blocks: Index, block: Index, out: Pointer) -> None:
    """One line's values, one a block."""
    width = b.isa.lanes if d.across else 1
    whole = blocks // width * width

    def values(q: Index, count: Index | None = None) -> Vector:
        found = d.words.along(b, x, q * block, width, count)
        return found if d.unit == 1.0 else b.mul(found, b.like(found, d.unit))

    for q in b.loop(0, whole, width):
        b.store(out, q, values(q))
    for _ in b.when(whole < blocks):
        b.store(out, whole, values(whole, blocks - whole), blocks - whole)
