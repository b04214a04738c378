"""Kernel text that finds the scales of some blocks from their statistics, and what elements are encoded with.

Start at `find_scales`. `text` is the kernel of those scales whose blocks are more than what one task reads: of rows,
columns and whole tensors, from the largest magnitudes that several tasks found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType, float32, uint32
from samebits.frozen import dataclass
from samebits.kernels import convert, values
from samebits.kernels.quantize import magnitudes
from samebits.kernels.quantize.codes import Encoder
from samebits.kernels.quantize.formulas import Formulas
from samebits.kernels.quantize.magnitudes import Part

PARAMETERS = (
    "partial", "count", "partial_step", "part_step", "scale_step", "group_step", "size", "spans", "span",
    "tables", "table_size", "table_group", "scales", "zeros",
)  # fmt: skip


def wanted_parts(formulas: Formulas) -> tuple[Part, ...]:
    """Of which numbers the largest magnitudes are what formulas are given."""
    return ("both",) if formulas.statistic == "amax" else ("positive", "negative")


@dataclass(frozen=True, slots=True)
class ScalesText:
    """What specialises how scales are found.

    Attributes:
        x: The dtype of what is quantised.
        scale: The format of scales.
        zero: The format of zero points; None without.
        encoder: What encodes elements.
        formulas: How scales and factors are found.
    """

    x: DType
    scale: DType
    zero: DType | None
    encoder: Encoder
    formulas: Formulas


@dataclass(frozen=True, slots=True)
class ScaleTables:
    """Of each of some scales, side by side: the factor, its inverse, the zero point as float32, the code of NaN, and 1
    where elements need plain encoding. Before, the statistics lie where the first ones will."""

    factor: Pointer
    inverse: Pointer
    zero: Pointer
    nan: Pointer
    plain: Pointer

    SIZE: ClassVar[int] = 5

    @staticmethod
    def at(b: Builder, start: Pointer, capacity: Index) -> ScaleTables:
        """The tables in memory from `start` on, each with room for `capacity` numbers."""
        places = [b.offset(start, k * capacity) for k in range(ScaleTables.SIZE)]
        return ScaleTables(*places[:3], *[b.cast(p, uint32) for p in places[3:]])

    @property
    def statistics(self) -> tuple[Pointer, Pointer]:
        """Where the statistics of blocks lie until the tables are filled."""
        return self.factor, self.inverse


def find_scales(
    b: Builder,
    d: ScalesText,
    tables: ScaleTables,
    unit: Sequence[Vector],
    scales: Pointer,
    zeros: Pointer,
    count: Index,
    width: int,
    *,
    apart: bool = False,
) -> Index:
    """Fill the tables from their statistics, and store the scales; 1 where a block's elements need plain encoding.

    Args:    unit: the global scale, where there is one.   scales, zeros: what takes them, `count` of each.
             width: how many are found at a time; so many more statistics than `count` are there, or 0.
             apart: whether of so many the even ones lie before the odd ones in the tables.
    """
    lanes = [*range(0, width, 2), *range(1, width, 2)] if apart else None

    def keep(table: Pointer, i: Index, v: Vector) -> None:
        b.store(table, i, v if lanes is None else b.pick([v], lanes))

    rule, seen = d.formulas.element, [b.constant(0, uint32, width)]
    for i in b.loop(0, count, width, seen):
        given, largest = _statistics(b, d.formulas, tables, i, width)
        scale, *zero = values.emit(b, d.formulas.scale, [*given, *unit], width)
        (factor,) = values.emit(b, d.formulas.factor, [scale, *given, *unit], width)
        (nan,) = values.emit(b, d.formulas.nan, [scale, *given, *unit], width)
        b.store(scales, i, b.bitcast(scale, convert.stored(d.scale)), count - i)
        keep(tables.nan, i, b.convert(nan, uint32))
        if zero:
            b.store(zeros, i, zero[0], count - i)
            keep(tables.zero, i, b.convert(zero[0], float32))
        if rule.apply == "divide":
            # Of zeros any factor makes zeros, but one that is zero or NaN.
            empty = b.bit_and(b.equal(largest, b.like(largest, 0.0)), b.less(b.like(largest, 0.0), factor))
            factor = b.select(empty, b.like(factor, 1.0), factor)
            keep(tables.inverse, i, b.div(b.like(factor, 1.0), factor))
        keep(tables.factor, i, factor)
        plain = b.convert(d.encoder.is_plain(b, largest, factor), uint32)
        keep(tables.plain, i, plain)
        seen[0] = b.bit_or(seen[0], plain)
    return b.choose(b.any(b.equal(seen[0], b.like(seen[0], 1))), 1, 0)


def _statistics(
    b: Builder, formulas: Formulas, tables: ScaleTables, i: Index, width: int
) -> tuple[list[Vector], Vector]:
    """What the formulas are given of some blocks, and the largest magnitude of each; NaN where there is one."""
    first = b.load(tables.statistics[0], i, width)
    if formulas.statistic == "amax":
        return [first], first
    second = b.load(tables.statistics[1], i, width)
    nan = b.bit_or(b.is_nan(first), b.is_nan(second))
    high, low = (b.select(nan, b.like(x, float("nan")), x) for x in (first, b.neg(second)))
    return [low, high], b.maximum(high, b.neg(low))


def text(b: Builder, d: tuple[ScalesText, bool, int]) -> None:
    """A task is a span of the scales of one group, from `count` largest magnitudes of each.

    Args:    d: how scales are found; whether neighbours lie side by side in the magnitudes; how many are found at a
             time.
    """
    of_scales, dense, width = d
    codes, parts = magnitudes.codes_of(of_scales.x), wanted_parts(of_scales.formulas)
    spans, size = b.index("spans"), b.index("size")
    for task in b.tasks():
        group, begin = task // spans, task % spans * b.index("span")
        number = group * size + begin
        some = b.min(b.index("span"), size - begin)
        place = group * b.index("table_group") + begin
        tables = ScaleTables.at(b, b.offset(b.pointer("tables", float32), place), b.index("table_size"))
        start = group * b.index("group_step") + begin * b.index("scale_step")
        for i in b.loop(0, some, width):
            for k, _ in enumerate(parts):
                first = start + i * b.index("scale_step") + k * b.index("part_step")
                found = [b.constant(0, codes, width)]
                for p in b.loop(0, b.index("count"), carry=found):
                    at = first + p * b.index("partial_step")
                    partial = b.pointer("partial", codes)
                    if dense:
                        more = b.load(partial, at, width, some - i)
                    else:
                        more = b.load_strided(partial, at, b.index("scale_step"), width, some - i)
                    found[0] = b.maximum(found[0], more)
                b.store(tables.statistics[k], i, magnitudes.number(b, found[0], of_scales.x))
        scales = b.offset(b.pointer("scales", convert.stored(of_scales.scale)), number)
        zeros = b.offset(b.pointer("zeros", convert.stored(of_scales.zero or float32)), number)
        find_scales(b, of_scales, tables, [], scales, zeros, some, width, apart=dense)
