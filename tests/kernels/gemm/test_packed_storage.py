"""Operands of fewer than 8 bits an element, packed within bytes: products have the bits of their values' product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch import assert_bits
from narrow import KEYS, NARROW, draw
from rows import PRODUCT_ROWS

import samebits as sb
from samebits import dtypes
from samebits.dtypes import DType
from samebits.kernels.gemm import reference

Array = np.ndarray[Any, np.dtype[Any]]


def expected(a: Array, b: Array) -> Array:
    """The product of values: of Python's integers as int32, of floats by the reference."""
    return (a @ b).astype(np.int32) if a.dtype == object else reference(a, b)


def result(x: Any) -> Array:
    return np.asarray(x.numpy() if isinstance(x, sb.Tensor) else x)


@pytest.mark.parametrize("isa", PRODUCT_ROWS, ids=lambda row: row.name)
def test_every_narrow_format_on_every_row(isa: Any) -> None:
    with sb.use_isa(isa):
        for dtype in NARROW if isa is PRODUCT_ROWS[-2] else (dtypes.int4, dtypes.float6_e2m3fn):
            (a, x), (w, y) = draw(dtype, 5, 37), draw(dtype, 19, 37, seed=1)
            due = expected(x, y.T)
            assert_bits(result(sb.linear(a, w)), due, dtype)
            if dtype is dtypes.int4:
                assert_bits(result(sb.linear(a, sb.pack(w.T))), due, dtype)


@pytest.mark.parametrize("dtype", [dtypes.int4, dtypes.float6_e3m2fn], ids=lambda row: row.name)
def test_slices_at_any_bit_with_any_strides(dtype: DType) -> None:
    a, x = draw(dtype, 9, 41)
    w, y = draw(dtype, 41, 23, seed=1)
    for key in KEYS:
        columns = (key[1], slice(1, None))
        due = expected(x[key], y[columns])
        assert_bits(result(sb.matmul(a[key], w[columns])), due, key)
        assert_bits(result(sb.matmul(a[key], sb.pack(w[columns]))), due, key)
    # The same shapes, strides and options from other bits of a byte: nothing is remembered of the first call.
    for start in (0, 1, 2, 3, 1):
        part = slice(start, start + 20)
        assert_bits(result(sb.matmul(a[:, part], w[part])), expected(x[:, part], y[part]), start)


def test_either_operand_beside_bytes() -> None:
    eight = np.random.default_rng(0).integers(-128, 128, (7, 50)).astype(np.int8)
    w, y = draw(dtypes.uint4, 50, 33)
    due = (eight.astype(object) @ y).astype(np.int32)
    assert_bits(sb.matmul(eight, w), due)
    assert_bits(sb.matmul(eight, sb.pack(w, left="int8")), due)
    assert_bits(result(sb.matmul(w.T, eight.T)), due.T.copy())
    assert_bits(sb.matmul(eight, w, threads=2), due)
    half = eight.astype(np.float32)
    f, z = draw(dtypes.float4_e2m1fn, 50, 33)
    assert_bits(sb.matmul(half, f), reference(half, z))


def test_weights_beside_floats() -> None:
    a, scale = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((5, 64), (2, 19)))
    (w, y), (z, zeros) = draw(dtypes.int4, 19, 64), draw(dtypes.int4, 19, 2, seed=1)
    values = y.T.astype(np.float32)
    assert_bits(sb.matmul(a, w.T), reference(a, values))
    assert_bits(sb.matmul(a, sb.pack(w.T, left="float32")), reference(a, values))
    moved = values - np.repeat(zeros.T.astype(np.float32), 32, 0)
    due = reference(a, moved, b_scale=scale, b_block=32)
    assert_bits(sb.matmul(a, w.T, b_scale=scale, b_zero_point=z.T, b_group=32), due)


def test_batches_and_repeated_operands() -> None:
    (a, x), (w, y) = draw(dtypes.int4, 3, 2, 5, 21), draw(dtypes.int2, 2, 21, 11, seed=1)
    assert_bits(result(sb.matmul(a, w)), expected(x, y))
    assert_bits(result(sb.matmul(a, sb.pack(w))), expected(x, y))
    assert_bits(result(sb.matmul(a[:, :1], w)), expected(x[:, :1], y))
    assert_bits(result(sb.matmul(a[2, 1], w[::-1])), expected(x[2, 1], y[::-1]))
    one = a[0, 0, :1, 3:14].broadcast_to((4, 6, 11))
    assert_bits(
        result(sb.matmul(one, w[0, 3:14])), expected(np.broadcast_to(x[0, 0, :1, 3:14], (4, 6, 11)), y[0, 3:14])
    )
    assert "unpacked to 11 bytes" in str(sb.plan_matmul(one, w[0, 3:14]))
    # Blocks of rows that are wide enough to be turned by slabs.
    (a, x), (w, y) = draw(dtypes.int4, 2, 70, 130), draw(dtypes.int4, 2, 130, 67, seed=1)
    assert_bits(
        result(sb.matmul(w.transpose(1, 2)[:, ::-1], a.transpose(1, 2))),
        expected(y.transpose(0, 2, 1)[:, ::-1], x.transpose(0, 2, 1)),
    )


def test_extents_of_nothing() -> None:
    for m, k, n in ((0, 5, 3), (3, 0, 5), (3, 5, 0), (1, 1, 1)):
        (a, x), (w, y) = draw(dtypes.int4, m, k), draw(dtypes.int4, k, n, seed=1)
        due = expected(x, y) if k else np.zeros((m, n), np.int32)
        assert_bits(result(sb.matmul(a, w)), due, (m, k, n))
        assert_bits(result(sb.matmul(a, sb.pack(w))), due, (m, k, n))


def test_gradients_of_packed_floats() -> None:
    dtype = dtypes.float4_e2m1fn
    (x, xs), (dy, dys), (w, ws) = draw(dtype, 7, 13), draw(dtype, 7, 9, seed=1), draw(dtype, 9, 13, seed=2)
    assert_bits(result(sb.grad_input(dy, w)), reference(dys, ws))
    assert_bits(result(sb.grad_weight(x, dy)), reference(dys.T, xs))
    assert_bits(result(sb.grad_bias(dy)), reference(np.ones((1, 7), np.float32), dys)[0])
    kept = np.ones((9, 13), np.float32)
    sb.grad_weight(x[:, 1:], dy, out=kept[:, 1:])
    assert_bits(kept[:, 1:].copy(), reference(dys.T, xs[:, 1:]) + np.float32(1))
    assert (kept[:, 0] == 1).all()


def test_zero_points_are_of_the_operands_dtype() -> None:
    (a, x), (w, y), (z, zeros) = draw(dtypes.int4, 5, 40), draw(dtypes.uint4, 40, 9), draw(dtypes.uint4, 9, seed=3)
    for _ in range(2):
        assert_bits(result(sb.matmul(a, w, b_zero_point=z)), expected(x, y - zeros))
        z, zeros = z[::-1], zeros[::-1]
    assert_bits(result(sb.matmul(a, w, a_zero_point=-8, b_zero_point=15)), expected(x + 8, y - 15))
    with pytest.raises(sb.DTypeError) as caught:
        sb.matmul(a, w, b_zero_point=np.zeros(9, np.uint8))
    assert str(caught.value) == "matmul: b_zero_point dtype is uint8, must be uint4; convert it first"


def test_unpacking_is_a_step_of_the_plan() -> None:
    (a, x), (w, y) = draw(dtypes.int4, 6, 40), draw(dtypes.int4, 30, 40, seed=1)
    plan = sb.plan_matmul(a, w.T)
    text = str(plan)
    assert "a: int4 within bytes, unpacked to 240 bytes" in text
    assert "b: int4 within bytes, unpacked to 1200 bytes" in text
    assert "step 0: kernels.narrow_text.text" in text
    plain = sb.plan_matmul(sb.to_padded(a), sb.to_padded(w).T)
    assert len(plan.steps) == len(plain.steps) + 2
    assert plan.workspace_bytes == -(-plain.workspace_bytes // 64) * 64 + 256 + 1216
    assert_bits(result(sb.matmul(a, w.T, plan=plan)), expected(x, y.T))
    with pytest.raises(sb.PlanError):
        sb.matmul(a[:, 1:], w.T[1:], plan=plan)


def test_packed_results_are_refused() -> None:
    a, w = (draw(dtypes.int4, 4, 4, seed=seed)[0] for seed in (0, 1))
    cases: list[tuple[Any, type[Exception], str]] = [
        (
            lambda: sb.matmul(a, w, out=sb.Tensor.zeros((4, 4), "int4")),
            sb.DTypeError,
            "matmul: out dtype is int4, must be int32; convert it first",
        ),
        (
            lambda: sb.matmul(a, w, out_dtype="int4"),
            sb.OptionError,
            "matmul: out_dtype is int4, must be int32 or int64 or float32 or bfloat16 or float16; leave it out",
        ),
    ]
    memory = np.zeros(64, np.uint8)
    over = sb.Tensor.from_buffer(memory, "int4", (4, 4), offset=3)
    cases.append((
        lambda: sb.matmul(over, w, out=sb.Tensor.from_buffer(memory, "int32", (4, 4))),
        sb.LayoutError,
        "matmul: out memory is that of an operand, must be its own; leave out= away",
    ))  # fmt: skip
    for call, kind, text in cases:
        with pytest.raises(kind) as caught:
            call()
        assert str(caught.value) == text
