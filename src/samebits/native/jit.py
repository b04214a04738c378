"""LLVM's linker: any object file of this machine made runnable. Start at `link`."""

from __future__ import annotations

import ctypes
import errno
import functools
import itertools
import sys
from typing import Any

from samebits import errors, executable
from samebits.native import assembler
from samebits.uninterrupted import uninterrupted

_names = (f"samebits{n}" for n in itertools.count())


def link(code: bytes, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """The addresses of some symbols of an object file, which is then in this process for ever.

    Callers hold the lock of `native.compile`.

    Raises:
        NativeError: It does not link, such as for a symbol that this process lacks.
        OSError: The system lets this process run nothing that it wrote, at which LLVM would abort it.
    """
    if sys.platform == "linux" and (reason := executable.refusal()):
        raise PermissionError(errno.EACCES, reason)
    try:
        return uninterrupted(_linked, code, symbols)
    except RuntimeError as reason:
        expected, remedy = "one that links here", "report it"
        raise errors.NativeError("compile", "object", "", f"refused ({reason})", expected, remedy) from reason


def _linked(code: bytes, symbols: tuple[str, ...]) -> tuple[int, ...]:
    library = assembler.llvm().JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in symbols:
        library.export_symbol(symbol)
    # A name is never used again, not even after a failure.
    tracker = library.link(_linker(), next(_names))
    _keep(tracker)  # with which a library would be unloaded
    return tuple(int(tracker[symbol]) for symbol in symbols)


@functools.cache
def _linker() -> Any:
    # JITLink asks for the memory of an object at once. LLVM's older linker asks for each section's, and where two come
    # to lie 2 GiB apart, as in a process with large mappings, the distance does not fit its relocation: it aborts.
    made = assembler.llvm().create_lljit_compiler(use_jit_link=True)
    _keep(made)
    return made


def _keep(value: Any) -> None:
    """Never free it, not even when the interpreter ends: code may be called until the process is gone."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
