"""The operation `random`: numbers drawn for every place of a shape, by a seed and an offset that are operands.

It reads two numbers, the seed and the offset; its shape is an attribute, as nothing that it reads has one. It is never
computed ahead of a run: what it makes is large, and what it reads is not. Start at `Drawn`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samebits.dtypes import uint64
from samebits.errors import DTypeError, ShapeError
from samebits.frozen import dataclass
from samebits.kernels import random
from samebits.kernels.plan import Plan
from samebits.kernels.random import Random
from samebits.operations import dim
from samebits.operations.axes import Axes
from samebits.operations.dim import SymbolicShape
from samebits.operations.elementwise import check_dtypes
from samebits.operations.fact import Fact, dense
from samebits.operations.operation import Array, Operation, PlanTarget, View, shared_by

__all__ = ["ROWS", "Drawn"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Which numbers, and of which shape."""

    random: Random
    shape: SymbolicShape = ()

    def bind(self, symbols: Mapping[str, int]) -> Drawn:
        """Symbols replaced by their values."""
        return Drawn(self.random, dim.bind_shape(self.shape, symbols))

    def __str__(self) -> str:
        return f"{self.random.distribution} {self.random.dtype.name} {list(self.shape)}"


def _infer(attributes: Drawn, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    dtype = attributes.random.dtype
    if dtype not in random.FORMATS:
        expected = " or ".join(row.name for row in random.FORMATS)
        raise DTypeError("random", "dtype", "", dtype.name, expected, "make float32, and cast it")
    check_dtypes("random", (dtype, dtype, uint64, uint64), facts)
    for fact in facts:
        if fact.shape:
            raise ShapeError("random", "an operand", "shape", fact.shape, "()", "give numbers, and the shape apart")
    return (dense(dtype, attributes.shape),)


def _reference(attributes: Drawn, arrays: Sequence[Array]) -> tuple[Array, ...]:
    first, second, seed, offset = arrays
    shape = dim.bind_shape(attributes.shape, {})
    return (random.reference(attributes.random, shape, first, second, int(seed), int(offset)),)


def _axes(attributes: Drawn, facts: Sequence[Fact]) -> Axes:
    """What is drawn depends on the place along every axis, so on how many places there are."""
    return Axes(((),) * len(facts), reads=attributes.shape)


def _plan(attributes: Drawn, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """One kernel, which finds the shape where its result lies."""
    return random.plan(attributes.random, views[-1][1:], target.isa, shared_by(views, target))


ROWS: tuple[Operation, ...] = (
    Operation(
        "random",
        _infer,
        _reference,
        _axes,
        plan=_plan,
        asked=lambda attributes: Drawn(attributes.random),
        folds=False,
        any_order=False,
    ),
)
