"""What LLVM says of the machine is remembered for this machine and this LLVM, and for no other."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from samebits import cache, cpuid
from samebits.codegen import host

PROGRAM = (
    "import sys; from samebits.codegen import host; found = host.host();"
    "print('llvmlite.binding' in sys.modules, found[:3], sorted(found.features))"
)
pytestmark = pytest.mark.skipif(cpuid.words() is None, reason="this processor is not told apart, so LLVM is asked")


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache directory in force for this test."""
    path = tmp_path / "cache"
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(path))
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[host.Host]:
    """Each answer of LLVM's in this test."""
    found: list[host.Host] = []
    ask = host._asked
    monkeypatch.setattr(host, "_asked", lambda: found.append(ask()) or found[-1])
    return found


def again() -> host.Host:
    """As a fresh process finds it."""
    return host.host.__wrapped__()


def test_a_second_process_knows_without_loading_llvm(folder: pathlib.Path) -> None:
    first, second = (
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert (first.split()[0], second.split()[0]) == ("True", "False")
    assert first.split(maxsplit=1)[1] == second.split(maxsplit=1)[1]
    assert [path.name[:5] for path in folder.iterdir()] == ["host-"]


def test_what_is_remembered_is_what_llvm_says(folder: pathlib.Path, asked: list[host.Host]) -> None:
    assert again() == again() == asked[0]
    assert len(asked) == 1


def test_another_processor_or_llvm_is_asked_for_itself(
    folder: pathlib.Path, asked: list[host.Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    again()
    words = cpuid.words()
    assert words is not None
    for i in range(len(words)):  # each of them tells
        monkeypatch.setattr(cpuid, "words", lambda i=i: (*words[:i], words[i] ^ 1, *words[i + 1 :]))
        again()
    assert len(asked) == len(words) + 1
    monkeypatch.setattr(cpuid, "words", lambda: words)
    again()
    assert len(asked) == len(words) + 1
    library = host._library()
    assert library is not None
    monkeypatch.setattr(host, "_library", lambda: (*library[:2], library[2] + 1))
    again()
    assert len(asked) == len(words) + 2


@pytest.mark.parametrize("nobody", ["words", "library", "directory"])
def test_where_it_cannot_be_told_apart_or_kept_llvm_is_asked_each_time(
    nobody: str, folder: pathlib.Path, asked: list[host.Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    if nobody == "words":
        monkeypatch.setattr(cpuid, "words", lambda: None)
    elif nobody == "library":
        monkeypatch.setattr(host, "_library", lambda: None)
    else:
        monkeypatch.setenv("SAMEBITS_CACHE_DIR", "")
    assert again() == again()
    assert len(asked) == 2
    assert not folder.exists()


def test_llvms_file_is_not_loaded_to_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding as llvm

    library = host._library()
    assert library is not None
    assert os.path.samefile(library[0], llvm.ffi.lib._name) if hasattr(llvm.ffi.lib, "_name") else library[1] > 1 << 20
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert host._library() is None


@pytest.mark.parametrize(
    "record",
    [b"", b"\xff\n\n\n", b"20 1 8", b"20 1 8\nx86_64\nznver4", b"x\nx86_64\nznver4\nsse2", b"1\nt\nc\nf\n"],
)
def test_what_is_no_record_is_as_if_absent(record: bytes, folder: pathlib.Path, asked: list[host.Host]) -> None:
    key = host._key()
    assert key is not None
    cache.write(key, record)
    assert again() == asked[0]
    assert (cache.read(key) or b"").decode().split("\n")[1] == asked[0].triple
