"""Scatter moves bits on every row, beside forbidden pages, row after row; the first wrong index is reported."""

from __future__ import annotations

import math
from typing import Any

import aarch64
import guard
import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import scatter

Array = np.ndarray[Any, Any]
# Two rows for one place, of which the second stays.
IDS = np.array([[2, 3], [-1, 0], [-3, -4], [2, -1]])


def operands(dtype: str, inner: int, ids: Array) -> tuple[list[Array], Array]:
    """Data [3, 4, inner], ids, updates, status and room for the output; and what NumPy makes of them, row by row."""
    kind, random = np.dtype(dtype), np.random.default_rng(inner)
    made = [
        random.integers(0, 2, math.prod(shape) * kind.itemsize, np.uint8).view(kind).reshape(shape)
        for shape in ((3, 4, inner), (len(ids), inner))
    ]
    due = made[0].copy()
    for place, row in zip(ids, made[1], strict=True):
        due[tuple(place % (3, 4))] = row
    data, updates = map(guard.array, made)
    return [data, guard.array(ids), updates, guard.array(np.zeros(2, np.int64)), guard.empty(due.shape, kind)], due


def plan(dtype: str, inner: int, count: int, isa: Isa) -> Any:
    lies = ((3, 4, inner), (4 * inner, inner, 1))
    return scatter.plan(dtypes.of(np.dtype(dtype)), lies, lies, 2, count, isa, 2)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "bool"])
@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
def test_scatter_moves_bits(isa: Isa, dtype: str) -> None:
    for inner in (1, 3, 16, 17):
        arrays, due = operands(dtype, inner, IDS)
        launch.run_plan(plan(dtype, inner, len(IDS), isa), arrays, threads=2)
        launch.assert_bits(arrays[4], due, (isa.name, inner))
        assert arrays[3].tolist() == [0, 0]


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_scatter_on_aarch64(isa: Isa) -> None:
    arrays, due = operands("float16", 17, IDS)
    aarch64.run_plan(plan("float16", 17, len(IDS), isa), arrays)
    launch.assert_bits(arrays[4], due, isa.name)


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
def test_the_first_index_out_of_range_is_reported(isa: Isa) -> None:
    for inner in (0, 5):
        for index in (4, -5, 2**63 - 1, -(2**63)):
            arrays, _ = operands("float32", inner, IDS)
            arrays[1][1, 1], arrays[1][3, 0] = index, 3
            launch.run_plan(plan("float32", inner, len(IDS), isa), arrays, threads=2)
            assert arrays[3].tolist() == [2 + 3, index]
