"""The emitted exchange methods before producers whose C function says whatever the test wants."""

import contextlib
import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from capsules import HeaderOnly

from samebits import dtypes
from samebits.memory import address_of
from samebits.native import exchange
from samebits.tensor import Tensor

pytestmark = pytest.mark.usefixtures("emitted_methods")


class DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_size_t), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_size_t), ("strides", ctypes.c_size_t), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Managed(ctypes.Structure):
    """DLManagedTensorVersioned of dlpack.h."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_size_t),
        ("deleter", ctypes.c_size_t), ("flags", ctypes.c_uint64), ("tensor", DLTensor),
    ]  # fmt: skip


MEMORY = np.arange(64, dtype=np.float32)
EXTENTS = (ctypes.c_int64 * 4)(2, 3, 3, 1)
Deleter = ctypes.CFUNCTYPE(None, ctypes.c_size_t)
FromObject = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t))


@contextlib.contextmanager
def producer(api_major: int = 1, **fields: Any) -> Iterator[tuple[Any, list[int], list[int]]]:
    """An object, the calls of its deleter, and those of its `__dlpack__`."""
    deleted: list[int] = []
    asked: list[int] = []
    extents = ctypes.addressof(EXTENTS)
    tensor = DLTensor(address_of(MEMORY), 1, 0, 2, 2, 32, 1, extents, extents + 16, 0)
    delete = Deleter(deleted.append)
    managed = Managed(1, 3, 0, ctypes.cast(delete, ctypes.c_void_p).value, 0, tensor)
    for name, value in fields.items():
        if name not in ("result", "out"):
            setattr(managed if hasattr(managed, name) else managed.tensor, name, value)

    def give(_: int, out: Any) -> int:
        out[0] = fields.get("out", ctypes.addressof(managed))
        return int(fields.get("result", 0))

    function = FromObject(give)
    table = (ctypes.c_size_t * 7)(api_major, 0, 0, ctypes.cast(function, ctypes.c_void_p).value, 0, 0, 0)
    new = ctypes.pythonapi["PyCapsule_New"]
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

    class Made:
        __dlpack_c_exchange_api__ = new(ctypes.addressof(table), b"dlpack_exchange_api", None)

        def __dlpack__(self, **_: object) -> object:
            asked.append(1)
            return MEMORY.__dlpack__(max_version=(1, 0))

    yield Made(), deleted, asked


def test_the_exchange_api_gives_memory_and_gets_it_back_once() -> None:
    for deleter in (True, False):
        fields = {} if deleter else {"deleter": 0}
        with producer(flags=1, byte_offset=8, **fields) as (x, deleted, asked):
            t = Tensor.from_dlpack(x)
            assert (t.shape, t.strides, t.dtype, t.read_only) == ((2, 3), (3, 1), dtypes.float32, True)
            assert t.address == address_of(MEMORY) + 8
            assert t.numpy().tolist() == MEMORY[2:8].reshape(2, 3).tolist()
            again = torch.from_dlpack(Tensor.from_dlpack(t)) if not t.read_only else np.from_dlpack(t)
            del t
            assert (deleted, asked) == ([], [])
            del again
            gc.collect()
            assert (len(deleted), asked) == (int(deleter), [])


@pytest.mark.parametrize(
    "fields",
    [
        {"major": 2}, {"flags": 2}, {"flags": 8}, {"flags": 1 << 63}, {"device_type": 2}, {"device_type": 0},
        {"device_id": 1}, {"ndim": -1}, {"ndim": 65}, {"ndim": 1 << 30}, {"lanes": 2}, {"lanes": 0}, {"code": 31},
        {"code": 32}, {"code": 255}, {"lanes": 65535}, {"bits": 0}, {"bits": 1}, {"bits": 4}, {"bits": 6, "code": 15},
        {"bits": 12}, {"bits": 31}, {"bits": 33}, {"bits": 136}, {"flags": 4}, {"flags": 5}, {"device_id": -1},
        {"bits": 255}, {"bits": 128}, {"code": 17, "bits": 8},
        {"shape": 0}, {"strides": 0}, {"data": 0}, {"data": 1 << 63}, {"byte_offset": 1}, {"byte_offset": 1 << 63},
        {"data": (1 << 63) - 4}, {"byte_offset": (1 << 64) - 8},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_common_goes_back_and_is_asked_for_anew(fields: dict[str, int]) -> None:
    with producer(**fields) as (x, deleted, asked):
        t = Tensor.from_dlpack(x)
        assert t.shape == (64,)
        assert (len(deleted), len(asked)) == (1, 1)


def test_as_many_axes_come_in_as_a_tensor_has() -> None:
    for rank in (1, 63, 64, 65):
        extents = (ctypes.c_int64 * (2 * rank))(*[1] * (rank - 1), 5, *[1] * rank)
        at = ctypes.addressof(extents)
        with producer(ndim=rank, shape=at, strides=at + 8 * rank) as (x, _, asked):
            t = Tensor.from_dlpack(x)
            assert (t.shape, t.address) == ((*[1] * (rank - 1), 5) if rank <= 64 else (64,), address_of(MEMORY))
            assert len(asked) == (rank > 64)


@pytest.mark.parametrize("major", [0, 2, 7, (1 << 32) - 1])
def test_nothing_of_another_major_version_is_read_but_its_header(major: int) -> None:
    for get in (Tensor.from_dlpack, Tensor.from_any):
        other = HeaderOnly(major)
        with producer(out=other.address) as (x, deleted, asked):
            assert get(x).shape == (64,)
            assert (other.deleted, deleted, asked) == ([other.address], [], [1])


def test_hostile_extents_are_refused() -> None:
    values = [(-1, 3, 3, 1), (2, 1 << 62, 1, 1), (1 << 40, 1 << 40, 1, 1), (2, 3, 1 << 62, 1), (2, 3, -(1 << 63), 1)]
    for value in values:
        EXTENTS[:] = value
        try:
            with producer() as (x, deleted, asked):
                assert Tensor.from_dlpack(x).shape == (64,)
                assert (len(deleted), len(asked)) == (1, 1)
        finally:
            EXTENTS[:] = (2, 3, 3, 1)


def test_memory_that_would_begin_before_the_first_address_is_refused() -> None:
    EXTENTS[:] = (2, 3, -3, -1)  # 20 bytes lie before the first element
    try:
        for data in (4, 16):
            with producer(data=data) as (x, deleted, asked):
                assert Tensor.from_dlpack(x).shape == (64,)
                assert (len(deleted), len(asked)) == (1, 1)
        with producer(data=address_of(MEMORY) + 20) as (x, _, asked):
            assert Tensor.from_dlpack(x).numpy().tolist() == [[5, 4, 3], [2, 1, 0]]
            assert asked == []
    finally:
        EXTENTS[:] = (2, 3, 3, 1)


def test_a_class_that_cannot_be_remembered_or_asked_is_taken_by_its_own_method() -> None:
    class Unhashable(type):
        __hash__ = None  # type: ignore[assignment]

    class Raising:
        def __get__(self, *_: object) -> object:
            raise KeyError("no API today")

    with producer() as (x, deleted, asked):
        give = type(x).__dlpack__
        for kind in (Unhashable("A", (), {"__dlpack__": give}), type("B", (), {"__dlpack__": give})):
            if type(kind) is type:
                kind.__dlpack_c_exchange_api__ = Raising()
            for get in (Tensor.from_dlpack, Tensor.from_any):
                assert get(kind()).shape == (64,)
    assert (len(asked), deleted) == (4, [])


def test_an_exchange_api_that_fails_or_is_another_one_is_not_used() -> None:
    for fields in ({"result": -1}, {"out": 0}):
        with producer(**fields) as (x, deleted, asked):
            assert Tensor.from_dlpack(x).shape == (64,)
            assert (len(deleted), len(asked)) == (0, 1)
    with producer(2) as (x, deleted, asked):
        assert Tensor.from_dlpack(x).shape == (64,)
        assert (len(deleted), len(asked)) == (0, 1)
    with producer() as (x, deleted, asked):
        derived = type("Derived", (type(x),), {})()
        assert Tensor.from_dlpack(derived).shape == (64,)
        assert (len(deleted), len(asked)) == (0, 1)
        type(x).__dlpack_c_exchange_api__ = 7
        for _ in range(exchange._KEPT_PRODUCERS):
            Tensor.from_dlpack(type("Other", (type(x),), {})())
        assert Tensor.from_dlpack(x).shape == (64,)
        assert deleted == []
    assert len(exchange._producers) <= exchange._KEPT_PRODUCERS
    exchange._producers.clear()
