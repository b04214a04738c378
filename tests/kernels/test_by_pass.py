"""Rows of several passes that are cut between them: the bits of one kernel, whatever made the cut."""

import functools
from typing import Any

import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.conversions import Conversion
from samebits.kernels import composites, reduce
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.plan import Plan

Array = np.ndarray[Any, Any]
ROWS = pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
ACROSS = "rows lie side by side in memory"
LONG = "rows are few and long, and threads share them in one pass alone"
F32 = dtypes.float32


def three() -> Expression:
    """Softmax of x * y, its maximum, and a sum of the softmax: four passes, three outputs."""
    c = Chain()
    x, y, s = c.input(F32), c.input(F32), c.input(F32)
    (p,) = c.include(composites.softmax(), c.apply("mul", x, y))
    total = c.apply("row_sum", c.apply("mul", p, s))
    return c.finish(c.apply("sub", p, total), c.apply("row_max", x), c.apply("div", total, c.count()))


def planned(e: Expression, row: Isa, inputs: list[Array], axes: tuple[int, ...], threads: int) -> Plan:
    """The plan, which is run and has the reference's bits."""
    return checked(e, row, inputs, reduce.reference(e, *inputs, axes=axes), axes, threads)


def checked(
    e: Expression, row: Isa, inputs: list[Array], due: list[Array], axes: tuple[int, ...], threads: int
) -> Plan:
    """The same, where what is due is known."""
    outputs = [np.full_like(x, 99) for x in due]
    plan = reduce.plan(e, launch.layouts(*inputs), launch.layouts(*outputs), axes, row, threads)
    launch.run_plan(plan, [*inputs, *outputs], threads)
    for made, wanted in zip(outputs, due, strict=True):
        launch.assert_bits(made, wanted, row.name)
    return plan


def operands(shape: tuple[int, ...], axes: tuple[int, ...]) -> list[Array]:
    """x of the whole shape, y that is the same for every row, s that is one a row."""
    random = np.random.default_rng(len(shape))
    along = tuple(extent if a in axes else 1 for a, extent in enumerate(shape))
    one = tuple(1 if a in axes else extent for a, extent in enumerate(shape))
    x = random.standard_normal(shape).astype(np.float32)
    x.reshape(-1)[:3] = np.nan, -0.0, np.inf
    return [x, *(random.standard_normal(each).astype(np.float32) for each in (along, one))]


@functools.cache
def long_rows() -> tuple[list[Array], list[Array]]:
    """Operands of few long rows and what `three` makes of them, which takes a second."""
    inputs = operands((2, (1 << 17) + 5), (1,))
    return inputs, reduce.reference(three(), *inputs, axes=(1,))


@ROWS
@pytest.mark.parametrize(("shape", "axes"), [((70, 65), (0,)), ((3, 2049, 33), (1,)), ((2, 9, 5, 40), (1, 2))])
def test_rows_side_by_side_are_cut(row: Isa, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    plan = planned(three(), row, operands(shape, axes), axes, 1)
    assert (dict(plan.facts).get("cut between passes") == ACROSS) == (shape[-1] >= row.lanes)


@ROWS
def test_long_rows_of_many_threads_are_cut(row: Isa) -> None:
    plan = checked(three(), row, *long_rows(), (1,), 2)
    assert dict(plan.facts)["cut between passes"] == LONG


def test_rows_that_are_dense_or_many_are_one_kernel() -> None:
    row = rows.COMPILED_ROWS[-1]
    dense = operands((4, 300), (1,))
    for plan in (planned(three(), row, dense, (1,), 2), checked(three(), row, *long_rows(), (1,), 1)):
        assert len(plan.steps) == 1
        assert "cut between passes" not in dict(plan.facts)


@pytest.mark.parametrize(("shape", "axes", "threads"), [((70, 65), (0,), 1), ((1, (1 << 17) + 5), (1,), 2)])
def test_an_output_may_lie_on_its_input(shape: tuple[int, ...], axes: tuple[int, ...], threads: int) -> None:
    row, (x, *_) = rows.COMPILED_ROWS[-1], operands(shape, axes)
    (due,) = reduce.reference(composites.softmax(), x, axes=axes)
    layout = launch.layouts(x)
    plan = reduce.plan(composites.softmax(), layout, layout, axes, row, threads)
    assert "cut between passes" in dict(plan.facts)
    launch.run_plan(plan, [x, x], threads)
    launch.assert_bits(x, due, row.name)


def test_a_pass_that_reads_no_whole_row_is_not_cut() -> None:
    c = Chain()
    x, s = c.input(F32), c.input(F32)
    e = c.finish(c.apply("add", x, c.apply("row_sum", c.apply("add", s, c.apply("row_max", x)))))
    plan = planned(e, rows.COMPILED_ROWS[-1], operands((70, 65), (0,))[::2], (0,), 1)
    assert len(plan.steps) == 1


def test_a_conversion_after_a_shared_sum_is_the_one_that_is_said() -> None:
    c = Chain()
    total = c.apply("row_sum", c.input(F32))
    saturating = Conversion(overflow="saturate")
    e = c.finish(c.apply("cast", total, dtype=dtypes.of("float8_e4m3fn"), conversion=saturating))
    x = np.ones((1, 1 << 18), np.float32)
    plan = planned(e, rows.COMPILED_ROWS[-1], [x], (1,), 2)
    assert "shared by threads" in dict(plan.facts)
    assert reduce.reference(e, x, axes=(1,))[0].item() == 448
