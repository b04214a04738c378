"""Segments computed apart and joined by plain adds have the bits of one product, for 1, 2, 4 and 8 workers."""

from __future__ import annotations

from typing import Any

import gemm_cases
import ml_dtypes
import numpy as np
import pytest
from launch import assert_bits
from rows import COMPILED_ROWS

import samebits as sb
from samebits import dtypes, ieee
from samebits.codegen.isa import Isa
from samebits.kernels.gemm import reference

Array = np.ndarray[Any, np.dtype[Any]]
SPEC = sb.Spec(segments=8)
KS = (0, 1, 100, 700, 1024, 1300, 3072)


def join(parts: list[Array]) -> Array:
    """The binary tree of numerics.md section 2, by NumPy's adds."""
    while len(parts) > 1:
        with np.errstate(all="ignore"):
            parts = [ieee.canonical(x + y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def shares(k: int, workers: int) -> list[list[tuple[int, int]]]:
    """The segments of each worker."""
    bounds, each = list(SPEC.bounds(k)), 8 // workers
    return [bounds[i : i + each] for i in range(0, 8, each)]


def apart(a: Array, b: Array, workers: int) -> Array:
    """Each worker's segments as products of their own; then the join of what the workers send."""
    sent = [
        join([sb.matmul(a[:, low:high], b[low:high], out_dtype=np.float32) for low, high in mine])
        for mine in shares(a.shape[1], workers)
    ]
    return join(sent)


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_workers_that_sum_segments_apart_have_the_bits_of_one_product(isa: Isa, kind: Any) -> None:
    for k in KS if kind is np.float32 else KS[4:]:
        a, b = (gemm_cases.values(dtypes.of(kind), *shape) for shape in ((5, k), (k, 35)))
        due = reference(a, b, spec=SPEC)
        with sb.use_isa(isa):
            whole = sb.matmul(a, b, spec=SPEC, out_dtype=np.float32)
            assert_bits(whole, due)
            for workers in (1, 2, 4, 8):
                assert_bits(apart(a, b, workers), whole, (k, workers))


@pytest.mark.parametrize("b_dtype", ["bfloat16", "int8"])
def test_segments_that_are_empty_take_no_part_of_a_word(b_dtype: str) -> None:
    for k in (3, 129):
        a, b = (gemm_cases.values(dtypes.of(x), *s) for x, s in (("bfloat16", (9, k)), (b_dtype, (k, 35))))
        for spec in (SPEC, sb.Spec(32, 4)):
            for rows in (2, 9):  # streamed, and in panels
                due = reference(a[:rows], b, spec=spec)
                assert_bits(sb.matmul(a[:rows], b, spec=spec, out_dtype=np.float32), due, (k, spec, rows))


def test_a_worker_may_let_one_product_join_its_segments_where_they_are_equally_long() -> None:
    for k in (1024, 3072):
        a, b = gemm_cases.values(dtypes.float32, 5, k), gemm_cases.values(dtypes.float32, k, 35)
        whole = sb.matmul(a, b, spec=SPEC)
        for workers in (1, 2, 4, 8):
            mine = sb.Spec(segments=8 // workers)
            cuts = [slice(s[0][0], s[-1][1]) for s in shares(k, workers)]
            assert_bits(join([sb.matmul(a[:, cut], b[cut], spec=mine) for cut in cuts]), whole, (k, workers))
    # Not so where K ends inside a worker's share: what is left of K would be cut anew.
    a, b = gemm_cases.values(dtypes.float32, 5, 1300), gemm_cases.values(dtypes.float32, 1300, 35)
    last = shares(1300, 2)[1]
    assert [high - low for low, high in last] == [256, 20, 0, 0]
    assert [high - low for low, high in sb.Spec(segments=4).bounds(276)] == [128, 128, 20, 0]


def test_no_part_is_minus_zero_and_no_join_makes_one() -> None:
    a, b = np.full((3, 1300), -0.0, np.float32), np.ones((1300, 4), np.float32)
    a[1, 1000], a[1, 0], a[2, 5], a[2, 700] = 2.0**-149, -(2.0**-149), np.inf, -np.inf
    parts = [sb.matmul(a[:, low:high], b[low:high]) for low, high in SPEC.bounds(1300)]
    assert not any(np.signbit(part[part == 0]).any() for part in parts)
    whole = sb.matmul(a, b, spec=SPEC)
    assert whole.view(np.uint32)[0].tolist() == [0] * 4
    assert whole.view(np.uint32)[1].tolist() == [0] * 4
    assert whole.view(np.uint32)[2].tolist() == [0x7FC00000] * 4
    for workers in (1, 2, 4, 8):
        assert_bits(apart(a, b, workers), whole, workers)
        # The last addition of section 2 step 3 changes nothing more.
        assert_bits(apart(a, b, workers) + np.float32(0), whole, workers)
    assert_bits(join([sb.add(x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]), whole)
