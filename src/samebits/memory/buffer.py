"""Memory as a fact: where bytes are, how many, who keeps them alive, and whether they may be written.

Start at `Buffer`. A buffer keeps its owner alive until `close`; whatever was exported from it keeps the owner by
itself, so closing never pulls memory from under a consumer.
"""

import ctypes
import weakref
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt

from samebits import driver
from samebits.errors import ClosedError, DeviceError, ExchangeError, OptionError, ShapeError, shown
from samebits.memory.address import ALIGNMENT
from samebits.memory.device import CPU, Device
from samebits.memory.host import HostResource, check_count, check_integer, check_no_stream
from samebits.memory.pages import PageBlock
from samebits.memory.resource import Lease, MemoryResource
from samebits.shapes import check_type

__all__ = ["Buffer"]

_REMEDY = "pass the buffer of a tensor"
# Addresses there are.
SPACE = 1 << 64


class Buffer:
    """`size_bytes` bytes from `address` on, kept alive by `owner` until `close`.

    The constructor takes facts on trust; `from_handle` checks them. The attributes may be read after `close`, every use
    of the memory is a ClosedError from then on.

    Attributes:
        size_bytes: Number of bytes.
        device: Where they are.
        read_only: Whether nobody may write them through this library.
    """

    __slots__ = (
        "__weakref__",
        "_address",
        "_bytes",
        "_is_view",
        "_owner",
        "_residence",
        "_resource",
        "_start",
        "device",
        "read_only",
        "size_bytes",
    )

    _is_view: bool
    _resource: MemoryResource
    _residence: driver.Residence
    # Of a block that `allocate` got from NumPy: where in the array that is the owner the bytes begin. Their own array
    # is made when it is asked for, because kernels take the address.
    _start: int

    def __init__(
        self, address: int, size_bytes: int, owner: object, device: Device = CPU, read_only: bool = False
    ) -> None:
        self._address: int | None = address
        self._owner = owner
        self._bytes: npt.NDArray[np.uint8] | None = None
        self.size_bytes = size_bytes
        self.device = device
        self.read_only = read_only

    @classmethod
    def from_handle(
        cls,
        pointer: SupportsIndex,
        size_bytes: SupportsIndex,
        *,
        owner: object = None,
        resource: MemoryResource | None = None,
        device: Device | None = None,
        read_only: bool = False,
    ) -> "Buffer":
        """The size_bytes bytes at an address, which nobody checks.

        Args:
            pointer: Address of the first byte.
            size_bytes: Number of bytes.
            owner: What keeps the memory alive; None where the caller sees to it.
            resource: Instead of an owner: where the memory came from, and goes back to after the last use.
            device: Where it is; by default the CUDA driver is asked, and without one it is host memory.
            read_only: Whether nobody may write it through this library.

        Raises:
            OptionError: The bytes are not addressable, or there are both an owner and a resource.
            DeviceError: The resource's memory is elsewhere than on that device.
        """
        call = "Buffer.from_handle"
        address = check_count(call, "pointer", pointer)
        count = check_count(call, "size_bytes", size_bytes)
        if address + count > SPACE or (count and not address):
            actual, remedy = f"{count} bytes from {address:#x}", "pass the address of memory"
            raise OptionError(call, "pointer", "", actual, "within the address space", remedy)
        if resource is None:
            return cls(address, count, owner, _where(address) if device is None else device, read_only)
        if owner is not None:
            remedy = "leave one out: a resource owns what it lent"
            raise OptionError(call, "owner", "", "given beside resource", "the only one", remedy)
        if device is not None and device != resource.device:
            expected = f"{resource.device}, the resource's"
            raise DeviceError(call, "device", "", device, expected, "leave device out")
        return leased(resource, address, count, read_only)

    def __repr__(self) -> str:
        place = "closed" if self._address is None else f"{self._address:#x}"
        access = "read-only" if self.read_only else "writable"
        return f"Buffer({place}, size_bytes={self.size_bytes}, {self.device}, {access})"

    def __reduce__(self) -> NoReturn:
        remedy = "pickle the tensor instead"
        raise ExchangeError("pickle", "Buffer", "", "an address in this process", "a value", remedy)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, on this buffer or on one that it is a view of."""
        return self._address is None

    @property
    def address(self) -> int:
        """Address of the first byte.

        Raises:
            ClosedError: The buffer was closed.
        """
        if self._address is None:
            raise self._closed("address")
        return self._address

    @property
    def owner(self) -> object:
        """What keeps the memory alive.

        Raises:
            ClosedError: The buffer was closed.
        """
        if self._address is None:
            raise self._closed("owner")
        return self._owner

    @property
    def resource(self) -> MemoryResource | None:
        """Where the memory came from and goes back to; None where somebody else's is wrapped."""
        return getattr(self, "_resource", None)

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host may read the bytes.

        Raises:
            ClosedError: The buffer was closed.
        """
        if self._address is None:
            raise self._closed("is_host_accessible")
        return self.device.is_host if self.resource is None else self.resource.is_host_accessible

    @property
    def is_device_accessible(self) -> bool:
        """Whether a GPU may read the bytes: of wrapped host memory only the CUDA driver knows.

        Raises:
            ClosedError: The buffer was closed.
        """
        if self._address is None:
            raise self._closed("is_device_accessible")
        if self.resource is not None:
            return self.resource.is_device_accessible
        return self.device.kind != "cpu" or self.residence.kind != "pageable"

    @property
    def device_id(self) -> int | None:
        """Which GPU the memory belongs to; None for what belongs to the host alone.

        Raises:
            ClosedError: The buffer was closed.
        """
        if self._address is None:
            raise self._closed("device_id")
        if self.device.kind != "cpu":
            return self.device.index
        return None if self.residence.kind == "pageable" else self.residence.index

    @property
    def residence(self) -> driver.Residence:
        """What the CUDA driver knows of the memory: pageable, pinned, managed or a device's.

        Host memory of this library, and all memory of kind `cpu` where there is no driver, is pageable without asking.

        Raises:
            ClosedError: The buffer was closed.
            DeviceError: The memory is not of kind `cpu`, and there is no CUDA driver.
        """
        if self._address is None:
            raise self._closed("residence")
        found = getattr(self, "_residence", None)
        if found is None:
            if isinstance(self.resource, HostResource) or (self.device == CPU and driver.cuda() is None):
                found = driver.PAGEABLE
            else:
                found = driver.needed_cuda("Buffer.residence", f"memory of {self.device}").residence(self._address)
            self._residence = found
        return found

    def view(self, offset: SupportsIndex, size_bytes: SupportsIndex) -> "Buffer":
        """The size_bytes bytes from offset on: a buffer that keeps the memory alive, and is closed when this one is.

        Raises:
            ClosedError: The buffer was closed.
            OptionError: The bytes are not all of this buffer.
        """
        owner, address = self._owner, self._address
        if address is None:
            raise self._closed("view")
        first = check_count("Buffer.view", "offset", offset)
        count = check_count("Buffer.view", "size_bytes", size_bytes)
        if first + count > self.size_bytes:
            expected = f"within {self.size_bytes} bytes"
            raise OptionError("Buffer.view", "range", "", f"[{first}, {first + count})", expected, "take less of it")
        part = Buffer(address + first, count, owner, self.device, self.read_only)
        part._is_view = True
        if self.resource is not None:
            part._resource = self.resource
        views = _views.setdefault(self, set())
        views.add(weakref.ref(part, views.discard))
        if self._address is None:  # closed meanwhile by another thread
            part.close()
        return part

    def __getitem__(self, key: slice) -> "Buffer":
        """`buffer[start:stop]`: `view(start, stop - start)`, with negative places counted from the end."""
        if not isinstance(key, slice) or key.step not in (None, 1):
            actual, expected = shown(key), "a slice of step 1"
            raise OptionError("Buffer[...]", "key", "", actual, expected, "use array() for single bytes")
        first, end = self._place(key.start, 0), self._place(key.stop, self.size_bytes)
        return self.view(first, max(end - first, 0))

    def _place(self, bound: Any, default: int) -> int:
        """A bound of a slice, counted from the end where it is negative."""
        if bound is None:
            return default
        place = check_integer("Buffer[...]", "bound", bound)
        return place + self.size_bytes if place < 0 else place

    def close(self, *, stream: object = None) -> None:
        """Let go of the owner; every later use raises ClosedError, of views too. Closing twice is allowed.

        Memory of a resource goes back when the last array, capsule or view made from it is gone as well.

        Args:
            stream: For device memory of a resource: the CUDA stream in whose order it goes back. By default all work of
                the device is waited for.

        Raises:
            OptionError: A stream was named for other memory, or for a view.
        """
        owner = self._owner
        if stream is not None and self._address is not None:
            if not isinstance(owner, Lease) or owner.resource.is_host_accessible or hasattr(self, "_is_view"):
                expected = "None but for device memory of a resource, whole"
                raise OptionError("Buffer.close", "stream", "", shown(stream), expected, "leave it out")
            driver.stream_handle("Buffer.close", stream)
            owner.stream = stream
        self._address = self._owner = self._bytes = None
        if _views:
            for view in _views.pop(self, set()).copy():  # what dies meanwhile leaves the set
                part = view()
                if part is not None:
                    part.close()

    def array(self) -> npt.NDArray[np.uint8]:
        """All bytes as a NumPy array that keeps the owner alive by itself; read-only where the buffer is.

        Raises:
            ClosedError: The buffer was closed.
            DeviceError: The host cannot read the memory.
        """
        known = self._bytes
        if known is None:
            known = self._bytes = self._new_array()
            if self._address is None:  # closed meanwhile by another thread
                self._bytes = None
        return known

    def __buffer__(self, flags: int, /) -> memoryview:
        """Python's buffer protocol, from Python 3.12 on: `memoryview(buffer)` is that of `array()`."""
        return self.array().data

    def _new_array(self) -> npt.NDArray[np.uint8]:
        """What `array` gives, made."""
        owner, address = self._owner, self._address
        if address is None:
            raise self._closed("array")
        start = getattr(self, "_start", None)
        if start is not None:
            part: npt.NDArray[np.uint8] = owner[start : start + self.size_bytes]  # type: ignore[index]
            if self.read_only:
                part.flags.writeable = False
            return part
        if not self.is_host_accessible:
            del owner  # the error's traceback would hold it
            remedy = "copy it to the host first"
            raise DeviceError("Buffer.array", "buffer", "device", self.device, "readable by the host", remedy)
        return np.asarray(_Span(address, self.size_bytes, self.read_only, owner))

    def copy_from(self, source: "Buffer", *, stream: object = None) -> None:
        """Copy all bytes of source, of as many bytes; the two may overlap.

        Args:
            stream: A CUDA stream (its handle, or what has `__cuda_stream__`), for copies that a GPU takes part in: the
                copy is done when the stream is, and until then both buffers must stay open. By default it is done when
                this returns.

        Raises:
            ClosedError: One of them was closed.
            ShapeError: They differ in size.
            ExchangeError: This one is read-only.
            DeviceError: They are on devices between which this library cannot copy, or there is no driver.
            OptionError: A stream was named for a copy within host memory.
        """
        call = "Buffer.copy_from"
        check_type(call, "source", source, Buffer, _REMEDY)
        # Owners first: what is open after that stays alive, whoever closes it.
        owners = self._owner, source._owner
        target_at, source_at = self._address, source._address
        if target_at is None or source_at is None:
            raise self._closed("copy_from")
        if self.size_bytes != source.size_bytes:
            expected = f"{self.size_bytes}, as many as there is room for"
            raise ShapeError(call, "source", "size_bytes", source.size_bytes, expected, "copy between views")
        if self.read_only:
            raise ExchangeError(call, "buffer", "access", "read-only", "writable", "copy to memory of your own")
        if self.is_host_accessible and source.is_host_accessible:
            check_no_stream(call, stream)
            ctypes.memmove(target_at, source_at, self.size_bytes)
        else:
            index = _gpu_of(call, self, source)
            cuda = driver.needed_cuda(call, f"memory of {source.device} and {self.device}")
            cuda.copy(target_at, source_at, self.size_bytes, index, driver.stream_handle(call, stream))
        del owners

    def copy_to(self, target: "Buffer", *, stream: object = None) -> None:
        """`target.copy_from(self)`."""
        check_type("Buffer.copy_to", "target", target, Buffer, _REMEDY)
        target.copy_from(self, stream=stream)

    def _closed(self, use: str) -> ClosedError:
        """The one error for every use after close."""
        return ClosedError(f"Buffer.{use}", "buffer", "", "closed", "open", "close it after its last use")


# The views of a buffer that are alive. Every change is one step of a dict or a set, so threads and forks harm nothing.
_views: "weakref.WeakKeyDictionary[Buffer, set[weakref.ref[Buffer]]]" = weakref.WeakKeyDictionary()


class _Span:
    """Memory as NumPy's array interface; the array made from it keeps this object, and so the owner, alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, size_bytes: int, read_only: bool, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size_bytes,),
            # NumPy takes address 0 for "allocate"; of no bytes any address is as good.
            "data": (address or ALIGNMENT, read_only),
        }


def leased(resource: MemoryResource, address: int, size_bytes: int, read_only: bool = False) -> Buffer:
    """Memory that goes back to its resource after the last use."""
    block = resource.claimed(address) if isinstance(resource, HostResource) else None
    return _leased(Lease(resource, address, size_bytes, block), read_only)


def pooled(resource: HostResource, block: PageBlock, size_bytes: int) -> Buffer:
    """size_bytes of a block that was just taken from the host's pool, to which it goes back after the last use."""
    return _leased(Lease(resource, block.address, size_bytes, block))


def _leased(lease: Lease, read_only: bool = False) -> Buffer:
    buffer = Buffer(lease.address, lease.size_bytes, lease, lease.resource.device, read_only)
    buffer._resource = lease.resource
    return buffer


def _where(address: int) -> Device:
    """The device of memory at an address, as the CUDA driver knows it; without a driver all of it is the host's."""
    cuda = driver.cuda()
    if cuda is None or not address:
        return CPU
    found = cuda.residence(address)
    kind = {"device": "cuda", "managed": "cuda_managed", "pinned": "cuda_host"}
    return Device(kind[found.kind], found.index) if found.kind in kind else CPU


def _gpu_of(call: str, *buffers: Buffer) -> int:
    """The index of a GPU for a copy that it takes part in, refused where there is none or other memory takes part."""
    indices = [buffer.device.index for buffer in buffers if buffer.device.kind == "cuda"]
    for buffer in buffers:
        if not indices or not (buffer.device.kind.startswith("cuda") or buffer.is_host_accessible):
            expected = "CUDA or host memory"
            raise DeviceError(call, "buffer", "device", buffer.device, expected, "use its own library")
    return indices[0]
