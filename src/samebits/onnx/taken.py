"""Axes of which each element of the result takes a few of the input at known places, as Resize and Pad have them.

Start at `taken`.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits.frozen import dataclass
from samebits.operations.fact import Fact
from samebits.operations.operation import Array
from samebits.operations.resampling import Resample
from samebits.program.builder import ProgramBuilder

__all__ = ["TakenAxis", "taken"]

# Places that one operation has of rows and columns: each is written out in its kernel.
_MOST_AT_ONCE = 8


@dataclass(frozen=True, slots=True, eq=False)
class TakenAxis:
    """One axis of the result.

    Attributes:
        at: Which it is.
        places: Of each of its elements the places in the input, [places, elements].
        weights: What is there is multiplied by them before it is summed up; None where it is the one that is there.
    """

    at: int
    places: Array
    weights: Array | None = None


def taken(b: ProgramBuilder, x: str, axes: Sequence[TakenAxis]) -> str:
    """One axis after the other; the last one, or the last two, by an operation of their own where it serves."""
    images = _images(b.facts[x], axes)
    for axis in axes if images is None else axes[: -1 - images[0].by_rows]:
        x = _one(b, x, axis)
    return x if images is None else b.add("resample", (x, *map(b.constant, images[1])), images[0])[0]


def _images(x: Fact, axes: Sequence[TakenAxis]) -> tuple[Resample, list[Array]] | None:
    """What columns, or rows and columns, are resampled by; None where that operation does not serve."""
    if not axes or x.rank < 2 or axes[-1].at != x.rank - 1 or x.dtype.width_bits != 32:
        return None
    by_rows = len(axes) > 1 and axes[-2].at == x.rank - 2
    of_each = [(axis.places, axis.weights) for axis in axes[-1 - by_rows :]]
    if not axes[-1].places.size or any(len(places) > _MOST_AT_ONCE for places, _ in of_each):
        return None
    return Resample.of(of_each[-1], of_each[0] if by_rows else None)


def _one(b: ProgramBuilder, x: str, axis: TakenAxis) -> str:
    """The sum of what lies at the places, each by its weight, ascending, by fma after the first."""
    if axis.weights is None:
        return b.gather(x, b.constant(axis.places[0]), axis.at)
    total, behind = "", (axis.places.shape[1], *[1] * (b.facts[x].rank - axis.at - 1))
    for at, weight in zip(axis.places, axis.weights, strict=True):
        part, by = b.gather(x, b.constant(at), axis.at), b.constant(weight.reshape(behind))
        total = b.apply("fma", part, by, total) if total else b.apply("mul", part, by)
    return total
