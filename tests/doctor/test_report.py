"""The report: the machine as other witnesses see it, whose fault a cell is, and what is promised of exchange."""

import concurrent.futures
import dataclasses
import linecache
import os
import platform
import signal
import sys
import threading
import time

import pytest

from samebits import dtypes
from samebits.codegen import host
from samebits.doctor import frameworks, report
from samebits.doctor.trial import Cell


def cell(outcome, framework="numpy", dtype="float32", direction="in"):
    return Cell(framework, dtype, direction, outcome, "why")


def test_machine(monkeypatch, tmp_path):
    host.host()  # what LLVM says is an entry of the cache that is in use when it is first asked
    tmp_path.chmod(0o700)
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(tmp_path))
    for name in ("one.samebits", "two.samebits", "other"):
        (tmp_path / name).write_bytes(b"1234")
    found = report.machine()
    assert found.cores == len(os.sched_getaffinity(0))
    assert found.python == platform.python_version()
    assert dict(found.isas)["numpy"] is True
    assert found.default_isa in dict(found.isas)
    assert dict(found.versions).keys() >= {"numpy", "ml_dtypes", "llvmlite"}
    assert (found.cache, found.cache_entries) == (str(tmp_path), 2)


def test_without_a_cache_directory(monkeypatch):
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", "")
    found = report.machine()
    assert (found.cache, found.cache_entries, found.cache_bytes) == (None, 0, 0)


def test_whose_fault():
    broken = {outcome: report.is_broken(cell(outcome)) for outcome in ("zero-copy", "copy", "bytes", "cannot hold")}
    assert not any(broken.values())
    assert all(report.is_broken(cell(outcome)) for outcome in ("refused", "relabelled", "wrong", "crashed"))


def test_a_frameworks_own_limit_is_not_ours(monkeypatch):
    row = dataclasses.replace(frameworks.named("numpy"), limits={"in float32": "NumPy"})
    monkeypatch.setattr(frameworks, "ROWS", (row,))
    assert not report.is_broken(cell("refused"))
    assert report.is_broken(cell("refused", direction="out"))
    assert report.is_broken(cell("wrong"))


def test_examine_tries_what_is_installed_and_names_the_rest(monkeypatch):
    row = frameworks.named("numpy")
    missing = dataclasses.replace(row, name="missing", module="nonesuch_of_all", distribution="nonesuch")
    monkeypatch.setattr(frameworks, "ROWS", (row, missing))
    tried = []
    found = report.examine(attempt=lambda row, children: tried.append(row.name) or ([cell("wrong")], ""))
    assert tried == ["numpy"]
    assert [(one.name, one.version is None) for one in found.tried] == [("numpy", False), ("missing", True)]
    assert (len(found.broken), found.exit_code) == (1, 1)


def test_what_was_named_and_is_not_installed_is_a_failure(monkeypatch):
    row = dataclasses.replace(frameworks.named("numpy"), name="missing", module="nonesuch_of_all", distribution="none")
    monkeypatch.setattr(frameworks, "ROWS", (frameworks.named("numpy"), row))
    found = report.examine(["missing"])
    assert (found.exit_code, found.tried[0].failure) == (2, "not installed; pip install none")
    assert found.verdict == "nothing of samebits is broken; not tried to the end: missing"
    assert report.examine(attempt=lambda row, children: ([cell("copy")], "")).exit_code == 0


@pytest.mark.parametrize(
    ("cells", "failure", "code", "verdict"),
    [
        ([], "", 0, "nothing of samebits is broken"),
        (["wrong"], "", 1, "1 cells are broken"),
        ([], "died", 2, "nothing of samebits is broken; not tried to the end: numpy"),
        (["wrong"], "died", 1, "1 cells are broken; not tried to the end: numpy"),
    ],
)
def test_exit_code_and_verdict(cells, failure, code, verdict):
    found = report.examine(["numpy"], attempt=lambda row, children: ([cell(x) for x in cells], failure))
    assert (found.exit_code, found.verdict) == (code, verdict)


def test_children_end_with_the_examination(tmp_path, monkeypatch):
    # It ends with the test's process, should nobody end it before.
    asleep = "import os, time\nparent = os.getppid()\nwhile os.getppid() == parent: time.sleep(0.05)"
    (tmp_path / "asleep.py").write_text(asleep)
    monkeypatch.syspath_prepend(tmp_path)
    started, codes = [], []

    def waits():
        """Whether the main thread waits for what this one finds: an interrupt before would leave this one alone."""
        frame = sys._current_frames()[threading.main_thread().ident]
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        return "acquire()" in line and frame.f_back.f_code is concurrent.futures.Future.result.__code__

    def attempt(row, children):
        started.append(children.start("asleep", ()))
        while not waits():
            time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        codes.append(started[0].wait(60))
        started.append(children.start("asleep", ()))
        codes.append(started[1].wait(60))
        return [], ""

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
    try:
        with pytest.raises(KeyboardInterrupt):
            report.examine(["numpy"], attempt=attempt)
    finally:
        signal.signal(signal.SIGINT, before)
        for child in started:
            child.kill()
    assert codes == [-signal.SIGKILL, -signal.SIGKILL]


INSTALLED = [row for row in frameworks.ROWS if report.installed_version(row) is not None]


@pytest.mark.parametrize("row", INSTALLED, ids=lambda row: row.name)
def test_every_format_that_a_framework_holds_is_kept(row):
    found = report.examine([row.name])
    assert found.tried[0].failure == ""
    assert len(found.tried[0].cells) == 2 * len(dtypes.ROWS)
    assert found.broken == ()
    # What it lacks crosses all the same.
    assert [c for c in found.tried[0].cells if c.outcome == "cannot hold"] == []
