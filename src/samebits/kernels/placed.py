"""Placed: conversions that depend on where an element is: rounded by its random word, or refused by its index.

    plan(placed, x, out, isa, threads) -> Plan

Operands: x, the seed (one uint64) of `stochastic` rounding, the status (two int64) of `error`, out. An element's index
is its place in row-major order, whatever strides x and out have: a third operand of the walk, which is not in memory,
has the strides of that order and counts it. Words of one row are drawn four a counter, into a buffer. Of elements that
do not fit every task keeps the first, and a second step the first of all. Start at `text`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec, Pointer, Vector
from samebits.conversions import Conversion
from samebits.dtypes import DType, int32, int64, uint32, uint64
from samebits.frozen import dataclass
from samebits.kernels import convert
from samebits.kernels.plan import Operand, Plan, Step
from samebits.kernels.walk import Axis, AxisSteps, Cursor, Stretch, broadcast, numbered, offsets, walk
from samebits.kernels.words import WordStream, words_room

__all__ = ["Placed", "plan"]

# Elements of one task, as of elementwise kernels.
_TASK = 8192
# Elements whose words are drawn at once: 2 KB of the first cache.
_BLOCK = 512
# No element has it.
_NOWHERE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Placed:
    """A conversion between two formats."""

    source: DType
    target: DType
    conversion: Conversion

    @property
    def is_drawn(self) -> bool:
        """Whether it takes a seed."""
        return self.conversion.rounding == "stochastic"

    @property
    def is_checked(self) -> bool:
        """Whether it may refuse."""
        return self.conversion.overflow == "error"


@dataclass(frozen=True, slots=True)
class PlacedText:
    """What specialises the kernel.

    Attributes:
        placed: The conversion.
        classes: How x and out lie along the row.
        counts: Whether neighbours along the row are neighbours in row-major order too.
        above: Whether axes lie above the stretches.
    """

    placed: Placed
    classes: tuple[str, ...]
    counts: bool
    above: bool


@functools.lru_cache(maxsize=1024)
def plan(placed: Placed, x: AxisSteps, out: AxisSteps, isa: Isa, threads: int = 1) -> Plan:
    """One kernel over the merged axes of x and out; where it may refuse another one over what its tasks found."""
    shape = out[0]
    order = tuple(itertools.accumulate(reversed(shape[1:]), lambda n, extent: n * extent, initial=1))[::-1]
    strides = (broadcast("placed.plan", x, shape), out[1], order[: len(shape)])
    axes = [Axis(extent, tuple([s[a] for s in strides])) for a, extent in enumerate(shape)]
    axes.sort(key=lambda axis: -abs(axis.strides[1]))
    way = walk(axes) if axes else walk([Axis(1, (0, 0, 0))])
    rows, n = way.rows, way.inner.extent
    block = _TASK if n >= 2 * _TASK else max(n, 1)
    column_tasks, rows_per_task = -(-n // block), max(1, _TASK // block)
    tasks = column_tasks * -(-rows // rows_per_task)
    names = ["x", *["seed"] * placed.is_drawn, *["status"] * placed.is_checked, "out"]
    seed = Operand(names.index("seed")) if placed.is_drawn else 0
    places = Operand(0), Operand(len(names) - 1), 0
    firsts = Operand(len(names)) if placed.is_checked else 0
    spec = KernelSpec(
        text,
        PlacedText(placed, way.classes[:2], way.classes[2] == "unit", way.above),
        ("column_tasks", "rows_per_task", "block", "rows", "seed", "firsts", *way.parameters()),
        isa,
    )
    arguments = (column_tasks, rows_per_task, block, rows, seed, firsts, *way.arguments(places))
    steps = [Step(spec, tasks, arguments)]
    if placed.is_checked:
        last = KernelSpec(first_of_all, (), ("firsts", "tasks", "status"), isa)
        steps.append(Step(last, 1, (firsts, tasks, Operand(names.index("status")))))
    return Plan(
        what=f"{placed.conversion.rounding or 'checked'} cast {placed.source} to {placed.target} {shape}",
        isa=isa,
        threads=threads,
        steps=tuple(steps),
        operands=tuple(names),
        workspace_bytes=8 * tasks if placed.is_checked else 0,
        facts=(("rows", f"{rows} of {n}"), ("inner axis", " ".join(way.classes))),
    )


def text(b: Builder, d: PlacedText) -> None:
    """A task is some rows, or a block of one long row."""
    column_tasks, rows_per_task, block = b.index("column_tasks"), b.index("rows_per_task"), b.index("block")
    words = b.local(uint32, _BLOCK + words_room(b.isa.lanes)) if d.placed.is_drawn else None
    for task in b.tasks():
        first = (task // column_tasks) * rows_per_task
        start = (task % column_tasks) * block
        stop = b.min(start + block, b.index("n"))
        found: list[Index] = [_NOWHERE]
        for number, begin, end in numbered(b, d.above, first, b.min(first + rows_per_task, b.index("rows"))):
            at = offsets(b, 3, number) if d.above else [0, 0, 0]
            starts = [
                b.offset(b.pointer(f"x{k}", dtype), at[k]) for k, dtype in enumerate((d.placed.source, d.placed.target))
            ]
            stretch = Stretch(b, d.classes, tuple(starts), begin, end)
            for r in b.loop(begin, end, carry=found):
                row = _RowOfElements(b, d, stretch.row(r), at[2] + r * b.index("x2.stretch"), words)
                row.convert(start, stop, found)
        if d.placed.is_checked:
            b.store(b.pointer("firsts", int64), task, b.from_index(found[0], int64))


def first_of_all(b: Builder, d: tuple[()]) -> None:
    """Status is (1, the least of the tasks' indices), if one has any."""
    firsts, status = b.pointer("firsts", int64), b.pointer("status", int64)
    for _ in b.tasks():
        found: list[Index] = [_NOWHERE]
        for task in b.loop(0, b.index("tasks"), carry=found):
            found[0] = b.min(found[0], b.load_index(firsts, task))
        for _ in b.when(found[0] < _NOWHERE):
            b.store(status, 1, b.from_index(found[0], int64))
            b.store(status, 0, b.constant(1, int64, 1))


@dataclass(frozen=True, slots=True)
class _RowOfElements:
    """One row: where it lies, the index of its first element, and where its words go."""

    b: Builder
    d: PlacedText
    cursor: Cursor
    index: Index
    words: Pointer | None

    def convert(self, start: Index, stop: Index, found: list[Index]) -> None:
        """Elements start .. stop-1; `found` is the first index that did not fit."""
        b, lanes = self.b, self.b.isa.lanes
        for block in b.loop(start, stop, _BLOCK, carry=found):
            end = b.min(block + _BLOCK, stop)
            word = self._words(block, end) if self.words is not None else None
            whole = block + (end - block) // lanes * lanes
            for i in b.loop(block, whole, lanes, carry=found):
                self._vector(i, None, word, found)
            for i in b.loop(whole, end, lanes, carry=found):
                self._vector(i, end - i, word, found)

    def _vector(
        self, i: Index, count: Index | None, word: Callable[[Index], Vector] | None, found: list[Index]
    ) -> None:
        b, lanes, placed = self.b, self.b.isa.lanes, self.d.placed
        x = self.cursor.load(0, i, lanes, count)
        made, misfits = convert.checked(b, x, placed.target, placed.conversion, word(i) if word else None)
        self.cursor.store(1, i, made, count)
        if placed.is_checked:
            if count is not None:
                there = b.less(b.iota(int32, lanes), b.splat(b.from_index(b.min(count, lanes), int32), lanes))
                misfits = b.bit_and(misfits, there)
            for _ in b.when(b.any(misfits), carry=found):
                found[0] = b.min(found[0], self._first(i, misfits))

    def _first(self, i: Index, misfits: Vector) -> Index:
        """The least index among the lanes of a mask."""
        b, lanes = self.b, misfits.width
        counted = self._indices(i, lanes)
        places = b.local(int64, lanes)
        b.store(places, 0, b.select(misfits, counted, b.like(counted, _NOWHERE)))
        least: list[Index] = [_NOWHERE]
        for lane in b.loop(0, lanes, carry=least):
            least[0] = b.min(least[0], b.load_index(places, lane))
        return least[0]

    def _indices(self, i: Index, lanes: int) -> Vector:
        """The indices of elements i .. of the row."""
        b, along = self.b, self.b.index("x2.inner")
        steps = b.mul(b.iota(int64, lanes), b.splat(b.from_index(along, int64), lanes))
        return b.add(steps, b.splat(b.from_index(self.index + i * along, int64), lanes))

    def _words(self, block: Index, end: Index) -> Callable[[Index], Vector]:
        """The words of vectors of a block of the row."""
        b, lanes = self.b, self.b.isa.lanes
        if not self.d.counts:
            return lambda i: WordStream(b).each(b.bitcast(self._indices(i, lanes), uint64))
        assert self.words is not None  # as words are drawn
        words = WordStream(b).fill(self.words, self.index + block, end - block)
        return lambda i: b.load(words, i - block, lanes)
