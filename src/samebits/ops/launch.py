"""Operations called eagerly: facts of the operands, a plan from the row's own planner, its table, the results.

Start at `launch`. What is cached is the recipe: a plan with its table, for an operation and how its operands lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from samebits import tuning
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import LayoutError, ShapeError
from samebits.kinds import narrow_storage
from samebits.layout import Layout, Storage
from samebits.layout.recorded import dense as dense_layout
from samebits.native.table import RESULT
from samebits.operations import dim, packing, registry, strided
from samebits.operations.elementwise import Map, single
from samebits.operations.fact import dense
from samebits.operations.lying import Lying
from samebits.operations.operation import Operation, PlanTarget, Shape, outside
from samebits.ops.call import Call
from samebits.ops.recipe import CallOperand, Prepared
from samebits.tape import cached
from samebits.tensor import Tensor

__all__ = ["launch"]


class Recipe(NamedTuple):
    """How an operation runs on operands that lie so.

    Attributes:
        results: The shape and element format of each output.
        copies: For each operand the shape that it is written out to first, if any; None where all lie well.
        prepared: A plan's table; None where nothing has to run.
        extents: What indices must be smaller than.
        has_status: Whether the plan says what it refuses.
        has_packed: Whether an operand or an output is packed within bytes.
    """

    results: tuple[tuple[Shape, DType], ...]
    copies: tuple[Shape | None, ...] | None
    prepared: Prepared | None
    extents: Shape | None
    has_status: bool
    has_packed: bool


def launch(
    call: Call, operation: str, attributes: Any, operands: Sequence[CallOperand], out: object = None,
    is_checked: bool = False, before: Sequence[CallOperand] = (),
) -> list[CallOperand]:  # fmt: skip
    """The outputs of an operation, on memory of their own; a view lies in its operand's.

    Args:    out: an array for the only output, or for the last, as `Call.output` takes it.
             before: what takes the outputs before it.
             is_checked: whether the caller has looked at what the operation could refuse, of which nobody asks then, so
             that the call can be remembered.
    Raises:  ShapeError or DTypeError if the operation does not take these operands; ShapeError if an index is out of
             range; as `Call.output`.
    """
    facts, target = tuple([x.lying for x in operands]), None
    if out is not None:
        target = call.output(*_results(operation, attributes, facts)[len(before)], out)
    lies = None if target is None else tuple([x.lying for x in (*before, target)])
    storage = narrow_storage(call.kind)
    try:
        recipe = _recipe(operation, attributes, facts, lies, storage, call.isa, call.threads)
    except (LayoutError, ShapeError) as error:
        raise error.renamed(call.name, error.operand) from None
    row = registry.ROWS[operation]
    if row.view:
        return [_seen(call, row, attributes, operands[0], recipe.results[0][0])]
    if not row.plan:
        return [call.own(Tensor.from_any(array)) for array in row.reference(attributes, [])]
    made = [*before, target] if target is not None else [_new(call, *result) for result in recipe.results]
    if recipe.prepared is not None:
        if recipe.copies is not None:
            pairs = zip(operands, recipe.copies, strict=True)
            operands = [x if shape is None else call.own(_copied(call, x, shape)) for x, shape in pairs]
        _run(call, row, attributes, recipe, operands, made, is_checked)
    return made


def _run(
    call: Call,
    row: Operation,
    attributes: Any,
    recipe: Recipe,
    operands: Sequence[CallOperand],
    made: Sequence[CallOperand],
    is_checked: bool,
) -> None:
    """Run a recipe; of what is packed plans take the bytes.

    Raises:  what the operation refuses.
    """
    assert recipe.prepared is not None  # the caller's choice
    shapes = [x.shape for x in operands]
    if recipe.has_packed:
        operands, made = [x.in_bytes() for x in operands], [x.in_bytes() for x in made]
    if not recipe.has_status:
        call.run(recipe.prepared, *operands, *made)
        return
    status = np.zeros(2, np.int64)
    place = call.constant(status) if is_checked else call.own(Tensor.from_any(status))
    call.run(recipe.prepared, *operands, place, *made)
    if is_checked or not status[0]:
        return
    call.written()  # up to what it refuses, or all of it
    if row.refuses:
        raise row.refuses(attributes, shapes[0], int(status[1])).renamed(call.name, "x")
    raise outside(call.name, "", (int(status[0]), int(status[1])), recipe.extents or (), shapes[1])


@cached(4096)
def _recipe(
    operation: str, attributes: Any, operands: tuple[Lying, ...], out: tuple[Lying, ...] | None, storage: Storage,
    isa: Isa, threads: int,
) -> Recipe:  # fmt: skip
    """The recipe for operands that lie so, and outputs that lie as given, or are dense.

    Args:    storage: that of new elements of fewer than 8 bits.
    """
    row, results = registry.ROWS[operation], _results(operation, attributes, operands)
    if not row.plan or not row.runs([x.shape for x in operands], [shape for shape, _ in results]):
        return Recipe(results, None, None, None, False, False)
    views = [packing.view(*x) for x in operands]
    extents = row.extents(attributes, [x.shape for x in operands]) if row.extents else None
    if extents and 0 in extents:
        remedy = "give elements to index, or no indices"
        raise ShapeError(operation, "x", "extents", extents, "at least 1", remedy)
    copies = tuple(row.takes(attributes, [*map(packing.unpacked, views)])) if row.takes else ()
    for number, shape in enumerate(copies):
        if shape is not None:
            dtype = operands[number].dtype
            views[number] = packing.view(dtype, _dense(shape, dtype, storage))
    made = [Lying(dtype, _dense(shape, dtype, storage)) for shape, dtype in results] if out is None else [*out]
    views += [packing.view(*x) for x in made]
    plan = packing.plan(
        operation, attributes, tuple(views), len(results), PlanTarget(isa, threads, tuning.machine(isa))
    )
    has_packed = any(len(view) == 4 for view in views)
    return Recipe(results, copies if any(copies) else None, Prepared(plan), extents, row.has_status, has_packed)


def _dense(shape: Shape, dtype: DType, storage: Storage) -> Layout:
    """The layout of a new value."""
    return dense_layout(shape, width_bits=dtype.width_bits, storage=storage)


def _new(call: Call, shape: Shape, dtype: DType) -> CallOperand:
    """Memory for an output."""
    if dtype.width_bits >= 8:
        return call.output(shape, dtype)
    return CallOperand(Tensor.empty(shape, dtype, storage=narrow_storage(call.kind)), RESULT)


def _results(operation: str, attributes: Any, operands: tuple[Lying, ...]) -> tuple[tuple[Shape, DType], ...]:
    """The shape and element format of each output."""
    facts = registry.ROWS[operation].infer(attributes, [dense(x.dtype, x.shape) for x in operands])
    return tuple([(dim.bind_shape(fact.shape, {}), fact.dtype) for fact in facts])


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
