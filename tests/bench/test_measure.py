"""Calls take turns, each after a pause and a call that is not counted; no test times anything."""

from __future__ import annotations

import time

from samebits.bench import measure


class World:
    """A clock that calls move."""

    def __init__(self) -> None:
        self.now, self.said = 0.0, list[str]()

    def call(self, name: str, *seconds: float) -> measure.Call:
        left = list(seconds)

        def run() -> None:
            self.said.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run

    def sleep(self, seconds: float) -> None:
        self.said.append("sleep")
        self.now += seconds

    def medians(
        self, calls: dict[str, measure.Call], rounds: int, burst: int = 1, pause: float = 0.0, least: float = 0.0
    ):  # type: ignore[no-untyped-def]
        return measure.medians(calls, rounds, burst, pause, least=least, clock=lambda: self.now, sleep=self.sleep)


def test_calls_take_turns_and_the_first_of_each_is_not_counted() -> None:
    world = World()
    found = world.medians({"a": world.call("a", 100.0, 1.0), "b": world.call("b", 2.0)}, 2, 2, 5.0)
    assert found == {"a": 1.0, "b": 2.0}
    assert world.said == ["sleep", "a", "a", "a", "sleep", "b", "b", "b"] * 2


def test_figures_are_medians() -> None:
    world = World()
    assert world.medians({"a": world.call("a", 0.0, 9.0, 0.0, 1.0, 0.0, 2.0)}, 3) == {"a": 2.0}


def test_short_calls_are_repeated() -> None:
    world = World()
    found = world.medians({"a": world.call("a", 0.25)}, 1, least=2.0)
    assert found == {"a": 0.25}
    assert len(world.said) == 2 + 8


def test_how_often_a_short_call_is_repeated_is_found_once() -> None:
    world = World()
    assert world.medians({"a": world.call("a", 0.25)}, 3, least=2.0) == {"a": 0.25}
    assert len(world.said) == (2 + 8) + (1 + 8) + (1 + 8)


def test_one_thread_is_timed_by_the_process() -> None:
    assert measure.clock(1) is time.process_time
    assert measure.clock(2) is time.perf_counter
