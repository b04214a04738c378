"""Elements as numbers, as bytes, as a digest and in print; and how tensors are compared."""

import hashlib
import operator
from typing import Any

import floating
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from tensor_samples import NUMPY_ROWS

from samebits import dtypes
from samebits.layout import Layout
from samebits.memory import Buffer, Device
from samebits.tensor import Tensor


def test_bytes_are_logical_and_narrow_codes_are_clean() -> None:
    x = np.arange(6, dtype=np.uint16).reshape(2, 3)
    assert Tensor.from_any(x).T.tobytes() == x.T.tobytes()
    negative = Tensor.from_any(np.array([-1, 2], ml_dtypes.int4))
    assert negative.tobytes() == b"\x0f\x02"
    dirty = np.array([0xF1, 0x02], np.uint8).view(ml_dtypes.float4_e2m1fn)
    assert Tensor.from_any(dirty).tobytes() == b"\x01\x02"


def test_a_digest_is_of_dtype_shape_and_bytes() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    t = Tensor.from_any(x)
    assert t.digest() == hashlib.sha256(b"int32 (2, 3)\n" + x.tobytes()).hexdigest()
    assert t.digest() == t.T.copy().T.digest() == Tensor.from_any(np.asfortranarray(x)).digest()
    others = [t.reshape((3, 2)), Tensor.from_any(x.view(np.uint32)), t.flip(0), t[:1]]
    assert len({u.digest() for u in [t, *others]}) == 5


def test_repr_shows_values_and_facts() -> None:
    assert repr(Tensor.from_any([[1, 2], [3, 4]])) == "Tensor([[1, 2],\n        [3, 4]], int64, shape=(2, 2), cpu)"
    assert repr(Tensor.from_any(np.array(1.5, ml_dtypes.bfloat16))) == "Tensor(1.5, bfloat16, shape=(), cpu)"
    assert repr(Tensor.arange(3, dtype="float4_e2m1fn")) == "Tensor([0., 1., 2.], float4_e2m1fn, shape=(3,), cpu)"
    t = Tensor.zeros((1000, 1000))
    assert len(repr(t)) < 1000
    for extent in (7, 8, 100, 101, 5000):
        shown = np.array2string(np.arange(extent), separator=", ", prefix="Tensor(", threshold=100)
        assert repr(Tensor.arange(extent)) == f"Tensor({shown}, int64, shape=({extent},), cpu)"
    t.buffer.close()
    assert repr(t) == "Tensor(closed, float32, shape=(1000, 1000), cpu)"


def test_equality_of_bits_and_of_values() -> None:
    nan, zero, negative_zero = (Tensor.full((2,), x) for x in (np.nan, 0.0, -0.0))
    assert nan.equal_bits(nan.copy())
    assert not nan.equal_values(nan)
    assert nan.equal_values(nan, equal_nan=True)
    assert nan.equal_values(Tensor.full((2,), np.nan, "bfloat16"), equal_nan=True)
    assert not zero.equal_bits(negative_zero)
    assert zero.equal_values(negative_zero)
    assert not zero.equal_bits(Tensor.zeros((2,), "int32"))
    assert zero.equal_values(Tensor.zeros((2,), "int32"))
    assert not zero.equal_bits(Tensor.zeros((2, 1)))
    assert not zero.equal_values(Tensor.zeros((2, 1)))
    assert Tensor.arange(7, dtype="uint4")[1:].equal_values(Tensor.arange(1, 7))
    assert not nan.equal_values(zero, equal_nan=True)


def test_items_are_python_numbers() -> None:
    assert type(Tensor.full((1, 1), 2, "int4").item()) is int
    assert type(Tensor.full((), 2, "bfloat16").item()) is float
    assert Tensor.full((2,), True, "bool").tolist() == [True, True]
    assert [x.item() for x in Tensor.arange(3, dtype="uint2")] == [0, 1, 2]


def test_one_element_is_formatted_as_its_number_and_taken_by_an_index_of_rank_0() -> None:
    x = Tensor.from_any([[1.25, 2.0]])
    assert (f"{x[0, 0]:.1f}", f"{x[:, :1]:6.2f}") == ("1.2", "  1.25")
    assert (f"{x}", f"{Tensor.full((), 3, 'int4'):04d}") == (repr(x), "0003")
    assert x[0][np.array(1)].item() == x[0, np.int64(-1)].item() == 2


def test_one_element_is_a_float_an_int_and_a_truth_value_as_in_numpy() -> None:
    for row in NUMPY_ROWS:
        for value in (row.min, 0, 1, row.max) if row.has_zero and row.max >= 1 else (1,) if row.max >= 1 else ():
            x = np.full((), value, row.numpy)
            t = Tensor.from_any(x)
            assert (float(t), int(t), bool(t)) == (float(x), int(x), bool(x)), (row, value)
            assert type(float(t)) is float
            assert type(int(t)) is int
    assert bool(Tensor.full((1, 1), float("nan")))
    assert int(Tensor.full((1,), -2.75)) == -2
    with pytest.raises(ValueError, match="cannot convert float NaN to integer"):
        int(Tensor.full((), float("nan")))
    with floating.environment("flush"):
        truths = [bool(Tensor.from_bytes(b"\1" + bytes(n - 1), f"float{8 * n}", ())) for n in (2, 4, 8)]
    assert truths == [True] * 3


def test_repr_of_any_format_is_numpys_of_its_values() -> None:
    for row in dtypes.ROWS:
        t = Tensor.full((3, 4), 0 if row.max < 1 else 1, row)
        values = np.array2string(t.values(), separator=", ", prefix="Tensor(")
        assert repr(t) == f"Tensor({values}, {row}, shape=(3, 4), cpu)"
    x = np.arange(20 * 3 * 30, dtype=np.float32).reshape(20, 3, 30)
    summary = np.array2string(x, separator=", ", prefix="Tensor(", threshold=100)
    assert repr(Tensor.from_any(x)) == f"Tensor({summary}, float32, shape=(20, 3, 30), cpu)"
    wide = Tensor.zeros(()).broadcast_to((10,) * 18)
    assert repr(wide) == f"Tensor(float32, shape={(10,) * 18}, cpu)"
    huge = repr(Tensor.zeros((), "float6_e2m3fn").broadcast_to((1 << 40, 3)))
    assert huge.startswith("Tensor([[0., 0., 0.],\n")
    far = Tensor(Buffer(4096, 8, None, Device("cuda")), Layout.dense((2,), width_bits=32), dtypes.float32)
    assert repr(far) == "Tensor(float32, shape=(2,), cuda:0)"


@pytest.mark.parametrize("mode", floating.MODES)
def test_the_callers_float_environment_changes_no_conversion(mode: str) -> None:
    numbers = Tensor.from_any(np.array([0.1, 0.7, 1 / 3, 1e-40, -1e-310]))
    narrow = Tensor.from_any(np.array([1e-40, -3e-39, 1.5], np.float32))

    def converted() -> list[bytes]:
        made = [
            np.asarray(numbers, np.float32),
            np.asarray(numbers, ml_dtypes.bfloat16),
            np.asarray(narrow, np.float64),
        ]
        made += [Tensor.full((3,), 0.1, row).numpy() for row in (dtypes.float32, dtypes.float8_e4m3fn, dtypes.bfloat16)]
        made += [np.array(narrow.tolist()), np.array(narrow[:1].item()), np.array(numbers.equal_values(numbers))]
        made += [np.array(narrow.equal_values(Tensor.zeros((3,))))]
        return [*(x.tobytes() for x in made), repr(narrow).encode(), repr(numbers).encode()]

    due = converted()
    with floating.environment(mode):
        found = converted()
    assert found == due


def test_a_tensor_is_compared_by_name_and_never_by_equality() -> None:
    t = Tensor.from_any(np.arange(3, dtype=np.float32))
    others: list[Any] = [t, t.copy(), np.zeros(3), np.float32(1), torch.zeros(3), jnp.zeros(3), 1, 1.5, True, [0], (0,)]
    for other in others:
        for compare in (operator.eq, operator.ne):
            with pytest.raises(TypeError, match=r"must be an|ask what you mean|numpy\.(not_)?equal"):
                compare(t, other)
            if not isinstance(other, torch.Tensor):
                with pytest.raises(TypeError):
                    compare(other, t)
    with pytest.raises(TypeError) as error:
        t == t.copy()  # noqa: B015
    assert str(error.value) == (
        "Tensor ==: other is of type Tensor, must be an object that is no array; "
        "ask what you mean: x is y, x.equal_bits(y) or x.equal_values(y)"
    )
    for other in (None, "a", object(), Tensor, {}):
        assert t != other
        assert not t == other  # noqa: SIM201


def test_a_tensor_is_a_key_of_its_own() -> None:
    t = Tensor.zeros((3,))
    assert len({t, t, t.copy(), t[:]}) == 3
    assert {t: 1}[t] == 1
    assert t in [t]


def test_a_tensor_is_not_searched() -> None:
    with pytest.raises(TypeError, match="container"):
        assert 1 in Tensor.arange(3)
