"""ONNX operators that speak of shapes, or see the same elements in another one.

Shapes, axes and bounds may be any value whose integers are known when the model is loaded, symbols allowed. Start at
`ROWS`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samebits import dtypes
from samebits.onnx.row import Attribute, NodeCall, OnnxRow, Unsupported
from samebits.operations import dim
from samebits.operations.dim import Size, SymbolicShape
from samebits.operations.moves import Range
from samebits.operations.operation import Array
from samebits.program.room import Room

__all__ = ["ROWS"]

# A range of so many elements has no room for certain.
_LONGEST = 1 << 24
# One of so few may be a shape, or axes.
_SHORT = 64


def _shape(call: NodeCall) -> Sequence[str]:
    shape = call.fact(0).shape
    return (call.b.dims(shape[slice(call.attributes["start"], call.attributes["end"])]),)


def _size(call: NodeCall) -> Sequence[str]:
    return (call.b.dims((dim.product(call.fact(0).shape),), scalar=True),)


def _reshape(call: NodeCall) -> Sequence[str]:
    shape, target = call.fact(0).shape, list(call.integers(1))
    if not call.attributes["allowzero"]:
        if any(size == 0 and i >= len(shape) for i, size in enumerate(target)):
            raise Unsupported("a 0 in the shape copies an axis that input 0 does not have")
        target = [shape[i] if size == 0 else size for i, size in enumerate(target)]
    if any(isinstance(size, int) and size < -1 for size in target):
        raise Unsupported(f"the shape {tuple(target)} has negative extents")
    open_axes = [i for i, size in enumerate(target) if size == -1]
    if len(open_axes) > 1:
        raise Unsupported("more than one axis of the shape is -1")
    if open_axes:
        rest = dim.product([size for size in target if size != -1])
        if rest == 0:
            raise Unsupported("an axis of -1 stands beside an axis of 0")
        target[open_axes[0]] = dim.floor_divide(dim.product(shape), rest)
    sizes = dim.product(shape), dim.product(target)
    if all(isinstance(size, int) for size in sizes) and sizes[0] != sizes[1]:
        raise Unsupported(f"{sizes[0]} elements do not fill the shape {tuple(target)}")
    return (call.b.reshape(call[0], tuple(target)),)


def _transpose(call: NodeCall) -> Sequence[str]:
    rank = call.fact(0).rank
    order = tuple(reversed(range(rank))) if call.attributes["perm"] is None else call.attributes["perm"]
    if sorted(order) != list(range(rank)):
        raise Unsupported(f"perm {order} is no permutation of {rank} axes")
    return (call.b.transpose(call[0], order),)


def _flatten(call: NodeCall) -> Sequence[str]:
    shape, axis = call.fact(0).shape, call.attributes["axis"]
    if not -len(shape) <= axis <= len(shape):
        raise Unsupported(f"axis {axis} is outside a rank of {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    return (call.b.reshape(call[0], (dim.product(shape[:axis]), dim.product(shape[axis:]))),)


def _squeeze(call: NodeCall) -> Sequence[str]:
    shape = call.fact(0).shape
    given = _given(call)
    if given is None:
        axes = {i for i, size in enumerate(shape) if size == 1}
        if any(not isinstance(size, int) for size in shape):
            raise Unsupported("without axes every extent must be known")
    else:
        axes = set(call.axes(given, len(shape)))
    wrong = [axis for axis in axes if shape[axis] != 1]
    if wrong:
        raise Unsupported(f"axis {wrong[0]} has extent {shape[wrong[0]]}, not 1")
    return (call.b.reshape(call[0], tuple(size for i, size in enumerate(shape) if i not in axes)),)


def _given(call: NodeCall) -> Sequence[int] | None:
    """The axes, which were an attribute before opset 13."""
    if "axes" in call.attributes:
        found: Sequence[int] | None = call.attributes["axes"]
        return found
    return None if call.optional(1) is None else call.numbers(1)


def _unsqueeze(call: NodeCall) -> Sequence[str]:
    given, shape = _given(call), list(call.fact(0).shape)
    if given is None:
        raise Unsupported("input 1 is missing")
    for axis in sorted(call.axes(given, len(shape) + len(given))):
        shape.insert(axis, 1)
    return (call.b.reshape(call[0], tuple(shape)),)


def _expand(call: NodeCall) -> Sequence[str]:
    return (call.b.expand(call[0], dim.broadcast_shapes([call.fact(0).shape, call.integers(1)])),)


def _slice(call: NodeCall) -> Sequence[str]:
    shape = call.fact(0).shape
    starts, ends, given, steps = _slice_bounds(call)
    axes = call.axes(range(len(starts)) if given is None else given, len(shape))
    begin: list[Size] = [0] * len(shape)
    count: list[Size] = list(shape)
    stride = [1] * len(shape)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Unsupported("starts, ends, axes and steps differ in length")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        begin[axis], count[axis] = _bounds(start, end, step, shape[axis])
        stride[axis] = step
    return (call.b.slice(call[0], tuple(begin), tuple(count), tuple(stride)),)


def _slice_bounds(call: NodeCall) -> tuple[SymbolicShape, SymbolicShape, Sequence[int] | None, Sequence[int]]:
    """Starts, ends, axes if they are given, and steps; all but the steps were attributes before opset 10."""
    if "starts" in call.attributes:
        starts = call.attributes["starts"]
        return starts, call.attributes["ends"], call.attributes["axes"], (1,) * len(starts)
    starts = call.integers(1)
    axes = None if call.optional(3) is None else call.numbers(3)
    return starts, call.integers(2), axes, (1,) * len(starts) if call.optional(4) is None else call.numbers(4)


def _bounds(start: Size, end: Size, step: int, extent: Size) -> tuple[Size, Size]:
    """The first place and the number of places, as ONNX clamps them."""
    if step == 0:
        raise Unsupported("a step is 0")
    if isinstance(start, int) and isinstance(end, int) and isinstance(extent, int):
        return _known_bounds(start, end, step, extent)
    if step < 0:
        return _backwards(start, end, step, extent)
    first, last = _clamped(start, extent), _clamped(end, extent)
    # A start beyond the extent leaves nothing whether it is cut or not, and uncut sizes stay small.
    behind = start if dim.is_never_negative(start) else first
    span = last if first == 0 else dim.maximum(last - behind, 0)
    return first, span if step == 1 else dim.floor_divide(span + (step - 1), step)


def _backwards(start: Size, end: Size, step: int, extent: Size) -> tuple[Size, Size]:
    """All of an axis from its last element down, which is what exporters write of one that is turned around."""
    is_from_last = isinstance(start, int) and (start == -1 or start >= 2**31 - 1)
    if not is_from_last or not isinstance(end, int) or end > -(2**31) + 1:
        raise Unsupported(
            f"a step of {step} from {start} to {end} needs an extent that is known when the model is loaded,"
            " unless it begins at -1 and ends at the least int64"
        )
    return dim.maximum(extent - 1, 0), dim.floor_divide(extent + (-step - 1), -step)


def _known_bounds(start: int, end: int, step: int, extent: int) -> tuple[int, int]:
    """As `_bounds`; backwards a place before the first element is none as an end, but as a start the first element."""
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first, last = (place + extent if place < 0 else place for place in (start, end))
    places = range(min(max(first, 0), high), min(max(last, low), high), step)
    return (places.start if len(places) else 0), len(places)


def _clamped(place: Size, extent: Size) -> Size:
    """A bound as a place in [0, extent]: negative ones count from the end."""
    if place == 0 or place == extent:
        return place
    if isinstance(place, int) and place < 0:
        return dim.maximum(extent + place, 0)
    if not dim.is_never_negative(place):
        raise Unsupported(f"the bound {place} may be negative")
    # Exporters write "to the end" as a huge number.
    return extent if isinstance(place, int) and place >= 2**31 - 1 else dim.minimum(place, extent)


def _range(call: NodeCall) -> Sequence[str]:
    if call.fact(0).dtype is not dtypes.int64:
        return (call.b.constant(_numbered(call.b.room, *[call.array(i) for i in range(3)])),)
    start, limit, step = call.integer(0), call.integer(1), call.integer(2)
    if not isinstance(step, int) or step == 0:
        raise Unsupported(f"the step is {step}, must be a constant that is not 0")
    span = limit - start if step > 0 else start - limit
    count = dim.floor_divide(span + (abs(step) - 1), abs(step))
    if isinstance(start, int) and isinstance(count, int) and count <= _SHORT:
        return (call.b.dims(tuple(range(start, start + max(count, 0) * step, step))),)
    return call.b.add("range", (), Range(start, count, step))


def _numbered(room: Room, *bounds: Array) -> Array:
    """start + i * step up to the limit, rounded at each operation; in float32 and then once for narrower floats."""
    if any(bound.size != 1 or bound.dtype != bounds[0].dtype or bound.dtype == bool for bound in bounds):
        raise Unsupported("start, limit and step are not one number each of one format")
    narrow = bounds[0].dtype
    is_narrow_float = narrow.itemsize == 2 and dtypes.of(narrow).is_float
    start, limit, step = (bound.reshape(()).astype(np.float32 if is_narrow_float else narrow) for bound in bounds)
    with np.errstate(all="ignore"):
        count = np.maximum(np.ceil((float(limit) - float(start)) / np.float64(step)), 0)
        if not count < _LONGEST or not room.take_bytes(int(count) * start.itemsize):
            raise Unsupported(f"it would have {count} elements, more than are computed when a model is loaded")
        made: Array = (start + np.arange(int(count)).astype(start.dtype) * step).astype(narrow)
    return made


def _constant_of_shape(call: NodeCall) -> Sequence[str]:
    value = call.attributes["value"]
    array = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(-1)
    if array.size != 1:
        raise Unsupported(f"attribute 'value' has {array.size} elements, not one")
    return (call.filled(call.integers(0), array),)


_AXES = Attribute("axes", None, "ints")
_KNOWN = "a shape, axes or bounds that depend on data"
_BACK = "; steps below 0 along an open axis, but of all of it"

ROWS: tuple[OnnxRow, ...] = (
    OnnxRow("Shape", 1, _shape, (Attribute("start", 0, since=15), Attribute("end", None, since=15))),
    OnnxRow("Size", 1, _size),
    OnnxRow("Reshape", 5, _reshape, (Attribute("allowzero", 0, allowed=(0, 1), since=14),), 2, limits=_KNOWN),
    OnnxRow("Transpose", 1, _transpose, (Attribute("perm", None, "ints"),)),
    OnnxRow("Flatten", 1, _flatten, (Attribute("axis", 1),)),
    OnnxRow("Squeeze", 1, _squeeze, (_AXES,), until=12),
    OnnxRow("Squeeze", 13, _squeeze, inputs=2, limits=_KNOWN),
    OnnxRow("Unsqueeze", 1, _unsqueeze, (Attribute("axes", kind="ints"),), until=12),
    OnnxRow("Unsqueeze", 13, _unsqueeze, inputs=2, limits=_KNOWN),
    OnnxRow("Expand", 8, _expand, inputs=2, limits=_KNOWN),
    OnnxRow("Slice", 1, _slice, (_AXES, *(Attribute(name, kind="ints") for name in ("starts", "ends"))), until=9),
    OnnxRow("Slice", 10, _slice, inputs=5, limits=_KNOWN + _BACK),
    OnnxRow("Range", 11, _range, (Attribute("stash_type", 1, allowed=(1,), since=27),), 3, limits=_KNOWN),
    OnnxRow("ConstantOfShape", 9, _constant_of_shape, (Attribute("value", None, "tensor"),), limits=_KNOWN),
)
