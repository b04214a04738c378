"""Segments: K in parts, each summed by the macrokernel, joined by a fixed binary tree (`Spec.segments`).

The parts lie one after the other in the workspace, each dense: [segment][batch][row][columns, whole panels].
"""

from __future__ import annotations

from dataclasses import dataclass

from samebits.codegen.vocabulary import Builder
from samebits.kernels.gemm import batch
from samebits.kernels.gemm.epilogue import Epilogue, Finish


@dataclass(frozen=True, slots=True)
class Join:
    """What specialises the text."""

    segments: int
    nr: int
    batch_rank: int
    epilogue: Epilogue

    @property
    def parameters(self) -> tuple[str, ...]:
        """`part`: elements from one segment to the next; `part_row`: from one row to the next."""
        moving = batch.parameters(self.batch_rank, ["parts", *self.epilogue.operands])
        return ("parts", "part", "part_row", "m", "n", *self.epilogue.parameters, *moving)


def join(b: Builder, d: Join) -> None:
    """out = epilogue(((p0 + p1) + (p2 + p3)) + ...), NaN canonical; a task is one row of one batch."""
    nr = d.nr
    finish = Finish(b, d.epilogue, nr)
    tile = b.local(d.epilogue.total, nr)
    m, n, part = b.index("m"), b.index("n"), b.index("part")
    for task in b.tasks():
        operands = batch.moved(b, d.batch_rank, task // m, {"parts": d.epilogue.total, **d.epilogue.operands})
        row = task % m
        for j in b.loop(0, n, nr):
            at = row * b.index("part_row") + j
            sums = [b.load(operands["parts"], s * part + at, nr) for s in range(d.segments)]
            while len(sums) > 1:
                sums = [b.add(x, y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
            b.store(tile, 0, b.canonical(sums[0]))
            finish.call(operands, tile, nr, row, j, 1, b.min(n - j, nr))
