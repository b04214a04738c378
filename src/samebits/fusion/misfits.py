"""Operands of products whose extents do not fit each other: each is named, with what it is and what it must be.

Start at `agreed`, which takes two axes that must have one extent.
"""

from __future__ import annotations

from samebits.errors import FusionError
from samebits.frozen import dataclass
from samebits.fusion.graph import Scalar, TensorView

__all__ = ["OperandAxis", "agreed", "must_be"]


@dataclass(frozen=True, slots=True)
class OperandAxis:
    """An axis of an operand: its name in the call, the tensor, and the axis, counted from the front or the back."""

    operand: str
    x: TensorView
    axis: int

    @property
    def place(self) -> int:
        """The axis, counted from the front."""
        return self.axis % self.x.ndim

    @property
    def length(self) -> Scalar:
        """Its extent."""
        return self.x.fusion.root(self.x.axes[self.axis].length)


def agreed(call: str, given: OperandAxis, due: OperandAxis, remedy: str) -> None:
    """Note that two axes have one extent, which the run checks where it is open.

    Raises:  FusionError if they are known to differ.
    """
    a, b = given.length.value, due.length.value
    if a is not None and b is not None and a != b:
        expected = f"{b} as extent {due.place} of {due.operand}"
        raise FusionError(call, given.operand, f"extent {given.place}", a, expected, remedy)
    given.x.fusion.same(given.length, due.length)


def must_be(call: str, given: OperandAxis, extent: int, remedy: str) -> None:
    """Note that an axis has that extent.

    Raises:  FusionError if it is known to have another.
    """
    own = given.length.value
    if own is not None and own != extent:
        raise FusionError(call, given.operand, f"extent {given.place}", own, extent, remedy)
    given.x.fusion.same(given.length, given.x.fusion.constant(extent))
