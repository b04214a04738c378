"""Operands packed within bytes: a step of the plan copies them to a byte an element, and the product reads the copy.

`described` says how such an operand and its copy lie; `unpacked` puts the steps before those of a plan that reads the
copies. A copy keeps the order of the operand's axes, so that rows that are dense stay so, and has each element once,
where the operand repeats it. Start at `unpacked`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from samebits.dtypes import DType
from samebits.kernels import reorder
from samebits.kernels.gemm.contraction import Matrix, Panels, Side
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.layout import Layout


def is_packed(layout: Layout) -> bool:
    """Whether some element does not lie in whole bytes; such elements have at most 8 bits each."""
    return layout.width_bits <= 8 and bool(
        layout.pitch_bits % 8 or layout.offset_bits % 8 or any(step % 8 for step in layout.strides_bits)
    )


def described(layout: Layout, rank: int, dtype: DType) -> Matrix:
    """The operand description of a packed [..., rows, columns]; dimensions that it lacks of `rank` repeat."""
    extents = tuple(1 if step == 0 else n for n, step in zip(layout.shape, layout.strides_bits, strict=True))
    lying = Layout(extents, layout.strides_bits, layout.offset_bits % 8, layout.width_bits, layout.storage)
    copy = _copy(lying)
    own = tuple(0 if n == 1 else step for n, step in zip(copy.shape, copy.strides, strict=True))
    strides = (0,) * (rank - len(own)) + own
    return Matrix(strides[-2], strides[-1], strides[:-2], dtype, lying)


def has_packed(*operands: Matrix | Panels) -> bool:
    """Whether one of these lies packed."""
    return any(isinstance(x, Matrix) and x.packed is not None for x in operands)


def plain(x: Side[Any]) -> Side[Any]:
    """The description of the copy of x."""
    return replace(x, values=replace(x.values, packed=None)) if isinstance(x.values, Matrix) else x


def unpacked(plan: Plan, operands: Sequence[Matrix | Panels]) -> Plan:
    """A plan on `operands`, the first ones of `plan`, which reads copies of those that lie packed; the copies come
    after its own workspace."""
    if not plan.steps:
        return plan
    steps, facts = list[Step](), list[tuple[str, str]]()
    places = [Operand(i) for i in range(plan.workspace + 1)]
    size_bytes = plan.workspace_bytes
    for i, x in enumerate(operands):
        if not isinstance(x, Matrix) or x.packed is None:
            continue
        at = in_lines(size_bytes)
        source, start, _ = x.packed.rebased()
        target = _copy(x.packed)
        moving = reorder.plan(source, target, plan.isa, plan.threads)
        behind = Operand(plan.workspace, at + in_lines(target.size))
        places[i] = Operand(plan.workspace, at)
        steps += [step.on(Operand(i, start), places[i], behind) for step in moving.steps]
        size_bytes = behind.offset_bytes + moving.workspace_bytes
        facts.append((plan.operands[i], f"{x.dtype.name} within bytes, unpacked to {target.size} bytes"))
    steps += [step.on(*places) for step in plan.steps]
    return replace(plan, steps=tuple(steps), workspace_bytes=size_bytes, facts=(*plan.facts, *facts))


def _copy(packed: Layout) -> Layout:
    """A byte an element, dense in the order of the axes as they lie."""
    return Layout.dense(packed.shape, width_bits=packed.width_bits, order=packed.stride_order, storage="padded")
