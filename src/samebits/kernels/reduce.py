"""Rows: expressions with sums, maxima and minima along reduced axes, and everything per element before and after.

    plan(expression, inputs, outputs, axes, isa, threads=1) -> Plan
    reference(expression, *arrays, axes) -> list of arrays

`inputs` and `outputs` are layouts, `(shape, strides in elements)`. The inputs broadcast together to the whole shape (a
gamma has extent 1 on the other axes, a per-row scalar extent 1 on the reduced ones), but each follows all reduced axes
or none, as a row is one axis to the kernel; or it follows all but the last ones, whose elements are as many as
`walk.BLOCKS` has (a scale of each block). An output whose value is one a row has extent 1 along `axes`; any other has
the whole shape. Operands of the plan: the inputs, then the outputs, then the workspace if `plan.workspace_bytes`. An
output may be an input's memory if their layouts are equal.

The nodes `row_sum row_prod row_max row_min` reduce a value along `axes`, in row-major order of those axes; `count` is
their extent as a float. Order of additions: numerics.md section 6. Start at `plan`, which chooses: one kernel along
rows (`row_kernel`), lanes across rows that lie side by side (`columns`), a kernel a pass (`by_pass`), blocks of few
long rows (`long_rows`), or, for rows of one element, `elementwise`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import DType
from samebits.errors import PlanError, ShapeError
from samebits.kernels import convert, elementwise, fold, long_rows, row_kernel
from samebits.kernels.expression import REDUCTIONS, Chain, Expression, Term, with_arguments
from samebits.kernels.passes import passes, uniform
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.kernels.row_axes import block_size, normal_axes, whole_shape
from samebits.kernels.row_kernel import RowSteps, WalkedRows
from samebits.kernels.row_reference import reference
from samebits.kernels.walk import NIBBLES, Axis, AxisSteps, Walk, blocks, broadcast, walk
from samebits.tape import cached

__all__ = ["plan", "reference", "takes_packed"]


@cached(4096)
def plan(
    expression: Expression,
    inputs: tuple[AxisSteps, ...],
    outputs: tuple[AxisSteps, ...],
    axes: tuple[int, ...],
    isa: Isa,
    threads: int = 1,
    packed: tuple[int, ...] = (),
) -> Plan:
    """Copies of the operands whose reduced axes do not lie in one stride (if any), then one kernel over all rows.

    Args:    packed: inputs of four bits that lie two elements a byte, as `takes_packed` says of them.
    Raises:  ShapeError, OptionError, or PlanError for a maximum or minimum of nothing.
    """
    planner = _Planner(expression, inputs, outputs, axes, isa, threads, packed)
    if planner.n == 1:
        return planner.plan_elements()
    return planner.plan_blocks() if planner.shares_rows() else planner.plan()


def takes_packed(
    expression: Expression, inputs: tuple[AxisSteps, ...], outputs: tuple[AxisSteps, ...], axes: tuple[int, ...],
    isa: Isa, threads: int, packed: tuple[int, ...],
) -> bool:  # fmt: skip
    """Whether the kernel reads inputs that are packed: of four bits, the first element in the low bits of a byte, rows
    dense, of whole bytes and beginning with one; vectors are of whole bytes too, and a step for all passes serves."""
    planner = _Planner(expression, inputs, outputs, axes, isa, threads)
    if planner.n < 2 or planner.n % 2 or isa.lanes % 2 or planner.shares_rows() or not all(
        planner.in_one_stride(layout, planner.blocked.get(k, 1)) for k, layout in enumerate(planner.layouts)
    ):  # fmt: skip
        return False
    way = planner.walk(planner.layouts)
    if not planner.is_fused(way):
        return False
    odd = any(axis.strides[k] % 2 for axis in way.outer for k in packed)
    return not odd and all(way.classes[k] == "unit" for k in packed)


class _Planner:
    """The choices of one plan."""

    def __init__(
        self, e: Expression, inputs: tuple[AxisSteps, ...], outputs: tuple[AxisSteps, ...], axes: tuple[int, ...],
        isa: Isa, threads: int, packed: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.packed = packed
        self.e, self.isa, self.threads = e, isa, threads
        self.shape = whole_shape(inputs, outputs)
        self.reduced = normal_axes(axes, len(self.shape))
        self.outer = tuple(a for a in range(len(self.shape)) if a not in self.reduced)
        self.layouts = [*inputs, *outputs]
        self.types = (*e.inputs, *(e.dtype(k) for k in e.outputs))
        self.n = math.prod(self.shape[a] for a in self.reduced)
        self.workspace_bytes = 0
        rank = len(self.shape)
        padded = [(1,) * (rank - len(shape)) + shape for shape, _ in inputs]
        sizes = [block_size([self.shape[a] for a in self.reduced], [own[a] for a in self.reduced]) for own in padded]
        self.blocked = {k: size for k, size in enumerate(sizes) if size}
        self._check(len(inputs), len(outputs))

    def _check(self, n_inputs: int, n_outputs: int) -> None:
        row = tuple(1 if a in self.reduced else s for a, s in enumerate(self.shape))
        wrong = [shape for shape, _ in self.layouts[n_inputs:] if shape not in (self.shape, row)]
        if (n_inputs, n_outputs) != (len(self.e.inputs), len(self.e.outputs)) or wrong:
            raise ShapeError(

                    "reduce.plan", "operands", "", f"{n_inputs} inputs, {n_outputs} outputs, output shapes {wrong}",
                    f"{len(self.e.inputs)} inputs, {len(self.e.outputs)} outputs of shape {self.shape} or {row}",
                    "pass one layout each"
            )  # fmt: skip
        for k, (shape, _) in enumerate(self.layouts[:n_inputs]):
            if k in self.blocked or shape == self.shape:
                continue
            padded = (1,) * (len(self.shape) - len(shape)) + shape
            if len({padded[a] == self.shape[a] for a in self.reduced if self.shape[a] != 1}) > 1:
                expected = f"{self.shape} or 1 along all of axes {self.reduced}"
                raise ShapeError("reduce.plan", "an input", "shape", shape, expected, "write it out along them")
        empty = [node.op for node in self.e.nodes if node.op in ("row_max", "row_min")]
        if empty and self.n == 0:
            raise PlanError("reduce.plan", "axes", "extent", 0, "at least 1", f"{empty[0]} of nothing has no value")

    def plan(self) -> Plan:
        """Steps, scratch and what there is to say."""
        places = [Operand(k) for k in range(len(self.layouts))]
        before, after, layouts = list[Step](), list[Step](), list(self.layouts)
        workspace, copied = len(self.layouts), list[str]()
        for k, layout in enumerate(self.layouts):
            if self.in_one_stride(layout, self.blocked.get(k, 1)):
                continue
            # An operand whose reduced axes cannot be walked in one stride is moved through the workspace.
            dense = (layout[0], self._dense(layout[0]))
            room = Operand(workspace, self.workspace_bytes)
            self.workspace_bytes += in_lines(math.prod(layout[0]) * convert.stored(self.types[k]).size_bytes)
            if k < len(self.e.inputs):
                before += _copy(self.types[k], layout, dense, places[k], room, self.isa)
            else:
                after += _copy(self.types[k], dense, layout, room, places[k], self.isa)
            layouts[k], places[k] = dense, room
            copied.append(str(k))
        way = self.walk(layouts)
        is_plain = not copied and not self.blocked
        cut = self._cut(way) if is_plain and not self.packed else None
        if cut is not None:
            return cut
        across = self._across(way) if is_plain and not self.packed else None
        facts = [("rows", f"{way.rows} of {self.n}"), ("along the row", " ".join(way.classes))]
        made = self._columns(way, across, places) if across else self._kernel(way, places)
        self.workspace_bytes += made.workspace_bytes
        if across:
            facts.append(("lanes", f"one a row, {across.inner.extent} side by side"))
        if copied:
            facts.append(("copied through the workspace", "operands " + ", ".join(copied)))
        facts += made.facts
        return self._plan((*before, *made.steps, *after), made.scratch_bytes, facts)

    def _plan(self, steps: tuple[Step, ...], scratch_bytes: int, facts: Sequence[tuple[str, str]]) -> Plan:
        names = [f"input {k}" for k in range(len(self.e.inputs))] + [f"output {k}" for k in range(len(self.e.outputs))]
        return Plan(
            what=f"rows {' '.join(node.op for node in self.e.nodes)} {self.shape} over axes {self.reduced}",
            isa=self.isa,
            threads=self.threads,
            steps=steps,
            operands=tuple(names),
            scratch_bytes=scratch_bytes,
            workspace_bytes=self.workspace_bytes,
            facts=tuple(facts),
        )

    def is_fused(self, way: Walk) -> bool:
        """Whether one kernel along rows does everything."""
        return bool(self.blocked) or (self._cut(way) is None and self._across(way) is None)

    def _cut(self, way: Walk) -> Plan | None:
        """A kernel a pass, where there are several and one for all would be slower; else None."""
        found = passes(self.e, uniform(self.e, way.classes))
        if len(found) == 1 or self.n < 2:
            return None
        if long_rows.worth(way.rows, self.n, self.threads):
            why = "rows are few and long, and threads share them in one pass alone"
        elif self._lies_across(way):
            why = "rows lie side by side in memory"
        else:
            return None
        from samebits.kernels import by_pass  # as below: which few reductions take

        rows = by_pass.PassedRows(self.e, tuple(self.layouts), self.shape, self.reduced, found)
        made = by_pass.plan(rows, self.isa, self.threads, plan)
        if made is None:
            return None
        steps, scratch, self.workspace_bytes = made
        return self._plan(steps, scratch, [("rows", f"{way.rows} of {self.n}"), ("cut between passes", why)])

    def plan_elements(self) -> Plan:
        """Rows of one element: a reduction gives that element, its NaN canonical, and the kernel is elementwise."""

        def of_one(node: Term) -> Term:
            if node.op in REDUCTIONS:
                return Term("maximum", node.arguments * 2, node.dtype)
            return long_rows.count(1, node.dtype) if node.op == "count" else node

        e, inputs = Expression(self.e.inputs, tuple(map(of_one, self.e.nodes)), self.e.outputs), len(self.e.inputs)
        layouts = tuple(self.layouts)
        nested = elementwise.plan(e, layouts[:inputs], layouts[inputs:], self.isa, self.threads)
        return self._plan(nested.steps, 0, [("rows", f"{math.prod(self.shape)} of 1"), *nested.facts[1:]])

    def shares_rows(self) -> bool:
        """Whether threads share rows: there are few and long ones, each in one stride and reduced in one pass."""
        rows = math.prod(self.shape[a] for a in self.outer)
        if (
            not rows
            or self.blocked
            or not long_rows.worth(rows, self.n, self.threads)
            or not all(map(self.in_one_stride, self.layouts))
        ):
            return False
        is_uniform = uniform(self.e, self.walk(self.layouts).classes)
        found = passes(self.e, is_uniform)
        return len(found) == 1 and bool(found[0].reductions) and all(is_uniform[k] for k in self.e.outputs)

    def plan_blocks(self) -> Plan:
        """Whole blocks, the last short one, then the results of all of them, which are few."""
        outer, rank = tuple(self.shape[a] for a in self.outer), len(self.outer)
        (last, *_) = [a for a in reversed(self.reduced) if self.shape[a] != 1]
        turned = [(tuple(s[a] for a in self.outer), s[last]) for s in map(self._strides, self.layouts)]
        count, workspace = len(self.e.inputs), len(self.layouts)
        blocks, tail = divmod(self.n, fold.BLOCK)
        partial = (*outer, blocks + (tail > 0))
        first, (second, taken) = long_rows.blockwise(self.e, self.n), long_rows.of_results(self.e, self.n)
        rooms, size = list[Operand](), 0
        for k in first.outputs:
            rooms.append(Operand(workspace, size))
            size += in_lines(math.prod(partial) * first.dtype(k).size_bytes)
        dense = tuple(math.prod(partial[a + 1 :]) for a in range(rank + 1))
        steps, scratch = list[Step](), 0

        def add(nested: Plan, places: Sequence[Operand]) -> None:
            nonlocal size, scratch
            steps.extend(step.on(*places, Operand(workspace, size)) for step in nested.steps)
            size, scratch = size + nested.workspace_bytes, max(scratch, nested.scratch_bytes)

        for start, extents in ((0, (blocks, fold.BLOCK)), (blocks, (1, tail))):
            if not math.prod(extents):
                continue
            inputs = tuple(((*outer, *extents), (*s, fold.BLOCK * step, step)) for s, step in turned[:count])
            results = tuple(((*outer, extents[0], 1), (*dense, 0)) for _ in rooms)
            sizes = [convert.stored(dtype).size_bytes for dtype in self.types]
            begin = [Operand(k, start * fold.BLOCK * turned[k][1] * sizes[k]) for k in range(count)]
            there = zip(rooms, first.outputs, strict=True)
            ends = [Operand(r.index, r.offset_bytes + start * first.dtype(k).size_bytes) for r, k in there]
            add(plan(first, inputs, results, (rank + 1,), self.isa, self.threads), [*begin, *ends])
        inputs = (*((partial, dense) for _ in rooms), *(((*outer, 1), (*turned[k][0], 0)) for k in taken))
        results = tuple(((*outer, 1), (*s, 0)) for s, _ in turned[count:])
        places = [*rooms, *map(Operand, taken), *(Operand(count + j) for j in range(len(results)))]
        add(plan(second, inputs, results, (rank,), self.isa, self.threads), places)
        self.workspace_bytes = size
        facts = [("rows", f"{math.prod(outer)} of {self.n}"), ("shared by threads", f"{blocks} blocks of a row")]
        return self._plan(tuple(steps), scratch, facts)

    def _strides(self, layout: AxisSteps) -> tuple[int, ...]:
        return broadcast("reduce.plan", layout, self.shape)

    def in_one_stride(self, layout: AxisSteps, block: int = 1) -> bool:
        if len(self.reduced) == 1 or 0 in layout[0]:  # of what has no elements nothing is moved
            return True
        strides = self._strides(layout)
        axes = [(self.shape[a], strides[a]) for a in self._walked(block)]
        return all(s == t * m for (_, s), (m, t) in itertools.pairwise(axes))

    def _walked(self, block: int) -> list[int]:
        """The reduced axes that an operand is walked along: not the last ones, which blocks of elements span."""
        axes = [a for a in self.reduced if self.shape[a] != 1]
        while block > 1:
            block //= self.shape[axes.pop()]
        return axes

    def _dense(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Strides with the reduced axes innermost; a shape may lack the first axes."""
        strides, size, missing = [0] * len(shape), 1, len(self.shape) - len(shape)
        for a in reversed([a - missing for a in (*self.outer, *self.reduced) if a >= missing]):
            strides[a] = size
            size *= shape[a]
        return tuple(strides)

    def walk(self, layouts: Sequence[AxisSteps]) -> Walk:
        strides = [self._strides(layout) for layout in layouts]
        order = sorted(self.outer, key=lambda a: -abs(strides[-1][a]))
        merged = walk([Axis(self.shape[a], tuple(s[a] for s in strides)) for a in order])
        rows = (*merged.outer, merged.inner) if order and merged.inner.extent != 1 else ()
        last = [self._walked(self.blocked.get(k, 1))[-1] for k in range(len(strides))]
        # What has no elements is not the same element all along the row: nothing of it may be read.
        inner = [1 if 0 in layout[0] else s[a] for layout, s, a in zip(layouts, strides, last, strict=True)]
        special = {k: blocks(size) for k, size in self.blocked.items()} | dict.fromkeys(self.packed, NIBBLES)
        bytes_ = [tuple(s // 2 if k in self.packed else s for k, s in enumerate(axis.strides)) for axis in rows]
        outer = [Axis(axis.extent, steps) for axis, steps in zip(rows, bytes_, strict=True)]
        return Walk(tuple(outer), Axis(self.n, tuple(inner)), tuple(special.items()))

    def _has(self, k: int, axes: Sequence[int]) -> bool:
        """Whether an input's shape says an extent for one of these axes, even if it is 1."""
        return any(a >= len(self.shape) - len(self.layouts[k][0]) for a in axes)

    def _across(self, way: Walk) -> Walk | None:
        """The walk of the axes that stay, if rows lie side by side in memory and the kernel of columns can reduce them.

        It takes one pass, stores what is one a row, and only pays where the innermost of those axes fills its lanes.
        """
        is_uniform = uniform(self.e, way.classes)
        found = passes(self.e, is_uniform)
        simple = len(found) == 1 and found[0].reductions and all(is_uniform[k] for k in self.e.outputs)
        return Walk(way.outer[:-1], way.outer[-1]) if simple and self._lies_across(way) else None

    def _lies_across(self, way: Walk) -> bool:
        """Whether rows lie side by side in memory, and enough of them to fill lanes."""
        if self.n < 2 or not way.outer or way.outer[-1].extent < self.isa.lanes:
            return False
        across = Walk(way.outer[:-1], way.outer[-1])
        turned = [a == "unit" for a, c in zip(across.classes, way.classes, strict=True) if c == "strided"]
        return bool(turned) and all(turned) and "strided" not in across.classes

    def _columns(self, way: Walk, across: Walk, places: Sequence[Operand]) -> RowSteps:
        from samebits.kernels import columns

        (e, numbers), width = with_arguments(self.e), columns.width(self.isa.lanes)
        groups = across.rows * -(-across.inner.extent // width)
        groups_per_task = max(1, row_kernel.TASK // (self.n * width))
        rooms, size = dict[str, int](), 0
        blocks = -(-self.n // fold.BLOCK) if self.n > fold.BLOCK else 0
        for j, k in enumerate(k for a_pass in passes(e, uniform(e, way.classes)) for k in a_pass.reductions):
            for name, rows in ((f"table{j}", fold.LANES), (f"partial{j}", blocks)):
                rooms[name], size = size, size + in_lines(rows * width * e.dtype(k).size_bytes)
        steps = {f"x{k}.reduced": stride for k, stride in enumerate(way.inner.strides)}
        spec = KernelSpec(
            columns.text,
            columns.Columns(e, across.classes, across.above, row_kernel.levels(self.n)),
            ("groups_per_task", "rows", "reduced", *numbers, *steps, *rooms, *across.parameters()),
            self.isa,
        )
        sizes = (groups_per_task, across.rows, self.n, *numbers.values(), *steps.values(), *rooms.values())
        step = Step(spec, -(-groups // groups_per_task), (*sizes, *across.arguments(places)))
        return RowSteps((step,), size, 0, ())

    def _kernel(self, way: Walk, places: Sequence[Operand]) -> RowSteps:
        inputs = range(len(self.e.inputs))
        fixed = tuple(k for k in inputs if not any(self._strides(self.layouts[k])))
        across = tuple(self._has(k, self.outer) for k in inputs)
        rows = WalkedRows(self.e, way, fixed, across, self.isa, self.threads)
        return row_kernel.plan(rows, places, Operand(len(self.layouts), self.workspace_bytes))


def _copy(
    dtype: DType, source: AxisSteps, target: AxisSteps, start: Operand, end: Operand, isa: Isa
) -> tuple[Step, ...]:
    """Steps that move an operand."""
    chain = Chain()
    moved = chain.finish(chain.apply("copy", chain.input(dtype)))
    return tuple(step.on(start, end) for step in elementwise.plan(moved, (source,), (target,), isa).steps)
