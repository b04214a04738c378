"""What an indexing key selects: integers drop an axis, slices of any step keep it, None inserts one, ... fills up."""

from collections.abc import Sequence
from types import EllipsisType
from typing import SupportsIndex

from samebits.errors import LayoutError, OutOfRangeError, shown
from samebits.shapes import MAX_RANK, check_index

__all__ = ["Key", "Place", "selected"]

Place = SupportsIndex | slice | EllipsisType | None
Key = Place | tuple[Place, ...]


def selected(key: Key, shape: Sequence[int], strides: Sequence[int], offset: int) -> tuple[list[int], list[int], int]:
    """Shape, strides and offset of the part that key selects.

    Raises:
        LayoutError: An index is out of range, of another type, or one too many.
    """
    keys = key if isinstance(key, tuple) else (key,)
    if len(keys) > len(shape):
        _check_count(keys, len(shape))
    extents: list[int] = []
    steps: list[int] = []
    axis = 0
    for place, item in enumerate(keys):
        if isinstance(item, slice):
            extent, stride = shape[axis], strides[axis]
            start, stop, step = item.start, item.stop, item.step
            if start is not None or stop is not None or step is not None:
                if step is None and type(start) is type(stop) is int and 0 <= start <= stop <= extent:
                    extent = stop - start
                else:
                    start, stop, step = _indices(item, axis, extent)
                    extent = len(range(start, stop, step))
                    stride *= step
                offset += start * strides[axis]
            extents.append(extent)
            steps.append(stride)
            axis += 1
        elif item is None:
            extents.append(1)
            steps.append(0)
        elif item is Ellipsis:
            _check_count(keys, len(shape))
            rest = len(shape) - sum(1 for later in keys[place + 1 :] if later is not None)
            extents += shape[axis:rest]
            steps += strides[axis:rest]
            axis = rest
        else:
            extent = shape[axis]
            if type(item) is not int or not 0 <= item < extent:
                if hasattr(item, "__len__") and getattr(item, "shape", None) != ():
                    expected, remedy = "an integer, a slice, None or ...", "call samebits.take for what lies anywhere"
                    raise LayoutError("Layout[...]", f"index of axis {axis}", "", shown(item), expected, remedy)
                item = check_index("Layout[...]", f"index of axis {axis}", item, extent)
            offset += item * strides[axis]
            axis += 1
    if axis < len(shape):
        extents += shape[axis:]
        steps += strides[axis:]
    if len(extents) > MAX_RANK:
        raise LayoutError("Layout", "rank", "", len(extents), f"at most {MAX_RANK}", "merge axes")
    return extents, steps, offset


def _indices(item: slice, axis: int, extent: int) -> tuple[int, int, int]:
    """Start, stop and step as Python has them for a sequence."""
    try:
        if bool not in (type(item.start), type(item.stop), type(item.step)):
            return item.indices(extent)
    except (TypeError, ValueError):
        pass
    expected = "of integers or None, with a step that is not 0"
    raise LayoutError("Layout[...]", f"slice of axis {axis}", "", item, expected, "use slice(None) for all")


def _check_count(keys: tuple[Place, ...], ndim: int) -> None:
    """There are no more indices than axes, and at most one Ellipsis."""
    used = sum(1 for item in keys if item is not None and item is not Ellipsis)
    if used > ndim:
        remedy = "index existing axes only"
        raise OutOfRangeError("Layout[...]", "key", "", f"{used} indices", f"at most {ndim}", remedy)
    ellipses = sum(1 for item in keys if item is Ellipsis)
    if ellipses > 1:
        raise LayoutError("Layout[...]", "key", "", f"{ellipses} ellipses", "at most one", "leave one of them")
