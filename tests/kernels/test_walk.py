"""A walk inside a kernel: rows in their order, whatever the number of axes, and however many rows a task takes."""

from __future__ import annotations

import itertools
from typing import Any

import aarch64
import guard
import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.kernels.plan import Operand, Plan, Step
from samebits.kernels.walk import Axis, Walk, stretches, walk

Array = np.ndarray[Any, Any]
TYPES = (dtypes.float32, dtypes.float32)


def copy(b: Builder, description: tuple[tuple[str, ...], bool]) -> None:
    """x1 = x0, a task being some rows."""
    classes, above = description
    rows_per_task = b.index("rows_per_task")
    for task in b.tasks():
        first = task * rows_per_task
        for stretch in stretches(b, classes, TYPES, above, first, b.min(first + rows_per_task, b.index("rows"))):
            for r in b.loop(stretch.begin, stretch.end):
                cursor = stretch.row(r)
                for i in b.loop(0, b.index("n"), 2 * b.isa.lanes + 1):
                    rest = b.index("n") - i
                    cursor.store(1, i, cursor.load(0, i, 2 * b.isa.lanes + 1, rest), rest)


def copying(x: Array, out: Array, isa: Isa, rows_per_task: int) -> Plan:
    """The plan that copies x to out, which has its shape."""
    strides = zip(launch.layout(x)[1], launch.layout(out)[1], strict=True)
    way = walk([Axis(n, steps) for n, steps in zip(x.shape, strides, strict=True)])
    spec = KernelSpec(copy, (way.classes, way.above), ("rows_per_task", "rows", *way.parameters()), isa)
    arguments = (rows_per_task, way.rows, *way.arguments([Operand(0), Operand(1)]))
    return Plan("copy", isa, 1, (Step(spec, -(-way.rows // rows_per_task), arguments),), ("x", "out"))


def views(isa: Isa) -> list[Array]:
    """Of no axis that merges with another: one to six axes, forwards and backwards."""
    found = [np.arange(2 * isa.lanes + 3, dtype=np.float32)[::-1]]
    for extents in ((3, 5), (4, 1, 7), (2, 3, 4, 5), (3, 2, 2, 2, 3), (2, 3, 2, 2, 2, 2)):
        x = np.arange(np.prod(extents), dtype=np.float32).reshape(extents)
        found += [x.transpose(range(x.ndim)[::-1]), x[::-1, ..., ::-1]]
    return found


@pytest.mark.parametrize("isa", [*rows.ALL_ROWS, *rows.AARCH64_ROWS[1:2]], ids=lambda row: row.name)
def test_rows_come_in_order_however_many_axes_and_tasks(isa: Isa) -> None:
    for x, rows_per_task in itertools.product(views(isa), (1, 3, 1000)):
        given, out = x.copy(order="K"), guard.empty(x.shape, np.float32)
        out[...] = 99
        plan = copying(given, out, isa, rows_per_task)
        if isa.available:
            launch.run_plan(plan, [given, out])
        else:
            aarch64.run_plan(plan, [given, out])
        launch.assert_bits(out, np.ascontiguousarray(x), (x.shape, rows_per_task, isa.name))


def test_axes_above_the_stretches_are_arguments_without_names() -> None:
    one = Walk((Axis(3, (4, 5)),), Axis(2, (1, 0)))
    assert (one.stretch, one.above, one.rows) == (Axis(3, (4, 5)), False, 3)
    assert one.arguments([Operand(0), Operand(1)]) == (2, 3, 0, Operand(0), Operand(1), 1, 0, 4, 5)
    three = Walk((Axis(7, (70, 71)), Axis(5, (50, 51)), *one.outer), one.inner)
    assert (three.stretch, three.above, three.parameters()) == (one.stretch, True, one.parameters())
    above = three.arguments([Operand(0), Operand(1)])[len(three.parameters()) :]
    assert above == (5, 50, 51, 7, 70, 71)
    flat = Walk((), Axis(9, (1, 1)))
    assert (flat.stretch, flat.above, flat.rows) == (Axis(1, (0, 0)), False, 1)
