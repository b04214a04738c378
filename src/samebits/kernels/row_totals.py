"""Rows whose last results are added up over the rows, each column for itself: a gradient and those of its parameters.

    plan(expression, inputs, outputs, totals, chunk, isa, threads) -> Plan
    reference(expression, *arrays, totals, chunk) -> list of arrays

The order of the additions over rows is that of numerics.md section 5 in its fresh form, of one segment: in each chunk
of rows the ascending sum, from +0, then the chunks ascending. A task is a chunk, whose rows are read once: their sums
lie beside them in the first caches. The last step joins the chunks. Operands of the plan: the inputs, the outputs, the
totals, the workspace. Start at `plan`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from samebits import ieee
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels import row_kernel, row_reference, values
from samebits.kernels.composites import given
from samebits.kernels.expression import Chain, Expression, with_arguments
from samebits.kernels.passes import passes, uniform
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.kernels.reduce_text import ReduceText, RowGroup, parts
from samebits.kernels.walk import Axis, AxisSteps, Walk, broadcast, stretches

Array = values.Array

# Bytes that two rows and the sums may take of the first-level data cache: then two are reduced before either is stored,
# so that the ends of their sums overlap. Rows of 3 KB and more are quicker one by one (512 x 768 on Emerald Rapids: 253
# us, in pairs 264, in fours 302), while the next one is being brought, with what is stored of it (without: 390).
_CACHE = 16384
# A value that takes more operations than these is kept for later passes over the row, of rows of so many elements at
# most: longer ones would push operands out of the first cache. Of bfloat16 these are normalised values and weighed
# gradients (512 x 768: 242 us, computed again 294); of float32 none, where keeping them gains nothing.
_MOST, _KEPT = 2, 2048
# Columns of a task that joins chunks.
_COLUMNS = 1024


def reference(expression: Expression, *inputs: npt.ArrayLike, totals: int, chunk: int) -> list[Array]:
    """The outputs of [R, C] by NumPy, of which the last `totals` are sums over rows."""
    found = row_reference.reference(expression, *inputs, axes=(1,))
    return [*found[: len(found) - totals], *(_added(x, chunk) for x in found[len(found) - totals :])]


def _added(x: Array, chunk: int) -> Array:
    """Sums over rows, in chunks of them."""
    sums = []
    with np.errstate(all="ignore"):
        for start in range(0, len(x), chunk):
            total = np.zeros(x.shape[1], x.dtype)
            for row in x[start : start + chunk]:
                total = total + row
            sums.append(total)
        joined = sums[0]
        for total in sums[1:]:
            joined = joined + total
        return np.asarray(ieee.canonical(joined + x.dtype.type(0)))


def plan(
    expression: Expression,
    inputs: tuple[AxisSteps, ...],
    outputs: tuple[AxisSteps, ...],
    totals: tuple[DType, ...],
    chunk: int,
    isa: Isa,
    threads: int = 1,
) -> Plan:
    """A kernel over chunks of rows, then one over columns.

    Args:    expression: reduces along rows and stores what varies along them: `outputs`, then `totals`.
             inputs: layouts that broadcast to [R, C].   outputs: layouts [R, C], at least one; R and C are at least 1.
             totals: the format that each total converts to.   chunk: rows.
    """
    (rows, columns), count = outputs[0][0], len(outputs)
    strides = [broadcast("row_totals.plan", layout, (rows, columns)) for layout in (*inputs, *outputs)]
    down, along = (tuple([s[a] for s in strides]) for a in (0, 1))
    # What is the same along a row is read as if it were not: each column has a total.
    special = tuple([(k, "strided") for k, stride in enumerate(along) if not stride])
    way, chunks = Walk((Axis(rows, down),), Axis(columns, along), special), -(-rows // chunk)
    workspace, last = len(strides) + len(totals), expression.outputs[count:]
    places, size = list[Operand](), 0
    for k in last:
        places.append(Operand(workspace, size))
        size += in_lines(chunks * columns * expression.dtype(k).size_bytes)
    step, scratch = _summed(expression, way, places, chunk, isa)
    steps = [step]
    for j, (k, dtype) in enumerate(zip(last, totals, strict=True)):
        spec = KernelSpec(join_text, _JoinedSums(expression.dtype(k), dtype), ("x", "out", "rows", "columns"), isa)
        given = (places[j], Operand(len(strides) + j), chunks, columns)
        steps.append(Step(spec, -(-columns // _COLUMNS), given))
    names = [f"input {k}" for k in range(len(inputs))] + [f"output {k}" for k in range(count)]
    return Plan(
        what=f"rows with sums over them {' '.join(node.op for node in expression.nodes)} {(rows, columns)}",
        isa=isa,
        threads=threads,
        steps=tuple(steps),
        operands=(*names, *(f"total {j}" for j in range(len(totals)))),
        scratch_bytes=scratch,
        workspace_bytes=size,
        facts=(("rows", f"{rows} of {columns}"), ("sums over rows", f"{len(totals)}, in chunks of {chunk}")),
    )


@dataclass(frozen=True, slots=True)
class TotalsText:
    """What specialises the kernel of chunks.

    Attributes:
        rows: What specialises rows.
        totals: The numbers among the outputs of those that are added up.
        most: The operations from which on a value is kept for later passes (`passes.passes`).
    """

    rows: ReduceText
    totals: tuple[int, ...]
    most: int | None


def _summed(e: Expression, way: Walk, places: Sequence[Operand], chunk: int, isa: Isa) -> tuple[Step, int]:
    """The step of chunks, and the bytes of scratch that it needs."""
    (e, numbers), n = with_arguments(e), way.inner.extent
    walked = len(way.classes) - len(e.inputs)
    totals = tuple(range(walked, len(e.outputs)))
    most = _MOST if n <= _KEPT else None
    found, (down,) = passes(e, uniform(e, way.classes), most), way.outer
    repeated = tuple(k for k in range(len(e.inputs)) if way.inner.strides[k] and not down.strides[k])
    described = TotalsText(ReduceText(e, way.classes, False, row_kernel.levels(n), repeated, False), totals, most)
    offsets, size = dict[str, int](), 0
    moving = [k for k, stride in enumerate(down.strides) if stride]
    group = 2 if (2 * len(moving) + len(totals)) * 4 * n <= _CACHE else 1
    sums = [(f"sum{j}", row_kernel.keep_elements(n) * e.dtype(e.outputs[j]).size_bytes) for j in totals]
    for name, room in (*row_kernel.rooms(e, found, n, group), *sums):
        offsets[name], size = size, size + in_lines(room)
    sizes = {
        "chunk": chunk,
        "rows": down.extent,
        "group": group,
        "keep_elements": row_kernel.keep_elements(n),
        **numbers,
    }
    parameters = (*sizes, *offsets, *(f"total{j}" for j in totals), *way.parameters())
    operands = [Operand(k) for k in range(len(way.classes))]
    given = (*sizes.values(), *offsets.values(), *places, *way.arguments(operands))
    return Step(KernelSpec(totals_text, described, parameters, isa), -(-down.extent // chunk), given), size


def totals_text(b: Builder, d: TotalsText) -> None:
    """A task is a chunk of rows, and a row of each total's workspace."""
    e, classes, n, lanes = d.rows.expression, d.rows.classes, b.index("n"), b.isa.lanes
    types = (*e.inputs, *(e.dtype(k) for k in e.outputs[: d.totals[0]]))
    is_uniform = uniform(e, classes)
    found, chunk = passes(e, is_uniform, d.most), b.index("chunk")
    outputs = [k for k in range(len(e.inputs), len(classes)) if classes[k] == "unit"]
    totals = {j: b.scratch(e.dtype(e.outputs[j]), b.index(f"sum{j}")) for j in d.totals}
    for task in b.tasks():
        for total in totals.values():
            for i in b.loop(0, n, lanes):
                b.store(total, i, b.constant(0.0, total.dtype, lanes))
        first = task * chunk
        for stretch in stretches(b, classes, types, False, first, b.min(first + chunk, b.index("rows"))):
            for begin, end in parts(b, stretch.begin, stretch.end, b.index("group")):
                rows = RowGroup(b, d.rows, stretch, is_uniform, found, begin, end)
                rows.reduce(begin, end, b.index("group"), outputs)
                rows.store(0, n, totals)
        for j, total in totals.items():
            room = b.offset(b.pointer(f"total{j}", total.dtype), task * n)
            for i in b.loop(0, n, lanes):
                b.store(room, i, b.load(total, i, lanes), n - i)


@dataclass(frozen=True, slots=True)
class _JoinedSums:
    """The formats of chunks' sums and of the result."""

    computed: DType
    result: DType


def join_text(b: Builder, d: _JoinedSums) -> None:
    """A task is some columns of the chunks' sums."""
    x, out = b.pointer("x", d.computed), b.pointer("out", d.result)
    columns, lanes = b.index("columns"), b.isa.lanes
    chain = Chain()
    converted = chain.finish(given(chain, chain.input(d.computed), d.result))
    for task in b.tasks():
        for i in b.loop(task * _COLUMNS, b.min(task * _COLUMNS + _COLUMNS, columns), lanes):
            count = columns - i
            total = [b.load(x, i, lanes, count)]
            for row in b.loop(1, b.index("rows"), carry=total):
                total[0] = b.add(total[0], b.load(x, row * columns + i, lanes, count))
            joined = b.canonical(b.add(total[0], b.constant(0.0, d.computed, lanes)))
            (result,) = values.emit(b, converted, [joined], lanes)
            b.store(out, i, result, count)
