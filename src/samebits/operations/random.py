"""The operation `random`: numbers drawn for every place of a shape, by a seed and an offset that are operands.

It reads two numbers, the seed and the offset; its shape is an attribute, as nothing that it reads has one. What maps
make of each number can be a part of it: then it reads their other operands too. It is never computed ahead of a run:
what it makes is large, and what it reads is not. Start at `Drawn`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from samebits.dtypes import uint64
from samebits.errors import DTypeError, ShapeError
from samebits.frozen import dataclass
from samebits.kernels import random, values
from samebits.kernels.expression import Expression
from samebits.kernels.plan import Plan
from samebits.kernels.random import Random
from samebits.operations import dim, elementwise
from samebits.operations.axes import Axes, aligned
from samebits.operations.dim import SymbolicShape
from samebits.operations.elementwise import check_dtypes
from samebits.operations.fact import Fact, dense
from samebits.operations.operation import Array, Operation, PlanTarget, View, shared_by

__all__ = ["ROWS", "Drawn"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Which numbers, and of which shape.

    Attributes:
        random: The numbers.
        shape: Theirs, and that of all results.
        after: What becomes of each, its first input; None of the numbers themselves.
    """

    random: Random
    shape: SymbolicShape = ()
    after: Expression | None = None

    def bind(self, symbols: Mapping[str, int]) -> Drawn:
        """Symbols replaced by their values."""
        return Drawn(self.random, dim.bind_shape(self.shape, symbols), self.after)

    def __str__(self) -> str:
        made = f"{self.random.distribution} {self.random.dtype.name} {list(self.shape)}"
        return made if self.after is None else f"{made}, of x0: {elementwise.text(self.after)}"


def _infer(attributes: Drawn, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    dtype = attributes.random.dtype
    if dtype not in random.FORMATS:
        expected = " or ".join(row.name for row in random.FORMATS)
        raise DTypeError("random", "dtype", "", dtype.name, expected, "make float32, and cast it")
    after = attributes.after
    check_dtypes("random", (dtype, dtype, uint64, uint64, *(after.inputs[1:] if after else ())), facts)
    for fact in facts[:4]:
        if fact.shape:
            raise ShapeError("random", "an operand", "shape", fact.shape, "()", "give numbers, and the shape apart")
    if after is None:
        return (dense(dtype, attributes.shape),)
    shapes = [fact.shape for fact in facts[4:]]
    if dim.broadcast_shapes([attributes.shape, *shapes]) != attributes.shape:
        expected = f"shapes that broadcast to {attributes.shape}"
        raise ShapeError("random", "operands", "shapes", shapes, expected, "compute with them apart")
    return tuple(dense(after.dtype(output), attributes.shape) for output in after.outputs)


def _reference(attributes: Drawn, arrays: Sequence[Array]) -> tuple[Array, ...]:
    first, second, seed, offset, *others = arrays
    shape = dim.bind_shape(attributes.shape, {})
    made = random.reference(attributes.random, shape, first, second, int(seed), int(offset))
    if attributes.after is None:
        return (made,)
    found = values.reference(attributes.after, (made, *others))
    return tuple([np.array(np.broadcast_to(x, shape)) for x in found])


def _axes(attributes: Drawn, facts: Sequence[Fact]) -> Axes:
    """What is drawn depends on the place along every axis, so on how many places there are."""
    return Axes((*((),) * 4, *aligned(facts[4:], len(attributes.shape))), reads=attributes.shape)


def _plan(attributes: Drawn, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """One kernel, which finds the shape where its result lies."""
    after, layouts = attributes.after, tuple([view[1:] for view in views[4:]])
    read = 0 if after is None else len(after.inputs) - 1
    others = (*layouts[:read], *layouts[read + 1 :])
    return random.plan(attributes.random, layouts[read], target.isa, shared_by(views, target), after, others)


ROWS: tuple[Operation, ...] = (
    Operation(
        "random",
        _infer,
        _reference,
        _axes,
        plan=_plan,
        asked=lambda attributes: Drawn(attributes.random, (), attributes.after),
        folds=False,
        any_order=False,
    ),
)
