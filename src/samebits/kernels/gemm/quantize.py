"""A left operand of floats that a step of the plan quantises: each element is divided once, however many blocks of C
read it, and the sums of rows are those of what it became.

`described` says how the integers lie; `quantized` puts the step before those of a plan that reads them. Start there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from samebits.dtypes import DType, float32
from samebits.frozen import replace
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.gemm.contraction import Contraction, Matrix
from samebits.kernels.plan import Operand, Plan, in_lines


def described(batch: Sequence[int], m: int, k: int, parts: Sequence[Matrix], dtype: DType) -> Matrix:
    """Dense integers a[batch..., m, k] made of `parts`, once where they all repeat along a batch dimension."""
    strides, size = list[int](), m * k
    for d in reversed(range(len(batch))):
        repeats = all(x.batch[d] == 0 for x in parts)
        strides.insert(0, 0 if repeats else size)
        size *= 1 if repeats else batch[d]
    return Matrix(k, 1, tuple(strides), dtype)


def quantized(plan: Plan, c: Contraction) -> Plan:
    """A plan of c on integers, which then takes the floats; the integers come after its own workspace."""
    floats, scale = c.a.quantised_from, c.a.scale
    assert floats and scale  # there is something to quantise, and a unit
    if not plan.steps or not c.k:
        return replace(plan, what=str(c))
    parts = [floats, scale.operand, *([c.a.zero.operand] if c.a.zero else [])]
    shape = (*(n if step else 1 for n, step in zip(c.batch, c.a.values.batch, strict=True)), c.m, c.k)
    layouts = [(shape, (*x.batch, x.row, x.column)) for x in (*parts, c.a.values)]
    step = elementwise.plan(
        _expression(parts, c.a.dtype), tuple(layouts[:-1]), (layouts[-1],), plan.isa, plan.threads
    ).steps[0]
    at, size_bytes = in_lines(plan.workspace_bytes), math.prod(shape)
    places = [c.operands.index(name) for name in ("a_scale", "a_zero")[: len(parts) - 1]]
    integers = Operand(plan.workspace, at)
    first = step.on(Operand(0), *map(Operand, places), integers)
    rest = [x.on(integers, *(Operand(i) for i in range(1, plan.workspace + 1))) for x in plan.steps]
    fact = ("a", f"{floats.dtype.name} quantised to {c.a.dtype.name}, {size_bytes} bytes of the workspace")
    return replace(plan, what=str(c), steps=(first, *rest), workspace_bytes=at + size_bytes, facts=(*plan.facts, fact))


def _expression(parts: Sequence[Matrix], dtype: DType) -> Expression:
    """rint(x / scale) + zero of x, scale and zero, where there is one."""
    chain = Chain()
    x, scale, *zeros = (chain.input(part.dtype) for part in parts)
    zero = zeros[0] if zeros else chain.constant(0, dtype)
    if zero.dtype is not dtype:
        zero = chain.apply("cast", zero, dtype=dtype)
    if x.dtype is not float32:
        x = chain.apply("cast", x, dtype=float32)
    return chain.finish(chain.apply("quantize", x, scale, zero))
