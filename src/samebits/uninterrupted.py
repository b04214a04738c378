"""Calls that no signal handler of Python's comes into. Start at `uninterrupted`."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["uninterrupted"]

P = ParamSpec("P")
R = TypeVar("R")


def uninterrupted(function: Callable[P, R], *given: P.args, **named: P.kwargs) -> R:
    """`function(*given, **named)` in a thread of its own, where the caller's is the main one.

    Python runs signal handlers in the main thread, between any two instructions, and what one raises, such as
    KeyboardInterrupt, ends whatever was at work. A package that frees memory of C's in two steps then frees it twice,
    which aborts the process. Here the handlers run as ever, and what they raise is raised when the call has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*given, **named)
    found: list[R] = []
    failed: list[BaseException] = []
    ended = _thread.allocate_lock()
    ended.acquire()

    def work() -> None:
        try:
            found.append(function(*given, **named))
        except BaseException as reason:
            failed.append(reason)
        finally:
            ended.release()

    raised = None
    try:
        _thread.start_new_thread(work, ())
    except BaseException as reason:
        # There can be no more threads, as when the interpreter ends: nothing is left but to do it here.
        if isinstance(reason, MemoryError) or (type(reason) is RuntimeError and "new thread" in str(reason)):
            return function(*given, **named)
        raised = reason  # by a handler, when the thread had begun
    while not (found or failed):
        try:
            ended.acquire()
        except BaseException as reason:
            raised = reason
    if raised is not None:
        raise raised
    if failed:
        raise failed[0]
    return found[0]
