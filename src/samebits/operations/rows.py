"""The operation `rows`: an expression with reductions along some axes, which are one axis in row-major order.

Start at `RowWise`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samebits.codegen.isa import Isa
from samebits.errors import PlanError, ShapeError
from samebits.frozen import dataclass
from samebits.kernels import reduce
from samebits.kernels.expression import REDUCTIONS, Expression
from samebits.kernels.plan import Plan
from samebits.kernels.row_axes import block_size
from samebits.kernels.walk import AxisSteps
from samebits.operations import dim
from samebits.operations.axes import Axes, aligned
from samebits.operations.dim import Dim, Size, SymbolicShape
from samebits.operations.elementwise import check_dtypes, text
from samebits.operations.fact import Fact, dense
from samebits.operations.operation import Array, Operation, PlanTarget, Shape, View, shared_by

__all__ = ["ROWS", "RowWise", "varying"]


@dataclass(frozen=True, slots=True)
class RowWise:
    """With reductions along `axes`, which count from the end; an output that is one value a row has extent 1 there."""

    expression: Expression
    axes: tuple[int, ...] = (-1,)

    def __str__(self) -> str:
        return f"axes {list(self.axes)}: {text(self.expression)}"


def varying(expression: Expression, inputs: Sequence[bool]) -> list[bool]:
    """For each value whether it differs along the row, given which inputs do."""
    found = list(inputs)
    for node in expression.nodes:
        found.append(node.op not in REDUCTIONS and any(found[argument] for argument in node.arguments))
    return found


def row_extents(shapes: Sequence[SymbolicShape], axes: Sequence[int]) -> tuple[SymbolicShape, list[bool]]:
    """The shape that the operands of a row expression share, and which of them vary along the reduced axes.

    Raises:  ShapeError if the shape has no such axes.
    """
    shape = dim.broadcast_shapes(shapes)
    if any(not -len(shape) <= axis < 0 for axis in axes):
        raise ShapeError("rows", "operands", "rank", len(shape), f"enough for axes {list(axes)}", "reshape them")
    whole = all(shape[axis] == 1 for axis in axes)
    return shape, [whole or any(-axis <= len(s) and s[axis] != 1 for axis in axes) for s in shapes]


def _shapes(attributes: RowWise, shapes: Sequence[SymbolicShape]) -> tuple[SymbolicShape, ...]:
    """The shape of each output."""
    expression = attributes.expression
    shape, along = row_extents(shapes, attributes.axes)
    reduced = {axis + len(shape) for axis in attributes.axes}
    row = tuple(1 if axis in reduced else size for axis, size in enumerate(shape))
    varies = varying(expression, along)
    made = tuple(shape if varies[output] else row for output in expression.outputs)
    _check_rows(attributes, [size for axis, size in enumerate(shape) if axis in reduced], made)
    return made


def _check_rows(attributes: RowWise, extents: Sequence[Size], made: Sequence[SymbolicShape]) -> None:
    """Whether rows of these extents have the extremes that are asked for.

    Raises:  PlanError if they are empty, and there are any.
    """
    extremes = [node.op for node in attributes.expression.nodes if node.op in ("row_max", "row_min")]
    if extremes and _has_nothing(extents) and not all(_has_nothing(shape) for shape in made):
        fact = f"length along axes {list(attributes.axes)}"
        remedy = f"give each row an element, as {extremes[0]} of nothing has no value"
        raise PlanError("rows", "x0", fact, 0, "at least 1", remedy)


def _has_nothing(sizes: Sequence[Size]) -> bool:
    """Whether one of the sizes is known to be 0."""
    return any(not isinstance(size, Dim) and size == 0 for size in sizes)


def _infer(attributes: RowWise, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    expression = attributes.expression
    check_dtypes("rows", expression.inputs, facts)
    shapes = _shapes(attributes, [fact.shape for fact in facts])
    return tuple(dense(expression.dtype(output), s) for output, s in zip(expression.outputs, shapes, strict=True))


def _reference(attributes: RowWise, arrays: Sequence[Array]) -> tuple[Array, ...]:
    made = _shapes(attributes, [x.shape for x in arrays])
    outputs = attributes.expression.outputs
    if all(0 in shape for shape in made):
        types = [attributes.expression.dtype(output).numpy for output in outputs]
        return tuple(np.empty(dim.bind_shape(shape, {}), kind) for shape, kind in zip(made, types, strict=True))
    rank = max(x.ndim for x in arrays)
    whole = [x.reshape((1,) * (rank - x.ndim) + x.shape) for x in arrays]
    axes = tuple(axis + rank for axis in attributes.axes)
    return tuple(reduce.reference(attributes.expression, *whole, axes=axes))


def _axes(attributes: RowWise, facts: Sequence[Fact]) -> Axes:
    rank = max(fact.rank for fact in facts)
    return Axes(aligned(facts, rank, [axis + rank for axis in attributes.axes]))


def _plan(attributes: RowWise, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """One kernel over rows."""
    return reduce.plan(*_question(attributes, views, target))


def _reads(attributes: RowWise, views: tuple[View, ...], packed: tuple[int, ...], target: PlanTarget) -> Plan | None:
    """One kernel over rows that takes inputs of four bits apart, if they lie in rows of whole bytes."""
    question = _question(attributes, views, target)
    return reduce.plan(*question, packed) if reduce.takes_packed(*question, packed) else None


def _question(
    attributes: RowWise, views: tuple[View, ...], target: PlanTarget
) -> tuple[Expression, tuple[AxisSteps, ...], tuple[AxisSteps, ...], tuple[int, ...], Isa, int]:
    """What the planner is asked for."""
    layouts, count = tuple([view[1:] for view in views]), len(attributes.expression.inputs)
    inputs, outputs = layouts[:count], layouts[count:]
    axes = tuple([axis + len(outputs[0][0]) for axis in attributes.axes])
    return attributes.expression, inputs, outputs, axes, target.isa, shared_by(views, target)


def _takes(attributes: RowWise, views: Sequence[View]) -> list[Shape | None]:
    """An operand that repeats along some of the reduced axes alone is written out: a row is one axis to the kernel,
    which an operand follows, or is the same along, or has one element a block of."""
    shapes = [shape for _, shape, _ in views[: len(attributes.expression.inputs)]]
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    whole = dim.bind_shape(dim.broadcast_shapes(padded), {})
    extents = {axis: size for axis in attributes.axes if (size := whole[axis]) != 1}
    found: list[Shape | None] = []
    for shape in padded:
        reduced = sorted(attributes.axes)
        if block_size([whole[axis] for axis in reduced], [shape[axis] for axis in reduced]):
            found.append(None)
            continue
        mixed = len({shape[axis] == extent for axis, extent in extents.items()}) > 1
        wide = tuple(extents.get(axis - rank, size) for axis, size in enumerate(shape))
        found.append(wide if mixed else None)
    return found


ROWS: tuple[Operation, ...] = (
    Operation("rows", _infer, _reference, _axes, plan=_plan, takes=_takes, reads=_reads, overwrites=True),
)
