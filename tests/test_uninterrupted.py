"""Handlers run while a call waits, and what they raise comes when it has ended; a compile is never ended half-way."""

from __future__ import annotations

import _thread
import linecache
import signal
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest

from samebits.uninterrupted import uninterrupted

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals are sent to a thread")


class StopError(Exception):
    """What the handler raises."""


def test_what_a_handler_raises_comes_when_the_call_has_ended() -> None:
    """The handler raises three times, each where the main thread waits: signals are sent until it has, or nobody waits
    any more."""
    steps, raised, returned, ended = list[bool](), list[bool](), threading.Event(), threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def handler(number: int, frame: FrameType | None) -> None:
        assert frame is not None
        if linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() == "ended.acquire()" and len(raised) < 3:
            raised.append(True)
            raise StopError

    def work() -> None:
        steps.append(threading.get_ident() != main)
        while steps[0] and len(raised) < 3 and not returned.is_set():
            signal.pthread_kill(main, signal.SIGUSR1)
            time.sleep(0.001)
        steps.append(not returned.is_set())
        ended.set()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(StopError):
            uninterrupted(work)
    finally:
        returned.set()
        ended.wait(300)
        signal.signal(signal.SIGUSR1, before)
    assert steps == [True, True]


@pytest.mark.parametrize("reason", [StopError(), RuntimeError("a handler's")])
def test_a_call_that_began_is_waited_for_and_is_the_only_one(
    reason: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, ended = _thread.start_new_thread, []

    def interrupted(*given: Any) -> None:
        start(*given)
        raise reason

    def work() -> None:
        time.sleep(0.02)
        ended.append(True)

    monkeypatch.setattr(_thread, "start_new_thread", interrupted)
    with pytest.raises(type(reason)) as error:
        uninterrupted(work)
    assert error.value is reason
    assert ended == [True]


def test_results_and_errors_pass() -> None:
    def fail() -> None:
        raise KeyError("its own")

    assert uninterrupted(divmod, 7, 2) == (3, 1)
    assert uninterrupted(int, "11", base=2) == 3
    with pytest.raises(KeyError, match="its own"):
        uninterrupted(fail)


def test_other_threads_and_those_that_get_none_call_it_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    other = threading.Thread(target=lambda: seen.append(uninterrupted(threading.get_ident) == threading.get_ident()))
    other.start()
    other.join()
    assert seen == [True]

    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    assert uninterrupted(threading.get_ident) != threading.get_ident()
    monkeypatch.setattr(_thread, "start_new_thread", refused)
    assert uninterrupted(threading.get_ident) == threading.get_ident()


COMPILES = """
import itertools, os, signal, threading, time
os.environ["SAMEBITS_CACHE_DIR"] = ""
from samebits.codegen import isa
from samebits.native import compile

class Stop(Exception): pass

def handler(*_):  # raises where the loop below catches it, and nowhere else
    global raises, stops
    if raises:
        raises, stops = False, stops + 1
        raise Stop

def pester():
    while not ended:
        time.sleep(0.0007)
        signal.pthread_kill(main, signal.SIGUSR1)

target = isa.named("scalar").target(None)
compile.object_code("", target)
main, ended, raises, stops = threading.main_thread().ident, False, False, 0
signal.signal(signal.SIGUSR1, handler)
thread = threading.Thread(target=pester)
thread.start()
numbers = itertools.count()
while stops < 150:
    try:
        raises = True
        name = f"f{next(numbers)}"
        compile.object_code(f"define i32 @{name}(i32 %x) {{ %y = add i32 %x, 1\\n ret i32 %y }}", target)
        raises = False
    except Stop:
        pass
ended = True
thread.join()
print("whole")
"""


def test_interrupts_do_not_end_a_compile_half_way() -> None:
    """LLVM's Python package frees what it holds in two steps: an interrupt between them aborted the process."""
    done = subprocess.run([sys.executable, "-c", COMPILES], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr[-2000:]
