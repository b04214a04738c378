"""Conversions that depend on where an element is: `stochastic_cast` and `checked_cast`.

Every other conversion is a `cast` of `map`, which fuses with what is around it. These two never do: a fused expression
knows no index of the operand. Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samebits import philox
from samebits.conversions import Conversion
from samebits.dtypes import DType, uint64
from samebits.errors import DTypeError, SamebitsError
from samebits.frozen import dataclass
from samebits.kernels import placed
from samebits.kernels.functions import exact
from samebits.kernels.placed import Placed
from samebits.kernels.plan import Plan
from samebits.operations.axes import Axes, aligned
from samebits.operations.elementwise import check_dtypes
from samebits.operations.fact import Fact, dense
from samebits.operations.operation import Array, Operation, PlanTarget, Shape, View, shared_by

__all__ = ["ROWS", "Converted"]


@dataclass(frozen=True, slots=True)
class Converted:
    """To what, and how."""

    source: DType
    target: DType
    conversion: Conversion

    @property
    def operation(self) -> str:
        """The row that it is an attribute of."""
        return "checked_cast" if self.conversion.overflow == "error" else "stochastic_cast"

    @property
    def placed(self) -> Placed:
        """As the kernels have it."""
        return Placed(self.source, self.target, self.conversion)

    def __str__(self) -> str:
        return f"{self.target.name}, {self.conversion.rounding_to(self.target)}, {self.conversion.overflow}"


def _infer(attributes: Converted, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    seed = (uint64,) if attributes.placed.is_drawn else ()
    check_dtypes("cast", (attributes.source, *seed), facts)
    return (dense(attributes.target, facts[0].shape),)


def _words(attributes: Converted, arrays: Sequence[Array]) -> Array | None:
    """The random words of the elements, by their row-major indices."""
    if not attributes.placed.is_drawn:
        return None
    index = np.arange(arrays[0].size, dtype=np.uint64)
    return philox.words(int(arrays[1]), index).reshape(arrays[0].shape)


def _reference(attributes: Converted, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, words = arrays[0], _words(attributes, arrays)
    with np.errstate(all="ignore"):
        if attributes.placed.is_checked:
            wrong = np.flatnonzero(exact.misfits(attributes.target, x, attributes.conversion, words))
            if wrong.size:
                raise _refusal(attributes, x.shape, int(wrong[0]))
        return (exact.cast(attributes.target, x, attributes.conversion, words),)


def _refusal(attributes: Converted, shape: Shape, index: int) -> SamebitsError:
    """That an element does not fit."""
    place = tuple([int(i) for i in np.unravel_index(index, shape)])
    target = attributes.target
    what = f"element {place[0] if len(place) == 1 else place}"
    expected = f"a number within [{target.min}, {target.max}]"
    remedy = "pass overflow='saturate' or 'ieee', or say by nan= and inf= what those become"
    return DTypeError("cast", "x", what, f"nothing that {target.name} has a value for", expected, remedy)


def _axes(attributes: Converted, facts: Sequence[Fact]) -> Axes:
    """What is drawn depends on the place along every axis, so that none can be said to be followed."""
    rank = facts[0].rank
    if attributes.placed.is_drawn:
        return Axes(((None,) * rank, ()))
    return Axes(aligned(facts[:1], rank))


def _plan(attributes: Converted, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """One kernel over x and the result."""
    threads = shared_by((views[0], views[-1]), target)
    return placed.plan(attributes.placed, views[0][1:], views[-1][1:], target.isa, threads)


ROWS: tuple[Operation, ...] = (
    Operation("stochastic_cast", _infer, _reference, _axes, plan=_plan, any_order=False),
    Operation("checked_cast", _infer, _reference, _axes, plan=_plan, refuses=_refusal, any_order=False),
)
