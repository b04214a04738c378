"""Kernel text to an address: emit, optimise, assemble, cache, link.

LLVM's loop and SLP vectorisers stay off: the order of operations and the width of vectors are the text's. An object
is a pure function of (package version, sources of the kernel rooms, Isa row, LLVM version, kernel, description),
which is the cache key; with a warm cache no kernel text is even emitted. Start at `address`.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
import threading
from typing import Any

import llvmlite.binding as llvm

import samebits
from samebits import errors
from samebits.codegen import isa as isas
from samebits.codegen import llvm as emitter
from samebits.codegen.isa import Isa, Target
from samebits.codegen.vocabulary import KernelSpec
from samebits.native import cache

_lock = threading.Lock()
_addresses: dict[KernelSpec, int] = {}
_linked: list[Any] = []


def address(spec: KernelSpec) -> int:
    """The address of a kernel for this machine, compiled or loaded from the cache on first use.

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


def load_object(spec: KernelSpec) -> bytes:
    """The object file of a kernel, from the cache or compiled and put there."""
    key = _key(spec)
    code = cache.read(key)
    if code is None:
        code = object_code(emitter.emit(spec), spec.isa.target())
        cache.write(key, code)
    return code


def _key(spec: KernelSpec) -> str:
    facts = (
        samebits.__version__,
        sources(),
        llvm.llvm_version_info,
        spec.isa,
        spec.isa.target(),
    )
    text = repr((*facts, spec.name, spec.description, spec.parameters))
    return hashlib.sha256(text.encode()).hexdigest()


def module_key(module: str, target: Target) -> str:
    """The cache key of a module that is not a kernel's: its whole text decides."""
    return hashlib.sha256(repr((module, target, llvm.llvm_version_info)).encode()).hexdigest()


@functools.cache
def sources() -> str:
    """A digest of every source that decides what a kernel's text emits."""
    root = pathlib.Path(samebits.__file__).parent
    paths = [root / "dtypes.py", pathlib.Path(__file__)]
    for room in ("codegen", "kernels"):
        paths += sorted((root / room).rglob("*.py"))
    found = hashlib.sha256()
    for path in paths:
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
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
        raise errors.NativeError(f"LLVM refuses an emitted module: {reason}") from reason
    parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    return parsed, machine


def object_code(module: str, target: Target) -> bytes:
    """Assemble an LLVM module for a target."""
    parsed, machine = optimised(module, target)
    return bytes(machine.emit_object(parsed))


def assembly(spec: KernelSpec, arch: str | None = None) -> str:
    """The machine code of a kernel as assembly text, for tests that read it."""
    target = spec.isa.target(arch)
    parsed, machine = optimised(emitter.emit(spec), target)
    return str(machine.emit_assembly(parsed))


def foreign_object(spec: KernelSpec, arch: str) -> bytes:
    """A kernel's object file for another architecture than this machine's."""
    return object_code(emitter.emit(spec), spec.isa.target(arch))


@functools.cache
def _jit() -> Any:
    host: Isa = next(row for row in isas.ROWS if row.compiled and row.available)
    _machine(host.target())
    return llvm.create_lljit_compiler()


def link_all(code: bytes, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """Load an object file into this process: the addresses of some of its symbols."""
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in symbols:
        library.export_symbol(symbol)
    tracker = library.link(_jit(), f"samebits{len(_linked)}")
    _linked.append(tracker)  # a library is unloaded with its tracker
    return tuple(int(tracker[symbol]) for symbol in symbols)
