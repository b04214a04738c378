"""How the moving primitives become plans: gathers are kernels, a concat is a copy for each operand.

Values that only sizes decide are constants by the time a program is lowered: dims are few, a range too large for it is
refused, and a fill of any size is one element. Start at `lower_gather`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from samebits.errors import PlanError, ShapeError
from samebits.kernels import gather
from samebits.program import copies, room, strided
from samebits.program.graph import Node
from samebits.program.primitive import Lowering, Place

__all__ = ["lower_concat", "lower_constant", "lower_fill", "lower_gather", "lower_gather_nd", "lower_range"]


def lower_constant(lowering: Lowering, node: Node) -> None:
    """Never: its value follows from sizes alone and is small."""
    raise PlanError("prepare", node.primitive, "", "left over", "a constant by now", "report this")


def lower_range(lowering: Lowering, node: Node) -> None:
    """Never: it is computed before the run, or too large for that."""
    (count,) = lowering.shape(node.outputs[0])
    expected = f"within the {room.BYTES >> 20} MiB of what is computed before a run"
    raise ShapeError("range", "its result", "", f"{count} int64", expected, "give smaller inputs")


def lower_fill(lowering: Lowering, node: Node) -> None:
    """One element, repeated by strides of 0."""
    description: Any = node.description
    element = lowering.keep(("fill", description.code, description.dtype.name), description.element)
    shape = lowering.shape(node.outputs[0])
    lowering.alias(node.outputs[0], replace(element, strided=element.strided.expand(shape)))


def lower_concat(lowering: Lowering, node: Node) -> None:
    """Each operand is copied to its part of the output."""
    (output,) = node.outputs
    target = lowering.define(output)
    shape = lowering.shape(output)
    axis = getattr(node.description, "axis", 0)
    start = 0
    for name in node.inputs:
        part = lowering.shape(name)
        starts = tuple(start if i == axis else 0 for i in range(len(shape)))
        where = target.strided.slice(starts, part, (1,) * len(shape))
        assert where is not None  # a value that is defined has one stride an axis
        copies.copy(lowering, lowering.place(name), replace(target, strided=where))
        start += part[axis]


def lower_gather(lowering: Lowering, node: Node) -> None:
    """data and indices dense; the axes before the gathered one are `outer`, those after it `inner`."""
    data, indices = node.inputs
    shape, axis = lowering.shape(data), getattr(node.description, "axis", 0)
    inner = math.prod(shape[axis + 1 :])
    extent = shape[axis]
    picked = gather.RowGather(
        dtype=lowering.place(data).dtype,
        outer=math.prod(shape[:axis]),
        outer_stride=extent * inner,
        count=math.prod(lowering.shape(indices)),
        inner=inner,
        extents=(extent,),
        strides=(inner,),
    )
    _emit(lowering, node, picked)


def lower_gather_nd(lowering: Lowering, node: Node) -> None:
    """The last axis of the indices has one column for each leading axis of data."""
    data, indices = node.inputs
    shape, columns = lowering.shape(data), lowering.shape(indices)
    depth = columns[-1]
    picked = gather.RowGather(
        dtype=lowering.place(data).dtype,
        outer=1,
        outer_stride=0,
        count=math.prod(columns[:-1]),
        inner=math.prod(shape[depth:]),
        extents=shape[:depth],
        strides=strided.dense_strides(shape)[:depth],
    )
    _emit(lowering, node, picked)


def _emit(lowering: Lowering, node: Node, picked: gather.RowGather) -> None:
    data, indices = node.inputs
    target = lowering.define(node.outputs[0])
    if not picked.outer * picked.count * picked.inner:
        return
    if 0 in picked.extents:
        raise ShapeError(
            "run", f"table of {'+'.join(node.origin)}", "extents", picked.extents, "at least 1", "give one"
        )
    limits = " and ".join(f"[{-extent}, {extent})" for extent in picked.extents)
    status = lowering.status(node, f"in {limits}")
    places: list[Place] = [copies.dense_of(lowering, data), copies.dense_of(lowering, indices), status]
    if target.strided.is_dense:
        lowering.emit(gather.plan(picked, lowering.isa, lowering.threads), [*places, target])
        return
    made = lowering.temporary(target.dtype, lowering.shape(node.outputs[0]))
    lowering.emit(gather.plan(picked, lowering.isa, lowering.threads), [*places, made])
    copies.copy(lowering, made, target)
