"""Primitives that place elements: concat, gather, gather_nd; and the values that only shapes decide: dims, range, fill.

Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import ShapeError
from samebits.program import dim, lower_moves
from samebits.program.dim import Size, SymbolicShape
from samebits.program.fact import Fact, dense
from samebits.program.graph import Array
from samebits.program.primitive import Primitive
from samebits.program.views import text

__all__ = ["ROWS", "AxisGather", "Concat", "Dims", "Fill", "GatherND", "Range"]


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
class Fill:
    """One element, by its bits, everywhere."""

    shape: SymbolicShape
    code: int
    dtype: DType

    def bind(self, symbols: Mapping[str, int]) -> Fill:
        """Symbols replaced by their values."""
        return Fill(dim.bind_shape(self.shape, symbols), self.code, self.dtype)

    def element(self) -> Array:
        """The element, as an array of no axes."""
        assert self.dtype.numpy is not None  # fills come from arrays
        return np.array(self.code, np.uint64).astype(f"u{self.dtype.size_bytes}").view(self.dtype.numpy)

    def __str__(self) -> str:
        return f"{text(self.shape)}, {self.dtype.decode(self.code)}"


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


def _infer_concat(description: Concat, names: Sequence[str], facts: Sequence[Fact]) -> tuple[Fact, ...]:
    first, axis = facts[0], description.axis
    for fact in facts[1:]:
        pairs = [pair for i, pair in enumerate(zip(fact.shape, first.shape, strict=False)) if i != axis]
        clash = any(dim.are_known(x, y) and x != y for x, y in pairs)
        if fact.rank != first.rank or fact.dtype is not first.dtype or clash:
            raise ShapeError("concat", "operands", "", f"{first} and {fact}", "alike", "cast or reshape one")
    total: Size = 0
    for fact in facts:
        total = total + fact.shape[axis]
    return (dense(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _infer_gather(description: AxisGather, names: Sequence[str], facts: Sequence[Fact]) -> tuple[Fact, ...]:
    data, indices = facts
    axis = description.axis
    return (dense(data.dtype, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])),)


def _infer_gather_nd(description: GatherND, names: Sequence[str], facts: Sequence[Fact]) -> tuple[Fact, ...]:
    data, indices = facts
    depth = indices.shape[-1] if indices.rank else None
    if depth is None or isinstance(depth, dim.Dim) or not 1 <= depth <= data.rank:
        raise ShapeError("gather_nd", "indices", "last extent", depth, f"1 to {data.rank}", "check the model")
    return (dense(data.dtype, (*indices.shape[:-1], *data.shape[depth:])),)


def _fill_reference(description: Fill, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.broadcast_to(description.element(), tuple(dim_number(size) for size in description.shape)),)


def dim_number(size: Size) -> int:
    """A size that no symbol is left in."""
    return dim.bind(size, {})


def _dims_reference(description: Dims, arrays: Sequence[Array]) -> tuple[Array, ...]:
    numbers = [dim_number(size) for size in description.sizes]
    for number in numbers:
        if not -(2**63) <= number < 2**63:
            raise ShapeError("dims", "a size", "", number, "an int64", "give smaller inputs")
    vector = np.array(numbers, np.int64)
    return (vector.reshape(()) if description.scalar else vector,)


def _range_reference(description: Range, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (
        np.arange(dim_number(description.count), dtype=np.int64) * description.step + dim_number(description.start),
    )


def _check_indices(what: str, indices: Array, extents: int | Sequence[int]) -> None:
    limits = np.array(extents, np.int64)
    wrong = (indices < -limits) | (indices >= limits)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        extent = int(np.broadcast_to(limits, indices.shape)[place])
        raise ShapeError(what, "an index", "", int(indices[place]), f"in [{-extent}, {extent})", "use an existing one")


def _gather_reference(description: AxisGather, arrays: Sequence[Array]) -> tuple[Array, ...]:
    data, indices = arrays
    _check_indices("gather", indices, data.shape[description.axis])
    return (np.take(data, indices, axis=description.axis),)


def _gather_nd_reference(description: GatherND, arrays: Sequence[Array]) -> tuple[Array, ...]:
    data, indices = arrays
    depth = indices.shape[-1]
    _check_indices("gather_nd", indices, data.shape[:depth])
    return (data[tuple(np.moveaxis(indices, -1, 0))],)


ROWS: tuple[Primitive, ...] = (
    Primitive(
        "dims",
        lambda d, names, facts: (dense(dtypes.int64, () if d.scalar else (len(d.sizes),)),),
        _dims_reference,
        lower_moves.lower_constant,
    ),
    Primitive(
        "range",
        lambda d, names, facts: (dense(dtypes.int64, (d.count,)),),
        _range_reference,
        lower_moves.lower_range,
    ),
    Primitive("fill", lambda d, names, facts: (dense(d.dtype, d.shape),), _fill_reference, lower_moves.lower_fill),
    Primitive(
        "concat", _infer_concat, lambda d, arrays: (np.concatenate(arrays, axis=d.axis),), lower_moves.lower_concat
    ),
    Primitive("gather", _infer_gather, _gather_reference, lower_moves.lower_gather),
    Primitive("gather_nd", _infer_gather_nd, _gather_nd_reference, lower_moves.lower_gather_nd),
)
