"""Views of tensors: NumPy's of the same elements, and the same bytes as elements of another format."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensor_samples import NARROW, sample

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import (
    LayoutError,
    OutOfRangeError,
)
from samebits.layout import Layout
from samebits.memory import Buffer
from samebits.tensor import Tensor


@given(hnp.arrays(np.int16, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)), st.data())
def test_views_equal_numpy(x: np.ndarray, data: st.DataObject) -> None:
    t = Tensor.from_any(x)
    axes = data.draw(st.permutations(range(x.ndim)))
    key = data.draw(hnp.basic_indices(x.shape, allow_newaxis=True))
    pairs: list[tuple[Tensor, Any]] = [
        (t.permute(axes), x.transpose(axes)),
        (t.T, x.T),
        (t[key], x[key]),
        (t.reshape((-1,)) if x.size else t.reshape((0,)), x.reshape(-1)),
        (t.squeeze(), x.squeeze()),
        (t.unsqueeze(0), x[None]),
        (t.unsqueeze((0, -1)), x[None, ..., None]),
        (t.flatten(), x.reshape(x.size)),
        (t.broadcast_to((2, *x.shape)), np.broadcast_to(x, (2, *x.shape))),
    ]
    if x.ndim:
        pairs.append((t.flip(-1), np.flip(x, -1)))
        pairs.append((t.unflatten(0, (x.shape[0], 1)), x[:, None]))
        pairs.append((t.sliding_window((), ()), x))
        assert [u.tobytes() for u in t] == [np.asarray(row).tobytes() for row in x]
    if x.ndim > 1:
        pairs.append((t.transpose(), np.swapaxes(x, -2, -1)))
        pairs.append((t.mT, np.swapaxes(x, -2, -1)))
        pairs.append((t.diagonal(1), np.diagonal(x, 1)))
        pairs.append((t.transpose(0, -1), np.swapaxes(x, 0, -1)))
    for ours, theirs in pairs:
        assert ours.buffer is t.buffer
        assert np.array_equal(ours.numpy(), theirs)
        assert ours.tobytes() == np.asarray(theirs).tobytes()
        assert np.array_equal(ours.copy().numpy(), theirs)


class Whole:
    """What Python takes where it needs an integer, though it is none."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_extents_and_axes_may_be_several_arguments() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    t = Tensor.from_any(x)
    for views, arrays in [
        ((t.reshape(6, 4), t.reshape(6, -1), t.reshape([6, 4]), t.reshape(shape=(6, 4))), x.reshape(6, 4)),
        ((t.reshape(-1), t.reshape(np.int64(24)), t.reshape(np.array([24])), t.reshape(Whole(24))), x.reshape(-1)),
        ((t.permute(2, 0, 1), t.permute((2, 0, 1)), t.permute(-1, 0, 1)), x.transpose(2, 0, 1)),
    ]:
        for view in views:
            np.testing.assert_array_equal(view.numpy(), arrays)
    assert (len(t), len(t[0]), len(Tensor.zeros((0, 3)))) == (2, 3, 0)


@pytest.mark.parametrize("row", NARROW, ids=repr)
def test_packed_elements_are_read_from_any_view(row: DType) -> None:
    assert row.numpy is not None
    t, codes = sample(row, (5, 7))
    for key in ((), (0,), np.s_[1:, 1:], np.s_[::-2, 3], np.s_[:, ::-1], np.s_[2, 5], np.s_[3:3]):
        ours, due = t[key], codes[key]
        assert ours.tobytes() == np.asarray(due).tobytes()
        expected = np.asarray(due).view(row.numpy).astype(np.float64)
        assert np.array_equal(ours.values(), expected)
        assert ours.tolist() == expected.tolist()
        c = ours.copy()
        assert (c.layout, c.dtype) == (Layout.dense(ours.shape, width_bits=row.width_bits), row)
        assert c.tobytes() == ours.tobytes()
        padded = Tensor.from_any(np.ascontiguousarray(due).reshape(np.shape(due)).view(row.numpy))
        assert padded.layout.storage == "padded"
        assert padded.digest() == ours.digest() == c.digest()
        assert padded.equal_bits(ours)
        assert ours.equal_bits(padded.copy())


def test_view_equals_numpy_for_whole_bytes() -> None:
    x = np.arange(48, dtype=np.uint8).reshape(2, 3, 8)
    for base in (x, x[:, 1:], x[::-1], x.transpose(1, 0, 2)):
        for name in ("int8", "uint16", "float32", "int64", "float8_e4m3fn"):
            t = Tensor.from_any(base).view(name)
            due = base.view(dtypes.of(name).numpy)
            assert (t.shape, t.tobytes()) == (due.shape, due.tobytes())
            assert t.view("uint8").equal_bits(Tensor.from_any(base))


def test_view_of_packed_elements_and_bytes() -> None:
    t, codes = sample(dtypes.float4_e2m1fn, (3, 8))
    assert t.view("int4").tobytes() == t.tobytes()
    as_bytes = t.view("uint8")
    assert as_bytes.tolist() == (codes[:, ::2] | codes[:, 1::2] << 4).tolist()
    assert as_bytes.view("uint4").tobytes() == t.tobytes()
    assert t[:, 2:].view("uint8").equal_bits(as_bytes[:, 1:])
    assert t.view("uint1").shape == (3, 32)
    assert Tensor.zeros((2, 8), "float6_e2m3fn").view("uint8").shape == (2, 6)
    assert Tensor.zeros((2, 0), "float6_e2m3fn").view("uint8").shape == (2, 0)
    for start in range(6):  # wherever in memory the bytes are
        part = Tensor.arange(12, dtype="uint8")[start : start + 6]
        sixes = part.view("float6_e2m3fn")
        assert sixes.shape == (8,)
        assert sixes.view("uint8").equal_bits(part)
    odd = Buffer.from_handle(Tensor.zeros((8,), "uint8").address + 1, 0)
    assert Tensor(odd, Layout.dense((0, 4), width_bits=8), dtypes.uint8).view("int32").shape == (0, 1)
    assert Tensor.zeros((3,), "int4", storage="padded").view("uint4").layout.storage == "padded"
    assert Tensor.full((3,), -1, "int4", storage="padded").view("uint8").tolist() == [15] * 3
    assert Tensor.zeros((), "float32").view("int32").shape == ()


def test_an_index_that_is_not_there_is_an_index_error_too() -> None:
    t = Tensor.zeros((3, 4))
    for use in (
        lambda: t[3], lambda: t[-4], lambda: t[0, 4], lambda: t[0, 0, 0], lambda: t[0, 0][0], lambda: t.flip(2),
        lambda: t.squeeze(5), lambda: t.unsqueeze(9),
    ):  # fmt: skip
        with pytest.raises(IndexError) as error:
            use()
        assert isinstance(error.value, OutOfRangeError)
        assert isinstance(error.value, LayoutError)
    for use in (lambda: t["a"], lambda: t[1.5], lambda: t[..., ...]):  # type: ignore[index]
        with pytest.raises(LayoutError) as other:
            use()
        assert not isinstance(other.value, IndexError)


def test_what_iterates_by_index_ends() -> None:
    t, seen = Tensor.from_any(np.arange(3)), []
    try:
        for i in itertools.count():
            seen.append(t[i].item())
    except IndexError:
        pass
    assert seen == [0, 1, 2]
