"""Weights: integers b beside floats a, with scales and zero points for each column or for groups along K."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from launch import assert_bits
from rows import ALL_ROWS, PRODUCT_ROWS

import samebits as sb
from samebits import dtypes
from samebits.kernels.gemm import reference

Array = np.ndarray[Any, np.dtype[Any]]
ROWS = (*ALL_ROWS[1:], PRODUCT_ROWS[-2])


def floats(dtype: Any, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def integers(low: int, high: int, dtype: Any, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


def repeated(zero: Array, group: int, k: int) -> Array:
    """A zero point for each element."""
    return np.repeat(zero.astype(np.float32), group, 0)[:k]


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_a_row_of_a_batch_is_the_row_alone(isa: Any) -> None:
    left = ml_dtypes.bfloat16 if isa is ROWS[-1] else np.float32
    k, n, group = 288, 40, 32
    b, zero = integers(0, 16, ml_dtypes.uint4, k, n), integers(0, 16, ml_dtypes.uint4, k // group, n, seed=1)
    scale = floats(np.float16, k // group, n, seed=2)
    a = floats(left, 70, k)
    options = {"b_scale": scale, "b_zero_point": zero, "b_group": group, "out_dtype": "float32"}
    with sb.use_isa(isa):
        whole = sb.matmul(a, b, threads=1, **options)
        for m in (1, 3, 13):
            assert_bits(sb.matmul(a[-m:], b, threads=2, **options), whole[-m:], m)
    assert_bits(whole[:2], reference(a[:2], b.astype(np.float32) - repeated(zero, group, k), b_scale=scale, b_block=32))


def test_scales_of_columns_multiply_once_and_zero_points_are_exact() -> None:
    a, b = floats(np.float32, 2, 5, 300), integers(-128, 128, np.int8, 300, 40)
    zero, scale = integers(-128, 128, np.int8, 40), floats(np.float32, 40, seed=1)
    for kind in (np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu):
        stored = np.abs(scale).astype(kind)
        due = reference(a, b.astype(np.float32) - zero, scale=stored.astype(np.float32))
        for _ in range(2):  # the second call skips to the table
            assert_bits(sb.matmul(a, b, b_scale=stored, b_zero_point=zero), due, kind)
    assert_bits(sb.matmul(a, b, b_zero_point=-7), reference(a, b.astype(np.float32) + 7))
    assert_bits(sb.matmul(a[0, 0], b[:, 0]), reference(a[0, :1], b[:, :1])[0, 0])
    with pytest.raises(sb.OptionError, match="within"):
        sb.matmul(a, b, b_zero_point=200)


def test_linear_takes_what_checkpoints_keep() -> None:
    x, bias = floats(ml_dtypes.bfloat16, 2, 3, 256), floats(np.float32, 24, seed=3)
    weight, zero = integers(0, 16, ml_dtypes.uint4, 24, 256), integers(0, 16, ml_dtypes.uint4, 24, 2, seed=1)
    scale = floats(np.float16, 24, 2, seed=2)
    due = reference(
        x, weight.T.astype(np.float32) - repeated(zero.T, 128, 256), b_scale=scale.T, b_block=128, bias=bias
    ).astype(x.dtype)
    assert_bits(sb.linear(x, weight, bias, weight_scale=scale, weight_zero_point=zero, group=128), due)
    packed = sb.to_packed(sb.Tensor.from_any(weight))
    assert_bits(sb.linear(x, packed, bias, weight_scale=scale, weight_zero_point=zero, group=128), due)
    kept = sb.pack(packed.T, left="bfloat16", zero_point=zero.T, group=128)
    assert_bits(sb.linear(x, kept, bias, weight_scale=scale, group=128), due)
    torch = pytest.importorskip("torch")
    columns = torch.full((24,), 0.5)
    got = sb.linear(
        torch.ones(3, 256, dtype=torch.bfloat16), torch.ones(24, 256, dtype=torch.int8), weight_scale=columns
    )
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, torch.full((3, 24), 128.0, dtype=torch.bfloat16))


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_packed_weights_stay_integers_and_have_the_bits_of_unpacked_ones(isa: Any) -> None:
    k, n, group, left = 300, 70, 64, ml_dtypes.bfloat16 if isa is ROWS[-1] else np.float32
    scale = floats(np.float16, 5, n, seed=1)
    for dtype, high, element in (("uint4", 16, "int8"), ("uint8", 256, "int16"), ("int8", 128, "int8")):
        b = integers(0, high, dtypes.of(dtype).numpy, k, n)
        zero = integers(0, high, dtypes.of(dtype).numpy, 5, n, seed=2) if dtype[0] == "u" else None
        given = {} if zero is None else {"zero_point": zero, "group": group}
        values = b.astype(np.float32) - (0 if zero is None else repeated(zero, group, k))
        with sb.use_isa(isa):
            kept = pickle.loads(pickle.dumps(sb.pack(b, left=left, **given)))
            assert kept.engine == f"{element} weights"
            blocks = {"b_scale": scale, "b_group": group}
            for m, options in ((1, blocks), (13, blocks), (3, {})):
                a = floats(left, m, k)
                due = reference(a, values, b_scale=options.get("b_scale"), b_block=group)
                got = sb.matmul(a, kept, out_dtype="float32", threads=m % 3 + 1, **options)
                assert_bits(got, due, (dtype, m))


@pytest.mark.parametrize("rows", [2, 13])  # converted in the microkernel, and before
def test_packed_weights_may_end_within_a_pair(rows: int) -> None:
    for k in (3, 131):
        a, b = floats(ml_dtypes.bfloat16, rows, k), integers(-128, 128, np.int8, k, 69)
        zero = integers(-128, 128, np.int8, 69, seed=1)
        assert_bits(sb.matmul(a, sb.pack(b, left=a.dtype), out_dtype="float32"), reference(a, b))
        packed = sb.pack(b, left=a.dtype, zero_point=zero)
        assert_bits(sb.matmul(a, packed, out_dtype="float32"), reference(a, b.astype(np.float32) - zero))


def test_packed_weights_of_batches_and_of_columns() -> None:
    a, b = floats(np.float32, 2, 3, 40), integers(-8, 8, ml_dtypes.int4, 2, 40, 33)
    zero = integers(-8, 8, ml_dtypes.int4, 33, seed=1)
    kept = sb.pack(b, left="float32", zero_point=zero)
    due = reference(a, b.astype(np.float32) - zero.astype(np.float32))
    assert_bits(sb.matmul(a, kept), due)
    assert_bits(sb.matmul(a, sb.pack(sb.to_packed(sb.Tensor.from_any(b)), left="float32", zero_point=zero)), due)
    assert sb.matmul(a[..., :0], sb.pack(b[:, :0], left="float32")).sum() == 0
    one = sb.pack(b[0, :, :1], left="bfloat16", zero_point=3)
    assert_bits(sb.matmul(a, one), reference(a, b[0, :, :1].astype(np.float32) - 3))
    with pytest.raises(sb.OptionError) as error:
        sb.matmul(a, sb.pack(b, left="float32"), b_zero_point=np.zeros(33, np.int8))
    assert str(error.value) == (
        "matmul: b_zero_point is given beside packed weights, must be left out; give it to pack, with left="
    )
    with pytest.raises(sb.OptionError) as option:
        sb.pack(b, zero_point=zero)
    assert str(option.value) == (
        "pack: zero_point or group is given for int4 beside int4, must be left out; pass left= and integers"
    )
    with pytest.raises(sb.PlanError) as engine:
        sb.matmul(b.astype(np.int8).mT, sb.pack(b, left="float32"))
    assert "pack it again with left='int8'" in str(engine.value)


def test_where_sums_are_exact_they_are_those_of_dequantised_weights_and_elsewhere_not() -> None:
    torch = pytest.importorskip("torch")
    k, n, group = 384, 30, 64
    b = integers(-8, 8, ml_dtypes.int4, k, n)
    scale = integers(8, 16, ml_dtypes.float8_e4m3fn, k // group, n, seed=1)  # whole numbers: every sum is one
    a = integers(-8, 9, ml_dtypes.bfloat16, 9, k, seed=2)
    dequantised = b.astype(np.float32) * np.repeat(scale.astype(np.float32), group, 0)
    got = sb.matmul(a, b, b_scale=scale, b_group=group, out_dtype="float32")
    assert_bits(got, (torch.from_numpy(a.astype(np.float64)) @ torch.from_numpy(dequantised).double()).float().numpy())
    assert_bits(got, sb.matmul(a.astype(np.float32), dequantised))
    a, scale = floats(np.float32, 9, k), floats(np.float32, k // group, n)
    dequantised = b.astype(np.float32) * np.repeat(scale, group, 0)
    ours, other = sb.matmul(a, b, b_scale=scale, b_group=group), sb.matmul(a, dequantised)
    assert 0.3 < (ours != other).mean() < 1  # another order of roundings
    exact = a.astype(np.float64) @ (b.astype(np.float64) * np.repeat(scale.astype(np.float64), group, 0))
    assert np.abs(ours - exact).max() < 2**-18 * np.abs(exact).max()


def test_scales_of_batches_have_the_bits_of_each() -> None:
    a, b = floats(np.float32, 4, 3, 64), integers(-128, 128, np.int8, 4, 64, 10)
    columns, blocks = floats(np.float32, 4, 10, seed=1), floats(np.float32, 4, 2, 10, seed=2)
    assert_bits(sb.matmul(a, b, b_scale=columns), reference(a, b.astype(np.float32), scale=columns[:, None]))
    due = reference(a, b.astype(np.float32), b_scale=blocks, b_block=32)
    assert_bits(sb.matmul(a, b, b_scale=blocks, b_group=32), due)
    one = floats(np.float32, 1, 1, 10, seed=3)
    assert_bits(sb.matmul(a, b, b_scale=one), reference(a, b.astype(np.float32), scale=one))
    assert_bits(sb.matmul(a, b, b_scale=one, b_group=64), reference(a, b.astype(np.float32), b_scale=one, b_block=64))
    assert sb.matmul(a[..., :0], b[:, :0], b_scale=blocks[:, :0], b_group=32).sum() == 0


def test_floats_and_pairs_of_integers_take_scales_of_blocks_too() -> None:
    a, b = floats(ml_dtypes.float8_e4m3fn, 5, 96), floats(ml_dtypes.float4_e2m1fn, 96, 20)
    scale = np.exp2(integers(-9, 9, np.float32, 3, 20)).astype(ml_dtypes.float8_e8m0fnu)
    assert_bits(sb.matmul(a, b, b_scale=scale, b_group=32), reference(a, b, b_scale=scale, b_block=32))
    x, y = integers(-128, 128, np.int8, 5, 96), integers(0, 256, np.uint8, 96, 20)
    zero = integers(0, 256, np.uint8, 20)
    due = reference(x.astype(np.float32), y.astype(np.float32) - zero, b_scale=scale, b_block=32)
    assert_bits(sb.matmul(x, y, b_scale=scale, b_group=32, b_zero_point=zero), due)


def test_groups_that_are_not_known_are_refused() -> None:
    a, b, scale = floats(np.float32, 2, 96), integers(-8, 8, np.int8, 96, 10), floats(np.float32, 2, 10)
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"b_scale": scale}, sb.ShapeError, "b_scale shape is (2, 10), must be [], [10] or [1, 10], or [blocks, 10]"),
        ({"b_scale": scale, "b_group": 32}, sb.ShapeError, "b_scale shape is (2, 10), must be [3, 10], as K = 96 has"),
        ({"b_scale": scale, "b_group": 0}, sb.OptionError, "b_group is 0, must be an integer of at least 1; count the"),
        ({"b_group": 32}, sb.OptionError, "b_group is 32 without blocks, must be left out; pass scales or zero points"),
        (
            {"b_scale": scale.astype(np.float64), "b_group": 64}, sb.DTypeError,
            "b_scale dtype is float64, must be float32 or float16",
        ),
        (
            {"b_zero_point": np.zeros((3, 10), np.uint8), "b_group": 32}, sb.DTypeError,
            "b_zero_point dtype is uint8, must be int8; convert it first",
        ),
    ]  # fmt: skip
    for options, kind, text in cases:
        with pytest.raises(kind) as error:
            sb.matmul(a, b, **options)
        assert str(error.value).startswith(f"matmul: {text}")
    with pytest.raises(sb.PlanError, match="beside float64"):
        sb.matmul(a.astype(np.float64), b, b_scale=scale, b_group=64)
    for size in (48, np.int64(64), 95):
        assert_bits(
            sb.matmul(a, b, b_scale=scale, b_group=size),
            reference(a, b.astype(np.float32), b_scale=scale, b_block=size),
        )
