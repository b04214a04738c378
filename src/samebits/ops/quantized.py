"""A quantised array as a value: the tensors that are stored of it, and the rows that say what they mean.

Start at `Quantized`. It is no Tensor: it has no strides and no arithmetic, and what its parts mean follows from its
format and dialect alone, never from a shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn

from samebits.dtypes import DType
from samebits.errors import ClosedError, ExchangeError, OptionError, shown
from samebits.frozen import dataclass
from samebits.kernels.quantize import dialects, formats
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat
from samebits.layout import Shape
from samebits.native.table import check_threads
from samebits.ops import block_parts, block_values, scale_tiles
from samebits.ops.block_parts import Key
from samebits.ops.call import as_tensor
from samebits.shapes import check_index, check_type
from samebits.tensor import Tensor

__all__ = ["Quantized"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quantized:
    """value = (element - zero point) * scale * global_scale, or over it: an array in a block format.

    Attributes:
        elements: The codes, of the format's element dtype, in the shape of the array.
        scales: One a block, of the format's scale dtype: along each axis as many as there are blocks.
        format: The block format, or its name.
        global_scale: float32 [], or one for each line along `axis`, whose extent is 1 there; None where the format has
            none. What one multiplies with, or divides by where the dialect keeps that.
        zero_points: As many as scales; None where the format has none.
        dialect: How the parts were found, or its name; None where nobody knows.
        axis: The axis along which the elements of a block lie, -1 or -2.
    """

    elements: Tensor
    scales: Tensor
    format: BlockFormat
    global_scale: Tensor | None = field(default=None, kw_only=True)
    zero_points: Tensor | None = field(default=None, kw_only=True)
    dialect: Dialect | None = field(default=None, kw_only=True)
    axis: int = field(default=-1, kw_only=True)

    def __post_init__(self) -> None:
        row = block_parts.format_of("Quantized", self.format)
        dialect = None if self.dialect is None else block_parts.dialect_of("Quantized", self.dialect, row)
        parts: dict[str, Tensor | None] = {name: _part(name, getattr(self, name)) for name in ("elements", "scales")}
        for name, due in (("global_scale", row.global_scale), ("zero_points", row.zero_point)):
            parts[name] = _optional(name, getattr(self, name), due, row)
        axis = block_parts.check_axis("Quantized", self.axis, _part("elements", self.elements).shape)
        block_parts.check_parts(row, parts, axis)
        for name, value in (*parts.items(), ("format", row), ("dialect", dialect), ("axis", axis)):
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> Shape:
        """The extents of the array."""
        return self.elements.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.elements.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.elements.size

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.parts.values())

    @property
    def divides(self) -> bool:
        """Whether a value is over the global scale, not times it."""
        return self.dialect is not None and self.dialect.divides

    @property
    def parts(self) -> dict[str, Tensor]:
        """What is stored, by name: each a Tensor that DLPack takes to other libraries."""
        return {name: part for name in block_parts.PARTS if (part := getattr(self, name)) is not None}

    def dequantize(self, dtype: object = "float32", *, threads: int | None = None) -> Tensor:
        """The values: element * scale rounded to float32, then the global scale, then one conversion to the dtype.

        Args:    dtype: float32, bfloat16 or float16.   threads: at most so many; default every usable core.
        Raises:  DTypeError if the dtype is another.   Bits: numerics.md section 9.
        """
        check_threads("Quantized.dequantize", threads)
        block_parts.check_open("Quantized.dequantize", self.parts)
        made = block_values.value_dtype("Quantized.dequantize", dtype)
        return block_values.values(self.parts, self.format, self.divides, self.axis, made, threads=threads)

    def scale_tiles(self) -> Tensor:
        """The scales of a matrix as block-scaled tensor cores take them: tiles of 128 rows by 4 scales, padding 0.

        Returns: of the scale dtype [..., bytes of the tiles], one run for each matrix; `TiledLayout.scales_128x4` says
                 where in it a scale is.
        Raises:  ShapeError if there is no matrix; ClosedError.
        """
        block_parts.check_open("Quantized.scale_tiles", self.parts)
        return scale_tiles.to_tiles("Quantized.scale_tiles", self.scales, self.axis)

    def equal_bits(self, other: Quantized) -> bool:
        """Whether formats, dialects and every part agree bit for bit."""
        check_type("Quantized.equal_bits", "other", other, Quantized, "pass what quantize gave")
        mine, yours = self.parts, other.parts
        block_parts.check_open("Quantized.equal_bits", mine)
        block_parts.check_open("Quantized.equal_bits", yours, "other.")
        same = self.format == other.format and self.dialect == other.dialect and self.axis == other.axis
        return same and mine.keys() == yours.keys() and all(mine[name].equal_bits(yours[name]) for name in mine)

    def __getitem__(self, key: Key) -> Quantized:
        """A view of whole blocks: slices from one boundary of blocks to another, or integers where a block is 1 long.

        Raises:
            LayoutError: A slice cuts a block, or has a step, or an integer takes the axis of the blocks away.
            ClosedError: The memory of a part is closed.
        """
        block_parts.check_open("Quantized[]", self.parts)
        facts = self.format, self.shape, self.axis
        keys = block_parts.checked_key(*facts, key)
        found = {
            name: part[block_parts.key_of_part(name, *facts, keys)] if part.ndim else part
            for name, part in self.parts.items()
        }
        kept = [axis for axis, item in enumerate(keys) if isinstance(item, slice)]
        axis = kept.index(self.ndim + self.axis) - len(kept)
        return Quantized.of_parts(found, self.format, self.dialect, axis)

    @classmethod
    def cat(cls, parts: Sequence[Quantized], axis: int = 0) -> Quantized:
        """Several along an axis, in memory of their own; all but the last are whole blocks.

        Args:    parts: of one format and dialect, and of one global scale.   axis: as of `concatenate`.
        Raises:  OptionError, ShapeError if they do not go together.
        """
        if not isinstance(parts, list | tuple):
            raise OptionError("Quantized.cat", "parts", "", shown(parts), "a list or a tuple", "pass one")
        given: list[Quantized] = list(parts)
        for number, part in enumerate(given):
            check_type("Quantized.cat", f"parts[{number}]", part, Quantized, "pass what quantize gave")
            block_parts.check_open("Quantized.cat", part.parts, f"parts[{number}].")
        if not given:
            raise OptionError("Quantized.cat", "parts", "", "empty", "at least one", "pass one")
        first = given[0]
        for number, part in enumerate(given):
            facts, due = ((q.format, q.dialect, q.axis, q.ndim) for q in (part, first))
            if facts != due:
                expected = "those of parts[0]"
                raise OptionError(
                    "Quantized.cat", f"parts[{number}]", "format and dialect", part, expected, "requantise"
                )
        place = check_index("Quantized.cat", "axis", axis, first.ndim)
        joined = block_parts.joined(first.format, [q.parts for q in given], first.axis, place)
        return Quantized.of_parts(joined, first.format, first.dialect, first.axis)

    @classmethod
    def of_parts(
        cls, parts: Mapping[str, Tensor], format: BlockFormat, dialect: Dialect | None = None, axis: int = -1
    ) -> Quantized:
        """The array that has these parts, by the names that `parts` gives them.

        Raises:
            OptionError: Elements or scales are missing, or there is a part of another name.
        """
        if not isinstance(parts, Mapping) or not {"elements", "scales"} <= parts.keys() <= {*block_parts.PARTS}:
            actual = shown(parts) if not isinstance(parts, Mapping) else shown(list(parts))
            expected = "elements, scales, and what else Quantized.parts names"
            raise OptionError("Quantized.of_parts", "parts", "", actual, expected, "pass the parts of a Quantized")
        return cls(
            parts["elements"],
            parts["scales"],
            format,
            global_scale=parts.get("global_scale"),
            zero_points=parts.get("zero_points"),
            dialect=dialect,
            axis=axis,
        )

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NoReturn:
        """NumPy's protocol, refused: elements without their scales are no numbers of the array.

        Raises:
            ExchangeError: Always.
        """
        raise ExchangeError("numpy.asarray", "x", "", self, "an array", "pass x.dequantize(), or one of x.parts")

    def __reduce__(self) -> tuple[Any, ...]:
        block_parts.check_open("pickle", self.parts)
        return _unpickled, (self.parts, self.format.name, self.dialect and self.dialect.name, self.axis)

    def __repr__(self) -> str:
        made = f", {self.dialect}" if self.dialect is not None else ""
        along = "" if self.axis == -1 else f", axis={self.axis}"
        return f"Quantized({self.format}{made}, shape={self.shape}{along}, {self.nbytes} bytes)"


def _unpickled(parts: dict[str, Tensor], row: str, dialect: str | None, axis: int) -> Quantized:
    return Quantized.of_parts(parts, formats.of(row), None if dialect is None else dialects.of(dialect), axis)


def _part(name: str, given: object) -> Tensor:
    found = as_tensor("Quantized", name, given)
    if found.buffer.is_closed:
        raise ClosedError("Quantized", name, "buffer", "closed", "open", "close it after its last use")
    return found


def _optional(name: str, given: object, due: DType | None, row: BlockFormat) -> Tensor | None:
    """A part that only some formats have."""
    if (given is None) == (due is None):
        return None if given is None else _part(name, given)
    actual, expected = ("missing", "given") if given is None else ("given", "left out")
    raise OptionError("Quantized", name, "", actual, f"{expected} for {row}", "see the page of formats")
