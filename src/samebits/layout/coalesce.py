"""Fewer axes for several layouts at once: what a loop over their elements needs to step through."""

from collections.abc import Sequence
from typing import SupportsIndex

from samebits.errors import LayoutError, ShapeError
from samebits.layout.affine import Layout
from samebits.shapes import check_index

__all__ = ["coalesce"]


def coalesce(layouts: Sequence[Layout], *, lead: SupportsIndex = 0) -> tuple[Layout, ...]:
    """The same tuples of elements, one of each layout, over as few axes as all the layouts allow.

    Axes of extent 1 go, the others are put in the lead's order from slow to fast (where it has no preference, in the
    next layout's), and neighbours merge that every layout steps through with one stride. Element (i, j, ...) of each
    result belongs together as it did before, in another order of the axes. An empty shape becomes (0,). The results
    are values, and may key a cache of kernels.

    Args:
        layouts: At least one, all of one shape.
        lead: Which of them says the order.

    Raises:
        ShapeError: The shapes differ.
        LayoutError: There is no layout, or none of number `lead`.
    """
    try:
        layouts = tuple(layouts)
    except TypeError:
        layouts = ()
    if not layouts or not all(isinstance(layout, Layout) for layout in layouts):
        kinds = f"({', '.join(type(layout).__name__ for layout in layouts)})"
        raise LayoutError("coalesce", "layouts", "", kinds, "at least one, all of type Layout", "give these")
    first = check_index("coalesce", "lead", lead, len(layouts))
    shape = layouts[0].shape
    for place, layout in enumerate(layouts):
        if layout.shape != shape:
            actual, remedy = layout.shape, "use broadcast_to first"
            raise ShapeError("coalesce", f"layouts[{place}]", "shape", actual, shape, remedy)
    if 0 in shape:
        return tuple([_like(layout, [0], [0], 0) for layout in layouts])
    rows = [layout.strides_bits for layout in (layouts[first], *layouts[:first], *layouts[first + 1 :])]
    axes = [axis for axis, extent in enumerate(shape) if extent > 1]
    axes.sort(key=lambda axis: [-abs(strides[axis]) for strides in rows])
    groups: list[list[int]] = []
    for axis in axes:
        if groups and all(row[groups[-1][-1]] == row[axis] * shape[axis] for row in rows):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    extents = []
    for group in groups:
        size = 1
        for axis in group:
            size *= shape[axis]
        extents.append(size)
    return tuple(
        [
            _like(layout, extents, [layout.strides_bits[group[-1]] for group in groups], layout.offset_bits)
            for layout in layouts
        ]
    )


def _like(layout: Layout, shape: Sequence[int], strides: Sequence[int], offset: int) -> Layout:
    """A layout of the same elements."""
    return Layout(shape, strides, offset, layout.width_bits, layout.storage)
