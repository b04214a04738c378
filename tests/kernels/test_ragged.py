"""Sums of groups of rows: every Isa row gives the bits of the NumPy reference, and reads and writes nothing else."""

from __future__ import annotations

from typing import Any

import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import ragged


def case(seed: int, kind: Any, groups: int, columns: int) -> tuple[Any, Any, Any]:
    r = np.random.default_rng(seed)
    sizes = r.integers(0, 5, groups)
    x = r.standard_normal((17, columns)).astype(kind)
    if columns:
        x[3, 0], x[5, columns - 1] = -0.0, np.nan
    return x, r.integers(0, 17, sizes.sum()), np.r_[0, np.cumsum(sizes)].astype(np.int64)


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: str(row.name))
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("groups", "columns"), [(1, 1), (4, 16), (5, 17), (9, 3), (3, 0), (0, 4)])
def test_the_bits_of_the_reference(row: Isa, kind: Any, groups: int, columns: int) -> None:
    x, numbers, starts = case(groups, kind, groups, columns)
    expected = ragged.reference(x, numbers, starts)
    for threads in (1, 3):
        described = ragged.RaggedSum(dtypes.of(kind), len(numbers), groups, columns)
        out = np.full((groups, columns), 7, kind)
        launch.run_plan(ragged.plan(described, row, threads), [x, numbers, starts, out])
        assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: str(row.name))
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("groups", "columns"), [(1, 1), (4, 16), (5, 67), (9, 130), (3, 0)])
def test_sums_of_parts_are_added_onto_rows_that_are_there(row: Isa, kind: Any, groups: int, columns: int) -> None:
    r = np.random.default_rng(groups)
    sizes = r.integers(1, 4, groups)
    x, numbers, parts = case(groups, kind, int(sizes.sum()), columns)
    starts, targets = np.r_[0, np.cumsum(sizes)].astype(np.int64), r.permutation(groups + 3)[:groups]
    out = r.standard_normal((groups + 3, columns)).astype(kind)
    if columns:
        out[targets[0]] = -0.0
    expected = ragged.reference_onto(x, numbers, parts, starts, targets, out)
    for threads, most in ((1, groups), (3, groups + 9)):
        plan, found = ragged.plan_onto(ragged.RaggedOnto(dtypes.of(kind), most, columns), row, threads), out.copy()
        launch.run_plan(plan, [x, numbers, parts, starts, targets, np.array([groups]), found])
        assert found.tobytes() == expected.tobytes()


def test_an_empty_group_is_positive_zero() -> None:
    out = ragged.reference(np.ones((2, 3), np.float32), np.array([], np.int64), np.array([0, 0]))
    assert out.tobytes() == bytes(12)


def test_a_plan_says_what_it_is_for() -> None:
    described = ragged.RaggedSum(dtypes.float32, 10, 3, 5)
    assert ragged.plan(described, rows.COMPILED_ROWS[0]).what == "sums of 3 groups of float32 rows, 10 x 5"
    onto = ragged.RaggedOnto(dtypes.float32, 8, 5)
    assert ragged.plan_onto(onto, rows.COMPILED_ROWS[0]).what == "sums of at most 8 groups of float32 rows of 5"
