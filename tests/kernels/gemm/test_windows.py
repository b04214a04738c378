"""Products whose right operand is the windows of an image have the bits of those with these windows as columns."""

from __future__ import annotations

import functools
import math
from typing import Any

import aarch64
import gemm_run
import guard
import numpy as np
import pytest
from rows import AARCH64_ROWS, ALL_ROWS

from samebits.codegen.isa import Isa
from samebits.kernels import gemm
from samebits.kernels.gemm.contraction import SB1, Contraction, Matrix, Side, Spec, Windows

Array = np.ndarray[Any, np.dtype[Any]]
# Filters, channels, extents of an image and of a kernel.
CASES = [(7, 20, (9, 11), (3, 3)), (14, 3, (4, 21), (2, 3)), (2, 0, (6, 7), (3, 3)), (13, 3, (4, 5, 6), (2, 1, 3))]


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def lying(image: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[Windows, int]:
    """How windows lie that slide along all of a dense image, and how many there are."""
    steps = [math.prod(image[axis + 1 :]) for axis in range(len(image))]
    out = [n - k + 1 for n, k in zip(image, kernel, strict=True)]
    looks = [int(np.dot(place, steps)) for place in np.ndindex(kernel)]
    rows = list(zip(out[:-1], steps[:-1], strict=True))[::-1]
    return Windows(out[-1], tuple(rows), math.prod(image), tuple(looks)), math.prod(out)


@functools.cache
def case(number: int) -> tuple[Array, Array, Array, Array]:
    """Weights, an image with NaN behind it, its windows as columns, and what a result is added to."""
    filters, channels, image, kernel = CASES[number]
    x = drawn(channels, *image, seed=1)
    axes = tuple(range(1, x.ndim))
    seen = np.lib.stride_tricks.sliding_window_view(x, kernel, axes)
    order = (0, *range(x.ndim, seen.ndim), *axes)
    columns = seen.transpose(order).reshape(channels * math.prod(kernel), math.prod(seen.shape[1 : x.ndim]))
    behind = guard.array(np.append(x, np.full(64, np.nan, np.float32)))
    return guard.array(drawn(filters, len(columns))), behind, columns, drawn(filters, columns.shape[1], seed=2)


def product(number: int, isa: Isa, *, accumulates: bool, spec: Spec, run: Any = gemm_run.execute) -> Array:
    filters, channels, image, kernel = CASES[number]
    a, x, _, before = case(number)
    windows, n = lying(image, kernel)
    k, out = channels * math.prod(kernel), guard.array(before)
    sides = Side(Matrix(k, 1)), Side(Matrix(0, 1, windows=windows)), Side(Matrix(n, 1))
    run(gemm.plan(Contraction(filters, n, k, *sides, spec=spec, accumulates=accumulates), isa, 1), [a, x, out])
    return out


@pytest.mark.parametrize("spec", [SB1, Spec(chunk=7), Spec(chunk=4096)], ids=str)
@pytest.mark.parametrize("isa", ALL_ROWS, ids=lambda row: row.name)
def test_windows_are_columns(isa: Isa, spec: Spec) -> None:
    """Also where sums start from what out holds."""
    for number in range(len(CASES)):
        a, _, columns, before = case(number)
        due = gemm.reference(a, columns, spec=spec)
        assert gemm_run.same(product(number, isa, accumulates=False, spec=spec), due), number
        made = before.copy()
        (m, k), n = a.shape, columns.shape[1]
        sides = Side(Matrix(k, 1)), Side(Matrix(n, 1)), Side(Matrix(n, 1))
        c = Contraction(m, n, k, *sides, spec=spec, accumulates=True)
        gemm_run.execute(gemm.plan(c, isa, 1), [a, np.ascontiguousarray(columns), made])
        assert gemm_run.same(product(number, isa, accumulates=True, spec=spec), made), number


@pytest.mark.parametrize("isa", AARCH64_ROWS, ids=lambda row: row.name)
def test_windows_are_columns_on_aarch64(isa: Isa) -> None:
    for number in range(len(CASES)):
        a, _, columns, _ = case(number)
        found = product(number, isa, accumulates=False, spec=SB1, run=aarch64.run_plan)
        assert gemm_run.same(found, gemm.reference(a, columns)), number
