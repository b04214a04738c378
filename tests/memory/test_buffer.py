"""Buffers and devices: alignment, ownership, views, copies, close."""

import gc
import pickle
import sys
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from samebits import driver, memory
from samebits.errors import ClosedError, DeviceError, ExchangeError, OptionError, ShapeError
from samebits.memory import CPU, HOST, Buffer, Device, HostResource, address, address_of, allocate
from samebits.memory.buffer import _views

pytestmark = pytest.mark.usefixtures("short_collections")


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


@pytest.mark.parametrize("size", [0, 1, 100, 1 << 17, 3 << 20])
def test_nobody_writes_through_the_array_of_a_read_only_buffer(size: int) -> None:
    source = np.arange(size, dtype=np.uint8)
    owned = allocate(size)
    owned.copy_from(Buffer(address_of(source), size, source))
    owned.read_only = True
    at = address_of(source)
    wrapped = Buffer.from_handle(at, size, owner=source, read_only=True)
    lent = HostResource()
    leased = Buffer.from_handle(lent.allocate(max(size, 1)), size, resource=lent, read_only=True)
    for buffer in (owned, wrapped, leased, owned.view(0, size), wrapped[size // 2 :]):
        array = buffer.array()
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1
    assert (owned.array() == source).all()
    assert allocate(size).array().flags.writeable
    assert Buffer.from_handle(at, size, owner=source).array().flags.writeable


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
    assert (buffer.size_bytes, buffer.device, buffer.read_only, buffer.resource) == (8, CPU, False, None)
    other = allocate(8)
    uses = {
        "address": lambda: buffer.address,
        "owner": lambda: buffer.owner,
        "array": buffer.array,
        "is_host_accessible": lambda: buffer.is_host_accessible,
        "is_device_accessible": lambda: buffer.is_device_accessible,
        "device_id": lambda: buffer.device_id,
        "residence": lambda: buffer.residence,
        "view": lambda: buffer.view(0, 1),
        "copy_from": lambda: buffer.copy_from(other),
    }
    public = {name for name in vars(Buffer) if not name.startswith("_")}
    facts = {"size_bytes", "device", "read_only", "resource", "is_closed", "close", "from_handle", "copy_to"}
    assert public == facts | set(uses)
    uses |= {"view ": lambda: buffer[:4], "copy_from ": lambda: buffer.copy_to(other)}
    uses |= {"copy_from  ": lambda: other.copy_from(buffer)}
    for name, use in uses.items():
        with pytest.raises(ClosedError) as error:
            use()
        text = f"Buffer.{name.strip()}: buffer is closed, must be open; close it after its last use"
        assert str(error.value) == text


def test_buffers_refuse_what_they_cannot_do() -> None:
    with pytest.raises(DeviceError) as device:
        Buffer(4096, 8, None, Device("cuda", 1)).array()
    assert str(device.value) == (
        "Buffer.array: buffer device is cuda:1, must be readable by the host; copy it to the host first"
    )
    with pytest.raises(ExchangeError) as exchange:
        pickle.dumps(allocate(8))
    assert str(exchange.value) == (
        "pickle: Buffer is an address in this process, must be a value; pickle the tensor instead"
    )


def test_a_device_is_a_value() -> None:
    assert Device("cpu") == CPU == Device.from_dlpack(1, 0)
    assert (str(CPU), str(Device("cuda", 2))) == ("cpu", "cuda:2")
    assert CPU.is_host
    assert Device("cuda_managed").is_host
    assert not Device("cuda").is_host
    assert Device.from_dlpack(99, 0) is None
    for kind in ("cpu", "cuda", "cuda_host", "rocm", "rocm_host", "cuda_managed"):
        assert Device.from_dlpack(*Device(kind, 3).dlpack) == Device(kind, 3)
    with pytest.raises(DeviceError) as error:
        Device("gpu")
    assert str(error.value) == (
        "Device: kind is 'gpu', must be one of "
        "['cpu', 'cuda', 'cuda_host', 'cuda_managed', 'rocm', 'rocm_host']; name one of these"
    )
    with pytest.raises(DeviceError, match=r"apart, as Device\('cuda', 0\)$"):
        Device("cuda:1")
    for index in (True, np.True_, 1.0, "1"):
        with pytest.raises(DeviceError) as error:
            Device("cuda", index)  # type: ignore[arg-type]
        assert str(error.value) == f"Device: index is {index!r}, must be an int; count devices from 0"


def test_a_handle_is_wrapped_with_its_owner() -> None:
    owner = np.arange(100, dtype=np.uint8)
    buffer = Buffer.from_handle(np.uint64(address_of(owner)), np.int16(100), owner=owner, read_only=True)
    assert buffer.owner is owner
    assert buffer.resource is None
    assert (buffer.address, buffer.size_bytes, buffer.device, buffer.read_only) == (address_of(owner), 100, CPU, True)
    assert type(buffer.address) is type(buffer.size_bytes) is int
    assert buffer.array().tolist() == list(range(100))
    assert (buffer.is_host_accessible, buffer.is_device_accessible, buffer.device_id) == (True, False, None)
    assert buffer.residence.kind == "pageable"
    count = sys.getrefcount(owner)
    buffer.close()
    assert sys.getrefcount(owner) < count


@pytest.mark.parametrize(
    ("pointer", "size", "text"),
    [
        (0, 1, "pointer is 1 bytes from 0x0, must be within the address space; pass the address of memory"),
        (
            (1 << 64) - 8,
            9,
            "pointer is 9 bytes from 0xfffffffffffffff8, must be within the address space; pass the address of memory",
        ),
        (-1, 0, "pointer is -1, must be at least 0; count bytes"),
        (64, -1, "size_bytes is -1, must be at least 0; count bytes"),
        (64, 1.0, "size_bytes is 1.0, must be an integer; convert it first"),
        (True, 1, "pointer is True, must be an integer; convert it first"),
        (None, 1, "pointer is None, must be an integer; convert it first"),
        ("64", 1, "pointer is '64', must be an integer; convert it first"),
    ],
)
def test_handles_that_cannot_be_memory_are_refused(pointer: int, size: int, text: str) -> None:
    with pytest.raises(OptionError) as error:
        Buffer.from_handle(pointer, size)
    assert str(error.value) == f"Buffer.from_handle: {text}"


def test_no_bytes_may_be_anywhere() -> None:
    assert Buffer.from_handle(0, 0).array().tobytes() == b""
    assert len(Buffer.from_handle((1 << 64) - 1, 0).array()) == 0


def test_owner_and_resource_exclude_each_other() -> None:
    with pytest.raises(OptionError) as error:
        Buffer.from_handle(4096, 1, owner=object(), resource=HOST)
    assert str(error.value) == (
        "Buffer.from_handle: owner is given beside resource, must be the only one; "
        "leave one out: a resource owns what it lent"
    )
    with pytest.raises(DeviceError) as device:
        Buffer.from_handle(4096, 1, resource=HOST, device=Device("cuda", 1))
    assert str(device.value) == ("Buffer.from_handle: device is cuda:1, must be cpu, the resource's; leave device out")


def test_memory_of_other_devices_is_carried_and_what_needs_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "cuda", lambda: None)
    buffer = Buffer.from_handle(4096, 64, device=Device("cuda", 1))
    assert (buffer.is_host_accessible, buffer.is_device_accessible, buffer.device_id) == (False, True, 1)
    assert buffer[8:16].address == 4104
    for use, call in (
        (lambda: buffer.residence, "Buffer.residence: memory of cuda:1"),
        (lambda: buffer.copy_from(allocate(64)), "Buffer.copy_from: memory of cpu and cuda:1"),
        (lambda: buffer.copy_to(allocate(64)), "Buffer.copy_from: memory of cuda:1 and cpu"),
        (lambda: allocate(1, device=Device("cuda", 7)), "CudaResource: memory of cuda:7"),
    ):
        with pytest.raises(DeviceError) as error:
            use()
        assert str(error.value) == (
            f"{call} is out of reach, must be reachable by the CUDA driver; "
            "install cuda-bindings on a machine with an NVIDIA driver"
        )
    pinned = Buffer.from_handle(4096, 64, device=Device("cuda_host", 1))
    assert (pinned.is_host_accessible, pinned.is_device_accessible, pinned.device_id) == (True, True, 1)
    rocm = Buffer.from_handle(4096, 64, device=Device("rocm"))
    with pytest.raises(DeviceError) as error:
        rocm.copy_from(allocate(64))
    assert str(error.value) == (
        "Buffer.copy_from: buffer device is rocm:0, must be CUDA or host memory; use its own library"
    )


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_views_are_parts_of_the_same_memory(size: int) -> None:
    buffer = allocate(size)
    buffer.array()[:] = np.arange(size, dtype=np.uint8)
    whole = bytes(buffer.array())
    for start, stop in ((0, size), (3, 10), (None, 7), (-5, None), (-10, -2), (size, size), (9, 3), (None, None)):
        part = buffer[start:stop]
        assert bytes(part.array()) == whole[start:stop]
        assert part.resource is buffer.resource
        assert bytes(part[1:].array() if part.size_bytes else b"") == whole[start:stop][1:]
    assert buffer.view(2, 4).address == buffer.address + 2
    buffer.view(2, 4).array()[0] = 77
    assert buffer.array()[2] == 77
    buffer.read_only = True
    assert not buffer.view(0, 1).array().flags.writeable


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda b: b[0:9], "Buffer.view: range is [0, 9), must be within 8 bytes; take less of it"),
        (lambda b: b[9:], "Buffer.view: range is [9, 9), must be within 8 bytes; take less of it"),
        (lambda b: b[-9:], "Buffer.view: offset is -1, must be at least 0; count bytes"),
        (lambda b: b[::2],
         "Buffer[...]: key is slice(None, None, 2), must be a slice of step 1; use array() for single bytes"),
        (lambda b: b[3], "Buffer[...]: key is 3, must be a slice of step 1; use array() for single bytes"),
        (lambda b: list(b), "Buffer[...]: key is 0, must be a slice of step 1; use array() for single bytes"),
        (lambda b: b[1.5:], "Buffer[...]: bound is 1.5, must be an integer; convert it first"),
        (lambda b: b.view(-1, 2), "Buffer.view: offset is -1, must be at least 0; count bytes"),
        (lambda b: b.view(1, -1), "Buffer.view: size_bytes is -1, must be at least 0; count bytes"),
        (lambda b: b.view(99, 0), "Buffer.view: range is [99, 99), must be within 8 bytes; take less of it"),
        (lambda b: b.view(1, 1 << 64),
         f"Buffer.view: range is [1, {(1 << 64) + 1}), must be within 8 bytes; take less of it"),
    ],
)  # fmt: skip
def test_views_beyond_the_bounds_are_refused(use: Callable[[Buffer], object], text: str) -> None:
    with pytest.raises(OptionError) as error:
        use(allocate(8))
    assert str(error.value) == text


def test_a_view_keeps_the_memory_and_is_closed_with_its_parent() -> None:
    owner = np.arange(8, dtype=np.uint8)
    gone = weakref.ref(owner)
    buffer = Buffer.from_handle(address_of(owner), 8, owner=owner)
    part = buffer[2:6]
    inner = part[1:]
    array = inner.array()
    del owner, buffer
    gc.collect()
    assert array.tolist() == [3, 4, 5]
    part.close()
    assert inner.is_closed
    with pytest.raises(ClosedError):
        inner.array()
    assert array.tolist() == [3, 4, 5]
    del array
    gc.collect()
    assert gone() is None


def test_closing_a_view_leaves_its_parent_open() -> None:
    buffer = allocate(8)
    for _ in range(1000):
        buffer[2:4].close()
    kept = [buffer[i : i + 1] for i in range(4)]
    assert len(_views[buffer]) == 4
    assert not buffer.is_closed
    buffer.close()
    assert all(part.is_closed for part in kept)
    assert buffer not in _views
    other = allocate(8)
    with pytest.raises(OptionError) as error:
        other.close(stream=1)
    assert str(error.value) == (
        "Buffer.close: stream is 1, must be None but for device memory of a resource, whole; leave it out"
    )
    assert not other.is_closed


def test_copies_move_all_bytes_and_may_overlap() -> None:
    rng = np.random.default_rng(5)
    for size in (0, 1, 63, 64, 4097, 1 << 20):
        source, target = allocate(size), allocate(size)
        source.array()[:] = rng.integers(0, 256, size)
        target.copy_from(source)
        assert bytes(target.array()) == bytes(source.array())
        source.copy_to(source)
    buffer = allocate(1000)
    for shift in (1, 7, 64, 500):
        for forwards in (False, True):
            values = rng.integers(0, 256, 1000).astype(np.uint8)
            buffer.array()[:] = values
            first, second = buffer[: 1000 - shift], buffer[shift:]
            target, source = (second, first) if forwards else (first, second)
            source.copy_to(target)
            due = bytes(values[: 1000 - shift] if forwards else values[shift:])
            assert bytes(target.array()) == due


def test_copies_that_cannot_be_are_refused() -> None:
    buffer = allocate(8)
    with pytest.raises(ShapeError) as shape:
        buffer.copy_from(allocate(9))
    assert str(shape.value) == (
        "Buffer.copy_from: source size_bytes is 9, must be 8, as many as there is room for; copy between views"
    )
    with pytest.raises(OptionError) as option:
        buffer.copy_from(allocate(8), stream=1)
    assert str(option.value) == "Buffer.copy_from: stream is 1, must be None for host memory; leave it out"
    buffer.read_only = True
    with pytest.raises(ExchangeError) as exchange:
        buffer.copy_from(allocate(8))
    assert str(exchange.value) == (
        "Buffer.copy_from: buffer access is read-only, must be writable; copy to memory of your own"
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes have the buffer protocol from Python 3.12 on")
def test_the_buffer_protocol_shows_the_same_memory() -> None:
    buffer = allocate(8, zero=True)
    shown = memoryview(buffer)
    shown[3] = 7
    assert bytes(buffer) == b"\0\0\0\7\0\0\0\0"
    buffer.close()
    assert shown[3] == 7
    with pytest.raises(ClosedError):
        memoryview(buffer)
    constant = Buffer(address_of(np.zeros(4, np.uint8)), 0, None, read_only=True)
    assert memoryview(constant).readonly


def test_closing_while_others_view_and_copy() -> None:
    """Whatever a thread gets is memory that stays, or a ClosedError."""
    failures: list[BaseException] = []

    def use(buffer: Buffer) -> None:
        try:
            for _ in range(200):
                part = buffer[100:200]
                part.array()[:] = 1
                part.copy_to(buffer[300:400])
        except ClosedError:
            pass
        except BaseException as error:
            failures.append(error)

    for _ in range(20):
        buffer = allocate(1 << 20)
        threads = [threading.Thread(target=use, args=(buffer,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        buffer.close()
        for thread in threads:
            thread.join()
    assert failures == []
