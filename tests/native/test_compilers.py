"""Compiler processes change nothing but speed: not who compiles, nor that one is killed, stopped or cannot be had."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from samebits import driver, errors
from samebits.codegen import isa as isas
from samebits.native import assembler, board, compile, compiler, compilers
from samebits.native.compilers import Job


@pytest.fixture(autouse=True)
def _none_running(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins and ends without compilers, and has cores for two of them."""
    monkeypatch.setattr(driver, "usable_cores", lambda: 3)
    monkeypatch.setattr(compilers, "MOST", 8)
    end()
    yield
    end()


def end() -> None:
    others, compilers._compilers = compilers._compilers, None
    if others is not None:
        for process in others.running:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)  # type: ignore[attr-defined]
        others.end()


def pids() -> list[int]:
    assert compilers._compilers is not None
    return [process.pid for process in compilers._compilers.running]  # type: ignore[attr-defined]


def job(number: int, length: int = 3) -> Job:
    """A function of that number whose text is as long as is asked."""
    host = next(row for row in isas.ROWS if row.compiled and row.available)
    lines = "\n".join(f"  %x{i + 1} = mul i64 %x{i}, {number + 2 * i + 3}" for i in range(length))
    text = f"define i64 @f(i64 %x0) {{\n{lines}\n  ret i64 %x{length}\n}}\n"
    return Job(f"job{number}", text, compile.processor(host.target()))


JOBS = [job(number, 3 + 40 * number) for number in range(7)]
EXPECTED = {each.name: assembler.object_code(each.text, each.processor) for each in JOBS}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that this process compiles."""
    compiled, made = [], assembler.object_code

    def note(text: str, processor: assembler.Processor, passes: str = "") -> bytes:
        compiled.append(text)
        return made(text, processor, passes)

    monkeypatch.setattr(assembler, "object_code", note)
    return compiled


def state(pid: int) -> str:
    """What the system says that a process does, T where it is stopped; nothing where there is none."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def until(condition: Callable[[], object]) -> bool:
    """Whether it comes true within minutes."""
    last = time.monotonic() + 300
    while time.monotonic() < last:
        if condition():
            return True
        time.sleep(0.005)
    return False


def test_objects_are_the_same_whoever_compiles_them() -> None:
    assert compilers.compile_all(JOBS) == EXPECTED
    compilers.prepare(2)
    assert compilers._compilers is None  # this process has compiled both before another has started
    compilers.prepare(len(JOBS))
    assert len(pids()) == 2
    assert compilers.compile_all(JOBS) == EXPECTED
    for each in JOBS:
        assert compilers.ask(each)
    found: dict[str, bytes | None] = {}
    for each in JOBS:

        def came(name: str = each.name) -> bool:
            found[name] = compilers.answer(name)
            return found[name] is not None

        assert until(came)
    assert found == EXPECTED


def test_another_process_takes_its_share(here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "_PATIENCE_SECONDS", float("inf"))
    compilers.prepare(len(JOBS))
    assert compilers._compilers is not None
    monkeypatch.setattr(compilers._compilers, "take", lambda names: None)  # this one takes none
    assert compilers.compile_all(JOBS) == EXPECTED
    assert here == []


def test_work_that_no_call_waits_for_is_left_to_the_others(here: list[str]) -> None:
    assert compilers.ask(JOBS[6])
    for pid in pids():
        os.kill(pid, signal.SIGSTOP)
    assert until(lambda: all(state(pid) == "T" for pid in pids()))
    assert compilers.compile_all(JOBS[:3]) == {each.name: EXPECTED[each.name] for each in JOBS[:3]}
    for pid in pids():
        os.kill(pid, signal.SIGCONT)
    assert until(lambda: compilers.answer(JOBS[6].name) == EXPECTED[JOBS[6].name])
    assert JOBS[6].text not in here


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_object_whose_compiler_is_killed_or_stopped_is_compiled_here(
    number: signal.Signals, here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "_PATIENCE_SECONDS", float("inf"))  # what was compiled here says how long to wait
    compilers.prepare(3)
    others = compilers._compilers
    assert others is not None
    (pid,) = pids()
    take = others.take
    os.kill(pid, signal.SIGSTOP)  # it cannot have begun when this one takes something
    assert until(lambda: state(pid) == "T")

    def late(names: set[str]) -> Job | None:
        """Until the other has begun, this one takes nothing; then the other works no more."""
        if not here and number is signal.SIGKILL:
            others.board.take()  # as the other would have done before it died
        os.kill(pid, number)
        return take(names)

    monkeypatch.setattr(others, "take", late)
    assert compilers.compile_all(JOBS) == EXPECTED
    assert len(here) == len(JOBS)
    if number is signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)  # what it answers yet nobody wants
        assert compilers.ask(JOBS[0])
        assert until(lambda: compilers.answer(JOBS[0].name) == EXPECTED[JOBS[0].name])
        assert not others.found


def test_what_was_asked_of_one_that_died_is_lost_and_can_be_asked_again() -> None:
    assert compilers.ask(JOBS[0])
    for pid in pids():
        os.kill(pid, signal.SIGKILL)

    def is_lost() -> bool:
        try:
            return compilers.answer(JOBS[0].name) is not None
        except LookupError:
            return True

    assert until(is_lost)
    assert compilers.ask(JOBS[1])
    assert until(lambda: compilers.answer(JOBS[1].name) == EXPECTED[JOBS[1].name])
    with pytest.raises(LookupError):
        compilers.answer(JOBS[1].name)  # it was given


def test_a_text_that_llvm_refuses_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", "")
    host = next(row for row in isas.ROWS if row.compiled and row.available)
    units = [compile.module_unit(text, host.target()) for text in (JOBS[0].text, "define nonsense", JOBS[1].text)]
    with pytest.raises(errors.NativeError, match="compile: module is refused "):
        compile.objects(units)
    assert compile.objects([units[0], units[2]]) == [EXPECTED["job0"], EXPECTED["job1"]]
    assert compilers.ask(Job("nonsense", "define nonsense", JOBS[0].processor))

    def is_refused() -> bool:
        try:
            return compilers.answer("nonsense") is not None
        except LookupError:
            return True

    assert until(is_refused)


def test_on_one_core_calls_compile_by_themselves(monkeypatch: pytest.MonkeyPatch, here: list[str]) -> None:
    monkeypatch.setattr(driver, "usable_cores", lambda: 1)
    compilers.prepare(5)
    assert compilers._compilers is None
    assert compilers.compile_all(JOBS) == EXPECTED
    assert len(here) == len(JOBS)
    assert compilers.ask(JOBS[0])  # no call waits for this: it is done while nothing else is
    assert until(lambda: compilers.answer(JOBS[0].name) == EXPECTED["job0"])
    assert os.getpriority(os.PRIO_PROCESS, pids()[0]) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 19)


@pytest.mark.parametrize("obstacle", ["no process", "no board", "an embedded Python", "no room"])
def test_where_there_can_be_none_calls_compile(obstacle: str, monkeypatch: pytest.MonkeyPatch, here: list[str]) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(11, "Resource temporarily unavailable")

    if obstacle == "no process":
        monkeypatch.setattr(driver, "start_python", refuse)
    elif obstacle == "no board":
        monkeypatch.setattr(board, "nameless", refuse)
    elif obstacle == "an embedded Python":
        monkeypatch.setattr(sys, "executable", "editor")
    else:
        monkeypatch.setattr(board.Board, "ask", lambda *_: False)
    compilers.prepare(5)
    assert compilers.compile_all(JOBS) == EXPECTED
    assert len(here) == len(JOBS)
    assert not compilers.ask(JOBS[0])


def test_a_compiler_ends_when_there_is_nothing_to_do_and_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "IDLE_SECONDS", 0.01)
    made = board.Board.opened()
    worker = board.Board(*map(os.dup, made.inherited))
    made.ask(4, [*JOBS[0].processor, JOBS[0].passes, JOBS[0].text])
    compiler.serve(worker)
    assert made.answers() == b"\4"
    assert made.code(4) == EXPECTED["job0"]
    made.close()
    with pytest.raises(EOFError):
        compiler.serve(worker)
    worker.close()


def test_a_terminals_interrupt_is_not_for_them_and_they_hold_nothing() -> None:
    compilers.prepare(3)
    (pid,) = pids()
    assert os.getsid(pid) == pid
    assert until(lambda: os.readlink(f"/proc/{pid}/cwd") == "/")
    assert [os.readlink(f"/proc/{pid}/fd/{stream}") for stream in range(3)] == ["/dev/null"] * 3


def test_an_interrupt_while_a_call_waits_leaves_all_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    compilers.prepare(3)
    assert compilers._compilers is not None
    with monkeypatch.context() as patch:
        patch.setattr(compilers._compilers, "take", lambda names: None)
        patch.setattr(compilers._compilers.board, "wait_for_answers", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compilers.compile_all(JOBS)
    assert compilers.compile_all(JOBS) == EXPECTED


def test_an_interrupt_just_after_work_was_offered_leaves_all_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    compilers.prepare(3)
    others = compilers._compilers
    assert others is not None
    offer = others.board.ask

    def interrupted(slot: int, parts: Sequence[str]) -> bool:
        offer(slot, parts)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(others.board, "ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compilers.ask(JOBS[6])
    assert compilers.compile_all(JOBS[:6]) == {each.name: EXPECTED[each.name] for each in JOBS[:6]}
    assert until(lambda: compilers.answer(JOBS[6].name) == EXPECTED[JOBS[6].name])


START = """
import os, signal, sys, time
from samebits import driver
driver.usable_cores = lambda: 3
import test_compilers as t
from samebits.native import compilers
"""


def ran(program: str, **options: object) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that shows every warning."""
    paths = os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", START + program]
    environment = os.environ | {"PYTHONPATH": paths}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, even if nobody has asked how."""
    return state(pid) in ("Z", "")


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.parametrize("how", ["", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_they_end_with_whoever_asked(how: str) -> None:
    done = ran(f"compilers.prepare(5)\ncompilers.ask(t.JOBS[6])\nprint(*t.pids(), flush=True)\n{how}")
    found = [int(pid) for pid in done.stdout.split()]
    assert done.stderr == ""
    assert len(found) == 2
    assert all(until(lambda pid=pid: is_gone(pid)) for pid in found)


def test_the_child_of_a_fork_has_its_own() -> None:
    program = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
compilers.prepare(3)
late = t.Job("late", t.JOBS[5].text, t.JOBS[5].processor)
compilers.ask(late)
before = t.pids()
child = os.fork()
if not child:
    right = compilers._compilers is None and compilers.compile_all(t.JOBS) == t.EXPECTED
    compilers.prepare(3)
    right &= not set(before) & set(t.pids()) and compilers.compile_all(t.JOBS) == t.EXPECTED
    t.end()
    os._exit(not right)
assert os.waitpid(child, 0)[1] == 0
assert t.pids() == before
assert compilers.compile_all(t.JOBS) == t.EXPECTED
assert t.until(lambda: compilers.answer("late") == t.EXPECTED["job5"])
print("right")
"""
    done = ran(program)
    assert (done.stdout, done.stderr) == ("right\n", "")


def test_they_work_where_the_standard_streams_are_closed(tmp_path: pathlib.Path) -> None:
    program = f"""
for stream in range(3):
    os.close(stream)
compilers.prepare(5)
compilers._compilers.take = lambda names: None
found = compilers.compile_all(t.JOBS) == t.EXPECTED
with open({str(tmp_path / "found")!r}, "w") as file:
    file.write(f"{{found}} {{len(t.pids())}}")
"""
    ran(program)
    assert (tmp_path / "found").read_text() == "True 2"


def test_they_import_nothing_of_the_current_directory(tmp_path: pathlib.Path) -> None:
    for name in ("samebits", "llvmlite", "select", "tempfile"):
        text = f"open({str(tmp_path / (name + '.mark'))!r}, 'w').close()\n"
        (tmp_path / f"{name}.py").write_text(text)
    program = f"""
os.chdir({str(tmp_path)!r})
sys.path.insert(0, "")
compilers.prepare(3)
compilers._compilers.take = lambda names: None
print(compilers.compile_all(t.JOBS) == t.EXPECTED)
"""
    assert ran(program).stdout == "True\n"
    assert list(tmp_path.glob("*.mark")) == []
