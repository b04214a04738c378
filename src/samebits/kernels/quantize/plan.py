"""Quantise: numbers to elements and scales of a block format, by a dialect.

    plan(row, dialect, dtype, x, isa, threads) -> Plan
    reference.quantize(x, row, dialect) -> Parts

A global scale is found first, by reading everything once, unless it is given. Then every line, which is what lies along
the axis of the blocks, is quantised in chunks that stay in the first cache, and squares in chunks of all their lines
that stay in the second; so nothing but what is stored takes memory. What has one scale for a column, a whole tensor or
a line that is long is read once more before, and its scales are found from the largest magnitudes that tasks kept.
Start at `plan`; the kernels are in `global_text`, `scales_text` and `lines_text`.
"""

from __future__ import annotations

import functools
import math

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import DType
from samebits.errors import PlanError
from samebits.frozen import dataclass
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.kernels.quantize import global_text, lines_text, scales_text
from samebits.kernels.quantize.blocks import extents, scales_shape
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat
from samebits.kernels.quantize.formulas import Formulas
from samebits.kernels.quantize.line_chunk import LinesText, Shared
from samebits.kernels.quantize.scales_text import ScaleTables, wanted_parts
from samebits.kernels.quantize.widths import ABREAST, LINE_LANES, lanes_of
from samebits.kernels.walk import Axis, AxisSteps, Walk, walk
from samebits.kernels.words import words_room

# Elements of one task: microseconds of work, so that threads can share it.
_TASK = 1 << 15
# Elements of a chunk: with its codes and scales it lies in the first cache; of several lines in the second.
_CHUNK = 2048
# Columns of which the largest magnitudes lie in the first cache.
_COLUMNS = 4096
# Elements of one task where they are only read.
_READ = 1 << 16
# Elements that are taken for a block where blocks are no parts of a line; the least that a block may have.
_STRETCH, _LEAST = 128, 16
# Runs of lines of which the largest magnitudes of columns are kept, and the fewest lines of a run.
_RUNS, _RUN = 16, 64
# Lines of a run where each column has a scale: so often those of a chunk are read from the first cache.
_ROWS = 8
# Scales that one task finds, where they are found apart.
_SCALES = 1 << 11
# Bytes of a number in tables and of a largest magnitude.
_NUMBER_BYTES = 4

Strides = tuple[int, ...]


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
    order: Strides | None = None,
) -> Plan:
    """Operands: x, elements, scales, the global scale and the zero points where the format has them, the seed by which
    words are drawn (uint64) where codes are rounded stochastically.

    Elements are packed, and lines of them follow one another, in the order of x's axes; so do scales and zero points.

    Args:
        row: What is stored.
        dialect: How it is found.
        dtype: The dtype of x.
        x: Its shape, the axis of the blocks last, and its strides.
        isa: The instruction set.
        threads: How many share the work.
        given: Whether the global scale is there already, as the dialect keeps it.
        line: Whether each line has its own.
        order: For stochastic rounding, how far apart the indices are of neighbours along each axis of x; else None.

    Raises:
        PlanError: Blocks along the axis are of another length than kernels take, or do not divide the axis, or a line
            of elements begins inside a byte.
        OptionError: The dialect makes no such format.
        DTypeError: It takes no such numbers.
    """
    formulas = dialect.formulas(row, dtype)
    check_kernel(row, x)
    operands = ["x", "elements", "scales"]
    operands += ["global scale"] * (formulas.whole is not None) + ["zero points"] * (row.zero_point is not None)
    operands += ["seed"] * (order is not None)
    indices = None if order is None else _matrix((x[0], order))[1]
    planner = _LinesPlanner(row, formulas, dtype, *_matrix(x), isa, threads, line, tuple(operands), indices)
    steps, facts, used = list[Step](), list[tuple[str, str]](), 0
    if formulas.whole is not None and not given:
        found, used = planner.whole()
        steps += found
        facts.append(("read", "twice, once for the global scale"))
    tables = Operand(2)
    if planner.apart:
        found, tables, used = planner.scales()
        steps += found
        facts.append(("read", f"twice, once for the scales of {'columns' if planner.by_columns else 'lines'}"))
    main, words = planner.lines(tables)
    return Plan(
        what=f"quantize {dtype.name} {x[0]} to {row.name} by {dialect.name}",
        isa=isa,
        threads=threads,
        steps=(*steps, main),
        operands=planner.operands,
        scratch_bytes=planner.scratch_bytes,
        workspace_bytes=used,
        facts=(*facts, ("lines", words)),
    )


def _matrix(x: AxisSteps) -> AxisSteps:
    """A line as a matrix of one."""
    shape, strides = x
    return (shape, strides) if len(shape) > 1 else ((1, *shape), (0, *strides))


def check_kernel(row: BlockFormat, x: AxisSteps) -> None:
    """Raise PlanError unless there is a kernel for the format and the lines of x."""
    along, n = row.block[1], x[0][-1]
    if along is not None and along != 1 and (along < _LEAST or along & (along - 1)):
        expected = f"1, all or a power of two of at least {_LEAST} along the axis"
        raise PlanError("quantize.plan", "format", "block", row.block, expected, "quantise it by its reference")
    if n * row.element.width_bits % 8:
        actual = f"{n} of {row.element.width_bits} bits"
        raise PlanError("quantize.plan", "elements", "line", actual, "whole bytes", "quantise it by its reference")
    if not row.partial:
        for extent, block in zip(x[0], extents(row, x[0], -1), strict=True):
            if extent % block:
                raise PlanError("quantize.plan", "x", "extent", extent, f"a multiple of {block}", "pad it")


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


def merged(axes: list[Axis]) -> tuple[Axis, ...]:
    """The axes without those of extent 1; neighbours that one stride steps through are joined."""
    found = walk(axes)
    return (*found.outer, found.inner) if found.inner.extent != 1 else found.outer


def blocks_walk(outer: list[Axis], n: int, along: int, steps: Strides) -> Walk:
    """The walk along whose inner axis blocks lie; lines of whole blocks are one where they continue one another.

    Args:    n: elements of a line.   along: elements of a block.   steps: from one block to the next, of each operand.
    """
    inner, axes = Axis(-(-n // along), steps), merged(outer)
    joined = n % along == 0 and axes and axes[-1].strides == tuple(s * inner.extent for s in steps)
    return Walk(axes[:-1], Axis(axes[-1].extent * inner.extent, steps)) if joined else Walk(axes, inner)


def dense(shape: Strides) -> Strides:
    """Strides of row-major order."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


@dataclass(frozen=True, slots=True)
class _LinesPlanner:
    """The choices of one plan."""

    row: BlockFormat
    formulas: Formulas
    dtype: DType
    shape: Strides
    strides: Strides
    isa: Isa
    threads: int
    line: bool
    operands: tuple[str, ...]
    order: Strides | None

    @property
    def shared(self) -> Shared:
        """What has one scale along a line."""
        names: dict[int | None, Shared] = {None: "line", 1: "element"}
        return names.get(self.row.block[1], "block")

    @property
    def by_columns(self) -> bool:
        """Whether each column has a scale."""
        return self.shared == "element"

    @property
    def apart(self) -> bool:
        """Whether scales are found before, by reading everything: for lines where few of them are long."""
        across, _ = self.row.block
        if self.shared == "block" or across is None:
            return self.shared != "block"
        lines = math.prod(self.shape[:-1])
        return not self.is_dense or (self.shape[-1] > _READ and lines < 4 * self.threads)

    @property
    def several(self) -> bool:
        """Whether blocks have several lines."""
        return self.shared == "block" and self.row.block[0] != 1

    @property
    def is_dense(self) -> bool:
        """Whether x lies densely along a line."""
        return self.strides[-1] == 1 or self.shape[-1] <= 1

    @property
    def along(self) -> int:
        """Elements of a block along a line, or what is taken for one."""
        along = self.row.block[1]
        return along if self.shared == "block" and along is not None else _STRETCH

    @property
    def chunk(self) -> int:
        """Blocks of a chunk."""
        if self.shared != "block":
            return _CHUNK // _STRETCH
        together = ABREAST * (LINE_LANES if self.several else lanes_of(self.isa))
        return max(1, _CHUNK // (self.along * together)) * together

    @property
    def runs(self) -> tuple[int, int]:
        """Lines of a run, which share scales, and how many runs a matrix has."""
        each = max(self.row.block[0] or self.shape[-2], 1) if self.several else _ROWS if self.by_columns else 1
        return each, -(-self.shape[-2] // each)

    @property
    def groups(self) -> tuple[int, int, int]:
        """Of scales that are found apart: groups, the scales of one, and the room that they have in tables."""
        count = math.prod(scales_shape(self.row, self.shape, -1))
        size = self.shape[-1] if self.by_columns else count
        return (count // size if size else 0), size, -(-size // _LEAST // 4) * _LEAST * 4

    @property
    def table_size(self) -> int:
        """Numbers of each table: a vector more than scales, as the last one is read whole."""
        groups, _, room = self.groups
        return groups * room + 4 * _LEAST

    @property
    def scratch_bytes(self) -> int:
        """Of a chunk the tables of its scales, largest magnitudes of columns, x, and its elements."""
        n = self.chunk * self.along
        scales = ScaleTables.SIZE * _NUMBER_BYTES * (LINE_LANES if self.shared == "line" else self.chunk)
        words = 0 if self.order is None else (n + words_room(self.isa.lanes)) * _NUMBER_BYTES
        numbers = n * self.dtype.size_bytes * (1 + self.several)
        second = 0
        if self.formulas.other is not None:  # tables, errors of lines by both scales, and the scales themselves
            second = (ScaleTables.SIZE + 2 * (self.row.block[0] or 1) + 1) * self.chunk * _NUMBER_BYTES
        return in_lines(scales + numbers + words + n * self.row.element.width_bits // 8 + second)

    def whole(self) -> tuple[list[Step], int]:
        """The steps that find the global scale, and the bytes of the partial results between them."""
        assert self.formulas.whole is not None  # asked for formats that have one
        lines = math.prod(self.shape[:-1]) if self.line else 1
        axes = [Axis(n, (s,)) for n, s in zip(self.shape, self.strides, strict=True)]
        way = Walk(merged(axes[:-1]), axes[-1]) if self.line else walk(axes)
        found = shares(way.rows, way.inner.extent, 1, _READ)
        if self.line:
            found = Shares(1, found.spans, found.span, way.rows * found.spans)
        step, tasks = self._partial(way, found, self.formulas.whole_nan == "finite")
        description = global_text.Whole(self.dtype, self.formulas.whole)
        spec = KernelSpec(global_text.whole_text, description, global_text.WHOLE_PARAMETERS, self.isa)
        count = tasks // lines if lines else 0
        arguments = (Operand(len(self.operands)), count, Operand(self.operands.index("global scale")))
        return [step, Step(spec, lines, arguments)], in_lines(max(tasks, 1) * _NUMBER_BYTES)

    def _partial(self, way: Walk, found: Shares, finite: bool = False) -> tuple[Step, int]:
        """The step that finds the largest magnitudes of spans of lines, and how many spans there are."""
        parts = wanted_parts(self.formulas)
        partial = global_text.Partial(self.dtype, parts, finite, way.classes[0], way.above)
        parameters = (*global_text.PARTIAL_PARAMETERS, *way.parameters())
        spec = KernelSpec(global_text.text, partial, parameters, self.isa)
        tasks = 0 if 0 in self.shape else found.tasks
        numbers = (Operand(len(self.operands)), way.rows, found.lines, found.spans, found.span)
        return Step(spec, tasks, (*numbers, *way.arguments((Operand(0),)))), tasks

    def scales(self) -> tuple[list[Step], Operand, int]:
        """The steps that find scales apart, where their tables are, and the bytes of those and of what is between."""
        groups, size, room = self.groups
        parts, width = len(wanted_parts(self.formulas)), 2 * ABREAST * lanes_of(self.isa)
        first, count = self._columns() if self.by_columns else self._spans(groups * size)
        steps = (parts * size, size, 1, count * parts * size) if self.by_columns else (parts, 1, count * parts, 0)
        text = self._text(False).of_scales, self.by_columns, width if self.by_columns else LINE_LANES
        spec = KernelSpec(scales_text.text, text, scales_text.PARAMETERS, self.isa)
        workspace, spans = len(self.operands), -(-size // _SCALES)
        partial_bytes = in_lines(groups * size * count * parts * _NUMBER_BYTES)
        zeros = "zero points" if self.row.zero_point is not None else "scales"
        outputs = (Operand(2), Operand(self.operands.index(zeros)))
        tables = Operand(workspace, partial_bytes)
        arguments = (Operand(workspace), count, *steps, size, spans, _SCALES, tables, self.table_size, room, *outputs)
        tasks = 0 if 0 in self.shape else groups * spans
        used = partial_bytes + in_lines(ScaleTables.SIZE * self.table_size * _NUMBER_BYTES)
        return [first, Step(spec, tasks, arguments)], tables, used

    def _spans(self, scales: int) -> tuple[Step, int]:
        """The largest magnitudes of spans of what has one scale: a line or a whole matrix; and how many it has."""
        axes = [Axis(n, (s,)) for n, s in zip(self.shape, self.strides, strict=True)]
        own = 1 if self.row.block[0] == 1 else 2
        within = walk(axes[-own:])
        way = Walk((*merged(axes[:-own]), *within.outer), within.inner)
        found = shares(way.rows, way.inner.extent, 1, _READ)
        found = Shares(1, found.spans, found.span, way.rows * found.spans)
        step, tasks = self._partial(way, found)
        return step, tasks // scales if scales else 0

    def _columns(self) -> tuple[Step, int]:
        """The largest magnitudes of columns in runs of lines, and how many runs there are."""
        height, n = self.shape[-2:]
        each = max(_RUN, -(-height // _RUNS))
        runs = -(-height // each)
        axes = [Axis(n, (s,)) for n, s in zip(self.shape[:-2], self.strides[:-2], strict=True)]
        way = Walk(merged([*axes, Axis(runs, (each * self.strides[-2],))]), Axis(n, (self.strides[-1],)))
        parts = wanted_parts(self.formulas)
        partial = global_text.Partial(self.dtype, parts, False, way.classes[0], way.above)
        parameters = (*global_text.COLUMNS_PARAMETERS, *way.parameters())
        spec = KernelSpec(global_text.columns_text, partial, parameters, self.isa)
        spans = -(-n // _COLUMNS)
        numbers = (Operand(len(self.operands)), spans, _COLUMNS, each, max(runs, 1), height, self.strides[-2])
        tasks = 0 if 0 in self.shape else way.rows * spans
        return Step(spec, tasks, (*numbers, *way.arguments((Operand(0),)))), runs

    def lines(self, scales: Operand) -> tuple[Step, str]:
        """The step that stores elements, and scales unless they are found apart; what it walks, in words.

        Args:    scales: where scales are, or the tables of them.
        """
        (each, runs), along, n = self.runs, self.along, self.shape[-1]
        way = self._walk(each, runs)
        blocks, chunk = way.inner.extent, self.chunk
        found = shares(way.rows, blocks, chunk, max(1, _TASK // (along * each)))
        if self.shared == "line" and not self.apart:
            # A line's scale is found by the task that has the line.
            together = max(1, _TASK // max(n, 1))
            found = Shares(together, 1, blocks, -(-way.rows // together))
        spec = KernelSpec(lines_text.text, self._text(way.above), (*lines_text.PARAMETERS, *way.parameters()), self.isa)
        length = blocks * along if n % along == 0 else n
        line_bytes = n * self.row.element.width_bits // 8
        numbers = (
            way.rows, found.lines, found.spans, found.span, chunk, length, self.strides[-1], self.table_size,
            each, max(runs, 1), self.shape[-2], self.strides[-2], line_bytes, *self._seed(),
        )  # fmt: skip
        tasks = 0 if 0 in self.shape else found.tasks
        words = f"{way.rows} of {blocks} blocks of {along}, {'unit' if self.is_dense else 'strided'} along them"
        return Step(spec, tasks, (*numbers, *way.arguments(self._addresses(scales)))), words

    def _seed(self) -> tuple[Operand | int, int, int]:
        """Where the seed is, and how far apart the indices are of neighbours along a line, and across."""
        if self.order is None:
            return 0, 0, 0
        return Operand(self.operands.index("seed")), self.order[-1], self.order[-2]

    def _addresses(self, scales: Operand) -> tuple[Operand | int, ...]:
        """Of the operands of the walk: what is not there is x; indices begin with 0."""
        places = {name: Operand(k) for k, name in enumerate(self.operands)}
        none = places["x"]
        found = none, places.get("global scale", none), places["elements"], scales, places.get("zero points", none)
        return found if self.order is None else (*found, 0)

    def _walk(self, each: int, runs: int) -> Walk:
        """The lines of x, or runs of them; with global scales, elements in bytes, scales and zero points."""
        of_scales = dense(scales_shape(self.row, self.shape, -1))
        of_lines = dense(self.shape[:-1])
        _, size, room = self.groups
        width, steps = self.row.element.width_bits, list[Axis]()
        for k, extent in enumerate(self.shape[:-1]):
            last, x = k == len(self.shape) - 2, self.strides[k]
            scales = 0 if last and self.row.block[0] is None else of_scales[k]
            if self.apart and self.by_columns and size:
                scales = scales // size * room
            unit = of_lines[k] if self.line else 0
            elements = of_lines[k] * (self.shape[-1] * width // 8)
            count, by = (runs, each) if last else (extent, 1)
            indices = () if self.order is None else (self.order[k] * by,)
            steps.append(Axis(count, (x * by, unit * by, elements * by, scales, scales, *indices)))
        along = self.along
        of_block = {"block": 1, "line": 0, "element": along}[self.shared]
        indices = () if self.order is None else (along * self.order[-1],)
        inner = (along * self.strides[-1], 0, along * width // 8, of_block, of_block, *indices)
        return blocks_walk(steps, self.shape[-1], along, inner)

    def _text(self, above: bool) -> LinesText:
        row = self.row
        return LinesText(
            x=self.dtype,
            element=row.element,
            codebook=row.codebook,
            scale=row.scale,
            zero=row.zero_point,
            along=self.along,
            shared=self.shared,
            given=self.apart,
            several=self.several,
            formulas=self.formulas,
            dense=self.is_dense,
            above=above,
            drawn="" if self.order is None else "counted" if self.order[-1] == 1 else "apart",
            height=self.row.block[0] or 1,
            rows=self.by_columns,
        )
