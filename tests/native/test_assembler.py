"""LLVM text to an object file, with nothing of the package's loaded but that."""

from __future__ import annotations

import gc
import os
import pathlib
import struct
import subprocess
import sys

import apart
import pytest

from samebits.codegen import isa as isas
from samebits.native import assembler, compile

TEXT = "define i64 @f(i64 %x) {\n  ret i64 %x\n}\n"


def processor() -> assembler.Processor:
    host = next(row for row in isas.ROWS if row.compiled and row.available)
    return compile.processor(host.target())


def test_the_same_text_gives_the_same_object() -> None:
    code = assembler.object_code(TEXT, processor())
    assert code == assembler.object_code(TEXT, processor())
    assert code != assembler.object_code(TEXT.replace("ret i64 %x", "ret i64 7"), processor())


def test_each_architecture_has_its_object() -> None:
    arm = assembler.Processor("aarch64-unknown-linux-gnu", "generic", "+neon")
    intel = assembler.Processor("x86_64-unknown-linux-gnu", "x86-64", "")
    machines = [assembler.object_code(TEXT, each)[18] for each in (arm, intel)]  # e_machine of ELF
    assert machines == [183, 62]


def padded(option: str, cpu: str = "x86-64") -> tuple[int, int]:
    """Of an object with 64 jumps: bytes of its code, and the multiple that it lies at."""
    blocks = "".join(
        f"b{n}:\n  store volatile i32 {n}, ptr %p\n  %x{n} = load volatile i1, ptr %p\n"
        f"  br i1 %x{n}, label %b{n + 1}, label %end\n"
        for n in range(64)
    )
    text = f"define void @f(ptr %p) {{\n  br label %b0\n{blocks}b64:\n  br label %end\nend:\n  ret void\n}}\n"
    code = assembler.object_code(text, assembler.Processor("x86_64-unknown-linux-gnu", cpu, "", option))
    at, count = struct.unpack_from("<Q", code, 40)[0], struct.unpack_from("<H", code, 60)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, at + 64 * n) for n in range(count)]
    executable = [(size, alignment) for _, _, flags, _, _, size, _, _, alignment, _ in sections if flags & 4]
    return max(executable)


def test_jumps_are_kept_from_the_ends_of_32_bytes_where_they_are_slow_there() -> None:
    """And so they are for a second processor of the same process, for which the option is set again."""
    (plain_bytes, _), *kept = ([int(x) for x in each.split(",")] for each in apart.printed(__file__, "jumps").split())
    assert len(kept) == 2
    for kept_bytes, alignment in kept:
        assert kept_bytes > plain_bytes
        assert alignment == 32


@pytest.mark.parametrize(("cpu", "option"), [("cascadelake", assembler.PADDING), ("znver4", "")])
def test_only_processors_that_need_it_have_their_code_padded(
    monkeypatch: pytest.MonkeyPatch, cpu: str, option: str
) -> None:
    monkeypatch.setattr(compile, "_HOST", compile._HOST._replace(cpu=cpu))
    row = next(row for row in isas.ROWS if row.compiled and row.available)
    assert compile.processor(row.target()).option == option
    other = next(target for row in isas.ROWS for target in row.targets if target.arch != isas.host_arch())
    assert compile.processor(other).option == ""


@pytest.mark.parametrize("text", ["define nonsense", "define i64 @f(i64 %x) {\n  ret i64 %y\n}\n"])
def test_a_text_that_llvm_refuses_raises_its_reason(text: str) -> None:
    with pytest.raises(RuntimeError, match="LLVM IR parsing error"):
        assembler.object_code(text, processor())


def test_a_compiler_process_imports_little() -> None:
    ours = "sorted(x for x in sys.modules if x.startswith('samebits'))"
    program = f"import sys, samebits.native.compiler; print(*{ours}, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = ("", ".demand", ".forks", ".hot", ".native", ".native.assembler", ".native.board", ".native.compiler")
    assert done.stdout == f"{' '.join('samebits' + name for name in loaded)} False\n"


def growth() -> int:
    """Bytes that 200 compilations add after 60, by each list of passes in turn."""
    marks = []
    for number in range(261):
        if number in (60, 260):
            gc.collect()
            marks.append(int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        assembler.object_code(TEXT, processor(), ("", assembler.KERNEL_PASSES)[number % 2])
    return marks[1] - marks[0]


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of a process")
def test_compiling_again_and_again_takes_flat_memory() -> None:
    # LLVM's pipeline alone would keep 48 KB of this text each time, where llvmlite does not free it.
    assert int(apart.printed(__file__)) < 1 << 20


if __name__ == "__main__":
    if sys.argv[1:] == ["jumps"]:
        made = [padded(""), padded(assembler.PADDING), padded(assembler.PADDING, "haswell")]
        print(*(f"{size},{alignment}" for size, alignment in made))
    else:
        print(growth())
