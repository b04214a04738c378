"""Several strides for each axis: tensors stored tile by tile, and the scales of block formats.

Start at `TiledLayout`. An axis is a row of pieces, slowest first, each with an extent and a stride; an index along the
axis is split over them like a number over its digits. CuTe writes such layouts, fastest piece first, as
((32,4,2),(4,3)):((16,4,1536),(1,512)) (https://docs.nvidia.com/cutlass/media/docs/cpp/cute/01_layout.html).
A piece of stride 0 makes neighbours share one place, as the elements of a block share their scale.
"""

import math
from collections.abc import Sequence
from typing import SupportsIndex

from samebits.errors import LayoutError, ShapeError, shown
from samebits.frozen import dataclass
from samebits.layout.affine import Layout
from samebits.layout.strides import Shape
from samebits.shapes import LIMIT, check_extents, check_index, check_integers

__all__ = ["Swizzle", "TiledLayout"]

# Rows and scales of one tile as the tensor cores read it; see `TiledLayout.scales_128x4`.
_TILE_ROWS, _TILE_SCALES = 128, 4


@dataclass(frozen=True, slots=True)
class TiledLayout:
    """bit(i, j, ...) = offset_bits + sum over the axes of sum(digit * stride), the digits of i over its axis' pieces.

    Attributes:
        shape: Logical extents; the last pieces of an axis may reach further, into padding.
        pieces: For each axis the extents of its pieces, slowest first.
        strides_bits: For each axis the strides of its pieces.
        offset_bits: Bits from the start of the buffer to element (0, 0, ...).
        width_bits: Bits of one element.
    """

    shape: Shape
    pieces: tuple[Shape, ...]
    strides_bits: tuple[Shape, ...]
    offset_bits: int
    width_bits: int

    def __post_init__(self) -> None:
        shape = check_extents("TiledLayout", "shape", self.shape)
        pieces = tuple([check_extents("TiledLayout", "pieces", axis) for axis in _rows("pieces", self.pieces)])
        rows = _rows("strides_bits", self.strides_bits)
        strides = tuple([check_integers("TiledLayout", "strides_bits", axis) for axis in rows])
        if [len(axis) for axis in strides] != [len(axis) for axis in pieces]:
            expected = "nested as pieces are"
            raise LayoutError("TiledLayout", "strides_bits", "", strides, expected, "give one for each piece")
        if len(shape) != len(pieces) or any(n > math.prod(axis) for n, axis in zip(shape, pieces, strict=True)):
            expected = f"one row for each axis of {shape}, of at least its extent"
            raise LayoutError("TiledLayout", "pieces", "", pieces, expected, "round the outer extent up")
        # All other facts are those of the layout that has every piece as an axis, which checks them.
        whole = Layout(
            [extent for axis in pieces for extent in axis],
            [stride for axis in strides for stride in axis],
            self.offset_bits,
            self.width_bits,
        )
        (offset,) = check_integers("TiledLayout", "offset_bits", (self.offset_bits,))
        for name, value in (("shape", shape), ("pieces", pieces), ("strides_bits", strides), ("offset_bits", offset)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "width_bits", whole.width_bits)

    @classmethod
    def scales_128x4(
        cls,
        rows: SupportsIndex,
        columns: SupportsIndex,
        *,
        block: SupportsIndex = 1,
        width_bits: SupportsIndex = 8,
        offset_bits: SupportsIndex = 0,
    ) -> "TiledLayout":
        """Scales as block-scaled tensor cores take them, in tiles of 128 rows by 4 scales, 512 elements in a run.

        With `block` elements to a scale along a row, coordinates are those of the elements, and an element's place is
        that of its scale: 16 for NVFP4, 32 for MX; 1 makes them the coordinates of the scales. Scale (m, k) is element
        `((m // 128 * ceil(K / 4) + k // 4) * 32 + m % 32) * 16 + m % 128 // 32 * 4 + k % 4`. What the tiles hold beyond
        rows and columns is padding, of which bytes should be 0.

        Source: https://docs.nvidia.com/cuda/cublas/index.html#d-block-scaling-factors-layout and CUTLASS,
        include/cutlass/detail/sm100_blockscaled_layout.hpp.

        Args:
            rows: M.
            columns: Elements along a row, or scales where block is 1.
            block: Elements that share a scale.
            width_bits: Bits of a scale.
            offset_bits: Where the first tile begins.
        """
        call = "TiledLayout.scales_128x4"
        m, k = check_extents(call, "(rows, columns)", (rows, columns))
        (share,) = check_integers(call, "block", (block,))
        if share < 1:
            raise LayoutError(call, "block", "", share, "at least 1", "use 16 for NVFP4, 32 for MX")
        (width,) = check_integers(call, "width_bits", (width_bits,))
        (offset,) = check_integers(call, "offset_bits", (offset_bits,))
        down, across = -(-m // _TILE_ROWS), -(-k // (share * _TILE_SCALES))
        tile = _TILE_ROWS * _TILE_SCALES * width
        steps = ((across * tile, 4 * width, 16 * width), (tile, width))
        if share == 1:
            return cls((m, k), ((down, 4, 32), (across, 4)), steps, offset, width)
        return cls((m, k), ((down, 4, 32), (across, 4, share)), (steps[0], (*steps[1], 0)), offset, width)

    @classmethod
    def grouped_scales_128x4(
        cls,
        rows: Sequence[SupportsIndex],
        columns: SupportsIndex,
        *,
        block: SupportsIndex = 1,
        width_bits: SupportsIndex = 8,
    ) -> tuple["TiledLayout", ...]:
        """The scales of several matrices of as many columns in one buffer, each from a whole tile of 128 rows on.

        Args:
            rows: Rows of each group; a group may be empty.
            columns: As in `scales_128x4`.
            block: Elements that share a scale.
            width_bits: Bits of a scale.

        Returns: For each group a layout, whose offset says where in the buffer it begins.
        """
        groups: list[TiledLayout] = []
        offset = 0
        for extent in check_integers("TiledLayout.grouped_scales_128x4", "rows", rows):
            groups.append(cls.scales_128x4(extent, columns, block=block, width_bits=width_bits, offset_bits=offset))
            offset += groups[-1].padded_size * groups[-1].width_bits
        return tuple(groups)

    @classmethod
    def blocks(
        cls, shape: Sequence[SupportsIndex], block: Sequence[SupportsIndex], *, width_bits: SupportsIndex
    ) -> "TiledLayout":
        """A tensor stored block by block: row-major within a block, the blocks row-major among themselves.

        Args:
            shape: Extents of the tensor; blocks at its end may be partly padding.
            block: Extents of a block, as many, at least 1 each.
            width_bits: Bits of an element.
        """
        extents, inner, outer = _blocks_of("TiledLayout.blocks", shape, block)
        (width,) = check_integers("TiledLayout.blocks", "width_bits", (width_bits,))
        steps = Layout.dense((*outer, *inner), width_bits=width).strides_bits
        pairs = zip(steps[: len(outer)], steps[len(outer) :], strict=True)
        return cls(extents, tuple(zip(outer, inner, strict=True)), tuple(pairs), 0, width)

    @classmethod
    def block_scales(
        cls, shape: Sequence[SupportsIndex], block: Sequence[SupportsIndex], *, width_bits: SupportsIndex
    ) -> "TiledLayout":
        """One scale for each block of a tensor, row-major, addressed by the coordinates of the tensor's elements.

        Args:
            shape: Extents of the tensor.
            block: Extents of a block, as many: (128, 128) for a weight's 2D blocks, (1, 128) for an activation's.
            width_bits: Bits of a scale.
        """
        extents, inner, outer = _blocks_of("TiledLayout.block_scales", shape, block)
        (width,) = check_integers("TiledLayout.block_scales", "width_bits", (width_bits,))
        steps = Layout.dense(outer, width_bits=width).strides_bits
        return cls(extents, tuple(zip(outer, inner, strict=True)), tuple([(step, 0) for step in steps]), 0, width)

    @property
    def ndim(self) -> int:
        """Number of logical axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of logical elements."""
        return math.prod(self.shape)

    @property
    def padded_shape(self) -> Shape:
        """The extents that the pieces cover."""
        return tuple([math.prod(axis) for axis in self.pieces])

    @property
    def padded_size(self) -> int:
        """Number of places, padding included, each counted once however many elements of a block share it."""
        used = zip(self.pieces, self.strides_bits, strict=True)
        return math.prod([n for axis, steps in used for n, step in zip(axis, steps, strict=True) if step])

    @property
    def required_bytes(self) -> int:
        """Bytes that a buffer must have to hold every place, padding included.

        Raises:
            LayoutError: A place lies before the start of the buffer.
        """
        return self.affine(padded=True).required_bytes

    def bit(self, *index: SupportsIndex) -> int:
        """Where element (i, j, ...) begins, in bits from the start of the buffer.

        Raises:
            LayoutError: There are not as many indices as axes, or one is out of range.
        """
        if len(index) != len(self.shape):
            expected = f"{len(self.shape)} indices"
            raise LayoutError("TiledLayout.bit", "index", "", index, expected, "give one for each axis")
        place = self.offset_bits
        for axis, item in enumerate(index):
            rest = check_index("TiledLayout.bit", f"index of axis {axis}", item, self.shape[axis])
            for extent, stride in zip(reversed(self.pieces[axis]), reversed(self.strides_bits[axis]), strict=True):
                rest, digit = divmod(rest, extent)
                place += digit * stride
        return place

    def element(self, *index: SupportsIndex) -> int:
        """`bit` in elements.

        Raises:
            LayoutError: As `bit`; or the place is no whole number of elements.
        """
        place, rest = divmod(self.bit(*index), self.width_bits)
        if rest:
            actual, expected = f"{place * self.width_bits + rest} bits", f"whole elements of {self.width_bits} bits"
            raise LayoutError("TiledLayout.element", "place", "", actual, expected, "use bit")
        return place

    def affine(self, *, padded: bool = False) -> Layout:
        """The layout that has every piece as an axis: its elements in row-major order are this layout's.

        Args:
            padded: Keep the padding, so that the shape is that of all pieces. Otherwise only the elements are there.

        Raises:
            LayoutError: The elements end inside a tile in a way that no shape of the pieces has.
        """
        if padded:
            pieces: list[Shape] = list(self.pieces)
        else:
            pieces = []
            for axis, (extent, full) in enumerate(zip(self.shape, self.pieces, strict=True)):
                cut = _cut(extent, full)
                if cut is None:
                    actual, expected = f"{extent} of {full}", "whole pieces"
                    raise LayoutError(
                        "TiledLayout.affine", f"axis {axis}", "extent", actual, expected, "pass padded=True"
                    )
                pieces.append(cut)
        return Layout(
            [extent for axis in pieces for extent in axis],
            [stride for axis in self.strides_bits for stride in axis],
            self.offset_bits,
            self.width_bits,
        )


@dataclass(frozen=True, slots=True)
class Swizzle:
    """place ^ ((place >> shift) & mask), the mask `bits` ones from bit `base` on: what spreads rows over memory banks.

    CuTe's Swizzle<bits, base, shift> for a positive shift. Not affine, so never part of a layout's strides: apply it to
    places that a layout gives. TMA's modes of 32, 64 and 128 bytes are `Swizzle(1, 4, 3)`, `(2, 4, 3)` and `(3, 4, 3)`
    on addresses in bytes. A swizzle is its own inverse.

    Attributes:
        bits: Ones in the mask.
        base: The lowest bit that changes.
        shift: How far above it the bits are that change it, at least `bits`.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        bits, base, shift = check_integers("Swizzle", "(bits, base, shift)", (self.bits, self.base, self.shift))
        if not 0 <= bits <= shift or base < 0 or base + shift + bits > 63:
            expected = "0 <= bits <= shift, base >= 0 and base + shift + bits <= 63"
            raise LayoutError("Swizzle", "(bits, base, shift)", "", (bits, base, shift), expected, "see CuTe")
        for name, value in (("bits", bits), ("base", base), ("shift", shift)):
            object.__setattr__(self, name, value)

    def __call__(self, place: SupportsIndex) -> int:
        """Where what lies at `place` is moved."""
        (where,) = check_integers("Swizzle", "place", (place,))
        if not 0 <= where < LIMIT:
            raise LayoutError("Swizzle", "place", "", where, "in [0, 2**63)", "count from the tile's start")
        return where ^ ((where >> self.shift) & (((1 << self.bits) - 1) << self.base))


def _rows(name: str, values: Sequence[Shape]) -> tuple[Shape, ...]:
    """The rows of all axes."""
    try:
        return tuple(values)
    except TypeError:
        expected = "a tuple of tuples of integers"
        raise LayoutError("TiledLayout", name, "", shown(values), expected, "give one for each axis") from None


def _cut(extent: int, pieces: Shape) -> Shape | None:
    """The pieces without what lies beyond the extent, or None where no pieces cover just that."""
    if math.prod(pieces) == extent:
        return pieces
    if not pieces:
        return None
    inner = math.prod(pieces[1:])
    if extent % inner == 0:
        return (extent // inner, *pieces[1:])
    rest = _cut(extent, pieces[1:]) if extent < inner else None
    return None if rest is None else (1, *rest)


def _blocks_of(call: str, shape: Sequence[SupportsIndex], block: Sequence[SupportsIndex]) -> tuple[Shape, Shape, Shape]:
    """The tensor's extents, a block's, and how many blocks there are along each axis."""
    extents, inner = check_extents(call, "shape", shape), check_extents(call, "block", block)
    if len(inner) != len(extents) or 0 in inner:
        expected = f"{len(extents)} extents of at least 1"
        raise ShapeError(call, "block", "", inner, expected, "give one for each axis")
    return extents, inner, tuple([-(-n // m) for n, m in zip(extents, inner, strict=True)])
