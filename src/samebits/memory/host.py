"""Host memory with a pool for reuse.

A first touch of fresh pages costs 10 to 40 times what writing warm ones does, and the C library returns big blocks to
the system as soon as they are freed. `HostResource` keeps a bounded amount of them instead.

Its lock is never waited for. Who does not get it (another thread has it, or this very thread, interrupted by a garbage
collection or a signal, or it was held when the process forked) goes to the system instead, which is always right.
"""

import operator
import os
import threading
import weakref
from dataclasses import dataclass
from typing import Any

from samebits import driver
from samebits.errors import OptionError, message
from samebits.memory.device import CPU, Device
from samebits.memory.pages import HUGE, MAPPED, PageBlock

__all__ = ["HostResource", "Statistics"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a pool holds.

    Attributes:
        lent_blocks: Blocks in use.
        lent_bytes: Their bytes.
        kept_blocks: Blocks that wait to be used again.
        kept_bytes: Their bytes.
        reuses: How often one was.
    """

    lent_blocks: int
    lent_bytes: int
    kept_blocks: int
    kept_bytes: int
    reuses: int


class HostResource:
    """Host memory: big blocks on huge pages, and kept for reuse; blocks under 128 KiB by NumPy's allocator.

    Blocks are at a multiple of 64 bytes, of 2 MiB from that size on. Sizes are rounded up by at most an eighth, to
    eight classes for each doubling, and a kept block serves its class alone. Kept blocks of 2 MiB and more are offered
    to the system, which takes their pages where it is short of memory.

    Attributes:
        keep_bytes: The most that is kept, which may be set at any time; what was used longest ago is let go first.
    """

    device: Device = CPU
    is_host_accessible = True
    is_device_accessible = False

    def __init__(self, *, keep_bytes: int | None = None) -> None:
        """A pool that keeps at most keep_bytes, by default 512 MiB or an eighth of the machine's memory."""
        given = min(512 << 20, driver.memory_bytes() // 8) if keep_bytes is None else keep_bytes
        self.keep_bytes = check_count("HostResource", "keep_bytes", given)
        self._lent: dict[int, PageBlock] = {}
        self._reuses = 0
        self._forget()
        _resources.add(self)

    def __repr__(self) -> str:
        return f"HostResource(keep_bytes={self.keep_bytes})"

    def _forget(self) -> None:
        """Begin with a free lock and nothing kept."""
        self._lock = threading.Lock()
        self._kept: dict[int, list[PageBlock]] = {}  # by size; the sizes used last come last
        self._kept_bytes = 0

    def allocate(self, size_bytes: int, *, stream: object = None) -> int:
        """The address of size_bytes arbitrary bytes.

        Raises:
            MemoryError: There is not that much.
            OptionError: A stream was named, or size_bytes is negative or no integer.
        """
        check_no_stream("HostResource.allocate", stream)
        return self.take(check_count("HostResource.allocate", "size_bytes", size_bytes))[0]

    def take(self, size_bytes: int) -> tuple[int, bool]:
        """The address of size_bytes bytes, and whether they are known to be 0."""
        room = _room(size_bytes)
        block = self._reused(room) if room >= MAPPED else None
        fresh = block is None
        if block is None:
            try:
                block = PageBlock(room)
            except (MemoryError, OSError, OverflowError, ValueError):
                self.trim()
                block = _last_attempt(size_bytes, room)
        self._lent[block.address] = block
        return block.address, fresh and block.is_mapped

    def _reused(self, room: int) -> PageBlock | None:
        """A kept block of that size."""
        if not self._lock.acquire(False):
            return None
        try:
            blocks = self._kept.get(room)
            if not blocks:
                return None
            self._kept_bytes -= room
            self._reuses += 1
            return blocks.pop()
        finally:
            self._lock.release()

    def deallocate(self, address: int, size_bytes: int, *, stream: object = None) -> None:
        """Take back what `allocate` gave.

        Raises:
            OptionError: There is nothing lent at that address, or a stream was named.
        """
        if stream is not None:
            check_no_stream("HostResource.deallocate", stream)
        block = self._lent.pop(address, None)
        if block is None:
            raise OptionError(
                "HostResource.deallocate", "address", "", f"{address:#x}", "one that is lent", "pass it once"
            )
        room = block.size_bytes
        if not MAPPED <= room <= self.keep_bytes:
            return
        if room >= HUGE:
            block.offer()
        if not self._lock.acquire(False):
            return
        try:
            blocks = self._kept.pop(room, None) or []
            blocks.append(block)
            self._kept[room] = blocks
            self._kept_bytes += room
            if self._kept_bytes > self.keep_bytes:
                self._let_go(self.keep_bytes)
        finally:
            self._lock.release()

    def _let_go(self, keep_bytes: int) -> None:
        """Return blocks to the system until at most keep_bytes are kept; the caller holds the lock."""
        while self._kept_bytes > keep_bytes:
            room = next(iter(self._kept))
            blocks = self._kept[room]
            if blocks:
                del blocks[0]
                self._kept_bytes -= room
            else:
                del self._kept[room]

    def trim(self, keep_bytes: int = 0) -> int:
        """Return kept blocks to the system until at most keep_bytes are left; how many bytes went.

        Raises:
            OptionError: keep_bytes is negative or no integer.
        """
        keep_bytes = check_count("HostResource.trim", "keep_bytes", keep_bytes)
        # The one place that waits, and not for ever: the lock may be this thread's own.
        if not self._lock.acquire(timeout=1):
            return 0
        try:
            before = self._kept_bytes
            self._let_go(keep_bytes)
            return before - self._kept_bytes
        finally:
            self._lock.release()

    @property
    def statistics(self) -> Statistics:
        """What is lent and kept now; other threads may have gone on when it is read."""
        lent = [block.size_bytes for block in list(self._lent.values())]
        kept = sum(map(len, list(self._kept.values())))
        return Statistics(len(lent), sum(lent), kept, self._kept_bytes, self._reuses)


def check_no_stream(call: str, stream: object) -> None:
    """Raise OptionError for a stream, which host memory does not have."""
    if stream is not None:
        raise OptionError(call, "stream", "", repr(stream), "None for host memory", "leave it out")


def check_count(call: str, name: str, value: Any) -> int:
    """value as a number of bytes or an address: an integer of at least 0."""
    count = check_integer(call, name, value)
    if count < 0:
        raise OptionError(call, name, "", count, "at least 0", "count bytes")
    return count


def check_integer(call: str, name: str, value: Any) -> int:
    """value as an int; floats and bools are refused."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise OptionError(call, name, "", repr(value), "an integer", "convert it first")


def _room(size_bytes: int) -> int:
    """size_bytes rounded up to its class: a multiple of an eighth of the power of two below."""
    if size_bytes < MAPPED:
        return size_bytes
    step = 1 << ((size_bytes - 1).bit_length() - 4)
    return -(-size_bytes // step) * step


def _last_attempt(size_bytes: int, room: int) -> PageBlock:
    """A block, after the pool gave back what it kept."""
    try:
        return PageBlock(room)
    except (MemoryError, OSError, OverflowError, ValueError) as error:
        raise MemoryError(
            message("allocate", "size_bytes", "", size_bytes, "at most what the system has left", "use less")
        ) from error


_resources: "weakref.WeakSet[HostResource]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """In the parent another thread may have held the lock half way."""
    for resource in list(_resources):
        resource._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
