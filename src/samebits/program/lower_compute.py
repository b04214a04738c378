"""How the computing primitives become plans: layouts in the form that each kernel room takes.

A value with no elements needs no kernel. Start at `lower_map`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from samebits import tuning
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels import elementwise, reduce
from samebits.kernels.expression import Expression
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels
from samebits.kernels.gemm.machine import Machine
from samebits.kernels.gemm.panels import panel_columns
from samebits.kernels.gemm.plan import plan as plan_contraction
from samebits.kernels.plan import SMALL, Plan
from samebits.kernels.walk import AxisSteps
from samebits.program import copies, dim
from samebits.program.graph import Array, Node
from samebits.program.primitive import Lowering, Place

__all__ = ["lower_contract", "lower_map", "lower_rows"]


def lower_map(lowering: Lowering, node: Node) -> None:
    """One elementwise kernel."""
    description: Any = node.description
    inputs = [lowering.plain(name) for name in node.inputs]
    outputs = [lowering.define(name) for name in node.outputs]
    if math.prod(lowering.shape(node.outputs[0])):
        asked = (description.expression, _layouts(inputs), _layouts(outputs), lowering.isa, lowering.threads)
        lowering.emit(_plan_map, asked, inputs, outputs, overwrites=True)


def _plan_map(
    expression: Expression, inputs: tuple[AxisSteps, ...], outputs: tuple[AxisSteps, ...], isa: Isa, threads: int
) -> Plan:
    """The plan of a map; a small one is not shared by threads."""
    shapes = [shape for shape, _ in (*inputs, *outputs)]
    return elementwise.plan(expression, inputs, outputs, isa, _threads(shapes, threads))


def lower_rows(lowering: Lowering, node: Node) -> None:
    """One kernel over rows."""
    description: Any = node.description
    inputs = [lowering.plain(name) for name in node.inputs]
    outputs = [lowering.define(name) for name in node.outputs]
    if not any(math.prod(lowering.shape(name)) for name in node.outputs):
        return
    rank = len(lowering.shape(node.outputs[0]))
    axes = tuple(axis + rank for axis in description.axes)
    given = tuple(lowering.shape(name) for name in node.inputs)
    inputs = _whole_rows(lowering, inputs, rank, axes)
    layouts = (_layouts(inputs), _layouts(outputs))
    asked = (description.expression, *layouts, axes, given, lowering.isa, lowering.threads)
    lowering.emit(_plan_rows, asked, inputs, outputs, overwrites=True)


def _plan_rows(
    expression: Expression,
    inputs: tuple[AxisSteps, ...],
    outputs: tuple[AxisSteps, ...],
    axes: tuple[int, ...],
    given: tuple[tuple[int, ...], ...],
    isa: Isa,
    threads: int,
) -> Plan:
    """The plan of a row expression; a small one, by the shapes that the node was given, is not shared by threads."""
    shapes = [*given, *[shape for shape, _ in outputs]]
    return reduce.plan(expression, inputs, outputs, axes, isa, _threads(shapes, threads))


def _whole_rows(lowering: Lowering, inputs: list[Place], rank: int, axes: tuple[int, ...]) -> list[Place]:
    """The operands of a row expression: one that repeats along some of the reduced axes alone is written out.

    A row is one axis to the kernel, which an operand follows or is the same along.
    """
    padded = [(1,) * (rank - len(place.strided.shape)) + place.strided.shape for place in inputs]
    whole = dim.bind_shape(dim.broadcast_shapes(padded), {})
    extents = {axis: size for axis in axes if (size := whole[axis]) != 1}
    made = []
    for place, shape in zip(inputs, padded, strict=True):
        follows = {shape[axis] == extent for axis, extent in extents.items()}
        if len(follows) > 1:
            wide = tuple(extents.get(axis, size) for axis, size in enumerate(shape))
            place = copies.dense(lowering, replace(place, strided=place.strided.expand(wide)))
        made.append(place)
    return made


def lower_contract(lowering: Lowering, node: Node) -> None:
    """One matrix product; a right operand that is known and has no batches is packed once."""
    description: Any = node.description
    (output,) = node.outputs
    shape = lowering.shape(output)
    k = lowering.shape(node.inputs[0])[-1]
    left = lowering.plain(node.inputs[0])
    extras = [lowering.plain(name) for name in node.inputs[2:]]
    packed = _packed(lowering, node.inputs[1])
    right = lowering.plain(node.inputs[1]) if packed is None else packed[0]
    out = lowering.define(output)
    if not math.prod(shape):
        return
    columns = _layout(right) if packed is None else packed[1]
    types = (left.dtype, right.dtype, out.dtype, *[extra.dtype for extra in extras])
    layouts = (_layout(left), columns, _layout(out), *_layouts(extras))
    machine = tuning.machine(lowering.isa)
    asked = (shape, k, types, layouts, description.epilogue, lowering.isa, lowering.threads, machine)
    lowering.emit(_plan_product, asked, [left, right, *extras], [out])


def _plan_product(
    shape: tuple[int, ...],
    k: int,
    types: tuple[DType, ...],
    layouts: tuple[AxisSteps | int, ...],
    epilogue: Expression | None,
    isa: Isa,
    threads: int,
    machine: Machine,
) -> Plan:
    """The plan of a product of that shape; `types` and `layouts` of a, b (or the width of its panels), out, extras."""
    *batch, m, n = shape
    outer = tuple(batch)
    rows, columns, out, *extras = layouts
    panels = Panels(columns, (0,) * len(batch)) if isinstance(columns, int) else None
    contraction = Contraction(
        m=m,
        n=n,
        k=k,
        a=_matrix(rows, types[0], (*outer, m, k)),
        b=panels or _matrix(columns, types[1], (*outer, k, n)),
        out=_matrix(out, types[2], shape),
        batch=outer,
        epilogue=epilogue,
        sources=tuple(_matrix(extra, dtype, shape) for extra, dtype in zip(extras, types[3:], strict=True)),
    )
    return plan_contraction(contraction, isa, threads if contraction.work >= SMALL["products"] else 1, machine=machine)


def _packed(lowering: Lowering, name: str) -> tuple[Place, int] | None:
    """The panels of a constant matrix, and their width."""
    array = lowering.constant(name)
    if array is None or array.ndim != 2 or not array.size or array.dtype != np.float32:
        return None
    width = panel_columns(lowering.isa, machine=tuning.machine(lowering.isa))
    return lowering.keep((name, width), lambda: _panels(array, width)), width


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


def _matrix(layout: AxisSteps | int, dtype: DType, shape: tuple[int, ...]) -> Matrix:
    """A layout as a matrix of that shape, repeated where its own extent is 1."""
    assert not isinstance(layout, int)  # only b may lie in panels
    own, strides = layout
    padded = (0,) * (len(shape) - len(own)) + tuple(
        0 if extent == 1 else stride for extent, stride in zip(own, strides, strict=True)
    )
    return Matrix(padded[-2], padded[-1], padded[:-2], dtype)


def _layout(place: Place) -> AxisSteps:
    strides = place.strided.strides
    assert strides is not None  # places come from `plain` and `define`
    return place.strided.shape, strides


def _layouts(places: list[Place]) -> tuple[AxisSteps, ...]:
    return tuple(map(_layout, places))


def _threads(shapes: Sequence[tuple[int, ...]], threads: int) -> int:
    return threads if max(map(math.prod, shapes)) >= SMALL["elements"] else 1
