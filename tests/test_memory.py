"""Buffers and devices: alignment, ownership, close."""

import gc
import pickle
import weakref

import numpy as np
import pytest

from samebits import memory
from samebits.errors import ClosedError, DeviceError, ExchangeError, OptionError
from samebits.memory import CPU, Buffer, Device, address, address_of, allocate


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 4096, 5_000_000])
def test_allocated_memory_is_aligned_and_exact(size: int) -> None:
    buffer = allocate(size)
    array = buffer.array()
    assert buffer.address % memory.ALIGNMENT == 0
    assert (buffer.size_bytes, array.nbytes) == (size, size)
    assert address_of(array) == buffer.address or not size
    assert array.flags.writeable
    assert not allocate(size, zero=True).array().any()


def test_address_of_equals_the_array_interface() -> None:
    base = np.zeros((4, 6), np.float32)
    for view in (base, base[1:, 2:], base[::-1], base.T, base[:0], np.broadcast_to(base, (2, 4, 6)), base[0, 0, ...]):
        assert address_of(view) == view.__array_interface__["data"][0]
    assert address._address_documented(base) == address_of(base)


def test_an_array_of_a_buffer_keeps_the_owner_alive() -> None:
    owner = np.arange(8, dtype=np.uint8)
    gone = weakref.ref(owner)
    buffer = Buffer(address_of(owner), 8, owner, read_only=True)
    array = buffer.array()
    del owner
    buffer.close()
    gc.collect()
    assert gone() is not None
    assert array.tolist() == list(range(8))
    assert not array.flags.writeable
    del array
    gc.collect()
    assert gone() is None


def test_close_lets_go_and_every_later_use_is_one_error() -> None:
    owner = np.zeros(8, np.uint8)
    gone = weakref.ref(owner)
    buffer = Buffer(address_of(owner), 8, owner)
    del owner
    buffer.close()
    buffer.close()
    gc.collect()
    assert gone() is None
    assert buffer.is_closed
    assert repr(buffer) == "Buffer(closed, size_bytes=8, cpu, writable)"
    for name, use in {"address": lambda: buffer.address, "owner": lambda: buffer.owner, "array": buffer.array}.items():
        with pytest.raises(ClosedError) as error:
            use()
        assert str(error.value) == f"Buffer.{name}: buffer is closed, must be open; close it after its last use"


def test_buffers_refuse_what_they_cannot_do() -> None:
    with pytest.raises(OptionError) as option:
        allocate(-1)
    assert str(option.value) == "allocate: size_bytes is -1, must be at least 0; count bytes"
    with pytest.raises(DeviceError) as device:
        Buffer(4096, 8, None, Device("cuda", 1)).array()
    assert str(device.value) == (
        "Buffer.array: buffer device is cuda:1, must be readable by the host; copy it to the host first"
    )
    with pytest.raises(ExchangeError) as exchange:
        pickle.dumps(allocate(8))
    assert str(exchange.value) == (
        "pickle: Buffer is an address in this process, must be a value; pickle tensor.numpy() instead"
    )


def test_a_device_is_a_value() -> None:
    assert Device("cpu") == CPU == Device.from_dlpack(1, 0)
    assert (str(CPU), str(Device("cuda", 2))) == ("cpu", "cuda:2")
    assert CPU.is_host
    assert Device("cuda_managed").is_host
    assert not Device("cuda").is_host
    assert Device.from_dlpack(99, 0) is None
    for kind in ("cpu", "cuda", "cuda_host", "metal", "oneapi", "rocm", "rocm_host", "cuda_managed"):
        assert Device.from_dlpack(*Device(kind, 3).dlpack) == Device(kind, 3)
    with pytest.raises(DeviceError) as error:
        Device("gpu")
    assert str(error.value) == (
        "Device: kind is 'gpu', must be one of "
        "['cpu', 'cuda', 'cuda_host', 'cuda_managed', 'metal', 'oneapi', 'rocm', 'rocm_host']; name one of these"
    )
