"""Views of shape and strides that can be refused: each checks its arguments, and raises in the name of Layout's method.

What is passed as `shape` and `strides` is a layout's own, and tuples that are remembered hold plain ints. None depends
on where a layout begins, so a loop over places is as quick as one over a single one. Start at `permuted`.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import SupportsIndex, cast

from samebits.errors import LayoutError, ShapeError
from samebits.layout import strides as arithmetic
from samebits.layout.strides import Shape
from samebits.shapes import (
    LIMIT,
    MAX_RANK,
    check_axes,
    check_extents,
    check_index,
    check_integers,
    check_permutation,
    is_integer,
)

__all__ = [
    "Axes",
    "broadcast",
    "check_multiple",
    "check_rank",
    "check_size",
    "flattened",
    "flipped",
    "permuted",
    "repacked",
    "reshaped",
    "resolved",
    "several",
    "squeezed",
    "unit_of",
    "unsqueezed",
    "windowed",
]

Axes = SupportsIndex | Sequence[SupportsIndex]
Pair = tuple[Shape, Shape]


@lru_cache(maxsize=1024)
def permuted(shape: Shape, strides: Shape, pitch: int, axes: Shape) -> Pair:
    """Shape and strides of the axes in another order; see `Layout.permute`."""
    order = check_permutation("Layout.permute", "axes", axes, len(shape))
    extents = tuple([shape[axis] for axis in order])
    return extents, arithmetic.settled(extents, [strides[axis] for axis in order], pitch)


@lru_cache(maxsize=1024)
def reshaped(shape: Shape, strides: Shape, pitch: int, wanted: Shape, call: str) -> Pair:
    """Shape and strides of the elements in row-major order; see `Layout.reshape`."""
    extents = resolved(call, wanted, math.prod(shape), shape)
    steps = arithmetic.reshaped(shape, strides, extents)
    if steps is None:
        actual = f"{shape} with strides_bits {strides}"
        raise LayoutError(call, "layout", "", actual, f"viewable as {extents}", "copy it first")
    return extents, arithmetic.settled(extents, steps, pitch)


@lru_cache(maxsize=1024)
def flattened(shape: Shape, strides: Shape, pitch: int, start: int, end: int) -> Pair:
    """Shape and strides with some axes merged; see `Layout.flatten`."""
    call = "Layout.flatten"
    first = check_index(call, "start", start, len(shape) or 1)
    last = check_index(call, "end", end, len(shape) or 1)
    if last < first:
        remedy = "name the axes in their order"
        raise LayoutError(call, "end", "", last, f"at least {first}, the start", remedy)
    extents = (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
    return reshaped(shape, strides, pitch, check_extents(call, "shape", extents), call)


@lru_cache(maxsize=1024)
def broadcast(shape: Shape, strides: Shape, pitch: int, wanted: Shape) -> Pair:
    """Shape and strides with axes repeated; see `Layout.broadcast_to`."""
    added = len(wanted) - len(shape)
    if added < 0 or any(a not in (1, b) for a, b in zip(shape, wanted[added:], strict=True)):
        remedy = "extents must be equal or 1, aligned at the last axis"
        raise ShapeError("Layout.broadcast_to", "shape", "", wanted, f"one {shape} broadcasts to", remedy)
    check_size("Layout.broadcast_to", wanted)
    check_extents("Layout.broadcast_to", "shape", wanted)
    kept = zip(shape, wanted[added:], strides, strict=True)
    return wanted, arithmetic.settled(wanted, (*(0,) * added, *(s * (a == b) for a, b, s in kept)), pitch)


def squeezed(shape: Shape, strides: Shape, axis: Axes | None) -> Pair:
    """Shape and strides without axes of extent 1; see `Layout.squeeze`."""
    if axis is None:
        kept = [i for i, extent in enumerate(shape) if extent != 1]
    else:
        drop = check_axes("Layout.squeeze", "axis", axis, len(shape))
        for place in drop:
            if shape[place] != 1:
                remedy = "index it instead"
                raise LayoutError("Layout.squeeze", f"axis {place}", "extent", shape[place], 1, remedy)
        kept = [i for i in range(len(shape)) if i not in drop]
    return tuple([shape[i] for i in kept]), tuple([strides[i] for i in kept])


@lru_cache(maxsize=1024)
def unsqueezed(shape: Shape, strides: Shape, pitch: int, axes: int | Shape) -> Pair:
    """Shape and strides with axes of extent 1; see `Layout.unsqueeze`."""
    given = (axes,) if isinstance(axes, int) else axes
    extents, steps = list(shape), list(strides)
    for place in sorted(check_axes("Layout.unsqueeze", "axis", given, len(shape) + len(given))):
        extents.insert(place, 1)
        steps.insert(place, 0)
    check_rank(extents)
    return tuple(extents), arithmetic.settled(tuple(extents), steps, pitch)


def flipped(shape: Shape, strides: Shape, axis: Axes | None) -> tuple[Shape, int]:
    """Strides in reverse order along axes, and how far the first element moves; see `Layout.flip`."""
    steps, moved = list(strides), 0
    for place in range(len(shape)) if axis is None else check_axes("Layout.flip", "axis", axis, len(shape)):
        moved += (shape[place] - 1) * steps[place]
        steps[place] = -steps[place]
    return tuple(steps), moved


def windowed(shape: Shape, strides: Shape, window: Axes, axis: Axes | None) -> Pair:
    """Shape and strides of all windows; see `Layout.sliding_window`."""
    call = "Layout.sliding_window"
    extents = several(call, "window", window)
    axes: Shape = tuple(range(len(shape)))
    if axis is not None:
        axes = tuple([check_index(call, "axis", place, len(shape)) for place in several(call, "axis", axis)])
    if len(axes) != len(extents):
        raise LayoutError(call, "window", "length", len(extents), len(axes), "give one for each axis")
    if min(extents, default=1) < 1:
        raise LayoutError(call, "window", "", extents, "extents of at least 1", "leave the axis out")
    found = arithmetic.windows_of(shape, strides, zip(axes, extents, strict=True))
    if found is None:
        expected = f"within {shape} along axes {axes}"
        raise ShapeError(call, "window", "", extents, expected, "use a smaller window")
    check_rank(found[0])
    check_size(call, found[0])
    return tuple(found[0]), tuple(found[1])


@lru_cache(maxsize=1024)
def repacked(shape: Shape, strides: Shape, pitch: int, unit: int, width: int, axis: int) -> Pair:
    """Shape and strides of the same bits as elements of another width; see `Layout.repack`."""
    call, extents, steps = "Layout.repack", list(shape), list(strides)
    place = -1 if width == pitch else check_index(call, "axis", axis, len(shape))
    # A stride matters where there is another element to step to.
    matters = [extent > 1 and 0 not in shape for extent in shape]
    if width != pitch:
        if matters[place] and strides[place] != pitch:
            expected = f"{pitch} bits, one element"
            raise LayoutError(call, f"axis {place}", "stride", strides[place], expected, "copy it first")
        check_multiple(call, f"axis {place} extent", shape[place], width // pitch or 1)
        extents[place] = extents[place] * pitch // width
        steps[place] = width
        check_size(call, extents)
    for other, stride in enumerate(strides):
        if other != place and matters[other]:
            check_multiple(call, f"axis {other} stride in bits", stride, unit)
    return tuple(extents), arithmetic.settled(tuple(extents), steps, width)


def unit_of(pitch: int, padded: bool, width: int) -> int:
    """What places must be multiples of to be read as elements of that width; see `Layout.repack`."""
    if width < 1 or (width % pitch and pitch % width):
        expected, remedy = f"a multiple or a divisor of {pitch}", "repack to a common divisor first"
        raise LayoutError("Layout.repack", "width_bits", "", width, expected, remedy)
    # Of 6 bits, elements in a row begin at every second bit.
    return width & -width if width > pitch else 8 if padded else 1


def resolved(call: str, wanted: Shape, size: int, like: Shape) -> Shape:
    """The extents, a -1 among them worked out, that hold `size` elements."""
    if wanted.count(-1) == 1:
        known = -math.prod(wanted)
        if known <= 0 or size % known:
            expected = f"an extent that -1 can stand for with {size} elements"
            raise ShapeError(call, "shape", "", wanted, expected, "give every extent")
        wanted = tuple([size // known if extent == -1 else extent for extent in wanted])
    wanted = check_extents(call, "shape", wanted)
    if math.prod(wanted) != size:
        expected = f"of {size} elements like {like}"
        raise ShapeError(call, "shape", "", wanted, expected, "keep the number of elements")
    return wanted


def several(call: str, name: str, values: Axes) -> Shape:
    """One integer, or a sequence of them, as a tuple."""
    return check_integers(call, name, (values,) if is_integer(values) else cast(Sequence[SupportsIndex], values))


def check_rank(shape: Sequence[int]) -> None:
    """There are not more axes than a layout may have."""
    if len(shape) > MAX_RANK:
        raise LayoutError("Layout", "rank", "", len(shape), f"at most {MAX_RANK}", "merge axes")


def check_size(call: str, shape: Sequence[int]) -> None:
    """There are not more elements than a layout may have."""
    if math.prod(shape) >= LIMIT:
        raise ShapeError(call, "shape", "", tuple(shape), "fewer than 2**63 elements", "use less")


def check_multiple(call: str, name: str, value: int, unit: int) -> None:
    """value is a whole number of units."""
    if value % unit:
        raise LayoutError(call, name, "", value, f"a multiple of {unit}", "copy it first")
