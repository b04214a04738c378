"""Sums of groups of rows, each group a list of row numbers: what scattering by an index adds up.

    plan(ragged, isa, threads) -> Plan

out[g, :] = chain of additions from +0 over x[rows[i], :] for i in starts[g] .. starts[g + 1], ascending; then + (+0).
Operands: x (dense rows of `columns` elements), rows (int64), starts (int64, one more than groups), out (dense).
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

__all__ = ["RaggedSum", "plan", "reference"]

# Groups of one task.
_EACH = 4


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
