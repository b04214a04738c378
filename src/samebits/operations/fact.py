"""Facts: everything that is known of a value before it runs.

Start at `Fact`; `dense` is the common case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samebits.dtypes import DType
from samebits.errors import ShapeError, shown
from samebits.frozen import dataclass
from samebits.operations import dim
from samebits.operations.dim import SymbolicShape
from samebits.shapes import is_integer

__all__ = ["MOST_AXES", "Fact", "check_axis", "check_extents", "dense"]

# NumPy, in which every value has its meaning, broadcasts no more axes.
MOST_AXES = 32


@dataclass(frozen=True, slots=True)
class Fact:
    """One value's element format, its shape, and the order in which its axes lie in memory.

    Attributes:
        dtype: Its element format.
        shape: Extents; symbols where they are known only when it runs.
        stride_order: The axes from the one that varies slowest to the fastest.
    """

    dtype: DType
    shape: SymbolicShape
    stride_order: tuple[int, ...]

    @property
    def rank(self) -> int:
        """How many axes."""
        return len(self.shape)

    def bind(self, symbols: Mapping[str, int]) -> Fact:
        """This fact with every symbol replaced by its value."""
        return Fact(self.dtype, dim.bind_shape(self.shape, symbols), self.stride_order)

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


def check_axis(what: str, axis: int, rank: int) -> None:
    """Raise ShapeError unless a value of that rank has the axis, counted from the front."""
    if not is_integer(axis):
        raise ShapeError(what, "axis", "", shown(axis), "an integer", "give an existing one")
    if not 0 <= axis < rank:
        raise ShapeError(what, "axis", "", axis, f"within a rank of {rank}", "give an existing one")


def dense(dtype: DType, shape: Sequence[dim.Size]) -> Fact:
    """Elements side by side in row-major order."""
    return Fact(dtype, tuple(shape), tuple(range(len(shape))))
