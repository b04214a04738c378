"""How the elements of a tensor lie in memory: immutable, hashable values that count in bits.

Start at `Layout`, one stride for each axis; `coalesce` gives several of them the fewest axes they can share.
`TiledLayout` has several strides for each axis, as the scales of NVFP4 and MX need; `Swizzle` is what shared memory
adds to either. `tma_violations` says what a GPU's bulk copy engine would refuse about a layout. Nothing moves data.
"""

from samebits.layout.affine import Axes, Key, Layout, Shape, Storage
from samebits.layout.coalesce import coalesce
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
