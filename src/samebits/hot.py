"""When the exchange methods written in Python are called often, something else is set in their place.

Emitted code for them takes 8 ms to set up where LLVM is loaded and 70 ms where it is not, and saves about 6 us a call:
what is waited for is as many calls as have lost that time. The rooms of exchange count here and know nothing of native
code; the front door says what is to be done, once.
"""

from __future__ import annotations

import sys

# As in the front door, which imports this: nothing that takes time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["act", "count", "offer"]

_FEW, _MANY = 1_000, 10_000
_calls = 0
_act: Callable[[], object] | None = None


def offer(action: Callable[[], object]) -> None:
    """Do this when it pays, or when `act` is called; twice is as once, and where it fails all stays as it was."""
    global _act
    _act = action


def count() -> None:
    """A call took the slow way."""
    global _calls
    _calls += 1
    if not _calls % _FEW and (_calls >= _MANY or "llvmlite.binding" in sys.modules):
        act()


def act() -> None:
    """Do what was offered, unless it was tried; of several threads that ask at once, none goes on before it was.

    Whoever exchanges a tensor did not ask for it, so that no failure reaches them: an llvmlite whose library does not
    load is an OSError. `samebits.compile_exchange` raises.
    """
    global _act
    import contextlib

    action = _act
    if action is not None:
        with contextlib.suppress(Exception):
            action()
        _act = None
