"""What the processor says of itself, beside what the system says of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from samebits import cpuid, executable

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="CPUID is an instruction of x86-64"
)

# Which word has leaf 1's ECX, leaf 7's EBX and ECX, its second part's EAX, and the bits by Linux's names.
FLAGS = {
    5: {"fma": 12, "movbe": 22, "avx": 28, "f16c": 29},
    8: {"avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "avx512bw": 30, "avx512vl": 31},
    9: {"avx512_vnni": 11},
    10: {"amx_bf16": 22, "amx_tile": 24, "amx_int8": 25},
    11: {"avx_vnni": 4, "avx512_bf16": 5},
}


def told() -> dict[str, str]:
    """What Linux says of the first processor."""
    with open("/proc/cpuinfo") as file:
        lines = file.read().partition("\n\n")[0].splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_words_are_what_the_system_read_too() -> None:
    words, linux = cpuid.words(), told()
    assert words is not None
    assert b"".join(words[i].to_bytes(4, "little") for i in (1, 3, 2)).decode() == linux["vendor_id"]
    signature = words[4]
    family, model = signature >> 8 & 15, signature >> 4 & 15
    if family in (6, 15):
        model |= signature >> 12 & 0xF0
    assert family + (signature >> 20 & 255 if family == 15 else 0) == int(linux["cpu family"])
    assert (model, signature & 15) == (int(linux["model"]), int(linux["stepping"]))
    # The system may keep an instruction from programs, or not know it; it makes none up.
    for at, bits in FLAGS.items():
        for name, bit in bits.items():
            assert words[at] >> bit & 1 or name not in linux["flags"].split(), name
    state = words[-2]
    assert not {"avx", "avx512f"} & {*linux["flags"].split()} or state & 6 == 6


def test_every_core_and_every_process_reads_the_same() -> None:
    program = "from samebits import cpuid; print(cpuid.words())"
    for core in sorted(os.sched_getaffinity(0))[:4]:
        run = f"import os; os.sched_setaffinity(0, {{{core}}}); {program}"
        done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == repr(cpuid.words())


def test_where_code_cannot_be_run_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(executable, "placed", refuse)
    assert cpuid.words.__wrapped__() is None
    monkeypatch.undo()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cpuid.words.__wrapped__() is None
