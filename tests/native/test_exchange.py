"""The emitted exchange methods: they say what those written in Python say, and own exactly what they should."""

import inspect
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from capsules import exported

from samebits import dtypes
from samebits.codegen import isa
from samebits.errors import ExchangeError
from samebits.layout import Layout
from samebits.memory import CPU, Buffer, address_of, allocate
from samebits.native import compile, exchange, exchange_text, objects
from samebits.native.capi import Module
from samebits.native.dlpack_text import InterpreterFacts
from samebits.tensor import Tensor

SLOW = exchange.REFERENCE
slow_from_dlpack: Callable[..., Tensor] = SLOW["Tensor.from_dlpack"].__get__(None, Tensor)
slow_from_any: Callable[..., Tensor] = SLOW["Tensor.from_any"].__get__(None, Tensor)
pytestmark = pytest.mark.usefixtures("emitted_methods")


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
    places = allocate(64, zero=True)
    elsewhere = Buffer.__new__(Buffer)
    Buffer.__init__(elsewhere, 4096, 64, None, type(CPU)("cuda", 1))
    found = {
        "dense": base, "transposed": base.T, "part": base[1, 1:, ::2], "flipped": base.flip(0), "one": base[:1, :1],
        "repeated": base[:1].broadcast_to((3, 3, 4, 5)), "empty": base[:, :0], "scalar": base[0, 0, 0, 0],
        "constant": Tensor.from_any(constant), "closed": closed, "packed": Tensor.zeros((4,), dtypes.float4_e2m1fn),
        "padded": Tensor(Buffer(address_of(constant), 4, constant), padded, dtypes.int4),
        "steps of 5 bytes": Tensor(places, Layout((2,), (40,), 0, 32), dtypes.float32),
        "a free step": Tensor(places, Layout((1, 2), (8, 32), 0, 32), dtypes.float32),
        "elsewhere": Tensor(elsewhere, Layout.dense((4,), width_bits=32), dtypes.float32),
    }  # fmt: skip
    found.update({row.name: Tensor.zeros((2, 3), row) for row in dtypes.ROWS})
    return found


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (0, 0)], ids=str)
def test_a_capsule_of_no_elements_has_no_address(shape: tuple[int, ...]) -> None:
    """dlpack.h: the data pointer of a tensor of size 0 should be NULL."""
    t = Tensor.from_any(np.zeros((4, 4, 4), np.float32))[tuple(slice(extent) for extent in shape)]
    for options in ({}, {"max_version": (1, 3)}):
        managed, _capsule = exported(t, **options)
        assert managed.tensor.data is None
        assert tuple(managed.tensor.shape[: len(t.shape)]) == t.shape


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "dlpack/test_capsules.py",
        pytest.param("dlpack/test_consume.py", marks=pytest.mark.exhaustive),
        pytest.param("exchange", marks=pytest.mark.exhaustive),
        pytest.param("tensor", marks=pytest.mark.exhaustive),
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
    facts = InterpreterFacts(*(objects.slot_offsets(cls) for cls in (Tensor, Buffer, Layout)), "Py_IsFinalizing")
    module = Module()
    steps = exchange_text.parts(module, facts, {name: exchange._doc(name, method) for name, method in SLOW.items()})
    assert len(list(steps)) > 1
    text = module.text()
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
