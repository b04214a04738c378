"""Facts: everything a program knows of a value before it runs.

Start at `Fact`; `dense` is the common case, and `view` derives the fact of a value that shares another's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from samebits.dtypes import DType
from samebits.errors import ShapeError
from samebits.program import dim
from samebits.program.dim import SymbolicShape

__all__ = ["MOST_AXES", "Fact", "check_extents", "dense"]

# NumPy, in which every value has its meaning, broadcasts no more axes.
MOST_AXES = 32


@dataclass(frozen=True, slots=True)
class Fact:
    """One value's element format, shape, and how it lies in memory.

    Attributes:
        dtype: Its element format.
        shape: Extents; symbols where they are known only when it runs.
        stride_order: The axes from the one that varies slowest to the fastest.
        contiguity: For each axis, whether its stride is the span of the axes after it in `stride_order`.
        device: Where it lives.
        block_format: The name of its block format, None where elements stand for themselves.
        alias: The value whose memory this one views, None where it has its own.
    """

    dtype: DType
    shape: SymbolicShape
    stride_order: tuple[int, ...]
    contiguity: tuple[bool, ...]
    device: str = "cpu"
    block_format: str | None = None
    alias: str | None = None

    @property
    def rank(self) -> int:
        """How many axes."""
        return len(self.shape)

    def bind(self, symbols: Mapping[str, int]) -> Fact:
        """This fact with every symbol replaced by its value."""
        shape = dim.bind_shape(self.shape, symbols)
        return Fact(self.dtype, shape, self.stride_order, self.contiguity, self.device, self.block_format, self.alias)

    def view(self, shape: Sequence[dim.Size], of: str, order: Sequence[int] | None = None, dense: bool = True) -> Fact:
        """The fact of a view of `of`; without `order` the axes lie as they are written."""
        axes = tuple(range(len(shape))) if order is None else tuple(order)
        contiguity = (dense,) * len(shape)
        return Fact(self.dtype, tuple(shape), axes, contiguity, self.device, self.block_format, of)

    def __str__(self) -> str:
        text = f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"
        if self.stride_order != tuple(range(self.rank)):
            text += f" order {''.join(map(str, self.stride_order))}"
        return text


def check_extents(what: str, facts: Sequence[Fact]) -> None:
    """Raise ShapeError if an extent is a negative number, or there are too many."""
    for fact in facts:
        if fact.rank > MOST_AXES:
            raise ShapeError(what, "its result", "rank", fact.rank, f"at most {MOST_AXES}", "join axes")
        if any(not isinstance(size, dim.Dim) and size < 0 for size in fact.shape):
            raise ShapeError(what, "its result", "", fact, "without negative extents", "check the shapes")


def dense(dtype: DType, shape: Sequence[dim.Size]) -> Fact:
    """Elements side by side in row-major order, in memory of their own."""
    return Fact(dtype, tuple(shape), tuple(range(len(shape))), (True,) * len(shape))
