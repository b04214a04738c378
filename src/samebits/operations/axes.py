"""Which axes of an operation's results follow which axes of its operands; what independence is proved from.

Start at `Axes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from samebits.frozen import dataclass
from samebits.operations.dim import Size
from samebits.operations.fact import Fact

__all__ = ["Axes", "aligned", "along"]


class HasAxis(Protocol):
    """Attributes of an operation along one axis, counted from the front."""

    @property
    def axis(self) -> int:
        """Which."""


@dataclass(frozen=True, slots=True)
class Axes:
    """How results depend on operands, the same for every output.

    Attributes:
        follows: For each operand and each of its axes, the axis of the results that it follows: the element of a result
            at index i of the one reads the operand at index i of the other alone, or the only one there is. None where
            what it reads there does not depend on its own index: all of the axis, or places that are data.
        is_flat: Whether every element keeps its row-major position instead, as a reshape has it.
        reads: Sizes that values depend on, such as where a slice begins.
    """

    follows: tuple[tuple[int | None, ...], ...] = ()
    is_flat: bool = False
    reads: tuple[Size, ...] = ()


def aligned(facts: Sequence[Fact], rank: int, whole: Sequence[int] = ()) -> tuple[tuple[int | None, ...], ...]:
    """Operands that broadcast to a rank, aligned at the last axis; axes of the result in `whole` are read whole."""
    shifted = [range(rank - fact.rank, rank) for fact in facts]
    return tuple(tuple(None if axis in whole else axis for axis in axes) for axes in shifted)


def along(attributes: HasAxis, facts: Sequence[Fact]) -> Axes:
    """Operands of one rank, whose elements move, or are summed up, along the axis of the attributes."""
    return Axes(aligned(facts, facts[0].rank, [attributes.axis]))
