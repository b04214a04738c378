"""Sums of rows by index, in the order of numerics.md section 5: what scattering by an index adds up.

    plan(sums, isa, threads) -> Plan
    reference(x, ids, out, sums) -> array

out[v, :] is the sum over rows of x whose index is v: in each chunk of rows their sum, then those of the chunks,
ascending. It begins at zero, or with what out holds. Operands: x, ids, out.

Rows are grouped in time that depends on their count and not on that of places: a table that is not cleared says which
group a place has, and is believed only where that group is of this place. Start at `text_group`, then `text_add`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import ieee
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Condition, Index, KernelSpec, Pointer, Vector
from samebits.dtypes import DType, int64
from samebits.frozen import dataclass
from samebits.kernels import convert
from samebits.kernels.plan import Operand, Plan, Step, in_lines, sized

__all__ = ["IndexSums", "plan", "reference"]

# Elements of one task: microseconds of work, so that threads can share it.
_TASK = 1 << 12
# Vectors of a group's columns that are summed side by side.
_SIDE = 4
# What is known of a group, in the workspace: a place's group; for each group its place, where its rows end and its
# latest row; for each row its group; rows by groups; how many groups there are.
_GROUPED = ("slots", "targets", "ends", "latest", "groups", "marks", "count")


@dataclass(frozen=True, slots=True)
class IndexSums:
    """What is summed.

    Attributes:
        dtype: Of x.
        ids: Of the indices: int64 or int32.
        out: Of the sums: float32 or float64, or where sums begin at zero the dtype that they convert to.
        is_onto: Whether sums go on from what out holds; else places without rows are zeros,
        is_cleared: which they are already.
        rows: How many rows there are, each with its index.
        places: Rows of out. Rows with an index that is none of them take no part.
        columns: Elements of a row.
        steps: Elements from one row of x, one index and one row of out to the next.
        left_out: A place whose rows take no part; -1: none.
        chunk: Rows of a chunk.
        block: Rows of a block of a chunk, which is a chain of additions for each of `chains`; 0: a chunk is one chain.
        chains: How many chains a block has; row i of it belongs to chain i % chains.
    """

    dtype: DType
    ids: DType
    out: DType
    is_onto: bool
    is_cleared: bool
    rows: int
    places: int
    columns: int
    steps: tuple[int, int, int]
    left_out: int
    chunk: int
    block: int = 0
    chains: int = 1


@dataclass(frozen=True, slots=True)
class IndexSumsText:
    """What specialises the kernels."""

    dtype: DType
    ids: DType
    out: DType
    is_onto: bool
    block: int
    chains: int

    @property
    def marks(self) -> int:
        """What a row's number is multiplied by, beside its chain and whether a block and a chunk begin with it."""
        return 4 * self.chains if self.block else 2


def reference(
    x: npt.NDArray[Any], ids: npt.NDArray[Any], out: npt.NDArray[Any], sums: IndexSums
) -> npt.NDArray[Any]:  # fmt: skip
    """The sums by NumPy in the dtype of out, one addition after another."""
    out, block, chains = out.copy() if sums.is_onto else np.zeros_like(out), sums.block or sums.chunk, sums.chains
    with np.errstate(all="ignore"):
        for v in np.unique(ids[(ids >= 0) & (ids < sums.places) & (ids != sums.left_out)]):
            (mine,) = np.nonzero(ids == v)
            for chunk in np.unique(mine // sums.chunk):
                there = mine[mine // sums.chunk == chunk]
                blocks = []
                for one in np.unique(there % sums.chunk // block):
                    parts = np.zeros((chains, x.shape[1]), out.dtype)
                    for row in there[there % sums.chunk // block == one]:
                        parts[row % sums.chunk % block % chains] += x[row].astype(out.dtype)
                    blocks.append(functools.reduce(np.add, parts))
                out[v] += functools.reduce(np.add, blocks)
            out[v] = ieee.canonical(out[v] + out.dtype.type(0))
    return out


@functools.lru_cache(maxsize=1024)
def plan(s: IndexSums, isa: Isa, threads: int = 1) -> Plan:
    """Rows are grouped by one task; places without rows become zeros; then a task is some groups."""
    text = IndexSumsText(s.dtype, s.ids, s.out, s.is_onto, s.block, s.chains)
    x, ids, out = map(Operand, range(3))
    starts = [0]
    for size in (s.places, s.rows, s.rows + 1, s.rows, s.rows, s.rows, 1):
        starts.append(starts[-1] + in_lines(8 * size))
    slots, targets, ends, latest, groups, marks, count = (Operand(3, start) for start in starts[:-1])
    numbers = (s.rows, s.steps[1], s.places, s.left_out, s.chunk)
    names: tuple[str, ...] = ("ids", *_GROUPED, "rows", "step", "places", "left_out", "chunk")
    group = KernelSpec(text_group, text, names, isa)
    steps = [Step(group, 1, (ids, slots, targets, ends, latest, groups, marks, count, *numbers))]
    each = max(1, _TASK // max(1, s.columns))
    found, sizes = (targets, ends, marks, count), (s.columns, s.steps[0], s.steps[2], each)
    if not (s.is_onto or s.is_cleared):
        clear = KernelSpec(text_clear, text, ("slots", "targets", "count", "out", "places", "columns", "each"), isa)
        tasks = -(-s.places // each) if s.columns else 0
        steps.append(Step(clear, tasks, (slots, targets, count, out, s.places, s.columns, each)))
    names = ("x", "targets", "ends", "marks", "count", "out", "columns", "x_step", "out_step", "each")
    tasks = -(-min(s.rows, s.places) // each) if s.columns else 0
    steps.append(Step(KernelSpec(text_add, text, names, isa), tasks, (x, *found, out, *sizes)))
    work = (s.rows if s.is_onto else max(s.rows, s.places)) * s.columns
    return Plan(
        what=f"sums of {s.rows} rows of {s.columns} {s.dtype.name} by index into {s.places} places",
        isa=isa,
        threads=sized(threads, work),
        steps=tuple(steps),
        operands=("x", "ids", "out"),
        workspace_bytes=starts[-1],
    )


def text_group(b: Builder, d: IndexSumsText) -> None:
    """The only task finds each row's group, how many rows a group has, and puts these next to each other, ascending."""
    ids, rows, step, places = b.pointer("ids", d.ids), b.index("rows"), b.index("step"), b.index("places")
    slots, targets, ends, latest, groups = (b.pointer(name, int64) for name in _GROUPED[:5])
    for _ in b.tasks():
        count: list[Index] = [0]
        for r in b.loop(0, rows, carry=count):
            v, n = b.load_index(ids, r * step), count[0]
            found = [-1, n]
            for _ in b.when((v >= 0) & (v < places) & (v != b.index("left_out")), carry=found):
                is_its, slot = _its(b, v, n)
                g = b.choose(is_its, slot, n)
                for _ in b.when(g == n):
                    for p, at, value in ((slots, v, n), (targets, n, v), (ends, n + 1, 0), (latest, n, -1)):
                        _write(b, p, at, value)
                _write(b, ends, g + 1, b.load_index(ends, g + 1) + 1)
                found[:] = g, b.max(n, g + 1)
            _write(b, groups, r, found[0])
            count[0] = found[1]
        _write(b, b.pointer("count", int64), 0, count[0])
        _write(b, ends, 0, 0)
        begin: list[Index] = [0]
        for g in b.loop(0, count[0], carry=begin):
            size = b.load_index(ends, g + 1)
            _write(b, ends, g + 1, begin[0])
            begin[0] = begin[0] + size
        chunk = b.index("chunk")
        for first in b.loop(0, rows, chunk):
            last = b.min(first + chunk, rows)
            if not d.block:
                _place(b, d, first, first, last)
                continue
            for block in b.loop(first, last, d.block):
                _place(b, d, first, block, b.min(block + d.block, last))


def _place(b: Builder, d: IndexSumsText, chunk: Index, block: Index, end: Index) -> None:
    """Append each row of one block to the list of its group, marked where a chunk or a block begins."""
    ends, latest, groups, marks = (b.pointer(name, int64) for name in ("ends", "latest", "groups", "marks"))
    for r in b.loop(block, end):
        g = b.load_index(groups, r)
        for _ in b.when(g >= 0):
            at, before = b.load_index(ends, g + 1), b.load_index(latest, g)
            mark = r * d.marks + b.choose(before < chunk, 1, 0)
            if d.block:
                mark = mark + b.choose(before < block, 2, 0) + (r - block) % d.chains * 4
            _write(b, marks, at, mark)
            _write(b, ends, g + 1, at + 1)
            _write(b, latest, g, r)


def _write(b: Builder, p: Pointer, at: Index, value: Index) -> None:
    b.store(p, at, b.from_index(value, int64))


def _its(b: Builder, v: Index, count: Index) -> tuple[Condition, Index]:
    """Whether one of `count` groups belongs to row v of the result, and the number of that group."""
    slot = b.load_index(b.pointer("slots", int64), v)
    is_one = (slot >= 0) & (slot < count)
    return is_one & (b.load_index(b.pointer("targets", int64), b.choose(is_one, slot, 0)) == v), slot


def text_clear(b: Builder, d: IndexSumsText) -> None:
    """A task is some places, of which those without a group become zeros."""
    out, columns, each, lanes = (
        b.pointer("out", convert.stored(d.out)), b.index("columns"), b.index("each"), b.isa.lanes
    )  # fmt: skip
    wide, count = lanes * _SIDE, b.load_index(b.pointer("count", int64), 0)
    whole = columns // wide * wide
    zeros, zero = (b.constant(0, out.dtype, width) for width in (wide, lanes))
    for task in b.tasks():
        for v in b.loop(task * each, b.min(task * each + each, b.index("places"))):
            is_its, _ = _its(b, v, count)
            end = b.choose(is_its, 0, columns)
            at = b.offset(out, v * columns)
            for column in b.loop(0, b.min(whole, end), wide):
                b.store(at, column, zeros)
            for column in b.loop(whole, end, lanes):
                b.store(at, column, zero, b.min(columns - column, lanes))


def text_add(b: Builder, d: IndexSumsText) -> None:
    """A task is some groups, whose columns are walked in registers."""
    ends, targets, columns, lanes = (
        b.pointer("ends", int64),
        b.pointer("targets", int64),
        b.index("columns"),
        b.isa.lanes,
    )
    out, each, wide = b.pointer("out", convert.stored(d.out)), b.index("each"), b.isa.lanes * _SIDE
    count, whole = b.load_index(b.pointer("count", int64), 0), columns // wide * wide
    for task in b.tasks():
        for g in b.loop(b.min(task * each, count), b.min(task * each + each, count)):
            span = b.load_index(ends, g), b.load_index(ends, g + 1)
            at = b.offset(out, b.load_index(targets, g) * b.index("out_step"))
            for column in b.loop(0, whole, wide):
                _add(b, d, span, at, column, wide, None)
            for column in b.loop(whole, columns, lanes):
                _add(b, d, span, at, column, lanes, b.min(columns - column, lanes))


def _add(
    b: Builder, d: IndexSumsText, span: tuple[Index, Index], at: Pointer, column: Index, width: int, most: Index | None
) -> None:  # fmt: skip
    """Some columns of one group."""
    kind, x, marks = convert.computed(d.out), b.pointer("x", convert.stored(d.dtype)), b.pointer("marks", int64)
    total, zero = b.constant(0.0, kind, width), b.constant(0.0, kind, width)
    if d.is_onto:
        total = b.load(at, column, width, most)
    # The sum of all chunks; where a chunk has blocks, that of its blocks; that of each chain.
    sums = [total, *[zero] * (1 + d.chains if d.block else 1)]
    for i in b.loop(*span, carry=sums):
        mark = b.load_index(marks, i)
        if d.block:
            for _ in b.when(mark % 4 >= 2, carry=sums):
                _end_block(b, sums, zero)
        for _ in b.when(mark % 2 == 1, carry=sums):
            sums[0], sums[1] = b.add(sums[0], sums[1]), zero
        value = b.load(x, mark // d.marks * b.index("x_step") + column, width, most)
        value = b.convert(convert.number(b, b.bitcast(value, d.dtype)), kind)
        if not d.block:
            sums[1] = b.add(sums[1], value)
            continue
        for k in range(d.chains):
            for _ in b.when(mark // 4 % d.chains == k, carry=sums):
                sums[2 + k] = b.add(sums[2 + k], value)
    if d.block:
        _end_block(b, sums, zero)
    total = b.canonical(b.add(b.add(sums[0], sums[1]), zero))
    b.store(at, column, b.bitcast(convert.cast(b, total, d.out), convert.stored(d.out)), most)


def _end_block(b: Builder, sums: list[Vector], zero: Vector) -> None:
    """The sum of a block's chains goes to that of the chunk."""
    sums[1] = b.add(sums[1], functools.reduce(b.add, sums[2:]))
    sums[2:] = [zero] * (len(sums) - 2)
