"""Objects that are linked without LLVM: beside LLVM's own linking, and whatever an object says."""

from __future__ import annotations

import ctypes
import io
import os
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

import samebits as sb
from samebits import cache
from samebits.codegen import isa as isas
from samebits.codegen.vocabulary import ENTRY
from samebits.doctor import report
from samebits.native import compile, elf, jit, pool

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or isas.host_arch() != "x86_64", reason="other machines' objects are LLVM's to link"
)

# Constants of several widths, data that is written, a table of addresses, memory that begins as 0, functions of libc
# and of the interpreter, called and by their address.
TEXT = """
@weights = internal constant [4 x double] [double 0.5, double 0.25, double 3.0, double -1.0]
@table = global [2 x ptr] [ptr @twice, ptr @weights]
@counter = internal global i64 40
@zeros = global [100 x i64] zeroinitializer, align 64
declare i64 @strlen(ptr)
declare i32 @Py_IsInitialized()
define internal i64 @twice(i64 %x) noinline {
  %y = add i64 %x, %x
  ret i64 %y
}
define i64 @through(i64 %x) {
  %f = load volatile ptr, ptr @table
  %y = call i64 %f(i64 %x)
  ret i64 %y
}
define double @weight(i64 %i) {
  %at = getelementptr double, ptr @weights, i64 %i
  %x = load double, ptr %at
  %y = fmul double %x, 1.125
  ret double %y
}
define i64 @length(ptr %s) {
  %n = call i64 @strlen(ptr %s)
  ret i64 %n
}
define ptr @strlen_at() {
  ret ptr @strlen
}
define i32 @alive() {
  %x = call i32 @Py_IsInitialized()
  ret i32 %x
}
define i64 @count() {
  %x = load i64, ptr @counter
  %y = add i64 %x, 1
  store i64 %y, ptr @counter
  %at = getelementptr i64, ptr @zeros, i64 99
  %z = load i64, ptr %at
  %sum = add i64 %y, %z
  ret i64 %sum
}
"""
SYMBOLS = ("through", "weight", "length", "strlen_at", "alive", "count", "zeros")


def unit() -> compile.Unit:
    return compile.module_unit(TEXT, host_target())


def host_target() -> isas.Target:
    return next(row for row in isas.ROWS if row.compiled and row.available).target()


@pytest.fixture(scope="module")
def code() -> bytes:
    return compile.objects([unit()])[0]


def answers(addresses: tuple[int, ...]) -> list[object]:
    """What the functions say."""
    through, weight, length, strlen_at, alive, count, zeros = addresses
    number, word = ctypes.c_int64, ctypes.c_void_p
    return [
        ctypes.CFUNCTYPE(number, number)(through)(21),
        [ctypes.CFUNCTYPE(ctypes.c_double, number)(weight)(i) for i in range(4)],
        ctypes.CFUNCTYPE(number, ctypes.c_char_p)(length)(b"seventeen letters"),
        ctypes.CFUNCTYPE(word)(strlen_at)() == ctypes.cast(ctypes.CDLL(None).strlen, word).value,
        ctypes.CFUNCTYPE(ctypes.c_int)(alive)(),
        [ctypes.CFUNCTYPE(number)(count)() for _ in range(2)],
        zeros % 64,
    ]


def test_all_that_an_object_may_hold_is_as_llvm_links_it(code: bytes) -> None:
    expected = [42, [0.5625, 0.28125, 3.375, -1.125], 17, True, 1, [41, 42], 0]
    assert answers(elf.load(code, SYMBOLS)) == expected
    assert answers(elf.load(code, SYMBOLS)) == expected  # what is written is each one's own
    assert answers(jit.link(code, SYMBOLS)) == expected


def test_what_is_far_is_called_by_a_jump(code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf, "_REACH", 0)
    made = elf._Object(code)
    image, jumps = made.image(1 << 20), 0
    for x in made._relocations:
        if x.kind == elf._CALL and made._is_elsewhere(x):
            at, jumps = made._places[x.section] + x.offset, jumps + 1
            assert at + struct.unpack_from("<i", image, at)[0] - x.addend == made._slots[x.symbol]
    assert jumps


def test_data_with_a_slot_is_also_reached_directly(code: bytes) -> None:
    """Whoever says a distance to what has a slot in the same object means the place itself, not a jump to it."""
    file = ELFFile(io.BytesIO(code))
    names = [x.name for x in file.get_section_by_name(".symtab").iter_symbols()]
    relocations = file.get_section_by_name(".rela.text")
    made = bytearray(code)
    kinds = {x["r_info_type"] for x in relocations.iter_relocations() if x["r_info_sym"] == names.index("zeros")}
    assert kinds <= {9, 41, 42}
    assert kinds
    for number, x in enumerate(relocations.iter_relocations()):
        if x["r_info_type"] == 2:  # of the constants that `weight` reads
            struct.pack_into("<II", made, relocations["sh_offset"] + 24 * number + 8, 2, names.index("zeros"))
    for load in (elf.load, jit.link):
        (weight,) = load(bytes(made), ("weight",))
        assert [ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(weight)(i) for i in range(4)] == [0.0] * 4


def some_objects() -> Iterator[tuple[bytes, tuple[str, ...]]]:
    """Kernels of several rooms on the plainest and the fastest row, and what is no kernel's."""
    a = np.linspace(-2, 2, 35, dtype=np.float32).reshape(5, 7)
    for row in ("scalar", isas.best()):
        with sb.use_isa(row):
            sb.matmul(a, a.T, threads=1)
            sb.softmax(sb.exp(a))
            sb.cast(a, "float8_e4m3fn")
    known = [spec for spec in compile._addresses if spec.isa in isas.ROWS and not spec.isa.has_tiles]
    codes = [
        cache.read(compile.key(spec, spec.isa.target()))
        for spec in random.Random(5).sample(known, min(len(known), 300))
    ]
    # Where there is no cache, or none of all that ran before this test, a few are compiled again.
    for code in [code for code in codes if code][:80] or map(compile.load_object, known[:4]):
        yield code, (ENTRY,)
    yield compile.objects([pool._unit()])[0], ("run", "worker", "wake", "spin")
    yield compile.objects([unit()])[0], SYMBOLS


def test_code_is_what_llvm_makes_of_it_but_for_where_things_are() -> None:
    seen: set[int] = set()
    for code, symbols in some_objects():
        file = ELFFile(io.BytesIO(code))
        (text,) = (i for i, x in enumerate(file.iter_sections()) if x.name == ".text")
        table = file.get_section_by_name(".symtab")
        places = {x.name: x["st_value"] for x in table.iter_symbols() if x["st_shndx"] == text}
        name = next(x for x in symbols if x in places)
        bases = [link(code, (name,))[0] - places[name] for link in (elf.load, jit.link)]
        seen |= compared(file, text, *bases)
    assert seen == {2, 4, 42}


def compared(file: ELFFile, text: int, ours: int, theirs: int) -> set[int]:
    """The kinds of relocations of the code at two places, which says the same in both."""
    size, table = file.get_section(text)["sh_size"], file.get_section_by_name(".symtab")
    codes = [bytearray(ctypes.string_at(base, size)) for base in (ours, theirs)]
    found = set()
    for section in file.iter_sections():
        if not isinstance(section, RelocationSection) or section["sh_info"] != text:
            continue
        for x in section.iter_relocations():
            at, kind, symbol = x["r_offset"], x["r_info_type"], table.get_symbol(x["r_info_sym"])
            meant = [
                target(base, code, at, kind, base + at + struct.unpack_from("<i", code, at)[0] - x["r_addend"])
                for base, code in zip((ours, theirs), codes, strict=True)
            ]
            home = symbol["st_shndx"]
            if home == "SHN_UNDEF":
                assert meant[0] == meant[1] == ctypes.cast(ctypes.CDLL(None)[symbol.name], ctypes.c_void_p).value
            elif home == text:
                assert meant[0] - ours == meant[1] - theirs == symbol["st_value"]
            elif not file.get_section(home)["sh_flags"] & 1:  # what is written holds addresses of its own
                begins = [place - symbol["st_value"] for place in meant]
                same_data(
                    file, home, [(begin, begin - base) for begin, base in zip(begins, (ours, theirs), strict=True)]
                )
            for code in codes:
                code[at - 2 * (kind == 42) : at + 4] = bytes(4 + 2 * (kind == 42))
            found.add(kind)
    assert codes[0] == codes[1]
    return found


def same_data(file: ELFFile, home: int, places: list[tuple[int, int]]) -> None:
    """What is only read lies at both places (address, and distance from the code) as the file has it, but for distances
    of code, of which tables of jumps are made: these mean the same."""
    data = bytearray(file.get_section(home).data())
    found = [bytearray(ctypes.string_at(begin, len(data))) for begin, _ in places]
    sections = [x for x in file.iter_sections() if isinstance(x, RelocationSection) and x["sh_info"] == home]
    for x in [x for section in sections for x in section.iter_relocations()]:
        at = x["r_offset"]
        assert x["r_info_type"] == 2
        means = {
            away + at + struct.unpack_from("<i", mine, at)[0] for mine, (_, away) in zip(found, places, strict=True)
        }
        assert len(means) == 1
        for each in (data, *found):
            each[at : at + 4] = bytes(4)
    assert found[0] == found[1] == data


def target(base: int, code: bytearray, at: int, kind: int, place: int) -> int:
    """The address that a relocated instruction means, whatever jump or slot it goes by."""
    if kind == 42 and code[at - 2] != 0x8D:  # LLVM takes the address itself where it is near enough
        return int(ctypes.c_uint64.from_address(place).value)
    if kind == 4 and not 0 <= place - base < len(code) and ctypes.string_at(place, 2) == b"\xff\x25":
        distance = ctypes.c_int32.from_address(place + 2).value
        return int(ctypes.c_uint64.from_address(place + 6 + distance).value)
    return place


def test_no_page_is_written_and_run(code: bytes) -> None:
    *_, count, zeros = elf.load(code, SYMBOLS)
    with open("/proc/self/maps") as maps:
        pages = [line.split()[:2] for line in maps]

    def allowed(address: int) -> str:
        return next(mode for span, mode in pages if address in range(*(int(x, 16) for x in span.split("-"))))

    assert (allowed(count), allowed(zeros)) == ("r-xp", "rw-p")


# Where an object says what, by the field's place: of the header, a section, a symbol, a relocation.
def sections(code: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """(where it stands, its fields) of each section."""
    start, size, count = *struct.unpack_from("<Q", code, 40), *struct.unpack_from("<HH", code, 58)
    return [(start + i * size, struct.unpack_from("<IIQQQQIIQQ", code, start + i * size)) for i in range(count)]


def changed(code: bytes, at: int, form: str, *values: int) -> bytes:
    made = bytearray(code)
    struct.pack_into(form, made, at, *values)
    return bytes(made)


def of_section(kind: int, field: int, value: int) -> Callable[[bytes], bytes]:
    """Another value in a field of the first section of a kind that a process has, or that is no part of one."""
    places = (0, 4, 8, 16, 24, 32, 40, 44, 48, 56)

    def change(code: bytes) -> bytes:
        at = next(at for at, x in sections(code) if x[1] == kind and (x[2] & 2 or kind in (2, 3, 4)) and x[5])
        return changed(code, at + places[field], "<I" if places[field] in (0, 4, 40, 44) else "<Q", value)

    return change


def of_relocation(place: int, form: str, value: int) -> Callable[[bytes], bytes]:
    """Another value in a field of the first relocation of code."""

    def change(code: bytes) -> bytes:
        start = next(x[4] for _, x in sections(code) if x[1] == 4 and sections(code)[x[7]][1][2] & 4)
        return changed(code, start + place, form, value)

    return change


def of_symbols(place: int, form: str, value: int) -> Callable[[bytes], bytes]:
    """Another value in a field of every symbol of code that others may name."""

    def change(code: bytes) -> bytes:
        start, size = next((x[4], x[5]) for _, x in sections(code) if x[1] == 2)
        for at in range(start, start + size, 24):
            if code[at + 4] == 0x12:
                code = changed(code, at + place, form, value)
        return code

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda code: code[:63], "it is shorter than a header"),
        (lambda code: code[:-1], "it ends within a section"),
        (lambda code: b"\x7fELG" + code[4:], "it is no relocatable ELF file of x86-64"),
        (lambda code: changed(code, 18, "<H", 183), "it is no relocatable ELF file of x86-64"),
        (lambda code: changed(code, 58, "<H", 63), "it has entries of 63 bytes, not 64"),
        (lambda code: changed(code, 40, "<Q", 2**63), "it ends within a section"),
        (of_section(1, 1, 14), "it has a section of kind 0xe"),
        (of_section(1, 2, 0x406), "it has a section of kind 0x1 with flags 0x406"),
        (of_section(1, 2, 7), "it has code that is written"),
        (of_section(1, 8, 48), "it has a section at multiples of 48 bytes"),
        (of_section(1, 8, 8192), "it has a section at multiples of 8192 bytes"),
        (of_section(1, 4, 2**62), "it ends within a section"),
        (of_section(8, 5, 2**40), "it takes more than 268435456 bytes"),
        (of_section(2, 1, 3), "it has 0 tables of symbols"),
        (of_section(2, 6, 99), "it has no section of a number that it names"),
        (of_section(4, 6, 0), "it has relocations of no contents, or of another table's symbols"),
        (of_section(4, 7, 99), "it has no section of a number that it names"),
        (of_section(4, 5, 25), "it has entries of 24 bytes, not 24"),
        (of_relocation(0, "<Q", 2**40), "it has a relocation beyond an end"),
        (of_relocation(8, "<I", 10), "it has a relocation of kind 10"),
        (of_relocation(12, "<I", 9999), "it has a relocation beyond an end"),
        (of_relocation(12, "<I", 0), "it names a symbol that need not be there"),
        (of_relocation(16, "<q", 2**31), "what a relocation says does not fit"),
        (of_relocation(16, "<q", -(2**63)), "what a relocation says does not fit"),
        (of_symbols(0, "<I", 2**31), "it has a name beyond its end"),
        (of_symbols(4, "<B", 0x16), "it has a symbol that is no place in it"),
        (of_symbols(6, "<H", 0xFFF1), "it has a symbol that is no place in it"),
        (of_symbols(8, "<Q", 2**63), "it has a symbol that is no place in it"),
        (lambda code: code.replace(b"\0strlen\0", b"\0strlem\0"), "this process has no symbol 'strlem'"),
        (lambda code: code.replace(b"\0through\0", b"\0thraugh\0"), "it has no symbol 'through'"),
    ],
)
def test_what_is_not_known_is_said(code: bytes, change: Callable[[bytes], bytes], said: str) -> None:
    with pytest.raises(elf.UnknownObjectError) as refused:
        elf.load(change(code), SYMBOLS)
    assert str(refused.value) == said


def test_a_damaged_object_is_refused_or_linked_but_nothing_else_happens(code: bytes) -> None:
    r = random.Random(11)
    refused = 0
    for _ in range(400):
        made = bytearray(code[: r.choice([len(code), r.randrange(len(code))])])
        for _ in range(r.choice([1, 3, 30])):
            if made:
                made[r.randrange(len(made))] = r.choice([0, 1, 255, r.randrange(256)])
        try:
            elf.load(bytes(made), SYMBOLS)
        except elf.UnknownObjectError:
            refused += 1
    assert 100 < refused < 400


def test_what_is_not_known_llvm_links_and_it_is_told(code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "_left", {})
    assert answers(compile.link_all(code, SYMBOLS))[0] == 42
    assert compile.left_to_llvm() == ()
    monkeypatch.setattr(sys, "platform", "other")
    assert answers(compile.link_all(code, SYMBOLS))[0] == 42
    assert compile.left_to_llvm() == ("this machine is no Linux on x86-64",)


REFUSED = """
import ctypes, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE: what was written may not be run
    sys.exit("no such call")
import numpy as np
import samebits as sb
from samebits.doctor import report
from samebits.native import elf
print(report.machine().linker)
x = np.ones(3, np.float32)
for other in ("", "other machines' objects are LLVM's to link"):
    elf.other_machine = lambda: other
    try:
        sb.add(x, x)
    except sb.errors.NativeError as error:
        print(error)
with sb.use_isa("numpy"):
    print(sb.add(x, x))
"""


def test_a_process_that_may_run_nothing_that_it_wrote_is_told_so() -> None:
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True)
    if done.stderr == "no such call\n":
        pytest.skip("Linux before 6.3 has no such limit")
    said = "compile: memory for code is refused (Permission denied), must be granted"
    said += "; let this process run what it wrote, or use_isa('numpy')"
    linker = "none: memory for code is refused (Permission denied)"
    assert (done.stdout.splitlines(), done.stderr) == ([linker, said, said, "[2. 2. 2.]"], "")


def test_the_doctor_says_who_links(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report.machine().linker == "samebits"
    monkeypatch.setattr(sys, "platform", "other")
    assert report.machine().linker == "LLVM: this machine is no Linux on x86-64"
    with pytest.raises(elf.UnknownObjectError, match=r"^this machine is no Linux on x86-64$"):
        elf.load(b"", ())


def test_threads_link_at_once(code: bytes) -> None:
    found: list[list[object]] = []
    threads = [
        threading.Thread(target=lambda: found.append([answers(compile.link_all(code, SYMBOLS)) for _ in range(20)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(x[5] == [41, 42] and x[0] == 42 for each in found for x in each)


FORKED = """
import os, sys, threading
sys.path.insert(0, sys.argv[1])
import test_elf as t
code = t.compile.objects([t.unit()])[0]
before = t.compile.link_all(code, t.SYMBOLS)
t.answers(before)
child = os.fork()
if not child:
    ours = t.answers(before)[5] == [43, 44]  # what was written before the fork is the child's too
    os._exit(0 if ours and t.answers(t.compile.link_all(code, t.SYMBOLS))[5] == [41, 42] else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), t.answers(before)[5])
"""


def test_the_child_of_a_fork_has_what_was_linked_and_links_more() -> None:
    command = [sys.executable, "-c", FORKED, os.path.dirname(__file__)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0 [43, 44]\n"
