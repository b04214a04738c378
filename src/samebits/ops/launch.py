"""Operations called eagerly: facts of the operands, a plan from the row's own planner, its table, the results.

Start at `launch`. What is cached is the recipe: a plan with its table, for an operation and how its operands lie.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from samebits import tuning
from samebits.dtypes import DType
from samebits.errors import ShapeError
from samebits.layout import Layout
from samebits.operations import registry, strided
from samebits.operations.elementwise import Map, single
from samebits.operations.fact import dense
from samebits.operations.operation import Operation, PlanTarget, Shape, View
from samebits.ops.call import Call
from samebits.ops.memo import Prepared
from samebits.tensor import Tensor

__all__ = ["launch"]


def launch(call: Call, operation: str, attributes: Any, operands: Sequence[Tensor], out: object = None) -> list[Tensor]:
    """The outputs of an operation, as tensors on memory of their own; a view lies in its operand's.

    Args:    out: an array for the only output, as `Call.output` takes it.
    Raises:  ShapeError or DTypeError if the operation does not take these operands; ShapeError if an index is out of
             range; as `Call.output`.
    """
    row = registry.ROWS[operation]
    facts = row.infer(attributes, [dense(x.dtype, x.shape) for x in operands])
    if row.view:
        return [_seen(call, row, attributes, operands[0], facts[0].shape)]
    if not row.plan:
        return [Tensor.from_any(array) for array in row.reference(attributes, [])]
    made = [call.output(fact.shape, fact.dtype, out) for fact in facts]  # type: ignore[arg-type]  # no symbols
    if any(x.size for x in made):
        _run(call, row, attributes, list(operands), made)
    return made


def _run(call: Call, row: Operation, attributes: Any, operands: list[Tensor], made: list[Tensor]) -> None:
    """Run the operation's plan, on dense copies where it does not take operands as they lie."""
    if row.takes:
        wanted = row.takes(attributes, _views([*operands, *made]))
        operands = [x if s is None else _copied(call, x, s) for x, s in zip(operands, wanted, strict=True)]
    target = PlanTarget(call.isa, call.threads, tuning.machine(call.isa))
    prepared = _recipe(row.name, attributes, _views([*operands, *made]), target)
    if not row.extents:
        call.run(prepared, *operands, *made)
        return
    extents = row.extents(attributes, [x.shape for x in operands])
    if 0 in extents:
        raise ShapeError(call.name, "x", "extents", extents, "at least 1", "give one")
    status = np.zeros(2, np.int64)
    call.run(prepared, *operands, Tensor.from_any(status), *made)
    if status[0]:
        expected = "in " + " and ".join(f"[{-extent}, {extent})" for extent in extents)
        raise ShapeError(call.name, "an index", "", int(status[1]), expected, "give indices that exist")


@functools.lru_cache(maxsize=4096)
def _recipe(operation: str, attributes: Any, views: tuple[View, ...], target: PlanTarget) -> Prepared:
    """The plan with its table."""
    planner = registry.ROWS[operation].plan
    assert planner is not None  # asked for rows with one alone
    return Prepared(planner(attributes, views, target))


def _views(tensors: Sequence[Tensor]) -> tuple[View, ...]:
    return tuple([(x.dtype, x.shape, x.layout.strides) for x in tensors])


def _copied(call: Call, x: Tensor, shape: Shape) -> Tensor:
    """A dense copy of x broadcast to a shape."""
    return launch(call, "map", Map(single("copy", x.dtype)), [x.broadcast_to(shape)])[0]


def _seen(call: Call, row: Operation, attributes: Any, x: Tensor, shape: Any) -> Tensor:
    """x seen otherwise, or a dense copy of it."""
    assert row.view is not None  # the caller's choice
    found = row.view(attributes, strided.of_strides(x.shape, x.layout.strides), shape)
    if found is None or found.strides is None:
        x = _copied(call, x, x.shape)
        found = row.view(attributes, strided.dense(x.shape), shape)
    assert found is not None and found.strides is not None  # a dense value has every view
    return _placed(x, shape, found.offset, found.strides, x.dtype)


def _placed(x: Tensor, shape: Shape, offset: int, strides: Shape, dtype: DType) -> Tensor:
    width = x.layout.pitch_bits
    steps = tuple(step * width for step in strides)
    layout = Layout(shape, steps, x.layout.offset_bits + offset * width, dtype.width_bits, x.layout.storage)
    return Tensor(x.buffer, layout, dtype)
