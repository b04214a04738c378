"""When emitted code replaces the exchange methods, seen from fresh processes, and that results do not change then."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from samebits import hot

START = """
import sys, numpy as np, samebits as sb
x = np.arange(6, dtype=np.float32).reshape(2, 3)
T = sb.Tensor
def told():
    module = sys.modules.get("samebits.native.exchange")
    return "samebits.native.compile" in sys.modules, module is not None and module.is_installed()
def use(count):
    found = set()
    for _ in range(count):
        t = T.from_dlpack(x)
        found.add((t.shape, t.strides, t.dtype.name, t.address == x.ctypes.data, t.layout))
    return len(found)
"""


def printed(program: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-X", "dev", "-c", START + program]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print(use(9_999), *told())", "1 False False"),
        ("print(use(20_000), *told())", "1 True True"),
        ("import samebits.native.compile; print(use(63), *told())", "1 True False"),
        ("import samebits.native.compile; print(use(2000), *told())", "1 True True"),
        ("print(hasattr(T, '__dlpack_c_exchange_api__'), *told())", "True True True"),
        ("print(sb.compile_exchange(), sb.compile_exchange(), *told(), use(9))", "True True True True 1"),
    ],
)
def test_emitted_code_is_loaded_when_it_pays(program: str, expected: str) -> None:
    printed("sb.compile_exchange()")  # whose object is in the cache from then on
    assert printed(program) == expected


# An interpreter that compiles nothing, and calls until emitted code stands there or, after minutes, nothing has come.
COLD = """
import time
from samebits.native import assembler, compile
def refuse(*_): raise AssertionError("compiled in a call")
here, assembler.object_code = assembler.object_code, refuse
def patient(seconds):
    end = time.monotonic() + seconds
    while not told()[1] and time.monotonic() < end:
        assert use(640) == 1
        time.sleep(0.02)  # while another process compiles
    return told()[1]
"""


def test_with_an_empty_cache_another_process_compiles(tmp_path: pathlib.Path) -> None:
    place = {"SAMEBITS_CACHE_DIR": str(tmp_path / "cache")}
    assert printed(COLD + "print(use(300), told()[1], patient(600))", **place) == "1 False True"
    assert printed(COLD + "print(use(2000), *told())", **place) == "1 True True"  # what it made is in the cache


def test_without_a_cache_another_process_compiles_too() -> None:
    assert printed(COLD + "print(patient(600))", SAMEBITS_CACHE_DIR="") == "True"


def test_without_another_process_the_methods_stay_until_they_are_asked_for() -> None:
    program = (
        COLD
        + """
from samebits import driver
from samebits import hot
driver.can_start_python = lambda: False
while hot._offers:
    use(640)
print(use(1000), told()[1])
assembler.object_code = here
print(sb.compile_exchange(), *told(), use(9))
"""
    )
    assert printed(program, SAMEBITS_CACHE_DIR="") == "1 False\nTrue True True 1"


@pytest.mark.parametrize(
    "obstacle",
    [
        "sys.modules['llvmlite'] = sys.modules['llvmlite.binding'] = None",
        "sys.implementation.name = 'other'",
        "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1",
        (
            "import samebits.native.compile as c; from samebits.errors import NativeError\n"
            "def addresses(*_): raise NativeError('compile', 'it', '', 'no', 'yes', 'wait')\nc.addresses = addresses"
        ),
        # An llvmlite whose shared library does not load.
        (
            "class Broken:\n    def find_spec(self, name, *_):\n"
            "        if name == 'llvmlite': raise OSError('Could not find/load shared object file')\n"
            "sys.meta_path.insert(0, Broken())"
        ),
        "T.__getitem__ = lambda self, key: None",
    ],
)
def test_everything_works_where_there_can_be_none(obstacle: str) -> None:
    program = (
        f"{obstacle}\nprint(hasattr(T, '__dlpack_c_exchange_api__'), use(10_000), T.from_dlpack(T.from_any(x)).shape)"
    )
    assert printed(program) == "False 1 (2, 3)"


def test_a_method_that_somebody_replaced_stays_theirs() -> None:
    program = """
from unittest import mock
with mock.patch.object(T, "from_any", return_value=7):
    print(sb.compile_exchange(), T.from_any(x))
print(sb.compile_exchange(), T.from_any(x).shape)
"""
    assert printed(program) == "False 7\nFalse (2, 3)"


def test_an_interrupted_installation_is_done_again() -> None:
    program = """
from samebits.native import exchange
python = exchange.python_function
def interrupted(name, *types):
    if name == "PyCapsule_New":
        raise KeyboardInterrupt
    return python(name, *types)
exchange.python_function = interrupted
try:
    sb.compile_exchange()
except KeyboardInterrupt:
    exchange.python_function = python
    print(told()[1], T.from_any(x).shape, sb.compile_exchange(), T.from_any(x).shape)
"""
    assert printed(program) == "False (2, 3) True (2, 3)"


def test_what_is_on_demand_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot, "_act", None)
    done: list[int] = []
    hot.act()
    hot.on_demand(lambda: done.append(1))
    hot.act()
    hot.act()
    assert done == [1]


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Iterator[bool]]]:
    """Nothing is offered or begun, and calls enough have come for LLVM to be loaded."""
    offered: list[Callable[[], Iterator[bool]]] = []
    for name, value in {"_offers": offered, "_begun": {}, "_calls": 10_000}.items():
        monkeypatch.setattr(hot, name, value)
    return offered


def test_offers_take_turns_and_one_that_waits_is_asked_again_with_a_later_call(
    offers: list[Callable[[], Iterator[bool]]],
) -> None:
    done: list[str] = []

    def waiting(name: str) -> Callable[[], Iterator[bool]]:
        def steps() -> Iterator[bool]:
            for k in range(2):
                done.append(f"{name}{k}")
                yield True
                done.append(f"{name}{k} waits")
                yield False
            done.append(f"{name} ends")

        return steps

    hot.offer(waiting("a"))
    for _ in range(2):
        hot.count_call()
    assert done == ["a0", "a0 waits", "a1", "a1 waits"]
    hot.offer(waiting("b"))
    assert hot.others() == 1
    for _ in range(6):
        hot.count_call()
    assert sorted(done[4:]) == sorted(["a ends", "b0", "b0 waits", "b1", "b1 waits", "b ends"])
    assert hot.others() == -1
    hot.count_call()
    hot.count()
    assert len(done) == 10


def test_an_offer_that_fails_is_dropped_and_one_that_is_interrupted_begins_again(
    offers: list[Callable[[], Iterator[bool]]],
) -> None:
    begun: list[int] = []

    def failing() -> Iterator[bool]:
        yield False
        raise OSError("no such library")

    def interrupted() -> Iterator[bool]:
        begun.append(1)
        yield False
        if len(begun) == 1:
            raise KeyboardInterrupt

    hot.offer(failing)
    hot.count_call()
    hot.count_call()
    assert offers == []
    hot.offer(interrupted)
    hot.count_call()
    with pytest.raises(KeyboardInterrupt):
        hot.count_call()
    hot.count_call()
    hot.count_call()
    assert (offers, len(begun)) == ([], 2)


def test_one_thread_is_at_a_step_and_others_do_not_wait_for_it(offers: list[Callable[[], Iterator[bool]]]) -> None:
    inside, go_on, done = threading.Event(), threading.Event(), []

    def steps() -> Iterator[bool]:
        inside.set()
        assert go_on.wait(60)
        done.append(1)
        yield False

    hot.offer(steps)
    thread = threading.Thread(target=hot.count_call)
    thread.start()
    assert inside.wait(60)
    hot.count_call()
    assert done == []
    go_on.set()
    thread.join()
    assert done == [1]
    assert len(offers) == 1


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="nothing interrupts here")
def test_an_interrupt_never_keeps_later_calls_from_steps(offers: list[Callable[[], Iterator[bool]]]) -> None:
    def waiting() -> Iterator[bool]:
        while True:
            yield False

    def interrupt(number: int, frame: FrameType | None) -> None:
        assert frame is not None
        if frame.f_code.co_filename in (hot.__file__, __file__):
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, 1e-6)  # what is raised in a finaliser goes nowhere

    def step_until_interrupted(microseconds: int) -> None:
        signal.setitimer(signal.ITIMER_REAL, 1e-6 * microseconds)
        while True:
            hot.count_call()

    offers.append(waiting)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for number in range(2000):
            with pytest.raises(KeyboardInterrupt):
                step_until_interrupted(1 + number % 40)
            assert not hot._lock.locked()
    finally:
        signal.signal(signal.SIGALRM, before)
