"""The emitted exchange methods: they say what those written in Python say, and own exactly what they should."""

import contextlib
import ctypes
import gc
import inspect
import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from samebits import dtypes
from samebits.codegen import isa
from samebits.errors import ExchangeError
from samebits.layout import Layout
from samebits.memory import CPU, Buffer, address_of
from samebits.native import compile, exchange, exchange_text, objects
from samebits.native.dlpack_text import Facts
from samebits.tensor import Tensor

SLOW = exchange.REFERENCE
slow_from_dlpack: Callable[..., Tensor] = SLOW["Tensor.from_dlpack"].__get__(None, Tensor)
slow_from_any: Callable[..., Tensor] = SLOW["Tensor.from_any"].__get__(None, Tensor)


@pytest.fixture(autouse=True, scope="module")
def installed() -> None:
    assert exchange.compile_exchange()
    assert exchange.is_installed()


def outcome(call: Callable[[], Tensor]) -> tuple[Any, ...]:
    """What a tensor says of itself, or the exception."""
    try:
        t = call()
    except Exception as error:
        return type(error), str(error)
    buffer = t.buffer
    # Of no bytes any address is as good.
    return t.dtype, t.layout, buffer.size_bytes, buffer.size_bytes and buffer.address, buffer.device, t.read_only


def arrays() -> dict[str, Any]:
    """NumPy arrays of every kind that matters, and what looks like one."""
    base = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    constant = np.arange(6, dtype=np.int16)
    constant.flags.writeable = False
    record = np.zeros(3, np.dtype([("a", "f4"), ("b", "i4")]))
    found: dict[str, Any] = {
        "dense": base, "transposed": base.T, "part": base[1, 1:, ::2, ::-1], "flipped": base[::-1], "one": base[:1, :1],
        "empty": base[:0], "scalar": np.array(1.5), "repeated": np.broadcast_to(base[0], (7, 3, 4, 5)),
        "constant": constant, "odd address": np.zeros(33, np.uint8)[1:].view(np.float32), "bytes": np.zeros(9, np.int8),
        "odd stride": np.lib.stride_tricks.as_strided(np.zeros(9, np.float32), (3,), (6,)), "field": record["b"],
        "record": record, "swapped": base.astype(">f4"), "objects": np.array([None]), "text": np.array(["a"]),
        "complex": base.astype(np.complex64), "long double": np.zeros(3, np.longdouble), "dates": np.zeros(2, "M8[s]"),
        "masked": np.ma.masked_array(base), "matrix": np.zeros((2, 2)).view(np.matrix), "number": np.float32(3),
        "64 axes": np.zeros((1,) * 64), "list": [1, 2], "none": None,
    }  # fmt: skip
    for row in dtypes.ROWS:
        if row.numpy is not None:
            found[row.name] = np.zeros((3, 2), row.numpy)
    return found


@pytest.mark.parametrize("name", arrays())
def test_numpy_arrays_come_in_as_without_emitted_code(name: str) -> None:
    x = arrays()[name]
    assert outcome(lambda: Tensor.from_dlpack(x)) == outcome(lambda: slow_from_dlpack(x))
    assert outcome(lambda: Tensor.from_any(x)) == outcome(lambda: slow_from_any(x))


def tensors() -> dict[str, Any]:
    """Torch tensors of every kind that matters."""
    base = torch.arange(120.0).reshape(2, 3, 4, 5)
    found = {
        "dense": base,
        "transposed": base.permute(3, 2, 1, 0),
        "part": base[1, 1:, ::2],
        "repeated": base[:1].expand(9, 3, 4, 5),
        "empty": base[:0],
        "scalar": torch.tensor(1.5),
        "one": base[:1, :1],
        "gradient": torch.ones(3, requires_grad=True),
        "sparse": torch.ones(3).to_sparse(),
        "meta": torch.ones(3, device="meta"),
        "complex": torch.ones(3, dtype=torch.complex64),
        "conjugate": torch.ones(3, dtype=torch.complex64).conj(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "frozen parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "fp4": torch.zeros(2, dtype=torch.float4_e2m1fn_x2),
    }
    for name in ("int4", "uint4", "int1", "uint7", "bits8"):
        found[f"shell {name}"] = torch.zeros(4, dtype=torch.uint8).view(getattr(torch, name))
    for row in dtypes.ROWS:
        dtype = getattr(torch, row.name, None)
        if dtype is not None and row.width_bits >= 8:
            found[row.name] = torch.zeros((3, 2), dtype=dtype)
    return found


@pytest.mark.parametrize("name", tensors())
def test_torch_tensors_come_in_as_without_emitted_code(name: str) -> None:
    x = tensors()[name]
    assert outcome(lambda: Tensor.from_dlpack(x)) == outcome(lambda: slow_from_dlpack(x))
    assert outcome(lambda: Tensor.from_any(x)) == outcome(lambda: slow_from_any(x))


def test_numpys_warning_is_not_lost() -> None:
    said = []
    for get in (lambda x: x.flags.writeable, Tensor.from_any, slow_from_any):
        repeated, _ = np.broadcast_arrays(np.arange(3.0), np.zeros((2, 3)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            get(repeated)
        said.append([str(warning.message) for warning in caught])
    assert said[0] == said[1] == said[2]


def test_memory_that_torch_is_still_to_negate_is_refused() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert x.is_neg()
    for take in (Tensor.from_dlpack, Tensor.from_any, slow_from_dlpack, slow_from_any):
        with pytest.raises(
            ExchangeError, match=r"memory is still to be negated, must be what the values are; call x\.res"
        ):
            take(x)
    assert Tensor.from_dlpack(x.resolve_neg()).tolist() == [-2, 4]
    assert (torch.Tensor, "is_neg") in [(type, row[2]) for type, row in exchange._producers.items() if row]


def test_random_strides_give_the_layouts_of_the_reference() -> None:
    random = np.random.default_rng(5)
    base = np.arange(4096, dtype=np.int32)
    for _ in range(2000):
        rank = int(random.integers(0, 5))
        shape = [int(n) for n in random.integers(0, 5, rank)]
        strides = [4 * int(n) for n in random.integers(-200, 200, rank)]
        x = np.lib.stride_tricks.as_strided(base[2048:], shape, strides)
        assert outcome(lambda x=x: Tensor.from_dlpack(x)) == outcome(lambda x=x: slow_from_dlpack(x))
        if min(strides, default=0) >= 0:
            y = torch.as_strided(torch.from_numpy(base), shape, [s // 4 for s in strides], 7)
            assert outcome(lambda y=y: Tensor.from_dlpack(y)) == outcome(lambda y=y: slow_from_dlpack(y))
        else:
            assert x.size == 0 or Tensor.from_dlpack(x).numpy().strides is not None


REQUESTS: list[dict[str, Any]] = [
    {},
    {"max_version": (1, 0)},
    {"max_version": (1, 3)},
    {"max_version": (2, 0)},
    {"max_version": (0, 8)},
    {"max_version": None},
    {"max_version": (1,)},
    {"max_version": [1, 0]},
    {"max_version": (1, 0, 0)},
    {"max_version": (1.0, 0)},
    {"max_version": (1 << 70, 0)},
    {"max_version": (-1, 0)},
    {"max_version": (1, -1)},
    {"max_version": "10"},
    {"max_version": (True, 0)},
    {"stream": None},
    {"stream": -1},
    {"stream": 1},
    {"max_version": (1, 0), "dl_device": None, "copy": None, "stream": None},
    {"dl_device": (1, 0)},
    {"dl_device": (2, 0)},
    {"copy": False, "max_version": (1, 0)},
    {"copy": True},
    {"copy": True, "max_version": (1, 0)},
    {"unknown": None},
    {"copy": None, "unknown": None},
]


class Once:
    """A producer of one capsule."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: object) -> object:
        return self.capsule


def exports() -> dict[str, Tensor]:
    """Tensors of ours."""
    base = Tensor.from_any(np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5))
    constant = np.arange(6, dtype=np.int16)
    constant.flags.writeable = False
    closed = Tensor.zeros((3,))
    closed.buffer.close()
    padded = Layout.dense((4,), width_bits=4, storage="padded")
    elsewhere = Buffer.__new__(Buffer)
    Buffer.__init__(elsewhere, 4096, 64, None, type(CPU)("cuda", 1))
    found = {
        "dense": base, "transposed": base.T, "part": base[1, 1:, ::2], "flipped": base.flip(0), "one": base[:1, :1],
        "repeated": base[:1].broadcast_to((3, 3, 4, 5)), "empty": base[:, :0], "scalar": base[0, 0, 0, 0],
        "constant": Tensor.from_any(constant), "closed": closed, "packed": Tensor.zeros((4,), dtypes.float4_e2m1fn),
        "padded": Tensor(Buffer(address_of(constant), 4, constant), padded, dtypes.int4),
        "elsewhere": Tensor(elsewhere, Layout.dense((4,), width_bits=32), dtypes.float32),
    }  # fmt: skip
    found.update({row.name: Tensor.zeros((2, 3), row) for row in dtypes.ROWS})
    return found


@pytest.mark.parametrize("name", exports())
def test_capsules_are_those_without_emitted_code(name: str) -> None:
    t = exports()[name]
    assert outcome_of(lambda: t.__dlpack_device__()) == outcome_of(lambda: SLOW["Tensor.__dlpack_device__"](t))
    for request in REQUESTS:
        emitted = outcome(lambda request=request: slow_from_dlpack(Once(t.__dlpack__(**request))))
        written = outcome(lambda request=request: slow_from_dlpack(Once(SLOW["Tensor.__dlpack__"](t, **request))))
        if request.get("copy"):  # each copy has an address of its own
            emitted, written = emitted[:3], written[:3]
        assert emitted == written, request


@pytest.mark.parametrize("name", exports())
def test_torch_gets_what_it_gets_without_emitted_code(name: str) -> None:
    t = exports()[name]
    for keywords in ({}, {"copy": False}, {"copy": True}, {"wrong": 1}):

        def facts(method: Any, keywords: dict[str, Any] = keywords) -> object:
            x = method(t, **keywords)
            return x.dtype, tuple(x.shape), x.stride(), keywords.get("copy") or x.data_ptr()

        emitted, written = (outcome_of(lambda m=m: facts(m)) for m in (Tensor.torch, SLOW["Tensor.torch"]))
        assert emitted == written
    with pytest.raises(TypeError):
        t.torch(True)  # type: ignore[misc]


def outcome_of(call: Callable[[], object]) -> object:
    """What a call returns or raises."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def test_wrong_calls_raise_what_python_raises() -> None:
    x, t = np.zeros(3), Tensor.zeros((3,))
    assert Tensor.from_dlpack(x=x).shape == t.from_dlpack(x).shape == (3,)
    for arguments, keywords in (((), {}), ((x, x), {}), ((x,), {"y": 1}), ((), {"y": x}), ((object(),), {})):
        emitted = outcome(lambda a=arguments, k=keywords: Tensor.from_dlpack(*a, **k))
        assert emitted == outcome(lambda a=arguments, k=keywords: slow_from_dlpack(*a, **k))
        assert issubclass(emitted[0], Exception)
    with pytest.raises(TypeError):
        t.__dlpack__(None)
    for method in ("__dlpack__", "__dlpack_device__"):
        with pytest.raises(TypeError):
            getattr(Tensor, method)(object())
        with pytest.raises(TypeError):
            getattr(Tensor, method)()
    with pytest.raises(TypeError):
        t.__dlpack_device__(1)


def test_methods_tell_their_signature_and_docstring() -> None:
    for name in ("from_dlpack", "from_any", "__dlpack__", "__dlpack_device__"):
        written = SLOW[f"Tensor.{name}"]
        emitted, function = getattr(Tensor, name), getattr(written, "__func__", written)
        assert emitted.__qualname__ == f"Tensor.{name}"
        assert emitted.__doc__ == inspect.getdoc(function)
        names = list(inspect.signature(emitted).parameters)
        assert names == [n for n in inspect.signature(function).parameters if n != "cls"]
    assert pickle.loads(pickle.dumps(Tensor.from_dlpack)) is Tensor.from_dlpack


class Sub(Tensor):
    """A class derived from ours."""


def test_subclasses_and_subclass_instances_work() -> None:
    x = np.arange(3.0)
    assert type(Sub.from_dlpack(x)) is type(slow_from_dlpack(x))
    t = Tensor.from_dlpack(x)
    sub = Sub(t.buffer, t.layout, t.dtype)
    assert np.from_dlpack(sub).tolist() == [0, 1, 2]
    bare = object.__new__(Tensor)
    for use in (bare.__dlpack__, bare.__dlpack_device__):
        with pytest.raises(AttributeError):
            use()


def resident_kib() -> int:
    """Memory of this process that is there, in KiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


def cycles() -> dict[str, Callable[[], object]]:
    """Uses that leave nothing behind."""
    x, y, t = np.zeros((3, 4), np.float32), torch.zeros(3, 4), Tensor.zeros((3, 4))
    late = {"max_version": (1, 3)}
    return {
        "from numpy": lambda: Tensor.from_dlpack(x),
        "from torch": lambda: Tensor.from_dlpack(y),
        "capsule": lambda: t.__dlpack__(**late),
        "legacy": lambda: t.__dlpack__(),
        "device": lambda: t.__dlpack_device__(),
        "to numpy": lambda: np.from_dlpack(t),
        "to torch": lambda: torch.from_dlpack(t),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", cycles())
def test_memory_and_counts_stay_flat(name: str) -> None:
    cycle = cycles()[name]
    x = np.zeros(1, np.float32)
    watched = (None, True, False, CPU, Tensor, Buffer, Layout, dtypes.float32, x.dtype, torch.Tensor, np.ndarray)
    for _ in range(1000):
        cycle()
    gc.collect()
    before, counts = resident_kib(), [sys.getrefcount(each) for each in watched]
    rounds = 1_000_000 if name in ("from numpy", "capsule") else 100_000
    for _ in range(rounds):
        cycle()
    gc.collect()
    after = [sys.getrefcount(each) for each in watched]
    assert max(abs(a - b) for a, b in zip(after, counts, strict=True)) < 50
    assert resident_kib() - before < 2048


def test_an_array_lives_exactly_as_long_as_its_tensors() -> None:
    x, y = np.zeros(5), torch.zeros(5)
    before = sys.getrefcount(x), sys.getrefcount(y)
    made = [Tensor.from_dlpack(x) for _ in range(100)]
    assert sys.getrefcount(x) == before[0] + 100
    assert {t.buffer.owner is x for t in made} == {True}
    layout = made[0].layout
    uses = sys.getrefcount(layout)
    capsules = [t.__dlpack__(max_version=(1, 0)) for t in made]
    assert sys.getrefcount(x) == before[0] + 200
    assert sys.getrefcount(layout) == uses
    made[0].buffer.close()
    made.clear()
    assert sys.getrefcount(x) == before[0] + 100
    capsules.clear()
    assert (sys.getrefcount(x), sys.getrefcount(y)) == before
    kept = Tensor.from_dlpack(y)
    address = y.data_ptr()
    del y
    assert kept.address == address
    assert kept.numpy().sum() == 0


def test_a_capsule_that_dies_keeps_the_exception_in_flight() -> None:
    t = Tensor.zeros((3,), dtypes.bfloat16)
    for _ in range(100):
        with pytest.raises((RuntimeError, BufferError), match=r"[Uu]nsupported dtype"):
            np.from_dlpack(t)


def test_a_deleter_runs_on_any_thread_without_the_lock() -> None:
    x = np.zeros(5)
    t = Tensor.from_dlpack(x)
    before = sys.getrefcount(x)
    for versioned, at in ((False, 56), (True, 16)):
        capsule = t.__dlpack__(max_version=(1, 0)) if versioned else t.__dlpack__()
        name = b"dltensor_versioned" if versioned else b"dltensor"
        pointer, rename = ctypes.pythonapi["PyCapsule_GetPointer"], ctypes.pythonapi["PyCapsule_SetName"]
        pointer.restype, pointer.argtypes = ctypes.c_size_t, (ctypes.py_object, ctypes.c_char_p)
        rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
        managed = pointer(capsule, name)
        rename(capsule, b"used")
        assert sys.getrefcount(x) == before + 1
        deleter = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(objects.word(managed + at))  # releases the lock
        thread = threading.Thread(target=deleter, args=(managed,))
        thread.start()
        thread.join()
        del capsule
        assert sys.getrefcount(x) == before


def test_eight_threads_exchange_at_once() -> None:
    x, y, t = np.zeros((3, 4)), torch.zeros(3, 4), Tensor.zeros((3, 4))
    before = sys.getrefcount(x)
    wrong: list[object] = []

    def work(seed: int) -> None:
        for i in range(3000):
            a = Tensor.from_dlpack(x[: 1 + (i + seed) % 3])
            b = Tensor.from_dlpack(y[:, : 1 + i % 4])
            c, d = np.from_dlpack(t), torch.from_dlpack(b)
            if (a.shape, b.shape, c.shape, tuple(d.shape)) != (
                (1 + (i + seed) % 3, 4),
                (3, 1 + i % 4),
                (3, 4),
                b.shape,
            ):
                wrong.append(i)
            if i % 500 == 0:
                exchange._layouts.clear()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sys.getrefcount(x) == before


def test_the_kept_layouts_are_bounded() -> None:
    x = np.zeros(8192, np.uint8)
    for n in range(1, 8193):
        assert Tensor.from_dlpack(x[:n]).shape == (n,)
    assert 0 < len(exchange._layouts) <= exchange._KEPT_LAYOUTS


# A producer whose C function says whatever the test wants.


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
        {"code": 255}, {"bits": 0}, {"bits": 4}, {"bits": 33}, {"bits": 255}, {"bits": 128}, {"code": 17, "bits": 8},
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


# Processes.


def python(program: str, *flags: str, **environment: str) -> str:
    """What a fresh interpreter prints; it must end well."""
    run = subprocess.run(
        [sys.executable, *flags, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return run.stdout


LIVE = """
import ctypes, numpy as np, torch
from samebits import Tensor
from samebits.native import exchange
assert exchange.compile_exchange()
t = Tensor.from_dlpack(np.arange(3.0))
kept = [t, t.__dlpack__(), t.__dlpack__(max_version=(1, 3)), torch.from_dlpack(t), np.from_dlpack(t)]
kept += [Tensor.from_dlpack(torch.ones(3)), Tensor.from_dlpack(torch.from_dlpack(t))]
import builtins, sys
builtins.kept_for_ever = kept
sys.kept_for_ever = kept
cycle = [kept]
cycle.append(cycle)
print("end")
"""

# The C library calls the deleter after the interpreter is gone.
LATE = """
import ctypes, numpy as np
from samebits import Tensor
from samebits.native import compile, exchange, exchange_text, objects
from samebits.native.dlpack_text import Facts
assert exchange.compile_exchange()
pointer, rename = ctypes.pythonapi["PyCapsule_GetPointer"], ctypes.pythonapi["PyCapsule_SetName"]
pointer.restype, pointer.argtypes = ctypes.c_size_t, (ctypes.py_object, ctypes.c_char_p)
rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
t = Tensor.from_dlpack(np.arange(3.0))
capsule = t.__dlpack__(max_version=(1, 3))
managed = pointer(capsule, b"dltensor_versioned")
rename(capsule, b"used")
at_exit = ctypes.CDLL(None)["__cxa_atexit"]
at_exit.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)
assert at_exit(objects.word(managed + 16), managed, 0) == 0
print("end")
"""

FORK = """
import os, numpy as np
from samebits import Tensor
from samebits.native import exchange
assert exchange.compile_exchange()
x = np.arange(3.0)
t = Tensor.from_dlpack(x)
capsule = t.__dlpack__(max_version=(1, 3))
child = os.fork()
del capsule
assert np.from_dlpack(Tensor.from_dlpack(x)).sum() == 3
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("end")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's exit and fork")
@pytest.mark.parametrize("program", [LIVE, LATE, FORK], ids=["live", "late", "fork"])
def test_the_interpreter_ends_well(program: str) -> None:
    assert python(program, "-X", "dev", PYTHONMALLOC="debug").strip() == "end"


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "dlpack/test_capsules.py",
        pytest.param("dlpack/test_consume.py", marks=pytest.mark.exhaustive),
        pytest.param("exchange", marks=pytest.mark.exhaustive),
        pytest.param("test_tensor.py", marks=pytest.mark.exhaustive),
        pytest.param("layout/test_affine.py", marks=pytest.mark.exhaustive),
        pytest.param("layout/test_fuzz.py", marks=pytest.mark.exhaustive),
    ],
)
def test_the_tests_of_exchange_pass_over_emitted_methods(file: str, pytestconfig: pytest.Config) -> None:
    tests = pytestconfig.rootpath / "tests"
    paths = os.pathsep.join([str(tests), str(pytestconfig.rootpath / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "emitted", "-p", "no:cacheprovider", str(tests / file)]
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONMALLOC": "debug"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout


def test_the_text_is_that_of_every_architecture() -> None:
    facts = Facts(*(objects.slot_offsets(cls) for cls in (Tensor, Buffer, Layout)), "Py_IsFinalizing")
    text = exchange_text.module(facts, {name: exchange._doc(name, method) for name, method in SLOW.items()}).text()
    host = next(row for row in isa.ROWS if row.compiled and row.available)
    for arch in ("x86_64", "aarch64"):
        assert compile.object_code(text, host.target(arch))[:4] == b"\x7fELF"
    addresses = [str(id(each)) for each in (Tensor, Buffer, Layout, CPU, np.ndarray)]
    assert not any(address in text for address in addresses)


def test_another_interpreter_keeps_the_methods_written_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_installed", None)
    monkeypatch.setattr(objects, "is_known", lambda: False)
    emitted = Tensor.from_dlpack
    assert not exchange.compile_exchange()
    assert not exchange.is_installed()
    assert Tensor.from_dlpack is emitted


def test_slots_are_found_where_they_are() -> None:
    class Slots:
        __slots__ = ("__weakref__", "first", "second")

    found = objects.slot_offsets(Slots)
    assert set(found) == {"first", "second"}
    instance: Any = Slots()
    instance.first, instance.second = object(), object()
    for name, offset in found.items():
        assert objects.word(id(instance) + offset) == id(getattr(instance, name))
    assert objects.array_is_known()
