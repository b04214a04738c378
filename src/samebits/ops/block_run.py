"""Plans of quantisation run on tensors: start at `quantised`, then `values`.

Kernels take lines along the axis of the blocks; so an axis of -2 is a transposed view of every operand.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import numpy as np

from samebits.codegen.isa import Isa
from samebits.dtypes import DType, float32
from samebits.errors import PlanError, ShapeError
from samebits.kernels.plan import sized
from samebits.kernels.quantize import blocks, plan, values_plan
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat
from samebits.kernels.walk import AxisSteps
from samebits.layout import Shape
from samebits.ops import block_parts
from samebits.ops.move import contiguous, copy
from samebits.ops.recipe import Prepared
from samebits.tensor import Tensor

__all__ = ["quantised", "values"]

_ORDER = ("elements", "scales", "zero_points", "global_scale")


def quantised(
    x: Tensor,
    row: BlockFormat,
    way: Dialect,
    axis: int,
    whole: Tensor | None,
    *,
    line: bool,
    isa: Isa,
    threads: int,
    into: Mapping[str, Tensor] | None = None,
    seed: int | None = None,
) -> dict[str, Tensor] | None:
    """The parts of x, on memory of their own or that of `into`; None where the format has no kernel.

    Args:    whole: the global scale, if it is given.   line: whether each line has its own.
             seed: of stochastic rounding; None to nearest.
    """
    lines = _along(x, axis)
    steps = (lines.shape, lines.layout.strides)
    line = line or (whole is not None and whole.ndim > 0)
    order = None if seed is None else _order(x.shape, axis)
    facts = row, way, x.dtype, steps, isa, sized(threads, x.size), whole is not None, line, order
    prepared = _quantising(*facts)
    if prepared is None:
        return None
    of_scales = blocks.scales_shape(row, x.shape, axis)
    shapes = {"elements": (x.shape, row.element), "scales": (of_scales, row.scale)}
    if row.zero_point is not None:
        shapes["zero_points"] = of_scales, row.zero_point
    parts = {name: block_parts.empty(*facts, axis) for name, facts in shapes.items()}
    for name, target in (into or {}).items():
        if name in parts and target.layout == parts[name].layout:
            parts[name] = target
    operands = [x, parts["elements"], parts["scales"]]
    if row.global_scale is not None:
        if whole is None:
            whole = block_parts.empty(block_parts.line_shape(x.shape, axis) if line else (), float32, -1)
        parts["global_scale"] = whole
        operands.append(contiguous(_along(whole, axis)) if whole.ndim else whole)
        _check_whole(whole, into)
    if row.zero_point is not None:
        operands.append(parts["zero_points"])
    if seed is not None:
        operands.append(Tensor.from_any(np.asarray(seed, np.uint64)))
    prepared.run([_address(part) for part in operands])
    for name, target in (into or {}).items():
        if target is not parts[name]:
            copy(parts[name], out=target)
    return parts if into is None else dict(into)


def _check_whole(whole: Tensor, into: Mapping[str, Tensor] | None) -> None:
    """Raise ShapeError unless what takes the global scale has its shape."""
    if into is not None and into["global_scale"].shape != whole.shape:
        actual, expected = into["global_scale"].shape, f"{whole.shape} for such scales"
        raise ShapeError("quantize", "out", "shape of global_scale", actual, expected, "leave out= away")


def values(
    parts: Mapping[str, Tensor],
    row: BlockFormat,
    divides: bool,
    axis: int,
    out: Tensor,
    *,
    isa: Isa,
    threads: int,
) -> bool:
    """Write the numbers that the parts stand for to `out`; False where there is no kernel for parts that lie so."""
    lying = {name: _lines(parts[name], axis, name == "elements") for name in _ORDER if name in parts}
    lying["out"] = _along(out, axis)
    shape = lying["elements"].shape
    strides = tuple((name, _strides(name, part, len(shape))) for name, part in lying.items())
    prepared = _dequantising(row, shape, strides, out.dtype, isa, sized(threads, out.size), divides)
    if prepared is None:
        return False
    prepared.run([_address(part) for part in lying.values()])
    return True


@functools.lru_cache(maxsize=4096)
def _quantising(
    row: BlockFormat,
    way: Dialect,
    dtype: DType,
    x: AxisSteps,
    isa: Isa,
    threads: int,
    given: bool,
    line: bool,
    order: Shape | None,
) -> Prepared | None:
    """The plan; None where there is no kernel. Any other refusal of the planner is a defect, and is raised."""
    try:
        plan.check_kernel(row, x)
    except PlanError:
        return None
    return Prepared(plan.plan(row, way, dtype, x, isa, threads, given=given, line=line, order=order))


@functools.lru_cache(maxsize=4096)
def _dequantising(
    row: BlockFormat,
    shape: Shape,
    strides: tuple[tuple[str, Shape], ...],
    dtype: DType,
    isa: Isa,
    threads: int,
    divides: bool,
) -> Prepared | None:
    """The plan; None where there is no kernel. Any other refusal of the planner is a defect, and is raised."""
    try:
        values_plan.check_kernel(row, shape, dict(strides)["elements"])
    except PlanError:
        return None
    return Prepared(values_plan.plan(row, shape, strides, dtype, isa, threads, divides=divides))


def _order(shape: Shape, axis: int) -> Shape:
    """How far apart row-major indices are along each axis, the axis of the blocks last."""
    found = plan.dense(shape)
    return found if axis == -1 or len(shape) < 2 else (*found[:-2], found[-1], found[-2])


def _along(x: Tensor, axis: int) -> Tensor:
    """x with the axis of the blocks last."""
    return x if axis == -1 or x.ndim < 2 else x.transpose()


def _lines(part: Tensor, axis: int, packed: bool) -> Tensor:
    """A part with the axis of the blocks last, dense along it from a byte on: a copy where it does not lie so."""
    found = _along(part, axis)
    layout = found.layout
    if not packed:
        dense = not found.ndim or found.shape[-1] <= 1 or layout.strides_bits[-1] == part.dtype.width_bits
        return found if dense else copy(found)
    width = part.dtype.width_bits
    starts = [s for n, s in zip(found.shape[:-1], layout.strides_bits[:-1], strict=True) if n > 1]
    dense = found.shape[-1] <= 1 or layout.strides_bits[-1] == width
    if layout.pitch_bits == width and dense and not any(s % 8 for s in (*starts, layout.offset_bits)):
        return found
    made: Tensor = copy(found, storage="packed" if width < 8 else None)
    return made


def _strides(name: str, part: Tensor, rank: int) -> Shape:
    """Strides in what `values_plan.plan` counts; those of an axis of one element do not matter, and are 0."""
    if not part.ndim:
        return (0,) * rank
    found = part.layout.strides_bits if name == "elements" else part.layout.strides
    if name in ("elements", "out"):
        return tuple(found)
    return tuple([0 if n == 1 else s for n, s in zip(part.shape, found, strict=True)])


def _address(part: Tensor) -> int:
    """Where the first element of a part begins, from a byte on."""
    return part.buffer.address + part.layout.offset_bits // 8 if math.prod(part.shape) else part.buffer.address
