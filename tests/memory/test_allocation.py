"""New memory: sizes, alignment, zeros, which resource gives it, and what a resource of a user's own may do wrong."""

from __future__ import annotations

import contextvars
import gc
import pathlib
import re
import sys
import threading
from typing import Any

import guard
import ml_dtypes
import numpy as np
import pytest

from samebits import Tensor
from samebits.errors import DeviceError, OptionError
from samebits.memory import CPU, HOST, Buffer, Device, HostResource, MemoryResource, allocate, new_array, use_resource
from samebits.memory.address import ALIGNMENT, address_of
from samebits.memory.allocation import resource_of
from samebits.memory.pages import MAPPED

pytestmark = pytest.mark.usefixtures("short_collections")


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What finalisers raised meanwhile."""
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: seen.append((args.exc_type, str(args.exc_value))))
    return seen


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (-1, "-1, must be at least 0; count bytes"),
        (-(1 << 70), f"-{1 << 70}, must be at least 0; count bytes"),
        (1.5, "1.5, must be an integer; convert it first"),
        (True, "True, must be an integer; convert it first"),
        (None, "None, must be an integer; convert it first"),
        ("8", "'8', must be an integer; convert it first"),
    ],
)
def test_sizes_that_count_no_bytes_are_refused(size: Any, text: str) -> None:
    with pytest.raises(OptionError) as error:
        allocate(size)
    assert str(error.value) == f"allocate: size_bytes is {text}"


@pytest.mark.parametrize("size", [1 << 47, (1 << 62) - 1, 1 << 62, 1 << 63, 1 << 64, 1 << 200])
@pytest.mark.parametrize("zero", [False, True])
def test_more_than_there_is_is_a_memory_error(size: int, zero: bool) -> None:
    with pytest.raises(MemoryError) as error:
        allocate(size, zero=zero)
    assert str(error.value) == (f"allocate: size_bytes is {size}, must be at most what the system has left; use less")
    with pytest.raises(MemoryError):
        allocate(size, resource=HostResource())


def test_a_tensor_of_more_than_there_is_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        Tensor.empty((1 << 50,))


def test_integers_of_numpy_count() -> None:
    buffer = allocate(np.int64(100))  # type: ignore[arg-type]
    assert type(buffer.size_bytes) is int
    assert len(buffer.array()) == 100


@pytest.mark.parametrize("size", [0, 1, 100, 131071, 131072, 1 << 20, (1 << 21) - 1, 1 << 21, 5_000_001])
def test_zeros_are_zeros_when_memory_is_used_again(size: int) -> None:
    for resource in (HOST, HostResource(), guard.GuardResource()):
        for _ in range(3):
            buffer = allocate(size, resource=resource)
            buffer.array()[:] = 0xFF
            del buffer
            buffer = allocate(size, zero=True, resource=resource)
            assert not buffer.array().any()
            assert buffer.resource is resource
            assert buffer.address % 64 == 0


def test_the_resource_in_use_gives_host_memory_to_this_thread_alone() -> None:
    mine = guard.GuardResource()
    seen: list[object] = []
    with use_resource(mine) as given:
        assert given is mine
        tensor = Tensor.zeros((3, 5))
        assert tensor.buffer.resource is mine
        assert allocate(8, device=CPU).resource is mine
        assert allocate(8, resource=HOST).resource is HOST
        thread = threading.Thread(target=lambda: seen.append(allocate(8).resource))
        thread.start()
        thread.join()
        assert contextvars.copy_context().run(lambda: allocate(8).resource) is mine
        with use_resource(HOST):
            assert allocate(8).resource is HOST
    assert seen == [HOST]
    assert allocate(8).resource is HOST
    assert mine.lent == 1
    assert not tensor.numpy().any()
    del tensor
    assert mine.lent == 0


@pytest.mark.parametrize("shape", [(3,), (0, 5), (), (255, 128), (257, 128), (3, 512, 512)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.bool_])
def test_an_array_is_lent_while_it_or_a_part_of_it_lives(shape: tuple[int, ...], dtype: Any) -> None:
    pool = HostResource()
    with use_resource(pool):
        array = new_array(shape, np.dtype(dtype))
        other = new_array(shape, np.dtype(dtype))
    assert (array.shape, array.dtype, array.flags.c_contiguous, array.flags.writeable) == (shape, dtype, True, True)
    assert array.nbytes == 0 or address_of(array) % ALIGNMENT == 0
    assert not np.shares_memory(array, other)
    array[...] = 1
    other[...] = 0
    part = Tensor.from_any(array.reshape(-1)[1:])
    del array, other
    gc.collect()
    with use_resource(pool):
        again = new_array(shape, np.dtype(dtype))
    again[...] = 0
    assert (part.numpy() == 1).all(), "what is lent is not given to another"
    assert pool.statistics.reuses == (again.nbytes >= MAPPED)
    del part, again
    gc.collect()
    assert pool.statistics.lent_blocks == 0


def test_an_array_of_more_than_there_is_is_a_memory_error() -> None:
    for count in (1 << 46, 1 << 60):
        with pytest.raises(MemoryError):
            new_array((count,), np.dtype(np.float64))


def test_what_is_no_host_memory_is_not_used_for_it() -> None:
    class Elsewhere(guard.GuardResource):
        device = Device("rocm")
        is_host_accessible = False

    with pytest.raises(DeviceError) as error, use_resource(Elsewhere()):
        pass
    assert str(error.value) == (
        "use_resource: resource device is rocm:0, must be accessible to the host; "
        "pass resource= or device= to the call that shall use it"
    )
    with pytest.raises(OptionError) as option:
        allocate(8, resource=HOST, device=CPU)
    assert str(option.value) == (
        "allocate: device is given beside resource, must be the only one; name the resource alone"
    )
    with pytest.raises(DeviceError) as device:
        allocate(8, device=Device("rocm"))
    assert str(device.value) == "allocate: device is rocm:0, must be cpu or cuda; pass resource= for other memory"
    assert resource_of(CPU) is HOST
    for size in (8, 1 << 20):
        with pytest.raises(OptionError) as stream:
            allocate(size, stream=7)
        assert str(stream.value) == "allocate: stream is 7, must be None for host memory; leave it out"


def test_shipped_and_written_resources_meet_the_protocol() -> None:
    assert isinstance(HOST, MemoryResource)
    assert isinstance(guard.GuardResource(), MemoryResource)
    assert not isinstance(object(), MemoryResource)


def test_memory_goes_back_once_when_the_last_user_is_gone() -> None:
    class Counting(guard.GuardResource):
        def __init__(self) -> None:
            super().__init__()
            self.returned: list[tuple[int, int]] = []

        def deallocate(self, address: int, size_bytes: int, *, stream: object = None) -> None:
            self.returned.append((address, size_bytes))
            super().deallocate(address, size_bytes, stream=stream)

    resource = Counting()
    buffer = allocate(100, resource=resource)
    address = buffer.address
    array, part = buffer.array(), buffer[10:20]
    buffer.close()
    buffer.close()
    assert part.is_closed
    assert resource.returned == []
    array[:] = 1
    half = array[50:]
    del array, buffer
    gc.collect()
    assert resource.returned == []
    del half
    assert resource.returned == [(address, 100)]
    part = allocate(100, resource=resource)[10:20]
    part.array()[:] = 3
    assert len(resource.returned) == 1
    del part
    assert len(resource.returned) == 2
    wrapped = Buffer.from_handle(resource.allocate(5), 5, resource=resource)
    assert wrapped.resource is resource
    wrapped.close()
    assert len(resource.returned) == 3
    assert allocate(0, resource=resource).array().nbytes == 0
    assert len(resource.returned) == 3
    assert resource.lent == 0


def test_a_resource_that_fails_to_take_back_loses_no_exception(unraisable: list[Any]) -> None:
    class Failing(guard.GuardResource):
        def deallocate(self, address: int, size_bytes: int, *, stream: object = None) -> None:
            super().deallocate(address, size_bytes)
            raise RuntimeError("the arena is gone")

    def lose() -> None:
        tensor = allocate(10, resource=Failing())
        assert tensor.size_bytes == 10
        raise KeyError("in flight")

    with pytest.raises(KeyError, match="in flight"):
        lose()
    gc.collect()
    assert unraisable == [(RuntimeError, "the arena is gone")]
    buffer = allocate(10, resource=Failing())
    buffer.close()
    assert unraisable == [(RuntimeError, "the arena is gone")] * 2


def test_an_exception_in_flight_survives_a_refused_capsule(unraisable: list[Any]) -> None:
    """The last user may be a capsule that dies while its consumer's exception is on the way."""

    class Failing(guard.GuardResource):
        def deallocate(self, address: int, size_bytes: int, *, stream: object = None) -> None:
            raise RuntimeError("the arena is gone")

    def refuse() -> None:
        capsule = Tensor(allocate(40, resource=Failing()), Tensor.empty((10,)).layout, Tensor.empty(()).dtype)
        kept = capsule.__dlpack__(max_version=(1, 0))
        del capsule
        raise BufferError(f"no {type(kept).__name__} here")

    with pytest.raises(BufferError, match="no PyCapsule here"):
        refuse()
    gc.collect()
    assert unraisable == [(RuntimeError, "the arena is gone")]


@pytest.mark.parametrize("gives", [4097, None, 0, -64, 64.0, True, np.int64(64), 1 << 64], ids=repr)
def test_a_resource_that_gives_no_aligned_address_is_refused(gives: Any) -> None:
    class Wrong(guard.GuardResource):
        returned: object = None

        def allocate(self, size_bytes: int, *, stream: object = None) -> int:
            return gives  # type: ignore[no-any-return]

        def deallocate(self, address: int, size_bytes: int, *, stream: object = None) -> None:
            self.returned = address

    resource = Wrong()
    with pytest.raises(OptionError) as error:
        allocate(10, resource=resource)
    assert str(error.value) == (
        f"allocate: resource address is {gives!r}, must be an int, a multiple of 64 within the address space;"
        " mend its allocate"
    )
    # What may be memory is not lost.
    may_be = isinstance(gives, int | np.integer) and not isinstance(gives, bool) and gives > 0
    assert resource.returned == (gives if may_be else None)


def test_what_is_no_resource_and_no_device_is_told() -> None:
    for use in (lambda: allocate(8, device="cpu"), lambda: Tensor.zeros((2,), device="cpu")):  # type: ignore[arg-type]
        with pytest.raises(OptionError) as error:
            use()
        assert str(error.value) == "allocate: device is 'cpu', must be a Device; write Device('cpu')"
    with pytest.raises(OptionError, match="allocate: resource type is str, must be a MemoryResource"):
        allocate(8, resource="cpu")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="use_resource: resource type is str, must be a MemoryResource"):
        use_resource("cpu").__enter__()  # type: ignore[arg-type]


def test_a_resource_that_has_no_more_says_so_itself() -> None:
    class Empty(guard.GuardResource):
        def allocate(self, size_bytes: int, *, stream: object = None) -> int:
            raise MemoryError(f"no {size_bytes}")

    with pytest.raises(MemoryError, match=r"^no 40$"), use_resource(Empty()):
        Tensor.empty((10,))


def test_the_resource_of_the_page_works() -> None:
    page = pathlib.Path(__file__).parents[2] / "docs" / "how-to-add-a-memory-resource.md"
    text = re.search(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    assert text is not None
    space: dict[str, Any] = {}
    exec(text[1], space)
    assert isinstance(space["pages"], MemoryResource)
    assert len(space["pages"]._lent) == 2
    space["tensor"] = space["buffer"] = None
    assert space["pages"]._lent == {}
