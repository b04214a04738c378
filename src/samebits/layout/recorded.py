"""Layouts whose extents and strides are numbers of a tape: what is decided by them is written down.

They are layouts in all that plans are asked about. Nothing of them is remembered, as numbers of a strict tape have no
hash; what they have not of their own ends with `tape.Pinned`. Start at `RecordedLayout.of`, for what lies somewhere,
and `dense`, for what is new.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from samebits.errors import LayoutError, ShapeError
from samebits.layout import strides as arithmetic
from samebits.layout import views
from samebits.layout.affine import Axes, Layout
from samebits.layout.checks import Storage, check_pitch
from samebits.layout.strides import Shape
from samebits.shapes import INTEGERS

__all__ = ["RecordedLayout", "broadcast", "dense"]

# Bits of the largest layout.
_LIMIT = 1 << 63


class RecordedLayout(Layout):
    """A layout of numbers of a tape, whose strides that place nothing are settled as those of any other."""

    __slots__ = ()

    @classmethod
    def of(
        cls, shape: Shape, strides_bits: Shape, offset_bits: int, width_bits: int, storage: Storage = "packed"
    ) -> RecordedLayout:
        """The layout of these facts of one that exists."""
        made = object.__new__(cls)
        strides = arithmetic.settled(shape, strides_bits, check_pitch("Layout", width_bits, storage))
        for name, value in zip(Layout.__slots__, (shape, strides, offset_bits, width_bits, storage), strict=True):
            object.__setattr__(made, name, value)
        return made

    def _view(self, shape: Shape, strides: Shape, offset: int) -> RecordedLayout:
        return self.of(shape, strides, offset, self.width_bits, self.storage)

    def permute(self, axes: Any) -> RecordedLayout:
        """As `Layout.permute`; so are the others."""
        found = views.permuted.__wrapped__(self.shape, self.strides_bits, self.pitch_bits, tuple(axes))
        return self._view(*found, self.offset_bits)

    def unsqueeze(self, axis: Axes) -> RecordedLayout:
        """As `Layout.unsqueeze`."""
        found = views.unsqueezed.__wrapped__(self.shape, self.strides_bits, self.pitch_bits, axis)
        return self._view(*found, self.offset_bits)

    def reshape(self, shape: Any) -> RecordedLayout:
        """As `Layout.reshape`, of extents that are all said."""
        if math.prod(shape) != self.size:
            expected = f"of {self.size} elements like {self.shape}"
            raise ShapeError("Layout.reshape", "shape", "", shape, expected, "keep the number of elements")
        steps = arithmetic.reshaped(self.shape, self.strides_bits, shape)
        if steps is None:
            raise LayoutError("Layout.reshape", "layout", "", self.shape, f"viewable as {shape}", "copy it first")
        return self._view(tuple(shape), tuple(steps), self.offset_bits)

    def broadcast_to(self, shape: Any) -> RecordedLayout:
        """As `Layout.broadcast_to`."""
        added = len(shape) - len(self.shape)
        both = [*zip(self.shape, shape[added:], strict=True)] if added >= 0 else []
        if added < 0 or any(a not in (1, b) for a, b in both):
            remedy = "extents must be equal or 1, aligned at the last axis"
            raise ShapeError("Layout.broadcast_to", "shape", "", shape, f"one {self.shape} broadcasts to", remedy)
        steps = [s if a == b else 0 for (a, b), s in zip(both, self.strides_bits, strict=True)]
        return self._view(tuple(shape), (*(0,) * added, *steps), self.offset_bits)

    def is_contiguous(self, order: Literal["C", "F", "any"] = "C") -> bool:
        """As `Layout.is_contiguous`."""
        return arithmetic.is_contiguous(self.shape, self.strides_bits, self.pitch_bits, order)

    def __eq__(self, other: object) -> bool:
        """Whether the other layout is the same, which is written down."""
        if not isinstance(other, Layout) or len(other.shape) != len(self.shape):
            return False
        own, its = ((*x.shape, *x.strides_bits, x.offset_bits, x.width_bits) for x in (self, other))
        return self.storage == other.storage and own == its

    def __hash__(self) -> int:
        return hash((self.shape, self.strides_bits, self.offset_bits))


def dense(shape: Shape, *, width_bits: int, storage: Storage = "packed") -> Layout:
    """`Layout.dense` of extents that may be numbers of a tape.

    Raises:  LayoutError as that does.
    """
    if {*map(type, shape)} <= INTEGERS:
        return Layout.dense(shape, width_bits=width_bits, storage=storage)
    strides, step = [0] * len(shape), check_pitch("Layout", width_bits, storage)
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step = step * shape[axis]
    if step >= _LIMIT:
        raise LayoutError("Layout.dense", "shape", "", shape, "fewer than 2**63 bits", "use less")
    return RecordedLayout.of(shape, tuple(strides), 0, width_bits, storage)


def broadcast(layout: Layout, shape: Shape) -> Layout:
    """`layout.broadcast_to(shape)`, of extents that may be numbers of a tape.

    Raises:  ShapeError as that does.
    """
    if type(layout) is RecordedLayout or {*map(type, shape)} <= INTEGERS:
        return layout.broadcast_to(shape)
    own = layout.shape, layout.strides_bits, layout.offset_bits, layout.width_bits, layout.storage
    return RecordedLayout.of(*own).broadcast_to(shape)
