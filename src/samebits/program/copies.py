"""Copies that strides force: a value whose axes need two strides, made dense.

Start at `dense`; every copy is a step of the plan, and printed with it.
"""

from __future__ import annotations

from samebits.kernels import elementwise
from samebits.program import compose
from samebits.program.primitive import Lowering, Place

__all__ = ["copy", "dense", "dense_of"]


def copy(lowering: Lowering, source: Place, target: Place) -> None:
    """Move elements between two places of one shape, each piece of an axis an axis of its own."""
    if 0 in source.strided.shape:
        return
    shape, read, write = _refined(source, target)
    expression = compose.single("copy", source.dtype)
    asked = (expression, ((shape, read),), ((shape, write),), lowering.isa, lowering.threads)
    lowering.emit(elementwise.plan, asked, [source], [target], overwrites=True)


def dense(lowering: Lowering, source: Place) -> Place:
    """A dense copy of a place."""
    target = lowering.temporary(source.dtype, source.strided.shape)
    copy(lowering, source, target)
    return target


def dense_of(lowering: Lowering, name: str) -> Place:
    """A value's place if it is dense, else a copy that is."""
    place = lowering.plain(name)
    return place if place.strided.is_dense else dense(lowering, place)


def _refined(source: Place, target: Place) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The shape that splits every axis as both places need it, and both places' strides over it."""
    shape: list[int] = []
    read: list[int] = []
    write: list[int] = []
    for ours, theirs in zip(source.strided.axes, target.strided.axes, strict=True):
        left, right = list(ours), list(theirs)
        while left and right:
            (size, stride), (other, step) = left.pop(), right.pop()
            extent = min(size, other)
            assert size % extent == 0 and other % extent == 0  # targets are dense, so the source alone splits
            shape.append(extent)
            read.append(stride)
            write.append(step)
            if size > extent:
                left.append((size // extent, stride * extent))
            if other > extent:
                right.append((other // extent, step * extent))
    return tuple(shape[::-1]), tuple(read[::-1]), tuple(write[::-1])
