"""Sums of groups of rows, each group a list of row numbers: what scattering by an index adds up.

    plan(ragged, isa, threads) -> Plan

out[g, :] = chain of additions from +0 over x[rows[i], :] for i in starts[g] .. starts[g + 1], ascending; then + (+0).
Operands: x (dense rows of `columns` elements), rows (int64), starts (int64, one more than groups), out (dense).

    plan_onto(onto, isa, threads) -> Plan

out[targets[g], :] = what it holds, plus the sum of each part p in groups[g] .. groups[g + 1], ascending; then + (+0).
The sum of part p is the chain from +0 over x[rows[i], :] for i in parts[p] .. parts[p + 1]. Operands: x, rows, parts,
groups (one more than there are), targets, count (how many groups there are), out (dense).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes, ieee
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec, Pointer
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels.plan import SMALL, Operand, Plan, Step

__all__ = ["RaggedOnto", "RaggedSum", "plan", "plan_onto", "reference", "reference_onto"]

# Groups of one task.
_EACH = 4
# Vectors of a group's columns that are summed side by side.
_SIDE = 4


@dataclass(frozen=True, slots=True)
class RaggedSum:
    """What is summed.

    Attributes:
        dtype: float32 or float64.
        count: Rows that are added, of all groups together.
        groups: How many sums there are.
        columns: Elements of a row.
    """

    dtype: DType
    count: int
    groups: int
    columns: int


def reference(x: npt.NDArray[Any], rows: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The sums by NumPy, one addition after another."""
    out = np.zeros((len(starts) - 1, x.shape[1]), x.dtype)
    with np.errstate(all="ignore"):
        for g, sums in enumerate(out):
            for row in rows[starts[g] : starts[g + 1]]:
                sums += x[row]
    return ieee.canonical(out)


@functools.lru_cache(maxsize=1024)
def plan(r: RaggedSum, isa: Isa, threads: int = 1) -> Plan:
    """One kernel; a task is some groups."""
    names = ("x", "rows", "starts", "out", "groups", "columns")
    spec = KernelSpec(text, r.dtype, names, isa)
    operands = tuple([Operand(k) for k in range(4)])
    return Plan(
        what=f"sums of {r.groups} groups of {r.dtype.name} rows, {r.count} x {r.columns}",
        isa=isa,
        threads=threads if r.count * r.columns >= SMALL["elements"] else 1,
        steps=(Step(spec, -(-r.groups // _EACH) if r.columns else 0, (*operands, r.groups, r.columns)),),
        operands=names[:4],
    )


def text(b: Builder, dtype: DType) -> None:
    """A task is some groups, whose columns are walked in registers."""
    x, out = b.pointer("x", dtype), b.pointer("out", dtype)
    rows, starts = b.pointer("rows", dtypes.int64), b.pointer("starts", dtypes.int64)
    groups, columns, lanes = b.index("groups"), b.index("columns"), b.isa.lanes
    for task in b.tasks():
        for g in b.loop(task * _EACH, b.min(task * _EACH + _EACH, groups)):
            first, last = b.load_index(starts, g), b.load_index(starts, g + 1)
            for column in b.loop(0, columns, lanes):
                count = b.min(columns - column, lanes)
                _sum(b, (b.offset(x, column), columns, rows), (first, last), b.offset(out, g * columns + column), count)


def _sum(
    b: Builder, source: tuple[Pointer, Index, Pointer], span: tuple[Index, Index], out: Pointer, count: Index
) -> None:
    """Some columns of one group."""
    (x, columns, rows), lanes = source, b.isa.lanes
    dtype = x.dtype
    sums = [b.constant(0.0, dtype, lanes)]
    for i in b.loop(*span, carry=sums):
        sums[0] = b.add(sums[0], b.load(x, b.load_index(rows, i) * columns, lanes, count))
    b.store(out, 0, b.canonical(b.add(sums[0], b.constant(0.0, dtype, lanes))), count)


@dataclass(frozen=True, slots=True)
class RaggedOnto:
    """What is added onto rows that are there.

    Attributes:
        dtype: float32 or float64.
        most: Groups that there may be: how many there are, the memory says, so that a plan serves every step.
        columns: Elements of a row.
    """

    dtype: DType
    most: int
    columns: int


def reference_onto(
    x: npt.NDArray[Any], rows: npt.NDArray[np.int64], parts: npt.NDArray[np.int64], groups: npt.NDArray[np.int64],
    targets: npt.NDArray[np.int64], out: npt.NDArray[Any],
) -> npt.NDArray[Any]:  # fmt: skip
    """What out holds afterwards, by NumPy."""
    out, sums = out.copy(), reference(x, rows, parts)
    with np.errstate(all="ignore"):
        for g, target in enumerate(targets):
            total = out[target].copy()
            for one in sums[groups[g] : groups[g + 1]]:
                total += one
            out[target] = ieee.canonical(total + x.dtype.type(0))
    return out


@functools.lru_cache(maxsize=1024)
def plan_onto(r: RaggedOnto, isa: Isa, threads: int = 1) -> Plan:
    """One kernel; a task is some groups."""
    operands = ("x", "rows", "parts", "groups", "targets", "count", "out")
    spec = KernelSpec(text_onto, r.dtype, (*operands, "columns"), isa)
    places = tuple([Operand(k) for k in range(len(operands))])
    return Plan(
        what=f"sums of at most {r.most} groups of {r.dtype.name} rows of {r.columns}",
        isa=isa,
        threads=threads if r.most * r.columns >= SMALL["elements"] else 1,
        steps=(Step(spec, -(-r.most // _EACH) if r.columns else 0, (*places, r.columns)),),
        operands=operands,
    )


def text_onto(b: Builder, dtype: DType) -> None:
    """A task is some groups, whose columns are walked in registers."""
    x, out = b.pointer("x", dtype), b.pointer("out", dtype)
    rows, parts, groups, targets = (b.pointer(name, dtypes.int64) for name in ("rows", "parts", "groups", "targets"))
    count, columns, lanes = b.load_index(b.pointer("count", dtypes.int64), 0), b.index("columns"), b.isa.lanes
    wide = lanes * _SIDE
    whole = columns // wide * wide

    def gain(first: Index, last: Index, at: Pointer, column: Index, width: int, most: Index | None) -> None:
        """Some columns of one group."""
        total = [b.load(at, column, width, most)]
        for p in b.loop(first, last, carry=total):
            sums = [b.constant(0.0, dtype, width)]
            for i in b.loop(b.load_index(parts, p), b.load_index(parts, p + 1), carry=sums):
                sums[0] = b.add(sums[0], b.load(x, b.load_index(rows, i) * columns + column, width, most))
            total[0] = b.add(total[0], sums[0])
        b.store(at, column, b.canonical(b.add(total[0], b.constant(0.0, dtype, width))), most)

    for task in b.tasks():
        for g in b.loop(b.min(task * _EACH, count), b.min(task * _EACH + _EACH, count)):
            first, last = b.load_index(groups, g), b.load_index(groups, g + 1)
            at = b.offset(out, b.load_index(targets, g) * columns)
            for column in b.loop(0, whole, wide):
                gain(first, last, at, column, wide, None)
            for column in b.loop(whole, columns, lanes):
                gain(first, last, at, column, lanes, b.min(columns - column, lanes))
