"""What is set up once calls come often: emitted code in place of what is written in Python.

Setting it up takes some ten milliseconds, which no call shall notice: it is done in steps, a millisecond or two a call.
What has to be compiled is compiled by another process, and the steps go on once it is there. The rooms of exchange and
of eager calls count here and know nothing of native code; `offer` says what is to be done.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from time import thread_time

# As in the front door, which imports this: nothing that takes time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Steps = Iterator[bool]

__all__ = ["act", "count", "count_call", "offer", "on_demand", "others"]

# Emitted code saves 6 us of an exchange and 5 to 80 us of an eager call, which therefore counts as several exchanges. A
# call takes steps each time, exchanges only now and then. Where emitted code runs anyway it pays soon; where none does,
# loading what links it takes as long as thousands of exchanges lose.
_FEW, _MANY, _CALL, _EXCHANGES = 8, 10_000, 4, 64
# A call takes steps until its thread has worked so long on them: all are done by the tenth call.
_SECONDS = 0.002
_calls = 0
# What was offered and is not done yet, and the steps of what was begun.
_offers: list[Callable[[], Steps]] = []
_begun: dict[Callable[[], Steps], Steps] = {}
_lock = allocate_lock()
_act: Callable[[], object] | None = None


def offer(steps: Callable[[], Steps]) -> None:
    """Do this in steps when it pays; where it fails all stays as it was.

    Args:    steps: what begins them. Each says whether the next may follow at once, or has to wait for a later call.
    """
    _offers.append(steps)


def on_demand(action: Callable[[], object]) -> None:
    """Do this when `act` is called; twice is as once, and where it fails all stays as it was."""
    global _act
    _act = action


def count() -> None:
    """An exchange took the slow way."""
    global _calls
    if _offers:
        _calls += 1
        if not _calls % _EXCHANGES:
            _step()


def count_call() -> None:
    """An eager call took the slow way."""
    global _calls
    if _offers:
        _calls += _CALL
        _step()


def others() -> int:
    """How many offers are not done, but for one: what comes last asks this."""
    return len(_offers) - 1


def _step() -> None:
    """Take a few steps of what was offered, if it pays by now and no other thread is at it.

    Who called did not ask for it, so that no failure reaches them: an llvmlite whose library does not load is an
    OSError.
    """
    if _calls < _FEW or (_calls < _MANY and "samebits.native.compile" not in sys.modules) or _lock.locked():
        return
    # Not `acquire` and `try`: an interrupt between the two would leave it taken. Of two threads that come here at once
    # the second waits for a few steps.
    with _lock:
        end = thread_time() + _SECONDS
        for chosen in [*_offers]:
            if not _is_waiting(chosen, end):
                return


def _is_waiting(chosen: Callable[[], Steps], end: float) -> bool:
    """Take steps of an offer until the thread's clock says that it is the end; whether it has none to take now."""
    steps = _begun.pop(chosen, None)  # an interrupt ends the steps: they begin again
    if steps is None:
        steps = chosen()
    try:
        while may_go_on := next(steps):
            if thread_time() >= end:
                break
    except Exception:  # StopIteration is one
        _offers.remove(chosen)
        return True
    _begun[chosen] = steps
    return not may_go_on


def act() -> None:
    """Do what is to be done on demand, unless it was tried; of several threads none goes on before it was.

    No failure reaches whoever asks, as with steps. `samebits.compile_exchange` raises.
    """
    global _act
    import contextlib

    action = _act
    if action is not None:
        with contextlib.suppress(Exception):
            action()
        _act = None


def _forget() -> None:
    """In the child of a fork: another thread may have been at a step, which it never ends there."""
    global _lock
    _lock = allocate_lock()
    _begun.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
