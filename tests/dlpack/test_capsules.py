"""DLPack in and out: NumPy, torch and JAX, and producers that break the protocol."""

import gc
import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from capsules import HandMade, Legacy, Versioned, exported, name_of

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, ExchangeError, OptionError, SamebitsError
from samebits.memory import address_of
from samebits.tensor import Tensor

pytestmark = pytest.mark.usefixtures("short_collections")

ROWS = sorted((row for row in dtypes.ROWS if row.width_bits % 8 == 0), key=lambda row: row.name)
JAX_ROWS = [row for row in ROWS if row.width_bits < 64]
TORCH_ROWS = [row for row in ROWS if hasattr(torch, row.name)]
# NumPy itself exchanges its own dtypes and no other.
NUMPY_ROWS = [row for row in ROWS if row.numpy is not None and row.numpy.isbuiltin == 1]


def values_of(row: DType) -> np.ndarray:
    """A 2 x 3 array of the row, no value NaN."""
    return np.array([[1, 0, 1], [1, 0, 1]] if row is dtypes.bool_ else [[1, 1, 2], [4, 2, 4]], row.numpy)


# In: every library's array, same address, same values.


@pytest.mark.parametrize("row", TORCH_ROWS, ids=repr)
def test_torch_in_and_out_shares_memory(row: DType) -> None:
    x = torch.tensor(values_of(row).astype(np.float64)).to(getattr(torch, row.name))
    t = Tensor.from_dlpack(x)
    assert (t.dtype, t.shape, t.strides, t.read_only) == (row, (2, 3), (3, 1), False)
    assert t.address == x.data_ptr()
    assert np.array_equal(t.numpy(), values_of(row))
    for back in (t.torch(), torch.from_dlpack(t)):
        assert back.dtype == x.dtype
        assert back.data_ptr() == x.data_ptr()
        assert torch.equal(back.view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("row", [row for row in ROWS if row not in TORCH_ROWS and row.kind == "float"], ids=repr)
def test_torch_is_not_given_what_it_has_no_name_for(row: DType) -> None:
    with pytest.raises(DTypeError) as error:
        Tensor.zeros((2,), row).torch()
    assert str(error.value) == (
        f"Tensor.torch: tensor dtype is {row.name}, must be one that torch takes by DLPack; "
        "use Tensor.export(to='torch') for its bytes"
    )


@pytest.mark.parametrize("row", NUMPY_ROWS, ids=repr)
def test_numpy_in_and_out_shares_memory(row: DType) -> None:
    x = values_of(row)
    for t in (Tensor.from_dlpack(x), Tensor.from_any(x)):
        assert (t.dtype, t.shape, t.strides, t.read_only) == (row, (2, 3), (3, 1), False)
        assert t.address == address_of(x)
        for back in (t.numpy(), np.from_dlpack(t), np.asarray(t)):
            assert back.dtype == x.dtype
            assert address_of(back) == address_of(x)
            assert np.array_equal(back, x)


@pytest.mark.parametrize("row", JAX_ROWS, ids=repr)
def test_jax_in_and_out_shares_memory(row: DType) -> None:
    x = jnp.asarray(values_of(row))
    t = Tensor.from_dlpack(x)
    assert (t.dtype, t.shape, t.strides, t.read_only) == (row, (2, 3), (3, 1), True)
    assert t.address == x.unsafe_buffer_pointer()
    back = t.jax()
    assert back.dtype == x.dtype
    assert back.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    assert np.array_equal(np.asarray(back), values_of(row))


@pytest.mark.parametrize("row", JAX_ROWS, ids=repr)
def test_ours_to_jax_shares_memory(row: DType) -> None:
    t = Tensor.zeros((4, 5), row)
    x = t.jax()
    assert x.unsafe_buffer_pointer() == t.address
    assert x.dtype == row.numpy
    assert jnp.from_dlpack(t).unsafe_buffer_pointer() == t.address


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_ours_to_ours_shares_memory(row: DType) -> None:
    t = Tensor.zeros((4, 5), row)
    u = Tensor.from_dlpack(t)
    assert (u.address, u.layout, u.dtype, u.read_only) == (t.address, t.layout, row, False)


def test_strided_and_offset_memory_travels() -> None:
    x = torch.arange(60.0).reshape(3, 4, 5)
    for view in (x[1:, ::2, 1:], x.permute(2, 0, 1), x[:, 1:2], x[2:2], x[1, 2, 3], x[:1].expand(7, 4, 5)):
        t = Tensor.from_any(view)
        assert t.shape == tuple(view.shape)
        assert np.array_equal(t.numpy(), view.numpy())
        if view.numel():
            assert t.address == view.data_ptr()
            assert t.torch().data_ptr() == view.data_ptr()
        assert torch.equal(t.torch(), view)
        assert np.array_equal(np.from_dlpack(t), view.numpy())


# Read-only stays read-only.


def test_read_only_is_not_laundered() -> None:
    x = np.arange(6.0, dtype=np.float32)
    x.flags.writeable = False
    for t in (
        Tensor.from_any(x),
        Tensor.from_dlpack(x),
        Tensor.from_dlpack(Tensor.from_any(x)),
        Tensor.from_any(x)[1:],
    ):
        assert t.read_only
        assert not t.numpy().flags.writeable
        assert not np.from_dlpack(t).flags.writeable
        with pytest.raises(ExchangeError) as legacy:
            t.__dlpack__()
        assert str(legacy.value) == (
            "Tensor.__dlpack__: tensor access is read-only, must be writable in a legacy capsule; "
            "pass max_version=(1, 0) or copy=True"
        )
        with pytest.raises(ExchangeError) as to_torch:
            t.torch()
        assert str(to_torch.value) == (
            "Tensor.torch: tensor access is read-only, must be writable; "
            "pass copy=True, because torch ignores that memory is read-only"
        )
        t.torch(copy=True)[0] = 99
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_legacy_capsule_is_taken_as_read_only() -> None:
    assert Tensor.from_dlpack(HandMade(legacy=True)).read_only
    assert not Tensor.from_dlpack(HandMade()).read_only
    assert Tensor.from_dlpack(HandMade(flags=1)).read_only


# Out: the producer's keywords.


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_a_capsule_states_the_facts(row: DType) -> None:
    t = Tensor.zeros((4, 6), row)[1:, ::2]
    for options, kind in (({}, Legacy), ({"max_version": (0, 8)}, Legacy), ({"max_version": (1, 0)}, Versioned)):
        managed, capsule = exported(t, **options)
        assert isinstance(managed, kind)
        tensor = managed.tensor
        assert (tensor.data + tensor.byte_offset, tensor.device_type, tensor.device_id) == (t.address, 1, 0)
        assert (tensor.ndim, tensor.code, tensor.bits, tensor.lanes) == (2, *row.dlpack, 1)
        assert (tensor.shape[:2], tensor.strides[:2]) == ([3, 3], [6, 2])
        if kind is Versioned:
            assert (managed.major, managed.minor, managed.flags) == (1, 3, 0)
        del capsule


def test_flags_say_read_only_and_copied() -> None:
    x = np.arange(4.0)
    x.flags.writeable = False
    t = Tensor.from_any(x)
    managed, _keep = exported(t, max_version=(1, 1))
    assert managed.flags == 1
    managed, _keep = exported(t, max_version=(1, 1), copy=True)
    assert managed.flags == 2
    assert managed.tensor.data != t.address
    assert managed.tensor.data % 64 == 0
    managed, _keep = exported(t, copy=True)
    assert isinstance(managed, Legacy)


def test_export_refuses_what_it_cannot_say() -> None:
    t = Tensor.zeros((4,))
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (t, {"stream": 1}, "Tensor.__dlpack__: stream is 1, must be None or -1 for host memory; leave it out"),
        (
            t,
            {"dl_device": (2, 0)},
            "Tensor.__dlpack__: dl_device is (2, 0), must be (1, 0), where the tensor is; move it afterwards",
        ),
        (
            t.flip(0),
            {"max_version": (1, 0)},
            (
                "Tensor.__dlpack__: tensor layout is of strides_bits (-32,), must be one of non-negative strides; "
                "pass copy=True or use numpy()"
            ),
        ),
        (
            Tensor.from_dlpack(HandMade(device_type=2)),
            {"max_version": (1, 0), "stream": 0},
            "Tensor.__dlpack__: stream is 0, must be None, -1, 1, 2 or a stream's handle; leave it out",
        ),
        (
            Tensor.from_dlpack(HandMade(device_type=2)),
            {"max_version": (1, 0), "stream": True},
            "Tensor.__dlpack__: stream is True, must be None, -1, 1, 2 or a stream's handle; leave it out",
        ),
        (
            Tensor.from_dlpack(HandMade(device_type=10)),
            {"max_version": (1, 0), "stream": 1},
            "Tensor.__dlpack__: stream is 1, must be None, -1 or 0; leave it out",
        ),
    ]
    for tensor, options, text in cases:
        with pytest.raises(ExchangeError) as error:
            tensor.__dlpack__(**options)
        assert str(error.value) == text
    assert t.__dlpack__(stream=-1, dl_device=(1, 0), copy=False) is not None
    assert np.from_dlpack(t.flip(0), copy=True).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("name", ["max_version", "dl_device"])
@pytest.mark.parametrize("value", [5, "1.0", (1,), (None, 1), (1, 2, 3), (1.0, 0)], ids=repr)
def test_pairs_are_pairs_of_integers(name: str, value: Any) -> None:
    with pytest.raises(OptionError) as error:
        Tensor.zeros((3,)).__dlpack__(**{name: value})
    assert str(error.value) == (f"Tensor.__dlpack__: {name} is {value!r}, must be a pair of integers; leave it out")


def test_jax_refuses_what_it_would_change_or_copy() -> None:
    with pytest.raises(DTypeError) as wide:
        Tensor.zeros((2,), "float64").jax()
    assert str(wide.value) == (
        "Tensor.jax: tensor dtype is float64, must be at most 32 bits wide; "
        "set jax.config.update('jax_enable_x64', True)"
    )
    with pytest.raises(ExchangeError) as strided:
        Tensor.zeros((2, 3)).T.jax()
    assert str(strided.value) == (
        "Tensor.jax: tensor layout is (3, 2) with strides_bits (32, 96), must be row-major and dense; pass copy=True"
    )
    t = Tensor.zeros((3,))[1:]
    with pytest.raises(ExchangeError) as unaligned:
        t.jax()
    assert (
        str(unaligned.value)
        == f"Tensor.jax: tensor address is {t.address:#x}, must be a multiple of 64; pass copy=True"
    )
    assert Tensor.zeros((2, 3)).T.jax(copy=True).shape == (3, 2)


def test_jax_takes_wide_types_where_they_are_switched_on() -> None:
    with jax.enable_x64(True):
        t = Tensor.zeros((2,), "float64")
        assert t.jax().unsafe_buffer_pointer() == t.address


# Lifetime.


USERS = [
    lambda t: t.numpy(),
    lambda t: t.torch(),
    lambda t: np.from_dlpack(t),
    lambda t: torch.from_dlpack(t),
    lambda t: t.__dlpack__(),
    lambda t: Tensor.from_dlpack(t),
    lambda t: t[1:].reshape((5, 1)).numpy(),
]


@pytest.mark.parametrize("use", USERS)
def test_memory_lives_while_anything_uses_it(use: Any) -> None:
    x = np.arange(6.0, dtype=np.float32)
    gone = weakref.ref(x)
    t = Tensor.from_any(x)
    user = use(t)
    del x
    t.buffer.close()
    del t
    gc.collect()
    assert gone() is not None
    del user
    gc.collect()
    assert gone() is None


def test_a_view_keeps_the_memory_alive() -> None:
    x = np.arange(6.0, dtype=np.float32)
    gone = weakref.ref(x)
    view = Tensor.from_any(x)[1:]
    del x
    gc.collect()
    assert gone() is not None
    del view
    gc.collect()
    assert gone() is None


def test_an_unused_capsule_lets_go() -> None:
    x = np.arange(6.0, dtype=np.float32)
    gone = weakref.ref(x)
    capsules = [Tensor.from_any(x).__dlpack__(), Tensor.from_any(x).__dlpack__(max_version=(1, 0))]
    del x
    gc.collect()
    assert gone() is not None
    capsules.clear()
    gc.collect()
    assert gone() is None


def test_a_capsule_that_dies_while_an_error_is_raised_keeps_the_error() -> None:
    x = np.arange(4).astype(ml_dtypes.float8_e3m4)
    gone = weakref.ref(x)
    t = Tensor.from_any(x)
    with pytest.raises(BufferError, match="Unsupported code 7"):
        torch.from_dlpack(t)
    del x, t
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("legacy", [False, True])
def test_the_deleter_is_called_once(legacy: bool) -> None:
    producer = HandMade(legacy=legacy)
    t = Tensor.from_dlpack(producer)
    assert name_of(producer.capsule) == (b"used_dltensor" if legacy else b"used_dltensor_versioned")
    array = t[1:].numpy()
    producer.capsule = None
    del t
    gc.collect()
    assert producer.deleted == []
    assert array.tolist() == [[3, 4, 5]]
    del array
    gc.collect()
    assert len(producer.deleted) == 1


def test_the_deleter_may_be_called_from_another_thread() -> None:
    producer = HandMade()
    held = [Tensor.from_dlpack(producer)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert producer.deleted == [thread.ident]


def test_close_calls_the_deleter() -> None:
    producer = HandMade()
    t = Tensor.from_dlpack(producer)
    t.buffer.close()
    assert len(producer.deleted) == 1
    del t
    gc.collect()
    assert len(producer.deleted) == 1


def test_a_capsule_without_a_deleter_is_fine() -> None:
    assert Tensor.from_dlpack(HandMade(deleter=None)).shape == (2, 3)


# In: facts in odd but legal forms.


def test_legal_forms_are_understood() -> None:
    assert Tensor.from_dlpack(HandMade(strides=None)).strides == (3, 1)
    offset = Tensor.from_dlpack(HandMade(byte_offset=8))
    assert offset.numpy().tolist() == [[2, 3, 4], [5, 6, 7]]
    producer = HandMade((4,), (-1,), byte_offset=12)
    backwards = Tensor.from_dlpack(producer)
    assert backwards.numpy().tolist() == [3, 2, 1, 0]
    assert backwards.address == address_of(producer.memory) + 12
    assert Tensor.from_dlpack(HandMade((), ())).numpy().tolist() == 0
    empty = HandMade((0, 3), data=None)
    assert Tensor.from_dlpack(empty).numpy().shape == (0, 3)
    assert Tensor.from_dlpack(HandMade(minor=9, flags=2)).shape == (2, 3)
    assert Tensor.from_dlpack(HandMade((5,), (0,))).numpy().tolist() == [0] * 5


def test_a_producer_without_keywords_is_asked_again() -> None:
    class Old:
        def __dlpack__(self) -> object:
            return np.arange(3.0).__dlpack__()

    assert Tensor.from_any(Old()).shape == (3,)


def test_device_memory_is_a_fact() -> None:
    t = Tensor.from_dlpack(HandMade(device_type=2, device_id=1))
    assert str(t.device) == "cuda:1"
    assert t.__dlpack_device__() == (2, 1)
    assert repr(t[0]) == "Tensor(float32, shape=(3,), cuda:1)"


A_ROW = "must be an element format in one lane, or in lanes of fewer than 8 bits that fill bytes; convert it first"
HOSTILE = {
    "x (shape, strides) is ((-2, 3), (3, 1)), must be those of a layout; report it to the producer": {"shape": (-2, 3)},
    f"x (shape, strides) is (({2**62}, 3), (3, 1)), must be those of a layout; report it to the producer": {
        "shape": (2**62, 3)
    },
    f"x (shape, strides) is ((2, 3), ({-(2**62)}, 1)), must be those of a layout; report it to the producer": {
        "strides": (-(2**62), 1)
    },
    "x data pointer is NULL, must be that of its elements; report it to the producer": {"data": None},
    f"x rank is {10**9}, must be in [0, 64]; reshape it first": {"ndim": 10**9},
    "x rank is -1, must be in [0, 64]; reshape it first": {"ndim": -1},
    "x shape pointer is NULL, must be 2 extents; report it to the producer": {
        "shape": (2, 3),
        "null": "shape",
    },
    "capsule version is 2.0, must be 1.x; export it with max_version=(1, 3)": {"major": 2, "minor": 0},
    "capsule version is 0.9, must be 1.x; export it with max_version=(1, 3)": {"major": 0, "minor": 9},
    "capsule flags is 0x8, must be a subset of 0x7; export it with max_version=(1, 3)": {"flags": 8},
    "x DLPack device type is unknown (77), must be the host's, CUDA's or ROCm's; copy it to the host first": {
        "device_type": 77
    },
    f"x DLPack dtype is float32 (code 2, bits 32, lanes 4), {A_ROW}": {"lanes": 4},
    f"x DLPack dtype is unknown to DLPack 1.3 (code 99, bits 32, lanes 1), {A_ROW}": {"code": 99},
    "x address is 0x10002, must be a multiple of 4; copy it first": {"data": 0x10002},
    "x span is 24 bytes from 0xfffffffffffffffc, must be addressable; report it to the producer": {"data": 2**64 - 4},
}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_capsule_is_refused_and_deleted_once(text: str) -> None:
    fields = dict(HOSTILE[text])
    null = fields.pop("null", None)
    producer = HandMade(**fields)
    if null:
        setattr(producer.managed.tensor, null, None)
    with pytest.raises(SamebitsError) as error:
        Tensor.from_dlpack(producer)
    assert str(error.value) == f"Tensor.from_dlpack: {text}"
    del error
    gc.collect()
    assert len(producer.deleted) == 1


def test_what_is_no_fresh_capsule_is_refused() -> None:
    expected = "must be b'dltensor_versioned' or b'dltensor'; ask for a new one"
    for name in (b"used_dltensor", b"tensor"):
        producer = HandMade(name=name)
        with pytest.raises(ExchangeError) as error:
            Tensor.from_dlpack(producer)
        assert str(error.value) == f"Tensor.from_dlpack: capsule name is {name!r}, {expected}"
        assert producer.deleted == []

    class Liar:
        def __dlpack__(self, **_: object) -> object:
            return 7

    with pytest.raises(ExchangeError) as error:
        Tensor.from_any(Liar())
    assert str(error.value) == f"Tensor.from_any: capsule name is 'int', {expected}"
    with pytest.raises(ExchangeError) as error:
        Tensor.from_dlpack([1.0])
    assert str(error.value) == ("Tensor.from_dlpack: x type is list, must be one with __dlpack__; use Tensor.from_any")


def test_a_producers_own_refusal_passes_through() -> None:
    with pytest.raises(BufferError, match="gradient"):
        Tensor.from_any(torch.ones(3, requires_grad=True))
