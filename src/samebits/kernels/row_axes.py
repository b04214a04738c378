"""Axes of rows: which are reduced, what operands have along them, and the shape that all share.

Start at `whole_shape`; `block_size` says which operands have an element a block of a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from samebits.errors import OptionError, ShapeError
from samebits.kernels.walk import BLOCKS, AxisSteps
from samebits.shapes import broadcast_extents


def whole_shape(inputs: tuple[AxisSteps, ...], outputs: tuple[AxisSteps, ...]) -> tuple[int, ...]:
    """The shape that inputs broadcast to.

    Raises:  ShapeError if they do not.
    """
    found = broadcast_extents(*[shape for shape, _ in inputs])
    if found is None:
        shapes = [shape for shape, _ in (*inputs, *outputs)]
        raise ShapeError("reduce.plan", "inputs", "shapes", shapes, "shapes that broadcast together", "reshape them")
    return found


def block_size(reduced: Sequence[int], own: Sequence[int]) -> int:
    """How many elements of a row one of an operand is for, that has the first of the reduced axes and not the last;
    0 where it has all or none, or others, or a kernel takes no such blocks.

    Args:    reduced: the extents of the reduced axes.   own: those of the operand along them.
    """
    follows = [extent == given for extent, given in zip(reduced, own, strict=True) if extent != 1]
    first = follows.index(False) if False in follows else 0
    if not first or True in follows[first:]:
        return 0
    size = math.prod([extent for extent in reduced if extent != 1][first:])
    return next((each for each in BLOCKS if each == size), 0)


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from 0, ascending.

    Raises:  OptionError if one is out of range or named twice.
    """
    found = tuple(sorted(a + rank if a < 0 else a for a in axes))
    if len(set(found)) != len(found) or any(not 0 <= a < rank for a in found):
        raise OptionError(
            "reduce.plan", "axes", "", tuple(axes), f"distinct, in [{-rank}, {rank})", "name each axis once"
        )
    return found
