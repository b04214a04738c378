"""What keys are made of: all that a text depends on, found by reading imports, and nothing that it cannot reach."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import size_report

import samebits
from samebits import cache, tuning
from samebits.kernels.elementwise import Elementwise
from samebits.native import sources

PACKAGE = pathlib.Path(samebits.__file__).parent
MODULES = {
    ".".join(("samebits", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
TEXTS = [name for name in MODULES if name.startswith(("samebits.kernels", "samebits.codegen", "samebits.native"))]


def imported(path: pathlib.Path) -> set[str]:
    """The modules of the package that a file imports, as Python's own parser has it, but for the front door."""
    found: set[str] = set()
    for node in ast.walk(size_report.parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else node.module or "")
    return found & MODULES.keys() - {"samebits"}


@pytest.mark.parametrize("name", [name for name in MODULES if name != "samebits"])
def test_imports_are_those_that_python_sees(name: str) -> None:
    assert sources.closure([name]) >= imported(MODULES[name])


def test_a_closure_ends_and_holds_what_its_modules_import() -> None:
    found = sources.closure(["samebits.kernels.gemm.macrokernel"])
    assert found == {"samebits.kernels.gemm.macrokernel"} | {x for name in found for x in imported(MODULES[name])}
    assert "samebits.tensor" not in found
    assert "samebits.kernels.reduce" not in found


def test_modules_that_are_not_there_or_not_ours_count_as_themselves() -> None:
    own = sources.closure([__name__])
    assert own >= {__name__, "samebits.tuning"}
    assert sources.digest([__name__]) != sources.digest(["samebits.nowhere"]) != sources.digest([])


def test_tuned_rows_are_keyed_by_modules_that_there_are() -> None:
    assert set(tuning.MEASURED) <= MODULES.keys()


def test_values_bring_the_modules_of_their_classes_and_functions() -> None:
    @dataclass(frozen=True)
    class Foreign:
        inner: object

    value = (1, "a", [Foreign({samebits.dtypes.float32: len, 2: frozenset([Elementwise])})], sources.closure)
    assert sources.modules_of(value) == {"samebits.dtypes", "samebits.kernels.elementwise", "samebits.native.sources"}


# Kernels of every room are planned and emitted; what runs meanwhile is noted. Nothing is compiled.
RECORD = """
import json, pathlib, shutil, sys
import ml_dtypes, numpy as np, samebits as sb
from samebits.codegen import llvm as emitter
from samebits.native import compile, pool, sources, table
specs = {}
pool.link = lambda found: specs.update(dict.fromkeys(found))
pool.run_function = lambda: None
compile.address = lambda spec: 0
table.Table._run_native = lambda self, frame: None
x, y = np.ones((9, 20), np.float32), np.ones((20, 33), np.float32)
narrow = [x.astype(t) for t in (ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn, np.int8, np.uint8)]
for a in (x, *narrow):
    sb.matmul(a, a.T)
    sb.matmul(np.concatenate([a] * 20), a.T)
    sb.contiguous(a.T)
    sb.copy(sb.Tensor.from_any(a)[:, ::2])
for name in "float4_e2m1fn float6_e2m3fn int4".split():
    t = sb.Tensor.zeros((20, 64), dtype=name)
    sb.contiguous(t.T)
    sb.to_padded(t)
    sb.to_packed(sb.to_padded(t))
    sb.matmul(x, sb.pack(t, left="float32"))
sb.matmul(x, sb.pack(y))
sb.linear(x, y.T, np.ones(33, np.float32))
sb.grad_bias(x)
for f in (sb.exp, sb.erf, sb.gelu, sb.sqrt, sb.reciprocal, sb.relu, sb.negative, sb.abs):
    f(x)
for f in (sb.add, sb.divide, sb.maximum):
    f(x, x)
for f in (sb.sum, sb.max, sb.mean):
    f(x, 0), f(x, 1), f(x)
    f(np.ones((3, 70000), np.float32), 1)
sb.softmax(x)
sb.layer_norm(x)
sb.cast(x, "int8")

package, copy = pathlib.Path(sb.__file__).parent, pathlib.Path(sys.argv[1])
ran = set()
def note(frame, event, _):
    if event == "call":
        ran.add(frame.f_code.co_filename)
emitted = {}
for spec in specs:
    ran.clear()
    sys.setprofile(note)
    emitter.emit(spec)
    sys.setprofile(None)
    paths = (pathlib.Path(path) for path in ran)
    emitted[spec] = {str(path.relative_to(package)) for path in paths if path.is_relative_to(package)}
shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
sources._ROOT = str(copy)
def keys():
    for cached in (sources._digest, sources._read, sources._file, sources._remembered):
        cached.cache_clear()
    return {spec: compile.key(spec, spec.isa.target()) for spec in specs}
before = keys()
told = {"specs": len(specs), "files": {}, "reused": [], "texts": sorted({spec.text.__module__ for spec in specs})}
for path in sorted(p for room in ("kernels", "codegen") for p in (copy / room).rglob("*.py")):
    name, whole = str(path.relative_to(copy)), path.read_bytes()
    path.write_bytes(whole + b"# edited\\n")
    after = keys()
    path.write_bytes(whole)
    told["files"][name] = [sum(before[s] != after[s] for s in specs), sum(name in emitted[s] for s in specs)]
    told["reused"] += [f"{s.name}: {name}" for s in specs if name in emitted[s] and before[s] == after[s]]
told["same"] = before == keys()
print(json.dumps(told))
"""


def test_no_object_is_reused_once_a_source_is_edited_that_its_text_ran(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-c", RECORD, str(tmp_path / "samebits")]
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    told = json.loads(subprocess.run(command, capture_output=True, check=True, env=environment).stdout)
    assert told["reused"] == []
    assert told["same"]
    # The test sees something: most files run for some text, and an edit of one room leaves the others' objects alone.
    ran = {name for name, (_, count) in told["files"].items() if count}
    assert {"kernels/gemm/macrokernel.py", "kernels/walk.py", "codegen/ssa.py", "kernels/functions/rounded.py"} <= ran
    changed = {name: count for name, (count, _) in told["files"].items()}
    assert changed["codegen/rules.py"] == told["specs"]
    assert 0 < changed["kernels/gemm/microkernel.py"] < told["specs"]
    assert 0 < changed["kernels/narrow_text.py"] < told["specs"] // 2
    assert changed["kernels/gemm/choice.py"] == 0


@pytest.fixture
def copied(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A copy of the package whose sources are read, with a cache of its own."""
    root = tmp_path / "samebits"
    shutil.copytree(PACKAGE, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "_ROOT", str(root))
    yield root
    forget()


def forget() -> None:
    """Begin as a new process does."""
    for cached in (sources._digest, sources._read, sources._file, sources._entries, sources._remembered):
        cached.cache_clear()
    sources._noted.clear()
    sources._began_ns = time.time_ns()


def read_anew() -> tuple[tuple[str, ...], int]:
    """Digests of two sets of modules as another process has them, and how many sources it reads."""
    forget()
    found = tuple([sources.digest([f"samebits.kernels.{name}"]) for name in ("gemm.macrokernel", "scan")])
    return found, sources._read.cache_info().misses


def test_sources_that_did_not_change_are_not_read_again(copied: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    due, count = read_anew()
    assert count > 20
    assert read_anew() == (due, count)  # as they were written just now
    monkeypatch.setattr(sources, "_SETTLED_NS", 0)
    assert [read_anew(), read_anew(), read_anew()] == [(due, count), (due, 0), (due, 0)]
    edited = copied / "kernels" / "scan.py"
    whole, facts = edited.read_bytes(), edited.stat()
    edited.write_bytes(whole[:-1] + b" ")
    os.utime(edited, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # of the same size and time, as an archive may have it
    other, read = read_anew()
    assert (other[0], read) == (due[0], count)
    assert other[1] != due[1]
    edited.write_bytes(whole)
    assert [read_anew(), read_anew()] == [(due, count), (due, 0)]
    (copied / "kernels" / "more.py").write_bytes(b"")  # an import may mean it now
    assert read_anew() == (due, count)
    (record,) = (copied.parent / "cache").glob("sources-*")
    record.write_bytes(record.read_bytes()[:-1])
    assert [read_anew(), read_anew()] == [(due, count), (due, 0)]


def test_digests_that_another_process_left_are_kept_beside_new_ones(
    copied: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_SETTLED_NS", 0)
    for name in ("scan", "reduce", "scan", "reduce"):
        forget()
        sources.digest([f"samebits.kernels.{name}"])
    assert sources._read.cache_info().misses == 0
    forget()
    sources.digest([__name__])  # whose sources are none of the package's
    assert sources._read.cache_info().misses > 0


def test_what_was_written_while_it_was_read_is_not_remembered_later(
    copied: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget()
    sources.digest(["samebits.kernels.scan"])
    later = time.time_ns() + 10 * sources._SETTLED_NS
    monkeypatch.setattr(time, "time_ns", lambda: later)  # a file may have changed since within the same tick
    sources.digest(["samebits.kernels.reduce"])
    assert not list((copied.parent / "cache").glob("sources-*"))


def test_an_image_in_which_all_has_one_time_is_read_by_each_process(
    copied: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may lie there later, in which a file of the same size and number is another."""
    own = sources._facts
    monkeypatch.setattr(sources, "_SETTLED_NS", 0)
    monkeypatch.setattr(sources, "_facts", lambda path: ",".join(["1", "1", *own(path).split(",")[2:]]))
    due, count = read_anew()
    assert read_anew() == (due, count)
    edited = copied / "kernels" / "scan.py"
    edited.write_bytes(edited.read_bytes()[:-1] + b" ")
    assert read_anew()[0][1] != due[1]


@pytest.mark.parametrize("name", ["a\rb", "a\u2028b", os.fsdecode(b"caf\xe9"), "two words"], ids=ascii)
def test_the_package_may_lie_anywhere(
    name: str, copied: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    due, count = read_anew()
    (tmp_path / name).mkdir()
    monkeypatch.setattr(sources, "_ROOT", str(copied.rename(tmp_path / name / "samebits")))
    monkeypatch.setattr(sources, "_SETTLED_NS", 0)
    assert [read_anew(), read_anew(), read_anew()] == [(due, count), (due, 0), (due, 0)]


@pytest.mark.parametrize("record", [b"file", b"file x", b"other 1 2", b"\xff\xfe", b"set 00 k\nfile 0,0 /nonesuch/"])
def test_a_record_of_another_form_is_as_good_as_none(
    record: bytes, copied: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = read_anew()
    cache.write(sources._record(str(copied)), record)
    assert read_anew() == due
