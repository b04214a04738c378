"""Sorted places: on every row the reference's, which are torch's stable ones; for NaN and zeros too."""

import aarch64
import launch
import numpy as np
import pytest
import rows
import torch

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import order

EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)


def check(x: np.ndarray, axis: int, descending: bool, row: Isa, count: int | None = None) -> None:
    """The places by a kernel are those of the reference and of torch."""
    due = order.reference(x, axis, descending)
    theirs = torch.sort(torch.from_numpy(x.copy()), dim=axis, descending=descending, stable=True).indices.numpy()
    assert np.array_equal(due, theirs)
    due = due[(slice(None),) * axis + (slice(count),)]
    out = np.empty(due.shape, np.int64)
    plan = order.plan(dtypes.of(x.dtype), *launch.layouts(x, out), axis, descending, row, 2)
    launch.run_plan(plan, [x, out], 2)
    launch.assert_bits(out, due, (x.dtype, x.shape, row.name, descending))


@EVERY_ROW
@pytest.mark.parametrize("descending", [False, True])
def test_places_of_sorted_elements(row: Isa, descending: bool) -> None:
    random = np.random.default_rng(1)
    for shape, axis in (((1,), 0), ((3, 37), 1), ((37, 3), 0), ((2, 5, 3), 1), ((0, 3), 0), ((3, 0), 0), ((2, 128), 1)):
        x = np.rint(random.standard_normal(shape) * 4).astype(np.float32)
        check(x, axis, descending, row)
        check(x[::-1], axis, descending, row, (shape[axis] + 1) // 2)


@EVERY_ROW
@pytest.mark.parametrize("descending", [False, True])
def test_the_first_of_long_lines(row: Isa, descending: bool) -> None:
    """Few places of many: in order, the other way, in turns, of few values and of one, where candidates fill their room
    again and again, once or never."""
    random = np.random.default_rng(2)
    length = 1500 if row.compiled else 300
    ramp = np.arange(length, dtype=np.float32)
    lines = [ramp, -ramp, ramp * np.where(ramp % 2 == 0, 1, -1).astype(np.float32), ramp * 0, np.rint(ramp / 300)]
    lines += [random.standard_normal(length).astype(np.float32), np.where(ramp < 1200, np.float32(np.nan), ramp)]
    x = np.stack(lines)
    for count in (0, 1, 2, 5, 20, 100) if row.compiled else (1, 4):
        check(x, 1, descending, row, count)
        check(np.ascontiguousarray(x.T), 0, descending, row, count)
    if row.compiled:
        for dtype in (np.int8, np.int64):
            info = np.iinfo(dtype)
            check(np.resize(np.array([info.min, info.max, 0], dtype), (2, length)), 1, descending, row, 7)
            check(np.full((2, length), info.min, dtype), 1, descending, row, 7)
            check(np.full((2, length), info.max, dtype), 1, descending, row, 7)


@pytest.mark.parametrize("row", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_the_first_of_a_line_on_aarch64(row: Isa) -> None:
    x = np.rint(np.random.default_rng(3).standard_normal((3, 200)) * 40).astype(np.float32)
    for descending, count in ((False, 3), (True, 5), (True, 200)):
        due = order.reference(x, 1, descending)[:, :count]
        found = np.empty(due.shape, np.int64)
        plan = order.plan(dtypes.float32, *launch.layouts(x, found), 1, descending, row)
        aarch64.run_plan(plan, [x, found])
        launch.assert_bits(found, np.ascontiguousarray(due), (row.name, descending, count))


@EVERY_ROW
def test_zeros_are_equal_and_nan_is_above_all(row: Isa) -> None:
    x = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1, -1, np.nan, 0.0, 5e-324, -5e-324], np.float64)
    for dtype in (np.float64, np.float32) if row.compiled else (np.float64,):
        for descending in (False, True):
            check(x.astype(dtype), 0, descending, row)


@EVERY_ROW
def test_integers_at_their_ends(row: Isa) -> None:
    for dtype in (np.int8, np.int64, np.uint8) if row.compiled else (np.int64,):
        info = np.iinfo(dtype)
        check(np.array([0, info.max, info.min, 1, info.max, info.min, 3], dtype), 0, True, row)
    x = np.array([2**64 - 1, 0, 2**63, 2**63 - 1], np.uint64)
    assert order.reference(x, 0, False).tolist() == [1, 3, 2, 0]
    out = np.empty(4, np.int64)
    launch.run_plan(order.plan(dtypes.uint64, *launch.layouts(x, out), 0, False, row), [x, out])
    assert out.tolist() == [1, 3, 2, 0]
