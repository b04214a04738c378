"""The operation `resample`: the last axis of a value, or the last two, by places that are known and their weights.

`Resample.of` gives what it is asked for and its further operands. Start there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from samebits import dtypes
from samebits.errors import DTypeError, ShapeError
from samebits.frozen import dataclass
from samebits.kernels import resample
from samebits.kernels.plan import Plan
from samebits.kernels.resample import Resampling
from samebits.operations.axes import Axes
from samebits.operations.fact import Fact, dense
from samebits.operations.moves import check_indices_dtype
from samebits.operations.operation import Array, Operation, PlanTarget, Shape, View, shared_by
from samebits.operations.strided import of_strides

__all__ = ["ROWS", "Resample"]


@dataclass(frozen=True, slots=True)
class Resample:
    """How many columns there come to be, of blocks of so many; whether rows change too; whether there are weights."""

    columns: int
    block: int
    by_rows: bool
    weighed: bool

    @staticmethod
    def of(
        columns: tuple[Array, Array | None], rows: tuple[Array, Array | None] | None
    ) -> tuple[Resample, list[Array]] | None:
        """The attributes and the operands behind the first, by places and weights of each axis, [taken, out]; None
        where places of neighbouring columns are too far apart."""
        found = resample.tables(*columns)
        if found is None:
            return None
        block, operands = found
        by_row = [x for x in rows or () if x is not None]
        asked = Resample(columns[0].shape[1], block, rows is not None, columns[1] is not None)
        return asked, [*operands, *by_row]

    def __str__(self) -> str:
        return f"to {self.columns} columns{', rows too' * self.by_rows}"


def _infer(attributes: Resample, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    x, starts, offsets, *more = facts
    rows = more[int(attributes.weighed)] if attributes.by_rows else None
    check_indices_dtype("resample", starts)
    if offsets.dtype is not dtypes.uint32 or x.dtype.width_bits != 32 or (attributes.weighed and not x.dtype.is_float):
        raise DTypeError("resample", "operands", "dtypes", f"{x} and {offsets}", "of 32 bits, by uint32", "cast them")
    due = 2 + attributes.weighed + attributes.by_rows * (1 + attributes.weighed)
    if x.rank < 2 or len(facts) - 1 != due:
        given = f"{x} and {len(facts) - 1} more"
        raise ShapeError("resample", "operands", "", given, f"two axes and {due} tables", "make them by Resample.of")
    height = x.shape[-2] if rows is None else rows.shape[1]
    return (dense(x.dtype, (*x.shape[:-2], height, attributes.columns)),)


def _axes(attributes: Resample, facts: Sequence[Fact]) -> Axes:
    """Images follow images, and rows rows where they stay."""
    kept = facts[0].rank - (2 if attributes.by_rows else 1)
    own = tuple([axis if axis < kept else None for axis in range(facts[0].rank)])
    return Axes((own, *[(None,) * fact.rank for fact in facts[1:]]))


def _resampling(attributes: Resample, views: Sequence[tuple[dtypes.DType, Shape]]) -> Resampling:
    """The kernel's description, by formats and shapes of the operands."""
    (dtype, shape), (_, starts), _, *more = views
    rows = more[int(attributes.weighed)][1] if attributes.by_rows else (0, shape[-2])
    return Resampling(
        dtype, math.prod(shape[:-2]), shape[-2], shape[-1], rows[1], attributes.columns, attributes.block, starts[0],
        rows[0], attributes.weighed,
    )  # fmt: skip


def _reference(attributes: Resample, arrays: Sequence[Array]) -> tuple[Array, ...]:
    described = _resampling(attributes, [(dtypes.of(x.dtype), x.shape) for x in arrays])
    return (resample.reference(described, *arrays),)


def _plan(attributes: Resample, views: tuple[View, ...], target: PlanTarget) -> Plan:
    described = _resampling(attributes, [view[:2] for view in views[:-1]])
    return resample.plan(described, target.isa, shared_by(views, target))


def _takes(attributes: Resample, views: Sequence[View]) -> list[Shape | None]:
    """Everything side by side, in row-major order."""
    return [None if of_strides(shape, strides).is_dense else shape for _, shape, strides in views]


ROWS: tuple[Operation, ...] = (
    Operation("resample", _infer, _reference, _axes, plan=_plan, takes=_takes, any_order=False),
)
