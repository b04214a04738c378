"""K shared by tasks: chunks summed apart and joined in order have the bits of one task's sum."""

from __future__ import annotations

import math
from typing import Any

import gemm_cases
import numpy as np
import pytest
from launch import assert_bits
from rows import PRODUCT_ROWS, rows_of_engines

import samebits as sb
from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels.gemm import reference
from samebits.kernels.gemm.reference import integers
from samebits.kernels.plan import SMALL

Array = np.ndarray[Any, np.dtype[Any]]
THREADS = 4


def parts(plan: sb.Plan) -> int:
    """In how many parts tasks share K."""
    order = dict(plan.facts)["order"]
    return int(order.split(" in ")[1].split()[0]) if "share K" in order else 1


@pytest.fixture(autouse=True)
def _any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products take as many threads as they are given."""
    monkeypatch.setitem(SMALL, "products", 1)


@pytest.mark.parametrize(
    ("dtype", "isa"),
    [(x, row) for x in (dtypes.float32, dtypes.bfloat16, dtypes.float64) for row in rows_of_engines(x, x)],
    ids=lambda x: x.name,
)
def test_chunks_that_tasks_share_have_the_bits_of_the_reference(dtype: dtypes.DType, isa: Isa) -> None:
    wide = "float64" if dtype is dtypes.float64 else "float32"
    for m, k, n in ((1, 1025, 3), (3, 700, 17), (12, 513, 9)):
        a, b = gemm_cases.values(dtype, m, k), gemm_cases.values(dtype, k, n, seed=1)
        bias = gemm_cases.values(dtypes.of(wide), n, seed=2)
        due = reference(a, b, bias=bias)
        with sb.use_isa(isa):
            for right in (b, np.ascontiguousarray(b.T).T, sb.pack(b)):
                plan = sb.plan_matmul(a, right, bias=bias, out_dtype=wide, threads=THREADS)
                enough = n > 3 and parts(plan) == 1  # panels or micropanels, where registers are narrow
                assert enough or parts(plan) == math.ceil(k / 128), plan
                assert_bits(sb.matmul(a, right, bias=bias, out_dtype=wide, plan=plan), due, (m, k, n))


@pytest.mark.parametrize("isa", PRODUCT_ROWS, ids=lambda row: row.name)
def test_integers_share_k_unless_all_columns_must_be_summed(isa: Isa) -> None:
    k = 200_000
    for left, zeros in (("uint8", {}), ("int8", {}), ("uint8", {"b_zero_point": -3}), ("uint8", {"a_zero_point": 7})):
        a, b = gemm_cases.values(dtypes.of(left), 2, k), gemm_cases.values(dtypes.int8, k, 5, seed=1)
        with sb.use_isa(isa):
            plan = sb.plan_matmul(a, sb.pack(b, left=left), threads=THREADS, **zeros)
            assert parts(plan) == 1 if "a_zero_point" in zeros else parts(plan) in (1, *range(4, 9)), plan
            got = sb.matmul(a, sb.pack(b, left=left), threads=THREADS, **zeros)
        due = integers(a, b, zeros.get("a_zero_point", 0), zeros.get("b_zero_point", 0))
        assert_bits(got, due.astype(got.dtype), (left, zeros))


def test_the_interpreter_joins_what_its_tasks_share() -> None:
    a, b = gemm_cases.values(dtypes.float32, 2, 300), gemm_cases.values(dtypes.float32, 300, 3, seed=1)
    with sb.use_isa("numpy"):
        plan = sb.plan_matmul(a, b, threads=3)
        assert parts(plan) == 3
        assert_bits(sb.matmul(a, b, plan=plan), reference(a, b))


def test_gradients_of_many_rows_share_them() -> None:
    x, dy, old = (gemm_cases.values(dtypes.float32, *shape) for shape in ((2000, 9), (2000, 5), (5, 9)))
    for start in (None, old):
        due = sb.grad_weight(x, dy, out=None if start is None else start.copy(), threads=1)
        got = sb.grad_weight(x, dy, out=None if start is None else start.copy(), threads=THREADS)
        assert_bits(got, due)


def test_what_has_tasks_enough_keeps_k_whole() -> None:
    a, b = np.zeros((512, 512), np.float32), np.zeros((512, 512), np.float32)
    assert parts(sb.plan_matmul(a, b, threads=2)) == 1
    # Sums of chunks that would take more than they save stay together too: 64 MB here.
    a, b = (np.broadcast_to(np.float32(0), shape) for shape in ((384, 1 << 20), (1 << 20, 32)))
    assert parts(sb.plan_matmul(a, b, threads=2, out=np.empty((384, 32), np.float32))) == 1
