"""Proofs that rows of a batch do not depend on each other, from what operations say of their axes.

What a row's share of an output is computed from is followed node by node: an axis may carry the rows of the batch,
alone or merged with others, and every other axis must not know how many there are. Where a node mixes rows, reads the
size of the batch as data or says nothing of its axes, nothing is proved, which is no proof of the contrary. Kernels are
not looked at: that they give the bits of the operations is for numerics.md and its tests. Start at `prove`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from samebits.frozen import dataclass, replace
from samebits.operations import dim
from samebits.operations.axes import Axes
from samebits.operations.dim import Size, SymbolicShape
from samebits.operations.fact import Fact
from samebits.operations.moves import AxisGather, Concat, GatherND, Range
from samebits.operations.views import Expand, Reshape, Transpose
from samebits.program.graph import Node, Program

__all__ = ["Proof", "prove"]


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of one output without running anything.

    Attributes:
        output: Its name.
        proved: Whether a row's share of it depends on that row of the inputs alone.
        reason: Why it is so, or the first node of which that is not known.
        axis: Where the rows are, if it is proved and the output depends on the batch: index i along this axis is of row
            (i // inner) % batch.
        inner: See `axis`; a number, or a size with symbols as text.
    """

    output: str
    proved: bool
    reason: str
    axis: int | None = None
    inner: int | str = 1


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the rows of the batch are: index i along `axis` is of row (i // inner) % batch.

    Attributes:
        numbers: Which elements are the number of their row, by which a gather finds that row again: `all`, or `first`,
            those at index 0 of the last axis; `none` where elements are no such numbers. What is, depends on where in
            the batch its row is.
    """

    axis: int
    inner: Size
    numbers: Literal["none", "all", "first"] = "none"


class _Unknown(Exception):
    """Rows cannot be followed; the text says why."""


def prove(program: Program, batch: str) -> tuple[Proof, ...]:
    """For each output whether its rows are proved not to depend on each other, nor on how many there are.

    Args:    batch: the symbol that counts the rows: the first axis of every input, and in no other of its extents.
    """
    tracker = _Tracker(program, batch)
    return tuple(tracker.proof(name) for name in program.output_names)


class _Tracker:
    """Where rows are in every value, None where it knows nothing of the batch; or why that is unknown."""

    def __init__(self, program: Program, batch: str) -> None:
        self._program, self._batch, self._size = program, batch, dim.symbol(batch)
        self._rows: dict[str, _Rows | None] = dict.fromkeys(program.constants)
        self._reasons: dict[str, str] = {}
        for name, fact in program.inputs.items():
            self._rows[name] = _Rows(0, 1) if fact.shape and fact.shape[0] == self._size else None
            if (self._rows[name] is None and self._mentions(fact.shape)) or self._mentions(fact.shape[1:]):
                self._reasons[name] = f"input {name!r} has the batch in another place than its first axis"
        for node in program.nodes:
            self._follow(node)

    def proof(self, name: str) -> Proof:
        """What is known of an output."""
        if name in self._reasons:
            return Proof(name, False, self._reasons[name])
        rows = self._rows[name]
        if rows is not None and rows.numbers != "none":
            return Proof(name, False, "it holds the numbers of rows")
        if rows is None:
            return Proof(name, True, "does not depend on the batch")
        inner = rows.inner if isinstance(rows.inner, int) else str(rows.inner)
        return Proof(name, True, f"axis {rows.axis} follows the batch at every node", rows.axis, inner)

    def _follow(self, node: Node) -> None:
        """Find the rows in a node's outputs."""
        known = [self._reasons[name] for name in node.inputs if name in self._reasons]
        for name in node.outputs:
            try:
                if known:
                    raise _Unknown(known[0])
                self._rows[name] = self._found(node, self._program.facts[name])
            except _Unknown as reason:
                self._reasons[name] = known[0] if known else f"node {node.label!r} ({node.operation}) {reason}"

    def _found(self, node: Node, fact: Fact) -> _Rows | None:
        """Where the rows are in one output.

        Raises:  _Unknown.
        """
        if node.attributes == Range(0, self._size, 1):
            return _Rows(0, 1, "all")
        says = node.row.axes
        if says is None:
            raise _Unknown("says nothing of its axes")
        facts = [self._program.facts[name] for name in node.inputs]
        axes = says(node.attributes, facts)
        if any(self._mentions((size,)) for size in axes.reads):
            raise _Unknown("reads the size of the batch")
        inputs = [self._rows[name] for name in node.inputs]
        if any(rows and rows.numbers != "none" for rows in inputs):
            return self._numbered(node, axes, facts, fact)
        found = {self._moved(rows, axes, n, facts[n], fact) for n, rows in enumerate(inputs) if rows is not None}
        if not found and self._mentions(fact.shape):
            found = {self._repeated(node, fact.shape)}
        if len(found) > 1:
            raise _Unknown("brings rows together that lie along different axes")
        for rows in found:
            self._check(rows, axes, facts, fact.shape)
        return next(iter(found), None)

    def _numbered(self, node: Node, axes: Axes, facts: Sequence[Fact], fact: Fact) -> _Rows:
        """Where the rows are in the output of a node that takes numbers of rows: it moves them, or gathers by them.

        Raises:  _Unknown.
        """
        inputs, last = [self._rows[name] for name in node.inputs], facts[0].rank - 1
        first = inputs[0]
        if isinstance(node.attributes, AxisGather | GatherND) and first == _Rows(0, 1):
            by, several = inputs[1], isinstance(node.attributes, GatherND)
            found = "first" if several and facts[1].shape[-1] != 1 else "all"
            first_axis = isinstance(node.attributes, GatherND) or node.attributes.axis == 0
            if by is not None and first_axis and by.numbers == found:
                rows = self._moved(_Rows(by.axis, by.inner), axes, 1, facts[1], fact)
                self._check(rows, axes, facts[1:], fact.shape)
                return rows
        elif first is not None and first.numbers == "all" and isinstance(node.attributes, Reshape | Expand | Transpose):
            rows = self._moved(first, axes, 0, facts[0], fact)
            self._check(rows, axes, facts, fact.shape)
            return replace(rows, numbers="all")
        elif isinstance(node.attributes, Concat) and node.attributes.axis == last and facts[0].shape[last] == 1:
            moved = {self._moved(x, axes, n, facts[n], fact) for n, x in enumerate(inputs) if x is not None}
            others = [x for x in inputs[1:] if x is not None and x.numbers != "none"]
            if first is not None and first.numbers == "all" and len(moved) == 1 and not others:
                (rows,) = moved
                self._check(rows, axes, facts, fact.shape)
                return _Rows(rows.axis, rows.inner, "first")
        raise _Unknown("reads the numbers of rows")

    def _moved(self, rows: _Rows, axes: Axes, number: int, before: Fact, after: Fact) -> _Rows:
        """Where an operand's rows are in the output."""
        if axes.is_flat:
            return self._reshaped(rows, before.shape, after.shape)
        target = axes.follows[number][rows.axis]
        if target is None:
            raise _Unknown("reads along the axis of the batch")
        if after.shape[target] != before.shape[rows.axis]:
            raise _Unknown("may repeat the axis of the batch")
        return _Rows(target, rows.inner)

    def _reshaped(self, rows: _Rows, before: SymbolicShape, after: SymbolicShape) -> _Rows:
        """Elements keep their row-major position, in which a row's follow one another `step` by `step`."""
        step = dim.product((rows.inner, *before[rows.axis + 1 :]))
        for axis, extent in enumerate(after):
            inner = _quotient(step, dim.product(after[axis + 1 :]))
            if inner is not None and _quotient(extent, self._size * inner) is not None:
                return _Rows(axis, inner)
        raise _Unknown("spreads the rows over several axes")

    def _repeated(self, node: Node, shape: SymbolicShape) -> _Rows:
        """The axis along which what knows nothing of the batch is repeated for each row."""
        if node.operation != "expand" or self._size not in shape:
            raise _Unknown("makes a value of the size of the batch")
        return _Rows(shape.index(self._size), 1)

    def _check(self, rows: _Rows, axes: Axes, facts: Sequence[Fact], shape: SymbolicShape) -> None:
        """Nothing but the axis of the rows may know how many there are, and no operand have others of its own there.

        Args:    facts: those of the last operands.
        """
        for follows, fact in zip(axes.follows[::-1], facts[::-1], strict=False):
            for target, extent in zip(follows, fact.shape, strict=True):
                if target == rows.axis and extent not in (1, shape[target]):
                    raise _Unknown("has an operand of another extent along the axis of the batch")
        outer = _quotient(shape[rows.axis], self._size * rows.inner)
        others = (*shape[: rows.axis], *shape[rows.axis + 1 :])
        if outer is None or self._mentions((*others, outer, rows.inner)):
            raise _Unknown("makes a value of which another extent depends on the batch")

    def _mentions(self, sizes: Sequence[Size]) -> bool:
        return any(self._batch in dim.symbols(size) for size in sizes)


def _quotient(x: Size, y: Size) -> Size | None:
    """x / y where it is a size, whatever the symbols are."""
    if y == 0:
        return None
    quotient = dim.floor_divide(x, y)
    return quotient if quotient * y == x else None
