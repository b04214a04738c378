"""Operations that place elements: concat, gather, gather_nd, scatter_nd; and those of sizes alone: dims, range.

Start at `ROWS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from samebits import dtypes
from samebits.errors import DTypeError, ShapeError
from samebits.frozen import dataclass
from samebits.kernels import elementwise, gather, scatter
from samebits.kernels.gather import RowGather
from samebits.kernels.plan import Operand, Plan
from samebits.operations import dim
from samebits.operations.axes import Axes, along
from samebits.operations.dim import Size, SymbolicShape
from samebits.operations.elementwise import single
from samebits.operations.fact import Fact, check_axis, dense
from samebits.operations.operation import Array, Operation, PlanTarget, Shape, View, shared_by
from samebits.operations.strided import dense_strides, of_strides
from samebits.operations.views import text

__all__ = [
    "ROWS", "AxisGather", "Concat", "Dims", "GatherND", "Range", "ScatterND", "check_indices", "check_indices_dtype",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dims:
    """Known integers as int64: sizes, in the form of a scalar or a vector."""

    sizes: SymbolicShape
    scalar: bool = False

    def bind(self, symbols: Mapping[str, int]) -> Dims:
        """Symbols replaced by their values."""
        return Dims(dim.bind_shape(self.sizes, symbols), self.scalar)

    def __str__(self) -> str:
        return str(self.sizes[0]) if self.scalar else text(self.sizes)


@dataclass(frozen=True, slots=True)
class Range:
    """start, start + step, ...: `count` int64."""

    start: Size
    count: Size
    step: int

    def bind(self, symbols: Mapping[str, int]) -> Range:
        """Symbols replaced by their values; no fewer than zero elements."""
        return Range(dim.bind(self.start, symbols), max(0, dim.bind(self.count, symbols)), self.step)

    def __str__(self) -> str:
        return f"{self.start}+{self.count} by {self.step}"


@dataclass(frozen=True, slots=True)
class Concat:
    """The operands one after the other along an axis."""

    axis: int

    def __str__(self) -> str:
        return f"axis {self.axis}"


@dataclass(frozen=True, slots=True)
class AxisGather:
    """out[..., i, ...] = data[..., indices[i], ...] on one axis; a negative index counts from the end."""

    axis: int

    def __str__(self) -> str:
        return f"axis {self.axis}"


@dataclass(frozen=True, slots=True)
class GatherND:
    """The last axis of the indices picks places of the leading axes of data (ONNX GatherND with batch_dims 0)."""

    def __str__(self) -> str:
        return "leading axes"


@dataclass(frozen=True, slots=True)
class ScatterND:
    """The last axis of the indices picks places of the leading axes of data, where updates go (ONNX ScatterND)."""

    def __str__(self) -> str:
        return "leading axes"


def check_indices_dtype(what: str, indices: Fact) -> None:
    """Raise DTypeError unless indices are int64."""
    if indices.dtype is not dtypes.int64:
        raise DTypeError(what, "indices", "dtype", indices.dtype.name, "int64", "cast them")


def _infer_concat(attributes: Concat, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    if not facts:
        raise ShapeError("concat", "operands", "count", 0, "at least 1", "give one")
    first, axis = facts[0], attributes.axis
    check_axis("concat", axis, first.rank)
    for fact in facts[1:]:
        pairs = [pair for i, pair in enumerate(zip(fact.shape, first.shape, strict=False)) if i != axis]
        clash = any(dim.are_known(x, y) and x != y for x, y in pairs)
        if fact.rank != first.rank or fact.dtype is not first.dtype or clash:
            raise ShapeError("concat", "operands", "", f"{first} and {fact}", "alike", "cast or reshape one")
    total: Size = 0
    for fact in facts:
        total = total + fact.shape[axis]
    return (dense(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _infer_gather(attributes: AxisGather, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    data, indices = facts
    axis = attributes.axis
    check_axis("gather", axis, data.rank)
    check_indices_dtype("gather", indices)
    return (dense(data.dtype, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])),)


def _infer_gather_nd(attributes: GatherND, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    return (dense(facts[0].dtype, _rows_named("gather_nd", *facts)),)


def _infer_scatter_nd(attributes: ScatterND, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    data, indices, updates = facts
    due = _rows_named("scatter_nd", data, indices)
    if updates.dtype is not data.dtype:
        raise DTypeError("scatter_nd", "updates", "dtype", updates.dtype.name, data.dtype.name, "cast them")
    if updates.shape != due:
        raise ShapeError("scatter_nd", "updates", "shape", updates.shape, due, "slice or expand them")
    return (dense(data.dtype, data.shape),)


def _rows_named(what: str, data: Fact, indices: Fact) -> SymbolicShape:
    """The shape of what indices name: their last axis has a column for each leading axis of data."""
    check_indices_dtype(what, indices)
    depth = indices.shape[-1] if indices.rank else None
    if depth is None or isinstance(depth, dim.Dim) or not 1 <= depth <= data.rank:
        raise ShapeError(what, "indices", "last extent", depth, f"1 to {data.rank}", "check the model")
    return (*indices.shape[:-1], *data.shape[depth:])


def _number(size: Size) -> int:
    """A size that no symbol is left in."""
    return dim.bind(size, {})


def _dims_reference(attributes: Dims, arrays: Sequence[Array]) -> tuple[Array, ...]:
    numbers = [_number(size) for size in attributes.sizes]
    for number in numbers:
        if not -(2**63) <= number < 2**63:
            raise ShapeError("dims", "a size", "", number, "an int64", "give smaller inputs")
    vector = np.array(numbers, np.int64)
    return (vector.reshape(()) if attributes.scalar else vector,)


def _range_reference(attributes: Range, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.arange(_number(attributes.count), dtype=np.int64) * attributes.step + _number(attributes.start),)


def check_indices(what: str, indices: Array, extents: int | Sequence[int]) -> None:
    """Raise ShapeError unless every index names something; `extents`: one for all, or one for each of the last axis."""
    limits = np.array(extents, np.int64)
    wrong = (indices < -limits) | (indices >= limits)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        extent = int(np.broadcast_to(limits, indices.shape)[place])
        raise ShapeError(what, "an index", "", int(indices[place]), f"in [{-extent}, {extent})", "use an existing one")


def _gather_reference(attributes: AxisGather, arrays: Sequence[Array]) -> tuple[Array, ...]:
    data, indices = arrays
    check_indices("gather", indices, data.shape[attributes.axis])
    return (np.take(data, indices, axis=attributes.axis),)


def _gather_nd_reference(attributes: GatherND, arrays: Sequence[Array]) -> tuple[Array, ...]:
    data, indices = arrays
    depth = indices.shape[-1]
    check_indices("gather_nd", indices, data.shape[:depth])
    return (data[tuple(np.moveaxis(indices, -1, 0))],)


def _scatter_nd_reference(attributes: ScatterND, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """One row of updates after the other."""
    data, indices, updates = arrays
    check_indices("scatter_nd", indices, data.shape[: indices.shape[-1]])
    found = np.array(data)
    for place in np.ndindex(*indices.shape[:-1]):
        found[tuple(int(i) for i in indices[place])] = updates[place]
    return (found,)


def _gather_axes(attributes: AxisGather, facts: Sequence[Fact]) -> Axes:
    """Axes of the indices stand where the gathered axis was."""
    (data, indices), axis = facts, attributes.axis
    behind = range(axis + indices.rank, data.rank - 1 + indices.rank)
    return Axes(((*range(axis), None, *behind), tuple(range(axis, axis + indices.rank))))


def _gather_nd_axes(attributes: GatherND, facts: Sequence[Fact]) -> Axes:
    """Axes of the indices but the last come first."""
    (data, indices), first = facts, facts[1].rank - 1
    depth = indices.shape[-1]
    assert isinstance(depth, int)  # a symbol is refused
    return Axes(((*[None] * depth, *range(first, first + data.rank - depth)), (*range(first), None)))


def _scatter_nd_axes(attributes: ScatterND, facts: Sequence[Fact]) -> Axes:
    """The leading axes are indexed; those behind them follow the axes of the result."""
    data, indices, _ = facts
    depth = indices.shape[-1]
    assert isinstance(depth, int)  # a symbol is refused
    behind = tuple(range(depth, data.rank))
    named, outer = (None,) * depth, (None,) * (indices.rank - 1)
    return Axes(((*named, *behind), (*outer, None), (*outer, *behind)))


def _plan_concat(attributes: Concat, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """A copy of each operand to its part of the output."""
    *inputs, (dtype, shape, strides) = views
    copied, step_bytes = single("copy", dtype), strides[attributes.axis] * dtype.element_bytes
    threads, start, steps = shared_by(views, target), 0, []
    for number, (_, part, own) in enumerate(inputs):
        if 0 not in part:
            plan = elementwise.plan(copied, ((part, own),), ((part, strides),), target.isa, threads)
            steps += [step.on(Operand(number), Operand(len(inputs), start * step_bytes)) for step in plan.steps]
        start += part[attributes.axis]
    names = (*[f"input {number}" for number in range(len(inputs))], "output 0")
    return Plan(f"concat {shape} along axis {attributes.axis}", target.isa, threads, tuple(steps), names)


def _plan_gather(attributes: AxisGather, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """The axes before the gathered one repeat, those after it are an element."""
    (dtype, shape, _), (_, indices, _), _ = views
    inner, extent = math.prod(shape[attributes.axis + 1 :]), shape[attributes.axis]
    outer = math.prod(shape[: attributes.axis])
    rows = RowGather(dtype, outer, extent * inner, math.prod(indices), inner, (extent,), (inner,))
    return gather.plan(rows, target.isa, shared_by(views[1:], target))


def _plan_gather_nd(attributes: GatherND, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """The last axis of the indices has one column for each leading axis of data."""
    (dtype, shape, _), (_, indices, _), _ = views
    *counts, depth = indices
    strides = dense_strides(shape)[:depth]
    rows = RowGather(dtype, 1, 0, math.prod(counts), math.prod(shape[depth:]), shape[:depth], strides)
    return gather.plan(rows, target.isa, shared_by(views[1:], target))


def _plan_scatter_nd(attributes: ScatterND, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """The last axis of the indices has one column for each leading axis of data."""
    (dtype, *_), (_, (*counts, depth), _), *_ = views
    data, out = views[0][1:], views[-1][1:]
    return scatter.plan(dtype, data, out, depth, math.prod(counts), target.isa, shared_by(views, target))


def _takes_named(attributes: ScatterND, views: Sequence[View]) -> list[Shape | None]:
    """Data as they lie; indices and updates whose elements lie side by side, in row-major order."""
    return [None, *_takes_dense(attributes, views[1:3])]


def _takes_dense(attributes: object, views: Sequence[View]) -> list[Shape | None]:
    """Data and indices whose elements lie side by side, in row-major order."""
    return [None if of_strides(shape, strides).is_dense else shape for _, shape, strides in views[:2]]


ROWS: tuple[Operation, ...] = (
    Operation(
        "dims",
        lambda attributes, facts: (dense(dtypes.int64, () if attributes.scalar else (len(attributes.sizes),)),),
        _dims_reference,
        lambda attributes, facts: Axes(reads=attributes.sizes),
    ),
    Operation(
        "range",
        lambda attributes, facts: (dense(dtypes.int64, (attributes.count,)),),
        _range_reference,
        lambda attributes, facts: Axes(reads=(attributes.start, attributes.count)),
    ),
    Operation(
        "concat",
        _infer_concat,
        lambda attributes, arrays: (np.concatenate(arrays, axis=attributes.axis),),
        along,
        plan=_plan_concat,
    ),
    Operation(
        "gather",
        _infer_gather,
        _gather_reference,
        _gather_axes,
        plan=_plan_gather,
        takes=_takes_dense,
        extents=lambda attributes, shapes: (shapes[0][attributes.axis],),
        picks=lambda attributes, indices: int(attributes.axis) + 1,
        any_order=False,
    ),
    Operation(
        "gather_nd",
        _infer_gather_nd,
        _gather_nd_reference,
        _gather_nd_axes,
        plan=_plan_gather_nd,
        takes=_takes_dense,
        extents=lambda attributes, shapes: shapes[0][: shapes[1][-1]],
        picks=lambda attributes, indices: indices[-1],
        any_order=False,
    ),
    Operation(
        "scatter_nd",
        _infer_scatter_nd,
        _scatter_nd_reference,
        _scatter_nd_axes,
        plan=_plan_scatter_nd,
        takes=_takes_named,
        extents=lambda attributes, shapes: shapes[0][: shapes[1][-1]],
        any_order=False,
    ),
)
