"""Scattering: rows of one operand put at the places of another that indices name, bits unchanged.

    plan(dtype, data, out, depth, count, isa, threads) -> Plan

out = data, then out[ids[i, 0], ids[i, 1], ...][:] = updates[i, :] in the order of i, so that of several rows for one
place the last one stays. Operands: data, ids (int64, dense), updates (dense), the status (two int64), out (dense); the
layouts of data and out are `(shape, strides in elements)`. A negative index counts from the end; the first that is out
of range is reported in the status as (2 + its row-major place in ids, the index). Start at `text`.
"""

from __future__ import annotations

import functools
import math

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec
from samebits.dtypes import DType
from samebits.kernels import convert, elementwise, picks
from samebits.kernels.gather import GatherText, copy_row, place
from samebits.kernels.plan import Operand, Plan, Step
from samebits.kernels.walk import AxisSteps

__all__ = ["plan"]


@functools.lru_cache(maxsize=1024)
def plan(dtype: DType, data: AxisSteps, out: AxisSteps, depth: int, count: int, isa: Isa, threads: int = 1) -> Plan:
    """A copy of the data, then one kernel over all rows of updates; `depth`: columns of ids, `count`: their rows."""
    shape, element = out[0], convert.unsigned(dtype)
    copy = elementwise.plan(picks.copied(element), (data,), (out,), isa, threads)
    axes = [word for axis in range(depth) for word in (f"extent{axis}", f"stride{axis}")]
    sizes = [size for axis in range(depth) for size in (shape[axis], math.prod(shape[axis + 1 :]))]
    names = ("ids", "updates", "status", "out", "count", "inner", *axes)
    spec = KernelSpec(text, GatherText(element, depth), names, isa)
    inner = math.prod(shape[depth:])
    step = Step(spec, int(count > 0), (*[Operand(k) for k in range(1, 5)], count, inner, *sizes))
    return Plan(
        what=f"scatter of {count} rows of {inner} {dtype}",
        isa=isa,
        threads=threads,
        steps=(*[one.on(Operand(0), Operand(4)) for one in copy.steps], step),
        operands=("data", "ids", "updates", "status", "out"),
    )


def text(b: Builder, d: GatherText) -> None:
    """The only task is all rows of updates."""
    ids, updates = b.pointer("ids", dtypes.int64), b.pointer("updates", d.element)
    status, out = b.pointer("status", dtypes.int64), b.pointer("out", d.element)
    inner = b.index("inner")
    for _ in b.tasks():
        for row in b.loop(0, b.index("count")):
            target: Index = 0
            for j in range(d.depth):
                at = row * d.depth + j
                target = target + place(b, ids, at, b.index(f"extent{j}"), status, 2 + at) * b.index(f"stride{j}")
            copy_row(b, b.offset(updates, row * inner), b.offset(out, target), inner)
