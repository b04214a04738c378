"""Kernel text to an address: emit, optimise, assemble, cache, link.

LLVM's loop and SLP vectorisers stay off: the order of operations and the width of vectors are the text's. An object
is a pure function of (package version, sources of the kernel rooms and of the text, Isa row, target, LLVM version,
kernel, description), which is the cache key; with a warm cache no kernel text is even emitted. One lock is held
wherever LLVM works or links, and across a fork, so that a child never inherits it taken. Start at `address`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import pathlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

import samebits
from samebits import driver, errors
from samebits.codegen import isa as isas
from samebits.codegen import llvm as emitter
from samebits.codegen.isa import Isa, Target
from samebits.codegen.vocabulary import FunctionSpec, KernelSpec
from samebits.native import cache

_lock = threading.RLock()
_names = (f"samebits{n}" for n in itertools.count())
_addresses: dict[KernelSpec | FunctionSpec, int] = {}
_linked: list[Any] = []


def address(spec: KernelSpec | FunctionSpec) -> int:
    """The address of a kernel or function for this machine, compiled or loaded from the cache on first use.

    Raises:  NativeError if LLVM refuses the module, which is a defect of the kernel text.
    """
    found = _addresses.get(spec)
    if found is None:
        with _lock:
            found = _addresses.get(spec)
            if found is None:
                (found,) = link_all(load_object(spec), (emitter.ENTRY,))
                _addresses[spec] = found
    return found


def load_object(spec: KernelSpec | FunctionSpec, arch: str | None = None) -> bytes:
    """The object file of a kernel (for `arch`; default: this machine), from the cache or compiled and put there."""
    target = spec.isa.target(arch)
    with _lock:
        return _cached(key(spec, target), lambda: emitter.emit(spec), target)


def addresses(module: str, symbols: tuple[str, ...], target: Target) -> tuple[int, ...]:
    """The addresses of functions of a module that is no kernel's: its whole text is in the cache key."""
    with _lock:
        return link_all(_cached(_digest(module, target), lambda: module, target), symbols)


def _cached(name: str, module: Callable[[], str], target: Target) -> bytes:
    code = cache.read(name)
    if code is None:
        # A text rounds its constants while it is emitted, and what the caller's mode made of them would stay on disk.
        with driver.default_float_environment():
            code = object_code(module(), target)
        cache.write(name, code)
    return code


def key(spec: KernelSpec | FunctionSpec, target: Target) -> str:
    """The cache key of a kernel or function.

    Raises:  NativeError if the description holds what has no value of its own to print (a function, an object).
    """
    description = repr(spec.description)
    if " at 0x" in description:
        raise errors.NativeError("compile", spec.name, "description", description, "plain values", "give rows or names")
    return _digest(_source(spec.text.__module__), spec.isa, target, spec.name, description, spec.parameters)


def _digest(*facts: object) -> str:
    common = (samebits.__version__, sources(), llvm.llvm_version_info, llvm.get_default_triple())
    return hashlib.sha256(repr((*common, *facts)).encode()).hexdigest()


@functools.cache
def _source(module: str) -> str:
    """A digest of the file that a text stands in, which need not be one of the package's."""
    path = getattr(sys.modules[module], "__file__", None)
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() if path else ""


@functools.cache
def sources() -> str:
    """A digest of every source that decides what a kernel's text emits."""
    root = pathlib.Path(samebits.__file__).parent
    paths = [root / "dtypes.py", pathlib.Path(__file__)]
    for room in ("codegen", "kernels"):
        paths += sorted((root / room).rglob("*.py"))
    found = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        found.update(f"{path.relative_to(root).as_posix()} {len(content)} ".encode() + content)
    return found.hexdigest()


@functools.cache
def _machine(target: Target) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = llvm.get_default_triple() if target.arch == isas.host_arch() else f"{target.arch}-unknown-linux-gnu"
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small"
    )


def optimised(module: str, target: Target) -> tuple[Any, Any]:
    """The parsed and optimised module, and the machine it is for."""
    machine = _machine(target)
    try:
        parsed = llvm.parse_assembly(module)
        parsed.verify()
    except RuntimeError as reason:
        expected, remedy = "one that LLVM verifies", "report it, with the emitted text"
        raise errors.NativeError("compile", "module", "", f"refused ({reason})", expected, remedy) from reason
    parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    return parsed, machine


def object_code(module: str, target: Target) -> bytes:
    """Assemble an LLVM module for a target."""
    with _lock:
        parsed, machine = optimised(module, target)
        return bytes(machine.emit_object(parsed))


def assembly(spec: KernelSpec | FunctionSpec, arch: str | None = None) -> str:
    """The machine code of a kernel as assembly text, for tests that read it."""
    target = spec.isa.target(arch)
    with _lock:
        parsed, machine = optimised(emitter.emit(spec), target)
        return str(machine.emit_assembly(parsed))


def foreign_object(spec: KernelSpec | FunctionSpec, arch: str) -> bytes:
    """A kernel's object file for another architecture than this machine's."""
    return load_object(spec, arch)


@functools.cache
def _jit() -> Any:
    host: Isa = next(row for row in isas.ROWS if row.compiled and row.available)
    _machine(host.target())
    # JITLink asks for the memory of an object at once. LLVM's older linker asks for each section's, and where two come
    # to lie 2 GiB apart, as in a process with large mappings, the distance does not fit its relocation: it aborts.
    return llvm.create_lljit_compiler(use_jit_link=True)


def link_all(code: bytes, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """Load an object file into this process: the addresses of some of its symbols.

    Raises:  NativeError if it does not link, such as for a symbol that this process lacks.
    """
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in symbols:
        library.export_symbol(symbol)
    with _lock:
        try:
            # A name is never used again, not even after a failure.
            tracker = library.link(_jit(), next(_names))
        except RuntimeError as reason:
            expected, remedy = "one that links here", "report it"
            raise errors.NativeError("compile", "object", "", f"refused ({reason})", expected, remedy) from reason
        _linked.append(tracker)  # a library is unloaded with its tracker
    return tuple(int(tracker[symbol]) for symbol in symbols)


def keep_for_ever() -> None:
    """What is linked, now or later, is never unloaded: it may be called until the process is gone."""
    with _lock:
        for held in (_jit(), _linked):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
