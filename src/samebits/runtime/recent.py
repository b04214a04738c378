"""What was used of late, by key and up to a limit: dictionaries that threads share. Start at `keep`.

One lock is held while any of them is changed, which takes a few microseconds, and a fork waits for it: so the child
never finds one that a thread of the parent was changing, nor a lock that nobody will release. It may be taken again by
who holds it, as a signal handler may.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

from samebits import forks

__all__ = ["LOCK", "keep"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

LOCK = threading.RLock()


def keep(found: OrderedDict[_K, _V], key: _K, value: _V, limit: int) -> list[_V]:
    """Add what is newest; what is oldest beyond the limit is taken out.

    Returns: what was taken out, which the caller lets go: never while the lock is held.
    """
    gone: list[_V] = []
    with LOCK:
        found[key] = value
        while len(found) > limit:
            gone.append(found.popitem(last=False)[1])
    return gone


forks.around(LOCK.acquire, LOCK.release, LOCK.release)
