"""Block formats in programs: values that are quantised, on the way or as constants, their numbers and their products.

What is quantised is several values, elements and scales, of which a program's products take each by its name. Start at
`quantized`, or at `constant`, which is a weight that was quantised before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import OptionError
from samebits.frozen import dataclass
from samebits.kernels.quantize import dialects, formats
from samebits.kernels.quantize.formats import BlockFormat
from samebits.operations.product import Options
from samebits.operations.quantization import Quantization
from samebits.ops.quantized import Quantized
from samebits.program.builder import ProgramBuilder

__all__ = ["BlockValue", "constant", "dequantized", "linear", "quantized"]


@dataclass(frozen=True, slots=True)
class BlockValue:
    """A quantised value of a program, whose blocks lie along its last axis.

    Attributes:
        format: What is stored.
        elements, scales, global_scale, zero_points: The names of its parts; None where the format has none.
        divides: Whether a number is over the global scale, not times it.
    """

    format: BlockFormat
    elements: str
    scales: str
    global_scale: str | None = None
    zero_points: str | None = None
    divides: bool = False


def quantized(
    b: ProgramBuilder, x: str, format: object, dialect: object = None, global_scale: str | None = None,
    *, line: bool = True,
) -> BlockValue:  # fmt: skip
    """x in a block format, with the bits of `samebits.quantize`.

    Args:    format, dialect: as there, of lines of blocks.   global_scale: a value, as the dialect keeps it: float32 []
                or one for each line.   line: without one, whether each line has its own, so that no line depends on
                another; else everything has one.
    Raises:  OptionError, DTypeError, ShapeError.
    """
    row = formats.of(format)
    way = dialects.default(row) if dialect is None else dialects.of(dialect)
    attributes = Quantization(row.name, way.name, line, global_scale is not None)
    made = b.add("quantize", (x,) if global_scale is None else (x, global_scale), attributes)
    whole = made[2] if made[2:] else global_scale
    return BlockValue(row, made[0], made[1], whole, divides=way.divides)


def constant(b: ProgramBuilder, q: Quantized) -> BlockValue:
    """A Quantized whose blocks lie along its last axis, as constants; elements of 4 bits stay packed.

    Raises:  OptionError if they lie along another.
    """
    if q.axis != -1:
        raise OptionError("program.constant", "q", "axis", q.axis, "-1", "quantise along the last axis")
    parts = {name: b.constant(part) for name, part in q.parts.items()}
    return BlockValue(q.format, **parts, divides=q.divides)


def dequantized(b: ProgramBuilder, x: BlockValue, dtype: DType = dtypes.float32) -> str:
    """The numbers that x stands for, with the bits of `samebits.dequantize`.

    Raises:  OptionError if the format has a code book.
    """
    row, shape = x.format, b.facts[x.elements].shape
    if row.codebook is not None:
        raise OptionError("program.dequantized", "x", "format", row.name, "without a code book", "dequantise it before")

    def spread(part: str) -> str:
        """One number of each block for all of its elements."""
        for axis, block in zip((-2, -1), row.block, strict=True):
            own, at = b.facts[part].shape, len(shape) + axis
            if block == 1 or at < 0:
                continue
            size = shape[at] if block is None else block
            apart = b.reshape(part, (*own[: at + 1], 1, *own[at + 1 :]))
            whole = b.expand(apart, (*own[: at + 1], size, *own[at + 1 :]))
            joined = b.reshape(whole, (*own[:at], own[at] * size, *own[at + 1 :]))
            part = b.slice(joined, (0,) * len(own), (*own[:at], shape[at], *own[at + 1 :]), (1,) * len(own))
        return b.apply("cast", part, cast_to=dtypes.float32) if b.facts[part].dtype is not dtypes.float32 else part

    found = _in_units(b, row, b.apply("cast", x.elements, cast_to=dtypes.float32))
    if x.zero_points is not None:
        found = b.apply("sub", found, spread(x.zero_points))
    found = b.apply("mul", found, spread(x.scales))
    if x.global_scale is not None:
        found = b.apply("div" if x.divides else "mul", found, x.global_scale)
    return found if dtype is dtypes.float32 else b.apply("cast", found, cast_to=dtype)


def linear(b: ProgramBuilder, x: BlockValue | str, weight: BlockValue) -> str:
    """x @ weight^T of a weight [N, K], with the bits of `samebits.linear` of what `quantize` gives.

    Args:    x: a quantised value [..., K], or floats.
    Raises:  OptionError, DTypeError, ShapeError.
    """
    right, (lines, size) = _operands(b, "b", weight), weight.format.block
    names = {name: b.transpose(value, (1, 0)) if b.facts[value].rank == 2 else value for name, value in right.items()}
    n = b.facts[weight.elements].shape[0]
    groups: dict[str, Any] = {"b_group": None if size is None else (size, n if lines is None else lines)}
    left = x if isinstance(x, str) else x.elements
    if not isinstance(x, str):
        names |= _operands(b, "a", x)
        lines, size = x.format.block
        groups["a_group"] = None if size is None else (b.facts[left].shape[-2] if lines is None else lines, size)
    return b.contract(left, b.transpose(weight.elements, (1, 0)), Options(**groups), **names)


def _operands(b: ProgramBuilder, side: str, x: BlockValue) -> dict[str, str]:
    """What a product takes of x beside its elements."""
    found = {f"{side}_scale": x.scales}
    if x.format.unit != 1:
        found = {f"{side}_scale": _in_units(b, x.format, b.apply("cast", x.scales, cast_to=dtypes.float32))}
    if x.zero_points is not None:
        found[f"{side}_zero_point"] = x.zero_points
    if x.global_scale is not None:
        whole = x.global_scale
        found[f"{side}_global_scale"] = b.apply("reciprocal", whole) if x.divides else whole
    return found


def _in_units(b: ProgramBuilder, row: BlockFormat, x: str) -> str:
    """Elements, or scales, times what an element of 1 is, a power of two: exact."""
    return x if row.unit == 1 else b.apply("mul", x, b.constant(np.array(row.unit, np.float32)))
