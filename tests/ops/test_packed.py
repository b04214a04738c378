"""Eager functions on elements packed within bytes: what ml_dtypes, NumPy and exact values say, wherever they begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from formats import nearest
from narrow import FLOATS, INTEGERS, KEYS, NARROW, codes, codes_of, draw, packed
from rows import COMPILED_ROWS

import samebits as sb
from samebits import dtypes
from samebits.dtypes import DType
from samebits.layout import Layout

Array = np.ndarray[Any, Any]
EVERY = pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.name)
EVERY_FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)


def every_pair(dtype: DType) -> tuple[sb.Tensor, sb.Tensor, Array, Array]:
    """All codes down and along, packed, and their values as float64."""
    every = np.arange(1 << dtype.width_bits)
    values = np.array([dtype.decode(int(code)) for code in every])
    return packed(every[:, None], dtype), packed(every[None], dtype), values[:, None], values[None]


@EVERY_FLOAT
def test_every_pair_of_floats_is_the_exact_result_rounded_once(dtype: DType) -> None:
    x, y, u, v = every_pair(dtype)
    cases = (sb.add, u + v), (sb.subtract, u - v), (sb.multiply, u * v), (sb.maximum, np.maximum(u, v))
    for function, exact in cases:
        found = function(x, y)
        assert found.layout.storage == "packed"
        due = nearest(exact, dtype)
        same = codes(found) == due
        # The larger of two zeros is +0, where NumPy may give either.
        assert (same | ((exact == 0) & (function is sb.maximum))).all()
    assert np.array_equal(sb.less(x, y).numpy(), u < v)
    assert np.array_equal(sb.equal(x, y).numpy(), u == v)


@EVERY
def test_casts_to_and_from_what_is_packed_are_those_of_values(dtype: DType) -> None:
    x, values = draw(dtype, 9, 41)
    as_floats = sb.cast(x, "float32")
    assert np.array_equal(as_floats.numpy(), values.astype(np.float32))
    assert np.array_equal(codes(sb.cast(as_floats, dtype)), codes(x))
    wide = np.random.default_rng(0).uniform(-40, 40, (5, 7)).astype(np.float32)
    made = sb.cast(sb.Tensor.from_any(wide), dtype)
    if dtype.is_float:
        assert np.array_equal(codes(made), nearest(wide.astype(np.float64), dtype))
    else:
        whole = np.clip(np.trunc(wide), dtype.min, dtype.max).astype(int)
        assert np.array_equal(codes(made), whole & ((1 << dtype.width_bits) - 1))


@EVERY
def test_views_at_any_bit_with_any_strides(dtype: DType) -> None:
    x, values = draw(dtype, 9, 41)
    holds = np.random.default_rng(1).random((9, 41)) < 0.5
    for key in KEYS:
        part, due = x[key], values[key].astype(np.float32)
        assert np.array_equal(sb.cast(part, "float32").numpy(), due), key
        assert np.array_equal(sb.cast(part.T, "float32").numpy(), due.T), key
        chosen = sb.where(sb.Tensor.from_any(holds[key]), part, part[:1])
        assert np.array_equal(codes(chosen), np.where(holds[key], codes(part), codes(part)[:1])), key
        assert np.array_equal(sb.cast(sb.max(part, axis=0), "float32").numpy(), due.max(0)), key
        rows = np.array([1, -1, 0])
        assert np.array_equal(codes(sb.take(part, rows, 1)), codes(part)[:, rows]), key
        assert np.array_equal(codes(sb.concat([part, part], 1)), np.concatenate([codes(part)] * 2, 1)), key
    repeated = x[2:3, 5:16].broadcast_to((4, 11))
    assert np.array_equal(sb.cast(repeated, "float32").numpy(), np.broadcast_to(values[2:3, 5:16], (4, 11)))
    # The same shape and strides from other bits of a byte: nothing is remembered of the first call.
    for start in (0, 1, 2, 3, 1):
        assert np.array_equal(sb.cast(x[:, start : start + 9], "float32").numpy(), values[:, start : start + 9])


@pytest.mark.parametrize("dtype", [dtypes.float4_e2m1fn, dtypes.float6_e3m2fn], ids=str)
def test_a_result_within_bytes_leaves_its_neighbours(dtype: DType) -> None:
    x, _ = draw(dtype, 9, 41)
    for key in KEYS:
        before = codes_of(dtype, 9, 41, seed=1)
        whole = sb.copy(packed(before, dtype))
        assert sb.negative(x[key], out=whole[key]) is not None
        due = before.copy()
        due[key] = codes(x)[key] ^ (1 << dtype.width_bits - 1)
        assert np.array_equal(codes(whole), due), key
    own = sb.copy(x)
    assert sb.abs(own, out=own) is own
    assert np.array_equal(codes(own), codes(x) & ((1 << dtype.width_bits - 1) - 1))


@EVERY
def test_extents_of_none_one_and_odd(dtype: DType) -> None:
    for shape in ((), (0,), (1,), (3, 0, 2), (1, 1), (7,), (1, 9, 1), (3, 5, 7)):
        x, values = draw(dtype, *shape)
        assert np.array_equal(sb.cast(x, "float32").numpy(), values.astype(np.float32).reshape(shape)), shape
        same = sb.where(sb.Tensor.from_any(np.ones(shape, bool)), x, x)
        assert same.shape == shape
        assert np.array_equal(codes(same), codes(x))


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_every_row_gives_what_a_byte_an_element_gives(isa: Any) -> None:
    x, _ = draw(dtypes.float4_e2m1fn, 13, 37)
    apart = sb.to_padded(x).numpy()
    functions: tuple[Callable[[Any], Any], ...] = (
        sb.exp, sb.gelu, sb.softmax, sb.layer_norm, lambda y: sb.sum(y, axis=1), lambda y: sb.mean(y, axis=0),
    )  # fmt: skip
    with sb.use_isa(isa):
        for function in functions:
            assert np.array_equal(codes(function(x)), codes(function(apart)))


def test_sums_of_integers_are_those_of_python() -> None:
    for dtype in INTEGERS:
        x, values = draw(dtype, 5, 41)
        found = sb.sum(x, axis=1)
        assert found.dtype is dtypes.int64
        assert found.tolist() == [sum(row) for row in values.tolist()]


def test_kinds_of_arrays() -> None:
    """A byte each in NumPy, packed in a Tensor and in torch's pairs."""
    x = np.arange(16).astype(np.uint8).view(ml_dtypes.float4_e2m1fn).reshape(2, 8)
    made = sb.add(x, x)
    assert type(made) is np.ndarray
    assert made.dtype == ml_dtypes.float4_e2m1fn
    pairs = sb.to_packed(x).torch()
    found = sb.add(pairs, pairs)
    assert found.dtype == torch.float4_e2m1fn_x2
    assert found.shape == (2, 4)
    for array in (found, sb.add(sb.to_packed(x), sb.to_packed(x)), made):
        assert np.array_equal(codes(array), codes(x + x))


def test_bytes_between_which_elements_begin() -> None:
    """Elements of 8 bits that are 12 bits apart are read where they lie."""
    data = sb.Tensor.from_any(np.arange(6, dtype=np.uint8))
    x = sb.Tensor(data.buffer, Layout((3,), (12,), 0, 8), dtypes.int8)
    assert sb.cast(x, "int32").tolist() == x.tolist() == [0, 32, 3]


def test_what_is_not_taken_is_refused_by_name() -> None:
    int4 = packed(np.zeros((3, 4), int), dtypes.int4)
    data = sb.Tensor.from_any(np.zeros(8, np.uint8))
    uneven = sb.Tensor(data.buffer, Layout((2,), (24,), 0, 16), dtypes.int16)
    cases: dict[str, Callable[[], Any]] = {
        "multiply: x dtype is int4, must be any float with a zero or integer of whole bytes; convert it first":
            lambda: sb.multiply(int4, int4),
        "add: an operand's layout strides_bits is (24,), must be multiples of the 16 bits of int16; "
        "copy it with samebits.copy": lambda: sb.add(uneven, uneven),
        "take: an index is 3, must be in [-3, 3); give indices that exist":
            lambda: sb.take(int4, np.array([0, 3])),
    }  # fmt: skip
    for sentence, call in cases.items():
        with pytest.raises(sb.SamebitsError) as refused:
            call()
        assert str(refused.value) == sentence
