"""Spread: plans that take an element a byte, on operands whose elements are packed within bytes.

Steps before the plan's own copy such an operand to a byte an element, and steps after them pack what it made; the
copies lie behind the plan's workspace. A copy keeps the order of the operand's axes, so that rows that are dense stay
so, and has each element once, where the operand repeats it. Start at `on_copies`.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits.dtypes import DType
from samebits.frozen import replace
from samebits.kernels.plan import Operand, Plan, in_lines
from samebits.layout import Layout

Packed = tuple[DType, Layout]
"""An element format, and how packed elements of it lie from the byte in which the first begins."""


def is_packed(layout: Layout) -> bool:
    """Whether some element does not lie in whole bytes; such elements have at most 8 bits each."""
    return layout.width_bits <= 8 and bool(
        layout.pitch_bits % 8 or layout.offset_bits % 8 or any(step % 8 for step in layout.strides_bits)
    )


def once(layout: Layout) -> Layout:
    """The layout without repetitions: extent 1 where the stride is 0, and counted from its first element's byte."""
    extents = tuple(1 if step == 0 else n for n, step in zip(layout.shape, layout.strides_bits, strict=True))
    return Layout(extents, layout.strides_bits, layout.offset_bits % 8, layout.width_bits, layout.storage)


def copy_of(layout: Layout) -> Layout:
    """How the copy of packed elements lies: a byte an element, dense in the order of the axes as they lie."""
    return Layout.dense(layout.shape, width_bits=layout.width_bits, order=layout.stride_order, storage="padded")


def on_copies(plan: Plan, operands: Sequence[Packed | None], outputs: int = 0) -> Plan:
    """A plan that runs another one, which takes an element a byte, on operands that are packed.

    Args:    plan: takes the copies, as `copy_of` says that they lie.
             operands: how the first operands of the plan lie, without repetitions; None for one that it takes itself.
             outputs: so many of them, the last ones, are written.
    """
    from samebits.kernels import reorder  # which programs without packed elements do without

    for i, operand in enumerate(operands if plan.steps else ()):
        if operand is None:
            continue
        dtype, layout = operand
        packed, start, _ = layout.rebased()
        copy = copy_of(layout)
        if i < len(operands) - outputs:
            plan = reading(plan, i, reorder.plan(packed, copy, plan.isa, plan.threads), copy.size, start)
            fact = f"unpacked to {copy.size} bytes"
        else:
            plan = writing(plan, i, reorder.plan(copy, packed, plan.isa, plan.threads), copy.size, start)
            fact = f"packed from {copy.size} bytes"
        plan = replace(plan, facts=(*plan.facts, (plan.operands[i], f"{dtype.name} within bytes, {fact}")))
    return plan


def reading(plan: Plan, i: int, first: Plan, size_bytes: int, start: int = 0) -> Plan:
    """A plan whose operand i is what another plan, of one operand and a result, makes of it.

    Args:    first: runs before it.   size_bytes: those of the result.
             start: where the operand of `first` begins, in bytes from the operand i.
    """
    if not size_bytes:  # nothing is read
        return plan
    made, behind, places = _behind(plan, i, size_bytes)
    steps = [step.on(Operand(i, start), made, behind) for step in first.steps]
    steps += [step.on(*places) for step in plan.steps]
    return replace(plan, steps=tuple(steps), workspace_bytes=behind.offset_bytes + first.workspace_bytes)


def writing(plan: Plan, i: int, last: Plan, size_bytes: int, start: int = 0) -> Plan:
    """A plan whose operand i is what another plan, of one operand and a result, makes of what it made.

    Args:    last: runs after it.   size_bytes, start: as for `reading`, of the operand of `last` and of its result.
    """
    made, behind, places = _behind(plan, i, size_bytes)
    steps = [step.on(*places) for step in plan.steps]
    steps += [step.on(made, Operand(i, start), behind) for step in last.steps]
    return replace(plan, steps=tuple(steps), workspace_bytes=behind.offset_bytes + last.workspace_bytes)


def _behind(plan: Plan, i: int, size_bytes: int) -> tuple[Operand, Operand, list[Operand]]:
    """So many bytes behind the workspace, what is behind these, and all operands with those bytes in place of i."""
    made = Operand(plan.workspace, in_lines(plan.workspace_bytes))
    places = [Operand(number) for number in range(plan.workspace + 1)]
    places[i] = made
    return made, Operand(plan.workspace, made.offset_bytes + in_lines(size_bytes)), places
