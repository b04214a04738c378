"""PassedRows of several passes as a kernel a pass, where one kernel for all of them would be slower.

That is so for few long rows and many threads, which share a row in one pass and not in several; and for rows that lie
side by side in memory, of which one pass reduces many at once. A pass leaves its results, and what is expensive and
needed again, in the workspace; the last ones store. The order of additions is that of one kernel (numerics.md section
6). Start at `plan`, which `reduce.plan` asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels import convert, elementwise
from samebits.kernels.expression import Expression
from samebits.kernels.long_rows import part
from samebits.kernels.passes import Pass
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.kernels.walk import AxisSteps, broadcast

__all__ = ["PassedRows", "plan"]

ReducePlan = Callable[..., Plan]
"""`reduce.plan`, which plans the reductions of a pass."""


@dataclass(frozen=True, slots=True)
class PassedRows:
    """What is planned.

    Attributes:
        expression: What to compute.
        layouts: Of the inputs, then of the outputs.
        shape: The whole shape.
        reduced: The axes that are reduced.
        passes: Its passes, of which the last one may reduce nothing.
    """

    expression: Expression
    layouts: tuple[AxisSteps, ...]
    shape: tuple[int, ...]
    reduced: tuple[int, ...]
    passes: tuple[Pass, ...]

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of what is one value a row."""
        return tuple(1 if a in self.reduced else extent for a, extent in enumerate(self.shape))

    @property
    def n(self) -> int:
        """Elements of a row."""
        return math.prod(self.shape[a] for a in self.reduced)


def plan(rows: PassedRows, isa: Isa, threads: int, reduce: ReducePlan) -> tuple[tuple[Step, ...], int, int] | None:
    """Steps, bytes of scratch and of workspace; None if a pass does not read a whole row."""
    made = _Passes(rows, isa, threads, reduce)
    for a_pass in rows.passes:
        if a_pass.reductions and not made.add(a_pass):
            return None
    made.store(rows.shape)
    made.store(rows.row)
    return tuple(made.steps), made.scratch, made.size


class _Passes:
    """The steps as they are made; `rooms` says where values lie that earlier ones left, and how."""

    def __init__(self, rows: PassedRows, isa: Isa, threads: int, reduce: ReducePlan) -> None:
        self.rows, self.isa, self.threads, self.reduce = rows, isa, threads, reduce
        self.steps: list[Step] = []
        self.scratch = self.size = 0
        self.rooms: dict[int, tuple[AxisSteps, Operand]] = {}

    def add(self, a_pass: Pass) -> bool:
        """Add the steps of one pass: elements that are kept, then reductions; False if no row is read as a whole."""
        rows, e = self.rows, self.rows.expression
        for targets, shape in ((a_pass.keeps, rows.shape), (a_pass.reductions, rows.row)):
            if not targets:
                continue
            some, taken = part(e, targets, self.rooms, rows.n)
            inputs = [self._input(k) for k in taken]
            rooms = {k: self._room(shape, e.dtype(k)) for k in targets}
            outputs = [rooms[k] for k in targets]
            layouts = tuple(layout for layout, _ in inputs), tuple(layout for layout, _ in outputs)
            if shape == rows.shape:
                made = elementwise.plan(some, *layouts, self.isa, self.threads)
            elif self._is_whole(layouts[0]):
                made = self.reduce(some, *layouts, rows.reduced, self.isa, self.threads)
            else:
                return False
            self._put(made, [place for _, place in (*inputs, *outputs)])
            self.rooms |= rooms
        return True

    def store(self, shape: tuple[int, ...]) -> None:
        """The outputs of that shape, per element: by now all reductions are known."""
        rows, e = self.rows, self.rows.expression
        first = len(e.inputs)
        outputs = [first + j for j in range(len(e.outputs)) if rows.layouts[first + j][0] == shape]
        if not outputs:
            return
        some, taken = part(e, [e.outputs[k - first] for k in outputs], self.rooms, rows.n)
        inputs = [self._input(k) for k in taken]
        within = tuple(self._within(layout, shape) for layout, _ in inputs)
        made = elementwise.plan(some, within, tuple(rows.layouts[k] for k in outputs), self.isa, self.threads)
        self._put(made, [*(place for _, place in inputs), *map(Operand, outputs)])

    def _input(self, k: int) -> tuple[AxisSteps, Operand]:
        return self.rooms[k] if k in self.rooms else (self.rows.layouts[k], Operand(k))

    def _room(self, shape: tuple[int, ...], dtype: DType) -> tuple[AxisSteps, Operand]:
        """Dense memory in the workspace, its axes in the order of the first input that varies along the row."""
        rows = self.rows
        steps = [broadcast("reduce.plan", layout, rows.shape) for layout in rows.layouts[: len(rows.expression.inputs)]]
        leading = next((s for s in steps if any(s[a] for a in rows.reduced)), steps[0])
        strides, size = [0] * len(shape), 1
        for a in sorted(range(len(shape)), key=lambda a: abs(leading[a])):
            strides[a] = size
            size *= shape[a]
        place = Operand(len(rows.layouts), self.size)
        self.size += in_lines(size * convert.stored(dtype).size_bytes)
        return (shape, tuple(strides)), place

    def _is_whole(self, inputs: Sequence[AxisSteps]) -> bool:
        """Whether inputs say the extents of rows."""
        rank = len(self.rows.shape)
        padded = [(1,) * (rank - len(shape)) + shape for shape, _ in inputs]
        return all(
            extent == 1 or any(shape[a] == extent for shape in padded) for a, extent in enumerate(self.rows.shape)
        )

    def _within(self, layout: AxisSteps, shape: tuple[int, ...]) -> AxisSteps:
        """An input as one of a shape: of what is repeated along the row one element, where that is asked for."""
        own, steps = layout
        rank = len(own)
        last = shape[len(shape) - rank :]
        return tuple(1 if wanted == 1 else size for size, wanted in zip(own, last, strict=True)), steps

    def _put(self, made: Plan, places: Sequence[Operand]) -> None:
        workspace = Operand(len(self.rows.layouts), self.size)
        self.steps += [step.on(*places, workspace) for step in made.steps]
        self.size += made.workspace_bytes
        self.scratch = max(self.scratch, made.scratch_bytes)
