"""The kernel text of row reductions: a pass over the row for each depth of reductions, then one that stores.

A pass computes what it reduces from the row's inputs, from the results of earlier passes, and from heavy values that an
earlier pass kept in scratch; cheap values are computed again. Start at `text`; the order of additions is in `fold`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.kernels import fold, values
from samebits.kernels.expression import REDUCTIONS, Expression, Term
from samebits.kernels.passes import Pass, passes, uniform
from samebits.kernels.walk import Cursor


@dataclass(frozen=True, slots=True)
class ReduceText:
    """What specialises the kernel.

    Attributes:
        expression: What to compute.
        classes: Each operand's class along the row, inputs then outputs (walk.Walk.classes).
        outer: The number of outer axes.
        levels: How often the sum rule is applied: 1 if a row is one block, 2 if its blocks are, ...
        near: ReduceText that a pass takes before the next pass.
        group: ReduceText that are reduced before any is stored.
        repeated: Inputs that are the same for every row: loaded once for two rows that are stored side by side.
        span: Elements of each row of a group that are stored before more of any, so that the next rows find the
            repeated inputs in the first cache. 0: whole rows.
    """

    expression: Expression
    classes: tuple[str, ...]
    outer: int
    levels: int
    near: int
    group: int
    repeated: tuple[int, ...]
    span: int


def text(b: Builder, d: ReduceText) -> None:
    """A task is some rows, taken in groups: a pass runs over a group before the next pass does.

    ReduceText of a group overlap in the pipeline, so that the latency of trees, divisions and roots is hidden.
    """
    e = d.expression
    types = (*e.inputs, *(e.dtype(k) for k in e.outputs))
    cursors = [Cursor(b, d.classes, types, d.outer) for _ in range(1 + bool(d.repeated))]
    following = Cursor(b, d.classes, types, d.outer)
    n, rows_per_task, rows = cursors[0].n, b.index("rows_per_task"), cursors[0].row_count()
    is_uniform = uniform(e, d.classes)
    plan = passes(e, is_uniform)
    stores = not plan[-1].reductions
    before = plan[: len(plan) - stores]
    narrow = any(is_uniform[k] for k in e.outputs)

    def enter(row: Index, group: Index, number: int, count: int = 1) -> list[_Row]:
        """`count` rows from `row` on, in pass `number`."""
        for r, cursor in enumerate(cursors[:count]):
            cursor.enter(row + r)
        return [_Row(b, d, c, is_uniform, plan[:number], row + r - group) for r, c in enumerate(cursors[:count])]

    for task in b.tasks():
        first = task * rows_per_task
        last = b.min(first + rows_per_task, rows)
        for group in b.loop(first, last, d.group):
            end = b.min(group + d.group, last)
            for begin in b.loop(group, end, d.near) if d.near < d.group else (group,):
                for number, a_pass in enumerate(before):
                    # While the last sum computes, the second cache is free to bring the next rows.
                    fetches = stores and number == len(before) - 1
                    for row in b.loop(begin, b.min(begin + d.near, end)):
                        if fetches:
                            following.enter(b.min(row + d.near, rows - 1))
                        (one,) = enter(row, group, number)
                        one.reduce(a_pass, following if fetches else None)
                        if narrow and number == len(plan) - 1:
                            one.store_uniforms()
            if not stores:
                continue
            paired = group + (end - group) // len(cursors) * len(cursors)
            for start in b.loop(0, n, d.span) if d.span else (0,):
                stop = b.min(start + d.span, n) if d.span else n
                for row in b.loop(group, paired, len(cursors)):
                    _store(enter(row, group, len(before), len(cursors)), plan[-1], start, stop)
                for row in b.loop(paired, end) if d.repeated else ():
                    _store(enter(row, group, len(before)), plan[-1], start, stop)
            for row in b.loop(group, end) if narrow else ():
                (one,) = enter(row, group, len(before))
                one.store_uniforms()


def _store(rows: Sequence[_Row], a_pass: Pass, start: Index, stop: Index) -> None:
    """The outputs that vary along the row, of rows side by side, from start to stop."""
    b, d, e = rows[0].b, rows[0].d, rows[0].e
    lanes, places = b.isa.lanes, [(len(e.inputs) + j, k) for j, k in enumerate(e.outputs) if not rows[0].uniform[k]]
    splats = [row.splats(a_pass)[lanes] for row in rows]

    def store(i: Index, count: Index | None) -> None:
        repeated = {k: rows[0].cursor.load(k, i, lanes, count) for k in d.repeated}
        found = [row.values(i, lanes, count, own | repeated) for row, own in zip(rows, splats, strict=True)]
        results = [(row, place, x.stored(k)) for row, x in zip(rows, found, strict=True) for place, k in places]
        for row, place, result in results:
            row.cursor.store(place, i, result, count)

    # From the end: there the row is still in the first cache, and a store does not push out an element that is yet to
    # be read where the output begins a little further into a page than the input, as allocators have it.
    whole = start + (stop - start) // lanes * lanes
    for i in b.loop(whole, stop, lanes):
        store(i, stop - i)
    for i in b.loop(start, whole, lanes):
        store(start + (whole - lanes) - i, None)


class _Row:
    """One row in one pass: what earlier passes left of it is in scratch, at its place in the group."""

    def __init__(
        self, b: Builder, d: ReduceText, cursor: Cursor, is_uniform: Sequence[bool], done: Sequence[Pass], place: Index
    ) -> None:
        self.b, self.d, self.e, self.cursor, self.uniform, self.place = b, d, d.expression, cursor, is_uniform, place
        self.kept = {k: self._keep(k) for a_pass in done for k in a_pass.keeps}
        self.reduced = dict[int, Vector]()
        # Results of reductions are stored without more ado: they are made canonical when they are made.
        given = {k: False for k, node in _nodes(self.e) if node.op in (*REDUCTIONS, "count")}
        self.scalars = values.Values(b, self.e, 1, self._scalar, given)

    def splats(self, a_pass: Pass) -> dict[int, dict[int, Vector]]:
        """What the pass needs that is one a row, by width: made before its loops, as the text says what is constant."""
        scalars = {k: self.scalars.get(k) for k in a_pass.uniforms}
        widths = {fold.lane_width(self.b), self.b.isa.lanes}
        return {w: {k: self.b.splat(v, w) for k, v in scalars.items()} for w in widths}

    def store_uniforms(self) -> None:
        """The outputs that are one a row."""
        places = [(len(self.e.inputs) + j, k) for j, k in enumerate(self.e.outputs) if self.uniform[k]]
        # Every load comes before the first store: an output may lie on an input.
        results = [(place, self.scalars.stored(k)) for place, k in places]
        for place, result in results:
            self._store_uniform(place, result)

    def _scalar(self, k: int) -> Vector:
        node = self.e.node(k)
        if k in self.reduced:
            return self.reduced[k]
        if node is None:
            return self.cursor.load_one(k)
        if node.op == "count":
            return self.b.from_index(self.cursor.n, dtypes.float32)
        return self.b.load(self._result(k), self.place, 1)

    def _result(self, k: int) -> Pointer:
        """Where a reduction's results lie, one for each row of the group."""
        return self.b.scratch(self.e.dtype(k), self.b.index(f"result{k}"))

    def _keep(self, k: int) -> Pointer:
        start = self.b.scratch(self.e.dtype(k), self.b.index(f"keep{k}"))
        return self.b.offset(start, self.place * self.b.index("keep_elements"))

    def values(self, i: Index, width: int, count: Index | None, known: Mapping[int, Vector]) -> values.Values:
        """The expression at positions i .. i+width-1 of the row, of which some values are known."""

        def load(k: int) -> Vector:
            if k in known:
                return known[k]
            if k in self.kept:
                return self.b.load(self.kept[k], i, width)
            return self.cursor.load(k, i, width, count)

        given = {k: values.may_need_canonical(self.e, k) for k in (*known, *self.kept)}
        return values.Values(self.b, self.e, width, load, given)

    def reduce(self, a_pass: Pass, following: Cursor | None = None) -> None:
        """Reduce what the pass reduces, and keep what it keeps; meanwhile fetch the inputs of another row."""
        b, splats = self.b, self.splats(a_pass)
        nodes = [_node(self.e, k) for k in a_pass.reductions]
        kinds = [fold.kinds(node) for node in nodes]
        keeps = {k: self._keep(k) for k in a_pass.keeps}
        inputs = [k for k in range(len(self.e.inputs)) if self.d.classes[k] == "unit" and k not in self.d.repeated]

        def compute(i: Index, width: int, count: Index | None) -> list[Vector]:
            if following is not None:
                for k in inputs:
                    following.prefetch(k, i)
            found = self.values(i, width, count, splats[width])
            for k, room in keeps.items():
                b.store(room, i, found.get(k))  # whole vectors: the room is padded
            return [found.get(node.arguments[0]) for node, some in zip(nodes, kinds, strict=True) for _ in some]

        flat = [kind for some in kinds for kind in some]
        levels = self.d.levels if any(kind.ordered for kind in flat) else 1
        rooms = [b.scratch(kind.dtype, b.index(f"partial{j}")) for j, kind in enumerate(flat)] if levels > 1 else []
        results = iter(fold.fold(b, flat, self.cursor.n, levels, compute, rooms))
        for k, node, some in zip(a_pass.reductions, nodes, kinds, strict=True):
            self.reduced[k] = self._finished(node, [next(results) for _ in some], splats)
            b.store(self._result(k), self.place, self.reduced[k])

    def _finished(self, node: Term, results: list[Vector], splats: dict[int, dict[int, Vector]]) -> Vector:
        """The empty sum is +0; an extreme that its quick form leaves open is found again; NaN is canonical."""
        b, carry = self.b, [results[0]]
        if node.op == "row_sum":
            for _ in b.when(self.cursor.n < 1, carry):
                carry[0] = b.constant(0, node.dtype, 1)
        elif len(results) > 1:
            value, nan = results

            def compute(i: Index, width: int, count: Index | None) -> list[Vector]:
                return [self.values(i, width, count, splats[width]).get(node.arguments[0])]

            for _ in b.when(b.any(b.bit_or(b.is_nan(nan), b.equal(value, b.like(value, 0)))), carry):
                carry[0] = fold.fold(b, [fold.exact(node)], self.cursor.n, 1, compute, [])[0]
        return b.canonical(carry[0])

    def _store_uniform(self, place: int, result: Vector) -> None:
        """One element a row; along the row where the output has the whole shape."""
        if self.d.classes[place] == "same":
            self.cursor.store(place, 0, result)
            return
        for i in self.b.loop(0, self.cursor.n):
            self.cursor.store(place, i, result)


def _node(e: Expression, k: int) -> Term:
    node = e.node(k)
    assert node is not None  # k is the number of a node
    return node


def _nodes(e: Expression) -> list[tuple[int, Term]]:
    return [(len(e.inputs) + j, node) for j, node in enumerate(e.nodes)]
