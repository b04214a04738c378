"""Quantise: numbers to elements and scales of a block format, by a dialect.

    plan(row, dialect, dtype, x, isa, threads) -> Plan
    reference.quantize(x, row, dialect) -> Parts

A global scale is found first, by reading everything once, unless it is given. Then every line, which is what lies along
the axis of the blocks, is quantised in chunks that stay in the first cache; so nothing but what is stored takes memory.
Start at `plan`; the kernels are in `global_text` and `lines_text`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import DType
from samebits.errors import PlanError
from samebits.frozen import dataclass
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.kernels.quantize import global_text, lines_text
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat
from samebits.kernels.quantize.formulas import Formulas
from samebits.kernels.walk import Axis, AxisSteps, Walk, walk

# Elements of one task: microseconds of work, so that threads can share it.
_TASK = 1 << 15
# Elements of a chunk: with its codes and scales it lies in the first cache.
_CHUNK = 2048
# Elements of one task where they are only read.
_READ = 1 << 16
# Bytes of a partial result.
_PARTIAL_BYTES = 4


@functools.lru_cache(maxsize=4096)
def plan(
    row: BlockFormat,
    dialect: Dialect,
    dtype: DType,
    x: AxisSteps,
    isa: Isa,
    threads: int = 1,
    *,
    given: bool = False,
    line: bool = False,
) -> Plan:
    """Operands: x, elements, scales, and the global scale where the format has one.

    Elements are packed, and lines of them follow one another, in the order of x's axes; so do scales.

    Args:
        row: What is stored.
        dialect: How it is found.
        dtype: The dtype of x.
        x: Its shape, the axis of the blocks last, and its strides.
        isa: The instruction set.
        threads: How many share the work.
        given: Whether the global scale is there already, as the dialect keeps it.
        line: Whether each line has its own.

    Raises:
        PlanError: Blocks are not lines of elements, or do not divide the axis.
        OptionError: The dialect makes no such format.
        DTypeError: It takes no such numbers.
    """
    formulas = dialect.formulas(row, dtype)
    along = _check(row, x)
    has_whole = formulas.whole is not None
    names = ("x", "elements", "scales", *(("global scale",) if has_whole else ()))
    steps, workspace, facts = list[Step](), 0, list[tuple[str, str]]()
    if has_whole and not given:
        found, workspace = _whole(formulas, dtype, x, line, isa, len(names))
        steps += found
        facts.append(("read", "twice, once for the global scale"))
    main, scratch_bytes, count = _lines(row, formulas, dtype, x, line, along, isa)
    steps.append(main)
    facts.append(("lines", count))
    return Plan(
        what=f"quantize {dtype.name} {x[0]} to {row.name} by {dialect.name}",
        isa=isa,
        threads=threads,
        steps=tuple(steps),
        operands=names,
        scratch_bytes=scratch_bytes,
        workspace_bytes=workspace,
        facts=tuple(facts),
    )


def _check(row: BlockFormat, x: AxisSteps) -> int:
    across, along = row.block
    if across != 1 or along is None or along < lines_text._WIDEST or along & (along - 1):
        expected = f"1 by a power of two of at least {lines_text._WIDEST}"
        raise PlanError("quantize.plan", "format", "block", row.block, expected, "quantise it by its reference")
    if row.zero_point is not None or row.codebook is not None:
        actual = "zero points" if row.zero_point is not None else "a code book"
        raise PlanError(
            "quantize.plan", "format", "part", actual, "elements and scales", "quantise it by its reference"
        )
    if x[0][-1] % along:
        raise PlanError("quantize.plan", "x", "extent", x[0][-1], f"a multiple of {along}", "pad it")
    return along


def _walk(x: AxisSteps, line: bool) -> Walk:
    """The lines of x; the second operand is the global scale, one a line or one."""
    shape, strides = x
    units = [0] * len(shape)
    size = 1
    for axis in reversed(range(len(shape) - 1)):
        units[axis] = size if line else 0
        size *= shape[axis]
    return walk([Axis(n, (step, unit)) for n, step, unit in zip(shape, strides, units, strict=True)])


@dataclass(frozen=True, slots=True)
class Shares:
    """Tasks of lines: how many lines one has, or of how many spans a line consists, and how long those are."""

    lines: int
    spans: int
    span: int
    tasks: int


def shares(lines: int, n: int, step: int, size: int) -> Shares:
    """About `size` of the n positions of each line a task, in spans of a multiple of `step`."""
    if n >= 2 * size:
        span = max(step, size // step * step)
        spans = -(-n // span)
        return Shares(1, spans, span, lines * spans)
    together = max(1, size // max(n, 1))
    return Shares(together, 1, n, -(-lines // together))


def _whole(
    formulas: Formulas, dtype: DType, x: AxisSteps, line: bool, isa: Isa, workspace: int
) -> tuple[list[Step], int]:
    """The steps that find the global scale, and the bytes of the partial results between them."""
    assert formulas.whole is not None
    shape, strides = x
    lines = math.prod(shape[:-1]) if line else 1
    way = walk([Axis(n, (s,)) for n, s in zip(shape, strides, strict=True)]) if not line else _walk(x, True)
    n = way.inner.extent
    found = shares(way.rows, n, 1, _READ)
    if line:
        found = replace(found, lines=1, tasks=way.rows * found.spans)
    tasks = 0 if 0 in shape else found.tasks
    room = Operand(workspace)
    partial = global_text.Partial(dtype, formulas.whole_nan == "finite", way.classes[0], way.above)
    walked = Walk(tuple(Axis(a.extent, a.strides[:1]) for a in way.outer), Axis(n, way.inner.strides[:1]))
    numbers = (room, walked.rows, found.lines, found.spans, found.span)
    spec = KernelSpec(global_text.text, partial, (*global_text.PARTIAL_PARAMETERS, *walked.parameters()), isa)
    first = Step(spec, tasks, (*numbers, *walked.arguments((Operand(0),))))
    whole = KernelSpec(
        global_text.whole_text,
        global_text.Whole(dtype, formulas.whole),
        global_text.WHOLE_PARAMETERS,
        isa,
    )
    count = tasks // lines if lines else 0
    second = Step(whole, lines, (room, count, Operand(3)))
    return [first, second], in_lines(max(tasks, 1) * _PARTIAL_BYTES)


def _lines(
    row: BlockFormat, formulas: Formulas, dtype: DType, x: AxisSteps, line: bool, along: int, isa: Isa
) -> tuple[Step, int, str]:
    """The step that quantises lines, the scratch that a thread needs, and what it walks, in words."""
    lanes = lines_text.lanes_of(isa)
    chunk = max(1, _CHUNK // (along * lines_text.ABREAST * lanes)) * lines_text.ABREAST * lanes
    way = _walk(x, line)
    n = way.inner.extent
    blocks = n // along
    found = shares(way.rows, blocks, chunk, _TASK // along)
    tasks = 0 if 0 in x[0] else found.tasks
    description = lines_text.LinesText(dtype, row.element, row.scale, along, formulas, way.classes[0], way.above)
    has_whole = formulas.whole is not None
    addresses = (Operand(0), Operand(3) if has_whole else Operand(0))
    numbers = (Operand(1), Operand(2), way.rows, found.lines, blocks, found.spans, found.span, chunk)
    spec = KernelSpec(lines_text.text, description, (*lines_text.PARAMETERS, *way.parameters()), isa)
    block_bytes = along * row.element.width_bits // 8
    scratch = chunk * (16 + along * dtype.size_bytes + block_bytes)
    words = f"{way.rows} of {blocks} blocks of {along}, {way.classes[0]} along them"
    return Step(spec, tasks, (*numbers, *way.arguments(addresses))), in_lines(scratch), words
