"""What a room has from rooms after it: the front door says how it is made, when somebody first asks for it.

A method of `Tensor` may stand for an eager function so, though the room of tensors knows of none. Start at `offer`.
"""

from __future__ import annotations

# As in the front door, which imports this: nothing that takes time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["offer", "taken"]

_offers: dict[str, Callable[[], Any]] = {}
_made: dict[str, Any] = {}


def offer(name: str, make: Callable[[], Any]) -> None:
    """`taken(name)` is what `make` gives."""
    _offers[name] = make


def taken(name: str) -> Any:
    """What was offered under a name, made once."""
    if name not in _made:
        _made[name] = _offers[name]()
    return _made[name]
