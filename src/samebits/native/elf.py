"""Object files of x86-64 made runnable without LLVM: ELF as LLVM writes it for kernels, pool and exchange.

To load and start LLVM's linker takes longer than all else that a process with a full cache does to run code. What its
objects hold is little: sections, symbols, and a few kinds of relocation (System V ABI, AMD64 supplement, 4.4). They are
laid out here one behind the other: what is run and what is only read, then a jump and a slot for each symbol of other
libraries, then, on pages of their own, what is written. What is near enough is called without its jump, so that
exchange, operations on layouts and eager calls take 5 to 8 % less. An object that says anything else is for LLVM's
linker. Start at `load`.

Frames are not made known to unwinders: nothing that emitted code calls throws, and a thread that ends inside it ends at
its frames as at the end of its stack.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator, Sequence

from samebits import driver, executable
from samebits.codegen import isa as isas
from samebits.frozen import dataclass

__all__ = ["UnknownObjectError", "load", "other_machine"]

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")
# 64-bit, little-endian, version 1; then a relocatable file of x86-64.
_IDENTITY, _RELOCATABLE, _X86_64 = b"\x7fELF\x02\x01\x01", 1, 62
# Kinds of sections; flags of those that a process has: written, run; and that equal constants may be merged.
_EMPTY, _PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOBITS, _UNWIND = 0, 1, 2, 3, 4, 8, 0x7000_0001
_HELD, _WRITTEN, _RUN, _MERGED = 2, 1, 4, 0x30
# Symbols: of no section here, known to others, and those that are plain places (none said, data, code, a section).
_UNDEFINED, _GLOBAL, _PLAIN = 0, 1, (0, 1, 2, 3)
# Relocations by number: an address, a distance, one to what is called, and three of one to a slot of an address.
_ADDRESS, _CALL, _SLOTS = 1, 4, (9, 41, 42)
_WIDTHS = {_ADDRESS: 8, 2: 4, _CALL: 4} | dict.fromkeys(_SLOTS, 4)
# What a symbol of another library has here: `jmp *[rip + 2]`, filled up to eight bytes, and the slot of its address.
_JUMP, _SLOT_AT, _ENTRY_BYTES = b"\xff\x25\x02\x00\x00\x00\xcc\xcc", 8, 16
# What 32 bits reach, and far below it, so that distances within an object fit.
_REACH, _MOST_BYTES = 1 << 31, 1 << 28


class UnknownObjectError(Exception):
    """An object says what is not known here, or needs what is not there; the text says what."""


@dataclass(frozen=True, slots=True)
class _Section:
    name: int
    kind: int
    flags: int
    address: int
    start: int
    size: int
    link: int
    info: int
    alignment: int
    entry_bytes: int


@dataclass(frozen=True, slots=True)
class _SymbolEntry:
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


@dataclass(frozen=True, slots=True)
class _Relocation:
    """At `offset` of a section, what `kind` says of a symbol's address and `addend`."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


def load(code: bytes, symbols: Sequence[str]) -> tuple[int, ...]:
    """The addresses of some symbols of an object file, which is then in this process for ever.

    Raises:
        UnknownObjectError: It is nothing that is known here, or this process lacks a symbol that it needs.
        OSError: The system has no memory for it, or lets this process run nothing that it wrote.
    """
    if other := other_machine():
        raise UnknownObjectError(other)
    made = _Object(code)
    wanted = [made.exported(name) for name in symbols]
    base = executable.placed(made.code_bytes, made.data_bytes, made.image)
    return tuple(base + at for at in wanted)


def other_machine() -> str:
    """Why all objects of this machine are LLVM's to link; empty where they are not."""
    is_known = sys.platform == "linux" and isas.host_arch() == "x86_64"
    return "" if is_known else "this machine is no Linux on x86-64"


class _Object:
    """One object file, and where its parts come to lie behind each other.

    Attributes:
        code_bytes: Bytes of what is run or only read, whole pages.
        data_bytes: Bytes of what is written.
    """

    def __init__(self, code: bytes) -> None:
        self._code = code
        self._sections = _sections(code)
        tables = [i for i, x in enumerate(self._sections) if x.kind == _SYMTAB]
        if len(tables) != 1:
            raise UnknownObjectError(f"it has {len(tables)} tables of symbols")
        table = self._sections[tables[0]]
        self._symbols = [_SymbolEntry(*x) for x in _entries(code, table, _SYMBOL)]
        self._names = _contents(code, self._section(table.link))
        self._relocations = [*self._known_relocations(tables[0])]
        self._end = 0
        self._places: dict[int, int] = {}
        self._place(_HELD)
        called = [x.symbol for x in self._relocations if self._needs_slot(x)]
        self._slots = {symbol: self._reserved(_ENTRY_BYTES, _ENTRY_BYTES) for symbol in dict.fromkeys(called)}
        self.code_bytes = self._end = _aligned(max(self._end, 1), executable.PAGE)
        self._place(_HELD | _WRITTEN)
        self.data_bytes = self._end - self.code_bytes

    def exported(self, name: str) -> int:
        """The place of a global symbol."""
        for symbol in self._symbols:
            if symbol.info >> 4 == _GLOBAL and symbol.section != _UNDEFINED and self._name(symbol) == name:
                return self._place_of(symbol)
        raise UnknownObjectError(f"it has no symbol {name!r}")

    def image(self, base: int) -> bytes:
        """All of it, for this address."""
        made = bytearray(self.code_bytes + self.data_bytes)
        for index, at in self._places.items():
            section = self._sections[index]
            if section.kind == _PROGBITS:
                made[at : at + section.size] = _contents(self._code, section)
        for number, at in self._slots.items():
            made[at : at + _SLOT_AT] = _JUMP
            struct.pack_into("<Q", made, at + _SLOT_AT, self._address(number, base))
        for x in self._relocations:
            at = self._places[x.section] + x.offset
            form, origin = ("<Q", 0) if x.kind == _ADDRESS else ("<i", base + at)
            if x.kind in _SLOTS:
                target = base + self._slots[x.symbol] + _SLOT_AT
            else:
                target = self._address(x.symbol, base)
                is_near = -_REACH <= target + x.addend - origin < _REACH
                if x.symbol in self._slots and x.kind != _ADDRESS and self._is_elsewhere(x) and not is_near:
                    target = base + self._slots[x.symbol]
            try:
                struct.pack_into(form, made, at, target + x.addend - origin)
            except struct.error:
                raise UnknownObjectError("what a relocation says does not fit") from None
        return bytes(made)

    def _place(self, flags: int) -> None:
        """Places for the sections that are written, or for those that are not."""
        for index, section in enumerate(self._sections):
            if section.flags & (_HELD | _WRITTEN) != flags or section.kind == _UNWIND:
                continue
            alignment = section.alignment or 1
            if section.kind not in (_PROGBITS, _NOBITS) or section.flags & ~(_HELD | _WRITTEN | _RUN | _MERGED):
                raise UnknownObjectError(f"it has a section of kind {section.kind:#x} with flags {section.flags:#x}")
            if section.flags & _WRITTEN and section.flags & _RUN:
                raise UnknownObjectError("it has code that is written")
            if alignment & (alignment - 1) or alignment > executable.PAGE:
                raise UnknownObjectError(f"it has a section at multiples of {alignment} bytes")
            self._places[index] = self._reserved(alignment, section.size)

    def _reserved(self, alignment: int, size: int) -> int:
        at = _aligned(self._end, alignment)
        self._end = at + size
        if self._end > _MOST_BYTES:
            raise UnknownObjectError(f"it takes more than {_MOST_BYTES} bytes")
        return at

    def _known_relocations(self, table: int) -> Iterator[_Relocation]:
        """Those of what a process has, all of kinds that are known, within their section."""
        for section in self._sections:
            if section.kind != _RELA:
                continue
            target = self._section(section.info)
            if not target.flags & _HELD or target.kind == _UNWIND:
                continue
            if target.kind != _PROGBITS or section.link != table:
                raise UnknownObjectError("it has relocations of no contents, or of another table's symbols")
            for offset, kind, symbol, addend in _entries(self._code, section, _RELOCATION):
                if kind not in _WIDTHS:
                    raise UnknownObjectError(f"it has a relocation of kind {kind}")
                if symbol >= len(self._symbols) or offset + _WIDTHS[kind] > target.size:
                    raise UnknownObjectError("it has a relocation beyond an end")
                yield _Relocation(section.info, offset, kind, symbol, addend)

    def _needs_slot(self, x: _Relocation) -> bool:
        """Whether it is reached by way of a slot: other libraries may lie further than 32 bits reach."""
        return x.kind in _SLOTS or (x.kind == _CALL and self._is_elsewhere(x))

    def _is_elsewhere(self, x: _Relocation) -> bool:
        """Whether its symbol is another library's."""
        return self._symbols[x.symbol].section == _UNDEFINED

    def _address(self, number: int, base: int) -> int:
        """Where a symbol is, which may be one of another library."""
        symbol = self._symbols[number]
        if symbol.section != _UNDEFINED:
            return base + self._place_of(symbol)
        name = self._name(symbol)
        if symbol.info >> 4 != _GLOBAL or not name:
            raise UnknownObjectError("it names a symbol that need not be there")
        try:
            return ctypes.cast(driver.libc()[name], ctypes.c_void_p).value or 0
        except AttributeError:
            raise UnknownObjectError(f"this process has no symbol {name!r}") from None

    def _place_of(self, symbol: _SymbolEntry) -> int:
        """Where a symbol of this object lies in it."""
        at = self._places.get(symbol.section)
        if at is None or symbol.info & 15 not in _PLAIN or symbol.value > self._sections[symbol.section].size:
            raise UnknownObjectError("it has a symbol that is no place in it")
        return at + symbol.value

    def _name(self, symbol: _SymbolEntry) -> str:
        end = self._names.find(b"\0", symbol.name)
        if end < 0:
            raise UnknownObjectError("it has a name beyond its end")
        return self._names[symbol.name : end].decode("latin-1")

    def _section(self, index: int) -> _Section:
        if index >= len(self._sections):
            raise UnknownObjectError("it has no section of a number that it names")
        return self._sections[index]


def _sections(code: bytes) -> list[_Section]:
    """Its sections, all of kinds that are known."""
    if len(code) < _HEADER.size:
        raise UnknownObjectError("it is shorter than a header")
    identity, kind, machine, *_, start, _, _, _, _, size, count, _ = _HEADER.unpack_from(code)
    if not identity.startswith(_IDENTITY) or (kind, machine) != (_RELOCATABLE, _X86_64):
        raise UnknownObjectError("it is no relocatable ELF file of x86-64")
    table = _Section(0, _EMPTY, 0, 0, start, count * size, 0, 0, 0, size)
    found = [_Section(*x) for x in _entries(code, table, _SECTION)]
    for section in found:
        known = (_EMPTY, _PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOBITS, _UNWIND)
        if section.kind not in known:
            raise UnknownObjectError(f"it has a section of kind {section.kind:#x}")
    return found


def _contents(code: bytes, section: _Section) -> bytes:
    if section.start + section.size > len(code):
        raise UnknownObjectError("it ends within a section")
    return code[section.start : section.start + section.size]


def _entries(code: bytes, section: _Section, entry: struct.Struct) -> Iterator[tuple[int, ...]]:
    """What a section holds many times."""
    if section.entry_bytes != entry.size or section.size % entry.size:
        raise UnknownObjectError(f"it has entries of {section.entry_bytes} bytes, not {entry.size}")
    return entry.iter_unpack(_contents(code, section))


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment
