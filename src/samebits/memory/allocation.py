"""New memory: from the default host resource, from one that is in use for a block of code, or from a device's."""

import contextlib
import ctypes
import functools
import math
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from samebits import driver
from samebits.errors import DeviceError, OptionError, message, shown
from samebits.memory.address import ALIGNMENT, address_of
from samebits.memory.buffer import SPACE, Buffer, leased, pooled
from samebits.memory.cuda import CudaResource
from samebits.memory.device import CPU, Device, check_device
from samebits.memory.host import HostResource, check_count, check_no_stream
from samebits.memory.pages import MAPPED
from samebits.memory.resource import Lease, MemoryResource
from samebits.shapes import check_flag

__all__ = ["HOST", "allocate", "new_array", "resource_of", "use_resource"]

HOST: Final = HostResource()

CURRENT: ContextVar[MemoryResource] = ContextVar("samebits_memory_resource", default=HOST)
_get_current = CURRENT.get
_empty, _zeros, _BYTE = np.empty, np.zeros, np.dtype(np.uint8)
# More than any machine addresses; what NumPy and mmap would refuse in words of their own.
_MOST = 1 << 62


def allocate(
    size_bytes: int,
    *,
    zero: bool = False,
    resource: MemoryResource | None = None,
    device: Device | None = None,
    stream: object = None,
) -> Buffer:
    """New memory of size_bytes bytes at a multiple of 64.

    By default it is the host's, from `HOST` or the resource that `use_resource` named. `HOST` takes blocks under 128
    KiB from NumPy, which keeps small ones for reuse, and keeps big ones itself.

    Args:
        size_bytes: Number of bytes; the buffer has exactly as many.
        zero: Whether the bytes are 0; otherwise they are arbitrary.
        resource: Where to take them from.
        device: Instead of a resource: where they shall be.
        stream: For device memory, the CUDA stream in whose order it may be used.

    Raises:
        OptionError: size_bytes is negative or no integer; resource and device are both given; a stream is given for
            host memory; the resource gave no address that is a multiple of 64.
        DeviceError: There is no such device here.
        MemoryError: There is not that much.
    """
    chosen = _get_current() if resource is None and device is None else _chosen(resource, device)
    flag: object = zero
    if type(flag) is not bool:
        zero = check_flag("allocate", "zero", flag)
    if type(size_bytes) is not int or size_bytes < 0:
        size_bytes = check_count("allocate", "size_bytes", size_bytes)
    if chosen is not HOST or size_bytes >= MAPPED or stream is not None:
        return _from_resource(chosen, size_bytes, zero, stream)
    block = (_zeros if zero else _empty)(size_bytes + 63, _BYTE)
    address = address_of(block)
    start = -address & 63
    buffer = Buffer(address + start, size_bytes, block)
    buffer._resource = HOST
    buffer._start = start
    return buffer


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A NumPy array of arbitrary elements in new memory, row-major.

    As `allocate`, from which it differs for big blocks of the host alone: there is no buffer between the array and its
    lease, which takes a third of the time.

    Raises:
        MemoryError: There is not that much.
    """
    size_bytes = math.prod(shape) * dtype.itemsize
    resource = _get_current()
    if type(resource) is not HostResource or not MAPPED <= size_bytes <= _MOST:
        return np.ndarray(shape, dtype, allocate(size_bytes).array())
    block, _ = resource.take(size_bytes)
    memory = _memory_type(block.size_bytes).from_address(block.address)
    memory.lease = Lease(resource, block.address, size_bytes, block)
    return np.ndarray(shape, dtype, memory)


@functools.cache
def _memory_type(size_bytes: int) -> Any:
    """The type of memory that an array can lie in and that keeps a lease; there is one for each size that a pool has.

    NumPy takes it for the array's base, and asks it for its bytes by the buffer protocol.
    """
    return type("LeasedMemory", (ctypes.c_char * size_bytes,), {"__slots__": ("lease",)})


def _from_resource(resource: MemoryResource, size_bytes: int, zero: bool, stream: object) -> Buffer:
    """Memory of any resource, big or on a stream."""
    if size_bytes > _MOST:
        remedy = "use less"
        raise MemoryError(message("allocate", "size_bytes", "", size_bytes, "at most what the system has left", remedy))
    if not size_bytes:
        buffer = Buffer(0, 0, None, resource.device)
        buffer._resource = resource
        return buffer
    if isinstance(resource, HostResource):
        if stream is not None:
            check_no_stream("allocate", stream)
        block, is_zero = resource.take(size_bytes)
        buffer = pooled(resource, block, size_bytes)
        if zero and not is_zero:
            _fill_zero(buffer, None)
        return buffer
    address = resource.allocate(size_bytes, stream=stream)
    if type(address) is not int or address % ALIGNMENT or not 0 < address <= SPACE - size_bytes:
        if hasattr(address, "__index__") and not isinstance(address, bool) and address > 0:
            resource.deallocate(address, size_bytes, stream=stream)
        expected = f"an int, a multiple of {ALIGNMENT} within the address space"
        raise OptionError("allocate", "resource", "address", shown(address), expected, "mend its allocate")
    buffer = leased(resource, address, size_bytes)
    if zero:
        _fill_zero(buffer, stream)
    return buffer


def _fill_zero(buffer: Buffer, stream: object) -> None:
    """Make all bytes 0."""
    if buffer.is_host_accessible:
        buffer.array().fill(0)
    else:
        cuda = driver.needed_cuda("allocate", f"memory of {buffer.device}")
        handle = driver.stream_handle("allocate", stream)
        cuda.fill_zero(buffer.address, buffer.size_bytes, buffer.device.index, handle)


def _chosen(resource: MemoryResource | None, device: Device | None) -> MemoryResource:
    """The resource that was named, or that of the device."""
    if resource is None:
        named = check_device("allocate", device)
        return _get_current() if named == CPU else resource_of(named)
    if device is not None:
        remedy = "name the resource alone"
        raise OptionError("allocate", "device", "", "given beside resource", "the only one", remedy)
    if not hasattr(resource, "allocate"):
        raise _no_resource("allocate", resource)
    return resource


def _no_resource(call: str, given: object) -> OptionError:
    """The error for what is passed as a resource and is none."""
    remedy = "write a class with its five members, or pass device="
    return OptionError(call, "resource", "type", type(given).__name__, "a MemoryResource", remedy)


@functools.cache
def resource_of(device: Device) -> MemoryResource:
    """The library's own resource for a device.

    Raises:
        DeviceError: There is none, or no such device here.
    """
    if device == CPU:
        return HOST
    if device.kind == "cuda":
        return CudaResource(device.index)
    remedy = "pass resource= for other memory"
    raise DeviceError("allocate", "device", "", device, "cpu or cuda", remedy)


@contextlib.contextmanager
def use_resource(resource: MemoryResource) -> Iterator[MemoryResource]:
    """Take the memory of new buffers, tensors and big results from this resource until the block ends, in this thread
    or task; NumPy's results under 128 KiB and temporaries of kernels are not from it.

    Raises:
        DeviceError: The host cannot write its memory, as everything that computes here does.
        OptionError: It is no resource.
    """
    if not isinstance(resource, MemoryResource):
        raise _no_resource("use_resource", resource)
    if not resource.is_host_accessible:
        remedy = "pass resource= or device= to the call that shall use it"
        raise DeviceError("use_resource", "resource", "device", resource.device, "accessible to the host", remedy)
    token = CURRENT.set(resource)
    try:
        yield resource
    finally:
        CURRENT.reset(token)
