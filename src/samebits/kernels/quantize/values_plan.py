"""Dequantise: the parts of a block format to numbers.

    plan(row, shape, parts, dtype, out, isa, threads) -> Plan
    reference.dequantize(parts, row) -> numbers

A number is element * scale, then times or over the global scale, each rounded to float32, then one conversion. Lines,
which lie along the axis of the blocks, are cut into chunks that stay in the first cache. Start at `plan`; the kernel is
in `values_text`.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import DType
from samebits.errors import PlanError
from samebits.frozen import dataclass, replace
from samebits.kernels import code_tables, coded
from samebits.kernels.expression import Chain
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.kernels.quantize.formats import BlockFormat
from samebits.kernels.quantize.plan import blocks_walk, shares
from samebits.kernels.quantize.values_text import PARAMETERS, ValuesText, text
from samebits.kernels.walk import BLOCKS, Axis, Walk

# Elements of one task: microseconds of work, so that threads can share it.
_TASK = 1 << 15
# Elements of a chunk: with its scales it lies in the first cache.
_CHUNK, _LONG_CHUNK = 2048, 4096
# Lines that are made together where each column has a scale, which is then decoded once for so many.
_ROWS = 8
# Elements that are taken for a block where a scale is not that of a block of a line; the least that a block may have.
_STRETCH, _LEAST = 128, 16
# The operands of the kernel's walk, and those of which a block of lines has one.
_ORDER = ("out", "elements", "scales", "zero_points", "global_scale")
_PER_BLOCK = ("scales", "zero_points")

Strides = tuple[int, ...]
Shared = Literal["block", "line", "element"]


@functools.lru_cache(maxsize=4096)
def plan(
    row: BlockFormat,
    shape: tuple[int, ...],
    strides: tuple[tuple[str, Strides], ...],
    dtype: DType,
    isa: Isa,
    threads: int = 1,
    *,
    divides: bool = False,
) -> Plan:
    """Operands: the parts in the order of `strides`, which names them, and what is made.

    Args:
        row: What is stored.
        shape: That of elements, the axis of the blocks last.
        strides: Of `elements` in bits, and in elements of theirs of `scales`, of `zero_points` and `global_scale` where
            there are any, and of `out`; one an axis. Along the last, elements and scales are dense.
        dtype: What is made: float32, bfloat16 or float16.
        isa: The instruction set.
        threads: How many share the work.
        divides: Whether the global scale divides.

    Raises:
        PlanError: Blocks along the axis are of another length than kernels take, or a line of elements begins inside a
            byte.
    """
    known = dict(strides)
    shared, along = _shared(row)
    check_kernel(row, shape, known["elements"])
    looked_up = _looked_up(row, shape, known, dtype, isa, threads, divides)
    if looked_up is not None:
        return looked_up
    planner = _ValuesPlanner(row, shape, known, dtype, isa, divides, shared, along)
    return Plan(
        what=f"dequantize {row.name} {shape} to {dtype.name}",
        isa=isa,
        threads=threads,
        steps=tuple(planner.step(band) for band in _bands(shape, row.block[0])),
        operands=tuple(known),
        scratch_bytes=planner.scratch_bytes,
        facts=(("a scale for", {"block": f"{along} elements", "line": "a line", "element": "an element"}[shared]),),
    )


def _looked_up(
    row: BlockFormat, shape: tuple[int, ...], known: dict[str, Strides], dtype: DType, isa: Isa, threads: int,
    divides: bool,
) -> Plan | None:  # fmt: skip
    """The plan that looks numbers up (`code_tables`), of many in dense blocks of four bits; None of others."""
    size, wide = row.block[1], math.prod(shape) >= code_tables.WORTH
    coded_alone = row.codebook is None and row.unit == 1 and "zero_points" not in known and row.block[0] == 1
    if not (wide and coded_alone and size in BLOCKS and row.element.width_bits == 4 and row.scale.width_bits == 8):
        return None
    if shape[-1] % size or any(known.get("global_scale", ())):
        return None
    chain = Chain()
    inputs = [chain.input(row.element), chain.input(row.scale)]
    made = chain.apply("mul", *(chain.apply("cast", x, dtype=dtypes.float32) for x in inputs))
    if "global_scale" in known:
        made = chain.apply("div" if divides else "mul", made, chain.input(dtypes.float32))
    e = chain.finish(made if dtype is dtypes.float32 else chain.apply("cast", made, dtype=dtype))
    split, spread = (*shape[:-1], shape[-1] // size, size), (*shape[:-1], shape[-1] // size, 1)
    elements, out = (tuple([s // row.element.width_bits for s in known["elements"]]), known["out"])
    layouts = [(split, (*s[:-1], size * s[-1], s[-1])) for s in (elements, out)]
    scales = spread, (*known["scales"], 0)
    whole = [((), ())] if "global_scale" in known else []
    found = coded.plan(e, (layouts[0], scales, *whole), (layouts[1],), isa, threads, packed=(0,))
    if found is None:
        return None
    return replace(found, what=f"dequantize {row.name} {shape} to {dtype.name}", operands=tuple(known))


def _shared(row: BlockFormat) -> tuple[Shared, int]:
    """What has one scale along a line, and how many elements are taken for a block."""
    along = row.block[1]
    if along is None:
        return "line", _STRETCH
    if along == 1:
        return "element", _STRETCH
    if along < _LEAST or along & (along - 1):
        expected = f"1, all or a power of two of at least {_LEAST} along the axis"
        raise PlanError("dequantize.plan", "format", "block", row.block, expected, "dequantise it by its reference")
    return "block", along


def check_kernel(row: BlockFormat, shape: tuple[int, ...], strides: Strides) -> None:
    """Raise PlanError unless there is a kernel for the format and the lines of elements."""
    _shared(row)
    width, n = row.element.width_bits, shape[-1]
    if strides[-1] != width and n > 1:
        raise PlanError("dequantize.plan", "elements", "stride", strides[-1], width, "copy them")
    starts = [s for extent, s in zip(shape[:-1], strides[:-1], strict=True) if extent > 1]
    if any(s % 8 for s in starts) or n * width % 8:
        raise PlanError("dequantize.plan", "elements", "line", f"{n} of {width} bits", "whole bytes", "pad them")


@dataclass(frozen=True, slots=True)
class _Band:
    """Lines whose blocks have as many of them: which is the first, how many blocks there are, and lines of one."""

    first: int
    count: int
    each: int


def _bands(shape: tuple[int, ...], across: int | None) -> list[_Band]:
    """All lines; the last block may have fewer."""
    if len(shape) < 2:
        return [_Band(0, 1, 1)]
    lines = shape[-2]
    each = max(lines if across is None else across, 1)
    whole, rest = divmod(lines, each)
    return [_Band(0, whole, each), *([_Band(whole * each, 1, rest)] if rest else [])]


@dataclass(frozen=True, slots=True)
class _ValuesPlanner:
    """The choices of one plan."""

    row: BlockFormat
    shape: tuple[int, ...]
    known: dict[str, Strides]
    dtype: DType
    isa: Isa
    divides: bool
    shared: Shared
    along: int

    @property
    def chunk(self) -> int:
        """Elements of a chunk: long ones where runs of lines are made, so that those are read as they lie."""
        return _LONG_CHUNK if self.shared == "element" else _CHUNK

    @property
    def scratch_bytes(self) -> int:
        """Of each element of a chunk its scale, its zero point, and what is made of it, as float32; and its code."""
        return in_lines(self.chunk * 12 + self.chunk * self.row.element.width_bits // 8)

    def step(self, band: _Band) -> Step:
        """The step for some lines."""
        n, along = self.shape[-1], self.along
        way = self._walk(band)
        each, runs = self._runs(band)
        found = shares(way.rows, way.inner.extent, self.chunk // along, max(1, _TASK // (along * each)))
        length = way.inner.extent * along if n % along == 0 else n
        chunk, out = self.chunk // along, self.known["out"][-1]
        of_line = self._strides(-2) if len(self.shape) > 1 else (0,) * len(_ORDER)
        lines = (each, max(runs, 1), band.each, of_line[0], of_line[1])
        numbers = (way.rows, found.lines, found.spans, found.span, chunk, length, out, *lines)
        spec = KernelSpec(text, self._numbers(way), (*PARAMETERS, *way.parameters()), self.isa)
        addresses = [self._address(name, band) for name in _ORDER]
        return Step(spec, 0 if 0 in self.shape else found.tasks, (*numbers, *way.arguments(addresses)))

    def _numbers(self, way: Walk) -> ValuesText:
        row, whole = self.row, "global_scale" in self.known
        return ValuesText(
            element=row.element,
            codebook=row.codebook,
            unit=row.unit,
            scale=row.scale,
            zero=row.zero_point if "zero_points" in self.known else None,
            whole=("divide" if self.divides else "multiply") if whole else None,
            out=self.dtype,
            along=self.along,
            shared=self.shared,
            is_exact=self._is_exact(),
            dense=self.known["out"][-1] == 1 or self.shape[-1] <= 1,
            above=way.above,
        )

    def _is_exact(self) -> bool:
        """Whether a number is a power of two times an element of few bits, none of them below bfloat16's subnormals."""
        element, scale = self.row.element, self.row.scale
        if not (element.is_float and scale is dtypes.float8_e8m0fnu) or {"global_scale", "zero_points"} & set(
            self.known
        ):
            return False
        least = 1 - element.bias - element.mantissa_bits - scale.bias
        return element.mantissa_bits <= 7 and least >= 1 - dtypes.bfloat16.bias - dtypes.bfloat16.mantissa_bits

    def _walk(self, band: _Band) -> Walk:
        """The walk along whose inner axis blocks lie; lines of whole blocks are one where they continue one another."""
        n, along = self.shape[-1], self.along
        axes = [Axis(self.shape[a], self._strides(a)) for a in range(len(self.shape) - 2)]
        if len(self.shape) > 1:
            of_line = self._strides(-2)
            shared = [name in _PER_BLOCK for name in _ORDER]
            pairs = [(s, 0) if one else (s * band.each, s) for one, s in zip(shared, of_line, strict=True)]
            each, runs = self._runs(band)
            axes += [Axis(band.count, tuple(s for s, _ in pairs)), Axis(runs, tuple(s * each for _, s in pairs))]
        of_scales = {"block": 1, "line": 0, "element": along}[self.shared]
        steps = (along * self.known["out"][-1], along * self.row.element.width_bits // 8, of_scales, of_scales, 0)
        return blocks_walk(axes, n, along, steps)

    def _runs(self, band: _Band) -> tuple[int, int]:
        """Lines that are made together, as they have the same scales for their elements, and how many runs of them."""
        each = _ROWS if self.shared == "element" else 1
        return each, -(-band.each // each)

    def _strides(self, axis: int) -> Strides:
        """Of every operand of the walk, of elements in bytes; 0 of what is not there."""
        found = [self.known[name][axis] if name in self.known else 0 for name in _ORDER]
        return tuple(s // 8 if name == "elements" else s for name, s in zip(_ORDER, found, strict=True))

    def _address(self, name: str, band: _Band) -> Operand:
        """Where the lines of a band begin."""
        names = list(self.known)
        if name not in self.known:
            return Operand(names.index("elements"))
        if not band.first:
            return Operand(names.index(name))
        row, size = self.row, {"out": self.dtype.size_bytes, "elements": 1, "scales": self.row.scale.size_bytes}
        if row.zero_point is not None:
            size["zero_points"] = row.zero_point.size_bytes
        lines = band.first // (row.block[0] or 1) if name in _PER_BLOCK else band.first
        step = self._strides(-2)[_ORDER.index(name)]
        return Operand(names.index(name), lines * step * size.get(name, dtypes.float32.size_bytes))
