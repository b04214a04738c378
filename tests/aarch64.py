"""Kernels of the AArch64 rows, run in this process by emulation (unicorn), on copies of NumPy arrays.

`run_plan(plan, arrays)` performs a plan whose `isa` has an AArch64 target; `run_kernel` performs one kernel. Every
array is copied to pages that nothing else shares, ending at unmapped memory, and back: an access outside the operands
raises `unicorn.UcError`. Overlapping arrays stay overlapping, and read-only ones are checked to be unchanged. Where
qemu-aarch64 is installed, `run_kernel_with_qemu` is a second witness.
"""

from __future__ import annotations

import ctypes
import functools
import io
import pathlib
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import unicorn
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from unicorn import arm64_const as arm

from samebits.codegen.vocabulary import FunctionSpec, KernelSpec
from samebits.kernels.plan import Operand, Plan
from samebits.native import compile

Array = npt.NDArray[Any]

_PAGE = 4096
_CODE, _STUBS, _STACK, _DATA = 0x10_0000, 0x800_0000, 0x900_0000, 0x1000_0000
_STACK_BYTES = 1 << 20
_GAP = 16 << 20  # unmapped after every block: a stray access is caught, not answered by a neighbour
_RET = 0xD65F03C0
_CPACR_FP_EN = 3 << 20  # FPEN: neither floating point nor Advanced SIMD traps


def run_plan(plan: Plan, arrays: Sequence[Array]) -> None:
    """Perform every step of `plan` on AArch64; `arrays` are its operands in order, written where the plan writes.

    The workspace, if the plan has one, and scratch are added here, filled with 0xA5.
    """
    memory = _Memory(arrays)
    workspace = memory.fresh(plan.workspace_bytes)
    scratch = memory.fresh(plan.scratch_bytes)
    addresses = [*(memory.address(a) for a in arrays), workspace]
    for step in plan.steps:
        words = [
            addresses[x.index] + x.offset_bytes
            if isinstance(x, Operand)
            else x
            if isinstance(x, int)
            else memory.code(x)
            for x in step.arguments
        ]
        memory.call(step.spec, words, 0, step.tasks, scratch)
    memory.copy_back()


def run_kernel(
    spec: KernelSpec, arguments: Sequence[int | Array], begin: int, end: int, scratch_bytes: int = 0
) -> None:
    """Perform tasks `begin <= t < end` of one kernel; an array stands for its address."""
    arrays = [x for x in arguments if isinstance(x, np.ndarray)]
    memory = _Memory(arrays)
    words = [memory.address(x) if isinstance(x, np.ndarray) else x for x in arguments]
    memory.call(spec, words, begin, end, memory.fresh(scratch_bytes))
    memory.copy_back()


@dataclass(frozen=True, slots=True)
class _Block:
    """Host bytes `low .. high` that `arrays` own, and where they are in the emulated memory."""

    low: int
    high: int
    address: int
    arrays: tuple[Array, ...]


class _Memory:
    """One emulated machine and the arrays in it."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._machine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self._machine.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)  # dot products are no part of the default model
        self._top = _DATA
        self._machine.mem_map(_STUBS, _PAGE)
        self._machine.mem_write(_STUBS, _RET.to_bytes(4, "little") * (_PAGE // 4))
        self._machine.mem_map(_STACK, _STACK_BYTES)
        self._machine.hook_add(unicorn.UC_HOOK_CODE, self._library, begin=_STUBS, end=_STUBS + _PAGE - 1)
        self._loaded: dict[KernelSpec | FunctionSpec, int] = {}
        self._code = _CODE
        self._blocks = [self._place(low, high, owners) for low, high, owners in _ranges(arrays)]

    def _place(self, low: int, high: int, owners: tuple[Array, ...]) -> _Block:
        size = high - low
        pages = max(-(-size // _PAGE), 1) * _PAGE
        address = self._map(pages) + pages - size
        if size:
            self._machine.mem_write(address, _bytes_at(low, size).tobytes())
        return _Block(low, high, address, owners)

    def _map(self, pages: int) -> int:
        base = self._top
        self._machine.mem_map(base, pages)
        self._top = base + pages + _GAP
        return base

    def fresh(self, size: int) -> int:
        """The address of `size` bytes that hold 0xA5, 64-byte aligned and ending near an unmapped page."""
        pages = max(-(-size // _PAGE), 1) * _PAGE
        base = self._map(pages)
        self._machine.mem_write(base, b"\xa5" * pages)
        return base + (pages - size) // 64 * 64

    def address(self, array: Array) -> int:
        """Where the first element of an array is in the emulated memory."""
        low, _ = _bounds(array)
        block = next(b for b in self._blocks if b.low <= low and any(array is a for a in b.arrays))
        return block.address + array.__array_interface__["data"][0] - block.low

    def copy_back(self) -> None:
        """Bring every block back; a block that is read-only on the host must be as it was."""
        for block in self._blocks:
            size = block.high - block.low
            found = np.frombuffer(bytes(self._machine.mem_read(block.address, size)), np.uint8) if size else None
            if found is None:
                continue
            host = _bytes_at(block.low, size)
            if any(a.flags.writeable for a in block.arrays):
                host[:] = found
            else:
                assert np.array_equal(host, found), "the kernel wrote to a read-only operand"

    def call(self, spec: KernelSpec, arguments: Sequence[int], begin: int, end: int, scratch: int) -> None:
        """`kernel(arguments, begin, end, scratch)`, as native code calls it: FPCR zero, everything else unknown."""
        kernel = self.code(spec)
        words = np.array([*arguments, 0], np.int64)
        pages = -(-words.nbytes // _PAGE) * _PAGE
        block = self._map(pages)
        at = block + pages - words.nbytes
        self._machine.mem_write(at, words.tobytes())
        m, stop = self._machine, _STUBS + _PAGE - 4
        m.reg_write(arm.UC_ARM64_REG_CPACR_EL1, _CPACR_FP_EN)
        m.reg_write(arm.UC_ARM64_REG_FPCR, 0)
        for register, value in zip(
            (arm.UC_ARM64_REG_X0, arm.UC_ARM64_REG_X1, arm.UC_ARM64_REG_X2, arm.UC_ARM64_REG_X3),
            (at, begin, end, scratch),
            strict=True,
        ):
            m.reg_write(register, value)
        m.reg_write(arm.UC_ARM64_REG_SP, _STACK + _STACK_BYTES - 64)
        m.reg_write(arm.UC_ARM64_REG_LR, stop)
        m.emu_start(kernel, stop)
        assert m.reg_read(arm.UC_ARM64_REG_PC) == stop, "the emulator stopped inside the kernel"
        m.mem_unmap(block, pages)

    def code(self, spec: KernelSpec | FunctionSpec) -> int:
        """Where a kernel or function is, loaded when it is first asked for."""
        if spec not in self._loaded:
            self._loaded[spec] = self._load(_object(spec))
        return self._loaded[spec]

    def _load(self, code: bytes) -> int:
        """Place an object file in the emulated memory: the address of `kernel`."""
        image, kernel = _linked(code, self._code, _STUBS)
        pages = -(-len(image) // _PAGE) * _PAGE
        self._machine.mem_map(self._code, pages)
        self._machine.mem_write(self._code, image)
        self._code += pages + _PAGE
        return kernel

    def _library(self, machine: Any, address: int, size: int, _: object) -> None:
        """A call of libc reached its stub: do what it does; the stub then returns."""
        place, rest = divmod(address - _STUBS, 16)
        if rest == 0 and place < len(_LIBRARY):
            x0, x1, x2 = (machine.reg_read(r) for r in (arm.UC_ARM64_REG_X0, arm.UC_ARM64_REG_X1, arm.UC_ARM64_REG_X2))
            list(_LIBRARY.values())[place](machine, x0, x1, x2)


def _copy(machine: Any, to: int, source: int, size: int) -> None:
    machine.mem_write(to, bytes(machine.mem_read(source, size)))


def _set(machine: Any, to: int, value: int, size: int) -> None:
    machine.mem_write(to, bytes([value & 255]) * size)


def _zero(machine: Any, to: int, size: int, _: int) -> None:
    machine.mem_write(to, bytes(size))


_LIBRARY: dict[str, Callable[[Any, int, int, int], None]] = {
    "memcpy": _copy,
    "memmove": _copy,
    "memset": _set,
    "bzero": _zero,
}


def _linked(code: bytes, base: int, stubs: int | None) -> tuple[bytes, int]:
    """An object file's sections from `base` on, relocated, and where `kernel` is; libc's functions are at `stubs`."""
    elf = ELFFile(io.BytesIO(code))
    places: dict[int, int] = {}
    image = bytearray()
    for index, section in enumerate(elf.iter_sections()):
        if section["sh_flags"] & 2 and section["sh_size"]:  # SHF_ALLOC
            align = max(section["sh_addralign"], 16)
            image += bytes(-len(image) % align)
            places[index] = base + len(image)
            image += section.data()
    symbols = elf.get_section_by_name(".symtab")

    def address(symbol: Any) -> int:
        if symbol["st_shndx"] != "SHN_UNDEF":
            return places[symbol["st_shndx"]] + int(symbol["st_value"])
        if stubs is None or symbol.name not in _LIBRARY:
            raise NotImplementedError(f"the kernel calls {symbol.name}, which is not provided here")
        return stubs + 16 * list(_LIBRARY).index(symbol.name)

    for section in elf.iter_sections():
        if isinstance(section, RelocationSection) and section["sh_info"] in places:
            for entry in section.iter_relocations():
                value = address(symbols.get_symbol(entry["r_info_sym"])) + entry["r_addend"]
                place = places[section["sh_info"]] + entry["r_offset"]
                _relocate(image, place - base, entry["r_info_type"], value, place)
    (kernel,) = symbols.get_symbol_by_name("kernel")
    return bytes(image), address(kernel)


# ELF for the Arm 64-bit Architecture, section 5.7: the types that LLVM emits for position-independent small code.
_ABS64, _PREL64, _PREL32 = 257, 260, 261
_ADR_PREL_LO21, _ADR_PREL_PG_HI21 = 274, 275
_BRANCHES = (282, 283)  # JUMP26, CALL26
_LO12_SCALE = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # ADD_ABS, LDST8, 16, 32, 64, 128


def _relocate(image: bytearray, offset: int, kind: int, value: int, place: int) -> None:
    if kind in (_ABS64, _PREL64, _PREL32):
        size = 4 if kind == _PREL32 else 8
        number = value if kind == _ABS64 else value - place
        image[offset : offset + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
        return
    word = int.from_bytes(image[offset : offset + 4], "little")
    if kind in (_ADR_PREL_LO21, _ADR_PREL_PG_HI21):
        delta = value - place if kind == _ADR_PREL_LO21 else (value >> 12) - (place >> 12)
        word |= (delta & 3) << 29 | (delta >> 2 & 0x7FFFF) << 5
    elif kind in _BRANCHES:
        word |= (value - place) >> 2 & 0x3FFFFFF
    elif kind in _LO12_SCALE:
        word |= (value & 0xFFF) >> _LO12_SCALE[kind] << 10
    else:
        raise NotImplementedError(f"relocation type {kind} of AArch64 ELF")
    image[offset : offset + 4] = word.to_bytes(4, "little")


@functools.lru_cache(maxsize=256)
def _object(spec: KernelSpec | FunctionSpec) -> bytes:
    return compile.load_object(spec, "aarch64")


def _bytes_at(address: int, size: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer((ctypes.c_char * size).from_address(address), np.uint8)


def _bounds(array: Array) -> tuple[int, int]:
    """The addresses of an array's first byte and of the one after its last (NumPy's own moved with version 2)."""
    start = array.__array_interface__["data"][0]
    if not array.size:
        return start, start
    reach = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(r, 0) for r in reach), start + sum(max(r, 0) for r in reach) + array.itemsize


def _ranges(arrays: Sequence[Array]) -> list[tuple[int, int, tuple[Array, ...]]]:
    """The host memory of the arrays as disjoint ranges, overlapping arrays in one."""
    found: list[tuple[int, int, tuple[Array, ...]]] = []
    for low, high, array in sorted(((*_bounds(a), a) for a in arrays), key=lambda item: item[:2]):
        if found and low < found[-1][1]:
            before = found.pop()
            found.append((before[0], max(before[1], high), (*before[2], array)))
        else:
            found.append((low, high, (array,)))
    return found


# -- the second witness -------------------------------------------------------------------------------------------

QEMU = shutil.which("qemu-aarch64")
_LOADED = 0x40_0000
# ldr x0..x3, x9 from the words behind; blr x9; write(1, data, size); exit(0). The words begin 64 bytes in.
_START = (
    *(0x58000000 | (16 + 2 * k - k) << 5 | r for k, r in enumerate((0, 1, 2, 3, 9))),
    0xD63F0120, 0xD2800020, 0x58000000 | (16 + 2 * 5 - 7) << 5 | 1, 0x58000000 | (16 + 2 * 6 - 8) << 5 | 2,
    0xD2800808, 0xD4000001, 0xD2800000, 0xD2800BA8, 0xD4000001,
)  # fmt: skip


def run_kernel_with_qemu(spec: KernelSpec, arguments: Sequence[int | Array], begin: int, end: int) -> None:
    """As `run_kernel` (with 4096 bytes of scratch), by a program of its own under qemu-aarch64."""
    assert QEMU is not None  # tests skip where it is not installed
    image, kernel = _linked(_object(spec), _LOADED + 2 * _PAGE, None)
    arrays = [np.ascontiguousarray(x) for x in arguments if isinstance(x, np.ndarray)]
    at = _LOADED + 2 * _PAGE + len(image) + -len(image) % _PAGE
    data, places = bytearray(), []
    for x in arrays:
        data += bytes(-len(data) % 64)
        places.append(at + len(data))
        data += x.tobytes()
    data += bytes(-len(data) % 64)
    following = iter(places)
    words = np.array([next(following) if isinstance(x, np.ndarray) else x for x in arguments], np.int64)
    scratch = at + len(data) + words.nbytes + -words.nbytes % 64
    literals = np.array([at + len(data), begin, end, scratch, kernel, at, len(data)], np.int64)
    start = b"".join(word.to_bytes(4, "little") for word in _START)
    body = bytearray(at - _LOADED)
    body[_PAGE : _PAGE + 64 + literals.nbytes] = start.ljust(64, b"\0") + literals.tobytes()
    body[2 * _PAGE : 2 * _PAGE + len(image)] = image
    body += data + words.tobytes()
    body[: 64 + 56] = _headers(_LOADED + _PAGE, len(body), scratch + _PAGE - _LOADED)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "kernel"
        path.write_bytes(body)
        path.chmod(0o700)
        found = subprocess.run([QEMU, str(path)], capture_output=True, check=True, timeout=600).stdout
    assert len(found) == len(data)
    for x, place in zip((x for x in arguments if isinstance(x, np.ndarray)), places, strict=True):
        x[...] = np.frombuffer(found, x.dtype, x.size, place - at).reshape(x.shape)


def _headers(entry: int, in_file: int, in_memory: int) -> bytes:
    """The header of a static AArch64 ELF with one segment: everything, readable, writable and executable."""
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return identity + header + struct.pack("<IIQQQQQQ", 1, 7, 0, _LOADED, _LOADED, in_file, in_memory, _PAGE)
