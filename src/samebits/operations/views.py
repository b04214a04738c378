"""Operations that move no element: reshape, transpose, slice, expand.

Squeeze, unsqueeze and flatten are reshapes. Sizes among attributes may hold symbols until `bind`. Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from samebits.errors import ShapeError
from samebits.frozen import dataclass
from samebits.operations import dim
from samebits.operations.axes import Axes, aligned
from samebits.operations.dim import Dim, SymbolicShape
from samebits.operations.fact import Fact, dense
from samebits.operations.operation import Array, Operation, Shape
from samebits.operations.strided import Strided

__all__ = ["ROWS", "Expand", "Reshape", "Slice", "Transpose"]


def text(sizes: Sequence[object]) -> str:
    """Sizes as they are printed."""
    return f"[{', '.join(map(str, sizes))}]"


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements, row-major, under another shape."""

    shape: SymbolicShape

    def bind(self, symbols: Mapping[str, int]) -> Reshape:
        """Symbols replaced by their values."""
        return Reshape(dim.bind_shape(self.shape, symbols))

    def __str__(self) -> str:
        return text(self.shape)


@dataclass(frozen=True, slots=True)
class Transpose:
    """Axis i of the result is axis order[i]."""

    order: tuple[int, ...]

    def __str__(self) -> str:
        return text(self.order)


@dataclass(frozen=True, slots=True)
class Slice:
    """Along each axis `counts` elements: start, start + step, ..."""

    starts: SymbolicShape
    counts: SymbolicShape
    steps: tuple[int, ...]

    def bind(self, symbols: Mapping[str, int]) -> Slice:
        """Symbols replaced by their values."""
        return Slice(dim.bind_shape(self.starts, symbols), dim.bind_shape(self.counts, symbols), self.steps)

    def __str__(self) -> str:
        rows = zip(self.starts, self.counts, self.steps, strict=True)
        return text([f"{start}+{count}" + (f" by {step}" if step != 1 else "") for start, count, step in rows])


@dataclass(frozen=True, slots=True)
class Expand:
    """The elements repeated to a larger shape that they broadcast to."""

    shape: SymbolicShape

    def bind(self, symbols: Mapping[str, int]) -> Expand:
        """Symbols replaced by their values."""
        return Expand(dim.bind_shape(self.shape, symbols))

    def __str__(self) -> str:
        return text(self.shape)


def _infer_reshape(attributes: Reshape, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    (fact,) = facts
    had, wanted = dim.product(fact.shape), dim.product(attributes.shape)
    if dim.are_known(had, wanted) and had != wanted:
        actual = f"{had} elements"
        raise ShapeError("reshape", "shape", "", text(attributes.shape), f"of {actual}", "give another shape")
    return (dense(fact.dtype, attributes.shape),)


def _infer_transpose(attributes: Transpose, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    (fact,) = facts
    if sorted(attributes.order) != list(range(fact.rank)):
        expected = f"each axis of a rank of {fact.rank} once"
        raise ShapeError("transpose", "order", "", attributes.order, expected, "name every axis")
    order = tuple([attributes.order.index(axis) for axis in fact.stride_order])
    return (Fact(fact.dtype, tuple([fact.shape[axis] for axis in attributes.order]), order),)


def _infer_slice(attributes: Slice, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    (fact,) = facts
    lengths = {len(attributes.starts), len(attributes.counts), len(attributes.steps)}
    if lengths != {fact.rank}:
        raise ShapeError("slice", "bounds", "counts", sorted(lengths), f"one for each of {fact.rank} axes", "give all")
    for axis, extent in enumerate(fact.shape):
        start, count, step = attributes.starts[axis], attributes.counts[axis], attributes.steps[axis]
        if isinstance(extent, Dim) or isinstance(start, Dim) or isinstance(count, Dim) or count == 0:
            continue
        last = start + (count - 1) * step
        if count < 0 or not (0 <= start < extent and 0 <= last < extent):
            raise ShapeError(
                "slice", f"axis {axis}", "", f"{start}+{count} by {step}", f"in {extent}", "give other bounds"
            )
    return (Fact(fact.dtype, attributes.counts, fact.stride_order),)


def _infer_expand(attributes: Expand, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    (fact,) = facts
    added = len(attributes.shape) - fact.rank
    pairs = list(zip(fact.shape, attributes.shape[max(added, 0) :], strict=False))
    clash = any(dim.are_known(x, y) and x not in (1, y) for x, y in pairs)
    if added < 0 or clash:
        what, shape = text(fact.shape), text(attributes.shape)
        raise ShapeError("expand", "shape", "", what, f"one that broadcasts to {shape}", "reshape it")
    order = (*range(added), *(axis + added for axis in fact.stride_order))
    return (Fact(fact.dtype, attributes.shape, order),)


def _places(start: dim.Size, count: dim.Size, step: int) -> Array:
    """The positions that a slice takes along one axis."""
    return np.arange(dim.bind(count, {}), dtype=np.int64) * step + dim.bind(start, {})


def _slice_reference(attributes: Slice, arrays: Sequence[Array]) -> tuple[Array, ...]:
    (x,) = arrays
    bounds = zip(attributes.starts, attributes.counts, attributes.steps, strict=True)
    for axis, (start, count, step) in enumerate(bounds):
        if (start, count, step) != (0, x.shape[axis], 1):
            x = np.take(x, _places(start, count, step), axis=axis)
    return (x,)


def _transpose_axes(attributes: Transpose, facts: Sequence[Fact]) -> Axes:
    return Axes((tuple([attributes.order.index(axis) for axis in range(len(attributes.order))]),))


def _slice_axes(attributes: Slice, facts: Sequence[Fact]) -> Axes:
    """An axis that is taken as it is follows."""
    bounds = zip(attributes.starts, attributes.counts, attributes.steps, facts[0].shape, strict=True)
    whole = [(start, count, step) == (0, extent, 1) for start, count, step, extent in bounds]
    return Axes((tuple([axis if kept else None for axis, kept in enumerate(whole)]),), reads=attributes.starts)


def _expand_axes(attributes: Expand, facts: Sequence[Fact]) -> Axes:
    return Axes(aligned(facts, len(attributes.shape)))


def _slice_view(attributes: Slice, x: Strided, shape: Shape) -> Strided | None:
    """No symbol is left in the bounds by now."""
    starts, counts = dim.bind_shape(attributes.starts, {}), dim.bind_shape(attributes.counts, {})
    return x.slice(starts, counts, attributes.steps)


ROWS: tuple[Operation, ...] = (
    Operation(
        "reshape",
        _infer_reshape,
        lambda attributes, arrays: (arrays[0].reshape(attributes.shape),),
        lambda attributes, facts: Axes(is_flat=True),
        view=lambda attributes, x, shape: x.reshape(shape),
    ),
    Operation(
        "transpose",
        _infer_transpose,
        lambda attributes, arrays: (arrays[0].transpose(attributes.order),),
        _transpose_axes,
        view=lambda attributes, x, shape: x.transpose(attributes.order),
    ),
    Operation("slice", _infer_slice, _slice_reference, _slice_axes, view=_slice_view),
    Operation(
        "expand",
        _infer_expand,
        lambda attributes, arrays: (np.broadcast_to(arrays[0], attributes.shape),),
        _expand_axes,
        view=lambda attributes, x, shape: x.expand(shape),
    ),
)
