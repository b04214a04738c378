"""Kernel text to an address: emit, compile, cache, link.

An object is a pure function of (package version, the sources that decide what the text emits, Isa row, target, LLVM
version, kernel, description), which is the cache key; with a warm cache no kernel text is even emitted. What is missing
is compiled by `native.compilers`, several objects at once, and LLVM is not even loaded: `native.elf` links what it
knows. One lock is held wherever LLVM works, or anything is linked, and across a fork, so that a child never inherits it
taken. Start at `address`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import samebits
from samebits import cache, driver, errors, forks
from samebits.codegen import host
from samebits.codegen import isa as isas
from samebits.codegen.isa import Target
from samebits.codegen.vocabulary import ENTRY, FunctionSpec, KernelSpec
from samebits.frozen import dataclass
from samebits.native import assembler, elf, sources
from samebits.native.assembler import Processor
from samebits.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from samebits.native import compilers

# What is an object of its own.
Compiled = KernelSpec | FunctionSpec

_lock = threading.RLock()
# Asked once, here: llvmlite has a lock of its own, which a key must not take where ours is not held.
_HOST = host.host()
_addresses: dict[Compiled, int] = {}
# Objects that were made with others and are not linked yet.
_made: dict[str, bytes] = {}
# Calls before another process is asked for an object: in a program that ends sooner it would compile in vain. Then how
# often one is asked, should it be killed, and how long nobody looks for its answer.
_PATIENCE, _TRIES, _LOOK_SECONDS = 100, 2, 0.001
# How many objects a call of this process waited for.
_waited = 0
# Why objects were left to LLVM's linker.
_left: dict[str, None] = {}


@dataclass(frozen=True, slots=True)
class Unit:
    """What one object is made from.

    Attributes:
        name: What it is called in the cache: two units of one name are one object.
        text: What writes its LLVM module, where it is missing.
        target: What it is for.
        passes: As those of `native.assembler`.
    """

    name: str
    text: Callable[[], str]
    target: Target
    passes: str = ""

    @property
    def job(self) -> compilers.Job:
        """What is asked of a compiler, its text being written now."""
        from samebits.native import compilers  # which a process that finds its objects does without

        return compilers.Job(self.name, self.text(), processor(self.target), self.passes)


def address(spec: Compiled) -> int:
    """The address of a kernel or function for this machine, compiled or loaded from the cache on first use.

    Raises:  NativeError if LLVM refuses the module, which is a defect of the kernel text.
    """
    found = _addresses.get(spec)
    if found is None:
        link((spec,))
        found = _addresses[spec]
    return found


def link(specs: Iterable[Compiled], beside: Iterable[Unit] = ()) -> None:
    """Have the addresses of several kernels, whose objects are compiled at the same time where they are missing.

    Args:    beside: what `addresses` is going to be asked for, to be compiled with them.
    Raises:  as `address`.
    """
    missing = [spec for spec in dict.fromkeys(specs) if spec not in _addresses]
    if not missing:
        return
    with _lock:
        wanted = [spec for spec in missing if spec not in _addresses]  # another thread may have been at it
        others = {x.name: x for x in beside}
        found = objects([*others.values(), *map(unit, wanted)])
        _made.update(zip(others, found, strict=False))
        for spec, code in zip(wanted, found[len(others) :], strict=True):
            (_addresses[spec],) = link_all(code, (ENTRY,))


def unit(spec: Compiled, arch: str | None = None) -> Unit:
    """A kernel's unit (for `arch`; default: this machine)."""
    target = spec.isa.target(arch)
    return Unit(key(spec, target), functools.partial(_emitted, spec), target, assembler.KERNEL_PASSES)


def _emitted(spec: Compiled) -> str:
    from samebits.codegen import llvm as emitter  # which a process that finds its objects does without

    return emitter.emit(spec)


def module_unit(module: str, target: Target) -> Unit:
    """The unit of a module that is no kernel's: its whole text is in the cache key."""
    return Unit(_digest(target, module), lambda: module, target)


def load_object(spec: Compiled, arch: str | None = None) -> bytes:
    """The object file of a kernel (for `arch`; default: this machine), from the cache or compiled and put there."""
    return objects([unit(spec, arch)])[0]


def is_kept(spec: Compiled) -> bool:
    """Whether the cache holds the object of a kernel for this machine."""
    return cache.read(key(spec, spec.isa.target(None))) is not None


def addresses(module: Unit, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """The addresses of functions of a module that is no kernel's."""
    with _lock:
        return link_all(_made.pop(module.name, b"") or objects([module])[0], symbols)


def arrive(module: Unit, symbols: tuple[str, ...]) -> Generator[bool, None, tuple[int, ...]]:
    """`addresses` in steps of `hot.offer`: another process compiles, and none waits for another thread.

    Raises:  NativeError if no other process gives the object.
    """
    code = cache.read(module.name)
    if code is None:
        code = yield from _compiled_beside(module)
    yield True
    yield from _until_free()
    try:
        return link_all(code, symbols)
    finally:
        _lock.release()


def _compiled_beside(module: Unit) -> Generator[bool, None, bytes]:
    """The object, compiled by another process and kept."""
    from samebits.native import compilers  # which a process that finds its objects does without

    for _ in range(_PATIENCE):
        yield False
    job = module.job
    for _ in range(_TRIES):
        yield from _until_free()
        try:
            asked = compilers.ask(job)
        finally:
            _lock.release()
        while asked:
            look = time.monotonic() + _LOOK_SECONDS
            while time.monotonic() < look:
                yield False
            yield from _until_free()
            try:
                code = compilers.answer(job.name)
            except LookupError:
                break
            finally:
                _lock.release()
            if code is not None:
                cache.write(job.name, code)
                return code
    expected, remedy = "compiled by another process", "compile it in this one"
    raise errors.NativeError("compile", "module", "", "not compiled", expected, remedy)


def _until_free() -> Iterator[bool]:
    """Steps until this thread has the lock, which it then holds."""
    while not _lock.acquire(blocking=False):
        yield False


def objects(units: Sequence[Unit]) -> list[bytes]:
    """The object files of units, from the cache or compiled and put there.

    Raises:  NativeError if LLVM refuses a text.
    """
    with _lock:
        found = {x.name: cache.read(x.name) for x in units}
        missing = {x.name: x for x in units if found[x.name] is None}
        if missing:
            found |= _compiled(list(missing.values()))
        return [found[x.name] or b"" for x in units]


def _compiled(units: Sequence[Unit]) -> dict[str, bytes]:
    """The objects by name, compiled now and kept."""
    global _waited
    from samebits.native import compilers  # which a process that finds its objects does without

    compilers.prepare(len(units))
    # A text rounds its constants while it is emitted, and what the caller's mode made of them would stay on disk.
    with driver.default_float_environment(), _refusals():
        made = compilers.compile_all([x.job for x in units])
    for name, code in made.items():
        cache.write(name, code)
    _waited += len(made)
    return made


def waited_for() -> int:
    """How many objects calls of this process had to have compiled before they could go on."""
    return _waited


def key(spec: Compiled, target: Target) -> str:
    """The cache key of a kernel or function.

    Raises:  NativeError if the description holds what has no value of its own to print (a function, an object).
    """
    description = repr(spec.description)
    if " at 0x" in description:
        raise errors.NativeError("compile", spec.name, "description", description, "plain values", "give rows or names")
    # What a text says depends on its module, on those of the values that it is given, and on all that writes it down.
    modules = {spec.text.__module__} | sources.modules_of(spec.description) | sources.room("codegen")
    return _digest(target, sources.digest(modules), spec.isa, spec.name, description, spec.parameters, spec.unroll)


def _digest(target: Target, *facts: object) -> str:
    common = (samebits.__version__, sources.digest({assembler.__name__}), _HOST.llvm, processor(target))
    return cache.digest(repr((*common, *facts)).encode())


def processor(target: Target) -> Processor:
    """What LLVM compiles for where a row's target is meant."""
    if target.arch != isas.host_arch():
        return Processor(f"{target.arch}-unknown-linux-gnu", target.cpu, target.features)
    option = assembler.PADDING if _HOST.cpu in assembler.PADDED else ""
    return Processor(_HOST.triple, target.cpu, target.features, option)


def object_code(module: str, target: Target) -> bytes:
    """The object file of an LLVM module, compiled in this process.

    Raises:  NativeError if LLVM refuses the module.
    """
    with _lock, _refusals():
        return uninterrupted(assembler.object_code, module, processor(target))


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What LLVM refuses is an error of ours."""
    try:
        yield
    except RuntimeError as reason:
        expected, remedy = "one that LLVM verifies", "report it, with the emitted text"
        raise errors.NativeError("compile", "module", "", f"refused ({reason})", expected, remedy) from reason


def module(spec: Compiled) -> str:
    """The LLVM IR of a kernel as it is emitted, for people who read it."""
    return _emitted(spec)


def assembly(spec: Compiled, arch: str | None = None) -> str:
    """The machine code of a kernel as assembly text, for tests and people who read it."""
    target = spec.isa.target(arch)
    with _lock:
        return uninterrupted(assembler.assembly, _emitted(spec), processor(target), assembler.KERNEL_PASSES)


def link_all(code: bytes, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """Load an object file into this process, for ever: the addresses of some of its symbols.

    Raises:  NativeError if it does not link, such as for a symbol that this process lacks, or for memory.
    """
    with _lock:
        try:
            return _linked(code, symbols)
        except OSError as reason:
            actual, remedy = f"refused ({reason.strerror})", "let this process run what it wrote, or use_isa('numpy')"
            raise errors.NativeError("compile", "memory for code", "", actual, "granted", remedy) from reason


def _linked(code: bytes, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """The same, by LLVM where nothing less knows the object."""
    try:
        return elf.load(code, symbols)
    except elf.UnknownObjectError as reason:
        from samebits.native import jit  # which a process does without whose objects are known

        found = jit.link(code, symbols)
        _left[str(reason)] = None
        return found


def left_to_llvm() -> tuple[str, ...]:
    """Why objects of this process were linked by LLVM, each reason once: what `native.elf` did not know of them."""
    return tuple(_left)


forks.around(_lock.acquire, _lock.release, _lock.release)
