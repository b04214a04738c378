"""Compiled objects on disk: a directory of our own, mode 0700, because it holds code that will be run.

A file is `sha256(payload) + payload`, written to a temporary name and renamed, so that a reader in any process sees a
whole file or none; what fails its digest is not used. The directory is bounded: our files used least recently go
first, and nobody else's, as the directory may have been theirs before. Where there is no usable directory (read-only
home, foreign owner, wide permissions) everything still works, only without a cache. `SAMEBITS_CACHE_DIR` moves it; it
never changes a result.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
import stat
import tempfile

LIMIT_BYTES = 256 * 1024 * 1024
# Ours alone, so that nothing else in the directory is ever counted or removed.
_OBJECT, _TEMPORARY = ".samebits", ".samebits.tmp"
_DIGEST = 32
_writes = 0


def directory() -> pathlib.Path | None:
    """The cache directory, created on first use, or None where there is no safe one (or `SAMEBITS_CACHE_DIR=`)."""
    chosen = os.environ.get("SAMEBITS_CACHE_DIR")
    if chosen is None:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):  # as the XDG specification has it
            base = os.path.join(os.path.expanduser("~"), ".cache")
        chosen = os.path.join(base, "samebits")
        if not os.path.isabs(chosen):  # nobody's home is known: never the current directory
            return None
    return _usable(os.path.abspath(chosen)) if chosen else None


@functools.cache
def _usable(chosen: str) -> pathlib.Path | None:
    path = pathlib.Path(chosen)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = path.stat()
    except OSError:
        return None
    # The effective user: the real one of a program with raised rights must not choose its code.
    foreign = hasattr(os, "geteuid") and facts.st_uid != os.geteuid()
    if foreign or (os.name == "posix" and stat.S_IMODE(facts.st_mode) & 0o077):
        return None
    return path


def read(key: str, limit_bytes: int | None = None) -> bytes | None:
    """The object stored under `key`, or None if there is none of at most `limit_bytes` that verifies."""
    folder = directory()
    if folder is None:
        return None
    path = folder / f"{key}{_OBJECT}"
    try:
        with path.open("rb") as file:
            whole = file.read(-1 if limit_bytes is None else _DIGEST + limit_bytes)
    except OSError:
        return None
    payload = whole[_DIGEST:]
    if not payload or hashlib.sha256(payload).digest() != whole[:_DIGEST]:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return payload


def write(key: str, payload: bytes) -> bool:
    """Store an object, and say whether it is; a failure (full disk, no directory) means that it is compiled again."""
    global _writes
    folder = directory()
    if folder is None:
        return False
    try:
        handle, name = tempfile.mkstemp(dir=folder, suffix=_TEMPORARY)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.replace(name, folder / f"{key}{_OBJECT}")
        except BaseException:  # an interrupt too leaves nothing behind
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError:
        return False
    _writes += 1
    if _writes % 64 == 1:
        trim(LIMIT_BYTES)
    return True


def remove(key: str) -> bool:
    """Take the object stored under `key` away; whether there was one to take."""
    folder = directory()
    if folder is None:
        return False
    try:
        (folder / f"{key}{_OBJECT}").unlink()
    except OSError:
        return False
    return True


def trim(limit_bytes: int) -> None:
    """Remove our files used least recently until they take at most `limit_bytes`."""
    folder = directory()
    if folder is None:
        return
    found = _files(folder)
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit_bytes:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def size_bytes() -> int:
    """Bytes that the cache holds now."""
    folder = directory()
    return sum(size for _, size, _ in _files(folder)) if folder else 0


def entries() -> int:
    """Objects that the cache holds now."""
    folder = directory()
    return sum(path.name.endswith(_OBJECT) for _, _, path in _files(folder)) if folder else 0


def _files(folder: pathlib.Path) -> list[tuple[int, int, pathlib.Path]]:
    """(time of last use, size, path) of each of our files; another process may remove any of them meanwhile."""
    found = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if not path.name.endswith((_OBJECT, _TEMPORARY)):
                continue
            with contextlib.suppress(OSError):
                facts = path.stat()
                found.append((facts.st_mtime_ns, facts.st_size, path))
    return found
