"""How the elements of a tensor lie in memory: immutable, hashable values that count in bits.

Start at `Layout`, one stride for each axis; `coalesce` gives several of them the fewest axes they can share.
`TiledLayout` has several strides for each axis, as the scales of NVFP4 and MX need; `Swizzle` is what shared memory
adds to either. `tma_violations` says what a GPU's bulk copy engine would refuse about a layout. Nothing moves data.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from samebits.layout.affine import Axes, Key, Layout, Shape, Storage
from samebits.layout.coalesce import coalesce

# What few programs need is imported when it is first asked for.
if TYPE_CHECKING:
    from samebits.layout.tiled import Swizzle, TiledLayout
    from samebits.layout.tma import TmaViolation, tma_violations

__all__ = [
    "Axes",
    "Key",
    "Layout",
    "Shape",
    "Storage",
    "Swizzle",
    "TiledLayout",
    "TmaViolation",
    "coalesce",
    "tma_violations",
]
_HOMES = {"Swizzle": "tiled", "TiledLayout": "tiled", "TmaViolation": "tma", "tma_violations": "tma"}


def __getattr__(name: str) -> object:
    """Import what `name` is in, once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What is public."""
    return __all__
