"""Python's collector of cycles, held back while much is made that stays. Start at `without_collections`."""

from __future__ import annotations

import functools
import gc
import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["without_collections"]

P = ParamSpec("P")
R = TypeVar("R")


class _Holders:
    """Who holds the collector back, and whether it was on before."""

    def __init__(self) -> None:
        self.lock, self.blocks, self.was_on = threading.Lock(), set[object](), False


_held = _Holders()


def without_collections(function: Callable[P, R]) -> Callable[P, R]:
    """The function, during which Python looks for no cycles of its own accord, in any thread.

    What makes a program allocates much that stays and no cycles; to look through all of it at every quarter more takes
    a quarter of the time. A caller that had the collector off finds it so, and an interrupt leaves it as it was,
    wherever it comes.
    """

    @functools.wraps(function)
    def held(*given: P.args, **named: P.kwargs) -> R:
        block = object()
        try:
            _begin(block)
            return function(*given, **named)
        finally:
            try:
                _end(block)
            except BaseException:  # an interrupt; that a second comes before the next line is not reckoned with
                _end(block)
                raise

    return held


def _begin(block: object) -> None:
    with _held.lock:
        if not _held.blocks:
            _held.was_on = gc.isenabled()
        _held.blocks.add(block)
        gc.disable()


def _end(block: object) -> None:
    """May be called again, whatever of it was done."""
    with _held.lock:
        _held.blocks.discard(block)
        if not _held.blocks and _held.was_on:
            gc.enable()
            _held.was_on = False


def _forked() -> None:
    """A child has only the thread that forked, and none of the others' blocks."""
    _held.lock = threading.Lock()
    _held.blocks.clear()
    if _held.was_on:
        gc.enable()
        _held.was_on = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
