"""Where memory comes from, and goes back to: the protocol, and the lease that keeps it.

A user writes a resource as a class with the five members of `MemoryResource`; `docs/how-to-add-a-memory-resource.md`
shows one.
"""

import os
import sys
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from samebits.memory.device import Device
from samebits.memory.pages import PageBlock

__all__ = ["Lease", "MemoryResource"]


@runtime_checkable
class MemoryResource(Protocol):
    """Memory to lend: addresses out, addresses back.

    Both methods may be called by any thread, also while the same thread is inside another of them (a garbage collection
    during `allocate` may let go of a buffer), so a lock must be reentrant or never waited for. `deallocate` is called
    once for each address that `allocate` gave, by the process that got it: never by a child of a fork, never while the
    interpreter ends. What it raises goes to `sys.unraisablehook`, and it is not called again: a signal handler that
    raises may cut it short, or come before its first line. Memory that must not stay lent then frees itself by counting
    references: `Buffer.from_handle(owner=)` keeps such an object, as `HostResource` does.
    """

    @property
    def device(self) -> Device:
        """Where the memory is."""

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host may read and write it."""

    @property
    def is_device_accessible(self) -> bool:
        """Whether a GPU may."""

    def allocate(self, size_bytes: int, *, stream: object = None) -> int:
        """The address, a multiple of 64, of size_bytes > 0 arbitrary bytes; MemoryError if there are not so many.

        With a stream, the memory may be used in its order, from then on.
        """

    def deallocate(self, address: int, size_bytes: int, *, stream: object = None) -> None:
        """Take back what `allocate(size_bytes)` gave at that address; with a stream, when it has come so far."""


class Lease:
    """Memory of a resource, given back when the last buffer, array or capsule that holds this object lets go.

    Attributes:
        resource: Where it came from.
        address: Its first byte.
        size_bytes: How many.
        stream: The stream that gives it back, None to wait for all work on it.
    """

    __slots__ = ("_block", "_process", "address", "resource", "size_bytes", "stream")

    def __init__(self, resource: MemoryResource, address: int, size_bytes: int, block: PageBlock | None = None) -> None:
        """A lease that calls `deallocate`, or, where it holds a block of a HostResource, its `give`.

        A signal handler may raise inside `__del__`, before its first line too. The block is freed all the same, with
        the lease.
        """
        self.resource, self.address, self.size_bytes = resource, address, size_bytes
        self.stream: object = None
        self._block = block
        # The child of a fork gives back what fork copied for it, and leaves the rest to its parent.
        self._process = None if block else os.getpid()

    def __del__(
        self, _ending: Callable[[], bool] = sys.is_finalizing, _current_process: Callable[[], int] = os.getpid
    ) -> None:
        # The interpreter calls this with any exception in flight set aside, and once; the names it needs are its own,
        # because modules may be gone.
        if _ending():
            return
        # One that was interrupted before it was whole gives nothing back.
        if block := getattr(self, "_block", None):
            self.resource.give(block)  # type: ignore[attr-defined]  # a HostResource
        elif getattr(self, "_process", None) == _current_process():
            self.resource.deallocate(self.address, self.size_bytes, stream=self.stream)
