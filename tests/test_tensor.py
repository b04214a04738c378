"""Tensors: what they are made of, their views, and what they print."""

import copy
import hashlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import ClosedError, DeviceError, DTypeError, ExchangeError, LayoutError, SamebitsError, ShapeError
from samebits.layout import Layout
from samebits.memory import CPU, Buffer, Device, address_of, allocate
from samebits.tensor import Tensor

NUMPY_ROWS = [row for row in dtypes.ROWS if row.numpy is not None]


@pytest.mark.parametrize("row", NUMPY_ROWS, ids=repr)
def test_every_numpy_dtype_comes_in_and_goes_out_without_copying(row: DType) -> None:
    base = np.zeros((4, 6), row.numpy)
    for view in (base, base[1:, ::2], base.T, base[::-1, ::-2], base[2:2], base[1, 1, ...], base[:, None]):
        t = Tensor.from_any(view)
        assert (t.dtype, t.shape, t.ndim, t.size) == (row, view.shape, view.ndim, view.size)
        assert (t.device, t.read_only, t.nbytes) == (CPU, False, view.nbytes)
        assert t.address == address_of(view)
        back = t.numpy()
        assert back.dtype == view.dtype
        assert address_of(back) == address_of(view) or not view.size
        assert back.strides == view.strides or not view.size or 1 in view.shape


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
        (t.broadcast_to((2, *x.shape)), np.broadcast_to(x, (2, *x.shape))),
    ]
    if x.ndim:
        pairs.append((t.flip(-1), np.flip(x, -1)))
        assert [u.tobytes() for u in t] == [np.asarray(row).tobytes() for row in x]
    if x.ndim > 1:
        pairs.append((t.transpose(), np.swapaxes(x, -2, -1)))
        pairs.append((t.transpose(0, -1), np.swapaxes(x, 0, -1)))
    for ours, theirs in pairs:
        assert ours.buffer is t.buffer
        assert np.array_equal(ours.numpy(), theirs)
        assert ours.tobytes() == np.asarray(theirs).tobytes()
        assert np.array_equal(ours.copy().numpy(), theirs)


def test_numbers_and_lists_come_in_as_numpy_sees_them() -> None:
    assert Tensor.from_any(1.5).dtype is dtypes.float64
    assert Tensor.from_any([[True], [False]]).dtype is dtypes.bool_
    assert Tensor.from_any(np.float16(2)).dtype is dtypes.float16
    assert Tensor.from_any(ml_dtypes.bfloat16(2)).dtype is dtypes.bfloat16
    t = Tensor.from_any(range(3))
    assert (t.shape, Tensor.from_any(t)) == ((3,), t)


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_empty_and_zeros_are_dense_and_aligned(row: DType) -> None:
    for make in (Tensor.empty, Tensor.zeros):
        for shape in ((), (0,), (3, 5), (2, 0, 3)):
            t = make(shape, row)
            assert (t.shape, t.dtype, t.read_only) == (shape, row, False)
            assert t.layout == Layout.dense(shape, width_bits=row.width_bits)
            assert t.address % 64 == 0
            assert t.buffer.size_bytes == t.nbytes == -(-t.size * row.width_bits // 8)
    assert not Tensor.zeros((3, 5), row).buffer.array().any()
    assert Tensor.zeros((2,), row.name).dtype is row


def test_dtype_defaults_to_float32() -> None:
    assert Tensor.empty((2,)).dtype is Tensor.zeros((2,)).dtype is dtypes.float32


def test_a_copy_is_dense_writable_and_apart() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    x.flags.writeable = False
    t = Tensor.from_any(x).T
    c = t.copy()
    assert c.layout.is_contiguous()
    assert not c.read_only
    c.numpy()[:] = 0
    assert x.sum() == 66
    narrow = Tensor.from_any(np.arange(-8, 8).astype(ml_dtypes.int4))
    assert narrow[::-2].copy().numpy().tolist() == list(range(-8, 8))[::-2]


def test_numpy_asks_for_what_it_wants() -> None:
    t = Tensor.from_any([1.0, 2.0])
    assert address_of(np.asarray(t)) == t.address
    assert np.asarray(t, dtype=np.int32).tolist() == [1, 2]
    assert address_of(np.array(t)) != t.address
    with pytest.raises(ValueError, match="copy"):
        np.array(t, dtype=np.int32, copy=False)
    assert (np.float32(1) + np.asarray(t)).tolist() == [2, 3]


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
    assert repr(Tensor.zeros((3,), "float4_e2m1fn")) == "Tensor(float4_e2m1fn, shape=(3,), cpu)"
    t = Tensor.zeros((1000, 1000))
    assert len(repr(t)) < 1000
    t.buffer.close()
    assert repr(t) == "Tensor(closed, float32, shape=(1000, 1000), cpu)"


def test_every_use_of_closed_memory_is_one_error() -> None:
    t = Tensor.from_any(np.zeros((2, 3), np.float32))
    t.buffer.close()
    for use in (t.numpy, t.torch, t.copy, t.tobytes, t.digest, t.__dlpack__, t.T.numpy, lambda: t.address, t.jax):
        with pytest.raises(ClosedError, match="buffer is closed, must be open; close it after its last use"):
            use()
    assert (t.shape, t.strides) == ((2, 3), (3, 1))


def test_a_tensor_does_not_change() -> None:
    t = Tensor.zeros((2,))
    for name in ("buffer", "layout", "dtype", "shape", "other"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(t, name, None)
    assert copy.copy(t).buffer is t.buffer


def unaligned() -> np.ndarray:
    """float32 at an odd address."""
    return np.zeros(9, np.uint8)[1:].view(np.float32)


PACKED = "packed, 4 bits an element, must be whole bytes; use buffer.array() for the bytes"
ERRORS: dict[str, tuple[type[SamebitsError], Any]] = {
    "dtypes.of: dtype is dtype('>f4'), must be a row of dtypes.ROWS; pass one of its names, such as 'float32'": (
        DTypeError,
        lambda: Tensor.from_any(np.zeros(2, ">f4")),
    ),
    "dtypes.of: dtype is dtype('O'), must be a row of dtypes.ROWS; pass one of its names, such as 'float32'": (
        DTypeError,
        lambda: Tensor.from_any(object()),
    ),
    "Tensor.from_any: x alignment is less than its dtype's, must be natural; copy it first": (
        ExchangeError,
        lambda: Tensor.from_any(unaligned()),
    ),
    "Tensor.from_any: x type is a masked array, must be an array without a mask; fill it first, with x.filled(value)": (
        ExchangeError,
        lambda: Tensor.from_any(np.ma.masked_array([1.0], [True])),
    ),
    "Tensor.empty: shape is (-1,), must be extents of at least 0; count elements": (
        LayoutError,
        lambda: Tensor.empty((-1,)),
    ),
    "Tensor: layout width is 16 bits, must be 32 bits as in float32; make the layout for this dtype": (
        LayoutError,
        lambda: Tensor(allocate(8), Layout.dense((2,), width_bits=16), dtypes.float32),
    ),
    "Tensor: layout span is bits [0, 96), must be within the buffer's 8 bytes; allocate layout.required_bytes": (
        LayoutError,
        lambda: Tensor(allocate(8), Layout.dense((3,), width_bits=32), dtypes.float32),
    ),
    "Tensor: layout span is bits [-32, 32), must be within the buffer's 8 bytes; allocate layout.required_bytes": (
        LayoutError,
        lambda: Tensor(allocate(8), Layout.from_strides((2,), (-1,), width_bits=32), dtypes.float32),
    ),
    "Tensor: address is 0x1001, must be a multiple of 4; copy it first": (
        LayoutError,
        lambda: Tensor(Buffer(4096, 8, None), Layout((1,), (32,), 8, 32), dtypes.float32),
    ),
    f"Tensor.numpy: tensor storage is {PACKED}": (LayoutError, lambda: Tensor.zeros((2,), "int4").numpy()),
    f"Tensor.copy: tensor storage is {PACKED}": (LayoutError, lambda: Tensor.zeros((2,), "int4").copy()),
    f"Tensor.tobytes: tensor storage is {PACKED}": (LayoutError, lambda: Tensor.zeros((2,), "int4").digest()),
    "Layout.offset_bytes: layout is 4 bits, must be whole bytes of 8 bits; use the count in bits": (
        LayoutError,
        lambda: Tensor.zeros((2,), "int4")[1:].address,
    ),
    "Tensor.transpose: axes is (-2, -1), must be two of 1 axes; name existing axes": (
        LayoutError,
        lambda: Tensor.zeros((2,)).transpose(),
    ),
    "Tensor.transpose: axes is (0.5, 1), must be two of 2 axes; name existing axes": (
        LayoutError,
        lambda: Tensor.zeros((2, 2)).transpose(0.5, 1),
    ),
    "iter: tensor rank is 0, must be at least 1; use numpy().item()": (LayoutError, lambda: list(Tensor.zeros(()))),
    "Layout.reshape: shape is (7,), must be of 6 elements like (2, 3); keep the number of elements": (
        ShapeError,
        lambda: Tensor.zeros((2, 3)).reshape((7,)),
    ),
    "Buffer.array: buffer device is cuda:0, must be readable by the host; copy it to the host first": (
        DeviceError,
        lambda: Tensor(
            Buffer(4096, 8, None, Device("cuda")), Layout.dense((2,), width_bits=32), dtypes.float32
        ).numpy(),
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_each_bad_input_has_one_clear_error(text: str) -> None:
    kind, use = ERRORS[text]
    with pytest.raises(kind) as error:
        use()
    assert str(error.value) == text
