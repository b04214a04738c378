"""Reorder against the NumPy reference on every row: other orders of axes, flips, broadcasts, several slabs."""

from __future__ import annotations

from typing import Any

import aarch64
import guard
import launch
import numpy as np
import pytest
import rows

from samebits.codegen.isa import Isa
from samebits.kernels import narrow, reorder
from samebits.kernels.plan import Plan
from samebits.layout import Layout

Array = np.ndarray[Any, Any]
WIDTHS = (1, 2, 4, 6)


def dense(*shape: int, width: int, **how: Any) -> Layout:
    """A dense layout."""
    return Layout.dense(shape, width_bits=width, **how)


def cases(width: int) -> dict[str, tuple[Layout, Layout]]:
    """Source and target of some 5,000 elements, neither dense along the other's rows."""
    cube = dense(19, 17, 16, width=width)
    return {
        "transposed": (dense(70, 75, width=width).permute((1, 0)), dense(75, 70, width=width)),
        "transposed from inside a byte": (
            dense(71, 76, width=width)[1:, 1:].permute((1, 0)),
            dense(75, 75, width=width)[:, 3:73],
        ),
        "three axes": (cube.permute((2, 0, 1)), dense(16, 19, 17, width=width)),
        "column-major": (cube, dense(19, 17, 16, width=width, order="F")),
        "flipped": (cube.flip(2), cube),
        "every third": (dense(50, 300, width=width)[:, ::3], dense(50, 100, width=width)),
        "to every third": (dense(50, 100, width=width), dense(50, 300, width=width)[:, ::3]),
        "broadcast": (dense(70, 1, width=width).permute((1, 0)).broadcast_to((75, 70)), dense(75, 70, width=width)),
        "padded, transposed": (
            dense(70, 75, width=width, storage="padded").permute((1, 0)),
            dense(75, 70, width=width),
        ),
        "to padded, transposed": (
            dense(70, 75, width=width).permute((1, 0)),
            dense(75, 70, width=width, storage="padded"),
        ),
    }


def prepared(source: Layout, target: Layout, isa: Isa, threads: int = 1) -> tuple[Plan, Array, Array, Array]:
    """The plan, source and target memory beside forbidden pages, and what the target is to become."""
    rng = np.random.default_rng(0)
    x, y = (guard.array(rng.integers(0, 256, layout.required_bytes, np.uint8)) for layout in (source, target))
    due = y.copy()
    narrow.reference(source, x, target, due)
    return reorder.plan(source, target, isa, threads), x, y, due


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("isa", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_any_order_to_any_order(isa: Isa, width: int) -> None:
    for name, (source, target) in cases(width).items():
        for threads in (1, 2, 3):
            plan, x, y, due = prepared(source, target, isa, threads)
            launch.run_plan(plan, [x, y], threads)
            assert np.array_equal(y, due), (name, threads)


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_reorder_on_aarch64(isa: Isa) -> None:
    for source, target in (cases(4)["transposed"], cases(6)["three axes"]):
        plan, x, y, due = prepared(source, target, isa)
        aarch64.run_plan(plan, [x, y])
        assert np.array_equal(y, due)


def test_a_row_of_the_interpreter_agrees() -> None:
    source, target = cases(6)["transposed from inside a byte"]
    plan, x, y, due = prepared(source, target, rows.ALL_ROWS[0])
    launch.run_plan(plan, [x, y])
    assert np.array_equal(y, due)


@pytest.mark.parametrize("width", WIDTHS)
def test_several_slabs(width: int) -> None:
    isa = rows.COMPILED_ROWS[-2]
    for source, target in (
        (dense(701, 803, width=width).permute((1, 0)), dense(803, 701, width=width)),
        (dense(3, 5, 40_009, width=width).permute((1, 2, 0)), dense(5, 40_009, 3, width=width)),
    ):
        plan, x, y, due = prepared(source, target, isa, 2)
        assert len(plan.steps) > 6
        assert plan.workspace_bytes <= 1 << 20
        launch.run_plan(plan, [x, y], 2)
        assert np.array_equal(y, due)


def test_rows_that_are_dense_on_both_sides_take_one_step() -> None:
    isa = rows.COMPILED_ROWS[0]
    x, y = dense(70, 75, width=4), dense(70, 75, width=4, storage="padded")
    for source, target in ((x, y), (y, x), (x[:, 1:], dense(70, 74, width=4)), (x[:1].broadcast_to((70, 75)), x)):
        assert reorder.plan(source, target, isa) == narrow.plan(source, target, isa)
    few = dense(8, 9, width=4)
    assert reorder.plan(few.permute((1, 0)), dense(9, 8, width=4), isa).steps[0].spec.name == "kernels.narrow_text.text"
    (line,) = reorder.plan(*cases(4)["transposed"], isa).rejected
    assert line == ("narrow alone", "it moves element by element where a row is not dense on both sides")
