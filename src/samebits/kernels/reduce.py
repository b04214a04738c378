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
their extent as a float. Order of additions: numerics.md section 6. Start at `plan`; the kernel is in `reduce_text`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from samebits import ieee
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import DType, float32
from samebits.errors import PlanError, ShapeError
from samebits.kernels import code_tables, convert, elementwise, exact_blocks, fold, long_rows, values
from samebits.kernels.expression import REDUCTIONS, Chain, Expression, Term, with_arguments
from samebits.kernels.passes import Pass, passes, uniform
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.kernels.reduce_text import ReduceText, text
from samebits.kernels.row_axes import block_size, normal_axes, whole_shape
from samebits.kernels.walk import NIBBLES, Axis, AxisSteps, Walk, blocks, broadcast, walk
from samebits.tape import cached

Array = values.Array

# Elements of one task, in whole rows: microseconds of work, so that threads can share it.
_TASK = 8192
# Vectors are stored to scratch whole, so a kept row has room for one more of the widest.
_PADDING = 64
# Most rows of a group, and elements of each that are stored in turn, where rows are long and share an input: a group
# lies in the second cache.
_SPANNED, _SPAN = 16, 1024
# Bytes that the rows of a group may take of the first-level data cache (32 KB on the smallest machines), where the rows
# of the next group are being brought meanwhile.
_CACHE = 16384


def reference(expression: Expression, *inputs: npt.ArrayLike, axes: Sequence[int]) -> list[Array]:
    """The outputs by NumPy; a value that is one a row has extent 1 along `axes`."""
    shape = np.broadcast_shapes(*[np.shape(x) for x in inputs])
    reduced = normal_axes(axes, len(shape))
    outer = tuple(a for a in range(len(shape)) if a not in reduced)
    n = math.prod(shape[a] for a in reduced)

    def special(node: Term, arguments: list[Array]) -> Array:
        if node.op == "count":
            return np.array(n, node.dtype.numpy)
        whole = np.broadcast_to(arguments[0], shape).transpose(*outer, *reduced)
        rows = whole.reshape(math.prod(shape[a] for a in outer), n)
        ordered = {"row_sum": np.add, "row_prod": np.multiply}.get(node.op)
        result = _sum_rule(rows, ordered) if ordered else _extreme(node.op, rows)
        return result.reshape([1 if a in reduced else extent for a, extent in enumerate(shape)])

    return values.reference(expression, inputs, special)


def _sum_rule(x: Array, step: np.ufunc) -> Array:
    """Row sums, or products, of [rows, n]: numerics.md section 6, word for word."""
    rows, n = x.shape
    if n == 0:
        return np.full(rows, step.identity, x.dtype)
    blocks = []
    with np.errstate(all="ignore"):
        for start in range(0, n, 2048):
            block = x[:, start : start + 2048]
            lanes = block[:, :64].copy()
            for k in range(64, block.shape[1], 64):
                part = block[:, k : k + 64]
                lanes[:, : part.shape[1]] = step(lanes[:, : part.shape[1]], part)
            for distance in (32, 16, 8, 4, 2, 1):
                lanes, others = lanes[:, :distance], lanes[:, distance:]
                lanes[:, : others.shape[1]] = step(lanes[:, : others.shape[1]], others)
            blocks.append(lanes[:, 0])
    return np.array(blocks[0]) if len(blocks) == 1 else _sum_rule(np.stack(blocks, axis=1), step)


def _extreme(op: str, x: Array) -> Array:
    """Row maxima or minima of [rows, n]."""
    if x.dtype.kind != "f":
        return np.asarray((np.max if op == "row_max" else np.min)(x, axis=1))
    step = ieee.maximum if op == "row_max" else ieee.minimum
    while x.shape[1] > 1:  # of each two neighbours; then of what these gave, and what is left over
        pairs = x.shape[1] // 2 * 2
        x = np.concatenate([step(x[:, :pairs:2], x[:, 1:pairs:2]), x[:, pairs:]], axis=1)
    return np.array(x[:, 0])


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


_Made = tuple[tuple[Step, ...], int, tuple[tuple[str, str], ...]]
"""Steps, the bytes of scratch that they need, and what there is to say of tables that they look values up in."""


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
        steps, scratch_bytes, said = self._columns(way, across, places) if across else self._kernel(way, places)
        if across:
            facts.append(("lanes", f"one a row, {across.inner.extent} side by side"))
        if copied:
            facts.append(("copied through the workspace", "operands " + ", ".join(copied)))
        facts += said
        return self._plan((*before, *steps, *after), scratch_bytes, facts)

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

    def _columns(self, way: Walk, across: Walk, places: Sequence[Operand]) -> _Made:
        from samebits.kernels import columns

        (e, numbers), width = with_arguments(self.e), columns.width(self.isa.lanes)
        groups = across.rows * -(-across.inner.extent // width)
        groups_per_task = max(1, _TASK // (self.n * width))
        rooms, size = dict[str, int](), 0
        blocks = -(-self.n // fold.BLOCK) if self.n > fold.BLOCK else 0
        for j, k in enumerate(k for a_pass in passes(e, uniform(e, way.classes)) for k in a_pass.reductions):
            for name, rows in ((f"table{j}", fold.LANES), (f"partial{j}", blocks)):
                rooms[name], size = size, size + in_lines(rows * width * e.dtype(k).size_bytes)
        steps = {f"x{k}.reduced": stride for k, stride in enumerate(way.inner.strides)}
        spec = KernelSpec(
            columns.text,
            columns.Columns(e, across.classes, across.above, levels(self.n)),
            ("groups_per_task", "rows", "reduced", *numbers, *steps, *rooms, *across.parameters()),
            self.isa,
        )
        sizes = (groups_per_task, across.rows, self.n, *numbers.values(), *steps.values(), *rooms.values())
        return (Step(spec, -(-groups // groups_per_task), (*sizes, *across.arguments(places))),), size, ()

    def _kernel(self, way: Walk, places: Sequence[Operand]) -> _Made:
        e, numbers = with_arguments(self.e)
        fixed = [k for k, layout in enumerate(self.layouts[: len(e.inputs)]) if not any(self._strides(layout))]
        e, tables = code_tables.split(e, way.classes, fixed, way.rows * self.n)
        filled, looked_up = list[Step](), dict[str, Operand]()
        for table in tables:
            place = looked_up[f"table{table.value}"] = Operand(len(self.layouts), self.workspace_bytes)
            self.workspace_bytes += in_lines(table.size_bytes)
            filled.append(code_tables.step(table, numbers, places, place, self.isa))
        found, said = passes(e, uniform(e, way.classes)), [("looked up", str(table)) for table in tables]
        exact = exact_blocks.chosen(e, tables, found, way.classes, self.n, self.isa)
        if exact is not None:
            unit = looked_up[exact_blocks.UNIT] = Operand(len(self.layouts), self.workspace_bytes)
            self.workspace_bytes += in_lines(float32.size_bytes)
            filled.append(exact_blocks.probe(looked_up[f"table{exact}"], unit, self.isa))
            said.append(("summed in integers", "blocks of 2048 whose sums nothing rounds"))
        repeated = self._repeated(way, found)
        spanned = bool(repeated) and self.n > _SPAN
        ordered = any(fold.exact(node).ordered for node in self.e.nodes if node.op in REDUCTIONS)
        applied = levels(self.n) if ordered else 1
        description = ReduceText(e, way.classes, way.above, applied, repeated, spanned, exact)
        group = self._spanned_group(way) if spanned else max(self._group(way, found), len(repeated) and 2)
        offsets, size = dict[str, int](), 0
        for name, room in rooms(self.e, found, self.n, group):
            offsets[name], size = size, size + in_lines(room)
        rows_per_task = max(1, _TASK // max(self.n, 1) // group) * group
        sizes = {
            "rows_per_task": rows_per_task,
            "rows": way.rows,
            "group": group,
            "near": max(1, _CACHE // (4 * max(self.n, 1))),
            "span": _SPAN,
            "keep_elements": keep_elements(self.n),
            **numbers,
        }
        spec = KernelSpec(text, description, (*sizes, *offsets, *looked_up, *way.parameters()), self.isa)
        given = (*sizes.values(), *offsets.values(), *looked_up.values(), *way.arguments(places))
        return (*filled, Step(spec, -(-way.rows // rows_per_task), given)), size, tuple(said)

    def _repeated(self, way: Walk, found: Sequence[Pass]) -> tuple[int, ...]:
        """Inputs that vary along the row and are the same for every row, if the last pass stores several rows.

        A weight and a bias are half of what layer norm loads; those of 4096 are 32 KB, more than the first cache holds.
        """
        inputs = range(len(self.e.inputs))
        if found[-1].reductions:
            return ()
        # Of one row nothing can be seen to repeat: an input that has no outer axes does, where there are more.
        moves = [self._has(k, self.outer) if way.rows == 1 else any(a.strides[k] for a in way.outer) for k in inputs]
        return tuple(k for k in inputs if way.inner.strides[k] and not moves[k])

    def _spanned_group(self, way: Walk) -> int:
        """As many rows as take turns with a shared input, while every thread has a few groups."""
        fitting = way.rows // (2 * self.threads) if self.threads > 1 else _SPANNED
        return max(g for g in (2, 4, 8, _SPANNED) if g == 2 or g <= fitting)

    def _group(self, way: Walk, found: Sequence[Pass]) -> int:
        """As many rows as stay in the first-level cache from one pass to the next; two at least of several passes, so
        that the end of a sum overlaps with the next."""
        if len(found) == 1:
            return 1
        own = [k for k, stride in enumerate(way.inner.strides) if stride and any(a.strides[k] for a in way.outer)]
        streams = len(own) + sum(len(a_pass.keeps) for a_pass in found)
        fitting = _CACHE // (4 * max(self.n, 1) * max(streams, 1))
        return max(g for g in (1, 2, 4, 8, 16) if g == 1 or g <= fitting or (g == 2 and self.n <= _SPAN))


def keep_elements(n: int) -> int:
    """The room, in elements, of a row of n that is kept in scratch."""
    return -(-(n + _PADDING) // _PADDING) * _PADDING


def rooms(e: Expression, found: Sequence[Pass], n: int, group: int) -> Iterator[tuple[str, int]]:
    """The rooms in scratch that passes over groups of rows of n ask for by name, and their bytes."""
    for k in sorted({k for a_pass in found for k in a_pass.keeps}):
        yield f"keep{k}", group * keep_elements(n) * convert.stored(e.dtype(k)).size_bytes
    for k in sorted({k for a_pass in found for k in a_pass.reductions}):
        yield f"result{k}", group * e.dtype(k).size_bytes
    # A maximum or minimum has two accumulators.
    for j in range(max([2 * len(a_pass.reductions) for a_pass in found], default=0)):
        yield f"partial{j}", -(-n // fold.BLOCK) * 8


def levels(n: int) -> int:
    """How often the sum rule is applied to n elements."""
    return 1 if n <= fold.BLOCK else 1 + levels(-(-n // fold.BLOCK))


def _copy(
    dtype: DType, source: AxisSteps, target: AxisSteps, start: Operand, end: Operand, isa: Isa
) -> tuple[Step, ...]:
    """Steps that move an operand."""
    chain = Chain()
    moved = chain.finish(chain.apply("copy", chain.input(dtype)))
    return tuple(step.on(start, end) for step in elementwise.plan(moved, (source,), (target,), isa).steps)
