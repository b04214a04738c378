"""Host memory with a pool for reuse.

A first touch of fresh pages costs 10 to 40 times what writing warm ones does, and the C library returns big blocks to
the system as soon as they are freed. `HostResource` keeps a bounded amount of them instead.

Blocks that were used last are kept as they are, others are offered to the system, which takes their pages where it is
short of memory. To offer 16 MiB and to use them again takes 0.13 ms, as every core has to look up anew where they are:
a fifth of what two threads need for a layer norm of that size (Emerald Rapids, in a virtual machine).

It has no lock, and no count beside what it counts. Each change is one step of a dict, a list or a set. Between any two
another thread, a garbage collection, a signal handler or a fork may come, and an exception may end them: what nobody
holds then goes to the system, which is always right. A block that is lent is kept by its borrower alone.
"""

import contextlib
import operator
import os
import weakref
from typing import Any

from samebits import driver
from samebits.errors import OptionError, message, shown
from samebits.frozen import dataclass
from samebits.memory.device import CPU, Device
from samebits.memory.pages import MAPPED, PageBlock

__all__ = ["HostResource", "Statistics"]

# The part of what may be kept that is kept as it is: the bytes of a few results in turn, by default 128 MiB at most.
_WARM = 4


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
    to the system, which takes their pages where it is short of memory, but for those of the last quarter of keep_bytes.

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
        # Every block that lives, lent or kept: what dies leaves by itself.
        self._blocks: set[weakref.ref[PageBlock]] = set()
        self._addressed: dict[int, PageBlock] = {}  # lent to callers of `allocate`, who have but the address
        self._warm, self._offered = _Shelf(), _Shelf()  # what is kept: what was used last, and the rest
        self._reuses = 0
        _resources.add(self)

    def __repr__(self) -> str:
        return f"HostResource(keep_bytes={self.keep_bytes})"

    def allocate(self, size_bytes: int, *, stream: object = None) -> int:
        """The address of size_bytes arbitrary bytes.

        Raises:
            MemoryError: There is not that much.
            OptionError: A stream was named, or size_bytes is negative or no integer.
        """
        check_no_stream("HostResource.allocate", stream)
        block, _ = self.take(check_count("HostResource.allocate", "size_bytes", size_bytes))
        self._addressed[block.address] = block
        return block.address

    def take(self, size_bytes: int) -> tuple[PageBlock, bool]:
        """A block of size_bytes bytes at least, and whether they are known to be 0; it is lent while it lives.

        `give` takes it back.
        """
        room = _room(size_bytes)
        block = self._reused(room) if room >= MAPPED else None
        if block is not None:
            return block, False
        try:
            block = PageBlock(room)
        except (MemoryError, OSError, OverflowError, ValueError):
            self.trim()
            block = _last_attempt(size_bytes, room)
        self._blocks.add(weakref.ref(block, self._blocks.discard))
        return block, block.is_mapped

    def _reused(self, room: int) -> PageBlock | None:
        """A kept block of that size."""
        block = self._warm.take(room) or self._offered.take(room)
        if block is not None:
            self._reuses += 1
        return block

    def deallocate(self, address: int, size_bytes: int, *, stream: object = None) -> None:
        """Take back what `allocate` gave.

        Raises:
            OptionError: There is nothing lent at that address, or a stream was named.
        """
        if stream is not None:
            check_no_stream("HostResource.deallocate", stream)
        block = self._addressed.pop(address, None)
        if block is None:
            raise OptionError(
                "HostResource.deallocate", "address", "", f"{address:#x}", "one that is lent", "pass it once"
            )
        self.give(block)

    def claimed(self, address: int) -> PageBlock | None:
        """The block lent at an address, which from now on goes back by `give`, not `deallocate`; None for none."""
        return self._addressed.pop(address, None)

    def give(self, block: PageBlock) -> None:
        """Keep a block of this pool for reuse, or let it go; the caller uses it no more."""
        if block.size_bytes < MAPPED:
            return
        if block.size_bytes <= self.keep_bytes:
            self._warm.put(block)
        # A block is offered while it is on no shelf: nobody uses it.
        while self._warm.size_bytes > self.keep_bytes // _WARM and (cold := self._warm.oldest()) is not None:
            cold.offer()
            self._offered.put(cold)
        if not self._offered.is_empty:  # else a quarter of what may be kept is all there is
            self._let_go(self.keep_bytes)

    @property
    def _kept_bytes(self) -> int:
        return self._warm.size_bytes + self._offered.size_bytes

    def _let_go(self, keep_bytes: int) -> None:
        """Return blocks to the system until at most keep_bytes are kept."""
        while self._kept_bytes > keep_bytes and (self._offered.oldest() or self._warm.oldest()) is not None:
            pass  # a block that nobody holds is gone

    def trim(self, keep_bytes: int = 0) -> int:
        """Return kept blocks to the system until at most keep_bytes are left; how many bytes went.

        Raises:
            OptionError: keep_bytes is negative or no integer.
        """
        keep_bytes = check_count("HostResource.trim", "keep_bytes", keep_bytes)
        before = self._kept_bytes
        self._let_go(keep_bytes)
        return max(before - self._kept_bytes, 0)

    @property
    def statistics(self) -> Statistics:
        """What is lent and kept now; other threads may have gone on when it is read."""
        kept = [*self._warm.blocks, *self._offered.blocks]
        waiting = set(map(id, kept))
        living = [block for reference in self._blocks.copy() if (block := reference()) is not None]
        lent = [block.size_bytes for block in living if id(block) not in waiting]
        return Statistics(len(lent), sum(lent), len(kept), sum([block.size_bytes for block in kept]), self._reuses)


class _Shelf:
    """Blocks that wait to be used, by size; the sizes used last come last, and so do blocks of a size."""

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[int, list[PageBlock]] = {}

    def put(self, block: PageBlock) -> None:
        """Keep a block, as the one used last."""
        blocks = self._sizes.pop(block.size_bytes, None) or []
        blocks.append(block)
        self._sizes[block.size_bytes] = blocks

    def take(self, size_bytes: int) -> PageBlock | None:
        """The block of that size that was used last; it is on the shelf no more."""
        blocks = self._sizes.get(size_bytes)
        try:
            return blocks.pop() if blocks else None
        except IndexError:  # another thread took the last
            return None

    def oldest(self) -> PageBlock | None:
        """The block that was used longest ago, of the size that was; it is on the shelf no more."""
        for size in [*self._sizes]:
            blocks = self._sizes.get(size)
            if blocks:
                with contextlib.suppress(IndexError):  # another thread took the last
                    return blocks.pop(0)
            else:
                self._sizes.pop(size, None)
        return None

    @property
    def is_empty(self) -> bool:
        """Whether there is no block; a size whose blocks were all taken counts as one until `oldest` meets it."""
        return not self._sizes

    @property
    def size_bytes(self) -> int:
        """The bytes of all blocks."""
        total = 0
        # Keys are listed in one step. Pairs are not: each is a new object, which a collection may come for.
        for size in [*self._sizes]:
            total += size * len(self._sizes.get(size, ()))
        return total

    @property
    def blocks(self) -> list[PageBlock]:
        """All blocks."""
        return [block for blocks in [*self._sizes.values()] for block in [*blocks]]


def check_no_stream(call: str, stream: object) -> None:
    """Raise OptionError for a stream, which host memory does not have."""
    if stream is not None:
        raise OptionError(call, "stream", "", shown(stream), "None for host memory", "leave it out")


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
    raise OptionError(call, name, "", shown(value), "an integer", "convert it first")


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
    """What is kept was copied for nobody."""
    for resource in list(_resources):
        resource._warm, resource._offered = _Shelf(), _Shelf()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
