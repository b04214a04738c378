"""Gather moves bits on every row, beside forbidden pages; an index out of range is reported and reads nothing else."""

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
from samebits.kernels import gather

Array = np.ndarray[Any, Any]
FORMATS = ["uint8", "float16", "float32", "float64", "bool"]


def operands(
    dtype: str, outer: int, extent: int, inner: int, ids: Array
) -> tuple[gather.RowGather, list[Array], Array]:
    """A gather on one axis, its operands with room for the output, and what the output should be."""
    random = np.random.default_rng(inner)
    kind = np.dtype(dtype)
    codes = random.integers(0, 256, outer * extent * inner * kind.itemsize, np.uint8)
    data = guard.array((codes % 2 if dtype == "bool" else codes).view(kind).reshape(outer, extent, inner))
    row = dtypes.of(kind)
    picked = gather.RowGather(row, outer, extent * inner, ids.size, inner, (extent,), (inner,))
    out = guard.empty((outer, ids.size, inner), kind)
    return picked, [data, guard.array(ids), guard.array(np.zeros(2, np.int64)), out], np.take(data, ids, axis=1)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
def test_gather_moves_bits(isa: Isa, dtype: str) -> None:
    for inner in (1, 2, 3, 15, 16, 17, 33):
        picked, arrays, due = operands(dtype, 2, 5, inner, np.array([4, 0, -1, -5, 2]))
        launch.run_plan(gather.plan(picked, isa, 2), arrays, threads=2)
        launch.assert_bits(arrays[3], due, (isa.name, inner))
        assert arrays[2].tolist() == [0, 0]


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_gather_on_aarch64(isa: Isa) -> None:
    for dtype in FORMATS:
        picked, arrays, due = operands(dtype, 2, 5, 17, np.array([4, 0, -1]))
        aarch64.run_plan(gather.plan(picked, isa), arrays)
        launch.assert_bits(arrays[3], due, dtype)


@pytest.mark.parametrize("index", [5, -6, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
def test_an_index_out_of_range_is_reported(isa: Isa, index: int) -> None:
    picked, arrays, _ = operands("float32", 1, 5, 3, np.zeros(2, np.int64))
    arrays[1][1] = index
    launch.run_plan(gather.plan(picked, isa), arrays)
    assert arrays[2].tolist() == [1, index]
    assert np.array_equal(launch.bits(arrays[3][0, 1]), launch.bits(arrays[0][0, 0]))


@pytest.mark.parametrize(("outer", "inner"), [(0, 3), (2, 0), (0, 0)])
@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
def test_an_index_out_of_range_is_reported_where_nothing_is_gathered(isa: Isa, outer: int, inner: int) -> None:
    for index in (4, 5):
        picked, arrays, _ = operands("float32", outer, 5, inner, np.array([0, -5, 0]))
        arrays[1][2] = index
        launch.run_plan(gather.plan(picked, isa, 2), arrays, threads=2)
        assert arrays[2].tolist() == ([1, 5] if index == 5 else [0, 0])


@pytest.mark.parametrize("isa", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_several_columns_of_indices(isa: Isa) -> None:
    data = guard.array(np.arange(60, dtype=np.float32).reshape(3, 4, 5))
    ids = guard.array(np.array([[0, 3], [-1, -4], [1, 1]]))
    out = guard.empty((3, 5), np.float32)
    picked = gather.RowGather(dtypes.float32, 1, 0, 3, 5, (3, 4), (20, 5))
    launch.run_plan(gather.plan(picked, isa), [data, ids, guard.array(np.zeros(2, np.int64)), out])
    launch.assert_bits(out, data[tuple(ids.T)], isa.name)


def test_new_extents_need_no_new_kernels() -> None:
    """But for rows of one element."""
    isa = rows.PLANNED
    sizes = itertools.product((1, 2), (0, 1, 1000), (0, 1, 15, 16, 17, 100000), (1, 5))
    known = {
        step.spec
        for outer, count, inner, extent in sizes
        for step in gather.plan(
            gather.RowGather(dtypes.float32, outer, extent * inner, count, inner, (extent,), (inner,)), isa
        ).steps
        if step.tasks
    }
    assert {spec.description.single for spec in known} == {False, True}
    assert len(known) == 2
