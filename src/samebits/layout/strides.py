"""Arithmetic of extents and strides on plain tuples: what a view of memory has for strides, if it has any.

Nothing here checks its arguments or raises: callers pass extents and axes that `samebits.shapes` has checked. Strides,
offsets, widths and pitches are all in one unit, bits as `Layout` calls it.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

__all__ = [
    "dense_strides",
    "diagonal_of",
    "is_contiguous",
    "joined",
    "reshaped",
    "settled",
    "span",
    "stride_order",
    "vector_factor",
    "windows_of",
]

Shape = tuple[int, ...]


@lru_cache(maxsize=1024)
def dense_strides(shape: Shape, pitch: int, axes: Shape | None = None) -> Shape:
    """Strides of elements `pitch` apart, the axes given from slowest to fastest (None: row-major)."""
    strides = [0] * len(shape)
    step = pitch
    for axis in reversed(range(len(shape)) if axes is None else axes):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def settled(shape: Shape, strides: Sequence[int], pitch: int) -> Shape:
    """Strides, those that no element's place depends on replaced by the dense ones."""
    if 0 in shape:
        return dense_strides(shape, pitch)
    if 1 not in shape:
        return tuple(strides)
    found = list(strides)
    step = pitch
    for axis in range(len(shape) - 1, -1, -1):
        extent = shape[axis]
        if extent == 1:
            found[axis] = step
        else:
            step = abs(found[axis]) * extent
    return tuple(found)


def span(shape: Shape, strides: Sequence[int], offset: int, width: int) -> tuple[int, int]:
    """The first place used and the one past the last; equal where there is no element."""
    if 0 in shape:
        return offset, offset
    low = high = offset
    for extent, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return low, high + width


def stride_order(strides: Sequence[int]) -> Shape:
    """The axes from slowest to fastest: by falling magnitude of the stride, equal ones as they stand, as in NumPy."""
    return tuple(sorted(range(len(strides)), key=lambda axis: -abs(strides[axis])))


def is_contiguous(shape: Shape, strides: Sequence[int], pitch: int, order: str) -> bool:
    """Whether elements lie side by side; `order` is C, F, or any order of the axes."""
    if 0 in shape:
        return True
    # The axes that have a stride of their own, slowest first; the others fit any order.
    axes = [axis for axis, extent in enumerate(shape) if extent != 1]
    if order == "F":
        axes.reverse()
    elif order == "any":
        axes.sort(key=strides.__getitem__, reverse=True)
    step = pitch
    for axis in reversed(axes):
        if strides[axis] != step:
            return False
        step *= shape[axis]
    return True


def joined(shape: Shape, strides: Sequence[int]) -> list[tuple[int, int]]:
    """The longest groups of neighbouring axes that one stride steps through, as (extent, stride); extent 1 left out."""
    groups: list[tuple[int, int]] = []
    size, step = 1, 0
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if step == extent * stride and groups:
            size *= extent
            groups[-1] = size, stride
        else:
            size = extent
            groups.append((size, stride))
        step = stride
    return groups


def reshaped(shape: Shape, strides: Shape, wanted: Shape) -> list[int] | None:
    """Strides under another shape of as many elements in row-major order; None where elements would have to move.

    Those of axes of extent 1, and of an empty shape, are arbitrary.
    """
    found = list(wanted)
    if 0 in wanted:
        return found
    groups = joined(shape, strides)
    room, step = 1, 0
    for axis in range(len(wanted) - 1, -1, -1):
        extent = wanted[axis]
        if extent == 1:
            continue
        if room == 1:
            room, step = groups.pop()
        if room % extent:
            return None
        found[axis] = step
        room //= extent
        step *= extent
    return found


def diagonal_of(shape: Shape, strides: Shape, skew: int, first: int, second: int) -> tuple[list[int], list[int], int]:
    """Shape, strides and displacement of the elements whose index along `second` is `skew` more than along `first`."""
    down, right = max(-skew, 0), max(skew, 0)
    extent = max(min(shape[first] - down, shape[second] - right), 0)
    kept = [axis for axis in range(len(shape)) if axis not in (first, second)]
    moved = down * strides[first] + right * strides[second]
    return (
        [*(shape[axis] for axis in kept), extent],
        [*(strides[axis] for axis in kept), strides[first] + strides[second]],
        moved,
    )


def windows_of(shape: Shape, strides: Shape, windows: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]] | None:
    """Shape and strides with a last axis for each (axis, extent of the window); None where one does not fit."""
    extents, steps = list(shape), list(strides)
    for axis, window in windows:
        extents[axis] -= window - 1
        if extents[axis] < 1:
            return None
        extents.append(window)
        steps.append(strides[axis])
    return extents, steps


def vector_factor(shape: Shape, strides: Shape, places: Sequence[int], pitch: int, axis: int, limit: int) -> int:
    """The largest power of two of elements along `axis` that divides its extent and keeps all else aligned to it.

    Aligned is what begins at multiples of the largest power of two in the vector's width; `places`, offset and address,
    must be too.
    """
    if shape[axis] == 1 or strides[axis] != pitch:
        return 1
    others = [s for i, (extent, s) in enumerate(zip(shape, strides, strict=True)) if i != axis and extent > 1]
    factor = 1
    while factor * 2 * pitch <= limit:
        twice = factor * 2
        unit = twice * pitch & -(twice * pitch)
        if shape[axis] % twice or any(value % unit for value in (*others, *places)):
            break
        factor = twice
    return factor
