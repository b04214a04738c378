"""Elementwise: out = expression(inputs) per element, operands broadcasting, any strides, several outputs.

An expression that copies or casts makes this the move room's kernel too. Public:

    plan(expression, inputs, outputs, isa, threads=1) -> Plan
    reference(expression, *arrays) -> list of arrays

`inputs` and `outputs` are layouts, `(shape, strides in elements)`, one for each input and output of the expression;
inputs broadcast to the one shape of the outputs. Operands of the plan: the inputs, then the outputs. An output may be
an input's memory if both have the same layout and element width. No workspace, no scratch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Condition, Index, KernelSpec, Vector
from samebits.dtypes import DType
from samebits.errors import PlanError, ShapeError
from samebits.frozen import dataclass, replace
from samebits.kernels import convert, functions, turned, values
from samebits.kernels.expression import LEAVES, REDUCTIONS, TABLE, Expression, with_arguments
from samebits.kernels.plan import LINE_BYTES, Operand, Plan, Step
from samebits.kernels.walk import SECOND, Axis, AxisSteps, Cursor, Walk, broadcast, stretches, walk
from samebits.tape import cached

Array = values.Array

# Elements of one task: about 32 KB of float32 a operand, microseconds of work, so that threads can share it.
_TASK = 8192
# Bytes ahead at which lines of dense operands, outputs too, are asked for. Processors ask themselves, but not beyond a
# page: 16M float32 in memory, ms with and without, an addition 12.4 and 14.9, exp 9.6 and 11.9. 1 KiB to 8 KiB ahead
# differ by 4 %. What is behind an end is asked for too, which reads nothing.
_AHEAD_BYTES = 2048
# Bytes of all dense operands from which on that is done: more than any core's own caches hold (2 MiB on Emerald Rapids,
# 1 MiB on Zen 4), where it would gain nothing and cost up to 6 %. Bringing a line from the next cache takes either
# processor longer than the load port that asking for it takes; there, on Emerald Rapids, additions take as long as
# before and exp 0.96 times as long.
_BEYOND = 4 << 20
# Elements of a row from which on: what is left of short rows takes too much of their time to enter them twice.
_LONG = 1024
# Bytes that a step takes at least of an operand: scalar steps of 4 int8 would ask for a line sixteen times.
_STEP_BYTES = 16
# Operations on an element above which a comparison a step is lost among them: 20 of float32 take as long with it on
# Cascade Lake, as do conversions to float8, and their kernels compile in two thirds of the time.
_MANY = 16
# Bytes of elements from which on every second one is picked of whole vectors, in one instruction or two.
_PICKED_BYTES = 4
# Rows and columns of a tile at most: what registers hold of float32.
_LARGEST_SIDE = 16


@dataclass(frozen=True, slots=True)
class Elementwise:
    """What specialises the kernel.

    Attributes:
        expression: What to compute.
        classes: Each operand's class along the row.
        above: Whether axes lie above the stretches. (Where none do, finding the stretch would cost 6 ns, half of what
            up to 100 elements take.)
    """

    expression: Expression
    classes: tuple[str, ...]
    above: bool


def reference(expression: Expression, *inputs: npt.ArrayLike) -> list[Array]:
    """out = expression(inputs), by NumPy."""
    shape = np.broadcast_shapes(*[np.shape(x) for x in inputs])
    return [np.array(np.broadcast_to(x, shape)) for x in values.reference(expression, inputs)]


@cached(4096)
def plan(
    expression: Expression, inputs: tuple[AxisSteps, ...], outputs: tuple[AxisSteps, ...], isa: Isa, threads: int = 1
) -> Plan:
    """One kernel over the merged axes of all operands.

    Raises:  PlanError if the expression needs a row (reductions, count); ShapeError if shapes do not fit.
    """
    _check(expression, inputs, outputs)
    shape = outputs[0][0]
    way = _walk(shape, [*inputs, *outputs], expression.inputs, len(outputs))
    operands = tuple(Operand(k) for k in range(len(inputs) + len(outputs)))
    names = tuple(f"input {k}" for k in range(len(inputs))) + tuple(f"output {k}" for k in range(len(outputs)))
    step = _turned(expression, way, operands, isa) or _straight(expression, way, operands, isa)
    return Plan(
        what=f"elementwise {' '.join(node.op for node in expression.nodes) or 'copy'} {shape}",
        isa=isa,
        threads=threads,
        steps=(step,),
        operands=names,
        facts=(("rows", f"{way.rows} of {way.inner.extent}"), ("inner axis", " ".join(way.classes))),
    )


def _straight(expression: Expression, way: Walk, operands: tuple[Operand, ...], isa: Isa) -> Step:
    """Rows, or blocks of long rows."""
    (computed, numbers), rows, n = with_arguments(expression), way.rows, way.inner.extent
    block = _TASK if n >= 2 * _TASK else max(n, 1)
    column_tasks, rows_per_task = -(-n // block), max(1, _TASK // block)
    spec = KernelSpec(
        text,
        Elementwise(computed, way.classes, way.above),
        ("column_tasks", "rows_per_task", "block", "rows", *numbers, *way.parameters()),
        isa,
        unroll=False,  # the text says how many vectors a step takes
    )
    tasks = column_tasks * -(-rows // rows_per_task)
    return Step(spec, tasks, (column_tasks, rows_per_task, block, rows, *numbers.values(), *way.arguments(operands)))


def _turned(expression: Expression, way: Walk, operands: tuple[Operand, ...], isa: Isa) -> Step | None:
    """Tiles, if an input is dense along another axis than the outputs are, and both axes fill a tile."""
    types, count = expression.inputs, len(expression.inputs)
    ahead = [a for a, axis in enumerate(way.outer) for k in range(count) if axis.strides[k] == 1 and _far(way, k)]
    side = 1 << isa.lanes.bit_length() - 1
    side = side // 2 if any(dtype.width_bits == 64 for dtype in types) else min(side, _LARGEST_SIDE)
    whole = all(c == "unit" for c in way.classes[count:])
    if not ahead or not whole or side < 2 or min(way.inner.extent, way.outer[ahead[0]].extent) < side:
        return None
    across = way.outer[ahead[0]]
    tiled = Walk((*(axis for axis in way.outer if axis is not across), across), way.inner)
    classes = tuple(
        "turned" if k < count and across.strides[k] == 1 and _far(way, k) and types[k].kind != "bool" else c
        for k, c in enumerate(way.classes)
    )
    if "turned" not in classes:
        return None
    tiles = way.rows // across.extent * -(-across.extent // side)
    tiles_per_task = max(1, _TASK // (side * way.inner.extent))
    computed, numbers = with_arguments(expression)
    spec = KernelSpec(
        turned.text,
        turned.Turned(computed, classes, tiled.above, side),
        ("tiles_per_task", "tiles", *numbers, *tiled.parameters()),
        isa,
    )
    given = (tiles_per_task, tiles, *numbers.values(), *tiled.arguments(operands))
    return Step(spec, -(-tiles // tiles_per_task), given)


def _far(way: Walk, k: int) -> bool:
    """Whether operand k steps over elements along the row."""
    return way.inner.strides[k] not in (0, 1)


def _check(expression: Expression, inputs: tuple[AxisSteps, ...], outputs: tuple[AxisSteps, ...]) -> None:
    rowwise = [node.op for node in expression.nodes if node.op in (*REDUCTIONS, "count")]
    if rowwise:
        raise PlanError("elementwise.plan", "expression", "operations", rowwise, "per element", "use reduce.plan")
    shapes = [shape for shape, _ in outputs]
    counts = (len(inputs), len(outputs))
    if (
        not shapes
        or any(shape != shapes[0] for shape in shapes)
        or counts != (len(expression.inputs), len(expression.outputs))
    ):
        expected = f"{len(expression.inputs)} inputs and {len(expression.outputs)} outputs of one shape"
        raise ShapeError(
            "elementwise.plan", "operands", "", f"{counts}, {sorted(set(shapes))}", expected, "pass one layout each"
        )


def _walk(shape: tuple[int, ...], layouts: Sequence[AxisSteps], types: Sequence[DType], outputs: int) -> Walk:
    """The axes in the order of the first output's strides, so that stores are as dense as they can be.

    Args:    types: the dtypes of the inputs, whose layouts come first.   outputs: how many layouts follow.
    """
    strides = [broadcast("elementwise.plan", layout, shape) for layout in layouts]
    axes = [Axis(extent, tuple(s[a] for s in strides)) for a, extent in enumerate(shape)]
    leading = strides[len(layouts) - outputs]
    order = sorted(range(len(shape)), key=lambda a: -abs(leading[a]))
    way = walk([axes[a] for a in order]) if axes else walk([Axis(1, (0,) * len(layouts))])
    large = [k for k, dtype in enumerate(types) if convert.stored(dtype).size_bytes >= _PICKED_BYTES]
    second = [(k, SECOND) for k in large if way.inner.strides[k] == 2]
    return replace(way, special=tuple(second)) if second else way


def text(b: Builder, d: Elementwise) -> None:
    """A task is some rows, or a block of one long row.

    Where lines are asked for, whole vectors of all rows of a task come first, in a loop of their own: a comparison a
    step would cost 128 int8 in a cache 13 % of their time. What takes long is not written out twice; it compares. Nor
    is what never asks, whose second loop would be compiled for nothing.
    """
    e = d.expression
    types = (*e.inputs, *(e.dtype(k) for k in e.outputs))
    column_tasks, rows_per_task, block = b.index("column_tasks"), b.index("rows_per_task"), b.index("block")
    asks, lanes, wide = _asks(b, d, types), b.isa.lanes, b.isa.lanes * unroll(e)
    asked = _asked(types, d.classes, wide)
    # Where memory is waited for, a step of one vector is as fast, unless it were too short to ask in.
    narrow = next(x for x in (lanes, 2 * lanes, wide) if _asked(types, d.classes, x) == asked)
    for task in b.tasks():
        first = (task // column_tasks) * rows_per_task
        start = (task % column_tasks) * block
        stop = b.min(start + block, b.index("n"))
        rest = start + (stop - start) // wide * wide
        left = b.choose(asks, rest, start)
        for stretch in stretches(b, d.classes, types, d.above, first, b.min(first + rows_per_task, b.index("rows"))):
            if not asked or _is_long(e):
                for r in b.loop(stretch.begin, stretch.end):
                    _row(b, d, stretch.row(r), start, rest, stop, wide, asks if asked else False)
                continue
            for r in b.loop(stretch.begin, b.choose(asks, stretch.end, stretch.begin)):
                _row(b, d, stretch.row(r), start, rest, None, narrow, True)
            for r in b.loop(stretch.begin, stretch.end):
                _row(b, d, stretch.row(r), left, rest, stop, wide, False)


def _asks(b: Builder, d: Elementwise, types: Sequence[DType]) -> Condition:
    """Whether lines are asked for: rows are long, and operands more than a core's own caches keep."""
    bytes_each = sum(_size(dtype) for dtype, lies in zip(types, d.classes, strict=True) if lies == "unit")
    n = b.index("n")
    return (n >= _LONG) & (b.index("rows") * n * bytes_each >= _BEYOND)


def _size(dtype: DType) -> int:
    """Bytes of an element where it lies."""
    return convert.stored(dtype).size_bytes


def _row(
    b: Builder,
    d: Elementwise,
    cursor: Cursor,
    start: Index,
    rest: Index,
    stop: Index | None,
    width: int,
    asks: Condition | bool,
) -> None:
    """Whole vectors, from start to rest, so many elements a step; then what is left of the row, if there is a stop."""
    repeated = {k: cursor.load_one(k) for k in range(len(d.expression.inputs)) if d.classes[k] == "same"}
    lanes = b.isa.lanes
    # Splats are made outside the loops: the text says what is loop-invariant.
    splats = {w: {k: b.splat(v, w) for k, v in repeated.items()} for w in {lanes, width}}
    for i in b.loop(start, rest, width):
        for _ in b.when(asks):
            _ask(cursor, i, width)
        _vector(b, d, cursor, i, width, None, splats[width])
    for i in b.loop(rest, stop, lanes) if stop is not None else ():
        _vector(b, d, cursor, i, lanes, stop - i, splats[lanes])


def _asked(types: Sequence[DType], classes: Sequence[str], width: int) -> list[int]:
    """Operands whose lines are asked for in steps of so many elements."""
    return [k for k, dtype in enumerate(types) if classes[k] == "unit" and width * _size(dtype) >= _STEP_BYTES]


def _ask(cursor: Cursor, i: Index, width: int) -> None:
    """Have lines of dense operands soon that lie ahead of positions i .. i+width-1."""
    types = [place.dtype for place in cursor.places]
    for k in _asked(types, cursor.classes, width):
        size = _size(types[k])
        for j in range(0, width, LINE_BYTES // size):
            cursor.prefetch(k, i + (j + _AHEAD_BYTES // size))


def _vector(
    b: Builder, d: Elementwise, cursor: Cursor, i: Index, width: int, count: Index | None, splats: dict[int, Vector]
) -> None:
    e = d.expression
    found = values.Values(b, e, width, lambda k: splats[k] if k in splats else cursor.load(k, i, width, count))
    # Every load comes before the first store: an output may lie on an input.
    results = [found.stored(k) for k in e.outputs]
    for k, result in enumerate(results):
        cursor.store(len(e.inputs) + k, i, result, count)


def unroll(expression: Expression) -> int:
    """Vectors a step: a few where there is little to do on each, one where a function fills the pipeline."""
    return 2 if _is_heavy(expression) else 4


def _is_heavy(expression: Expression) -> bool:
    """Whether a function fills the pipeline."""
    return any(node.op not in (*LEAVES, TABLE) and functions.row(node.op).heavy for node in expression.nodes)


def _is_long(expression: Expression) -> bool:
    """Whether a step takes so long that a comparison is lost in it: a heavy function, many operations, or results that
    are encoded in a few bits."""
    operations = [node.op for node in expression.nodes if node.op not in (*LEAVES, TABLE, "where")]
    results = [expression.dtype(k) for k in expression.outputs]
    encodes = bool(operations) and any(dtype.is_float and dtype.width_bits <= 8 for dtype in results)
    return encodes or len(operations) > _MANY or _is_heavy(expression)
