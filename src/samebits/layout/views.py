"""Views of shape and strides that can be refused: each checks its arguments, and raises in the name of Layout's method.

What is passed as `shape` and `strides` is a layout's own; integers among the arguments are ints already.
"""

import math
from collections.abc import Sequence
from typing import SupportsIndex, cast

from samebits.errors import LayoutError, ShapeError, message
from samebits.layout import strides as arithmetic
from samebits.layout.strides import Shape
from samebits.shapes import LIMIT, MAX_RANK, check_axes, check_extents, check_index, check_integers, is_integer

__all__ = ["Axes", "broadcast", "flattened", "flipped", "repacked", "resolved", "squeezed", "unsqueezed", "windowed"]

Axes = SupportsIndex | Sequence[SupportsIndex]
Pair = tuple[Shape, Shape]


def broadcast(shape: Shape, strides: Shape, wanted: Shape) -> Pair:
    """Shape and strides with axes repeated; see `Layout.broadcast_to`."""
    added = len(wanted) - len(shape)
    if added < 0 or any(a not in (1, b) for a, b in zip(shape, wanted[added:], strict=True)):
        remedy = "extents must be equal or 1, aligned at the last axis"
        raise ShapeError(message("Layout.broadcast_to", "shape", "", wanted, f"one {shape} broadcasts to", remedy))
    check_size("Layout.broadcast_to", wanted)
    kept = zip(shape, wanted[added:], strides, strict=True)
    return check_extents("Layout.broadcast_to", "shape", wanted), (*(0,) * added, *(s * (a == b) for a, b, s in kept))


def squeezed(shape: Shape, strides: Shape, axis: Axes | None) -> Pair:
    """Shape and strides without axes of extent 1; see `Layout.squeeze`."""
    if axis is None:
        kept = [i for i, extent in enumerate(shape) if extent != 1]
    else:
        drop = check_axes("Layout.squeeze", "axis", axis, len(shape))
        for place in drop:
            if shape[place] != 1:
                remedy = "index it instead"
                raise LayoutError(message("Layout.squeeze", f"axis {place}", "extent", shape[place], 1, remedy))
        kept = [i for i in range(len(shape)) if i not in drop]
    return tuple([shape[i] for i in kept]), tuple([strides[i] for i in kept])


def unsqueezed(shape: Shape, strides: Shape, axis: Axes) -> Pair:
    """Shape and strides with axes of extent 1; see `Layout.unsqueeze`."""
    given = several("Layout.unsqueeze", "axis", axis)
    extents, steps = list(shape), list(strides)
    for place in sorted(check_axes("Layout.unsqueeze", "axis", given, len(shape) + len(given))):
        extents.insert(place, 1)
        steps.insert(place, 0)
    check_rank(extents)
    return tuple(extents), tuple(steps)


def flipped(shape: Shape, strides: Shape, axis: Axes | None) -> tuple[Shape, int]:
    """Strides in reverse order along axes, and how far the first element moves; see `Layout.flip`."""
    steps, moved = list(strides), 0
    for place in range(len(shape)) if axis is None else check_axes("Layout.flip", "axis", axis, len(shape)):
        moved += (shape[place] - 1) * steps[place]
        steps[place] = -steps[place]
    return tuple(steps), moved


def flattened(shape: Shape, start: SupportsIndex, end: SupportsIndex) -> Shape:
    """The extents with some merged; see `Layout.flatten`."""
    first = check_index("Layout.flatten", "start", start, len(shape) or 1)
    last = check_index("Layout.flatten", "end", end, len(shape) or 1)
    if last < first:
        remedy = "name the axes in their order"
        raise LayoutError(message("Layout.flatten", "end", "", last, f"at least {first}, the start", remedy))
    extents = (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
    return check_extents("Layout.flatten", "shape", extents)


def windowed(shape: Shape, strides: Shape, window: Axes, axis: Axes | None) -> Pair:
    """Shape and strides of all windows; see `Layout.sliding_window`."""
    call = "Layout.sliding_window"
    extents = several(call, "window", window)
    axes: Shape = tuple(range(len(shape)))
    if axis is not None:
        axes = tuple([check_index(call, "axis", place, len(shape)) for place in several(call, "axis", axis)])
    if len(axes) != len(extents):
        raise LayoutError(message(call, "window", "length", len(extents), len(axes), "give one for each axis"))
    if min(extents, default=1) < 1:
        raise LayoutError(message(call, "window", "", extents, "extents of at least 1", "leave the axis out"))
    found = arithmetic.windows_of(shape, strides, zip(axes, extents, strict=True))
    if found is None:
        expected = f"within {shape} along axes {axes}"
        raise ShapeError(message(call, "window", "", extents, expected, "use a smaller window"))
    check_rank(found[0])
    check_size(call, found[0])
    return tuple(found[0]), tuple(found[1])


def repacked(
    shape: Shape, strides: Shape, offset: int, pitch: int, padded: bool, width: int, axis: SupportsIndex, address: int
) -> Pair:
    """Shape and strides of the same bits as elements of another width; see `Layout.repack`."""
    call = "Layout.repack"
    if width < 1 or (width % pitch and pitch % width):
        expected, remedy = f"a multiple or a divisor of {pitch}", "repack to a common divisor first"
        raise LayoutError(message(call, "width_bits", "", width, expected, remedy))
    place = -1 if width == pitch else check_index(call, "axis", axis, len(shape))
    if width != pitch and shape[place] != 1 and strides[place] != pitch:
        expected = f"{pitch} bits, one element"
        raise LayoutError(message(call, f"axis {place}", "stride", strides[place], expected, "copy it first"))
    unit = width if width > pitch else 8 if padded else 1
    if width > pitch:
        _check_multiple(call, f"axis {place} extent", shape[place], width // pitch)
        _check_multiple(call, "address in bits", address * 8, unit)
    _check_multiple(call, "offset_bits", offset, unit)
    for other, stride in enumerate(strides):
        if other != place and shape[other] > 1 and 0 not in shape:
            _check_multiple(call, f"axis {other} stride in bits", stride, unit)
    if width == pitch:
        return shape, strides
    extent = shape[place] * pitch // width
    return (*shape[:place], extent, *shape[place + 1 :]), (*strides[:place], width, *strides[place + 1 :])


def resolved(call: str, wanted: Shape, size: int, like: Shape) -> Shape:
    """The extents, a -1 among them worked out, that hold `size` elements."""
    if wanted.count(-1) == 1:
        known = -math.prod(wanted)
        if known <= 0 or size % known:
            expected = f"an extent that -1 can stand for with {size} elements"
            raise ShapeError(message(call, "shape", "", wanted, expected, "give every extent"))
        wanted = tuple([size // known if extent == -1 else extent for extent in wanted])
    wanted = check_extents(call, "shape", wanted)
    if math.prod(wanted) != size:
        expected = f"of {size} elements like {like}"
        raise ShapeError(message(call, "shape", "", wanted, expected, "keep the number of elements"))
    return wanted


def several(call: str, name: str, values: Axes) -> Shape:
    """One integer, or a sequence of them, as a tuple."""
    return check_integers(call, name, (values,) if is_integer(values) else cast(Sequence[SupportsIndex], values))


def check_rank(shape: Sequence[int]) -> None:
    """There are not more axes than a layout may have."""
    if len(shape) > MAX_RANK:
        raise LayoutError(message("Layout", "rank", "", len(shape), f"at most {MAX_RANK}", "merge axes"))


def check_size(call: str, shape: Sequence[int]) -> None:
    """There are not more elements than a layout may have."""
    if math.prod(shape) >= LIMIT:
        raise ShapeError(message(call, "shape", "", tuple(shape), "fewer than 2**63 elements", "use less"))


def _check_multiple(call: str, name: str, value: int, unit: int) -> None:
    """value is a whole number of units."""
    if value % unit:
        raise LayoutError(message(call, name, "", value, f"a multiple of {unit}", "copy it first"))
