"""`Tensor.__dlpack_c_exchange_api__`, called as another library's C code would."""

import ctypes
import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
from capsules import HeaderOnly

from samebits import dtypes
from samebits.errors import ExchangeError
from samebits.layout import Layout
from samebits.memory import address_of
from samebits.native import exchange
from samebits.tensor import Tensor


class DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_size_t), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Managed(ctypes.Structure):
    """DLManagedTensorVersioned of dlpack.h."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_size_t),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_size_t)), ("flags", ctypes.c_uint64), ("tensor", DLTensor),
    ]  # fmt: skip


SetError = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_char_p)
Out = ctypes.POINTER(ctypes.c_size_t)


class Api(ctypes.Structure):
    """DLPackExchangeAPI of dlpack.h; its functions of objects are called with the lock, the allocator without."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_size_t),
        ("allocate", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(DLTensor), Out, ctypes.c_size_t, SetError)),
        ("from_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, Out)),
        ("to_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_size_t, Out)),
        ("borrow", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))),
        ("stream", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, Out)),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def api() -> Api:
    assert exchange.compile_exchange()
    pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
    pointer.restype, pointer.argtypes = ctypes.c_size_t, (ctypes.py_object, ctypes.c_char_p)
    found = Api.from_address(pointer(vars(Tensor)["__dlpack_c_exchange_api__"], b"dlpack_exchange_api"))
    assert (found.major, found.minor, found.previous) == (1, 3, 0)
    return found


def managed_of(api: Api, x: object) -> Managed:
    """What the API hands over."""
    out = ctypes.c_size_t(7)
    assert api.from_object(x, out) == 0
    return Managed.from_address(out.value)


def taken(api: Api, managed: int) -> Tensor:
    """What the API makes of a managed tensor."""
    out = ctypes.c_size_t(7)
    assert api.to_object(managed, out) == 0
    found: Tensor = ctypes.cast(out.value, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(found))  # the reference that came through `out`
    return found


def facts(tensor: DLTensor) -> tuple[Any, ...]:
    """The fields."""
    shape, strides = tensor.shape[: tensor.ndim], tensor.strides[: tensor.ndim]
    return tensor.data, tensor.device_type, tensor.code, tensor.bits, tensor.lanes, shape, strides, tensor.byte_offset


@pytest.mark.parametrize("row", dtypes.ROWS, ids=str)
def test_objects_are_handed_over_and_come_back(api: Api, row: dtypes.DType) -> None:
    t = Tensor.zeros((4, 6), row)
    for x in (t, t[1:3] if row.width_bits >= 8 else t, t.T if row.width_bits >= 8 else t):
        try:
            reference = exchange.REFERENCE["Tensor.__dlpack__"](x, max_version=(1, 3))
        except (ExchangeError, TypeError) as error:
            with pytest.raises(type(error)):
                managed_of(api, x)
            continue
        pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
        pointer.restype, pointer.argtypes = ctypes.c_size_t, (ctypes.py_object, ctypes.c_char_p)
        managed = managed_of(api, x)
        assert facts(managed.tensor) == facts(Managed.from_address(pointer(reference, b"dltensor_versioned")).tensor)
        y = taken(api, ctypes.addressof(managed))
        assert isinstance(y, Tensor)
        assert (y.dtype, y.shape, y.address, y.read_only) == (x.dtype, x.shape, x.address, x.read_only)


def test_flags_and_ownership_are_carried(api: Api) -> None:
    constant = np.arange(6.0)
    constant.flags.writeable = False
    x = Tensor.from_any(constant)
    before = sys.getrefcount(constant)
    managed = managed_of(api, x)
    assert managed.flags == 1
    assert sys.getrefcount(constant) == before + 1
    assert taken(api, ctypes.addressof(managed)).read_only
    assert sys.getrefcount(constant) == before
    managed = managed_of(api, x)
    x.buffer.close()
    thread = threading.Thread(target=managed.deleter, args=(ctypes.addressof(managed),))
    thread.start()
    thread.join()
    del x
    assert sys.getrefcount(constant) == before - 1


def test_other_objects_are_refused(api: Api) -> None:
    out, tensor = ctypes.c_size_t(7), DLTensor()
    for wrong in (object(), np.zeros(3), torch.zeros(3), Tensor, None):
        with pytest.raises(TypeError, match="another type"):
            api.from_object(wrong, out)
        assert out.value == 0
        with pytest.raises(TypeError, match="another type"):
            api.borrow(wrong, tensor)


def test_what_an_object_says_of_itself_is_not_believed(api: Api) -> None:
    class Claims(int):
        """Where a Tensor has its slots, this has digits."""

        @property
        def __class__(self) -> type:  # type: ignore[override]  # what isinstance believes
            return Tensor

    claims = Claims(int.from_bytes(b"\x77" * 400))
    assert isinstance(claims, Tensor)
    with pytest.raises(TypeError, match="another type"):
        api.from_object(claims, ctypes.c_size_t())
    with pytest.raises(TypeError, match="another type"):
        api.borrow(claims, DLTensor())


def test_a_borrowed_tensor_is_the_tensor(api: Api) -> None:
    class Derived(Tensor):
        pass

    base = Tensor.from_any(np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5))
    for x in (base, base.T, base[1, 1:, ::2], base[0, 0, 0, 0], Derived(base.buffer, base.layout, base.dtype)):
        owner = x.buffer.owner
        uses = sys.getrefcount(owner)
        for _ in range(2):
            tensor = DLTensor()
            assert api.borrow(x, tensor) == 0
            element = tuple(x.strides)
            assert facts(tensor) == (x.address, 1, 2, 32, 1, list(x.shape), list(element), 0)
        assert sys.getrefcount(owner) == uses
    closed = Tensor.zeros((3,))
    closed.buffer.close()
    for x in (base.flip(0), Tensor.zeros((4,), dtypes.int4), Tensor.zeros((0,)), closed, object.__new__(Tensor)):
        with pytest.raises(ExchangeError) as caught:
            api.borrow(x, DLTensor())
        assert str(caught.value) == (
            "__dlpack_c_exchange_api__: tensor layout is elsewhere or not in whole bytes, must be on the host in whole "
            "bytes; ask for a managed tensor"
        )


def test_what_python_refuses_is_refused(api: Api) -> None:
    out = ctypes.c_size_t(7)
    closed = Tensor.zeros((3,))
    closed.buffer.close()
    for x in (closed, Tensor.zeros((3, 3)).flip(0)):
        with pytest.raises((ValueError, BufferError)) as expected:
            exchange.REFERENCE["Tensor.__dlpack__"](x, max_version=(1, 3))
        with pytest.raises(expected.type) as found:
            api.from_object(x, out)
        assert str(found.value) == str(expected.value)
        assert out.value == 0


def test_a_managed_tensor_that_is_refused_is_deleted_once(api: Api) -> None:
    memory = np.arange(64, dtype=np.float32)
    extents = (ctypes.c_int64 * 4)(2, 3, 3, 1)
    shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    strides = ctypes.cast(ctypes.addressof(extents) + 16, ctypes.POINTER(ctypes.c_int64))
    deleted: list[int] = []
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(deleted.append)
    for change in ({}, {"major": 2}, {"code": 99}, {"device_type": 12}, {"ndim": -1}, {"flags": 1 << 40}, {"data": 0}):
        tensor = DLTensor(address_of(memory), 1, 0, 2, 2, 32, 1, shape, strides, 0)
        managed = Managed(1, 3, 0, deleter, 0, tensor)
        for name, value in change.items():
            setattr(managed if name in ("major", "flags") else managed.tensor, name, value)
        deleted.clear()
        if not change:
            assert taken(api, ctypes.addressof(managed)).numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        else:
            with pytest.raises((ExchangeError, TypeError, ValueError)):
                taken(api, ctypes.addressof(managed))
        gc.collect()
        assert len(deleted) == 1, change


def test_of_another_version_only_the_header_is_read(api: Api) -> None:
    for major in (0, 2, 7):
        other = HeaderOnly(major)
        with pytest.raises(ExchangeError, match=rf"version is {major}\.3"):
            taken(api, other.address)
        assert other.deleted == [other.address]


def test_the_allocator_makes_what_the_prototype_says(api: Api) -> None:
    errors: list[tuple[int, bytes, bytes]] = []
    set_error = SetError(lambda context, kind, text: errors.append((context, kind, text)))
    for shape in ((), (3,), (2, 3, 4), (5, 0, 2), (1,) * 64):
        for code, bits, lanes in ((2, 32, 1), (4, 16, 1), (17, 4, 2), (0, 4, 1)):
            extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
            like = DLTensor(0, 1, 0, len(shape), code, bits, lanes, extents, None, 9)
            out = ctypes.c_size_t(0)
            assert api.allocate(like, out, 5, set_error) == 0
            made = Managed.from_address(out.value)
            data, *rest = facts(made.tensor)
            expected = Layout.dense(shape, width_bits=32).strides
            assert rest == [1, code, bits, lanes, list(shape), list(expected), 0]
            assert (data % 64, made.major, made.minor, made.flags) == (0, 1, 3, 0)
            ctypes.memset(data, 255, -(-int(np.prod(shape)) * bits * lanes // 8))
            if code == 2:
                assert taken(api, out.value).shape == shape
            else:
                made.deleter(out.value)
    assert errors == []


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"device_type": 2}, b"BufferError", b"the CPU"), ({"device_id": 1}, b"BufferError", b"the CPU"),
        ({"ndim": -1}, b"ValueError", b"rank"), ({"ndim": 65}, b"ValueError", b"rank"),
        ({"shape": None}, b"ValueError", b"rank"), ({"bits": 0}, b"ValueError", b"size"),
        ({"lanes": 0}, b"ValueError", b"size"), ({"extent": -1}, b"ValueError", b"size"),
        ({"extent": 1 << 62}, b"ValueError", b"size"), ({"extent": 1 << 55}, b"MemoryError", b"memory"),
    ],
)  # fmt: skip
def test_the_allocator_refuses(api: Api, change: dict[str, Any], kind: bytes, text: bytes) -> None:
    errors: list[tuple[int, bytes, bytes]] = []
    set_error = SetError(lambda context, kind, text: errors.append((context, kind, text)))
    extents = (ctypes.c_int64 * 2)(change.pop("extent", 3), 2)
    like = DLTensor(0, 1, 0, 2, 2, 32, 1, extents, None, 0)
    for name, value in change.items():
        setattr(like, name, value)
    out = ctypes.c_size_t(7)
    assert api.allocate(like, out, 5, set_error) == -1
    assert out.value == 0
    assert [(context, name) for context, name, _ in errors] == [(5, kind)]
    assert text in errors[0][2]


def test_there_is_no_stream_to_wait_for(api: Api) -> None:
    out = ctypes.c_size_t(7)
    assert api.stream(1, 0, out) == 0
    assert out.value == 0


def test_ours_comes_in_through_its_own_api(api: Api) -> None:
    x = Tensor.from_any(np.arange(6.0))
    y = Tensor.from_dlpack(x)
    assert (y.address, y.layout, y.dtype) == (x.address, x.layout, x.dtype)
    assert y is not x
    assert exchange._producers[Tensor] is not None
    assert Tensor.from_any(x) is x


def test_cycles_leave_nothing(api: Api) -> None:
    x = Tensor.from_any(np.arange(6.0))
    before = sys.getrefcount(x.buffer.owner), sys.getrefcount(x)
    for _ in range(20_000):
        taken(api, ctypes.addressof(managed_of(api, x)))
        managed = managed_of(api, x)
        managed.deleter(ctypes.addressof(managed))
        api.borrow(x, DLTensor())
    assert (sys.getrefcount(x.buffer.owner), sys.getrefcount(x)) == before
