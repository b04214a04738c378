"""The files of a model: the one that a path names, and those that hold its tensors' elements.

A model may come from a stranger. What it names is read only where it is a regular file below the model's own folder,
reached through no link, and nothing is opened that could make the reader wait. A second name of a file (a hard link)
cannot be told from its first, so it is read. Start at `contents` and `part`.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader

import numpy as np
import numpy.typing as npt

from samebits.errors import ModelError, message
from samebits.files import FLAGS, NoFileError, check_kind, checked, opened, readable, reason
from samebits.memory.pages import HUGE, FreshPages
from samebits.operations.operation import Array

__all__ = ["contents", "part"]

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)
# No message of Protocol Buffers has more bytes.
_LONGEST = 2**31 - 1


def contents(path: str) -> memoryview:
    """The bytes of the model's own file; links are followed, for the caller named it.

    Raises:  ModelError if it is no regular file, or cannot be read.   MemoryError if it does not fit.
    """
    what = readable(path)
    if "\0" in path:
        raise ModelError("load", what, "", "no path (it holds a zero byte)", "a readable file", "check the path")
    try:
        with open(opened(path), "rb") as file:
            size = _size(file)
            if size > _LONGEST:
                remedy = "keep its tensors in a file of their own"
                raise ModelError("load", what, "size in bytes", size, f"at most {_LONGEST}", remedy)
            data = _read(file, size)
            return data.data
    except NoFileError as error:
        raise ModelError("load", what, "", error, "a regular file", "copy the model into one") from None
    except (OSError, UnicodeEncodeError) as error:
        raise _unreadable(what, "", error, "check the path") from error
    except MemoryError as error:
        raise _too_large(what, "", size) from error


def part(what: str, folder: str, location: str, offset: int, size: int) -> Array:
    """`size` bytes of a file that a model names, from `offset` on.

    Args:
        what: Whose bytes they are, for messages.
        folder: The model's folder.
        location: The file, as the model writes it: relative to the folder.
        offset: The first byte.
        size: How many.

    Raises:  ModelError if the file is not below the folder, is no regular file, or is too short.   MemoryError if there
             is no room for them.
    """
    from pathlib import PurePath  # which a model in one file does without

    path, fact = PurePath(location), f"file {location!r}"
    if not path.parts or path.anchor or ".." in path.parts or "\0" in location:
        expected = "a relative path below the model's folder"
        raise ModelError("load", what, "file", repr(location), expected, "put the file beside the model")
    try:
        with open(checked(_open_below(folder, path.parts)), "rb") as file:
            length = _size(file)
            if length >= offset + size:
                file.seek(offset)
                data = _read(file, size)
                length = offset + data.size
    except NoFileError as error:
        remedy = "put the file itself into the model's folder"
        raise ModelError("load", what, fact, error, "a regular file", remedy) from None
    except (OSError, UnicodeEncodeError) as error:
        raise _unreadable(what, fact, error, "put the file beside the model") from error
    except MemoryError as error:
        raise _too_large(what, fact, size) from error
    if length < offset + size:
        expected = f"at least {offset + size}"
        raise ModelError("load", what, f"{fact} size in bytes", length, expected, "copy the whole file")
    return data


def _open_below(folder: str, parts: tuple[str, ...]) -> int:
    """A descriptor of the file at folder/parts; no step of the way down is a link, whoever renames meanwhile."""
    at = os.open(folder or os.curdir, FLAGS | _FOLDER)
    for name in parts[:-1]:
        at = _step(at, name, _FOLDER)
    return _step(at, parts[-1], 0)


def _step(at: int, name: str, kind: int) -> int:
    """A descriptor of `name` in the folder `at`, which is closed."""
    try:
        facts = os.stat(name, dir_fd=at, follow_symlinks=False)
        if stat.S_ISLNK(facts.st_mode):
            raise NoFileError(f"reached through a symbolic link, {name!r}")
        if not kind:
            check_kind(facts)
        return os.open(name, FLAGS | _NO_LINK | kind, dir_fd=at)
    finally:
        os.close(at)


def _read(file: BufferedReader, size: int) -> npt.NDArray[np.uint8]:
    """The next `size` bytes, or those that there are."""
    pages = FreshPages(size)
    for start in range(0, size, HUGE):
        end = min(size, start + HUGE)
        pages.reach(end)
        found = file.readinto(pages.array[start:end].data)
        if found < end - start:
            return pages.array[: start + found]
    return pages.array


def _size(file: BufferedReader) -> int:
    return os.fstat(file.fileno()).st_size


def _unreadable(what: str, fact: str, error: OSError | UnicodeEncodeError, remedy: str) -> ModelError:
    return ModelError("load", what, fact, f"unreadable ({reason(error)})", "a readable file", remedy)


def _too_large(what: str, fact: str, size: int) -> MemoryError:
    actual, expected = f"{size} bytes", "at most what the system has left"
    return MemoryError(message("load", what, fact, actual, expected, "load it where there is more"))
