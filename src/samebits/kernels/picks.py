"""Picks: elements that indices name along one axis, everything else being in its own place.

    plan_gather(dtype, data, ids, out, axis, isa, threads) -> Plan     out[.., i, ..] = data[.., ids[.., i, ..], ..]
    plan_scatter(dtype, data, ids, updates, out, axis, isa) -> Plan    out[.., ids[.., i, ..], ..] = updates[.., i, ..]

Operands: data, ids (int64), updates of a scatter, the status (two int64), out; layouts are `(shape, strides in
elements)`. A negative index counts from the end; one that is out of range is reported in the status. A scatter copies
data first and goes through the updates in row-major order, so that of several for one element the last one stays.
Start at `text`.
"""

from __future__ import annotations

import functools

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec
from samebits.dtypes import DType, int64
from samebits.frozen import dataclass
from samebits.kernels import convert, elementwise, gather
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.plan import Operand, Plan, Step
from samebits.kernels.walk import Axis, AxisSteps, numbered, offsets, walk

__all__ = ["copied", "plan_gather", "plan_scatter"]

_TASK = 8192


@dataclass(frozen=True, slots=True)
class PickText:
    """What specialises the kernel.

    Attributes:
        element: The bits of an element.
        writes: Whether indices name where elements go, not where they come from.
        above: Whether axes lie above the stretches.
    """

    element: DType
    writes: bool
    above: bool


@functools.lru_cache(maxsize=1024)
def plan_gather(
    dtype: DType, data: AxisSteps, ids: AxisSteps, out: AxisSteps, axis: int, isa: Isa, threads: int = 1
) -> Plan:
    """One kernel over the indices."""
    step = _step(dtype, data, ids, out, axis, (Operand(0), Operand(1), Operand(3), Operand(2)), False, isa)
    what = f"gather of {dtype} {ids[0]} along axis {axis}"
    return Plan(what=what, isa=isa, threads=threads, steps=(step,), operands=("data", "ids", "status", "out"))


@functools.lru_cache(maxsize=1024)
def plan_scatter(
    dtype: DType, data: AxisSteps, ids: AxisSteps, updates: AxisSteps, out: AxisSteps, axis: int, isa: Isa,
    threads: int = 1,
) -> Plan:  # fmt: skip
    """A copy of the data, then one kernel over the indices, in one task."""
    copy = elementwise.plan(copied(convert.unsigned(dtype)), (data,), (out,), isa, threads)
    step = _step(dtype, out, ids, updates, axis, (Operand(4), Operand(1), Operand(2), Operand(3)), True, isa)
    return Plan(
        what=f"scatter of {dtype} {ids[0]} along axis {axis}",
        isa=isa,
        threads=threads,
        steps=(*[one.on(Operand(0), Operand(4)) for one in copy.steps], step),
        operands=("data", "ids", "updates", "status", "out"),
    )


@functools.cache
def copied(dtype: DType) -> Expression:
    """Elements as they are."""
    chain = Chain()
    return chain.finish(chain.apply("copy", chain.input(dtype)))


def _step(
    dtype: DType, named: AxisSteps, ids: AxisSteps, listed: AxisSteps, axis: int, places: tuple[Operand, ...],
    writes: bool, isa: Isa,
) -> Step:  # fmt: skip
    """The kernel; `places`: what indices name, the indices, what is listed beside them, and the status."""
    shape = ids[0]
    axes = [Axis(extent, (0 if a == axis else named[1][a], ids[1][a], listed[1][a])) for a, extent in enumerate(shape)]
    way = walk(axes)
    each = way.rows if writes else max(1, _TASK // max(1, way.inner.extent))
    spec = KernelSpec(
        text,
        PickText(convert.unsigned(dtype), writes, way.above),
        ("each", "rows", "extent", "step", "status", *way.parameters()),
        isa,
    )
    empty = 0 in shape
    arguments = (each, way.rows, named[0][axis], named[1][axis], places[3], *way.arguments(places[:3]))
    return Step(spec, 0 if empty else -(-way.rows // max(1, each)), arguments)


def text(b: Builder, d: PickText) -> None:
    """A task is some rows of indices."""
    each, n = b.index("each"), b.index("n")
    named, ids, listed = b.pointer("x0", d.element), b.pointer("x1", int64), b.pointer("x2", d.element)
    status, extent, step = b.pointer("status", int64), b.index("extent"), b.index("step")
    inner, along = ([b.index(f"x{k}.{name}") for k in range(3)] for name in ("inner", "stretch"))
    for task in b.tasks():
        first = task * each
        for number, begin, end in numbered(b, d.above, first, b.min(first + each, b.index("rows"))):
            at = offsets(b, 3, number) if d.above else [0, 0, 0]
            for r in b.loop(begin, end):
                row: list[Index] = [at[k] + r * along[k] for k in range(3)]
                for i in b.loop(0, n):
                    place = gather.place(b, ids, row[1] + i * inner[1], extent, status)
                    there, here = row[0] + i * inner[0] + place * step, row[2] + i * inner[2]
                    if d.writes:
                        b.store(named, there, b.load(listed, here, 1))
                    else:
                        b.store(listed, here, b.load(named, there, 1))
