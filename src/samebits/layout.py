"""How the elements of a tensor lie in memory: one immutable, hashable value that counts in bits.

Start at `Layout`; `from_strides`, `from_byte_strides` and `dense` make one, every other method derives a view of the
same memory and raises where only a copy would do. Shapes count logical elements, so a float4 matrix is (M, K) however
it is stored. In packed storage element i of a byte takes bits `[i * width, (i + 1) * width)`, least significant first
(DLPack); padded storage gives each element whole bytes, as NumPy does.

Two layouts that put every element at the same place are one value: an axis of extent 1, and every axis of an empty
layout, has no stride that matters, and takes the one a dense layout has there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import EllipsisType
from typing import Literal, SupportsIndex

from samebits.errors import LayoutError, ShapeError, message
from samebits.shapes import LIMIT, MAX_RANK, check_extents, check_index, check_integers, check_permutation

__all__ = ["Key", "Layout", "Shape", "Storage"]

Shape = tuple[int, ...]
Storage = Literal["packed", "padded"]
Place = SupportsIndex | slice | EllipsisType | None
Key = Place | tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """bit(i, j, ...) = offset_bits + i * strides_bits[0] + j * strides_bits[1] + ...

    Attributes:
        shape: Extents in logical elements.
        strides_bits: Bits from an element to the next one along each axis; may be zero or negative.
        offset_bits: Bits from the start of the buffer to element (0, 0, ...).
        width_bits: Bits of one element.
        storage: `packed`, elements `width_bits` apart when dense, or `padded`, each in whole bytes.
    """

    shape: Shape
    strides_bits: Shape
    offset_bits: int
    width_bits: int
    storage: Storage = "packed"

    def __post_init__(self) -> None:
        shape = check_extents("Layout", "shape", self.shape)
        strides = check_integers("Layout", "strides_bits", self.strides_bits)
        offset, width = check_integers("Layout", "(offset_bits, width_bits)", (self.offset_bits, self.width_bits))
        if len(strides) != len(shape):
            raise LayoutError(
                message("Layout", "strides_bits", "length", len(strides), len(shape), "give one for each axis")
            )
        if width < 1:
            raise LayoutError(message("Layout", "width_bits", "", width, "at least 1", "use DType.width_bits"))
        if self.storage not in ("packed", "padded"):
            expected = "'packed' or 'padded'"
            raise LayoutError(message("Layout", "storage", "", repr(self.storage), expected, "name one of the two"))
        storage: Storage = self.storage if width % 8 else "packed"
        strides, offset = _settled(shape, strides, offset, _pitch(width, storage))
        low, high = _span(shape, strides, offset, width)
        if low < -LIMIT or high >= LIMIT:
            raise LayoutError(
                message("Layout", "span", "", f"[{low}, {high}) bits", "within 64-bit integers", "use less")
            )
        for name, value in (("shape", shape), ("strides_bits", strides), ("offset_bits", offset), ("storage", storage)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "width_bits", width)

    @classmethod
    def dense(
        cls,
        shape: Sequence[SupportsIndex],
        *,
        width_bits: int,
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
        extents = check_extents("Layout.dense", "shape", shape)
        axes: Shape | None
        if isinstance(order, str):
            if order not in ("C", "F"):
                raise LayoutError(
                    message("Layout.dense", "order", "", repr(order), "'C', 'F' or axes", "give one of these")
                )
            axes = None if order == "C" else tuple(reversed(range(len(extents))))
        else:
            axes = check_permutation("Layout.dense", "order", order, len(extents))
        return _dense(extents, axes, width_bits, storage)

    @classmethod
    def from_strides(
        cls,
        shape: Sequence[SupportsIndex],
        strides: Sequence[SupportsIndex],
        offset: SupportsIndex = 0,
        *,
        width_bits: int,
        storage: Storage = "packed",
    ) -> "Layout":
        """A layout whose strides and offset count elements."""
        pitch = _pitch(width_bits, storage)
        steps = check_integers("Layout.from_strides", "strides", strides)
        (start,) = check_integers("Layout.from_strides", "offset", (offset,))
        return cls(tuple(shape), tuple(s * pitch for s in steps), start * pitch, width_bits, storage)  # type: ignore[arg-type]

    @classmethod
    def from_byte_strides(
        cls,
        shape: Sequence[SupportsIndex],
        strides_bytes: Sequence[SupportsIndex],
        offset_bytes: SupportsIndex = 0,
        *,
        width_bits: int,
        storage: Storage = "packed",
    ) -> "Layout":
        """A layout whose strides and offset count bytes, as NumPy's do."""
        steps = check_integers("Layout.from_byte_strides", "strides_bytes", strides_bytes)
        (start,) = check_integers("Layout.from_byte_strides", "offset_bytes", (offset_bytes,))
        return cls(tuple(shape), tuple(s * 8 for s in steps), start * 8, width_bits, storage)  # type: ignore[arg-type]

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
        return _pitch(self.width_bits, self.storage)

    @property
    def strides(self) -> Shape:
        """Strides in elements.

        Raises:
            LayoutError: A stride is no whole number of elements.
        """
        pitch = self.pitch_bits
        return tuple([self._exact("strides", s, pitch, "elements") for s in self.strides_bits])

    @property
    def offset(self) -> int:
        """Offset in elements.

        Raises:
            LayoutError: It is no whole number of elements.
        """
        return self._exact("offset", self.offset_bits, self.pitch_bits, "elements")

    @property
    def strides_bytes(self) -> Shape:
        """Strides in bytes.

        Raises:
            LayoutError: A stride is no whole number of bytes.
        """
        return tuple([self._exact("strides_bytes", s, 8, "bytes") for s in self.strides_bits])

    @property
    def offset_bytes(self) -> int:
        """Offset in bytes.

        Raises:
            LayoutError: Element (0, 0, ...) begins inside a byte.
        """
        return self._exact("offset_bytes", self.offset_bits, 8, "bytes")

    @property
    def bounds_bits(self) -> tuple[int, int]:
        """The first bit that an element uses and the one past the last; equal for an empty layout."""
        return _span(self.shape, self.strides_bits, self.offset_bits, self.width_bits)

    @property
    def required_bytes(self) -> int:
        """Bytes that a buffer must have for every element to lie in it.

        Raises:
            LayoutError: An element lies before the start of the buffer.
        """
        low, high = self.bounds_bits
        if low < 0:
            remedy = "add an offset"
            raise LayoutError(message("Layout.required_bytes", "first bit", "", low, "at least 0", remedy))
        return -(-high // 8)

    def rebased(self) -> tuple["Layout", int, int]:
        """The layout counted from its lowest byte, where in bytes that was, and how many bytes the layout spans."""
        low, high = self.bounds_bits
        start = low // 8
        end = -(-high // 8)
        return self._derived(self.shape, self.strides_bits, self.offset_bits - start * 8), start, end - start

    def is_contiguous(self, order: Literal["C", "F", "any"] = "C") -> bool:
        """Whether elements lie side by side in that order (`any`: in some order of the axes)."""
        strides = self.strides_bits
        if order == "C":
            return strides == _dense_strides(self.shape, self.pitch_bits, None)
        if order not in ("F", "any"):
            remedy = "give one of these"
            raise LayoutError(message("Layout.is_contiguous", "order", "", repr(order), "'C', 'F' or 'any'", remedy))
        # The axes that have a stride of their own, slowest first; the others fit any order.
        axes = [axis for axis, extent in enumerate(self.shape) if extent != 1]
        if order == "F":
            axes.reverse()
        else:
            axes.sort(key=strides.__getitem__, reverse=True)
        step = self.pitch_bits
        for axis in reversed(axes):
            if strides[axis] != step:
                return not self.size
            step *= self.shape[axis]
        return True

    def permute(self, axes: Sequence[SupportsIndex]) -> "Layout":
        """Axis i of the result is axis axes[i] of this layout."""
        order = check_permutation("Layout.permute", "axes", axes, len(self.shape))
        return self._derived([self.shape[a] for a in order], [self.strides_bits[a] for a in order])

    def reshape(self, shape: Sequence[SupportsIndex]) -> "Layout":
        """The same elements in row-major order under another shape, without moving any.

        Args:
            shape: The new extents; one may be -1 and is worked out.

        Raises:
            ShapeError: The sizes differ.
            LayoutError: No strides give the new shape: the elements would have to move.
        """
        wanted = self._resolved(shape)
        if 0 in wanted:
            return self._derived(wanted, wanted)
        # Runs are the longest groups of neighbouring axes that one stride steps through, extent 1 left out.
        runs: list[tuple[int, int]] = []
        for extent, stride in zip(self.shape, self.strides_bits, strict=True):
            if extent == 1:
                continue
            if runs and runs[-1][1] == extent * stride:
                runs[-1] = (runs[-1][0] * extent, stride)
            else:
                runs.append((extent, stride))
        strides: list[int] = []
        room, step = 1, self.pitch_bits
        for extent in reversed(wanted):
            if room == 1 and extent > 1 and runs:
                room, step = runs.pop()
            if room % extent:
                actual = f"{self.shape} with strides_bits {self.strides_bits}"
                raise LayoutError(
                    message("Layout.reshape", "layout", "", actual, f"viewable as {wanted}", "copy it first")
                )
            strides.append(step)
            if extent > 1:
                room //= extent
                step *= extent
        return self._derived(wanted, strides[::-1])

    def __getitem__(self, key: Key) -> "Layout":
        """The part that key selects: integers drop an axis, slices of any step keep it, None inserts one, ... fills up.

        Raises:
            LayoutError: An index is out of range, of another type, or one too many.
        """
        keys = key if isinstance(key, tuple) else (key,)
        shape: list[int] = []
        strides: list[int] = []
        offset, axis = self.offset_bits, 0
        for item in _filled(keys, len(self.shape)):
            if item is None:
                shape.append(1)
                strides.append(0)
                continue
            extent, stride = self.shape[axis], self.strides_bits[axis]
            if item == _ALL:
                shape.append(extent)
                strides.append(stride)
            elif isinstance(item, slice):
                start, stop, step = item.indices(extent)
                shape.append(len(range(start, stop, step)))
                strides.append(stride * step)
                offset += start * stride
            else:
                offset += check_index("Layout[...]", f"index of axis {axis}", item, extent) * stride
            axis += 1
        return self._derived(shape, strides, offset)

    # A layout is no sequence: without this, Python would iterate it by indexing.
    __iter__ = None

    def broadcast_to(self, shape: Sequence[SupportsIndex]) -> "Layout":
        """Axes added in front and axes of extent 1 repeat: their stride becomes 0.

        Raises:
            ShapeError: An extent is neither 1 nor the wanted one, or there are too few axes.
        """
        wanted = check_extents("Layout.broadcast_to", "shape", shape)
        added = len(wanted) - len(self.shape)
        if added < 0 or any(a not in (1, b) for a, b in zip(self.shape, wanted[added:], strict=True)):
            remedy = "extents must be equal or 1, aligned at the last axis"
            raise ShapeError(
                message("Layout.broadcast_to", "shape", "", wanted, f"one {self.shape} broadcasts to", remedy)
            )
        if math.prod(wanted) >= LIMIT:
            raise ShapeError(
                message("Layout.broadcast_to", "shape", "", wanted, "fewer than 2**63 elements", "use less")
            )
        kept = zip(self.shape, wanted[added:], self.strides_bits, strict=True)
        return self._derived(wanted, [0] * added + [s if a == b else 0 for a, b, s in kept])

    def squeeze(self, axis: SupportsIndex | None = None) -> "Layout":
        """Drop an axis of extent 1, or all of them.

        Raises:
            LayoutError: The axis has another extent or does not exist.
        """
        if axis is None:
            axes = [i for i, extent in enumerate(self.shape) if extent != 1]
        else:
            drop = check_index("Layout.squeeze", "axis", axis, len(self.shape))
            if self.shape[drop] != 1:
                remedy = "index it instead"
                raise LayoutError(message("Layout.squeeze", f"axis {drop}", "extent", self.shape[drop], 1, remedy))
            axes = [i for i in range(len(self.shape)) if i != drop]
        return self._derived([self.shape[i] for i in axes], [self.strides_bits[i] for i in axes])

    def unsqueeze(self, axis: SupportsIndex) -> "Layout":
        """Insert an axis of extent 1, which becomes that axis of the result."""
        place = check_index("Layout.unsqueeze", "axis", axis, len(self.shape) + 1)
        shape, strides = self.shape, self.strides_bits
        return self._derived((*shape[:place], 1, *shape[place:]), (*strides[:place], 0, *strides[place:]))

    def flip(self, axis: SupportsIndex) -> "Layout":
        """Reverse the order along one axis."""
        place = check_index("Layout.flip", "axis", axis, len(self.shape))
        extent, stride = self.shape[place], self.strides_bits[place]
        strides = (*self.strides_bits[:place], -stride, *self.strides_bits[place + 1 :])
        return self._derived(self.shape, strides, self.offset_bits + (extent - 1) * stride)

    def _exact(self, fact: str, bits: int, unit: int, units: str) -> int:
        """bits / unit, which must be whole."""
        if bits % unit:
            actual, expected = f"{bits} bits", f"whole {units} of {unit} bits"
            raise LayoutError(message(f"Layout.{fact}", "layout", "", actual, expected, "use the count in bits"))
        return bits // unit

    def _resolved(self, shape: Sequence[SupportsIndex]) -> Shape:
        """The extents, a -1 among them worked out, that hold as many elements as this layout."""
        wanted = check_integers("Layout.reshape", "shape", shape)
        size = self.size
        if wanted.count(-1) == 1:
            known = -math.prod(wanted)
            if known <= 0 or size % known:
                expected = f"an extent that -1 can stand for with {size} elements"
                raise ShapeError(message("Layout.reshape", "shape", "", wanted, expected, "give every extent"))
            wanted = tuple(size // known if extent == -1 else extent for extent in wanted)
        wanted = check_extents("Layout.reshape", "shape", wanted)
        if math.prod(wanted) != size:
            expected = f"of {size} elements like {self.shape}"
            raise ShapeError(message("Layout.reshape", "shape", "", wanted, expected, "keep the number of elements"))
        return wanted

    def _derived(self, shape: Sequence[int], strides: Sequence[int], offset: int | None = None) -> "Layout":
        """A layout of the same element, from facts that need no validation but the rank."""
        if len(shape) > MAX_RANK:
            raise LayoutError(message("Layout", "rank", "", len(shape), f"at most {MAX_RANK}", "merge axes"))
        extents, steps = tuple(shape), tuple(strides)
        start = self.offset_bits if offset is None else offset
        if 1 in extents or 0 in extents:
            steps, start = _settled(extents, steps, start, self.pitch_bits)
        new = object.__new__(Layout)
        _set_shape(new, extents)
        _set_strides(new, steps)
        _set_offset(new, start)
        _set_width(new, self.width_bits)
        _set_storage(new, self.storage)
        return new


_ALL = slice(None)
# A slot's own setter passes by the frozen class's refusal, at half the cost of object.__setattr__.
_set_shape, _set_strides, _set_offset, _set_width, _set_storage = (
    Layout.__dict__[name].__set__ for name in ("shape", "strides_bits", "offset_bits", "width_bits", "storage")
)


def _pitch(width_bits: int, storage: Storage) -> int:
    """Bits from one dense element to the next."""
    return width_bits if storage == "packed" else -(-width_bits // 8) * 8


@lru_cache(maxsize=4096)
def _dense(shape: Shape, axes: Shape | None, width_bits: int, storage: Storage) -> Layout:
    """The dense layout of extents already checked; one object for all who ask."""
    return Layout(shape, _dense_strides(shape, _pitch(width_bits, storage), axes), 0, width_bits, storage)


@lru_cache(maxsize=4096)
def _dense_strides(shape: Shape, pitch: int, axes: Shape | None) -> Shape:
    """Strides in bits of dense elements, the axes given from slowest to fastest (None: row-major)."""
    strides = [0] * len(shape)
    step = pitch
    for axis in reversed(range(len(shape)) if axes is None else axes):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def _settled(shape: Shape, strides: Shape, offset: int, pitch: int) -> tuple[Shape, int]:
    """Strides and offset, the parts that no element's place depends on replaced by the dense ones."""
    if 0 in shape:
        return _dense_strides(shape, pitch, None), 0
    settled: list[int] = []
    step = pitch
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        settled.append(step if extent == 1 else stride)
        step = abs(settled[-1]) * extent
    return tuple(settled[::-1]), offset


def _span(shape: Shape, strides: Shape, offset: int, width: int) -> tuple[int, int]:
    """The first bit used and the one past the last."""
    if 0 in shape:
        return offset, offset
    low = high = offset
    for extent, stride in zip(shape, strides, strict=True):
        reach = (extent - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    return low, high + width


def _filled(keys: tuple[Place, ...], ndim: int) -> tuple[Place, ...]:
    """The keys, with full slices where the Ellipsis stands or at the end, one for every axis."""
    used = sum(1 for item in keys if item is not None and item is not Ellipsis)
    if used > ndim:
        raise LayoutError(
            message("Layout[...]", "key", "", f"{used} indices", f"at most {ndim}", "index existing axes only")
        )
    places = [place for place, item in enumerate(keys) if item is Ellipsis]
    if len(places) > 1:
        raise LayoutError(
            message("Layout[...]", "key", "", f"{len(places)} ellipses", "at most one", "leave one of them")
        )
    place = places[0] if places else len(keys)
    return (*keys[:place], *(_ALL,) * (ndim - used), *keys[place + 1 :])
