"""The bytes of an .npz file: a zip archive with an .npy member for each tensor. Start at `ArchiveSource`.

zipfile reads the archive, its checksums included. A member named samebits.json holds the free text and our note.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import threading
import weakref
import zipfile
from collections.abc import Iterator
from typing import IO, Any, NoReturn

import numpy as np
import numpy.typing as npt

from samebits import forks
from samebits.checkpoint import npy, parts
from samebits.checkpoint.parts import QuantizedNote
from samebits.checkpoint.sources import WatchedFile
from samebits.checkpoint.stored import MEMBER, Refuse, StoredTensor
from samebits.errors import ModelError, SamebitsError

__all__ = ["ArchiveSource"]

_ENDING = ".npy"
# Of a member that somebody made to fill memory.
_LONGEST_NOTE = 1 << 26
# What is decompressed at a time.
_PART = 1 << 20


class _PlacedFile(io.RawIOBase):
    """A file with a place of its own: that of a descriptor is shared with the children of a fork."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._place = descriptor, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        end = os.fstat(self._descriptor).st_size if whence == io.SEEK_END else 0
        place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: end}[whence]
        if place < 0:
            raise OSError(errno.EINVAL, "a place before the file")
        self._place = place
        return place

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self._descriptor, [buffer], self._place)
        self._place += count
        return count

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)


class ArchiveSource(WatchedFile):
    """An archive, whose tensors are read from their first byte to their last.

    Attributes:
        tensors: What its members say, by name.
        metadata: The free text of samebits.json.
        quantized: Which tensors are parts of quantised values, as samebits.json says.
        lock: Held while bytes are read.
    """

    def __init__(self, descriptor: int, refuse: Refuse) -> None:
        super().__init__(descriptor, refuse)
        self._file = io.BufferedReader(_PlacedFile(descriptor))
        self.lock = threading.RLock()
        # The member that is being read, the bytes of it that were, and its reader.
        self._at: tuple[str, int, IO[bytes]] | None = None
        self._begins: dict[str, int] = {}
        self.metadata: dict[str, str] = {}
        self.quantized: dict[str, QuantizedNote] = {}
        try:
            with self._damaged("archive"):
                self._archive = zipfile.ZipFile(self._file)
                infos = self._archive.infolist()
            names = [info.filename for info in infos]
            if len(set(names)) < len(names):
                raise refuse("members", "of one name", "of different names")
            arrays = [info for info in infos if info.filename.endswith(_ENDING)]
            self.tensors = {info.filename.removesuffix(_ENDING): self._tensor(info) for info in arrays}
            if MEMBER in names:
                self._read_note()
        except BaseException:
            self._file.close()
            raise
        with _guard:
            _sources.add(self)

    @contextlib.contextmanager
    def _damaged(self, what: str) -> Iterator[None]:
        """What goes wrong within the block is the archive's fault."""
        try:
            yield
        except (SamebitsError, MemoryError):
            raise
        except Exception as error:  # zipfile, zlib, struct and others, whatever of them finds the damage first
            said = " ".join(str(error).split()) or type(error).__name__
            raise self._refuse(what, f"damaged ({said})", "a whole zip archive") from error

    def _tensor(self, info: zipfile.ZipInfo) -> StoredTensor:
        """What a member's header says."""
        name, what = info.filename.removesuffix(_ENDING), f"member {info.filename!r}"

        def refuse(fact: str, actual: object, expected: object) -> ModelError:
            return self._refuse(f"{what} {fact}", actual, expected)

        with self._damaged(what), self._archive.open(info) as reader:
            start = reader.read(12)
            begin, length = npy.length_of(start, refuse)
            text = (start[begin:] + reader.read(max(length - len(start[begin:]), 0)))[:length]
        stored = npy.read(text, name, None, refuse)
        self._begins[name] = begin + length
        if stored.dtype is not None and begin + length + stored.size_bytes != info.file_size:
            raise refuse("size", f"{info.file_size} bytes", begin + length + stored.size_bytes)
        return stored

    def _read_note(self) -> None:
        """Take what samebits.json says."""
        with self._damaged(f"member {MEMBER!r}"):
            if self._archive.getinfo(MEMBER).file_size > _LONGEST_NOTE:
                raise self._refuse(f"member {MEMBER!r} size", "huge", f"at most {_LONGEST_NOTE} bytes")
            try:
                text = self._archive.read(MEMBER).decode()
                found = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
            except RecursionError:
                found = None
        if not isinstance(found, dict):
            raise self._refuse(f"member {MEMBER!r}", "another text", "a JSON object of metadata and quantized")
        metadata = found.get("metadata", {})
        if not isinstance(metadata, dict) or not all(map(parts.is_text, (*metadata, *metadata.values()))):
            raise self._refuse(f"member {MEMBER!r} metadata", "another object", "an object of strings that UTF-8 has")

        def refuse(fact: str, actual: object, expected: object) -> ModelError:
            return self._refuse(f"member {MEMBER!r} {fact}", actual, expected)

        self.metadata = metadata
        self.quantized = parts.read(found.get("quantized", {}), self.tensors, refuse)

    def view(self, stored: StoredTensor) -> None:
        """Nothing: an archive's members are checked as they are read, and lie at any address."""

    def read(self, stored: StoredTensor, first: int, target: npt.NDArray[np.uint8]) -> None:
        """Read bytes of a tensor, from its byte `first` on, as many as the target has.

        Raises:  what `refuse` makes, if they are not all there, or another checksum's.
        """
        self.check()
        name, what = stored.name, f"member {stored.name + _ENDING!r}"
        with self.lock, self._damaged(what):
            if self._at is None or self._at[:2] != (name, first):
                self._forget()
                reader = self._archive.open(name + _ENDING)
                self._at = name, first, reader
                reader.seek(self._begins[name] + first)
            reader, at, rest = self._at[2], first, target.data
            self._at = None  # what an exception leaves is of no use
            while len(rest):
                part = reader.read(min(len(rest), _PART))
                if not part:
                    raise self._refuse(f"{what} size", f"{at} bytes", f"at least {at + len(rest)}")
                rest[: len(part)] = part
                rest, at = rest[len(part) :], at + len(part)
            if at == stored.size_bytes:
                reader.read(1)  # at the end the checksum is looked at
                reader.close()
            else:
                self._at = name, at, reader

    def _forget(self) -> None:
        if self._at is not None:
            self._at[2].close()
            self._at = None

    def close_views(self) -> None:
        """Nothing: there are none, and the file is let go of when nobody reads it any more."""

    def __del__(self) -> None:
        self._file.close()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


# Archives that are open: a fork waits for who reads of them, as the child finds their readers as they are then.
_sources: weakref.WeakSet[ArchiveSource] = weakref.WeakSet()
_guard = threading.RLock()
_waited: list[ArchiveSource] = []


def _before_fork() -> None:
    _guard.acquire()
    _waited[:] = _sources
    for source in _waited:
        source.lock.acquire()


def _after_fork() -> None:
    for source in _waited:
        source.lock.release()
    _waited.clear()
    _guard.release()


forks.around(_before_fork, _after_fork, _after_fork)
