"""Capsules in every encoding and from every device, and what no correct producer hands over."""

import gc
from typing import Any

import numpy as np
import pytest
from capsules import HandMade, HeaderOnly, exported
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DeviceError, ExchangeError, SamebitsError
from samebits.layout import Layout
from samebits.memory import address_of
from samebits.tensor import Tensor

pytestmark = pytest.mark.usefixtures("short_collections")

NARROW = [row for row in dtypes.ROWS if row.width_bits < 8]
PADDED = 4


def typed(row: DType, **fields: Any) -> dict[str, Any]:
    """The fields of a DLDataType, and others."""
    return {"code": row.dlpack[0], "bits": row.dlpack[1], **fields}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_every_code_of_the_standard_comes_in_packed(row: DType, legacy: bool) -> None:
    producer = HandMade((2, 8), None, legacy=legacy, **typed(row))
    t = Tensor.from_dlpack(producer)
    assert (t.dtype, t.layout) == (row, Layout.dense((2, 8), width_bits=row.width_bits))
    assert (t.address, t.read_only) == (address_of(producer.memory), legacy)
    assert t.buffer.size_bytes == -(-16 * row.width_bits // 8)


@pytest.mark.parametrize("row", NARROW, ids=repr)
def test_narrow_elements_come_in_lanes_and_padded(row: DType) -> None:
    lanes = {6: 4}.get(row.width_bits, 8 // row.width_bits)
    t = Tensor.from_dlpack(HandMade((2, 3), (3, 1), lanes=lanes, **typed(row)))
    assert t.layout == Layout.dense((2, 3 * lanes), width_bits=row.width_bits)
    across = Tensor.from_dlpack(HandMade((3, 2), (1, 3), lanes=lanes, **typed(row)))
    assert across.layout == t.layout.permute((1, 0))
    wider = Tensor.from_dlpack(HandMade((3,), (1,), lanes=2 * lanes, **typed(row)))
    assert wider.shape == (6 * lanes,)
    padded = Tensor.from_dlpack(HandMade((2, 3), (3, 1), flags=PADDED, **typed(row)))
    assert padded.layout == Layout.dense((2, 3), width_bits=row.width_bits, storage="padded")
    assert padded.buffer.size_bytes == 6


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_eight_bits_of_a_narrow_float_are_one_padded_element(name: str) -> None:
    row = dtypes.of(name)
    t = Tensor.from_dlpack(HandMade((2, 3), (3, 1), code=row.dlpack[0], bits=8))
    assert (t.dtype, t.layout) == (row, Layout.dense((2, 3), width_bits=row.width_bits, storage="padded"))


def test_eight_bits_of_an_integer_are_int8() -> None:
    assert Tensor.from_dlpack(HandMade((2,), (1,), code=0, bits=8)).dtype is dtypes.int8
    assert Tensor.from_dlpack(HandMade((2,), (1,), code=0, bits=8, flags=PADDED)).dtype is dtypes.int8


def test_packed_elements_begin_at_a_byte_and_may_run_backwards() -> None:
    producer = HandMade((3,), (-1,), byte_offset=4, **typed(dtypes.int4))
    producer.memory.view(np.uint8)[:] = range(256)
    t = Tensor.from_dlpack(producer)
    # Element 0 is in the low half of byte 4, element 1 in the high half of byte 3.
    assert t.tolist() == [4, 0, 3]
    assert t.address == address_of(producer.memory) + 4
    assert (t.buffer.address, t.buffer.size_bytes) == (address_of(producer.memory) + 3, 2)


def test_flags_are_honoured_together() -> None:
    t = Tensor.from_dlpack(HandMade((3,), (1,), flags=1 | 2 | PADDED, **typed(dtypes.int4)))
    assert (t.read_only, t.layout.storage) == (True, "padded")
    managed, _keep = exported(t, max_version=(1, 3))
    # That the producer copied does not make the memory the next consumer's alone: it is still ours.
    assert managed.flags == 1 | PADDED


# Devices.

HOST = {1: "cpu", 3: "cuda_host:0", 11: "rocm_host:0", 13: "cuda_managed:0"}
CARRIED = {2: "cuda:0", 10: "rocm:0"}
REFUSED = {
    4: "kDLOpenCL",
    7: "kDLVulkan",
    8: "kDLMetal",
    9: "kDLVPI",
    12: "kDLExtDev",
    14: "kDLOneAPI",
    15: "kDLWebGPU",
    16: "kDLHexagon",
    17: "kDLMAIA",
    18: "kDLTrn",
    0: "unknown",
    99: "unknown",
    -1: "unknown",
}


@pytest.mark.parametrize("code", HOST)
def test_memory_that_the_host_can_read_is_used_in_place(code: int) -> None:
    producer = HandMade((4,), (1,), device_type=code)
    t = Tensor.from_dlpack(producer)
    assert str(t.device) == HOST[code]
    assert t.tolist() == [0, 1, 2, 3]
    assert t.__dlpack_device__() == (code, 0)
    managed, _keep = exported(t, max_version=(1, 3))
    assert (managed.tensor.device_type, managed.tensor.data) == (code, t.address)
    managed, _keep = exported(t, max_version=(1, 3), dl_device=(1, 0))
    assert (managed.tensor.device_type, managed.tensor.data) == (1, t.address)
    assert t.torch().data_ptr() == np.asarray(t).ctypes.data == t.address


@pytest.mark.parametrize("code", CARRIED)
def test_device_memory_is_carried_and_only_the_host_is_refused(code: int) -> None:
    producer = HandMade((2, 3), (3, 1), device_type=code, device_id=1, data=0x1000)
    t = Tensor.from_dlpack(producer)[1:]
    assert str(t.device) == CARRIED[code].replace("0", "1")
    for stream in (None, -1, 1 if code == 2 else 0):
        managed, _keep = exported(t, max_version=(1, 3), stream=stream, dl_device=(code, 1))
        tensor = managed.tensor
        assert (tensor.device_type, tensor.device_id, tensor.data + tensor.byte_offset) == (code, 1, 0x100C)
    for use in (t.numpy, t.tobytes, t.tolist, t.copy, t.digest, lambda: np.asarray(t)):
        with pytest.raises(DeviceError, match="must be readable by the host; copy it to the host first"):
            use()
    with pytest.raises(DeviceError) as refused:
        t.jax()
    assert str(refused.value) == (
        "Tensor.jax: tensor device is cuda:1, must be one that this JAX computes on; "
        "install JAX for CUDA, or copy it to the host"
        if code == 2
        else "Buffer.array: buffer device is rocm:1, must be readable by the host; copy it to the host first"
    )
    with pytest.raises(ExchangeError) as error:
        t.__dlpack__(dl_device=(1, 0))
    assert str(error.value) == (
        f"Tensor.__dlpack__: dl_device is (1, 0), must be ({code}, 1), where the tensor is; move it afterwards"
    )
    exported_bytes = t.export("tensor")
    assert Tensor.from_exported(exported_bytes).device == t.device


class Silent(HandMade):
    """One that no stream can be named to."""

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> object:  # type: ignore[override]
        return super().__dlpack__(max_version=max_version)


class Ordered(HandMade):
    """One that is told a stream, and refuses if there is a reason to."""

    asked: object = None
    refusal = ""

    def __dlpack__(self, *, stream: object = None) -> object:  # type: ignore[override]
        if self.refusal:
            raise TypeError(self.refusal)
        self.asked = stream
        return super().__dlpack__(max_version=(1, 3))


def test_a_producer_of_device_memory_is_told_a_stream_or_refused() -> None:
    fields: dict[str, Any] = {"device_type": 2, "data": 0x1000}
    producer = Ordered((4,), (1,), **fields)
    assert str(Tensor.from_dlpack(producer).device) == "cuda:0"
    assert producer.asked == 1
    silent = Silent((4,), (1,), **fields)
    for make in (Tensor.from_dlpack, Tensor.from_any):
        with pytest.raises(ExchangeError) as error:
            make(silent)
        assert str(error.value) == (
            f"Tensor.{make.__name__}: x __dlpack__ is that of Silent, which takes no stream=, must be the "
            "standard's, which orders work on a device; pass one whose __dlpack__ takes stream="
        )
    assert silent.capsule is None
    for producer.refusal in ("it is a key", "this stream is busy"):
        with pytest.raises(ExchangeError) as error:
            Tensor.from_dlpack(producer)
        assert f"x is not shared by its library ({producer.refusal}), must be memory that can be sha" in str(
            error.value
        )


def test_a_producer_that_says_that_it_is_the_hosts_is_not_asked_for_its_device() -> None:
    class Says(HandMade):
        is_cpu = True

        def __dlpack_device__(self) -> tuple[int, int]:
            raise AssertionError("it was asked")

    for make in (Tensor.from_dlpack, Tensor.from_any):
        assert make(Says((4,), (1,))).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("said", [(1, 0), (3, 0), (10, 0), None, "is_cpu"])
def test_device_memory_of_which_another_device_was_said_is_refused(said: Any) -> None:
    """No stream was named for it, or one of another kind: nothing says when its work is done."""

    class Lying(HandMade):
        is_cpu = said == "is_cpu"

        def __dlpack_device__(self) -> tuple[int, int]:
            if said is None:
                raise BufferError("unknown")
            return said

    producer = Lying((4,), (1,), device_type=2, device_id=1, data=0x1000)
    for make in (Tensor.from_dlpack, Tensor.from_any):
        with pytest.raises(ExchangeError) as error:
            make(producer)
        assert str(error.value) == (
            f"Tensor.{make.__name__}: x DLPack device is (2, 1), must be what its __dlpack_device__ says; "
            "report it to the producer"
        )
    del error
    gc.collect()
    assert len(producer.deleted) == 2


@pytest.mark.parametrize("code", REFUSED)
def test_other_devices_are_refused_by_name(code: int) -> None:
    producer = HandMade(device_type=code)
    with pytest.raises(ExchangeError) as error:
        Tensor.from_dlpack(producer)
    assert str(error.value) == (
        f"Tensor.from_dlpack: x DLPack device type is {REFUSED[code]} ({code}), must be the host's, CUDA's or ROCm's; "
        "copy it to the host first"
    )
    del error
    gc.collect()
    assert len(producer.deleted) == 1


# Hostile capsules, of narrow elements too.

EMPTY = 2**62
HOSTILE: dict[str, dict[str, Any]] = {
    "negative extent": {"shape": (-2, 3)},
    "negative extent without strides": {"shape": (-2, 3), "strides": None},
    "extents that overflow": {"shape": (EMPTY, EMPTY)},
    "extents that overflow without strides": {"shape": (EMPTY, EMPTY), "strides": None},
    "extents that overflow when lanes are counted": {"shape": (EMPTY,), "strides": (1,), "lanes": 2},
    "strides that overflow": {"shape": (3, 3), "strides": (EMPTY, 1)},
    "least stride": {"shape": (3, 3), "strides": (-(2**63), 1)},
    "NULL data": {"data": None},
    "rank of a thousand million": {"ndim": 10**9},
    "rank of -1": {"ndim": -1},
    "rank 65": {"ndim": 65},
    "data at the end of the address space": {"data": 2**64 - 1},
    "offset past the address space": {"byte_offset": 2**64 - 1},
    "no lanes": {"lanes": 0},
    "lanes that fill no bytes": {"lanes": 3},
    "lanes along no axis": {"strides": (4, 2), "lanes": 2},
    "lanes and padding": {"lanes": 2, "flags": PADDED},
    "unknown flag": {"flags": 1 << 40},
    "no bits": {"bits": 0},
    "seven bits": {"bits": 7},
    "another major version": {"major": 2, "shape": (-1, 3)},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_capsule_of_float4_is_refused_and_deleted_once(what: str) -> None:
    fields = {**typed(dtypes.float4_e2m1fn), **HOSTILE[what]}
    producer = HandMade(**fields)
    with pytest.raises(SamebitsError) as error:
        Tensor.from_dlpack(producer)
    assert str(error.value).startswith("Tensor.from_dlpack: ")
    del error
    gc.collect()
    assert len(producer.deleted) == 1


@pytest.mark.parametrize("major", [0, 2, 7, (1 << 32) - 1])
def test_nothing_of_another_major_version_is_read_but_its_header(major: int) -> None:
    for get in (Tensor.from_dlpack, Tensor.from_any):
        producer = HeaderOnly(major)
        with pytest.raises(ExchangeError, match=rf"capsule version is {major}\.3, must be 1\.x"):
            get(producer)
        gc.collect()
        assert producer.deleted == [producer.address]


def test_a_capsule_is_taken_once() -> None:
    t = Tensor.zeros((3,), "int4")
    capsule = t.__dlpack__(max_version=(1, 3))
    producer: Any = type("Again", (), {"__dlpack__": lambda self, **_: capsule})()
    assert Tensor.from_dlpack(producer).shape == (3,)
    with pytest.raises(ExchangeError, match="capsule name is b'used_dltensor_versioned'"):
        Tensor.from_dlpack(producer)


INT64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-3, 9), st.sampled_from([2**31, 2**32, 2**62, -(2**62)])
)
UINT64 = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 64), st.just(2**64 - 1))


@examples(500)
@given(
    st.data(),
    st.booleans(),
    st.lists(INT64, max_size=4),
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "data": UINT64,
            "byte_offset": UINT64,
            "device_type": st.integers(-1, 20),
            "device_id": st.integers(-(2**31), 2**31 - 1),
            "code": st.integers(0, 20),
            "bits": st.one_of(st.sampled_from([1, 2, 4, 6, 8, 16, 32, 64]), st.integers(0, 255)),
            "lanes": st.one_of(st.integers(0, 9), st.integers(0, 65535)),
            "flags": st.integers(0, 9),
        },
    ),
)
def test_whatever_a_capsule_says_it_is_taken_or_refused(
    data: st.DataObject, legacy: bool, shape: list[int], with_strides: bool, fields: dict[str, int]
) -> None:
    strides = data.draw(st.lists(INT64, min_size=len(shape), max_size=len(shape))) if with_strides else None
    if legacy:
        fields.pop("flags", None)
    producer = HandMade(shape, strides, legacy=legacy, **fields)
    try:
        t = Tensor.from_dlpack(producer)
    except SamebitsError:
        pass
    else:
        low, high = t.layout.bounds_bits
        assert 0 <= low <= high <= t.buffer.size_bytes * 8
        assert t.buffer.address + t.buffer.size_bytes <= 2**64
        if t.size:
            tensor = producer.managed.tensor
            assert t.address == tensor.data + tensor.byte_offset
        assert producer.deleted == []
        del t
    gc.collect(0)
    assert len(producer.deleted) == 1
    HandMade.kept.remove(producer)
