"""Primitives that move no element: reshape, transpose, slice, expand.

Squeeze, unsqueeze and flatten are reshapes. A description's sizes may hold symbols until `bind`. Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from samebits.errors import ShapeError
from samebits.program import copies, dim
from samebits.program.dim import Dim, SymbolicShape
from samebits.program.fact import Fact
from samebits.program.graph import Array, Node
from samebits.program.primitive import Lowering, Primitive

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


def _infer_reshape(description: Reshape, names: Sequence[str], facts: Sequence[Fact]) -> tuple[Fact, ...]:
    had, wanted = dim.product(facts[0].shape), dim.product(description.shape)
    if dim.are_known(had, wanted) and had != wanted:
        actual = f"{had} elements"
        raise ShapeError("reshape", "shape", "", text(description.shape), f"of {actual}", "give another shape")
    return (facts[0].view(description.shape, names[0]),)


def _infer_transpose(description: Transpose, names: Sequence[str], facts: Sequence[Fact]) -> tuple[Fact, ...]:
    (fact,) = facts
    where = [description.order.index(axis) for axis in fact.stride_order]
    return (fact.view([fact.shape[axis] for axis in description.order], names[0], where),)


def _infer_slice(description: Slice, names: Sequence[str], facts: Sequence[Fact]) -> tuple[Fact, ...]:
    for axis, extent in enumerate(facts[0].shape):
        start, count, step = description.starts[axis], description.counts[axis], description.steps[axis]
        if isinstance(extent, Dim) or isinstance(start, Dim) or isinstance(count, Dim) or count == 0:
            continue
        last = start + (count - 1) * step
        if count < 0 or not (0 <= start < extent and 0 <= last < extent):
            raise ShapeError(
                "slice", f"axis {axis}", "", f"{start}+{count} by {step}", f"in {extent}", "give other bounds"
            )
    fact = facts[0].view(description.counts, names[0], facts[0].stride_order)
    whole = [count == extent for count, extent in zip(description.counts, facts[0].shape, strict=True)]
    # Cutting an axis leaves a gap before every axis that varies more slowly.
    gaps = [all(whole[inner] for inner in fact.stride_order[i + 1 :]) for i in range(fact.rank)]
    kept = dict(zip(fact.stride_order, gaps, strict=True))
    dense = tuple(kept[axis] and description.steps[axis] == 1 for axis in range(fact.rank))
    return (replace(fact, contiguity=dense),)


def _infer_expand(description: Expand, names: Sequence[str], facts: Sequence[Fact]) -> tuple[Fact, ...]:
    (fact,) = facts
    added = len(description.shape) - fact.rank
    pairs = list(zip(fact.shape, description.shape[max(added, 0) :], strict=False))
    clash = any(dim.are_known(x, y) and x not in (1, y) for x, y in pairs)
    if added < 0 or clash:
        what, shape = text(fact.shape), text(description.shape)
        raise ShapeError("expand", "shape", "", what, f"one that broadcasts to {shape}", "reshape it")
    order = (*range(added), *(axis + added for axis in fact.stride_order))
    same = (False,) * added + tuple(a == b for a, b in zip(fact.shape, description.shape[added:], strict=True))
    return (replace(fact.view(description.shape, names[0], order), contiguity=same),)


def _places(start: dim.Size, count: dim.Size, step: int) -> Array:
    """The positions that a slice takes along one axis."""
    return np.arange(dim.bind(count, {}), dtype=np.int64) * step + dim.bind(start, {})


def _slice_reference(description: Slice, arrays: Sequence[Array]) -> tuple[Array, ...]:
    (x,) = arrays
    bounds = zip(description.starts, description.counts, description.steps, strict=True)
    for axis, (start, count, step) in enumerate(bounds):
        if (start, count, step) != (0, x.shape[axis], 1):
            x = np.take(x, _places(start, count, step), axis=axis)
    return (x,)


def _lower_reshape(lowering: Lowering, node: Node) -> None:
    shape = lowering.shape(node.outputs[0])
    place = lowering.place(node.inputs[0])
    view = place.strided.reshape(shape)
    if view is None:
        # Elements of a transposed value in row-major order: only a copy has them so.
        place = copies.dense_of(lowering, node.inputs[0])
        view = place.strided.reshape(shape)
    assert view is not None  # a dense value has every shape
    lowering.alias(node.outputs[0], replace(place, strided=view))


def _lower_transpose(lowering: Lowering, node: Node) -> None:
    place = lowering.place(node.inputs[0])
    description = node.description
    assert isinstance(description, Transpose)
    lowering.alias(node.outputs[0], replace(place, strided=place.strided.transpose(description.order)))


def _lower_slice(lowering: Lowering, node: Node) -> None:
    description = node.description
    assert isinstance(description, Slice)
    arguments = (description.starts, description.counts, description.steps)
    place = lowering.place(node.inputs[0])
    view = place.strided.slice(*arguments)  # type: ignore[arg-type]
    if view is None:
        place = lowering.plain(node.inputs[0])
        view = place.strided.slice(*arguments)  # type: ignore[arg-type]
    assert view is not None  # one stride an axis is all that a slice needs
    lowering.alias(node.outputs[0], replace(place, strided=view))


def _lower_expand(lowering: Lowering, node: Node) -> None:
    place = lowering.place(node.inputs[0])
    shape = lowering.shape(node.outputs[0])
    lowering.alias(node.outputs[0], replace(place, strided=place.strided.expand(shape)))


ROWS: tuple[Primitive, ...] = (
    Primitive("reshape", _infer_reshape, lambda d, arrays: (arrays[0].reshape(d.shape),), _lower_reshape, is_view=True),
    Primitive(
        "transpose", _infer_transpose, lambda d, arrays: (arrays[0].transpose(d.order),), _lower_transpose, is_view=True
    ),
    Primitive("slice", _infer_slice, _slice_reference, _lower_slice, is_view=True),
    Primitive(
        "expand", _infer_expand, lambda d, arrays: (np.broadcast_to(arrays[0], d.shape),), _lower_expand, is_view=True
    ),
)
