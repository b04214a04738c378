"""Scales and requantisation: products of quantised operands have the bits of numerics.md sections 2 and 3."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from rows import PRODUCT_ROWS

import samebits as sb
from samebits.kernels.gemm.reference import integers, reference

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32


def assert_bits(got: Any, due: Array, what: object = "") -> None:
    found = np.asarray(got)
    assert found.dtype == due.dtype, what
    assert found.shape == due.shape, what
    assert found.tobytes() == due.tobytes(), what


def drawn(kind: str, *shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, *shape])
    if kind.startswith(("int", "uint")):
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max + 1, shape).astype(kind)
    return rng.standard_normal(shape).astype(sb.dtypes.of(kind).numpy)


def scales(*shape: int, seed: int = 0) -> Array:
    """Positive float32 of many magnitudes."""
    rng = np.random.default_rng([seed, 7, *shape])
    return np.asarray(np.exp2(rng.uniform(-12, 3, shape)), F32)


GIVEN = [(scales(5), scales(33)), (scales(5), None), (None, scales(33)), (0.3, scales()), (0.1, 1e-3)]


def factor(a_scale: Any, b_scale: Any) -> Array:
    """The float32 product of the scales, against [M, N]."""
    left, right = (np.asarray(1 if x is None else x, F32) for x in (a_scale, b_scale))
    return np.asarray((left[..., None] if left.ndim else left) * right)


@pytest.mark.parametrize(("a_scale", "b_scale"), GIVEN)
def test_scales_multiply_once(a_scale: Any, b_scale: Any) -> None:
    given, s = {"a_scale": a_scale, "b_scale": b_scale}, factor(a_scale, b_scale)
    a, b = drawn("float32", 5, 70), drawn("float32", 70, 33, seed=1)
    assert_bits(sb.matmul(a, b, **given), reference(a, b, scale=s))
    x, y, bias = drawn("uint8", 5, 70), drawn("int8", 70, 33, seed=1), drawn("float32", 33, seed=3)
    t = integers(x, y, 3, -7).astype(F32)
    given |= {"a_zero_point": 3, "b_zero_point": -7}
    assert_bits(sb.matmul(x, y, **given, alpha=0.7, bias=bias), t * s * F32(0.7) + bias)
    assert_bits(sb.matmul(x, sb.pack(y, left="uint8"), **given), t * s)


@pytest.mark.parametrize("row", PRODUCT_ROWS, ids=lambda row: row.name)
def test_scales_on_every_row(row: Any) -> None:
    with sb.use_isa(row):
        for m, n, k in ((13, 1, 40), (3, 4, 0), (0, 4, 3), (5, 33, 70)):
            x, y = drawn("uint8", m, k), drawn("int8", k, n, seed=1)
            given = {"a_scale": scales(m), "b_scale": scales(n)}
            assert_bits(sb.matmul(x, y, **given), integers(x, y).astype(F32) * factor(**given), (m, n, k))


def test_scales_of_batches_vectors_and_other_formats() -> None:
    a, b = drawn("bfloat16", 3, 5, 40), drawn("bfloat16", 40, 30, seed=1)
    sa, sb_ = scales(3, 5), scales(30)
    due = reference(a, b, scale=sa[..., None] * sb_)
    assert_bits(sb.matmul(a, b, a_scale=sa, b_scale=sb_), due.astype(ml_dtypes.bfloat16))
    assert_bits(sb.matmul(a, b, a_scale=sa, b_scale=sb_, out_dtype="float32"), due)
    assert_bits(sb.matmul(a[0, 0], b, b_scale=sb_, out_dtype="float32"), reference(a[0, :1], b, scale=sb_)[0])
    assert_bits(
        sb.matmul(a, b[:, 0], a_scale=sa, out_dtype="float32"), reference(a, b[:, :1], scale=sa[..., None])[..., 0]
    )
    x, y = drawn("float64", 4, 20), drawn("float64", 20, 6)
    wide = np.full(6, 0.1)
    assert_bits(sb.matmul(x, y, b_scale=wide, a_scale=0.1), reference(x, y, scale=0.1 * wide))
    many = drawn("int8", 2, 40, 9), scales(2, 9)
    got = sb.matmul(drawn("int8", 5, 40), many[0], b_scale=many[1])
    assert_bits(got, integers(drawn("int8", 5, 40), many[0]).astype(F32) * many[1][:, None, :])


def test_scales_that_are_not_finite_follow_the_multiplication() -> None:
    a, b = np.ones((2, 3), np.int8), np.zeros((3, 2), np.int8)
    b[:, 1] = 1
    with np.errstate(all="ignore"):
        due = np.array([[np.nan, np.inf]], F32).repeat(2, 0)
        due[np.isnan(due)] = np.uint32(0x7FC00000).view(F32)
    assert_bits(sb.matmul(a, b, a_scale=float("inf")), due)
    assert_bits(sb.matmul(a, b, a_scale=1e30, b_scale=1e30), due)
    assert_bits(sb.matmul(a, b, a_scale=-0.0), np.array([[-0.0, -0.0]], F32).repeat(2, 0))


def test_scales_that_cannot_be_are_refused() -> None:
    whole = np.ones((2, 2), np.int8)
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        (
            {"b_scale": np.ones((2, 2), F32)},
            sb.ShapeError,
            "matmul: b_scale rank is 2, must be at most 1; pass one scale for each column of b",
        ),
        (
            {"a_scale": np.ones((1, 2), F32)},
            sb.ShapeError,
            "matmul: a_scale rank is 2, must be at most 1; pass one scale for each row of a",
        ),
        (
            {"a_scale": np.ones(3, F32)},
            sb.ShapeError,
            "matmul: a_scale shape is (3, 1), must be one that broadcasts to (2, 2); reshape it",
        ),
        (
            {"a_scale": np.ones(2)},
            sb.DTypeError,
            "matmul: a_scale dtype is float64, must be float32; convert it first",
        ),
        (
            {"a_scale": 0.5, "out_dtype": "int32"},
            sb.OptionError,
            "matmul: a_scale or b_scale is given for int32, must be left out; pass out_dtype='float32'",
        ),
    ]
    for options, kind, text in cases:
        with pytest.raises(kind) as caught:
            sb.matmul(whole, whole, **options)
        assert str(caught.value) == text
    scale = np.ones(2, F32)
    with pytest.raises(sb.LayoutError, match="matmul: out memory is that of an operand, must be its own"):
        sb.matmul(whole[0], whole, b_scale=scale, out=scale)
