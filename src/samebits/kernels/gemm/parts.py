"""K in parts, each summed by a task of its own into the workspace, then joined.

Segments (`Spec.segments`) are joined by a fixed binary tree. Chunks of one segment are joined in order, as one task
would have added them: so threads share K where C alone would leave some without work (numerics.md section 2 has no
other place to cut it). Integers may be cut anywhere. The parts lie one after the other, each dense:
[part][batch][row][columns, whole panels].
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Index
from samebits.frozen import dataclass
from samebits.kernels.gemm import batch
from samebits.kernels.gemm.epilogue import Epilogue, Finish

# How many parts there are (one: all of K), words of each, elements from one's sums to the next's.
PARAMETERS = ["k_parts", "k_step", "part"]


def of(b: Builder, task: Index) -> tuple[Index, Index, Index, Index]:
    """(the task among those of one part, the words of K where it begins and ends, where its part lies)."""
    begin, end = b.index("k_begin"), b.index("k_end")
    count, step = b.index("k_parts"), b.index("k_step")
    i = task % count
    low = begin + i * step
    high = b.choose(low < end, b.min(low + step, end), begin)  # a segment beyond K has no words
    return task // count, b.min(low, high), high, i * b.index("part")


@dataclass(frozen=True, slots=True)
class Join:
    """What specialises the text.

    `segments`: how many parts a tree joins; 1: `k_parts` of them are joined in order, `accumulates`: onto what out
    holds.
    """

    segments: int
    nr: int
    batch_rank: int
    epilogue: Epilogue
    accumulates: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """`part_row`: elements from one row of a part to the next."""
        moving = batch.parameters(self.batch_rank, ["parts", *self.epilogue.operands])
        return ("parts", "k_parts", "part", "part_row", "m", "n", *self.epilogue.parameters, *moving)


def join(b: Builder, d: Join) -> None:
    """out = epilogue(((p0 + p1) + (p2 + p3)) + ...) or epilogue(((p0 + p1) + p2) + ...), NaN canonical; a task is one
    row of one batch. No part is -0, so no sum is."""
    nr, total = d.nr, d.epilogue.total
    finish = Finish(b, d.epilogue, nr, d.accumulates)
    tile = b.local(total, nr)
    m, n, part = b.index("m"), b.index("n"), b.index("part")
    for task in b.tasks():
        operands = batch.moved(b, d.batch_rank, task // m, {"parts": total, **d.epilogue.operands})
        row = task % m
        for j in b.loop(0, n, nr):
            at, columns = row * b.index("part_row") + j, b.min(n - j, nr)
            sums = [b.load(operands["parts"], s * part + at, nr) for s in range(d.segments)]
            while len(sums) > 1:
                sums = [b.add(x, y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
            if d.segments == 1:
                if d.accumulates:
                    finish.begin(operands, tile, nr, row, j, 1, columns)
                    sums = [b.add(b.load(tile, 0, nr), sums[0])]
                for s in b.loop(1, b.index("k_parts"), carry=sums):
                    sums[0] = b.add(sums[0], b.load(operands["parts"], s * part + at, nr))
            b.store(tile, 0, b.canonical(sums[0]) if total.is_float else sums[0])
            finish.call(operands, tile, nr, row, j, 1, columns)
