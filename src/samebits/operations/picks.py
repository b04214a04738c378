"""Operations along one axis by places that are data: `order`, `gather_along`, `scatter_along`.

`order` gives the places of sorted elements, of which the other two, as everything here, are moves. Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samebits import dtypes
from samebits.errors import DTypeError, ShapeError
from samebits.frozen import dataclass
from samebits.kernels import order, picks
from samebits.kernels.plan import Plan
from samebits.operations import dim
from samebits.operations.axes import Axes, along
from samebits.operations.fact import Fact, check_axis, dense
from samebits.operations.moves import check_indices, check_indices_dtype
from samebits.operations.operation import Array, Operation, PlanTarget, View, shared_by

__all__ = ["ROWS", "PickAlong", "SortedPlaces", "are_within"]


@dataclass(frozen=True, slots=True)
class SortedPlaces:
    """Along which axis, counted from the front; the largest first, or the smallest; how many places, or all."""

    axis: int
    descending: bool = False
    count: int | None = None

    def __str__(self) -> str:
        return f"axis {self.axis}{', descending' * self.descending}" + (f", {self.count}" if self.count else "")


@dataclass(frozen=True, slots=True)
class PickAlong:
    """The axis along which indices name elements, counted from the front."""

    axis: int

    def __str__(self) -> str:
        return f"axis {self.axis}"


def _infer_order(attributes: SortedPlaces, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    (x,), axis, count = facts, attributes.axis, attributes.count
    check_axis("order", axis, x.rank)
    _check_count(count, x.shape[axis])
    return (dense(dtypes.int64, (*x.shape[:axis], x.shape[axis] if count is None else count, *x.shape[axis + 1 :])),)


def _check_count(count: int | None, extent: dim.Size) -> None:
    """Whether there are so many places. Raises ShapeError."""
    if count is not None and (count < 0 or (dim.are_known(extent) and count > dim.bind(extent, {}))):
        raise ShapeError("order", "count", "", count, f"within [0, {extent}]", "ask for fewer")


def _check_places(what: str, data: Fact, indices: Fact, axis: int) -> None:
    """Whether indices lie as the data does, shorter where they may be. Raises ShapeError, DTypeError."""
    check_axis(what, axis, data.rank)
    check_indices_dtype(what, indices)
    if indices.rank != data.rank or not are_within(indices.shape, data.shape, axis):
        expected = f"within {data.shape} but along axis {axis}"
        raise ShapeError(what, "indices", "shape", indices.shape, expected, "slice or expand them")


def are_within(shape: dim.SymbolicShape, data: dim.SymbolicShape, axis: int) -> bool:
    """Whether places of this shape are known to lie within the data's along all other axes."""
    pairs = [pair for a, pair in enumerate(zip(shape, data, strict=False)) if a != axis]
    return all(x == y or (isinstance(x, int) and isinstance(y, int) and x < y) for x, y in pairs)


def _infer_gather(attributes: PickAlong, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    data, indices = facts
    _check_places("gather_along", data, indices, attributes.axis)
    return (dense(data.dtype, indices.shape),)


def _infer_scatter(attributes: PickAlong, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    data, indices, updates = facts
    _check_places("scatter_along", data, indices, attributes.axis)
    if updates.dtype is not data.dtype:
        raise DTypeError("scatter_along", "updates", "dtype", updates.dtype.name, data.dtype.name, "cast them")
    if updates.shape != indices.shape:
        raise ShapeError("scatter_along", "updates", "shape", updates.shape, f"{indices.shape}", "slice or expand them")
    return (dense(data.dtype, data.shape),)


def _order_reference(attributes: SortedPlaces, arrays: Sequence[Array]) -> tuple[Array, ...]:
    (x,) = arrays
    _check_count(attributes.count, x.shape[attributes.axis])
    places = order.reference(x, attributes.axis, attributes.descending)
    taken = [slice(None)] * attributes.axis + [slice(attributes.count)]
    return (np.ascontiguousarray(places[tuple(taken)]),)


def _gather_reference(attributes: PickAlong, arrays: Sequence[Array]) -> tuple[Array, ...]:
    data, indices = arrays
    check_indices("gather_along", indices, data.shape[attributes.axis])
    return (data[_places(attributes, data, indices)],)


def _scatter_reference(attributes: PickAlong, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """One update after the other."""
    data, indices, updates = arrays
    check_indices("scatter_along", indices, data.shape[attributes.axis])
    found = np.array(data)
    places = _places(attributes, data, indices)
    for place in np.ndindex(*indices.shape):
        found[tuple([int(axis[place]) for axis in places])] = updates[place]
    return (found,)


def _places(attributes: PickAlong, data: Array, indices: Array) -> tuple[Array, ...]:
    """Of every element that indices name its place along each axis."""
    numbers: tuple[Array, ...] = np.indices(indices.shape, sparse=True)
    places: list[Array] = [np.broadcast_to(axis, indices.shape) for axis in numbers]
    places[attributes.axis] = indices % max(1, data.shape[attributes.axis])
    return tuple(places)


def _gather_axes(attributes: PickAlong, facts: Sequence[Fact]) -> Axes:
    rank = facts[0].rank
    return Axes((tuple([None if a == attributes.axis else a for a in range(rank)]), tuple(range(rank))))


def _plan_order(attributes: SortedPlaces, views: tuple[View, ...], target: PlanTarget) -> Plan:
    (dtype, *_), _ = views
    x, out = [view[1:] for view in views]
    _check_count(attributes.count, x[0][attributes.axis])
    threads = shared_by(views, target)
    return order.plan(dtype, x, out, attributes.axis, attributes.descending, target.isa, threads)


def _plan_gather(attributes: PickAlong, views: tuple[View, ...], target: PlanTarget) -> Plan:
    data, indices, out = [view[1:] for view in views]
    threads = shared_by(views, target)
    return picks.plan_gather(views[0][0], data, indices, out, attributes.axis, target.isa, threads)


def _plan_scatter(attributes: PickAlong, views: tuple[View, ...], target: PlanTarget) -> Plan:
    data, indices, updates, out = [view[1:] for view in views]
    threads = shared_by(views, target)
    return picks.plan_scatter(views[0][0], data, indices, updates, out, attributes.axis, target.isa, threads)


def _extents(attributes: PickAlong, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return (shapes[0][attributes.axis],)


ROWS: tuple[Operation, ...] = (
    Operation("order", _infer_order, _order_reference, along, plan=_plan_order),
    Operation("gather_along", _infer_gather, _gather_reference, _gather_axes, plan=_plan_gather, extents=_extents),
    Operation("scatter_along", _infer_scatter, _scatter_reference, along, plan=_plan_scatter, extents=_extents),
)
