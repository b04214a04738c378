"""Timing calls in turns: a slow moment of the machine meets all of them, and figures are medians."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping

Call = Callable[[], object]
Clock = Callable[[], float]
# OpenBLAS polls for 2^26 cycles, about 25 ms, before its thread sleeps; until then it holds the other core.
PAUSE = 0.1
# A sample shorter than this is mostly the clock.
LEAST = 200e-6
# Where other libraries read, once a process, how many threads to use.
POOLS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def clock(threads: int) -> Clock:
    """Seconds of this process where one thread works, so that the machine's other business does not count; else of the
    wall."""
    return time.process_time if threads == 1 else time.perf_counter


def medians(
    calls: Mapping[str, Call], rounds: int, burst: int = 1, pause: float = 0.0, *, least: float = 0.0,
    clock: Clock = time.perf_counter, sleep: Callable[[float], None] = time.sleep,
) -> dict[str, float]:  # fmt: skip
    """Seconds of each call.

    Args:    rounds: turns of each call.   burst: samples of a turn, after one call that is not counted.
             pause: seconds before each turn, in which other libraries' threads go to sleep.
             least: seconds that a sample takes at least, of as many calls as that needs.
             clock, sleep: for tests, which never time.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    repeats = dict.fromkeys(calls, 1)
    for turn in range(rounds):
        for name, call in calls.items():
            if pause:
                sleep(pause)
            call()
            if least and not turn:
                start = clock()
                call()
                repeats[name] = max(1, math.ceil(least / max(clock() - start, 1e-9)))
            for _ in range(burst):
                start = clock()
                for _ in range(repeats[name]):
                    call()
                times[name].append((clock() - start) / repeats[name])
    return {name: statistics.median(found) for name, found in times.items()}
