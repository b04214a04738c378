"""Resampling: on every row the bits of what is summed up place by place, at the ends of memory that may be read."""

from __future__ import annotations

import functools
from collections.abc import Callable

import aarch64
import guard
import launch
import numpy as np
import pytest
import rows

from samebits import dtypes, ieee
from samebits.codegen.isa import Isa
from samebits.kernels import resample
from samebits.kernels.plan import Plan
from samebits.kernels.resample import Resampling

EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
F32 = np.float32
HERE = functools.partial(launch.run_plan, threads=2)
# Extents of columns before and after: the same, up and down, around vectors and windows.
COLUMNS = (
    (1, 1),
    (1, 40),
    (2, 3),
    (7, 15),
    (8, 17),
    (16, 16),
    (17, 70),
    (40, 21),
    (33, 16),
    (64, 16),
    (90, 21),
    (5, 4),
)


def places_of(extent: int, out: int, taken: int) -> np.ndarray:
    """Neighbours of where each output falls, clipped."""
    first = np.floor((np.arange(out) + 0.5) * (extent / out) - 0.5).astype(np.int64)
    return np.clip(first + np.arange(taken)[:, None] - (taken - 1) // 2, 0, extent - 1)


def one_by_one(x: np.ndarray, axis: int, places: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """One axis: each place of all outputs at once, without tables."""
    total = None
    for p, at in enumerate(places):
        part = np.take(x, at, axis)
        if weights is None:
            return part
        by = np.expand_dims(weights[p], tuple(range(1, x.ndim - axis)))
        by, zero = np.broadcast_to(by, part.shape), np.full(part.shape, -0.0, F32)
        total = ieee.canonical(ieee.fma(part, by, zero if total is None else total))
    assert total is not None
    return total


def check(
    row: Isa, x: np.ndarray, columns_out: int, taken: int, rows_out: int, rows_taken: int, weighed: bool,
    run: Callable[[Plan, list[np.ndarray]], None] = HERE,
) -> int:  # fmt: skip
    """The result by a kernel; the block that it had."""
    random = np.random.default_rng(columns_out)
    images, height, width = x.shape
    sides = [(width, columns_out, taken), *[(height, rows_out, rows_taken)] * (rows_taken > 0)]
    places = [places_of(*side) for side in sides]
    weights = [random.standard_normal(at.shape).astype(F32) if weighed else None for at in places]
    found = resample.tables(places[0], weights[0])
    assert found is not None
    block, operands = found
    given = [*operands, *(each for each in (places[1], weights[1]) if each is not None)] if rows_taken else [*operands]
    r = Resampling(dtypes.of(x.dtype), images, height, width, rows_out, columns_out, block, taken, rows_taken, weighed)
    due = x
    for axis, side in zip((2, 1)[: len(sides)][::-1], range(len(sides))[::-1], strict=True):
        due = one_by_one(due, axis, places[side], weights[side])
    launch.assert_bits(resample.reference(r, x, *given), due, "reference")
    out = guard.empty(due.shape, due.dtype)
    run(resample.plan(r, row, 2), [*(guard.array(each) for each in (x, *given)), out])
    launch.assert_bits(out, due, (r, row.name))
    return block


@EVERY_ROW
@pytest.mark.parametrize("weighed", [False, True])
def test_columns_and_rows_of_every_extent(row: Isa, weighed: bool) -> None:
    random, blocks = np.random.default_rng(3), set()
    for width, out in COLUMNS if row.compiled else COLUMNS[2:8:2]:
        x = random.standard_normal((2, 5, width)).astype(F32)
        for taken in (1, 2, 4) if weighed else (1,):
            blocks.add(check(row, x, out, taken, 5, 0, weighed))
            blocks.add(check(row, x, out, taken, 9, taken, weighed))
    if row.compiled:
        assert blocks == {4, 8, 16}
        # Many rows, so that several tasks share them.
        check(row, random.standard_normal((40, 7, 70)).astype(F32), 133, 1, 14, 1, weighed)


@pytest.mark.parametrize("row", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_rows_and_columns_on_aarch64(row: Isa) -> None:
    x = np.random.default_rng(4).standard_normal((2, 5, 33)).astype(F32)
    for columns_out, taken, weighed in ((70, 2, True), (16, 4, True), (61, 1, False)):
        check(row, x, columns_out, taken, 9, taken, weighed, aarch64.run_plan)


@EVERY_ROW
def test_moved_elements_keep_their_bits_and_computed_nan_are_canonical(row: Isa) -> None:
    codes = np.array(
        [0x7FC00001, 0xFFC00000, 0x7F800001, 0x7F800000, 0xFF800000, 1, 0x80000001, 0x80000000, 0, 0x7F7FFFFF]
    )
    x = np.resize(codes.astype(np.uint32), (1, 3, 37)).view(F32)
    check(row, x, 61, 1, 7, 1, False)
    for dtype in (np.int32, np.uint32):
        check(row, x.view(dtype), 61, 1, 3, 0, False)
    for taken in (1, 2):
        check(row, x, 61, taken, 7, taken, True)


def test_places_that_are_far_apart_have_no_tables() -> None:
    assert resample.tables(np.arange(0, 1000, 6)[None], None) is None
    found = resample.tables(np.arange(0, 1000, 5)[None], None)
    assert found is not None
    assert found[0] == 4


@EVERY_ROW
def test_nothing_is_made_of_no_images(row: Isa) -> None:
    for shape in ((0, 3, 5), (2, 0, 5)):
        x, found = np.empty(shape, F32), resample.tables(places_of(5, 7, 1), None)
        assert found is not None
        r = Resampling(dtypes.float32, shape[0], shape[1], 5, shape[1], 7, found[0], 1, 0, False)
        launch.run_plan(resample.plan(r, row), [x, *found[1], np.empty((*shape[:2], 7), F32)])
