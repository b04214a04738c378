"""The operation `quantize`: numbers in a block format, as a dialect stores them (numerics.md section 9).

Its way back needs no row: values are a cast and products, which a program says as such. What knows formats and dialects
is imported where it is used: few programs quantise, and it takes as long as most other operations together. Start at
`Quantization`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samebits import dtypes
from samebits.errors import DTypeError, OptionError, ShapeError
from samebits.frozen import dataclass, replace
from samebits.kernels import reorder
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.layout import Layout
from samebits.operations import dim
from samebits.operations.axes import Axes
from samebits.operations.fact import Fact, dense
from samebits.operations.operation import Array, Operation, PlanTarget, View, shared_by

if TYPE_CHECKING:
    from samebits.kernels.quantize.dialects import Dialect
    from samebits.kernels.quantize.formats import BlockFormat

__all__ = ["ROWS", "Quantization"]


@dataclass(frozen=True, slots=True)
class Quantization:
    """To what, and how: blocks lie along the last axis.

    Attributes:
        format: The name of a block format whose blocks are lines.
        dialect: The name of a dialect that makes it.
        line: Whether a global scale that is found is that of a line, not of everything.
        given: Whether the global scale is an operand: one, or one for each line.
    """

    format: str
    dialect: str
    line: bool = True
    given: bool = False

    @property
    def row(self) -> BlockFormat:
        """The block format."""
        from samebits.kernels.quantize import formats

        return formats.of(self.format)

    @property
    def way(self) -> Dialect:
        """The dialect."""
        from samebits.kernels.quantize import dialects

        return dialects.of(self.dialect)

    def __str__(self) -> str:
        whole = "" if self.row.global_scale is None or self.line or self.given else ", one global scale"
        return f"{self.format}, {self.dialect}{whole}"


def check(call: str, name: str, attributes: Quantization, dtype: dtypes.DType) -> int:
    """The extent of a block of an operand of a dtype.

    Raises:  OptionError if kernels make no such format; DTypeError if the dialect takes no such numbers.
    """
    row, way = attributes.row, attributes.way
    across, along = row.block
    if across != 1 or along is None or row.zero_point is not None or row.codebook is not None:
        expected = "a format of lines of blocks, without zero points and code books"
        raise OptionError(call, "format", "", row.name, expected, "quantise it before, with samebits.quantize")
    if row.name not in way.formats:
        from samebits.kernels.quantize import dialects

        known = ", ".join(each.name for each in dialects.dialects(row))
        raise OptionError(call, "dialect", "", way.name, f"one that makes {row.name}: {known}", "choose one of these")
    if dtype.name not in way.takes:
        raise DTypeError(
            call, name, "dtype", dtype.name, f"{' or '.join(way.takes)} for {way.name}", "convert it first"
        )
    return along


def _infer(attributes: Quantization, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    x, row = facts[0], attributes.row
    along = check("quantize", "x", attributes, x.dtype)
    extent = x.shape[-1] if x.rank else 0
    if not x.rank or (not isinstance(extent, dim.Dim) and extent % along):
        raise ShapeError("quantize", "x", "", x, f"[..., a multiple of {along}]", "pad it with zeros first")
    blocks = *x.shape[:-1], dim.floor_divide(extent, along)
    found = [dense(row.element, x.shape), dense(row.scale, blocks)]
    of_lines = *x.shape[:-1], 1
    if attributes.given:
        whole = facts[1]
        if row.global_scale is None or whole.dtype is not row.global_scale or whole.shape not in ((), of_lines):
            expected = f"left out for {row.name}" if row.global_scale is None else f"float32 [] or {list(of_lines)}"
            raise ShapeError("quantize", "global_scale", "", whole, expected, "reshape it, or leave it out")
    elif row.global_scale is not None:
        found.append(dense(row.global_scale, of_lines if attributes.line else ()))
    return tuple(found)


def _reference(attributes: Quantization, arrays: Sequence[Array]) -> tuple[Array, ...]:
    from samebits.kernels.quantize import reference

    row, whole = attributes.row, arrays[1] if attributes.given else None
    parts = reference.quantize(arrays[0], row, attributes.way, -1, whole, line=attributes.line)
    kind = row.element.numpy
    assert kind is not None  # every element format has one
    found = [parts.elements.view(kind), parts.scales]
    if whole is None and parts.global_scale is not None:
        found.append(parts.global_scale)
    return tuple(found)


def _axes(attributes: Quantization, facts: Sequence[Fact]) -> Axes:
    """A line is quantised by itself, unless the global scale is that of everything."""
    rank = facts[0].rank
    mixes = not attributes.given and attributes.row.global_scale is not None and not attributes.line
    lines = *((None if mixes else axis) for axis in range(rank - 1)), None
    return Axes((lines, *(lines if fact.rank else () for fact in facts[1:])))


def _plan(attributes: Quantization, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """The kernels write elements of fewer than 8 bits packed; a last step gives each a byte."""
    from samebits.kernels.quantize import plan as quantize

    row, (dtype, extents, strides), count = attributes.row, views[0], len(views)
    threads = shared_by((views[0],), target)
    places = [0, 2, 3, 1] if attributes.given else list(range(count))  # of x, elements, scales, the global scale
    line = len(views[places[3]][1]) > 0 if count > 3 else attributes.line
    made = quantize.plan(
        row, attributes.way, dtype, (extents, strides), target.isa, threads, given=attributes.given, line=line
    )
    width, shape = row.element.width_bits, extents
    operands, last, at = [Operand(place) for place in places], list[Step](), in_lines(made.workspace_bytes)
    workspace_bytes = made.workspace_bytes
    if width < 8 and 0 not in shape:
        packed, padded = Layout.dense(shape, width_bits=width), Layout.dense(shape, width_bits=width, storage="padded")
        apart = reorder.plan(packed, padded, target.isa, threads)
        operands[1] = Operand(count, at)
        behind = at + in_lines(packed.required_bytes)
        last = [step.on(operands[1], Operand(places[1]), Operand(count, behind)) for step in apart.steps]
        made = replace(made, scratch_bytes=max(made.scratch_bytes, apart.scratch_bytes))
        workspace_bytes = behind + apart.workspace_bytes
    steps = (*(step.on(*operands, Operand(count)) for step in made.steps), *last)
    names = ("x", "global scale", "elements", "scales") if attributes.given else made.operands
    return replace(made, steps=steps, operands=names, workspace_bytes=workspace_bytes)


ROWS: tuple[Operation, ...] = (Operation("quantize", _infer, _reference, _axes, plan=_plan, any_order=False),)
