"""How the moving primitives become plans: gathers are kernels, a concat is a copy for each operand.

Values that only sizes decide are constants by the time a program is lowered: dims are few, a range too large for it is
refused, and a fill of any size is one element. Start at `lower_gather`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import PlanError, ShapeError
from samebits.kernels import gather
from samebits.kernels.plan import Plan
from samebits.program import copies, room, strided
from samebits.program.graph import Node
from samebits.program.primitive import Lowering

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
    repeats = math.prod(shape[:axis]), extent * inner
    _gathered(lowering, node, repeats, math.prod(lowering.shape(indices)), inner, (extent,), (inner,))


def lower_gather_nd(lowering: Lowering, node: Node) -> None:
    """The last axis of the indices has one column for each leading axis of data."""
    data, indices = node.inputs
    shape, columns = lowering.shape(data), lowering.shape(indices)
    depth = columns[-1]
    strides = strided.dense_strides(shape)[:depth]
    _gathered(lowering, node, (1, 0), math.prod(columns[:-1]), math.prod(shape[depth:]), shape[:depth], strides)


def _gathered(
    lowering: Lowering,
    node: Node,
    repeats: tuple[int, int],
    count: int,
    inner: int,
    extents: Sequence[int],
    strides: Sequence[int],
) -> None:
    """`count` rows of `inner` elements, for each of the `repeats` (how many, and how far apart in data)."""
    target = lowering.define(node.outputs[0])
    if not repeats[0] * count * inner:
        return
    if 0 in extents:
        raise ShapeError("run", f"table of {'+'.join(node.origin)}", "extents", extents, "at least 1", "give one")
    status = lowering.status(node, extents)
    reads = [copies.dense_of(lowering, name) for name in node.inputs]
    asked = (target.dtype, *repeats, count, inner, tuple(extents), tuple(strides), lowering.isa, lowering.threads)
    if target.strided.is_dense:
        lowering.emit(_plan, asked, reads, [status, target])
        return
    made = lowering.temporary(target.dtype, lowering.shape(node.outputs[0]))
    lowering.emit(_plan, asked, reads, [status, made])
    copies.copy(lowering, made, target)


def _plan(
    dtype: DType,
    outer: int,
    outer_stride: int,
    count: int,
    inner: int,
    extents: tuple[int, ...],
    strides: tuple[int, ...],
    isa: Isa,
    threads: int,
) -> Plan:
    """The plan of a gather."""
    return gather.plan(gather.RowGather(dtype, outer, outer_stride, count, inner, extents, strides), isa, threads)
