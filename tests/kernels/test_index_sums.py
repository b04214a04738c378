"""Sums of rows by index: every Isa row gives the bits of the NumPy reference, and writes nothing else."""

from __future__ import annotations

from typing import Any

import launch
import ml_dtypes
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import index_sums
from samebits.kernels.index_sums import IndexSums

BFLOAT16, FLOAT16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
Array = Any


def case(seed: int, kind: Any, count: int, places: int, columns: int, wide: int = 0) -> tuple[Array, Array]:
    """Rows of `wide` further elements, and indices of which some are no place."""
    r = np.random.default_rng(seed)
    x = r.standard_normal((count, columns + wide)).astype(np.float32).astype(kind)[:, :columns]
    if count and columns:
        x[0, 0], x[count // 2, columns - 1] = -0.0, np.nan
    return x, r.integers(-2, places + 2, count)


def described(x: Array, ids: Array, out: Array, is_onto: bool = False, **options: Any) -> IndexSums:
    steps = tuple(a.strides[0] // a.itemsize for a in (x, ids, out))
    options = {"left_out": -1, "chunk": 128} | options
    kinds = [dtypes.of(a.dtype) for a in (x, ids, out)]
    return IndexSums(*kinds, is_onto, False, len(x), len(out), x.shape[1], steps, **options)


def check(row: Isa, x: Array, ids: Array, out: Array, is_onto: bool = False, **options: Any) -> None:
    sums = described(x, ids, out, is_onto, **options)
    wide = out if out.itemsize >= 4 else np.zeros(out.shape, np.float32)
    with np.errstate(all="ignore"):
        due = index_sums.reference(x, ids, wide, sums).astype(out.dtype)
    for threads in (1, 3):
        room = np.array(out) if out.base is None else np.array(out.base)
        made = room if out.base is None else room[:, : out.shape[1]]
        before = room[:, out.shape[1] :].copy()
        launch.run_plan(index_sums.plan(sums, row, threads), [x, ids, made], threads)
        assert made.tobytes() == due.tobytes()
        assert room[:, out.shape[1] :].tobytes() == before.tobytes()


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: str(row.name))
@pytest.mark.parametrize("kind", [np.float32, np.float64, BFLOAT16, FLOAT16], ids=str)
@pytest.mark.parametrize(
    ("count", "places", "columns"), [(1, 1, 1), (40, 5, 16), (33, 300, 67), (300, 7, 3), (9, 4, 130)]
)
def test_the_bits_of_the_reference(row: Isa, kind: Any, count: int, places: int, columns: int) -> None:
    x, ids = case(count, kind, count, places, columns)
    check(row, x, ids, np.full((places, columns), 7, kind))
    check(row, x, ids.astype(np.int32), np.full((places, columns), 7, kind), left_out=0, chunk=16)
    check(row, x, ids, np.full((places, columns), 7, kind), chunk=64, block=32, chains=2)


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: str(row.name))
@pytest.mark.parametrize("kind", [np.float32, np.float64, BFLOAT16], ids=str)
def test_sums_go_on_from_rows_that_are_there(row: Isa, kind: Any) -> None:
    x, ids = case(1, kind, 150, 21, 70)
    out = np.random.default_rng(0).standard_normal((23, 77)).astype(np.float64 if kind is np.float64 else np.float32)
    out[:2], out[20:] = -0.0, -0.0  # where no row is for it, and where one is
    for table in (out, out[:, :70]):
        check(row, *((case(1, kind, 150, 21, 77)[0] if table is out else x), ids), table, True)
    check(row, x, ids, out[:, :70], True, chunk=32, block=32, chains=2, left_out=3)


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: str(row.name))
def test_rows_and_indices_lie_at_any_steps(row: Isa) -> None:
    x, ids = case(2, np.float32, 60, 8, 20, wide=5)
    for step in (slice(None), slice(None, None, -1), slice(1, 50, 7), slice(0, 0)):
        check(row, x[step], ids[step], np.ones((8, 20), np.float32))
    one = np.broadcast_to(x[3], (60, 20))
    check(row, one, np.broadcast_to(np.int64(5), 60), np.ones((8, 20), np.float32), chunk=7)


@pytest.mark.parametrize(("count", "places", "columns"), [(0, 3, 4), (4, 0, 4), (4, 3, 0), (0, 0, 0)])
def test_where_there_is_nothing(count: int, places: int, columns: int) -> None:
    for row in rows.COMPILED_ROWS:
        x, ids = case(0, np.float32, count, places, columns)
        check(row, x, ids, np.ones((places, columns), np.float32))
        check(row, x, ids, np.full((places, columns), -0.0, np.float32), True)


def test_many_places_and_one_place_of_many_rows() -> None:
    row = rows.COMPILED_ROWS[0]
    x, ids = case(3, np.float32, 700, 40_000, 5)
    check(row, x, ids, np.ones((40_000, 5), np.float32))
    check(row, x, np.zeros(700, np.int64), np.ones((2, 5), np.float32))


def test_a_plan_says_what_it_is_for() -> None:
    x, ids = case(0, np.float32, 10, 3, 5)
    plan = index_sums.plan(described(x, ids, np.ones((3, 5), np.float32)), rows.COMPILED_ROWS[0])
    assert plan.what == "sums of 10 rows of 5 float32 by index into 3 places"
    assert [step.spec.name for step in plan.steps] == [
        f"kernels.index_sums.text_{name}" for name in ("group", "clear", "add")
    ]
