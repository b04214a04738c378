"""Scans: on every row, for every layout, the reference's bits; those of torch for integers, near float64 for floats."""

import guard
import launch
import ml_dtypes
import numpy as np
import pytest
import rows
import torch

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import scan
from samebits.kernels.scan import Scan, ScanKind

EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)


def check(kind: ScanKind, x: np.ndarray, axis: int, row: Isa, threads: int = 1) -> np.ndarray:
    """The results by a kernel, which are the reference's."""
    one = Scan(kind, dtypes.of(x.dtype))
    due = scan.reference(one, x, axis)
    out = guard.empty(due.shape, due.dtype)
    plan = scan.plan(one, *launch.layouts(x, out), axis, row, threads)
    launch.run_plan(plan, [x, out], threads)
    launch.assert_bits(out, due, (kind, x.dtype, x.shape, row.name))
    return due


@EVERY_ROW
def test_scans_of_every_layout(row: Isa) -> None:
    random = np.random.default_rng(1)
    for shape, axis in (((1,), 0), ((3, 37), 1), ((3, 37), 0), ((2, 5, 3), 1), ((0, 3), 0), ((3, 0), 0)):
        x = random.standard_normal(shape).astype(np.float32)
        for view in (x, x[::-1], np.asfortranarray(x)):
            check("sum", guard.array(view) if view is x else view, axis, row, 2)


@EVERY_ROW
def test_special_values(row: Isa) -> None:
    nan = np.array([0xFFC12345], np.uint32).view(np.float32)[0]
    x = np.array([[-0.0, -0.0, 0.0, 3e38, 3e38, -np.inf, 1], [nan, 1, 2, 0.0, -0.0, np.inf, 1]], np.float32)
    assert np.signbit(check("sum", x, 1, row)[0, :2]).all()
    assert not np.signbit(check("max", x[:, 1:4], 1, row)[0, 1])
    for one in (x, x.T.copy(), x[::-1, ::-1]):
        check("sum", one, 1, row)


@EVERY_ROW
def test_scans_of_other_formats(row: Isa) -> None:
    random = np.random.default_rng(2)
    for kind in (np.int8, np.uint64, bool, ml_dtypes.bfloat16) if row.compiled else (np.int16, np.float64):
        x = (random.standard_normal((5, 21)) * 40).astype(np.int64).astype(kind)
        check("sum", x, 1, row)
        check("min", x, 0, row)


def test_scans_are_those_of_torch_and_near_those_of_float64() -> None:
    random = np.random.default_rng(3)
    x = random.integers(-9, 9, (4, 50))
    given = torch.from_numpy(x)
    for kind, theirs in (("sum", torch.cumsum), ("prod", torch.cumprod), ("max", torch.cummax), ("min", torch.cummin)):
        due = theirs(given, 1)
        found = scan.reference(Scan(kind, dtypes.int64), x, 1)  # type: ignore[arg-type]
        assert np.array_equal(found, (due if isinstance(due, torch.Tensor) else due.values).numpy())
    y = random.uniform(0, 1, (3, 1000)).astype(np.float32)
    exact = np.cumsum(y.astype(np.float64), axis=1)
    assert np.abs(scan.reference(Scan("sum", dtypes.float32), y, 1) / exact - 1).max() < 1000 * 2.0**-24
    half = y.astype(np.float16)
    wide = scan.reference(Scan("sum", dtypes.float32), half.astype(np.float32), 1)
    assert np.array_equal(scan.reference(Scan("sum", dtypes.float16), half, 1), wide.astype(np.float16))
