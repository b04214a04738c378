"""Views of a tensor: the same bytes by another layout, or as elements of another format; nothing is moved.

Start at `TensorViews`. What each layout is, and which there are, `layout` knows.
"""

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Self, SupportsIndex, cast

from samebits import dtypes
from samebits.errors import LayoutError, SamebitsError
from samebits.layout import Axes, Key
from samebits.tensor.facts import TensorFacts

__all__ = ["TensorViews"]


def _listed(first: Sequence[SupportsIndex] | SupportsIndex, more: tuple[SupportsIndex, ...]) -> Sequence[SupportsIndex]:
    """Integers that were given as one sequence, or as several arguments."""
    if more or (hasattr(first, "__index__") and not hasattr(first, "__iter__")):  # as arrays have both
        return (cast(SupportsIndex, first), *more)
    return cast(Sequence[SupportsIndex], first)


class TensorViews(TensorFacts):
    """The methods of a `Tensor` that give a view of it."""

    __slots__ = ()

    def _viewed(self, name: str, *arguments: object) -> Self:
        """The view that the layout's method of that name describes, refused as the tensor's."""
        try:
            layout = getattr(self.layout, name)(*arguments)
        except SamebitsError as error:
            raise error.renamed(f"Tensor.{name}", error.operand) from None
        return self._trusted(self.buffer, layout, self.dtype)

    def permute(self, axes: Sequence[SupportsIndex] | SupportsIndex, *more: SupportsIndex) -> Self:
        """A view whose axis i is axis axes[i] of this tensor; axes are one sequence, or several arguments."""
        axes = _listed(axes, more)
        return self._viewed("permute", axes)

    def transpose(self, first: int = -2, second: int = -1) -> Self:
        """A view with two axes exchanged, the last two unless others are named."""
        axes = list(range(self.ndim))
        try:
            if bool in (type(first), type(second)):
                raise TypeError
            here, there = operator.index(first), operator.index(second)
            axes[here], axes[there] = axes[there], axes[here]
        except (IndexError, TypeError):
            expected = f"two of {self.ndim} axes"
            raise LayoutError("Tensor.transpose", "axes", "", (first, second), expected, "name existing axes") from None
        return self.permute(tuple(axes))

    @property
    def T(self) -> Self:
        """A view with all axes in reverse order."""
        return self.permute(tuple(range(self.ndim - 1, -1, -1)))

    @property
    def mT(self) -> Self:
        """A view with the last two axes exchanged: each matrix transposed.

        Raises:
            LayoutError: There are fewer than two axes.
        """
        if self.ndim < 2:
            raise LayoutError("Tensor.mT", "tensor", "rank", self.ndim, "at least 2", "use unsqueeze for a new axis")
        return self.transpose()

    def reshape(self, shape: Sequence[SupportsIndex] | SupportsIndex, *more: SupportsIndex) -> Self:
        """A view of the same elements in row-major order; LayoutError where only a copy has that shape.

        Args:
            shape: The extents, of which one may be -1: a sequence, or the first of several arguments.
            more: The others.
        """
        shape = _listed(shape, more)
        return self._viewed("reshape", shape)

    def __getitem__(self, key: Key) -> Self:
        """A view of what the key selects: integers, slices, None and Ellipsis."""
        try:
            layout = self.layout[key]
        except LayoutError as error:
            raise error.renamed(error.call.replace("Layout", "Tensor"), error.operand) from None
        return self._trusted(self.buffer, layout, self.dtype)

    def __len__(self) -> int:
        """The extent of the first axis.

        Raises:
            LayoutError: There is no axis.
        """
        if not self.shape:
            raise LayoutError("len", "tensor", "rank", 0, "at least 1", "use item()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        """Views along the first axis.

        Raises:
            LayoutError: There is no axis.
        """
        if not self.shape:
            raise LayoutError("iter", "tensor", "rank", 0, "at least 1", "use item()")
        return (self[index] for index in range(self.shape[0]))

    # A tensor has no `==` of values, so what Python would look for by iterating is never found.
    __contains__ = None

    def broadcast_to(self, shape: Sequence[SupportsIndex]) -> Self:
        """A view that repeats along new axes and along axes of extent 1."""
        return self._viewed("broadcast_to", shape)

    def squeeze(self, axis: Axes | None = None) -> Self:
        """A view without the axes named, each of extent 1, or without all of that extent."""
        return self._viewed("squeeze", axis)

    def unsqueeze(self, axis: Axes) -> Self:
        """A view with axes of extent 1 inserted, which become those axes of the result."""
        return self._viewed("unsqueeze", axis)

    def flip(self, axis: Axes | None = None) -> Self:
        """A view in reverse order along the axes named, or along all."""
        return self._viewed("flip", axis)

    def flatten(self, start: SupportsIndex = 0, end: SupportsIndex = -1) -> Self:
        """A view with the axes from start to end merged into one; LayoutError where only a copy has it."""
        return self._viewed("flatten", start, end)

    def unflatten(self, axis: SupportsIndex, extents: Sequence[SupportsIndex]) -> Self:
        """A view with one axis split into several, row-major."""
        return self._viewed("unflatten", axis, extents)

    def diagonal(self, skew: SupportsIndex = 0, axis1: SupportsIndex = 0, axis2: SupportsIndex = 1) -> Self:
        """A view of the elements whose index along axis2 is `skew` more than along axis1, as the last axis."""
        return self._viewed("diagonal", skew, axis1, axis2)

    def sliding_window(self, window: Axes, axis: Axes | None = None) -> Self:
        """A view of every window of neighbouring elements, whose extents become the last axes."""
        return self._viewed("sliding_window", window, axis)

    def view(self, dtype: object) -> Self:
        """The same bits read as elements of another format, without moving any.

        A format of the same width keeps the layout. For one of another width, the last axis must be dense; its extent
        becomes extent * pitch / new width, least significant bits first, padding of elements included.

        Args:
            dtype: What `dtypes.of` takes.

        Raises:
            LayoutError: There is no axis; the last one is not dense, or no whole number of new elements; or the new
                elements would not begin at multiples of their own width (for 6 bits: at every second bit).
        """
        row, layout = dtypes.named("Tensor.view", "dtype", dtype), self.layout
        if row.width_bits != layout.width_bits:
            if not self.shape:
                remedy = "use unsqueeze for a new axis"
                raise LayoutError("Tensor.view", "tensor", "rank", 0, "at least 1", remedy)
            common = math.gcd(row.width_bits, layout.pitch_bits)
            try:
                layout = layout.repack(common).repack(row.width_bits, address=self.buffer.address)
            except SamebitsError as error:
                raise error.renamed("Tensor.view", error.operand) from None
        made = self._trusted(self.buffer, layout, row)
        made.__post_init__()
        return made
