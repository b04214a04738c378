"""What a process does around a fork: it waits for imports of other threads, and takes the locks of this package.

Modules are loaded by the first call that needs them, and Python locks each one while it is. The child of a fork has the
thread that forked alone: a lock that another one held is never released there, and a call that needs that module would
wait for ever. So a fork waits until no thread is within such an import. Imports of others, inside which a program may
run for as long as it likes, are not waited for.

Locks are taken after that, each by a hook of its module. Those of modules that are loaded meanwhile are taken too,
which Python's own list of hooks does not do: it calls what follows a fork of modules whose part before it was not
called. An import that begins meanwhile has them released and waited for again. No fork asks before `watch` is called,
half a millisecond into the very first `import samebits`: the child of one that comes beside it then must not import
this package. Start at `watch`.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import get_ident

# Type checkers take it for true; `import samebits` loads this module, and does without those.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    _Hook = tuple[Callable[[], object], Callable[[], object], Callable[[], object]]

__all__ = ["around", "is_importing", "watch"]

_OWN = "samebits"
# What Python locks a module in: the function that finds it and runs it, of which `name` is an argument.
_LOCKS, _MACHINERY = "_find_and_load", "importlib._bootstrap"
# How often is looked, and after which time an import is one that does not end.
_PAUSE_SECONDS, _PATIENCE_SECONDS = 0.0005, 10.0

_hooks: list[_Hook] = []
# By thread what was done before its forks, of which a signal's handler can begin one inside another.
_entered: dict[int, list[list[_Hook]]] = {}


def around(
    before: Callable[[], object], after_in_parent: Callable[[], object], after_in_child: Callable[[], object]
) -> None:
    """Have these called around every fork from now on: what came last is called first before it, and last after it."""
    _hooks.append((before, after_in_parent, after_in_child))


def is_importing(frame: FrameType | None) -> bool:
    """Whether a thread that is in this frame imports a module of this package, or another one that a function or a
    module of this package asks for."""
    is_locked = False
    while frame is not None:
        own = str(frame.f_globals.get("__name__", ""))
        if own == _MACHINERY and frame.f_code.co_name == _LOCKS:
            is_locked = True
            if _is_ours(str(frame.f_locals.get("name", ""))):
                return True
        elif is_locked and _is_ours(own):
            return True
        frame = frame.f_back
    return False


def _is_ours(name: str) -> bool:
    return name == _OWN or name.startswith(f"{_OWN}.")


def _others_import() -> bool:
    own = get_ident()
    return any(is_importing(frame) for thread, frame in sys._current_frames().items() if thread != own)


def _before() -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        while _others_import() and time.monotonic() <= end:
            time.sleep(_PAUSE_SECONDS)
        entered: list[_Hook] = []
        _entered.setdefault(get_ident(), []).append(entered)
        for hook in reversed(_hooks.copy()):
            hook[0]()
            entered.append(hook)
        # An import that began while a lock was waited for may need one that is held now.
        if time.monotonic() > end or not _others_import():
            return
        _after(1)


def _after(which: int) -> None:
    """What follows a fork, of each whose part before it was called."""
    turns = _entered.get(get_ident())
    entered = turns.pop() if turns else []
    if not turns:  # threads come and go
        _entered.pop(get_ident(), None)
    try:
        while entered:
            entered.pop()[which]()
    finally:
        for hook in reversed(entered):  # an interrupt does not leave locks behind
            hook[which]()


def _after_in_parent() -> None:
    _after(1)


def _after_in_child() -> None:
    own = get_ident()
    for thread in _entered.keys() - {own}:
        del _entered[thread]
    _after(2)


def watch() -> None:
    """From now on forks of this process go as is said here; called once, by the front door."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
