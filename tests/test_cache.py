"""The object cache: ours alone, whole files or none, bounded, and never the cause of an error."""

from __future__ import annotations

import os
import pathlib
import pwd
import signal
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from read_only import refuse_changes

from samebits import cache, driver, errors
from samebits.codegen import isa as isas
from samebits.codegen import llvm as emitter
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import ENTRY, Builder, KernelSpec
from samebits.dtypes import float32, int64
from samebits.native import compile


def fill(b: Builder, description: int) -> None:
    """p[0] = description."""
    b.store(b.pointer("p", int64), 0, b.constant(description, int64, 1))


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache directory in force for this test."""
    path = tmp_path / "cache"
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(path))
    return path


def spec(value: int = 7) -> KernelSpec:
    """A kernel that no other test has compiled."""
    return KernelSpec(fill, value, ("p",), _compiled())


def _compiled() -> Isa:
    rows = [row for row in isas.ROWS if row.compiled and row.available]
    if not rows:
        pytest.skip("no compiled row runs here")
    return rows[-1]


def result(code: bytes) -> int:
    """What the kernel in an object file writes."""
    import ctypes

    (address,) = compile.link_all(code, (ENTRY,))
    out = np.zeros(1, np.int64)
    arguments = np.array([out.ctypes.data], np.int64)
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(address)
    kernel(arguments.ctypes.data, 0, 1, None)
    return int(out[0])


def test_the_directory_is_created_private(folder: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        assert cache.directory() == folder
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    cache.write("k", b"payload")
    assert stat.S_IMODE((folder / "k.samebits").stat().st_mode) == 0o600


def test_what_is_written_is_read(folder: pathlib.Path) -> None:
    assert cache.read("k") is None
    cache.write("k", b"payload")
    assert cache.read("k") == b"payload"
    assert cache.size_bytes() == 32 + len(b"payload")


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o777])
def test_a_directory_that_others_may_enter_is_not_used(folder: pathlib.Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    assert cache.directory() is None
    cache.write("k", b"payload")
    assert cache.read("k") is None
    assert list(folder.iterdir()) == []
    assert result(compile.load_object(spec())) == 7


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_not_used(folder: pathlib.Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    assert cache.directory() is None
    assert result(compile.load_object(spec())) == 7


def usable(folder: pathlib.Path, key: str = "k") -> bool:
    """Whether the cache directory is taken, to write and to read."""
    found = cache.directory() is not None, cache.write(key, b"payload"), cache.read(key) == b"payload"
    assert len(set(found)) == 1
    return found[0]


@pytest.mark.parametrize("change", ["others may enter", "another user's", "a link", "a file", "gone"])
def test_the_directory_is_looked_at_each_time(folder: pathlib.Path, change: str) -> None:
    assert usable(folder)
    moved = folder.with_name("moved")
    if change == "others may enter":
        folder.chmod(0o711)
    elif change == "another user's":
        if os.getuid():
            pytest.skip("only root can give a directory away")
        os.chown(folder, 12345, -1)
    else:
        folder.rename(moved)
        if change == "a link":
            folder.symlink_to(moved)
        elif change == "a file":
            folder.write_text("not a directory")
    assert usable(folder) is (change == "gone")  # there is nothing in the way of a new one
    assert result(compile.load_object(spec())) == 7


def test_what_was_opened_is_what_is_read(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who may rename in the parent changes the directory just after it was looked at."""
    opened, looked, theirs = os.open, os.fstat, folder.with_name("theirs")
    cache.write("k", b"ours")
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(theirs))
    cache.write("k", b"theirs")
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(folder))
    descriptors = []

    def swap(descriptor: int) -> os.stat_result:
        facts = looked(descriptor)
        if stat.S_ISDIR(facts.st_mode):
            folder.rename(folder.with_name("ours"))
            theirs.rename(folder)
        return facts

    def note(path: str, flags: int, *rest: int, **place: int) -> int:
        descriptors.append(opened(path, flags, *rest, **place))
        return descriptors[-1]

    with monkeypatch.context() as patch:
        patch.setattr(cache.os, "fstat", swap)
        patch.setattr(cache.os, "open", note)
        assert cache.read("k") == b"ours"
    assert cache.read("k") == b"theirs"
    assert len(descriptors) == 2
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            looked(descriptor)


@pytest.mark.parametrize("change", ["others may write", "its group may write", "another user's", "a link"])
def test_an_object_that_another_may_have_written_is_compiled_again(folder: pathlib.Path, change: str) -> None:
    kernel = spec()
    good = compile.load_object(kernel)
    (path,) = folder.glob("*.samebits")
    key = path.stem
    if change == "another user's":
        if os.getuid():
            pytest.skip("only root can give a file away")
        os.chown(path, 12345, -1)
    elif change == "a link":
        path.rename(folder / "elsewhere")
        path.symlink_to("elsewhere")
    else:
        path.chmod(0o602 if change == "others may write" else 0o620)
    assert cache.read(key) is None
    assert compile.load_object(kernel) == good
    assert cache.read(key) == good
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["pipe", "directory", "socket"])
def test_what_is_no_file_is_no_object_and_nothing_waits_for_it(folder: pathlib.Path, kind: str) -> None:
    def stop(*_: object) -> None:
        raise AssertionError("the cache waits")  # an OSError would be taken for an answer

    assert cache.directory() == folder
    path = folder / "k.samebits"
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        else:
            listening.bind(str(path))
        before = signal.signal(signal.SIGALRM, stop)
        signal.alarm(300)
        try:
            assert cache.read("k") is None
            assert cache.write("k", b"payload") is (kind != "directory")
            assert cache.read("k") == (None if kind == "directory" else b"payload")
            cache.trim(0)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)


def test_objects_that_changed_names_are_compiled_again(folder: pathlib.Path) -> None:
    kernels = [spec(1), spec(2)]
    good = [compile.load_object(kernel) for kernel in kernels]
    first, second = folder.glob("*.samebits")
    between = folder / "between"
    first.rename(between)
    second.rename(first)
    between.rename(second)
    assert cache.read(first.stem) is None
    assert cache.read(second.stem) is None
    assert [result(compile.load_object(kernel)) for kernel in kernels] == [1, 2]
    assert [compile.load_object(kernel) for kernel in kernels] == good


def test_a_key_and_its_payload_cannot_be_divided_otherwise(folder: pathlib.Path) -> None:
    cache.write("ab", b"cd")
    (folder / "ab.samebits").rename(folder / "a.samebits")
    path = folder / "a.samebits"
    whole = path.read_bytes()
    path.write_bytes(whole[:32] + b"bcd")
    assert cache.read("a") is None


def test_a_file_in_the_way_is_no_error(folder: pathlib.Path) -> None:
    folder.write_text("not a directory")
    assert cache.directory() is None
    assert result(compile.load_object(spec())) == 7


def test_a_directory_that_cannot_be_written_is_no_error(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("k", b"payload")
    folder.chmod(0o500)
    refuse_changes(monkeypatch)
    assert cache.read("k") == b"payload"
    cache.write("l", b"payload")
    assert cache.read("l") is None
    assert result(compile.load_object(spec())) == 7


def test_a_full_disk_leaves_no_half_file(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", refuse)
    cache.write("k", b"payload")
    assert list(folder.iterdir()) == []


def test_an_interrupt_leaves_no_half_file(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cache.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.write("a", b"b")
    assert not list(folder.iterdir())


def test_a_directory_that_vanishes_is_no_error(folder: pathlib.Path) -> None:
    assert cache.directory() == folder
    folder.rmdir()
    cache.write("k", b"payload")
    cache.trim(0)
    assert cache.read("k") is None
    assert cache.size_bytes() == 0


def test_an_empty_variable_turns_the_cache_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", "")
    assert cache.directory() is None


def test_without_a_home_there_is_no_cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SAMEBITS_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def nobody(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.chdir(tmp_path)
    assert cache.directory() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chosen", ["~", "~/c", "~/c/d"])
def test_a_home_that_no_shell_wrote_out_is_meant(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", chosen)
    monkeypatch.chdir(tmp_path)
    assert cache.directory() == home / chosen[2:]
    assert list(tmp_path.iterdir()) == [home]


def test_the_home_of_nobody_is_no_directory_of_that_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", "~nobody of this name/c")
    monkeypatch.chdir(tmp_path)
    assert cache.directory() is None
    assert not cache.write("k", b"payload")
    assert list(tmp_path.iterdir()) == []


def test_directories_on_the_way_are_private_too(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(tmp_path / "a" / "b" / "c"))
    before = os.umask(0)
    try:
        assert cache.write("k", b"payload")
    finally:
        os.umask(before)
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_system_that_says_otherwise_of_a_directory_that_exists_has_a_cache(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS says of its root that it is a directory, automounters and read-only systems that they make none."""
    made = os.mkdir

    def mkdir(path: str, mode: int) -> None:
        if os.path.isdir(path):
            raise IsADirectoryError(21, "Is a directory", path)
        made(path, mode)

    monkeypatch.setattr(os, "mkdir", mkdir)
    assert cache.write("key", b"payload")
    assert cache.read("key") == b"payload"


def test_the_default_is_below_the_home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAMEBITS_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification: ignore it
    assert cache.directory() == tmp_path / ".cache" / "samebits"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache.directory() == tmp_path / "x" / "samebits"


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "digest of nothing"])
def test_a_damaged_file_is_compiled_again(folder: pathlib.Path, damage: str) -> None:
    kernel = spec()
    good = compile.load_object(kernel)
    (path,) = folder.glob("*.samebits")
    whole = path.read_bytes()
    assert whole[32:] == good
    path.write_bytes(
        {
            "truncate": whole[: len(whole) // 2],
            "flip": whole[:100] + bytes([whole[100] ^ 1]) + whole[101:],
            "empty": b"",
            "digest of nothing": bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        }[damage]
    )
    assert compile.load_object(kernel) == good
    assert path.read_bytes() == whole


def test_a_warm_cache_emits_no_text(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = spec()
    code = compile.load_object(kernel)

    def refuse(_: KernelSpec) -> str:
        raise AssertionError("a text was emitted")

    monkeypatch.setattr(emitter, "emit", refuse)
    assert compile.load_object(kernel) == code
    assert result(code) == 7
    with pytest.raises(AssertionError):
        compile.load_object(spec(8))


def tenths(b: Builder, description: int) -> None:
    """p[0], p[1] = 0.1 and a subnormal, rounded to float32."""
    for i, value in enumerate((0.1, 1e-40)):
        b.store(b.pointer("p", float32), i, b.constant(value, float32, 1))


def test_objects_do_not_depend_on_the_callers_rounding_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    import launch

    monkeypatch.setenv("SAMEBITS_CACHE_DIR", "")
    kernel = replace(spec(), text=tenths)
    expected, library = compile.load_object(kernel), driver.libc()
    for mode in (0x400, 0x800, 0xC00) if isas.host_arch() == "x86_64" else (0x400000, 0x800000, 0xC00000):
        assert library.fesetround(mode) == 0
        try:
            found = compile.load_object(kernel)
        finally:
            library.fesetround(0)
        assert found == expected
    with launch.flushing():
        assert compile.load_object(kernel) == expected


def test_compiling_twice_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", "")
    assert compile.load_object(spec()) == compile.load_object(spec())


def test_everything_that_decides_the_code_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = spec()
    target = kernel.isa.target()
    here = compile.key(kernel, target)
    others = {
        compile.key(spec(8), target),
        compile.key(replace(kernel, isa=replace(kernel.isa, registers=9)), target),
        compile.key(replace(kernel, parameters=("q",)), target),
        compile.key(kernel, replace(target, features="+other")),
        compile.key(replace(kernel, text=test_what_is_written_is_read), target),
    }
    with monkeypatch.context() as patch:
        patch.setattr(compile.samebits, "__version__", "0.0.other")
        others.add(compile.key(kernel, target))
    with monkeypatch.context() as patch:
        patch.setattr(compile, "_HOST", compile._HOST._replace(llvm=(1, 2, 3)))
        others.add(compile.key(kernel, target))
    for module in (spec.__module__, "samebits.codegen.rules", "samebits.native.assembler"):
        with monkeypatch.context() as patch:
            patch.setattr(compile.sources, "digest", lambda modules, module=module: module if module in modules else "")
            others.add(compile.key(kernel, target))
    assert len(others) == 10
    assert here not in others
    assert compile.key(kernel, target) == here


def test_a_description_without_a_value_of_its_own_is_refused() -> None:
    kernel = replace(spec(), description=("x", spec))
    with pytest.raises(errors.NativeError, match=r"description is .*, must be plain values; give rows or names"):
        compile.key(kernel, kernel.isa.target())


def test_the_least_recently_used_go_first(folder: pathlib.Path) -> None:
    for k in range(6):
        cache.write(f"k{k}", bytes(968))
        os.utime(folder / f"k{k}.samebits", (k + 1, k + 1))
    assert cache.read("k0") is not None  # now the most recently used
    cache.trim(3000)
    assert sorted(p.name for p in folder.iterdir()) == ["k0.samebits", "k4.samebits", "k5.samebits"]
    assert cache.size_bytes() <= 3000


def test_what_is_not_ours_in_the_directory_is_neither_counted_nor_removed(folder: pathlib.Path) -> None:
    folder.mkdir(mode=0o700)
    foreign = [folder / name for name in ("thesis.pdf", "main.o", "draft.tmp")]
    for path in foreign:
        path.write_bytes(bytes(5000))
    cache.write("k", bytes(968))
    left = folder / "crashed.samebits.tmp"
    left.write_bytes(bytes(100))
    assert cache.size_bytes() == 1100
    cache.trim(0)
    assert sorted(folder.iterdir()) == sorted(foreign)


def test_a_directory_of_the_real_user_is_foreign_to_the_effective_one(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(cache.os, "geteuid", lambda: os.getuid() + 1)
    assert cache.directory() is None


def test_writing_keeps_the_bound(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LIMIT_BYTES", 4000)
    for k in range(300):
        cache.write(f"k{k}", bytes(968))
    assert cache.size_bytes() <= 4000 + 64 * 1000  # looked at once in 64 writes


WORKER = """
import sys
import test_cache
from samebits.native import compile
print("ready", flush=True)
sys.stdin.readline()
print(sum(test_cache.result(compile.load_object(test_cache.spec(k))) for k in range(6)))
"""


def test_many_processes_compile_the_same_kernels_at_once(folder: pathlib.Path) -> None:
    import samebits

    sources = pathlib.Path(samebits.__file__).parents[1]
    paths = os.pathsep.join([str(pathlib.Path(__file__).parent), str(sources)])
    environment = {**os.environ, "PYTHONPATH": paths}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([sys.executable, "-c", WORKER], env=environment, **pipes) for _ in range(8)]
    assert [p.stdout.readline() for p in running] == ["ready\n"] * 8
    for p in running:
        p.stdin.write("\n")
        p.stdin.flush()
    assert [p.communicate(timeout=600)[0].strip() for p in running] == ["15"] * 8
    assert len([p for p in folder.glob("*.samebits") if not p.name.startswith(("host-", "sources-"))]) == 6
    assert list(folder.glob("*.tmp")) == []
    assert all(cache.read(p.stem) is not None for p in folder.glob("*.samebits"))


def test_an_object_that_does_not_link_is_one_clear_error() -> None:
    with pytest.raises(errors.NativeError, match="compile: object is refused "):
        compile.link_all(b"no object", (ENTRY,))
    code = compile.load_object(spec())
    with pytest.raises(errors.NativeError, match="compile: object is refused "):
        compile.link_all(code, ("absent",))
    assert result(code) == 7  # the linker works on
