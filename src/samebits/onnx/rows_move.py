"""ONNX operators that place elements elsewhere: joined, cut apart, repeated, padded, picked by indices.

Indices are data and may come from anywhere; counts, axes and pads must be known when the model is loaded. Start at
`ROWS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from samebits import dtypes
from samebits.onnx.row import MANY, Attribute, NodeCall, OnnxRow, Unsupported
from samebits.operations import dim
from samebits.operations.dim import Size, SymbolicShape
from samebits.operations.moves import Concat, GatherND, ScatterND
from samebits.operations.operation import Array

if TYPE_CHECKING:
    from samebits.onnx.taken import TakenAxis

__all__ = ["ROWS", "indices_of", "picked_along"]


def _concat(call: NodeCall) -> Sequence[str]:
    operands = [call[i] for i in range(max(1, len(call.inputs)))]
    return call.b.add("concat", operands, Concat(call.axis()))


def _split(call: NodeCall) -> Sequence[str]:
    """Slices one after the other."""
    fact, axis, count = call.fact(0), call.axis(), len(call.node.outputs)
    sizes = _parts(call, fact.shape[axis], count)
    if len(sizes) != count:
        raise Unsupported(f"{len(sizes)} sizes are given for {count} outputs")
    total: Size = 0
    for size in sizes:
        total = total + size
    if any(isinstance(size, int) and size < 0 for size in sizes) or (
        dim.are_known(total, fact.shape[axis]) and total != fact.shape[axis]
    ):
        raise Unsupported(f"the sizes {sizes} do not cut the extent {fact.shape[axis]} of axis {axis}")
    made: list[str] = []
    start: Size = 0
    for size in sizes:
        starts = (*[0] * axis, start, *[0] * (fact.rank - axis - 1))
        counts = (*fact.shape[:axis], size, *fact.shape[axis + 1 :])
        made.append(call.b.slice(call[0], starts, counts, (1,) * fact.rank))
        start = start + size
    return made


def _parts(call: NodeCall, extent: Size, count: int) -> SymbolicShape:
    """The sizes of the parts: given, or equal but for a smaller last one."""
    if call.attributes.get("split") is not None:
        sizes: SymbolicShape = call.attributes["split"]
        return sizes
    if call.optional(1) is not None:
        return call.integers(1)
    if call.attributes.get("num_outputs") not in (None, count):
        raise Unsupported(f"attribute 'num_outputs' is {call.attributes['num_outputs']}, but there are {count} outputs")
    each = dim.floor_divide(extent + (count - 1), count)
    last = extent - each * (count - 1)
    if isinstance(last, int) and (last < 0 or (last != each and call.opset < 18)):
        raise Unsupported(f"an extent of {extent} has no {count} equal parts")
    return (*[each] * (count - 1), last)


def _tile(call: NodeCall) -> Sequence[str]:
    """Each axis as one of copies beside itself."""
    shape, repeats = call.fact(0).shape, call.integers(1)
    if len(repeats) != len(shape):
        raise Unsupported(f"{len(repeats)} counts are given for {len(shape)} axes")
    apart = [size for extent in shape for size in (1, extent)]
    wide = [size for pair in zip(repeats, shape, strict=True) for size in pair]
    repeated = call.b.expand(call.b.reshape(call[0], tuple(apart)), wide)
    return (call.b.reshape(repeated, tuple(n * extent for n, extent in zip(repeats, shape, strict=True))),)


def _depth_to_space(call: NodeCall) -> Sequence[str]:
    """[n, c, h, w] to [n, c / block**2, h * block, w * block]."""
    (n, c, h, w), block = _image(call)
    inner = _divided(c, block * block, "channels")
    is_depth_first = call.attributes.get("mode", "DCR") == "DCR"
    apart = (n, block, block, inner, h, w) if is_depth_first else (n, inner, block, block, h, w)
    order = (0, 3, 4, 1, 5, 2) if is_depth_first else (0, 1, 4, 2, 5, 3)
    turned = call.b.transpose(call.b.reshape(call[0], apart), order)
    return (call.b.reshape(turned, (n, inner, h * block, w * block)),)


def _space_to_depth(call: NodeCall) -> Sequence[str]:
    """[n, c, h, w] to [n, c * block**2, h / block, w / block]."""
    (n, c, h, w), block = _image(call)
    rows, columns = _divided(h, block, "rows"), _divided(w, block, "columns")
    is_depth_first = call.attributes.get("mode", "DCR") == "DCR"
    apart = call.b.reshape(call[0], (n, c, rows, block, columns, block))
    turned = call.b.transpose(apart, (0, 3, 5, 1, 2, 4) if is_depth_first else (0, 1, 3, 5, 2, 4))
    return (call.b.reshape(turned, (n, c * (block * block), rows, columns)),)


def _image(call: NodeCall) -> tuple[SymbolicShape, int]:
    """The four extents and the size of a block."""
    shape, block = call.fact(0).shape, call.attributes["blocksize"]
    if len(shape) != 4 or block < 1:
        raise Unsupported(f"blocks of {block} in {len(shape)} axes, must be of 1 or more in 4")
    return shape, block


def _divided(extent: Size, by: int, what: str) -> Size:
    if isinstance(extent, int) and extent % by:
        raise Unsupported(f"{extent} {what} are no multiple of {by}")
    return dim.floor_divide(extent, by)


def _gather(call: NodeCall) -> Sequence[str]:
    axis = call.axis()
    return (call.b.gather(call[0], indices_of(call, 1), axis),)


def indices_of(call: NodeCall, index: int) -> str:
    """Input `index` as int64, which indices are given as or as int32."""
    fact = call.fact(index)
    if fact.dtype not in (dtypes.int32, dtypes.int64):
        raise Unsupported(f"indices are {fact.dtype.name}, must be int32 or int64")
    return call[index] if fact.dtype is dtypes.int64 else call.b.apply("cast", call[index], cast_to=dtypes.int64)


def _gather_nd(call: NodeCall) -> Sequence[str]:
    """The leading axes that both share are numbered, and their places put before the indices."""
    batch, indices = call.attributes["batch_dims"], indices_of(call, 1)
    if batch:
        rank = call.b.facts[indices].rank
        if not 0 <= batch < min(rank, call.fact(0).rank):
            raise Unsupported(f"attribute 'batch_dims' is {batch}, must be less than either rank")
        shape = call.b.facts[indices].shape[:-1]
        indices = _joined(call, [_places(call, shape, axis) for axis in range(batch)], indices)
    return call.b.add("gather_nd", (call[0], indices), GatherND())


def _places(call: NodeCall, shape: SymbolicShape, axis: int) -> str:
    """The index along one axis of every element of a shape, as int64 [*shape, 1]."""
    size = shape[axis]
    numbers = call.b.reshape(call.numbered(size), (size, *[1] * (len(shape) - axis)))
    return call.b.expand(numbers, (*shape, 1))


def _joined(call: NodeCall, before: list[str], indices: str, after: Sequence[str] = ()) -> str:
    """Columns of indices beside each other."""
    columns = [*before, indices, *after]
    return call.b.concat(columns, call.b.facts[indices].rank - 1)


def _gather_elements(call: NodeCall) -> Sequence[str]:
    """out[i, j] = data[i, indices[i, j]] along an axis."""
    return (picked_along(call, call[0], indices_of(call, 1), call.axis()),)


def picked_along(call: NodeCall, data: str, indices: str, axis: int) -> str:
    """The elements that indices name along an axis; their places along all others are the output's own."""
    shape, rank = call.b.facts[indices].shape, call.b.facts[data].rank
    if len(shape) != rank:
        raise Unsupported(f"the indices have {len(shape)} axes, must have {rank}")
    from samebits.operations.picks import PickAlong, are_within  # which few models need

    if are_within(shape, call.b.facts[data].shape, axis):
        return call.b.add("gather_along", (data, indices), PickAlong(axis))[0]
    column = call.b.reshape(indices, (*shape, 1))
    before = [_places(call, shape, i) for i in range(axis)]
    after = [_places(call, shape, i) for i in range(axis + 1, rank)]
    picked = _joined(call, before, column, after) if rank > 1 else column
    return call.b.add("gather_nd", (data, picked), GatherND())[0]


def _scatter_elements(call: NodeCall) -> Sequence[str]:
    """data with updates at the places that indices name along an axis."""
    from samebits.operations.picks import PickAlong  # which few models need

    return call.b.add("scatter_along", (call[0], indices_of(call, 1), call[2]), PickAlong(call.axis()))


def _scatter_nd(call: NodeCall) -> Sequence[str]:
    """data with updates at the places that rows of indices name along the leading axes."""
    b, shape, indices = call.b, call.fact(0).shape, indices_of(call, 1)
    *outer, count = b.facts[indices].shape or (0,)
    if not isinstance(count, int) or not 1 <= count <= len(shape):
        raise Unsupported(f"indices name {count} axes, must name 1 to {len(shape)}")
    due, found = (*outer, *shape[count:]), call.fact(2).shape
    if len(found) != len(due) or any(dim.are_known(x, y) and x != y for x, y in zip(found, due, strict=True)):
        raise Unsupported(f"updates are {list(found)}, must be {list(due)}")
    return b.add("scatter_nd", (call[0], indices, call.fitted(2, due)), ScatterND())


def _top(call: NodeCall) -> Sequence[str]:
    """The largest or smallest elements along an axis, in their order, and their places."""
    given, axis = call.numbers(1), call.axis()
    extent = call.fact(0).shape[axis]
    if len(given) != 1 or given[0] < 0 or not isinstance(extent, int) or given[0] > extent:
        raise Unsupported(f"the count is {given} of {extent}, must be one number, and no larger than a known extent")
    from samebits.operations.picks import PickAlong, SortedPlaces  # which few models need

    (places,) = call.b.add("order", (call[0],), SortedPlaces(axis, bool(call.attributes.get("largest", 1)), given[0]))
    return (*call.b.add("gather_along", (call[0], places), PickAlong(axis)), places)


def _reverse(call: NodeCall) -> Sequence[str]:
    """The first elements along the time axis turned around, as many as each of the batch says."""
    b, fact, lengths = call.b, call.fact(0), indices_of(call, 1)
    time, batch = call.axis("time_axis"), call.axis("batch_axis")
    if {time, batch} != {0, 1} or b.facts[lengths].rank != 1:
        raise Unsupported(f"axes {time} and {batch} are not 0 and 1, or the lengths are no vector")
    shape = fact.shape[:2]
    own, others = (_places(call, shape, axis) for axis in (time, batch))
    limit = b.reshape(lengths, (fact.shape[batch], 1) if batch == 1 else (fact.shape[batch], 1, 1))
    turned = b.apply("sub", b.apply("sub", limit, b.scalar(1, dtypes.int64)), own)
    picked = b.apply("where", b.apply("less", own, limit), turned, own)
    columns = [picked, others] if time == 0 else [others, picked]
    indices = b.concat(columns, 2)
    return b.add("gather_nd", (call[0], indices), GatherND())


def _pad(call: NodeCall) -> Sequence[str]:
    """One concat an axis, but for what repeats what is there; a negative count cuts."""
    pads, fact = call.attributes.get("pads"), call.fact(0)
    pads = call.numbers(1) if pads is None else pads
    axes = tuple(range(fact.rank)) if call.optional(3) is None else call.axes(call.numbers(3), fact.rank)
    if len(pads) != 2 * len(axes):
        raise Unsupported(f"{len(pads)} counts are given for {len(axes)} axes, two an axis are needed")
    x, repeated = call[0], list["TakenAxis"]()
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        x = _cut(call, x, axis, min(before, 0), min(after, 0))
        around = max(before, 0), max(after, 0)
        if any(around) and call.attributes["mode"] == "constant":
            x = call.padded(x, axis, around, _pad_value(call))
        elif any(around):
            repeated.append(_repeated(call, x, axis, around))
    if repeated:
        from samebits.onnx.taken import taken  # which few models need

        x = taken(call.b, x, repeated)
    return (x if x != call[0] else call.b.apply("copy", x),)


def _cut(call: NodeCall, x: str, axis: int, before: int, after: int) -> str:
    """x without -before first and -after last places of an axis."""
    if not before and not after:
        return x
    shape = list(call.b.facts[x].shape)
    starts = tuple(-before if i == axis else 0 for i in range(len(shape)))
    shape[axis] = shape[axis] + before + after
    return call.b.slice(x, starts, tuple(shape), (1,) * len(shape))


def _repeated(call: NodeCall, x: str, axis: int, around: tuple[int, int]) -> TakenAxis:
    """An axis with so many places before and behind it, where what is there is repeated."""
    from samebits.onnx.taken import TakenAxis

    extent = call.b.facts[x].shape[axis]
    if not isinstance(extent, int) or not extent:
        raise Unsupported(f"axis {axis} has an extent of {extent}; only constants are padded there")
    return TakenAxis(axis, np.pad(np.arange(extent), around, mode=call.attributes["mode"])[None])


def _pad_value(call: NodeCall) -> Array:
    """What constants are padded with."""
    dtype = call.fact(0).dtype
    if "value" in call.attributes:
        return np.array([call.attributes["value"]]).astype(dtype.numpy)
    value: Array = np.zeros(1, dtype.numpy) if call.optional(2) is None else call.array(2).reshape(-1)
    if value.size != 1 or value.dtype != dtype.numpy:
        raise Unsupported(f"the value is {value.size} elements of {value.dtype}, must be one of {dtype.name}")
    return value


def _order(since: int) -> Attribute:
    return Attribute("mode", "DCR", "string", ("DCR", "CRD"), since=since)


def _mode(*allowed: str) -> Attribute:
    return Attribute("mode", "constant", "string", allowed)


_KNOWN = "counts that depend on data"
_PADDED = "counts and a value that depend on data"
_BLOCK = Attribute("blocksize")
_PICK = Attribute("axis", 0)
_PLAIN = Attribute("reduction", "none", "string", ("none",), since=16)
_LARGEST = (Attribute("axis", -1), *(Attribute(name, 1, allowed=(0, 1), since=11) for name in ("largest", "sorted")))

ROWS: tuple[OnnxRow, ...] = (
    OnnxRow("Concat", 4, _concat, (Attribute("axis"),), MANY),
    OnnxRow("Split", 2, _split, (_PICK, Attribute("split", None, "ints")), until=12),
    OnnxRow("Split", 13, _split, (_PICK, Attribute("num_outputs", None, since=18)), inputs=2, limits=_KNOWN),
    OnnxRow("Tile", 6, _tile, inputs=2, limits=_KNOWN),
    OnnxRow("DepthToSpace", 1, _depth_to_space, (_BLOCK, _order(11))),
    OnnxRow("SpaceToDepth", 1, _space_to_depth, (_BLOCK, _order(28))),
    OnnxRow(
        "Pad",
        2,
        _pad,
        (_mode("constant", "reflect", "edge"), Attribute("pads", kind="ints"), Attribute("value", 0.0, "float")),
        until=10,
    ),
    OnnxRow("Pad", 11, _pad, (_mode("constant", "reflect", "edge"),), inputs=3, until=17, limits=_PADDED),
    OnnxRow("Pad", 18, _pad, (_mode("constant", "reflect", "edge"),), inputs=4, until=18, limits=_PADDED),
    OnnxRow("Pad", 19, _pad, (_mode("constant", "reflect", "edge", "wrap"),), inputs=4, limits=_PADDED),
    OnnxRow("Gather", 1, _gather, (_PICK,), 2),
    OnnxRow("GatherND", 11, _gather_nd, (Attribute("batch_dims", 0, since=12),), 2),
    OnnxRow("GatherElements", 11, _gather_elements, (_PICK,), 2),
    OnnxRow("Scatter", 9, _scatter_elements, (_PICK,), 3, 10),
    OnnxRow("ScatterElements", 11, _scatter_elements, (_PICK, _PLAIN), 3, limits="reductions"),
    OnnxRow("ScatterND", 11, _scatter_nd, (_PLAIN,), 3, limits="reductions"),
    OnnxRow("TopK", 10, _top, _LARGEST, 2, limits="counts that depend on data"),
    OnnxRow("ReverseSequence", 10, _reverse, (Attribute("batch_axis", 1), Attribute("time_axis", 0)), 2),
)
