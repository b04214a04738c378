"""Python's collector is off while a function runs that makes much, and as the caller had it behind: by errors,
interrupts, threads and children."""

from __future__ import annotations

import concurrent.futures
import gc
import os
from collections.abc import Iterator

import pytest

from samebits import collecting
from samebits.collecting import without_collections


@pytest.fixture(autouse=True)
def collector_on_before_and_after() -> Iterator[None]:
    assert gc.isenabled()
    try:
        yield
        assert gc.isenabled()
        assert not collecting._held.blocks
    finally:
        gc.enable()


def test_collections_wait_for_the_end_of_the_last_function() -> None:
    """And stay off for who had them off, also where a function ends by an error, and in a child."""
    seen: list[bool] = []

    @without_collections
    def inner() -> None:
        seen.append(gc.isenabled())
        raise KeyError

    @without_collections
    def outer() -> None:
        with pytest.raises(KeyError):
            inner()
        seen.append(gc.isenabled())
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() and not collecting._held.blocks else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        seen.append(gc.isenabled())

    outer()
    assert seen == [False, False, False]
    assert gc.isenabled()
    gc.disable()
    without_collections(int)()
    assert not gc.isenabled()
    gc.enable()


def test_functions_of_a_child_count_anew_once_the_one_it_was_forked_in_ends() -> None:
    child = without_collections(os.fork)()
    if not child:
        was_on = without_collections(gc.isenabled)()
        os._exit(0 if not was_on and gc.isenabled() and not collecting._held.blocks else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_that_meet_leave_the_collector_on() -> None:
    @without_collections
    def inner() -> None:
        assert not gc.isenabled()

    def work() -> None:
        for _ in range(200):
            inner()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()


@pytest.mark.parametrize("place", ["begun", "disabled", "ending", "enabled"])
def test_an_interrupt_leaves_the_collector_on(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind calls of C and before a function's first line are where the interpreter looks for signals."""
    left = [place]

    def interrupted(here: str) -> None:
        if left == [here]:
            left.clear()
            raise KeyboardInterrupt

    class Collector:
        isenabled = staticmethod(gc.isenabled)

        @staticmethod
        def disable() -> None:
            gc.disable()
            interrupted("disabled")

        @staticmethod
        def enable() -> None:
            gc.enable()
            interrupted("enabled")

    def begin(block: object) -> None:
        own_begin(block)
        interrupted("begun")

    def end(block: object) -> None:
        interrupted("ending")
        own_end(block)

    own_begin, own_end = collecting._begin, collecting._end
    monkeypatch.setattr(collecting, "gc", Collector)
    monkeypatch.setattr(collecting, "_begin", begin)
    monkeypatch.setattr(collecting, "_end", end)
    with pytest.raises(KeyboardInterrupt):
        without_collections(int)()
    assert not left


@pytest.mark.parametrize("is_on", [True, False])
def test_an_interrupt_before_anything_was_noted(is_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(block: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(collecting, "_begin", begin)
    if not is_on:
        gc.disable()
    with pytest.raises(KeyboardInterrupt):
        without_collections(int)()
    assert gc.isenabled() == is_on
    gc.enable()
