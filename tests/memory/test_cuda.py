"""Device memory through a stand-in for the driver: what is called, in which context, and what is refused.

No GPU takes part. Where cuda-bindings is installed, the names and the loader's refusal are its own.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_cuda import CUresult, FakeCuda

import samebits as sb
from samebits import driver
from samebits.errors import ClosedError, DeviceError, ExchangeError, OptionError
from samebits.memory import CPU, Buffer, CudaResource, Device, address_of, allocate
from samebits.memory.allocation import resource_of
from samebits.tensor import Tensor


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """A driver with two devices, while the test runs."""
    api = FakeCuda()
    found = driver.Cuda(api)
    monkeypatch.setattr(driver, "cuda", lambda: found)
    resource_of.cache_clear()
    yield api
    resource_of.cache_clear()
    assert api.contexts == [], "every context that was pushed is popped"


class Stream:
    """What cuda.core, CuPy and others hand over."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def test_device_memory_comes_and_goes_in_its_own_context(fake: FakeCuda) -> None:
    buffer = allocate(1000, device=Device("cuda", 1))
    assert (str(buffer.device), buffer.device_id, buffer.size_bytes) == ("cuda:1", 1, 1000)
    assert (buffer.is_host_accessible, buffer.is_device_accessible) == (False, True)
    assert buffer.residence == driver.Residence("device", 1)
    assert isinstance(buffer.resource, CudaResource)
    assert fake.log == ["retain", "alloc 1000"]
    with pytest.raises(DeviceError) as error:
        buffer.array()
    assert str(error.value) == (
        "Buffer.array: buffer device is cuda:1, must be readable by the host; copy it to the host first"
    )
    part = buffer[10:20]
    buffer.close()
    assert part.is_closed
    assert fake.log == ["retain", "alloc 1000", "free"]
    assert fake.blocks == {}
    allocate(64, device=Device("cuda", 1)).close()
    assert fake.log[3:] == ["alloc 64", "free"], "the context is retained once"


def test_what_is_allocated_on_a_stream_goes_back_in_its_order_or_waits(fake: FakeCuda) -> None:
    cuda = Device("cuda", 0)
    first = allocate(100, device=cuda, stream=Stream(5))
    first.close(stream=6)
    second = allocate(100, device=cuda, stream=5)
    second.close()
    third = allocate(100, device=cuda)
    third.close(stream=Stream(5))
    assert fake.log[1:] == [
        "alloc 100 on 5", "free on 6",
        "alloc 100 on 5", "synchronize", "free",
        "alloc 100", "free",
    ]  # fmt: skip
    assert fake.blocks == {}
    buffer = allocate(100, device=cuda, stream=5)
    for stream, shown in ((-1, "-1"), (1.5, "1.5"), (True, "True"), ("5", "'5'")):
        with pytest.raises(OptionError) as error:
            buffer.close(stream=stream)
        assert str(error.value) == (
            f"Buffer.close: stream is {shown}, must be a stream's handle or an object with __cuda_stream__; "
            "pass stream.handle"
        )
    with pytest.raises(OptionError):
        buffer[:10].close(stream=5)
    assert not buffer.is_closed
    buffer.close()
    buffer.close(stream=5)


def test_zeros_and_copies_between_all_pairs(fake: FakeCuda) -> None:
    values = np.random.default_rng(3).integers(0, 256, 999).astype(np.uint8)
    host = allocate(999)
    host.array()[:] = values
    one, two = (allocate(999, device=Device("cuda", index), zero=index == 1) for index in (0, 1))
    assert fake.log[-2:] == ["set 999 on 1", "synchronize 1"]
    back = allocate(999)
    two.copy_to(back)
    assert not back.array().any()
    host.copy_to(one)
    two.copy_from(one, stream=Stream(6))
    two[100:200].copy_to(back[:100], stream=5)
    assert bytes(back.array()[:100]) == bytes(values[100:200])
    assert [line for line in fake.log if line.startswith("copy")] == [
        "copy 999 on 1", "copy 999 on 1", "copy 999 on 6", "copy 100 on 5",
    ]  # fmt: skip
    one[:0].copy_to(back[:0])
    allocate(50, device=Device("cuda", 0), zero=True, stream=5).close()
    assert "set 50 on 5" in fake.log
    with pytest.raises(DeviceError) as device:
        one.copy_to(back, stream=99)
    assert str(device.value) == (
        "cuMemcpyAsync: CUDA driver's answer is CUDA_ERROR_INVALID_HANDLE, must be CUDA_SUCCESS; "
        "see the driver's documentation"
    )
    rocm = Buffer.from_handle(4096, 999, device=Device("rocm"))
    with pytest.raises(DeviceError) as error:
        rocm.copy_to(two)
    assert str(error.value) == (
        "Buffer.copy_from: buffer device is rocm:0, must be CUDA or host memory; use its own library"
    )
    two.read_only = True
    with pytest.raises(ExchangeError):
        two.copy_from(one)
    one.close()
    with pytest.raises(ClosedError):
        host.copy_from(one)


def test_tensors_are_made_on_a_device(fake: FakeCuda) -> None:
    cuda = Device("cuda", 1)
    x = Tensor.arange(5, dtype="int4", device=cuda)
    y = Tensor.full_like(x, 3)
    zeros, empty = Tensor.zeros_like(x, dtype="float32"), Tensor.empty((2,), "uint1", device=cuda)
    assert [t.device for t in (x, y, zeros, empty)] == [cuda] * 4
    assert repr(x) == "Tensor(int4, shape=(5,), cuda:1)"
    for t, due in ((x, [0, 1, 2, 3, 4]), (y, [3] * 5), (zeros, [0.0] * 5)):
        back = Tensor.empty_like(t, device=CPU)
        t.buffer.copy_to(back.buffer)
        assert back.tolist() == due
        for use in (t.copy, t.tolist, t.digest, lambda: t.equal_bits(back), lambda: pickle.dumps(t)):  # noqa: B023
            with pytest.raises(DeviceError, match="readable by the host"):
                use()
    assert Tensor.zeros_like(x, device=CPU).tolist() == [0] * 5


def test_tensors_go_to_a_device_and_come_back(fake: FakeCuda) -> None:
    cuda = Device("cuda", 1)
    x = Tensor.arange(48, dtype="int16").reshape((4, 12))
    wide = Tensor.from_any(np.arange(60) % 8).reshape((5, 12))
    packed = Tensor.full((5, 12), 3, "int4")
    for t in (x, x[1:, ::-2], x.T, x[:0], x[3, 4], packed, packed[1:, 3:], wide):
        there = t.to(cuda)
        assert (there.device, there.shape, there.dtype) == (cuda, t.shape, t.dtype)
        assert there.to(cuda) is there
        assert t.to(CPU) is t
        assert there.to(CPU).equal_bits(t)
        assert there.to(Device("cuda", 0)).to(CPU).equal_bits(t)
    assert x[1].to(cuda).buffer.size_bytes == 24
    there = x.to(cuda, stream=5)
    assert "copy 96 on 5" in fake.log
    assert there.to(CPU).equal_bits(x)


class Producer:
    """What torch is: it orders its own stream before that of a consumer only where the consumer names it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.asked: list[dict[str, Any]] = []

    def __dlpack__(self, **options: Any) -> object:
        self.asked.append(options)
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


class Knows(Producer):
    """A producer that does not know max_version."""

    def __dlpack__(self, *, stream: int | None = None) -> object:
        return super().__dlpack__(stream=stream)


@pytest.mark.parametrize("take", [Tensor.from_any, Tensor.from_dlpack])
def test_device_memory_comes_in_behind_the_default_stream(fake: FakeCuda, take: Any) -> None:
    there = Tensor.arange(6, dtype="float32", device=Device("cuda", 1))
    producer = Producer(there)
    assert take(producer).address == there.address
    assert producer.asked == [{"max_version": (1, 3), "stream": 1}]
    older = Knows(there)
    assert take(older).address == there.address
    assert older.asked == [{"stream": 1}]
    host = Producer(Tensor.arange(6))
    take(host)
    assert host.asked == [{"max_version": (1, 3)}]


def test_a_stream_that_device_memory_goes_out_to_waits_for_the_default_stream(fake: FakeCuda) -> None:
    there = Tensor.arange(6, dtype="float32", device=Device("cuda", 1))
    for stream in (None, -1, 1):
        fake.log.clear()
        there.__dlpack__(stream=stream, max_version=(1, 0))
        assert fake.log == []
    for stream in (2, 5):
        fake.log.clear()
        there.__dlpack__(stream=stream, max_version=(1, 0))
        assert fake.log == ["record 1", f"wait {stream}"]
    with pytest.raises(DeviceError) as error:
        there.__dlpack__(stream=99, max_version=(1, 0))
    assert str(error.value) == (
        "cuStreamWaitEvent: CUDA driver's answer is CUDA_ERROR_INVALID_HANDLE, must be CUDA_SUCCESS; "
        "see the driver's documentation"
    )
    assert fake.events == []


def test_jax_arrays_of_six_bits_on_a_device_are_not_taken_to_the_host() -> None:
    pytest.importorskip("jax")
    row = sb.dtype("float6_e2m3fn")

    class Place:
        platform = "gpu"

        def __str__(self) -> str:
            return "cuda:0"

    class Array:
        """What JAX keeps on a GPU."""

        dtype = row.numpy

        def devices(self) -> set[Place]:
            return {Place()}

    Array.__module__ = "jaxlib"
    with pytest.raises(ExchangeError) as error:
        Tensor.from_any(Array())
    assert str(error.value) == (
        "Tensor.from_any: x device is cuda:0, must be the host, for a format of 6 bits; "
        "copy it there first, with jax.device_put"
    )


def test_the_default_stream_waits_for_that_of_a_cuda_array_interface(fake: FakeCuda) -> None:
    there = Tensor.arange(6, dtype="float32", device=Device("cuda", 1))
    face = {"version": 3, "shape": (6,), "typestr": "<f4", "data": (there.address, False), "strides": None}
    for stream, due in ((None, []), (1, []), (2, ["record 2", "wait 1"]), (5, ["record 5", "wait 1"])):
        fake.log.clear()

        class Offers:
            __cuda_array_interface__ = face | {"stream": stream}

        assert Tensor.from_any(Offers()).device == Device("cuda", 1)
        assert fake.log == due


def test_the_driver_tells_kinds_of_memory_apart(fake: FakeCuda) -> None:
    block = np.zeros(4096, np.uint8)
    base = address_of(block)
    kinds = {0: "pageable", 128: "pinned", 192: "managed"}
    fake.host = {base + at: (kind, 1) for at, kind in kinds.items() if kind != "pageable"}
    devices = {"pageable": "cpu", "pinned": "cuda_host:1", "managed": "cuda_managed:1"}
    for at, kind in kinds.items():
        buffer = Buffer.from_handle(base + at, 64, owner=block)
        assert str(buffer.device) == devices[kind]
        assert buffer.residence.kind == kind
        assert buffer.is_host_accessible
        assert buffer.is_device_accessible is (kind != "pageable")
        assert buffer.device_id == (None if kind == "pageable" else 1)
        assert buffer.array().nbytes == 64
        # What DLPack calls host memory may be registered all the same.
        said = Buffer(base + at, 64, block)
        assert (said.is_device_accessible, said.device_id) == (buffer.is_device_accessible, buffer.device_id)
    own = allocate(64)
    fake.host[own.address] = ("pinned", 1)
    assert not own.is_device_accessible, "the driver is not asked for what this library allocated"
    address = CudaResource(1).allocate(512)
    assert str(Buffer.from_handle(address + 5, 7).device) == "cuda:1"
    pinned = Buffer.from_handle(base + 128, 64)
    pinned.copy_from(own)
    assert "copy 64 on 1" not in fake.log, "the host copies what it can reach"


def test_refusals_of_the_driver_are_errors(fake: FakeCuda) -> None:
    with pytest.raises(MemoryError) as memory:
        allocate(1 << 40, device=Device("cuda"))
    assert str(memory.value) == (
        "cuMemAlloc: CUDA driver's answer is CUDA_ERROR_OUT_OF_MEMORY, must be CUDA_SUCCESS; "
        "see the driver's documentation"
    )
    for index in (2, -1):
        with pytest.raises(DeviceError) as error:
            allocate(8, device=Device("cuda", index))
        assert str(error.value) == f"CudaResource: device is {index}, must be one of 2; count from 0"
    with pytest.raises(DeviceError):
        CudaResource().deallocate(4096, 8)


def test_a_child_of_a_fork_is_told_that_the_driver_is_not_there(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = CudaResource()
    monkeypatch.setattr(fake, "cuCtxPushCurrent", lambda context: (CUresult.CUDA_ERROR_NOT_INITIALIZED,))
    with pytest.raises(DeviceError) as error:
        resource.allocate(8)
    assert str(error.value) == (
        "cuCtxPushCurrent: CUDA driver's answer is CUDA_ERROR_NOT_INITIALIZED, must be CUDA_SUCCESS; "
        "use it in processes started by spawn, not by a fork of one that did"
    )


def test_a_failure_while_giving_back_is_reported_and_loses_nothing(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: seen.append(str(args.exc_value)))
    buffer = allocate(8, device=Device("cuda"))
    monkeypatch.setattr(fake, "cuMemFree", lambda address: (CUresult.CUDA_ERROR_INVALID_VALUE,))

    def lose() -> None:
        try:
            raise KeyError("kept")
        finally:
            buffer.close()

    with pytest.raises(KeyError, match="kept"):
        lose()
    assert len(seen) == 1
    assert "CUDA_ERROR_INVALID_VALUE" in seen[0]


def test_any_thread_gives_memory_back(fake: FakeCuda) -> None:
    buffers = [allocate(64, device=Device("cuda", i % 2)) for i in range(40)]

    def drop() -> None:
        while True:
            try:
                buffers.pop()
            except IndexError:
                return

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert fake.blocks == {}
    assert fake.log.count("free") == 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads of other tests
def test_a_child_frees_no_device_memory(fake: FakeCuda) -> None:
    buffer = allocate(64, device=Device("cuda"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork beside threads of other tests, JAX's among them
        child = os.fork()
    if child == 0:
        code = 1
        try:
            buffer.close()
            gc.collect()
            code = 0 if fake.log[-1] == "alloc 64" and len(fake.blocks) == 1 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    buffer.close()
    assert fake.log[-1] == "free"


@pytest.fixture
def unknown() -> Iterator[None]:
    """The driver is looked for anew."""
    driver.cuda.cache_clear()
    yield
    driver.cuda.cache_clear()


def test_an_absent_driver_is_a_fact(unknown: None, monkeypatch: pytest.MonkeyPatch) -> None:
    bindings: Any = types.ModuleType("cuda.bindings")
    for name, module in (("cuda", types.ModuleType("cuda")), ("cuda.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    assert driver.cuda() is None

    def missing(flags: int) -> None:
        raise RuntimeError("libcuda.so.1 cannot be found")

    def found(api: object) -> driver.Cuda | None:
        bindings.driver = api
        driver.cuda.cache_clear()
        return driver.cuda()

    assert found(types.SimpleNamespace(cuInit=missing)) is None
    assert found(types.SimpleNamespace(cuInit=lambda flags: (CUresult.CUDA_ERROR_INVALID_DEVICE,))) is None
    assert found(FakeCuda(devices=0)) is None
    assert isinstance(found(FakeCuda()), driver.Cuda)


def test_the_stand_in_has_the_names_of_cuda_bindings() -> None:
    api = pytest.importorskip("cuda.bindings.driver")
    for name in vars(FakeCuda):
        if not name.startswith("_"):
            assert hasattr(api, name), name
    for kind in ("CUpointer_attribute", "CUmemorytype"):
        for member in getattr(FakeCuda, kind):
            assert int(getattr(getattr(api, kind), member.name)) == member.value
    for status in CUresult:
        assert int(getattr(api.CUresult, status.name)) == status.value
