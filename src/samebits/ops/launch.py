"""Operations called eagerly: facts of the operands, a plan from the row's own planner, its table, the results.

Start at `launch`. What is cached is the recipe: a plan with its table, for an operation and how its operands lie.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from samebits import tuning
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import ShapeError
from samebits.layout import Layout
from samebits.operations import dim, registry, strided
from samebits.operations.elementwise import Map, single
from samebits.operations.fact import dense
from samebits.operations.lying import Lying
from samebits.operations.operation import Operation, PlanTarget, Shape
from samebits.operations.strided import dense_strides
from samebits.ops.call import Call
from samebits.ops.recipe import CallOperand, Prepared
from samebits.tensor import Tensor

__all__ = ["launch"]


class Recipe(NamedTuple):
    """How an operation runs on operands that lie so.

    Attributes:
        results: The shape and element format of each output.
        copies: For each operand the shape that it is written out to first, if any; None where all lie well.
        prepared: A plan's table; None where nothing has to run.
        extents: What indices must be smaller than.
    """

    results: tuple[tuple[Shape, DType], ...]
    copies: tuple[Shape | None, ...] | None
    prepared: Prepared | None
    extents: Shape | None


def launch(
    call: Call, operation: str, attributes: Any, operands: Sequence[CallOperand], out: object = None
) -> list[CallOperand]:
    """The outputs of an operation, on memory of their own; a view lies in its operand's.

    Args:    out: an array for the only output, as `Call.output` takes it.
    Raises:  ShapeError or DTypeError if the operation does not take these operands; ShapeError if an index is out of
             range; as `Call.output`.
    """
    facts, target = tuple([x.lying for x in operands]), None
    if out is not None:
        ((shape, dtype),) = _results(operation, attributes, facts)
        target = call.output(shape, dtype, out)
    recipe = _recipe(operation, attributes, facts, None if target is None else target.lying, call.isa, call.threads)
    row = registry.ROWS[operation]
    if row.view:
        return [_seen(call, row, attributes, operands[0], recipe.results[0][0])]
    if not row.plan:
        return [call.own(Tensor.from_any(array)) for array in row.reference(attributes, [])]
    made = [target] if target is not None else [call.output(shape, dtype) for shape, dtype in recipe.results]
    if recipe.prepared is not None:
        if recipe.copies is not None:
            pairs = zip(operands, recipe.copies, strict=True)
            operands = [x if shape is None else call.own(_copied(call, x, shape)) for x, shape in pairs]
        if recipe.extents is None:
            call.run(recipe.prepared, *operands, *made)
        else:
            _run_indexed(call, recipe.prepared, recipe.extents, operands, made)
    return made


@functools.lru_cache(maxsize=4096)
def _recipe(
    operation: str, attributes: Any, operands: tuple[Lying, ...], out: Lying | None, isa: Isa, threads: int
) -> Recipe:
    """The recipe for operands that lie so, and an output that is dense or lies as given."""
    row, results = registry.ROWS[operation], _results(operation, attributes, operands)
    if not row.plan or not any(math.prod(shape) for shape, _ in results):
        return Recipe(results, None, None, None)
    views = [(x.dtype, x.shape, x.layout.strides) for x in operands]
    extents = row.extents(attributes, [shape for _, shape, _ in views]) if row.extents else None
    if extents and 0 in extents:
        raise ShapeError(operation, "x", "extents", extents, "at least 1", "give one")
    copies = tuple(row.takes(attributes, views)) if row.takes else ()
    for number, shape in enumerate(copies):
        if shape is not None:
            views[number] = operands[number].dtype, shape, dense_strides(shape)
    views += [(dtype, shape, dense_strides(shape) if out is None else out.layout.strides) for shape, dtype in results]
    plan = row.plan(attributes, tuple(views), PlanTarget(isa, threads, tuning.machine(isa)))
    return Recipe(results, copies if any(copies) else None, Prepared(plan), extents)


def _results(operation: str, attributes: Any, operands: tuple[Lying, ...]) -> tuple[tuple[Shape, DType], ...]:
    """The shape and element format of each output."""
    facts = registry.ROWS[operation].infer(attributes, [dense(x.dtype, x.shape) for x in operands])
    return tuple([(dim.bind_shape(fact.shape, {}), fact.dtype) for fact in facts])


def _run_indexed(
    call: Call, prepared: Prepared, extents: Shape, operands: Sequence[CallOperand], made: Sequence[CallOperand]
) -> None:
    """Run a plan that says whether each index was smaller than the extents.

    Raises:  ShapeError if one was not.
    """
    status = np.zeros(2, np.int64)
    call.run(prepared, *operands, call.own(Tensor.from_any(status)), *made)
    if status[0]:
        expected = "in " + " and ".join(f"[{-extent}, {extent})" for extent in extents)
        raise ShapeError(call.name, "an index", "", int(status[1]), expected, "give indices that exist")


def _copied(call: Call, x: CallOperand, shape: Shape) -> Tensor:
    """A dense copy of x broadcast to a shape."""
    seen = x.seen(x.tensor.broadcast_to(shape))
    return launch(call, "map", Map(single("copy", x.dtype)), [seen])[0].tensor


def _seen(call: Call, row: Operation, attributes: Any, x: CallOperand, shape: Any) -> CallOperand:
    """x seen otherwise, or a dense copy of it."""
    assert row.view is not None  # the caller's choice
    found = row.view(attributes, strided.of_strides(x.shape, x.tensor.layout.strides), shape)
    if found is None or found.strides is None:
        x = call.own(_copied(call, x, x.shape))
        found = row.view(attributes, strided.dense(x.shape), shape)
    assert found is not None and found.strides is not None  # a dense value has every view
    own = x.tensor.layout
    width, offset = own.pitch_bits, own.offset_bits + found.offset * own.pitch_bits
    layout = Layout(shape, tuple([step * width for step in found.strides]), offset, own.width_bits, own.storage)
    return x.seen(Tensor(x.tensor.buffer, layout, x.dtype))
