"""Coded: an elementwise expression of elements of four bits as they lie, two to a byte, and of scales of their blocks.

    plan(expression, inputs, outputs, isa, threads, packed) -> Plan

For operands that are one row together: each dense, or one element, or one of each block. Others are elementwise on a
byte an element. What depends on codes alone is looked up (`code_tables`). Operands: the inputs, then the outputs, then
the workspace if `plan.workspace_bytes`. Start at `plan`, which gives None where operands lie otherwise.
"""

from __future__ import annotations

import itertools
import math

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec, Vector
from samebits.frozen import dataclass
from samebits.kernels import code_tables, convert, values
from samebits.kernels.elementwise import unroll
from samebits.kernels.expression import Expression, with_arguments
from samebits.kernels.plan import Argument, Operand, Plan, Step, in_lines
from samebits.kernels.row_axes import block_size
from samebits.kernels.walk import NIBBLES, AxisSteps, Cursor, blocks, broadcast
from samebits.tape import cached

__all__ = ["plan"]

# Elements of one task, as of elementwise kernels; a multiple of every block and of an even number of every vector's.
_TASK = 8192


@dataclass(frozen=True, slots=True)
class Coded:
    """What specialises the kernel: the expression, and how each operand lies along the row."""

    expression: Expression
    classes: tuple[str, ...]


@cached(1024)
def plan(
    expression: Expression, inputs: tuple[AxisSteps, ...], outputs: tuple[AxisSteps, ...], isa: Isa, threads: int = 1,
    packed: tuple[int, ...] = (),
) -> Plan | None:  # fmt: skip
    """A plan that looks results up in tables, which kernels before fill; None unless operands are one row.

    Args:    packed: inputs of four bits that lie two elements a byte, the first in the low bits of a whole byte.
    """
    if not any(dtype.width_bits == 4 for dtype in expression.inputs):
        return None
    shape, layouts = outputs[0][0], [*inputs, *outputs]
    n, found = math.prod(shape), [_lies(layout, shape) for layout in layouts]
    if not n or (packed and (n % 2 or isa.lanes % 2)) or any(layout[0] != shape for layout in outputs):
        return None
    classes = [NIBBLES if k in packed and lies == "unit" else lies for k, (lies, _) in enumerate(found)]
    is_special = packed or any(lies.startswith("blocks") for lies in classes)
    if not is_special or "" in classes or {*classes[len(inputs) :]} != {"unit"} or any(
        classes[k] != NIBBLES for k in packed
    ):  # fmt: skip
        return None
    (e, numbers), places = with_arguments(expression), [Operand(k) for k in range(len(layouts))]
    fixed = [k for k, lies in enumerate(classes[: len(inputs)]) if lies == "same"]
    e, tables = code_tables.split(e, classes, fixed, n)
    steps, room, looked_up = list[Step](), 0, dict[str, Operand]()
    for table in tables:
        place = looked_up[f"table{table.value}"] = Operand(len(layouts), room)
        room += in_lines(table.size_bytes)
        steps.append(code_tables.step(table, numbers, places, place, isa))
    names = [f"x{k}" for k in range(len(layouts))]
    parameters = ("n", *numbers, *looked_up, *names, *(f"{name}.inner" for name in names))
    given: list[Argument] = [n, *numbers.values(), *looked_up.values(), *places, *(step for _, step in found)]
    spec = KernelSpec(text, Coded(e, tuple(classes)), parameters, isa)
    return Plan(
        what=f"elementwise {' '.join(node.op for node in expression.nodes)} {shape}",
        isa=isa,
        threads=threads,
        steps=(*steps, Step(spec, -(-n // _TASK), tuple(given))),
        operands=(*(f"input {k}" for k in range(len(inputs))), *(f"output {k}" for k in range(len(outputs)))),
        workspace_bytes=room,
        facts=(("rows", f"1 of {n}"), ("along the row", " ".join(classes)), *(("looked up", str(x)) for x in tables)),
    )


def _lies(layout: AxisSteps, shape: tuple[int, ...]) -> tuple[str, int]:
    """The class of an operand along the one row that all elements are, and its stride there; "" where it has none."""
    own, strides = layout[0], broadcast("coded.plan", layout, shape)
    axes = [(extent, step) for extent, step in zip(shape, strides, strict=True) if extent != 1]
    if all(step == 0 for _, step in axes):
        return "same", 0
    size = block_size(shape, (1,) * (len(shape) - len(own)) + own)
    rest = size
    while rest > 1:  # the last axes are within a block
        rest //= axes.pop()[0]
    dense = all(s == t * m for (_, s), (m, t) in itertools.pairwise(axes))
    step = axes[-1][1]
    if dense and size:
        return blocks(size), step
    return ("unit" if dense and step == 1 else ""), step


def text(b: Builder, d: Coded) -> None:
    """A task is a block of the row."""
    e, lanes = d.expression, b.isa.lanes
    types = (*e.inputs, *(e.dtype(k) for k in e.outputs))
    cursor = Cursor(b, d.classes, tuple([b.pointer(f"x{k}", dtype) for k, dtype in enumerate(types)]))
    wide = lanes * unroll(e)
    same = {k: cursor.load_one(k) for k in range(len(e.inputs)) if d.classes[k] == "same"}
    splats = {w: {k: b.splat(v, w) for k, v in same.items()} for w in {lanes, wide}}
    for task in b.tasks():
        start = task * _TASK
        stop = b.min(start + _TASK, b.index("n"))
        whole = start + (stop - start) // wide * wide
        for i in b.loop(start, whole, wide):
            _vector(b, d, cursor, i, wide, None, splats[wide])
        for i in b.loop(whole, stop, lanes):
            _vector(b, d, cursor, i, lanes, stop - i, splats[lanes])


def _vector(
    b: Builder, d: Coded, cursor: Cursor, i: Index, width: int, count: Index | None, splats: dict[int, Vector]
) -> None:
    e = d.expression
    tables, decoded = code_tables.tables(e), code_tables.decoded(e, d.classes)

    def load(k: int) -> Vector:
        if k in splats:
            return splats[k]
        if k in tables:
            return code_tables.looked_up(cursor, e, k, i, width, count)
        if k in decoded:
            dtype = e.inputs[decoded[k]]
            return cursor.load_blocks(decoded[k], i, width, count, lambda x: convert.by_table(b, x, dtype))
        return cursor.load(k, i, width, count)

    found = values.Values(b, e, width, load, dict.fromkeys((*tables, *decoded), False))
    # Every load comes before the first store: an output may lie on an input.
    results = [found.stored(k) for k in e.outputs]
    for k, result in enumerate(results):
        cursor.store(len(e.inputs) + k, i, result, count)
