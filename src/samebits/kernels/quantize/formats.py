"""Block formats: which elements share a scale, and what is stored of them. One frozen row each.

A value is `element * scale * global_scale`: a zero point is subtracted from the element first, and an element of a code
book is looked up first. How the stored parts are found is no fact of a format; `dialects` has those rows. Start at
`ROWS`, and at `of`, which turns a name into its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import OptionError, near, shown
from samebits.frozen import dataclass

__all__ = ["ROWS", "BlockFormat", "block_formats", "of"]


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """value = element * scale * global_scale, one scale a block.

    Attributes:
        name: As calls name it.
        element: The format of an element.
        scale: The format of a block's scale.
        block: Extents of a block across the axis of the blocks and along it; None is the whole axis. So (1, 16) is 16
            elements in a line, (128, 128) a square, (1, None) a line, (None, None) a matrix.
        global_scale: The format of the scale of everything, or of a line where the caller asks for that; None without.
        zero_point: The format of a block's zero point; None without.
        codebook: What the codes of elements mean, by code; None where that is the element's format.
        unit: What an element of 1 is, a power of two that belongs to the scale: of MXINT8 2^-6.
        partial: Whether the last block of an axis may be short.
        source: The document that defines it.
    """

    name: str
    element: DType
    scale: DType
    block: tuple[int | None, int | None]
    global_scale: DType | None = None
    zero_point: DType | None = None
    codebook: tuple[float, ...] | None = None
    unit: float = 1.0
    partial: bool = False
    source: str = ""

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return of, (self.name,)

    @property
    def largest(self) -> float:
        """The largest value of an element."""
        return max(self.codebook) if self.codebook else self.element.max * self.unit

    @property
    def bits(self) -> float | None:
        """Bits of storage an element, without global scales; None where the block is as long as an axis."""
        across, along = self.block
        if across is None or along is None:
            return None
        shared = self.scale.width_bits + (self.zero_point.width_bits if self.zero_point else 0)
        return self.element.width_bits + shared / (across * along)


_OCP = "OCP Microscaling Formats (MX) v1.0, section 5"
_NVFP4 = "NVIDIA, Introducing NVFP4 (2025); PTX ISA 8.7, mma with block scaling, scale_vec::4X"


_FP8 = "OCP 8-bit Floating Point Specification (OFP8) v1.0; blocks of 128: DeepSeek-V3 technical report, section 3.3"
_QLORA = "Dettmers et al., QLoRA (2023), appendix E"
_BLOCKS: dict[str, tuple[int | None, int | None]] = {
    "tensor": (None, None),
    "row": (1, None),
    "column": (None, 1),
    "1x128": (1, 128),
    "128x128": (128, 128),
}
_GROUPS: dict[str, tuple[int | None, int | None]] = {
    **{name: _BLOCKS[name] for name in ("tensor", "row", "column")},
    **{f"group{n}": (1, n) for n in (32, 64, 128)},
}
# Quantiles of a normal distribution, made symmetric around an exact 0.
_NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


def _mx(name: str, element: DType, unit: float = 1.0) -> BlockFormat:
    return BlockFormat(name, element, dtypes.float8_e8m0fnu, (1, 32), unit=unit, source=_OCP)


def _fp8(name: str, element: DType, scale: DType, block: tuple[int | None, int | None]) -> BlockFormat:
    return BlockFormat(name, element, scale, block, partial=True, source=_FP8)


def _fp8_rows(prefix: str, element: DType) -> tuple[BlockFormat, ...]:
    """Every block with float32 scales; the blocks of 128 with powers of two as well."""
    rows = [_fp8(f"{prefix}-{name}", element, dtypes.float32, block) for name, block in _BLOCKS.items()]
    for name in ("1x128", "128x128"):
        rows.append(_fp8(f"{prefix}-{name}-e8m0", element, dtypes.float8_e8m0fnu, _BLOCKS[name]))
    return tuple(rows)


def _int_rows(width: int) -> tuple[BlockFormat, ...]:
    """Every block and group: signed without zero point, unsigned with an integer or a float one."""
    signed, unsigned = dtypes.of(f"int{width}"), dtypes.of(f"uint{width}")
    rows = []
    for name, block in _GROUPS.items():
        rows.append(BlockFormat(f"int{width}-{name}", signed, dtypes.float32, block, partial=True))
        for suffix, zero in (("zero", dtypes.uint8), ("float-zero", dtypes.float32)):
            full = f"uint{width}-{name}-{suffix}"
            rows.append(BlockFormat(full, unsigned, dtypes.float32, block, zero_point=zero, partial=True))
    return tuple(rows)


def _nvfp4(name: str, block: tuple[int, int]) -> BlockFormat:
    return BlockFormat(
        name, dtypes.float4_e2m1fn, dtypes.float8_e4m3fn, block, global_scale=dtypes.float32, source=_NVFP4
    )


ROWS: tuple[BlockFormat, ...] = (
    _nvfp4("nvfp4", (1, 16)),
    _nvfp4("nvfp4-16x16", (16, 16)),
    _mx("mxfp4", dtypes.float4_e2m1fn),
    _mx("mxfp6-e2m3", dtypes.float6_e2m3fn),
    _mx("mxfp6-e3m2", dtypes.float6_e3m2fn),
    _mx("mxfp8-e4m3", dtypes.float8_e4m3fn),
    _mx("mxfp8-e5m2", dtypes.float8_e5m2),
    _mx("mxint8", dtypes.int8, 2.0**-6),
    *_fp8_rows("fp8", dtypes.float8_e4m3fn),
    *_fp8_rows("fp8-e5m2", dtypes.float8_e5m2),
    *_int_rows(8),
    *_int_rows(4),
    BlockFormat("nf4", dtypes.uint4, dtypes.float32, (1, 64), codebook=_NF4, source=_QLORA),
)

_BY_NAME = {row.name: row for row in ROWS}


def of(name: object) -> BlockFormat:
    """The row that a name stands for; a row is its own.

    Raises:
        OptionError: There is none of that name.
    """
    return named("formats.of", "format", name, BlockFormat, _BY_NAME)


Row = TypeVar("Row")
_LISTED = 16  # names that a message lists; more are no help to who reads it


def named(call: str, operand: str, name: object, kind: type[Row], rows: Mapping[str, Row]) -> Row:
    """The row of a table that a name stands for; a row is its own.

    Raises:
        OptionError: There is none of that name.
    """
    if isinstance(name, kind):
        return name
    found = rows.get(name) if isinstance(name, str) else None
    if found is None:
        meant = near(name, rows) if isinstance(name, str) else []
        remedy = f"name one of these, perhaps {', '.join(map(repr, meant))}" if meant else "name one of these"
        all_of_them = f"the {len(rows)} that `samebits formats` lists" if len(rows) > _LISTED else ", ".join(rows)
        expected = f"one of {all_of_them}"
        raise OptionError(call, operand, "", shown(name), expected, remedy)
    return found


def block_formats() -> tuple[BlockFormat, ...]:
    """Every block format that `quantize` knows."""
    return ROWS
