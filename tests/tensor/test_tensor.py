"""Tensors as a whole: what leaves them, pickles, and that they do not change."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest
from tensor_samples import NARROW, NUMPY_ROWS, sample

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import (
    ClosedError,
)
from samebits.layout import Layout
from samebits.memory import CPU, address_of
from samebits.tensor import Tensor


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


@pytest.mark.parametrize("name", [name for name in dir(Tensor) if callable(getattr(Tensor, name)) and name[0] != "_"])
def test_a_method_is_called_that_of_a_tensor(name: str) -> None:
    """Whichever module of the room it is written in: errors of Python name it, and pickles."""
    method = getattr(Tensor, name)
    assert method.__qualname__ == f"Tensor.{name}"
    assert pickle.loads(pickle.dumps(method)) == method


def test_numpy_asks_for_what_it_wants() -> None:
    t = Tensor.from_any([1.0, 2.0])
    assert address_of(np.asarray(t)) == t.address
    assert np.asarray(t, dtype=np.int32).tolist() == [1, 2]
    assert address_of(np.array(t)) != t.address
    with pytest.raises(ValueError, match="copy"):
        np.array(t, dtype=np.int32, copy=False)
    assert (np.float32(1) + np.asarray(t)).tolist() == [2, 3]


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


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_the_value(protocol: int) -> None:
    packed, _ = sample(dtypes.int4, (3, 5))
    dirty = Tensor.from_any(np.array([0xF1, 0x02], np.uint8).view(ml_dtypes.float4_e2m1fn))
    strided = Tensor.from_any(np.arange(24.0).reshape(4, 6)).T[1:, ::-1]
    for t in (packed, packed[1:, 1:], dirty, strided, Tensor.zeros((0, 3)), Tensor.full((), 7, "int64")):
        back = pickle.loads(pickle.dumps(t, protocol))
        assert back.equal_bits(t)
        assert (back.layout.storage, back.read_only, back.device) == (t.layout.storage, False, CPU)
        assert back.layout.is_contiguous()
        assert back.address % 64 == 0


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("row", NARROW, ids=repr)
def test_a_pickle_holds_no_bits_of_what_lies_behind_the_tensor(row: DType, protocol: int) -> None:
    """Equal values have equal pickles, and memory that belongs to another tensor is in none."""
    width = row.width_bits
    for count in (1, 2, 3, 5, 7, 8, 9):
        for storage in ("packed", "padded"):
            layout = Layout.dense((count,), width_bits=width, storage=storage)
            elements = np.zeros(layout.required_bytes * 8, np.uint8)  # which bits are elements'
            for i in range(count):
                elements[i * layout.pitch_bits :][:width] = 1
            made = set()
            for around in (0, 1):
                raw = np.packbits(np.where(elements, 0, around).astype(np.uint8), bitorder="little")
                t = Tensor.from_buffer(raw, row, (count,), storage=storage)
                made.add(pickle.dumps(t, protocol))
            assert len(made) == 1, (count, storage)


def test_a_pickle_of_a_dense_tensor_goes_out_of_band() -> None:
    t, carried = Tensor.arange(1000), []
    data = pickle.dumps(t, 5, buffer_callback=carried.append)
    assert len(data) < 500
    assert address_of(np.frombuffer(carried[0], np.uint8)) == t.address
    back = pickle.loads(data, buffers=carried)
    assert back.equal_bits(t)
    assert back.address != t.address
    assert copy.deepcopy(t).address != t.address
