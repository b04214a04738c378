"""Files that a caller names: opened where they are regular ones, and replaced as a whole or not at all.

A file may come from a stranger, so nothing is opened that could make the reader wait, such as a pipe. What is written
goes to a new file beside the old one, which it replaces when it is whole: whoever has the old one open or mapped keeps
it, and an error or a signal leaves nothing behind. Start at `opened` and `Replacement`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any

from samebits.errors import OptionError, shown

__all__ = [
    "FLAGS",
    "LARGEST",
    "NoFileError",
    "Replacement",
    "check_kind",
    "checked",
    "opened",
    "path_of",
    "readable",
    "reason",
]

# Of no use for regular files; an open of anything else that changed places with one does not wait, nor own a terminal.
FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_BINARY"))
_PART = 1 << 20
# Of one call to the system: macOS refuses to read or write 2 GiB at once.
LARGEST = 1 << 30
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


class NoFileError(Exception):
    """A path leads to something else than a regular file; the text says to what."""


def readable(path: str) -> str:
    """A path for a message: as it is, or quoted where a terminal could not show it."""
    return path if path.isprintable() and path else repr(path)


def reason(error: Exception) -> str:
    """What the system, or Python, says of a file that cannot be used."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def path_of(call: str, path: object) -> str:
    """A path as text.

    Raises:  OptionError if it is no path.
    """
    if isinstance(path, str | bytes | os.PathLike):
        text = os.fsdecode(path)
        if text and "\0" not in text:
            return text
    raise OptionError(call, "path", "", shown(path), "the path of a file", "pass a str or a pathlib.Path")


def check_kind(facts: os.stat_result) -> None:
    """Raise NoFileError unless it is a regular file."""
    kind = stat.S_IFMT(facts.st_mode)
    if kind != stat.S_IFREG:
        raise NoFileError(_KINDS.get(kind, "no file"))


def opened(path: str) -> int:
    """A descriptor of a regular file; links are followed.

    Raises:  NoFileError if it is none; OSError, UnicodeEncodeError if it cannot be opened.
    """
    check_kind(os.stat(path))
    return checked(os.open(path, FLAGS))


def checked(descriptor: int) -> int:
    """A descriptor of a regular file, whose name may have got another meaning since it was looked at.

    Raises:  NoFileError if it is none; then it is closed.
    """
    try:
        check_kind(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Replacement:
    """A new file that takes the place of another, or of none, by `commit`; without it nothing is changed.

    It has the permissions of the file that it replaces; where that is a link, the file that the link leads to is
    replaced. A pipe or a device is written to by `commit`.

    Attributes:
        descriptor: Of the new file, to be written and read.
    """

    descriptor: int
    _temporary: str | None = None
    _is_open = False
    _process = 0

    def __init__(self, call: str, path: str) -> None:
        """An empty file beside the one at `path`.

        Raises:  OptionError, in the name of `call`, if there can be none.
        """
        self._call, self._path, self._process = call, path, os.getpid()
        try:
            facts = os.stat(path) if os.path.exists(path) else None
            if facts is not None and stat.S_ISDIR(facts.st_mode):
                raise IsADirectoryError(None, "it is a directory")
            if facts is not None and not os.access(path, os.W_OK):
                raise PermissionError(None, "Permission denied")
            self._is_special = facts is not None and not stat.S_ISREG(facts.st_mode)
            self._target = path if self._is_special else os.path.realpath(path)
            self._open(facts)
        except (OSError, UnicodeEncodeError) as error:
            raise self.unwritable(error) from error

    def _open(self, facts: os.stat_result | None) -> None:
        folder, name = os.path.split(self._target)
        if self._is_special:
            import tempfile  # which takes longer to import than a model's header to read

            with tempfile.TemporaryFile() as file:
                self.descriptor, self._is_open = os.dup(file.fileno()), True
            return
        # Named before it is made, so that it goes whenever an interrupt comes.
        # A name has at most 255 bytes, of which a character takes up to four.
        begin = os.fsencode(name)[:64].decode("utf-8", "ignore")
        self._temporary = os.path.join(folder, f".{begin}.{os.urandom(8).hex()}.tmp")
        mode = 0o666 if facts is None else stat.S_IMODE(facts.st_mode)
        self.descriptor = os.open(self._temporary, _NEW, mode)
        self._is_open = True
        if facts is not None:
            with contextlib.suppress(OSError):  # only an administrator may give files away
                os.chown(self.descriptor, facts.st_uid, facts.st_gid)
            os.chmod(self.descriptor, mode)

    def resize(self, size_bytes: int) -> None:
        """Give the new file its size; what is not written reads as 0.

        Raises:  OptionError if the system has no such file.
        """
        try:
            os.truncate(self.descriptor, size_bytes)
        except (OSError, OverflowError) as error:
            raise self.unwritable(error) from error

    def write(self, data: Any, offset: int) -> None:
        """Write all of the bytes, from `offset` on.

        Raises:  OptionError if there is no room for them.
        """
        rest = memoryview(data).cast("B")
        try:
            while len(rest):
                count = os.pwrite(self.descriptor, rest[:LARGEST], offset)
                rest, offset = rest[count:], offset + count
        except OSError as error:
            raise self.unwritable(error) from error

    def commit(self) -> None:
        """Put the new file, written to the disk, in the other's place.

        Raises:  OptionError if that fails; then the other is as it was.
        """
        try:
            if self._temporary is None:
                os.lseek(self.descriptor, 0, os.SEEK_SET)
                with open(self._target, "wb") as target:
                    while part := os.read(self.descriptor, _PART):
                        target.write(part)
            else:
                os.fsync(self.descriptor)
                os.replace(self._temporary, self._target)
                self._temporary = None
                _sync_folder(os.path.dirname(self._target))
        except OSError as error:
            raise self.unwritable(error) from error
        finally:
            self.discard()

    def discard(self) -> None:
        """Take the new file away, unless it was put in place; doing it again does nothing."""
        if self._is_open:
            self._is_open = False
            os.close(self.descriptor)
        if self._temporary is not None and self._process == os.getpid():  # a fork's child leaves it to its parent
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
        self._temporary = None

    def __del__(self) -> None:
        self.discard()

    def unwritable(self, error: Exception) -> OptionError:
        """The error for what the system says."""
        actual, expected = f"unwritable ({reason(error)})", "a file that can be written"
        return OptionError(self._call, "path", readable(self._path), actual, expected, "name another")


def _sync_folder(folder: str) -> None:
    """Have the disk know what a folder holds; a file system that cannot does so by itself."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
