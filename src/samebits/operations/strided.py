"""Where the elements of a specialised value lie: strides that views may split and join.

Each axis is a row of pieces `(size, stride)`, slowest first, as in a CuTe layout ((2, 3), 4):((12, 1), 3): an axis
that a reshape joined from two others stays two pieces, so `reshape(transpose(reshape(x)))` costs nothing as long as
the last shape splits it again. Only a kernel needs one stride an axis (`strides`), and only where there is none a copy
is made. Strides and offsets count elements.

There is one form: no piece has extent 1, two neighbours of an axis that one stride reaches are one piece, and what has
no elements has the strides of a dense value of its shape, for its own say nothing. Start at `Strided`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from samebits.frozen import dataclass

__all__ = ["Strided", "dense", "dense_strides", "of_strides", "refined"]

Piece = tuple[int, int]
Axis = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Strided:
    """Element (i, j, ...) is at `offset` plus, for each axis, its index split over the pieces times their strides."""

    offset: int
    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return tuple([axis[0][0] if len(axis) == 1 else math.prod([size for size, _ in axis]) for axis in self.axes])

    @property
    def strides(self) -> tuple[int, ...] | None:
        """One stride for each axis, or None if an axis needs two; an axis of extent 1 has stride 0."""
        if max(map(len, self.axes), default=0) > 1:
            return None
        return tuple([axis[0][1] if axis else 0 for axis in self.axes])

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie side by side in row-major order, wherever they start."""
        step = 1
        for axis in reversed(self.axes):
            for size, stride in reversed(axis):
                if stride != step:
                    return False
                step *= size
        return True

    def transpose(self, order: Sequence[int]) -> Strided:
        """Axis i of the result is axis order[i]."""
        return Strided(self.offset, tuple(self.axes[axis] for axis in order))

    def expand(self, shape: Sequence[int]) -> Strided:
        """The elements repeated along new leading axes and axes of extent 1."""
        if 0 in shape:
            return _nothing(self.offset, shape)
        axes = ((),) * (len(shape) - len(self.axes)) + self.axes
        return Strided(
            self.offset,
            tuple(axis if axis else _joined([(size, 0)]) for size, axis in zip(shape, axes, strict=True)),
        )

    def slice(self, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]) -> Strided | None:
        """Elements start, start + step, ... of each axis; None if an axis of two pieces is cut."""
        if 0 in counts:
            return _nothing(self.offset, counts)
        offset, axes = self.offset, []
        for axis, extent, start, count, step in zip(self.axes, self.shape, starts, counts, steps, strict=True):
            if (start, count, step) == (0, extent, 1):
                axes.append(axis)
                continue
            if len(axis) > 1:
                return None
            stride = axis[0][1] if axis else 0
            offset += start * stride
            axes.append(_joined([(count, stride * step)]))
        return Strided(offset, tuple(axes))

    def reshape(self, shape: Sequence[int]) -> Strided | None:
        """The same elements in row-major order under another shape; None if only a copy has it.

        Neighbours are joined across axes first: then a piece that neither divides an extent nor is divided by it is a
        step in memory inside an axis, which no stride says.
        """
        if 0 in shape:
            return _nothing(self.offset, shape)
        pieces = [*_joined([piece for axis in self.axes for piece in axis])][::-1]
        axes = []
        for extent in shape:
            taken: list[Piece] = []
            while extent > 1:
                if not pieces:
                    return None
                size, stride = pieces.pop()
                if extent % size == 0:
                    taken.append((size, stride))
                    extent //= size
                elif size % extent == 0:
                    inner = size // extent
                    taken.append((extent, stride * inner))
                    pieces.append((inner, stride))
                    extent = 1
                else:
                    return None
            axes.append(_joined(taken))
        return Strided(self.offset, tuple(axes))


def dense(shape: Sequence[int], order: Sequence[int] | None = None) -> Strided:
    """Elements side by side; `order` lists the axes from the slowest to the fastest (default: as written)."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape)) if order is None else order):
        strides[axis], step = step, step * shape[axis]
    return Strided(0, tuple(_joined([(size, stride)]) for size, stride in zip(shape, strides, strict=True)))


def of_strides(shape: Sequence[int], strides: Sequence[int]) -> Strided:
    """Elements from the start of their memory, one stride an axis."""
    if 0 in shape:
        return _nothing(0, shape)
    return Strided(0, tuple(_joined([piece]) for piece in zip(shape, strides, strict=True)))


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of elements side by side in row-major order, those of axes of extent 1 included."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def refined(source: Strided, target: Strided) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The shape that splits every axis as two places of one shape need it, and the strides of both over it."""
    shape: list[int] = []
    read: list[int] = []
    write: list[int] = []
    for ours, theirs in zip(source.axes, target.axes, strict=True):
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


def _nothing(offset: int, shape: Sequence[int]) -> Strided:
    """A view of no elements."""
    return Strided(offset, dense(shape).axes)


def _joined(pieces: Sequence[Piece]) -> Axis:
    """The pieces with those of extent 1 left out, and neighbours joined that one stride reaches."""
    kept: list[Piece] = []
    for size, stride in pieces:
        if size == 1:
            continue
        if kept and kept[-1][1] == stride * size:
            kept[-1] = (kept[-1][0] * size, stride)
        else:
            kept.append((size, stride))
    return tuple(kept)
