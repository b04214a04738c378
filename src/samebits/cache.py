"""Compiled objects on disk: a directory of our own, mode 0700, because it holds code that will be run.

A file is `digest(key and payload) + payload`, written to a temporary name and renamed, so that a reader in any process
sees a whole file or none, and one under another's name is as damaged. Nothing is believed of a path: each call opens
the directory, asks what it opened whose it is and who may enter, and reaches files through that descriptor alone; a
file is asked the same before it is read. The directory is bounded: our files used least recently go first, and nobody
else's, as the directory may have been theirs before. Where there is no usable directory (read-only home, foreign owner,
wide permissions, a link in its place, a system without these calls) everything still works, only without a cache.
`SAMEBITS_CACHE_DIR` moves it; it never changes a result. Start at `_opened`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

try:
    from _blake2 import blake2b  # hashlib's own, without OpenSSL, which hashlib loads with it in 3 ms
except ImportError:  # in an interpreter that has it elsewhere
    from hashlib import blake2b

if TYPE_CHECKING:
    import pathlib

LIMIT_BYTES = 256 * 1024 * 1024
# Ours alone, so that nothing else in the directory is ever counted or removed.
_OBJECT, _TEMPORARY = ".samebits", ".samebits.tmp"
_DIGEST = 32
# Bits of a mode: what others may do with a directory that holds code, and with a file in it.
_ENTERED, _WRITTEN = 0o077, 0o022
_writes = 0


def directory() -> pathlib.Path | None:
    """The cache directory, created where it is not there, or None where there is no safe one."""
    import pathlib  # which nothing else here needs, and takes 5 ms

    with _opened(create=True) as folder:
        return None if folder is None else pathlib.Path(_path() or "")


def _path() -> str | None:
    """Where the directory is to be; None where nobody says, or with `SAMEBITS_CACHE_DIR=`."""
    chosen = os.environ.get("SAMEBITS_CACHE_DIR")
    if chosen is None:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):  # as the XDG specification has it
            base = os.path.expanduser("~/.cache")
        # Where nobody's home is known this is relative: never the current directory.
        return os.path.join(base, "samebits") if os.path.isabs(base) else None
    chosen = os.path.expanduser(chosen)  # as a shell would have, had it not been quoted
    return os.path.abspath(chosen) if chosen and not chosen.startswith("~") else None


@contextlib.contextmanager
def _opened(*, create: bool = False) -> Iterator[int | None]:
    """A descriptor of the directory, which is ours and closed to others; None where there is no such."""
    descriptor = _descriptor(create)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _descriptor(create: bool) -> int | None:
    path = _path()
    if path is None or not hasattr(os, "O_DIRECTORY"):
        return None
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            if not create:
                return None
            _make(path)
            descriptor = os.open(path, flags)
    except OSError:
        return None
    if _is_ours(os.fstat(descriptor), stat.S_ISDIR, _ENTERED):
        return descriptor
    os.close(descriptor)
    return None


def _make(path: str) -> None:
    """Make a directory and those above it; new ones are closed to other users."""
    above = os.path.dirname(path)
    if not os.path.isdir(above):  # not all systems say of a root that it exists
        _make(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _is_ours(facts: os.stat_result, is_kind: Callable[[int], bool], forbidden: int) -> bool:
    """Whether a file is of the kind, owned by this process's user, and has none of the forbidden permissions."""
    # The effective user: the real one of a program with raised rights must not choose its code.
    return is_kind(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & forbidden


def _digest(key: str, payload: bytes) -> bytes:
    """The digest of key and payload, so that an object does not pass under another one's name."""
    found = blake2b(blake2b(key.encode()).digest(), digest_size=_DIGEST)
    found.update(payload)
    return found.digest()


def digest(*parts: bytes) -> str:
    """Of these bytes one after the other, such as for a key."""
    found = blake2b(digest_size=_DIGEST)
    for part in parts:
        found.update(part)
    return found.hexdigest()


def read(key: str, limit_bytes: int = LIMIT_BYTES) -> bytes | None:
    """The object stored under `key`, or None if there is none of at most `limit_bytes` that verifies."""
    with _opened() as folder, contextlib.suppress(OSError):
        if folder is None:
            return None
        # Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
        descriptor = os.open(f"{key}{_OBJECT}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            if not _is_ours(os.fstat(descriptor), stat.S_ISREG, _WRITTEN):
                return None
            whole = file.read(_DIGEST + limit_bytes)
            payload = whole[_DIGEST:]
            if not payload or _digest(key, payload) != whole[:_DIGEST]:
                return None
            with contextlib.suppress(OSError):
                os.utime(descriptor)
            return payload
    return None


def write(key: str, payload: bytes) -> bool:
    """Store an object, and say whether it is; a failure (full disk, no directory) means that it is compiled again."""
    global _writes
    with _opened(create=True) as folder:
        if folder is None:
            return False
        temporary = f"{key}.{os.urandom(8).hex()}{_TEMPORARY}"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_digest(key, payload) + payload)
                os.replace(temporary, f"{key}{_OBJECT}", src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:  # an interrupt too leaves nothing behind
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
        except OSError:
            return False
    _writes += 1
    if _writes % 64 == 1:
        trim(LIMIT_BYTES)
    return True


def remove(key: str) -> bool:
    """Take the object stored under `key` away; whether there was one to take."""
    with _opened() as folder:
        if folder is None:
            return False
        try:
            os.unlink(f"{key}{_OBJECT}", dir_fd=folder)
        except OSError:
            return False
        return True


def trim(limit_bytes: int) -> None:
    """Remove our files used least recently until they take at most `limit_bytes`."""
    with _opened() as folder:
        found = _files(folder)
        total = sum(size for _, size, _ in found)
        for _, size, name in sorted(found):
            if total <= limit_bytes:
                return
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
            total -= size


def size_bytes() -> int:
    """Bytes that the cache holds now."""
    with _opened() as folder:
        return sum(size for _, size, _ in _files(folder))


def entries() -> int:
    """Objects that the cache holds now."""
    with _opened() as folder:
        return sum(name.endswith(_OBJECT) for _, _, name in _files(folder))


def _files(folder: int | None) -> list[tuple[int, int, str]]:
    """(time of last use, size, name) of each of our files; another process may remove any of them meanwhile."""
    found: list[tuple[int, int, str]] = []
    if folder is None:
        return found
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.endswith((_OBJECT, _TEMPORARY)):
                with contextlib.suppress(OSError):
                    facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    found.append((facts.st_mtime_ns, facts.st_size, name))
    return found
