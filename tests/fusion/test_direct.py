"""Runs like one before: Tensors of every way to lie, what keeps their memory, and where results are."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import samebits as sb
from samebits import dtypes
from samebits.errors import FusionError
from samebits.fusion import DataType, FusionDefinition
from samebits.fusion.datatypes import data_type_of
from samebits.memory.allocation import HOST
from samebits.tensor import Tensor

F32 = np.float32
VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], F32)
BIG = 1 << 17  # elements of float32 that take pooled memory


def defined(make, *dtypes, rank=1):
    """A definition of tensors, and what `make` gives of them."""
    with FusionDefinition() as fd:
        for made in make(fd, *[fd.define_tensor([-1] * rank, False, dtype) for dtype in dtypes]):
            fd.add_output(made)
    return fd


def scaled(fd, x):
    """Elements times a number that a call gives, in Float."""
    return [fd.ops.mul(fd.ops.cast(x, DataType.Float), fd.define_scalar(DataType.Float))]


def bits(x):
    """Whatever array it is, its elements as bytes."""
    return Tensor.from_any(x).numpy(copy=True).tobytes()


LIES = {
    "dense": lambda x: x,
    "offset": lambda x: x[2:],
    "odd offset": lambda x: x[1:],
    "strided": lambda x: x[:, ::2],
    "turned": lambda x: x.permute((1, 0)),
    "reversed": lambda x: x.flip(1),
    "a row": lambda x: x[1:2],
    "nothing": lambda x: x[:0],
}


@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize("row", [dtypes.float32, dtypes.bfloat16, dtypes.float4_e2m1fn, dtypes.float8_e4m3fn], ids=str)
def test_a_run_of_tensors_like_one_before_gives_what_the_reference_does(row, lies, monkeypatch):
    fd, random = defined(scaled, data_type_of(row), rank=2), np.random.default_rng(7)
    for number in (0.5, -0.0, 3.25, float("nan")):
        values = random.standard_normal((5, 7), F32)
        x = LIES[lies](Tensor.from_any(values).astype(row))
        (found,) = fd.execute([x, number])
        assert type(found) is Tensor
        with np.errstate(invalid="ignore"):
            due = x.numpy(copy=True).astype(F32) * F32(number)
        np.testing.assert_array_equal(found.numpy(), due)
        assert bits(found) == bits(fd.fec.reference([x, number])[0])
        monkeypatch.setattr("samebits.runtime.cpu.Session.run", None)  # what later runs do without


def test_tensors_go_straight_to_their_table_and_packed_results_are_packed():
    def make(fd, x):
        return [fd.ops.cast(x, DataType.Float4_e2m1fn), fd.ops.neg(x)]

    fd, x = defined(make, DataType.Float), Tensor.from_any(np.linspace(-7, 7, 33, dtype=F32))
    first, second = fd.execute([x]), fd.execute([x])
    assert len(fd.fec._direct) == 1
    assert [bits(a) == bits(b) for a, b in zip(first, second, strict=True)] == [True, True]
    assert [(a.layout, a.dtype) for a in first] == [(a.layout, a.dtype) for a in second]
    assert second[0].layout.storage == "packed"
    assert second[0].nbytes == 17


def test_a_closed_tensor_is_refused_after_a_run_like_it():
    fd, x = defined(scaled, DataType.Float), Tensor.from_any(np.ones(4, F32))
    for _ in range(2):
        fd.execute([x, 1.0])
    x.buffer.close()
    with pytest.raises(FusionError) as error:
        fd.execute([x, 1.0])
    assert str(error.value) == "execute: input 0 buffer is closed, must be open; close it after its last use"


@pytest.mark.parametrize("kind", [np.asarray, Tensor.from_any, torch.from_numpy], ids=["numpy", "tensor", "torch"])
def test_results_in_used_memory_outlive_the_fusion_and_go_back_when_dropped(kind):
    fd, x = defined(scaled, DataType.Float), kind(np.arange(BIG, dtype=F32))
    gc.collect()  # what others left in cycles would go meanwhile
    before = HOST.statistics.lent_bytes
    found = [fd.execute([x, number])[0] for number in (1.0, 2.0, 3.0)]
    views = [y[-3:] for y in found]
    assert HOST.statistics.lent_bytes - before == 3 * 4 * BIG
    del fd, found, x
    gc.collect()
    assert HOST.statistics.lent_bytes - before >= 3 * 4 * BIG  # a view keeps all of it
    for number, view in zip((1, 2, 3), views, strict=True):
        np.testing.assert_array_equal(Tensor.from_any(view).numpy(), F32(number) * np.arange(BIG - 3, BIG, dtype=F32))
    del views, view
    gc.collect()
    assert HOST.statistics.lent_bytes == before


KINDS = {"numpy": lambda x: x, "tensor": sb.to_packed, "torch": lambda x: sb.to_packed(x).torch()}


@pytest.mark.parametrize("kind", KINDS)
def test_threads_with_numbers_of_their_own_meet_in_one_fusion(kind):
    """What a table of codes is filled with depends on the number: each run has its own."""
    dense = np.resize(VALUES, 1 << 17).astype(ml_dtypes.float4_e2m1fn)
    fd, x, start = defined(scaled, DataType.Float4_e2m1fn), KINDS[kind](dense), threading.Barrier(4)
    fd.execute([x, 1.0])

    def work(number):
        due = dense.astype(F32) * F32(number)
        start.wait(60)
        return all(bits(fd.execute([x, number])[0]) == due.tobytes() for _ in range(12))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, [0.5, 3.0, -7.25, 1e-3])) == [True] * 4


def packed_elements(fd, x):
    return [fd.ops.cast(fd.ops.mul(x, fd.define_scalar(DataType.Float)), DataType.Float4_e2m1fn), fd.ops.neg(x)]


def turned_elements(fd, x):
    return [fd.ops.stride_order(packed_elements(fd, x)[0], [0, 1])]


def quantised_blocks(fd, x):
    return list(fd.ops.nv_block_quantize(fd.ops.mul(x, fd.define_scalar(DataType.Float))))


@pytest.mark.parametrize("rows", [4, 1 << 13], ids=["new memory", "used memory"])
@pytest.mark.parametrize("make", [packed_elements, turned_elements, quantised_blocks])
def test_later_runs_give_torch_packed_results_with_the_bits_of_the_first(make, rows, monkeypatch):
    fd, x = defined(make, DataType.Float, rank=2), np.random.default_rng(3).standard_normal((rows, 32), F32)
    given = [torch.from_numpy(x), 1.75]
    first = fd.execute(given)
    assert first[0].dtype is torch.float4_e2m1fn_x2
    for found, due in zip(first, fd.fec.reference(given), strict=True):
        assert bits(found) == due.tobytes()
    monkeypatch.setattr("samebits.runtime.cpu.Session.run", None)  # what later runs do without
    again = fd.execute(given)
    for found, due in zip(again, first, strict=True):
        assert (found.shape, found.stride(), found.dtype) == (due.shape, due.stride(), due.dtype)
        assert bits(found) == bits(due)


def replaced(fd, x):
    """x times a number, written into x and given back, beside what else is computed of what x was."""
    y = fd.ops.cast(scaled(fd, x)[0], x.dtype)
    fd.add_output(y, alias_input=x)
    return [fd.ops.neg(x), y]


PLACES = {
    "dense": lambda x: x,
    "strided": lambda x: x[1::2, 2:4],
    "turned": lambda x: x.permute((1, 0)) if hasattr(x, "permute") else x.T,
    "nothing": lambda x: x[:0],
}
MAKES = {
    "numpy": lambda x: x.numpy(copy=True),
    "tensor": lambda x: x,
    "torch": lambda x: x.torch(),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("row", [dtypes.float32, dtypes.float4_e2m1fn], ids=str)
@pytest.mark.parametrize("kind", MAKES)
def test_later_runs_write_inputs_where_they_lie_and_give_them_back(kind, row, place, monkeypatch):
    fd, wholes = defined(replaced, data_type_of(row), rank=2), []
    for number in (0.5, 0.5, -2.0):
        wholes.append(MAKES[kind](sb.to_packed(Tensor.from_any(np.resize(VALUES, (6, 8)).astype(row.numpy)).copy())))
        x = PLACES[place](wholes[-1])
        before = Tensor.from_any(x).numpy(copy=True).astype(F32)
        negative, same = fd.execute([x, number])
        assert same is x
        assert bits(x) == (before * F32(number)).astype(row.numpy).tobytes()
        assert bits(negative) == (-before).tobytes()
        if before.size:
            monkeypatch.setattr("samebits.runtime.cpu.Session.run", None)  # what later runs do without
            monkeypatch.setattr("samebits.fusion.execution.copy", None)
    assert bits(wholes[0]) == bits(wholes[1])  # what lies between the elements too


def test_an_input_that_may_not_be_written_is_refused_after_one_like_it_was():
    fd, x = defined(replaced, DataType.Float, rank=2), np.ones((2, 3), F32)
    for _ in range(2):
        fd.execute([x, 2.0])
    x.flags.writeable = False
    for array in (x, Tensor.from_any(x)):
        with pytest.raises(FusionError) as error:
            fd.execute([array, 2.0])
        assert str(error.value) == (
            "execute: input 0 memory is read-only, must be writable, as an output is written into it; pass a copy"
        )
    assert x.tolist() == [[4, 4, 4]] * 2


@pytest.mark.parametrize("row", [dtypes.float4_e2m1fn, dtypes.float8_e4m3fn], ids=str)
def test_later_runs_give_numpy_big_results_of_elements_of_few_bits(row):
    fd = defined(lambda fd, x: [fd.ops.cast(x, data_type_of(row))], DataType.Float)
    x = np.resize(VALUES, 2 * BIG)
    due, *others = [fd.execute([x])[0] for _ in range(3)]
    assert due.nbytes >= BIG
    for made in others:
        assert type(made) is np.ndarray
        assert (made.dtype, made.tobytes()) == (due.dtype, due.tobytes())


@pytest.mark.parametrize("other", [lambda _: torch.ones(1), lambda x: x.to("meta"), lambda x: x.double(), torch.t])
def test_what_a_mode_has_torch_make_is_no_result_of_a_later_run(other):
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **kwargs or {})
            return other(made) if "empty" in str(function) else made

    fd, x = defined(lambda fd, x: [fd.ops.neg(x), fd.ops.relu(x)], DataType.Float, rank=2), torch.randn(8, 5)
    for _ in range(3):
        with Mode():
            negative, positive = fd.execute([x])
        assert torch.equal(negative, -x)
        assert torch.equal(positive, x.relu())
