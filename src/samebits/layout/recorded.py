"""Layouts whose extents and strides are numbers of a tape: what is decided by them is written down.

They are layouts in all that plans are asked about. Nothing of them is remembered, as their numbers have no hash. Start
at `RecordedLayout.of`, for what lies somewhere, and `dense`, for what is new.
"""

from __future__ import annotations

from typing import Any, Literal

from samebits.errors import LayoutError
from samebits.layout import strides as arithmetic
from samebits.layout import views
from samebits.layout.affine import Axes, Layout
from samebits.layout.checks import Storage
from samebits.layout.strides import Shape
from samebits.shapes import STAND_INS, check_extents

__all__ = ["RecordedLayout", "dense"]


class RecordedLayout(Layout):
    """A layout of numbers of a tape, whose strides that place nothing are settled as those of any other."""

    __slots__ = ()

    @classmethod
    def of(
        cls, shape: Shape, strides_bits: Shape, offset_bits: int, width_bits: int, storage: Storage = "packed"
    ) -> RecordedLayout:
        """The layout of these facts of one that exists."""
        made = object.__new__(cls)
        strides = arithmetic.settled(
            shape, strides_bits, width_bits if storage == "packed" else -(-width_bits // 8) * 8
        )
        for name, value in zip(Layout.__slots__, (shape, strides, offset_bits, width_bits, storage), strict=True):
            object.__setattr__(made, name, value)
        return made

    def _view(self, shape: Shape, strides: Shape, offset: int) -> RecordedLayout:
        return self.of(shape, strides, offset, self.width_bits, self.storage)

    def permute(self, axes: Any) -> RecordedLayout:
        """As that of any layout; so are the others."""
        return self._view(
            *views.permuted.__wrapped__(self.shape, self.strides_bits, self.pitch_bits, axes), self.offset_bits
        )

    def reshape(self, shape: Any) -> RecordedLayout:
        """As `Layout.reshape`."""
        found = views.reshaped.__wrapped__(
            self.shape, self.strides_bits, self.pitch_bits, tuple(shape), "Layout.reshape"
        )
        return self._view(*found, self.offset_bits)

    def broadcast_to(self, shape: Any) -> RecordedLayout:
        """As `Layout.broadcast_to`."""
        found = views.broadcast.__wrapped__(self.shape, self.strides_bits, self.pitch_bits, tuple(shape))
        return self._view(*found, self.offset_bits)

    def unsqueeze(self, axis: Axes) -> RecordedLayout:
        """As `Layout.unsqueeze`."""
        found = views.unsqueezed.__wrapped__(self.shape, self.strides_bits, self.pitch_bits, axis)
        return self._view(*found, self.offset_bits)

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
    if not STAND_INS & {*map(type, shape)}:
        return Layout.dense(shape, width_bits=width_bits, storage=storage)
    pitch = width_bits if storage == "packed" else -(-width_bits // 8) * 8
    strides, step = [0] * len(shape), pitch
    for axis in reversed(range(len(check_extents("Layout.dense", "shape", shape)))):
        strides[axis] = step
        step = step * shape[axis]
    if step >= 1 << 63:
        raise LayoutError("Layout.dense", "shape", "", shape, "fewer than 2**63 bits", "use less")
    return RecordedLayout.of(shape, tuple(strides), 0, width_bits, storage)
