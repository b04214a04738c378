"""Figures of calls that take turns, so that a slow moment of the machine meets all of them.

Every bench gets its figures from these functions or from `samebits.bench.measure`; tools/compare_trees.py puts its own
in their place, which let two checkouts take turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

Call = Callable[[], Any]
Name = TypeVar("Name", bound=Hashable)


def medians(
    calls: Mapping[Name, Call], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[Name, float]:
    """The median of each call's seconds. What a call made lives until its clock was read."""
    times: dict[Name, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = clock()
            made = call()
            times[name].append(clock() - began)
            del made
    return {name: statistics.median(found) for name, found in times.items()}


def bests(calls: Mapping[Name, Call], rounds: int, number: int = 1, pause: float = 0.0) -> dict[Name, float]:
    """The least seconds of each call, of rounds of so many in a row after a pause: for what is a latency."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            if pause:
                time.sleep(pause)
            began = time.perf_counter()
            for _ in range(number):
                call()
            best[name] = min(best[name], (time.perf_counter() - began) / number)
    return best


def reported(
    calls: Mapping[Name, Callable[[], Sequence[float]]], columns: Sequence[str], rounds: int
) -> dict[Name, dict[str, float]]:
    """Medians by column of what calls say themselves, as processes that they start do."""
    found: dict[Name, list[Sequence[float]]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(call())
    return {
        name: dict(zip(columns, map(statistics.median, zip(*rows, strict=True)), strict=True))
        for name, rows in found.items()
    }
