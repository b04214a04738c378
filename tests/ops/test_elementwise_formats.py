"""Eager elementwise functions on every format: what ml_dtypes and NumPy compute, and refusals by name."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from formats import nearest

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.dtypes import DType
from samebits.errors import DTypeError

Array = np.ndarray[Any, Any]
FLOATS = tuple(row for row in dtypes.ROWS if row.is_float and row.width_bits >= 8 and row.has_zero)
NARROW = tuple(row for row in FLOATS if row.width_bits < 32)
EVERY_FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)


def row_of(turn: int) -> str:
    """The row of every fourth call is compiled, the others interpret: a kernel takes longer than few elements."""
    return isas.best().name if turn % 4 == 0 else "numpy"


def some(dtype: DType, seed: int) -> Array:
    """Values of a format in (-2, 2), far from its ends."""
    return np.random.default_rng(seed).uniform(-2, 2, (5, 7)).astype(dtype.numpy)


@EVERY_FLOAT
def test_arithmetic_is_that_of_numpy(dtype: DType) -> None:
    x, y, quarter, zero = some(dtype, 0), some(dtype, 1), *np.array([0.25, 0]).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        pairs = [
            (sb.add(x, y), x + y), (sb.subtract(x, y), x - y), (sb.multiply(x, y), x * y), (sb.divide(x, y), x / y),
            (sb.maximum(x, y), np.maximum(x, y)), (sb.minimum(x, y[0]), np.minimum(x, y[0])), (sb.negative(x), -x),
            (sb.abs(x), np.abs(x)), (sb.sqrt(np.abs(x)), np.sqrt(np.abs(x))), (sb.add(x, 0.25), x + quarter),
            (sb.relu(x), np.maximum(x, zero)),
        ]  # fmt: skip
    for found, due in pairs:
        assert found.dtype == dtype.numpy
        assert np.array_equal(found.astype(np.float64), due.astype(np.float64))


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.name)
def test_functions_of_narrow_floats_round_once_at_the_end(dtype: DType) -> None:
    x = some(dtype, 2)
    every = (sb.gelu, sb.exp, sb.erf, sb.log, sb.tanh, sb.sigmoid, sb.sin, sb.cos, sb.silu, sb.log2, sb.expm1)
    for turn, function in enumerate(every, NARROW.index(dtype)):
        due = nearest(function(x.astype(np.float32)).astype(np.float64), dtype)
        with sb.use_isa(row_of(turn)):
            assert np.array_equal(function(x).view(due.dtype), due)


def test_a_python_number_rounds_once_to_the_format() -> None:
    above = 1 + 2.0**-4 + 2.0**-40  # just above half way: through float32 it would be half way
    x = np.zeros(2, ml_dtypes.float8_e4m3fn)
    assert sb.add(x, above).astype(float).tolist() == [1.125, 1.125]


def test_casts_between_all_formats_of_whole_bytes() -> None:
    whole = [row for row in dtypes.ROWS if row.width_bits >= 8]
    for number, source in enumerate(whole):
        x = np.array([0, 1, 1, 2] if source.has_zero else [1, 1, 2, 4]).astype(source.numpy)
        for turn, target in enumerate(whole, number):
            with sb.use_isa(row_of(turn)):
                found = sb.cast(x, target)
            assert found.dtype == target.numpy
            expected = x.astype(np.float64) if target.kind != "bool" else x.astype(np.float64) != 0
            lost = (x.astype(np.float64) == 0) & (not target.has_zero)
            assert np.array_equal(found.astype(np.float64)[~lost], expected.astype(np.float64)[~lost])


def test_kinds_strides_and_out_go_through() -> None:
    t = torch.arange(12.0).bfloat16().reshape(3, 4)
    assert torch.equal(sb.add(t.T, t.T), t.T + t.T)
    x = np.arange(24, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(4, 6)
    out = np.zeros((4, 3), ml_dtypes.bfloat16)
    assert sb.multiply(x[:, ::2], x[:, ::2], out=out) is out
    assert (out == x[:, ::2] * x[:, ::2]).all()


def test_what_a_function_does_not_take_is_refused_by_name() -> None:
    x = np.ones(3, ml_dtypes.bfloat16)
    int4 = sb.to_packed(np.ones(3, ml_dtypes.int4))
    cases: dict[str, Any] = {
        "add: x dtype is int4, must be any float with a zero or integer of whole bytes; convert it first":
            lambda: sb.add(int4, int4),
        "add: y dtype is float32, must be bfloat16; convert it first": lambda: sb.add(x, np.ones(3, np.float32)),
        "gcd: x dtype is float64, must be int64 or int32 or int16 or int8 or uint64 or uint32 or uint16 or uint8; "
        "convert it first": lambda: sb.gcd(np.ones(3), np.ones(3)),
    }  # fmt: skip
    for sentence, call in cases.items():
        with pytest.raises(DTypeError) as refused:
            call()
        assert str(refused.value) == sentence
