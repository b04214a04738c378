"""Operations on operands that are packed within bytes: copies of an element a byte are what rows take and make.

No row knows of packed elements: their views count elements that have bytes of their own. Start at `plan`, which is a
row's plan between steps that unpack its operands and pack its results, or on whole bytes where it picks rows of such;
`moved` is a copy alone.
"""

from __future__ import annotations

import math
from typing import Any, cast

from samebits.dtypes import DType, uint8
from samebits.errors import LayoutError
from samebits.frozen import replace
from samebits.kernels import spread
from samebits.kernels.plan import Operand, Plan
from samebits.layout import Layout
from samebits.operations import registry
from samebits.operations.operation import Operation, PlanTarget, Shape, View, shared_by
from samebits.operations.strided import dense_strides

__all__ = ["AnyView", "PackedView", "moved", "plan", "unpacked", "view"]

PackedView = tuple[DType, Shape, Shape, int]
"""How packed elements lie: their format, extents, strides in bits, and the bit of the operand's first byte at which
the first element begins."""
AnyView = View | PackedView


def view(dtype: DType, layout: Layout) -> AnyView:
    """How an operand of that layout lies from the byte on in which its first element begins.

    Raises:  LayoutError if elements of whole bytes are not a whole number of elements apart.
    """
    if spread.is_packed(layout):
        return dtype, layout.shape, layout.strides_bits, layout.offset_bits % 8
    if any(step % layout.pitch_bits for step in layout.strides_bits):
        expected = f"multiples of the {layout.pitch_bits} bits of {dtype.name}"
        remedy = "copy it with samebits.copy"
        raise LayoutError("packing.view", "an operand's layout", "strides_bits", layout.strides_bits, expected, remedy)
    return dtype, layout.shape, layout.strides


def plan(operation: str, attributes: Any, views: tuple[AnyView, ...], outputs: int, target: PlanTarget) -> Plan:
    """The plan of a row on operands of any lie: what is packed is unpacked before it, or made and packed after it.

    Args:    views: those of the inputs, then of so many outputs.
    """
    row = registry.ROWS[operation]
    assert row.plan is not None  # a view needs none
    if 4 not in map(len, views):
        return row.plan(attributes, cast("tuple[View, ...]", views), target)
    made = _packed_as_made(row, attributes, views, target) if row.packs and outputs == 1 else None
    if made is not None:
        return made
    picked = _picked(row, attributes, views, target) if row.picks else None
    if picked is not None:
        return picked
    read = _read(row, attributes, views, outputs, target) if row.reads else None
    if read is not None:
        return read
    made = row.plan(attributes, tuple([unpacked(x) for x in views]), target)
    lies = [_packed(x) for x in views]
    if row.has_status:
        lies.insert(len(lies) - outputs, None)  # what kernels set where they refuse an element
    return spread.on_copies(made, lies, outputs)


def _picked(row: Operation, attributes: Any, views: tuple[AnyView, ...], target: PlanTarget) -> Plan | None:
    """The plan of an operation that picks rows of packed elements, as rows of bytes; None where they are not such."""
    data, ids, out = views
    dtype, shape, width = data[0], data[1], data[0].width_bits
    assert row.plan is not None  # as in `plan`
    assert row.picks is not None
    leading = row.picks(attributes, ids[1])
    size_bits = math.prod(shape[leading:]) * width
    if size_bits % 8 or _layout(data) != Layout.dense(shape, width_bits=width):
        return None
    picked = *shape[:leading], size_bits // 8
    made = *out[1][: len(out[1]) - len(shape) + leading], size_bits // 8
    in_bytes = (uint8, picked, dense_strides(picked)), ids[:3], (uint8, made, dense_strides(made))
    plan = row.plan(attributes, in_bytes, target)
    plan = replace(plan, facts=(*plan.facts, ("data", f"{dtype.name} within bytes, picked by {size_bits // 8} bytes")))
    dense = Layout.dense(out[1], width_bits=width)
    if len(out) == 4 and _layout(out) == dense:
        return plan
    last = moved((view(dtype, dense), out), target)
    return spread.writing(plan, len(plan.operands) - 1, last, dense.required_bytes)


def _packed_as_made(row: Operation, attributes: Any, views: tuple[AnyView, ...], target: PlanTarget) -> Plan | None:
    """The plan of an operation that packs its result as it makes it; None where operands lie otherwise."""
    assert row.packs is not None  # the caller's choice
    *inputs, out = views
    if any(len(view) == 4 for view in inputs) or _layout(out) != Layout.dense(out[1], width_bits=out[0].width_bits):
        return None
    counted = out[0], out[1], dense_strides(out[1])
    return row.packs(attributes, cast("tuple[View, ...]", (*inputs, counted)), target)


def _read(row: Operation, attributes: Any, views: tuple[AnyView, ...], outputs: int, target: PlanTarget) -> Plan | None:
    """The plan of an operation that reads four bits as they lie; None where they lie otherwise."""
    assert row.reads is not None  # the caller's choice
    packed = tuple([k for k, view in enumerate(views) if len(view) == 4])
    counted: list[View] = []
    for k, view in enumerate(views):
        if len(view) == 3:
            counted.append(view)
            continue
        dtype, shape, strides_bits, bit = view
        if k >= len(views) - outputs or dtype.width_bits != 4 or bit or any(step % 4 for step in strides_bits):
            return None
        counted.append((dtype, shape, tuple([step // 4 for step in strides_bits])))
    return row.reads(attributes, tuple(counted), packed, target)


def unpacked(view: AnyView) -> View:
    """The view of a packed operand's copy; any other view itself."""
    lies = _packed(view)
    if lies is None:
        return view[:3]
    dtype, layout = lies
    steps = zip(layout.shape, spread.copy_of(layout).strides, strict=True)
    return dtype, view[1], tuple([0 if extent == 1 else step for extent, step in steps])


def moved(views: tuple[AnyView, AnyView], target: PlanTarget) -> Plan:
    """A copy of elements of fewer than 8 bits, between operands of one shape."""
    from samebits.kernels import reorder  # which programs without such elements do without

    (source, read, _), (to, written, _) = (_layout(view).rebased() for view in views)
    made = reorder.plan(source, to, target.isa, shared_by(views, target))
    ends = Operand(0, read), Operand(1, written), Operand(2)
    return replace(made, steps=tuple([step.on(*ends) for step in made.steps]))


def _packed(view: AnyView) -> spread.Packed | None:
    """How packed elements lie, each once; None for others."""
    return (view[0], spread.once(_layout(view))) if len(view) == 4 else None


def _layout(view: AnyView) -> Layout:
    """The layout of elements of at most 8 bits."""
    if len(view) == 4:
        dtype, shape, strides_bits, bit = view
        return Layout(shape, strides_bits, bit, dtype.width_bits)
    dtype, shape, strides = view
    return Layout.from_strides(shape, strides, width_bits=dtype.width_bits, storage="padded")
