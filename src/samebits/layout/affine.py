"""One stride for each axis: the layout that tensors have.

Start at `Layout`; `from_strides`, `from_byte_strides` and `dense` make one, every other method derives a view of the
same memory and raises where only a copy would do. Shapes count logical elements, so a float4 matrix is (M, K) however
it is stored. In packed storage element i of a byte takes bits `[i * width, (i + 1) * width)`, least significant first
(DLPack); padded storage gives each element whole bytes, as NumPy does.

Two layouts that put every element at the same place are one value: an axis of extent 1, and every axis of an empty
layout, has no stride that matters, and takes the one a dense layout has there.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, SupportsIndex, cast

from samebits.errors import LayoutError, shown
from samebits.frozen import dataclass
from samebits.layout import strides as arithmetic
from samebits.layout import views
from samebits.layout.aliasing import WORK, intersects, is_injective
from samebits.layout.checks import Order, Storage, check_pitch, checked, is_named, ordered, too_far, whole
from samebits.layout.keys import Key, selected
from samebits.layout.strides import Shape
from samebits.layout.views import Axes
from samebits.shapes import (
    INTEGERS,
    LIMIT,
    check_axes,
    check_extents,
    check_index,
    check_integers,
    check_type,
)

__all__ = ["Axes", "Key", "Layout", "Shape", "Storage"]

# What a constructor that need not convert anything is called with.
_PLAIN = (tuple, tuple, str)


@dataclass(frozen=True, slots=True, init=False)
class Layout:
    """bit(i, j, ...) = offset_bits + i * strides_bits[0] + j * strides_bits[1] + ...

    The five attributes are all there is, in five slots; code that fills them itself must have settled the strides
    that place nothing (above) and kept the limits: 64 axes, fewer than 2**63 elements, every bit within int64.

    Attributes:
        shape: Extents in logical elements.
        strides_bits: Bits from an element to the next one along each axis; may be zero or negative.
        offset_bits: Bits from the start of the buffer to element (0, 0, ...).
        width_bits: Bits of one element.
        storage: `packed`, elements `width_bits` apart when dense, or `padded`, each in whole bytes. Elements of whole
            bytes are `packed`.
    """

    shape: Shape
    strides_bits: Shape
    offset_bits: int
    width_bits: int
    storage: Storage

    def __new__(
        cls,
        shape: Sequence[SupportsIndex],
        strides_bits: Sequence[SupportsIndex],
        offset_bits: SupportsIndex,
        width_bits: SupportsIndex,
        storage: Storage = "packed",
    ) -> "Layout":
        """The layout of these facts, each checked.

        Raises:
            LayoutError: One is malformed, or bits lie beyond int64.
        """
        if (type(shape), type(strides_bits), type(storage)) != _PLAIN or {
            *map(type, (*shape, *strides_bits, offset_bits, width_bits))
        } != INTEGERS:
            shape = check_integers("Layout", "shape", shape)
            strides_bits = check_integers("Layout", "strides_bits", strides_bits)
            offset_bits, width_bits = check_integers("Layout", "(offset_bits, width_bits)", (offset_bits, width_bits))
            check_pitch("Layout", width_bits, storage)
        return _placed(*checked(shape, strides_bits, width_bits, storage), offset_bits, width_bits)  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its constructor's arguments, which check what is read."""
        return Layout, (self.shape, self.strides_bits, self.offset_bits, self.width_bits, self.storage)

    @classmethod
    def dense(
        cls,
        shape: Sequence[SupportsIndex],
        *,
        width_bits: SupportsIndex,
        order: Literal["C", "F"] | Sequence[SupportsIndex] = "C",
        storage: Storage = "packed",
    ) -> "Layout":
        """Elements side by side from the start of the buffer.

        Args:
            shape: Extents.
            width_bits: Bits of one element.
            order: `C`, last axis fastest; `F`, first axis fastest; or the axes from slowest to fastest.
            storage: `packed` or `padded`.

        Raises:
            LayoutError: An argument is malformed, or the axes are no permutation.
        """
        if type(shape) is not tuple or {*map(type, shape)} != INTEGERS or type(width_bits) is not int:
            shape = check_integers("Layout.dense", "shape", shape)
            (width_bits,) = check_integers("Layout.dense", "width_bits", (width_bits,))
        check_pitch("Layout.dense", width_bits, storage)
        axes = ordered("Layout.dense", order, len(shape), None)
        return _dense(shape, axes, width_bits, storage)

    @classmethod
    def dense_like(cls, other: "Layout", order: Order = "K") -> "Layout":
        """Elements side by side, of other's shape, width and storage; `K` keeps the order of other's strides."""
        if type(other) is not Layout:
            check_type("Layout.dense_like", "other", other, Layout, "pass the layout of a tensor")
        axes = ordered("Layout.dense_like", order, len(other.shape), other.strides_bits)
        new = _dense(other.shape, axes, other.width_bits, other.storage)
        return other if new == other else new

    @classmethod
    def from_strides(
        cls,
        shape: Sequence[SupportsIndex],
        strides: Sequence[SupportsIndex],
        offset: SupportsIndex = 0,
        *,
        width_bits: SupportsIndex,
        storage: Storage = "packed",
    ) -> "Layout":
        """A layout whose strides and offset count elements."""
        steps = check_integers("Layout.from_strides", "strides", strides)
        start, width = check_integers("Layout.from_strides", "(offset, width_bits)", (offset, width_bits))
        pitch = check_pitch("Layout.from_strides", width, storage)
        return cls(shape, tuple([s * pitch for s in steps]), start * pitch, width, storage)

    @classmethod
    def from_byte_strides(
        cls,
        shape: Sequence[SupportsIndex],
        strides_bytes: Sequence[SupportsIndex],
        offset_bytes: SupportsIndex = 0,
        *,
        width_bits: SupportsIndex,
        storage: Storage = "packed",
    ) -> "Layout":
        """A layout whose strides and offset count bytes, as NumPy's do."""
        steps = check_integers("Layout.from_byte_strides", "strides_bytes", strides_bytes)
        (start,) = check_integers("Layout.from_byte_strides", "offset_bytes", (offset_bytes,))
        return cls(shape, tuple([s * 8 for s in steps]), start * 8, width_bits, storage)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of logical elements."""
        return math.prod(self.shape)

    @property
    def pitch_bits(self) -> int:
        """Bits from an element to its neighbour when dense: the width, or the whole bytes that hold it if padded."""
        return self.width_bits if self.storage == "packed" else -(-self.width_bits // 8) * 8

    @property
    def strides(self) -> Shape:
        """Strides in elements.

        Raises:
            LayoutError: A stride is no whole number of elements.
        """
        pitch = self.pitch_bits
        return tuple([whole("strides", s, pitch, "elements") for s in self.strides_bits])

    @property
    def offset(self) -> int:
        """Offset in elements.

        Raises:
            LayoutError: It is no whole number of elements.
        """
        return whole("offset", self.offset_bits, self.pitch_bits, "elements")

    @property
    def strides_bytes(self) -> Shape:
        """Strides in bytes.

        Raises:
            LayoutError: A stride is no whole number of bytes.
        """
        return tuple([whole("strides_bytes", s, 8, "bytes") for s in self.strides_bits])

    @property
    def offset_bytes(self) -> int:
        """Offset in bytes.

        Raises:
            LayoutError: Element (0, 0, ...) begins inside a byte.
        """
        return whole("offset_bytes", self.offset_bits, 8, "bytes")

    @property
    def stride_order(self) -> Shape:
        """The axes from slowest to fastest: by falling magnitude of the stride, equal ones as they stand."""
        return arithmetic.stride_order(self.strides_bits)

    @property
    def bounds_bits(self) -> tuple[int, int]:
        """The first bit that an element uses and the one past the last; equal for an empty layout."""
        return arithmetic.span(self.shape, self.strides_bits, self.offset_bits, self.width_bits)

    @property
    def required_bytes(self) -> int:
        """Bytes that a buffer must have for every element to lie in it.

        Raises:
            LayoutError: An element lies before the start of the buffer; see `rebased`.
        """
        low, high = self.bounds_bits
        if low < 0:
            remedy = "add an offset"
            raise LayoutError("Layout.required_bytes", "first bit", "", low, "at least 0", remedy)
        return -(-high // 8)

    def fits(self, size_bytes: SupportsIndex, offset_bytes: SupportsIndex = 0) -> bool:
        """Whether every element lies in a buffer of size_bytes, if the layout begins offset_bytes into it."""
        size, offset = check_integers("Layout.fits", "(size_bytes, offset_bytes)", (size_bytes, offset_bytes))
        low, high = self.bounds_bits
        return low + offset * 8 >= 0 and high + offset * 8 <= size * 8

    def rebased(self) -> tuple["Layout", int, int]:
        """The layout counted from its lowest byte, where in bytes that was, and how many bytes the layout spans."""
        low, high = self.bounds_bits
        start = low // 8
        end = -(-high // 8)
        return self._view(self.shape, self.strides_bits, self.offset_bits - start * 8), start, end - start

    def is_contiguous(self, order: Literal["C", "F", "any"] = "C") -> bool:
        """Whether elements lie side by side in that order (`any`: in some order of the axes)."""
        if not is_named(order, ("C", "F", "any")):
            remedy = "give one of these"
            raise LayoutError("Layout.is_contiguous", "order", "", shown(order), "'C', 'F' or 'any'", remedy)
        if order == "C":
            return self.strides_bits == arithmetic.dense_strides(self.shape, self.pitch_bits)
        return arithmetic.is_contiguous(self.shape, self.strides_bits, self.pitch_bits, order)

    def is_byte_aligned(self, axis: SupportsIndex = -1) -> bool:
        """Whether each run along the axis begins at a byte, so that rows of narrow elements can be addressed."""
        place = check_index("Layout.is_byte_aligned", "axis", axis, len(self.shape))
        steps = zip(self.shape, self.strides_bits, strict=True)
        return not any([self.offset_bits % 8, *[s % 8 for i, (n, s) in enumerate(steps) if n > 1 and i != place]])

    def is_unique(self, *, work: int = WORK) -> bool | None:
        """Whether no two elements share a bit; None where that is not known after `work` steps of search."""
        return is_injective(self.shape, self.strides_bits, self.width_bits, work)

    def overlaps(self, other: "Layout", delta_bits: SupportsIndex = 0, *, work: int = WORK) -> bool | None:
        """Whether an element shares a bit with one of other's; None where that is not known after `work` steps.

        Args:
            other: A layout of any shape and width.
            delta_bits: Where other's buffer begins, counted from where this one's does.
            work: Steps of search; each takes about a microsecond.
        """
        if type(other) is not Layout:
            remedy = "give the layout of what might overlap"
            raise LayoutError("Layout.overlaps", "other", "type", type(other).__name__, "Layout", remedy)
        (delta,) = check_integers("Layout.overlaps", "delta_bits", (delta_bits,))
        return intersects(
            (self.shape, self.strides_bits, self.offset_bits, self.width_bits),
            (other.shape, other.strides_bits, other.offset_bits + delta, other.width_bits),
            work,
        )

    def max_vector_bits(
        self, address: SupportsIndex = 0, *, axis: SupportsIndex = -1, limit: SupportsIndex = 128
    ) -> int:
        """Bits that one aligned access along the axis can take: elements times the largest power of two up to limit.

        `repack` to it is possible, unless it is one element; it is never less. The buffer begins at `address`.
        """
        place = check_index("Layout.max_vector_bits", "axis", axis, len(self.shape))
        start, most = check_integers("Layout.max_vector_bits", "(address, limit)", (address, limit))
        places, pitch = (self.offset_bits, start * 8), self.pitch_bits
        return pitch * arithmetic.vector_factor(self.shape, self.strides_bits, places, pitch, place, most)

    def to_dense(self, order: Order = "K") -> "Layout":
        """Elements side by side, of this shape, width and storage; `K` keeps the order of the strides."""
        return Layout.dense_like(self, order)

    def permute(self, axes: Sequence[SupportsIndex]) -> "Layout":
        """Axis i of the result is axis axes[i] of this layout."""
        if type(axes) is not tuple or {*map(type, axes)} != INTEGERS:
            axes = check_integers("Layout.permute", "axes", axes)
        shape, strides = views.permuted(self.shape, self.strides_bits, self.pitch_bits, axes)
        return _made(shape, strides, self.offset_bits, self.width_bits, self.storage)

    def reshape(self, shape: Sequence[SupportsIndex]) -> "Layout":
        """The same elements in row-major order under another shape, without moving any.

        Args:
            shape: The new extents; one may be -1 and is worked out.

        Raises:
            ShapeError: The sizes differ.
            LayoutError: No strides give the new shape: the elements would have to move.
        """
        if type(shape) is not tuple or {*map(type, shape)} != INTEGERS:
            shape = check_integers("Layout.reshape", "shape", shape)
        extents, strides = views.reshaped(self.shape, self.strides_bits, self.pitch_bits, shape, "Layout.reshape")
        return _made(extents, strides, self.offset_bits, self.width_bits, self.storage)

    def flatten(self, start: SupportsIndex = 0, end: SupportsIndex = -1) -> "Layout":
        """The axes from start to end, both included, merged into one; without axes, one of extent 1.

        Raises:
            LayoutError: An axis does not exist, or no one stride steps through the elements of these.
        """
        if type(start) is not int or type(end) is not int:
            start, end = check_integers("Layout.flatten", "(start, end)", (start, end))
        shape, strides = views.flattened(self.shape, self.strides_bits, self.pitch_bits, start, end)
        return _made(shape, strides, self.offset_bits, self.width_bits, self.storage)

    def unflatten(self, axis: SupportsIndex, extents: Sequence[SupportsIndex]) -> "Layout":
        """One axis split into several, row-major; always a view. One of the extents may be -1 and is worked out."""
        shape = self.shape
        place = check_index("Layout.unflatten", "axis", axis, len(shape))
        given = check_integers("Layout.unflatten", "shape", extents)
        pieces = views.resolved("Layout.unflatten", given, shape[place], (shape[place],))
        wanted = check_extents("Layout.unflatten", "shape", (*shape[:place], *pieces, *shape[place + 1 :]))
        inner = arithmetic.dense_strides(pieces, self.strides_bits[place])
        strides = self.strides_bits
        return self._view(wanted, (*strides[:place], *inner, *strides[place + 1 :]), self.offset_bits)

    def __getitem__(self, key: Key) -> "Layout":
        """The part that key selects: integers drop an axis, slices of any step keep it, None inserts one, ... fills up.

        Raises:
            LayoutError: An index is out of range, of another type, or one too many.
        """
        if type(key) is int and self.shape and 0 <= key < self.shape[0]:
            shape, strides = self.shape[1:], self.strides_bits[1:]
            return self._view(shape, strides, self.offset_bits + key * self.strides_bits[0])
        extents, steps, offset = selected(key, self.shape, self.strides_bits, self.offset_bits)
        return self._view(tuple(extents), tuple(steps), offset)

    # A layout is no sequence: without this, Python would iterate it by indexing.
    __iter__ = None

    def broadcast_to(self, shape: Sequence[SupportsIndex]) -> "Layout":
        """Axes added in front and axes of extent 1 repeat: their stride becomes 0.

        Raises:
            ShapeError: An extent is neither 1 nor the wanted one, or there are too few axes.
        """
        if type(shape) is not tuple or {*map(type, shape)} != INTEGERS:
            shape = check_integers("Layout.broadcast_to", "shape", shape)
        wanted, strides = views.broadcast(self.shape, self.strides_bits, self.pitch_bits, shape)
        return _made(wanted, strides, 0 if 0 in wanted else self.offset_bits, self.width_bits, self.storage)

    def squeeze(self, axis: Axes | None = None) -> "Layout":
        """Without the axes named, each of extent 1, or without all of that extent.

        Raises:
            LayoutError: An axis has another extent, does not exist or is named twice.
        """
        if axis is None and 1 not in self.shape:
            return self
        shape, strides = views.squeezed(self.shape, self.strides_bits, axis)
        return self._view(shape, strides, self.offset_bits)

    def unsqueeze(self, axis: Axes) -> "Layout":
        """With axes of extent 1 inserted, which become those axes of the result."""
        if type(axis) is not int:
            axis = views.several("Layout.unsqueeze", "axis", axis)
        shape, strides = views.unsqueezed(self.shape, self.strides_bits, self.pitch_bits, axis)
        return _made(shape, strides, self.offset_bits, self.width_bits, self.storage)

    def flip(self, axis: Axes | None = None) -> "Layout":
        """In reverse order along the axes named, or along all."""
        strides, moved = views.flipped(self.shape, self.strides_bits, axis)
        return self._view(self.shape, strides, self.offset_bits + moved)

    def diagonal(self, skew: SupportsIndex = 0, axis1: SupportsIndex = 0, axis2: SupportsIndex = 1) -> "Layout":
        """The elements whose index along axis2 is `skew` more than along axis1, as the last axis in place of the two.

        Raises:
            LayoutError: An axis does not exist, or the two are one.
        """
        ndim, call = len(self.shape), "Layout.diagonal"
        pair = (check_index(call, "axis1", axis1, ndim), check_index(call, "axis2", axis2, ndim))
        first, second = check_axes(call, "(axis1, axis2)", pair, ndim)
        (distance,) = check_integers(call, "skew", (skew,))
        shape, strides, moved = arithmetic.diagonal_of(self.shape, self.strides_bits, distance, first, second)
        return self._view(tuple(shape), tuple(strides), self.offset_bits + moved)

    def sliding_window(self, window: Axes, axis: Axes | None = None) -> "Layout":
        """Every window of neighbouring elements, as numpy.lib.stride_tricks.sliding_window_view has them.

        Args:
            window: Extents of the window, at least 1 each, which become the last axes.
            axis: The axis of each, which keeps as many places as the window has along it; all axes if left out.

        Raises:
            LayoutError: An axis does not exist, or there are not as many as extents.
            ShapeError: The window is larger than the layout, or there are 2**63 elements in all windows.
        """
        shape, strides = views.windowed(self.shape, self.strides_bits, window, axis)
        return self._view(shape, strides, self.offset_bits)

    def repack(self, width_bits: SupportsIndex, axis: SupportsIndex = -1, *, address: SupportsIndex = 0) -> "Layout":
        """The same bits as packed elements of another width: fewer wider ones along the axis, or more narrower ones.

        What is divided or joined is an element's storage, a padded one's padding included, so the bits are as many.

        Args:
            width_bits: A multiple or a divisor of `pitch_bits`; if it is that, no axis is asked for.
            axis: Along it, elements must lie side by side; an axis of extent 1, as `unsqueeze(-1)` adds, always does.
            address: Where the buffer begins.

        Raises:
            LayoutError: The widths do not divide each other; elements do not lie side by side along the axis; its
                extent is no multiple; or the offset, another stride or the address is no multiple of the largest power
                of two in the wider element's width: 2 bits for 6, 64 for 64.
            ShapeError: There would be 2**63 elements.
        """
        if type(width_bits) is int and self.width_bits == width_bits and self.storage == "packed":
            return self
        width, place, start = check_integers(
            "Layout.repack", "(width_bits, axis, address)", (width_bits, axis, address)
        )
        pitch = self.pitch_bits
        unit = views.unit_of(pitch, self.storage == "padded", width)
        views.check_multiple("Layout.repack", "offset_bits", self.offset_bits, unit)
        if width > pitch and self.size:
            views.check_multiple("Layout.repack", "address in bits", start * 8, unit)
        shape, strides = views.repacked(self.shape, self.strides_bits, pitch, unit, width, place)
        return _made(shape, strides, self.offset_bits, width, "packed")

    def _view(self, shape: Shape, strides: Shape, offset: int) -> "Layout":
        """A layout of the same elements, from facts that need no validation."""
        if 1 in shape or 0 in shape:
            strides = arithmetic.settled(shape, strides, self.pitch_bits)
            offset = 0 if 0 in shape else offset
        return _made(shape, strides, offset, self.width_bits, self.storage)


class _Draft:
    """The slots of a layout while they are written: assigning its class afterwards takes less than half the time of
    passing by a frozen class's refusal five times."""

    __slots__ = ("offset_bits", "shape", "storage", "strides_bits", "width_bits")

    shape: Shape
    strides_bits: Shape
    offset_bits: int
    width_bits: int
    storage: Storage


def _made(shape: Shape, strides_bits: Shape, offset_bits: int, width_bits: int, storage: Storage) -> Layout:
    """A layout of facts known to be settled and within the limits."""
    draft = _Draft()
    draft.shape = shape
    draft.strides_bits = strides_bits
    draft.offset_bits = offset_bits
    draft.width_bits = width_bits
    draft.storage = storage
    draft.__class__ = Layout  # type: ignore[assignment]  # the same slots
    return cast(Layout, draft)


def _placed(shape: Shape, strides: Shape, storage: Storage, span: tuple[int, int], offset: int, width: int) -> Layout:
    """A layout of checked facts, every bit within int64."""
    low, high = span
    if low + offset < -LIMIT or high + offset >= LIMIT:
        raise too_far(low + offset, high + offset)
    return _made(shape, strides, offset if low != high else 0, width, storage)


@lru_cache(maxsize=1024)
def _dense(shape: Shape, axes: Shape | None, width_bits: int, storage: Storage) -> Layout:
    """The dense layout of integers."""
    pitch = check_pitch("Layout", width_bits, storage)
    extents = check_extents("Layout.dense", "shape", shape)
    return Layout(extents, arithmetic.dense_strides(extents, pitch, axes), 0, width_bits, storage)
