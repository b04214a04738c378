"""Eager reductions on every format: their float32 rows rounded once, exact sums of integers, refusals by name."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from formats import nearest

import samebits as sb
from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError

Array = np.ndarray[Any, Any]
NARROW = tuple(row for row in dtypes.ROWS if row.is_float and 8 <= row.width_bits < 32 and row.has_zero)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.name)
def test_rows_of_narrow_floats_are_those_of_float32_rounded(dtype: DType) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (6, 50)).astype(dtype.numpy)
    wide = x.astype(np.float32)
    weight = x[0]
    pairs = [(function(x, axis=1), function(wide, axis=1)) for function in (sb.sum, sb.mean, sb.max, sb.min)]
    pairs += [(sb.softmax(x, axis=0), sb.softmax(wide, axis=0)), (sb.layer_norm(x), sb.layer_norm(wide))]
    pairs.append((sb.layer_norm(x, weight, weight), sb.layer_norm(wide, wide[0], wide[0])))
    for found, due in pairs:
        assert found.dtype == dtype.numpy
        code = nearest(due.astype(np.float64), dtype)
        assert np.array_equal(found.view(code.dtype), code)


def test_float64_rows_are_computed_in_float64() -> None:
    x = np.random.default_rng(1).normal(size=(4, 100))
    # Each rounding of a sum errs by at most 2**-53 of the sum of magnitudes, here and, in another order, in NumPy.
    step = 2 * 2.0**-53 * np.abs(x)
    assert (np.abs(sb.sum(x, axis=1) - x.sum(1)) <= 100 * step.sum(1)).all()
    assert np.abs(sb.mean(x) - x.mean()) <= 400 * step.mean()
    assert np.array_equal(sb.max(x, axis=0), x.max(0))
    theirs = torch.nn.functional.layer_norm(torch.from_numpy(x), (100,)).numpy()
    # The mean and the variance of numbers near 1 each err so here and in torch, and both move a result, of at most 4.
    assert np.abs(sb.layer_norm(x) - theirs).max() <= 4 * 4 * 100 * 2.0**-53


def test_integers_and_bools_sum_exactly() -> None:
    for dtype in (row for row in dtypes.ROWS if row.width_bits >= 8 and not row.is_float):
        low, high = int(dtype.min) // 200, int(dtype.max) // 200
        x = np.random.default_rng(2).integers(low, high, (100, 3), endpoint=True).astype(dtype.numpy)
        total = sb.sum(x, axis=0)
        assert total.dtype == (np.uint64 if dtype is dtypes.uint64 else np.int64)
        assert [int(v) for v in total] == [sum(map(int, column)) for column in x.T]
        assert sb.max(x).dtype == x.dtype
        assert sb.max(x) == x.max()
        assert sb.min(x, axis=1).tolist() == x.min(axis=1).tolist()


def test_products_are_those_of_python_and_near_those_of_float64() -> None:
    for dtype in (row for row in dtypes.ROWS if row.width_bits >= 8 and row.is_integer):
        x = np.random.default_rng(3).integers(max(-5, int(dtype.min)), 6, (70, 3), endpoint=True).astype(dtype.numpy)
        x[x == 0] = 3
        found, wrap = sb.prod(x, axis=0), 1 << 64
        assert found.dtype == (np.uint64 if dtype is dtypes.uint64 else np.int64)
        assert [int(v) % wrap for v in found] == [math.prod(map(int, column)) % wrap for column in x.T]
    y = np.random.default_rng(4).uniform(0.5, 1.5, (4, 300)).astype(np.float32)
    exact = np.prod(y.astype(np.float64), axis=1)
    assert np.abs(sb.prod(y, axis=1) / exact - 1).max() < 300 * 2.0**-24
    assert sb.prod(np.empty((2, 0), np.float32), axis=1).tolist() == [1, 1]


def test_variances_are_those_of_torch() -> None:
    x = np.random.default_rng(5).standard_normal((3, 4, 50)).astype(np.float32) + 3
    assert abs(x).max() < 8
    # Of numbers below 8 x - mean errs by 2 * 2**-22, and its square, which is about 1 in the mean, by twice that.
    for axis, correction in ((2, 0), ((0, 2), 1), (None, 1.5)):
        due = torch.var(torch.from_numpy(x).double(), axis, correction=correction).numpy()
        assert np.allclose(sb.var(x, axis, correction=correction), due, rtol=8 * 2.0**-22, atol=0)
    assert np.isnan(sb.var(x[:, :, :1], 2, correction=1.5)).all()  # 0 / 0


def test_what_a_row_does_not_take_is_refused_by_name() -> None:
    scales, x = np.ones(3, ml_dtypes.float8_e8m0fnu), np.ones(3, ml_dtypes.bfloat16)
    cases: dict[str, Any] = {
        "sum: x dtype is float8_e8m0fnu, must be any dtype with a zero; convert it first":
            lambda: sb.sum(scales),
        "mean: x dtype is int64, must be any float with a zero; convert it first":
            lambda: sb.mean(np.ones(3, int)),
        "softmax: x dtype is int64, must be any float with a zero; convert it first":
            lambda: sb.softmax(np.ones(3, int)),
        "layer_norm: weight dtype is float32, must be bfloat16; convert it first":
            lambda: sb.layer_norm(x, np.ones(3, np.float32)),
    }  # fmt: skip
    for sentence, call in cases.items():
        with pytest.raises(DTypeError) as refused:
            call()
        assert str(refused.value) == sentence
    assert sb.max(scales) == 1
