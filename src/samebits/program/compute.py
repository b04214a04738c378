"""Primitives that compute: per element (`map`), over rows (`rows`), and products (`contract`).

Each holds an `Expression`; the kernels rooms give its meaning and its plan. Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from samebits.dtypes import DType, float32
from samebits.errors import DTypeError, PlanError, ShapeError
from samebits.kernels import values
from samebits.kernels.expression import REDUCTIONS, Expression
from samebits.program import compose, dim, lower_compute
from samebits.program.dim import Size, SymbolicShape
from samebits.program.fact import Fact, dense
from samebits.program.graph import Array
from samebits.program.primitive import Primitive
from samebits.program.views import text

__all__ = ["ROWS", "Map", "MatrixProduct", "RowWise", "varying"]


@dataclass(frozen=True, slots=True)
class Map:
    """One value an element, operands broadcasting."""

    expression: Expression

    def __str__(self) -> str:
        return compose.text(self.expression)


@dataclass(frozen=True, slots=True)
class RowWise:
    """With reductions along `axes`, which count from the end; an output that is one value a row has extent 1 there."""

    expression: Expression
    axes: tuple[int, ...] = (-1,)

    def __str__(self) -> str:
        return f"axes {list(self.axes)}: {compose.text(self.expression)}"


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """Matrix product over the last axis of the first operand and the last but one of the second (section 2).

    The epilogue's input 0 is the product; further operands broadcast to it. None is the product itself.
    """

    epilogue: Expression | None = None

    def __str__(self) -> str:
        return "product" if self.epilogue is None else compose.text(self.epilogue)


def varying(expression: Expression, inputs: Sequence[bool]) -> list[bool]:
    """For each value whether it differs along the row, given which inputs do."""
    found = list(inputs)
    for node in expression.nodes:
        found.append(node.op not in REDUCTIONS and any(found[argument] for argument in node.arguments))
    return found


def _check_dtypes(what: str, taken: Sequence[DType], facts: Sequence[Fact]) -> None:
    """Raise DTypeError unless the operands have the element formats that are read."""
    given = tuple(fact.dtype for fact in facts)
    if given != tuple(taken):
        raise DTypeError(what, "operands", "dtypes", given, tuple(taken), "cast them")


def _infer_map(description: Map, names: Sequence[str], facts: Sequence[Fact]) -> tuple[Fact, ...]:
    expression = description.expression
    _check_dtypes("map", expression.inputs, facts)
    shape = dim.broadcast_shapes([fact.shape for fact in facts])
    return tuple(dense(expression.dtype(output), shape) for output in expression.outputs)


def row_extents(shapes: Sequence[SymbolicShape], axes: Sequence[int]) -> tuple[SymbolicShape, list[bool]]:
    """The shape that the operands of a row expression share, and which of them vary along the reduced axes.

    Raises:  ShapeError if the shape has no such axes.
    """
    shape = dim.broadcast_shapes(shapes)
    if any(not -len(shape) <= axis < 0 for axis in axes):
        raise ShapeError("rows", "operands", "rank", len(shape), f"enough for axes {list(axes)}", "reshape them")
    whole = all(shape[axis] == 1 for axis in axes)
    return shape, [whole or any(-axis <= len(s) and s[axis] != 1 for axis in axes) for s in shapes]


def _row_shapes(description: RowWise, shapes: Sequence[SymbolicShape]) -> tuple[SymbolicShape, ...]:
    """The shape of each output."""
    expression = description.expression
    shape, along = row_extents(shapes, description.axes)
    reduced = {axis + len(shape) for axis in description.axes}
    row = tuple(1 if axis in reduced else size for axis, size in enumerate(shape))
    varies = varying(expression, along)
    return tuple(shape if varies[output] else row for output in expression.outputs)


def _infer_rows(description: RowWise, names: Sequence[str], facts: Sequence[Fact]) -> tuple[Fact, ...]:
    expression = description.expression
    _check_dtypes("rows", expression.inputs, facts)
    shapes = _row_shapes(description, [fact.shape for fact in facts])
    return tuple(dense(expression.dtype(output), s) for output, s in zip(expression.outputs, shapes, strict=True))


def _infer_product(description: MatrixProduct, names: Sequence[str], facts: Sequence[Fact]) -> tuple[Fact, ...]:
    a, b, *extras = facts
    epilogue = description.epilogue
    _check_dtypes("matmul", (float32, float32), (a, b))
    _check_dtypes("matmul", () if epilogue is None else epilogue.inputs[1:], extras)
    if a.rank < 2 or b.rank < 2:
        raise ShapeError("matmul", "operands", "ranks", f"{a.rank} and {b.rank}", "at least 2", "reshape them")
    inner: tuple[Size, Size] = (a.shape[-1], b.shape[-2])
    if dim.are_known(*inner) and inner[0] != inner[1]:
        actual = f"{text(a.shape)} and {text(b.shape)}"
        raise ShapeError("matmul", "operands", "shapes", actual, "equal in K", "transpose one, or check the weights")
    shape = (*dim.broadcast_shapes([a.shape[:-2], b.shape[:-2]]), a.shape[-2], b.shape[-1])
    if dim.broadcast_shapes([shape, *[extra.shape for extra in extras]]) != shape:
        raise ShapeError(
            "matmul", "epilogue operands", "shapes", [str(e) for e in extras], f"within {shape}", "expand a"
        )
    return (dense(a.dtype if epilogue is None else epilogue.dtype(epilogue.outputs[0]), shape),)


def _map_reference(description: Map, arrays: Sequence[Array]) -> tuple[Array, ...]:
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    return tuple(np.broadcast_to(y, shape) for y in values.reference(description.expression, arrays))


def _rows_reference(description: RowWise, arrays: Sequence[Array]) -> tuple[Array, ...]:
    from samebits.kernels.reduce import reference

    made = _row_shapes(description, [x.shape for x in arrays])
    outputs = description.expression.outputs
    if all(0 in shape for shape in made):
        types = [description.expression.dtype(output).numpy for output in outputs]
        return tuple(np.empty(dim.bind_shape(shape, {}), kind) for shape, kind in zip(made, types, strict=True))
    whole_shape, _ = row_extents([x.shape for x in arrays], description.axes)
    extremes = [node.op for node in description.expression.nodes if node.op in ("row_max", "row_min")]
    if extremes and any(whole_shape[axis] == 0 for axis in description.axes):
        nothing = f"{extremes[0]} of nothing has no value"
        raise PlanError("rows", "axes", "extent", 0, "at least 1", nothing)
    rank = len(whole_shape)
    whole = [x.reshape((1,) * (rank - x.ndim) + x.shape) for x in arrays]
    return tuple(reference(description.expression, *whole, axes=tuple(axis + rank for axis in description.axes)))


def _product_reference(description: MatrixProduct, arrays: Sequence[Array]) -> tuple[Array, ...]:
    from samebits.kernels.gemm.reference import reference

    a, b, *extras = arrays
    t = reference(a, b)
    if description.epilogue is None:
        return (t,)
    return tuple(values.reference(description.epilogue, [t, *extras]))


ROWS: tuple[Primitive, ...] = (
    Primitive("map", _infer_map, _map_reference, lower_compute.lower_map),
    Primitive("rows", _infer_rows, _rows_reference, lower_compute.lower_rows),
    Primitive("contract", _infer_product, _product_reference, lower_compute.lower_contract),
)
