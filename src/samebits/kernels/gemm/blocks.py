"""Blocks of b along K in kernel text: where they begin and end, and their zero points (numerics.md section 4).

What blocks share lies in panels of its own, float32 [panel][block][nr], packed like b: one row a block. Start at
`runs`, the walk that everything over blocks takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer
from samebits.dtypes import float32
from samebits.kernels.gemm.engine import Engine


@dataclass(frozen=True, slots=True)
class BlockOperand:
    """Arguments of a kernel for what blocks share, an operand called `name`."""

    name: str

    @property
    def parameters(self) -> list[str]:
        """`x`: its panels; `x_rows`: blocks along K; `x_words`: words along K of one block."""
        return [self.name, f"{self.name}_rows", f"{self.name}_words"]

    def panel(self, b: Builder, x: Pointer, j: Index, nr: int) -> Pointer:
        """Where panel j begins, from the operand of the batch."""
        return b.offset(x, j * b.index(f"{self.name}_rows") * nr)

    def step(self, b: Builder, nr: int) -> Index:
        """From a panel to the next."""
        return b.index(f"{self.name}_rows") * nr

    def words(self, b: Builder) -> Index:
        """Words of a block."""
        return b.index(f"{self.name}_words")


SCALE, ZERO = BlockOperand("b_scale"), BlockOperand("b_zero")


def runs(b: Builder, first: Index, count: Index, block: Index) -> Iterator[tuple[Index, Index, Index]]:
    """(number of the block, low, high) for each block that words first .. first+count-1 touch, relative to first."""
    for q in b.loop(first // block, (first + count + block - 1) // block):
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
