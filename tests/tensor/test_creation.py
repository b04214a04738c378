"""Tensors from what others made, from numbers, and in new memory; and copies."""

import operator
import pickle

import ml_dtypes
import numpy as np
import pytest
from tensor_samples import NARROW, sample

from samebits import driver, dtypes
from samebits.dtypes import DType
from samebits.errors import (
    DeviceError,
)
from samebits.layout import Layout
from samebits.memory import CPU, Device
from samebits.tensor import Tensor


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


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_full_and_arange_of_every_format(row: DType) -> None:
    for storage in ("packed", "padded"):
        for value in (1, 1.0, np.float32(1)) if row.max >= 1 else (0, 0.0):
            t = Tensor.full((3, 5), value, row, storage=storage)
            assert (t.shape, t.dtype, t.layout.storage) == ((3, 5), row, storage if row.width_bits % 8 else "packed")
            assert (t.values() == value).all()
        assert Tensor.full((), 1 if row.max >= 1 else 0, row).item() == (1 if row.max >= 1 else 0)
        if row.has_zero and row.max >= 3:
            assert Tensor.arange(4, dtype=row, storage=storage).tolist() == [0, 1, 2, 3]
            assert Tensor.arange(3, 0, -2, row).tolist() == [3, 1]
    assert Tensor.arange(0, dtype=row).shape == (0,)
    if row.max >= 1:
        ones = Tensor.ones((3, 5), row, storage="padded")
        assert ones.layout == Tensor.ones_like(ones).layout
        assert ones.equal_bits(Tensor.full((3, 5), 1, row))
        assert Tensor.ones_like(Tensor.zeros((3, 5)), dtype=row).equal_bits(ones)
    like = Tensor.full_like(Tensor.zeros((2, 3), "int4", storage="padded"), 0 if row.max < 1 else 1, dtype=row)
    assert (like.shape, like.dtype) == ((2, 3), row)
    assert Tensor.zeros_like(like).layout == Tensor.empty_like(like, device=CPU).layout == like.layout


def test_arange_counts_as_numpy_does() -> None:
    for arguments in [(5,), (2, 9), (2, 9, 3), (9, 2, -3), (5, 5), (5, 2), (-3, 4, 2), (2**62, 2**62 + 3)]:
        t = Tensor.arange(*arguments)
        assert (t.dtype, t.tolist()) == (dtypes.int64, np.arange(*arguments).tolist())
    for arguments in [(0, 1, 0.1), (1, 0, -0.25), (0.5,), (0, 1e-3, 1e-4)]:
        t = Tensor.arange(*arguments)
        assert (t.dtype, t.tolist()) == (dtypes.float32, np.arange(*arguments).astype(np.float32).tolist())
    assert Tensor.arange(2**64 - 2, 2**64, dtype="uint64").tolist() == [2**64 - 2, 2**64 - 1]


def test_arange_ends_before_stop() -> None:
    for start, stop, step in [(1, 1.3, 0.1), (1.1, 0.1, -0.1), (0, 0.3, 0.1), (0, 1e-323, 5e-324), (0.5, 1.5, 0.25)]:
        is_before = operator.lt if step > 0 else operator.gt
        due = [x for i in range(99) if is_before(x := start + i * step, stop)]
        assert Tensor.arange(start, stop, step, "float64").tolist() == due
    assert Tensor.arange(-1e308, 1e308, 1e308, "float64").tolist() == [-1e308, 0]
    assert Tensor.arange(0, 10, 10**400).tolist() == [0]


def test_empty_tensors_of_long_axes_have_values_and_digests() -> None:
    for shape in [(0, 2**57 - 1), (2**57 - 1, 0), (0, 2**28, 2**28)]:
        t = Tensor.zeros(shape, "float64")
        assert t.numpy().shape == t.values().shape == t.copy().shape == Tensor.full(shape, 1, "int64").shape == shape
        assert t.tobytes() == b""
        assert t.equal_bits(pickle.loads(pickle.dumps(t)))


@pytest.mark.parametrize("row", NARROW, ids=repr)
def test_bits_after_the_last_element_are_0(row: DType) -> None:
    for storage in ("packed", "padded"):
        for t in (Tensor.full((5,), row.max, row, storage=storage), sample(row, (3, 7))[0][:, 1:6].copy()):
            bits = np.unpackbits(t.buffer.array(), bitorder="little")
            assert not bits[t.layout.bounds_bits[1] :].any()
            assert pickle.dumps(t) == pickle.dumps(t.copy())


def test_new_tensors_are_where_they_are_asked_for() -> None:
    for make in (Tensor.empty, Tensor.zeros):
        assert make((2, 3), "int4", device=CPU).device == CPU
    assert (
        Tensor.full((2,), 1, device=CPU).tolist() == Tensor.arange(1, 3, dtype="float32", device=CPU).tolist()[:1] * 2
    )
    if driver.cuda() is None:
        for use in (
            lambda: Tensor.zeros((2,), device=Device("cuda")),
            lambda: Tensor.full_like(Tensor.zeros((2,)), 1, device=Device("cuda")),
            lambda: Tensor.arange(3, device=Device("cuda")),
        ):
            with pytest.raises(DeviceError):
                use()
