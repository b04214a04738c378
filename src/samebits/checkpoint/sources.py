"""The bytes of an open file: mapped, or read into memory that was given. Start at `FileSource`."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.checkpoint.stored import Refuse, StoredTensor
from samebits.files import LARGEST, reason
from samebits.memory import CPU, Buffer, address_of

__all__ = ["FileSource", "WatchedFile"]

Bytes = npt.NDArray[np.uint8]
# The name of the only map.
_WHOLE = "whole"


class WatchedFile:
    """An open file that is to stay as it was when it was opened."""

    def __init__(self, descriptor: int, refuse: Refuse) -> None:
        self._descriptor, self._refuse = descriptor, refuse
        self._facts = self._now()

    def _now(self) -> tuple[int, int]:
        facts = os.fstat(self._descriptor)
        return facts.st_size, facts.st_mtime_ns

    def check(self) -> None:
        """Raise unless the file is as it was when it was opened."""
        if self._now() != self._facts:
            raise self._refuse("file", "changed since it was opened", "as it was")


class FileSource(WatchedFile):
    """A regular file, from which bytes are read at any place.

    A mapped file that another process makes shorter has no bytes where they are looked for, and the system ends whoever
    looks (SIGBUS). So each use asks first whether the file is as it was; what is read is never mapped, and is refused
    where bytes are missing.

    The file is open for as long as anything refers to its source: who reads it in one thread while another closes the
    checkpoint reads it to the end, and never another file that has got its number meanwhile.

    Attributes:
        size_bytes: Of the file, when it was opened.
    """

    def __init__(self, descriptor: int, refuse: Refuse) -> None:
        super().__init__(descriptor, refuse)
        self.size_bytes = self._facts[0]
        self._maps: dict[str, Buffer] = {}

    def view(self, stored: StoredTensor) -> Buffer | None:
        """The bytes of a tensor on the mapped file, read-only.

        Raises:  what `refuse` makes, if the file changed or cannot be mapped; ClosedError.
        """
        if stored.offset is None:
            return None
        self.check()
        mapped = self._maps.get(_WHOLE)
        if mapped is None:
            mapped = self._maps.setdefault(_WHOLE, self._map())  # what another thread has mapped meanwhile counts
        return mapped.view(stored.offset, stored.size_bytes)

    def _map(self) -> Buffer:
        try:
            pages = mmap.mmap(self._descriptor, self.size_bytes, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise self._refuse("file", f"not to be mapped ({reason(error)})", "a file that can be") from error
        return _buffer(np.frombuffer(pages, np.uint8))

    def read(self, stored: StoredTensor, first: int, target: Bytes) -> None:
        """Read bytes of a tensor, from its byte `first` on, as many as the target has.

        Raises:  what `refuse` makes, if they are not all there.
        """
        assert stored.offset is not None
        self.check()
        self.read_at(stored.offset + first, target)

    def read_at(self, place: int, target: Bytes) -> None:
        """As `read`, from a place of the file on."""
        rest: Any = target.data
        try:
            while len(rest):
                count = os.preadv(self._descriptor, [rest[:LARGEST]], place)
                if not count:
                    raise self._refuse("size", f"{place} bytes", f"at least {place + len(rest)}")
                rest, place = rest[count:], place + count
        except OSError as error:
            raise self._refuse("file", f"unreadable ({reason(error)})", "a readable file") from error

    def bytes_at(self, place: int, count: int) -> bytes:
        """Up to so many bytes from a place of the file on: what of them there is."""
        target = np.empty(max(min(count, self.size_bytes - place), 0), np.uint8)
        self.read_at(place, target)
        return target.tobytes()

    def close_views(self) -> None:
        """Close what lies on the mapped file, now and from now on; arrays that were made of it keep its pages."""
        self._maps.setdefault(_WHOLE, _buffer(np.empty(0, np.uint8))).close()

    def __del__(self) -> None:
        os.close(self._descriptor)


def _buffer(whole: Bytes) -> Buffer:
    return Buffer(address_of(whole), whole.size, whole, CPU, read_only=True)
