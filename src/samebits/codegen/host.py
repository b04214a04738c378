"""What LLVM says of this machine: asked once, and remembered beside the compiled objects.

To load LLVM takes a tenth of a start and 50 MB, which a process that finds its objects does without. What it said is
kept under all that its answer depends on: the words of the processor itself (`cpuid`), so that an image that comes to
another machine asks again, and which file LLVM is. Where either is not to be had, LLVM is asked. Start at `host`.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import NamedTuple

import samebits
from samebits import cache, cpuid
from samebits.uninterrupted import uninterrupted

__all__ = ["Host", "host"]

_LIMIT_BYTES = 64 * 1024


class Host(NamedTuple):
    """LLVM's words.

    Attributes:
        llvm: Its version.
        triple: What objects for this machine and system are for.
        cpu: The processor, as `znver4`; a baseline's name or `generic` where LLVM does not know it.
        features: Those that it has.
    """

    llvm: tuple[int, ...]
    triple: str
    cpu: str
    features: frozenset[str]


@functools.cache
def host() -> Host:
    """This machine and LLVM.

    Raises:  ImportError or OSError if there is no LLVM.
    """
    key = _key()
    found = _read(key) if key else None
    if found is None:
        found = uninterrupted(_asked)
        if key:
            version = " ".join(map(str, found.llvm))
            lines = version, found.triple, found.cpu, " ".join(sorted(found.features))
            cache.write(key, "\n".join(lines).encode())
    return found


def _asked() -> Host:
    import llvmlite.binding as llvm

    features = frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
    return Host(tuple(llvm.llvm_version_info), llvm.get_default_triple(), str(llvm.get_host_cpu_name()), features)


def _read(key: str) -> Host | None:
    """What is kept under a key; None where it is no such answer."""
    try:
        version, triple, cpu, features = (cache.read(key, _LIMIT_BYTES) or b"").decode().split("\n")
        return Host(tuple(map(int, version.split())), triple, cpu, frozenset(features.split()))
    except ValueError:
        return None


def _key() -> str | None:
    """The name of this processor's and this LLVM's answer; None where either cannot be told from others."""
    words, library = cpuid.words(), _library()
    if words is None or library is None:
        return None
    said = samebits.__version__, words, library
    return "host-" + cache.digest(repr(said).encode())[:32]


def _library() -> tuple[str, int, int] | None:
    """LLVM's file, told from another version's, without loading it."""
    try:
        found = importlib.util.find_spec("llvmlite")
        if found is None or found.origin is None:
            return None
        path = os.path.join(os.path.dirname(found.origin), "binding", "libllvmlite.so")
        facts = os.stat(path)
    except (ValueError, OSError):
        return None
    return path, facts.st_size, facts.st_mtime_ns
