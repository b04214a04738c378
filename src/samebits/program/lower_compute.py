"""How the computing primitives become plans: layouts in the form that each kernel room takes.

A value with no elements needs no kernel. Start at `lower_map`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from samebits import tuning
from samebits.kernels import elementwise, reduce
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels
from samebits.kernels.gemm.panels import panel_columns
from samebits.kernels.gemm.plan import plan as plan_contraction
from samebits.kernels.plan import SMALL, Plan
from samebits.kernels.walk import AxisSteps
from samebits.program import copies
from samebits.program.graph import Array, Node
from samebits.program.primitive import Lowering, Place

__all__ = ["lower_contract", "lower_map", "lower_rows"]


def lower_map(lowering: Lowering, node: Node) -> None:
    """One elementwise kernel."""
    description: Any = node.description
    inputs = [lowering.plain(name) for name in node.inputs]
    outputs = [lowering.define(name) for name in node.outputs]
    if math.prod(lowering.shape(node.outputs[0])):
        plan = elementwise.plan(
            description.expression, _layouts(inputs), _layouts(outputs), lowering.isa, _threads(lowering, node)
        )
        lowering.emit(plan, [*inputs, *outputs])


def lower_rows(lowering: Lowering, node: Node) -> None:
    """One kernel over rows."""
    description: Any = node.description
    inputs = [lowering.plain(name) for name in node.inputs]
    outputs = [lowering.define(name) for name in node.outputs]
    if not any(math.prod(lowering.shape(name)) for name in node.outputs):
        return
    rank = len(lowering.shape(node.outputs[0]))
    axes = tuple(axis + rank for axis in description.axes)
    inputs = _whole_rows(lowering, inputs, rank, axes)
    plan = reduce.plan(
        description.expression,
        _layouts(inputs),
        _layouts(outputs),
        axes,
        lowering.isa,
        _threads(lowering, node),
    )
    lowering.emit(plan, [*inputs, *outputs])


def _whole_rows(lowering: Lowering, inputs: list[Place], rank: int, axes: tuple[int, ...]) -> list[Place]:
    """The operands of a row expression: one that repeats along some of the reduced axes alone is written out.

    A row is one axis to the kernel, which an operand follows or is the same along.
    """
    padded = [(1,) * (rank - len(place.strided.shape)) + place.strided.shape for place in inputs]
    extents = {axis: size for axis in axes if (size := np.broadcast_shapes(*padded)[axis]) != 1}
    made = []
    for place, shape in zip(inputs, padded, strict=True):
        follows = {shape[axis] == extent for axis, extent in extents.items()}
        if len(follows) > 1:
            whole = tuple(extents.get(axis, size) for axis, size in enumerate(shape))
            place = copies.dense(lowering, replace(place, strided=place.strided.expand(whole)))
        made.append(place)
    return made


def lower_contract(lowering: Lowering, node: Node) -> None:
    """One matrix product; a right operand that is known and has no batches is packed once."""
    description: Any = node.description
    (output,) = node.outputs
    *batch, m, n = lowering.shape(output)
    k = lowering.shape(node.inputs[0])[-1]
    left = lowering.plain(node.inputs[0])
    extras = [lowering.plain(name) for name in node.inputs[2:]]
    packed = _packed(lowering, node.inputs[1], len(batch))
    right = lowering.plain(node.inputs[1]) if packed is None else packed[0]
    out = lowering.define(output)
    if not math.prod(lowering.shape(output)):
        return
    contraction = Contraction(
        m=m,
        n=n,
        k=k,
        a=_matrix(left, (*batch, m, k)),
        b=_matrix(right, (*batch, k, n)) if packed is None else packed[1],
        out=_matrix(out, (*batch, m, n)),
        batch=tuple(batch),
        epilogue=description.epilogue,
        sources=tuple(_matrix(extra, (*batch, m, n)) for extra in extras),
    )
    threads = lowering.threads if contraction.work >= SMALL["products"] else 1
    tuned = tuning.rows(lowering.isa)
    plan: Plan = plan_contraction(contraction, lowering.isa, threads, tuned=tuned)
    lowering.emit(plan, [left, right, *extras, out])


def _packed(lowering: Lowering, name: str, batches: int) -> tuple[Place, Panels] | None:
    """The panels of a constant matrix."""
    array = lowering.constant(name)
    if array is None or array.ndim != 2 or not array.size or array.dtype != np.float32:
        return None
    width = panel_columns(lowering.isa, tuned=tuning.rows(lowering.isa))
    place = lowering.keep((name, width), lambda: _panels(array, width))
    return place, Panels(width, (0,) * batches)


def _panels(b: Array, width: int) -> Array:
    """[panel][k][width], missing columns zero."""
    k, n = b.shape
    count = -(-n // width)
    panels = np.zeros((count, k, width), np.float32)
    whole = n // width
    panels[:whole] = b[:, : whole * width].reshape(k, whole, width).transpose(1, 0, 2)
    if whole < count:
        panels[whole, :, : n - whole * width] = b[:, whole * width :]
    return panels


def _matrix(place: Place, shape: tuple[int, ...]) -> Matrix:
    """A place as a matrix of that shape, repeated where its own extent is 1."""
    strides = place.strided.strides
    assert strides is not None  # places come from `plain` and `define`
    own = place.strided.shape
    padded = (0,) * (len(shape) - len(own)) + tuple(
        0 if extent == 1 else stride for extent, stride in zip(own, strides, strict=True)
    )
    return Matrix(padded[-2], padded[-1], padded[:-2], place.dtype)


def _layouts(places: list[Place]) -> tuple[AxisSteps, ...]:
    return tuple((place.strided.shape, _strides(place)) for place in places)


def _strides(place: Place) -> tuple[int, ...]:
    strides = place.strided.strides
    assert strides is not None  # places come from `plain` and `define`
    return strides


def _threads(lowering: Lowering, node: Node) -> int:
    elements = max(math.prod(lowering.shape(name)) for name in (*node.inputs, *node.outputs))
    return lowering.threads if elements >= SMALL["elements"] else 1
