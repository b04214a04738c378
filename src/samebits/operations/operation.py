"""What an operation is: one frozen row, shared by eager calls, programs and every front end.

`infer` and `reference` give its meaning; a `view` or a `plan` says how it runs on operands that lie somewhere.
An operation with neither follows from sizes alone and is computed before a run. Start at `Operation`; `registry.ROWS`
lists them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import SamebitsError, ShapeError
from samebits.frozen import dataclass
from samebits.kernels.gemm.machine import Machine
from samebits.kernels.plan import SMALL, SMALL_AWAKE, Plan
from samebits.operations.axes import Axes
from samebits.operations.fact import Fact
from samebits.operations.strided import Strided

__all__ = [
    "Array",
    "Filling",
    "KeptConstant",
    "Known",
    "Operation",
    "PlanTarget",
    "Shape",
    "Source",
    "View",
    "outside",
    "shared_by",
]

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
View = tuple[DType, Shape, Shape]
"""How an operand lies: its element format, extents, and strides in elements."""


@dataclass(frozen=True, slots=True)
class PlanTarget:
    """What a plan is for: an Isa row, so many threads at most, what is fast where it will run, and whether it is one
    of a program's, whose workers are awake from one step to the next."""

    isa: Isa
    threads: int
    machine: Machine
    in_program: bool = False

    def sized(self, work: int, unit: str) -> int:
        """How many threads share this much work: one where a second would cost more than it gives."""
        return self.threads if work >= (SMALL_AWAKE if self.in_program else SMALL)[unit] else 1


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """An operation and the constants that it makes another of."""

    operation: str
    attributes: Any
    operands: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """An operand that is a constant, or a view of one.

    Attributes:
        shape: Its extents.
        values: Its values for who asks for them.
        source: What they follow from, where they are not in memory.
    """

    shape: Shape
    values: Callable[[], Array]
    source: Source | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """Memory that a plan fills: its operands are arrays, and then so many words of that format."""

    plan: Plan
    operands: tuple[Array, ...]
    size: int
    word: DType


@dataclass(frozen=True, slots=True)
class KeptConstant:
    """A constant operand in another form, which is made once and kept.

    Attributes:
        attributes: What the operation is asked for with it.
        index: Which operand it is.
        key: Names the form; two constants of the same bytes and key are alike.
        make: Makes it, in memory of `empty(count, dtype)`, by NumPy.
        filling: How kernels make it, of what is so large that this is worth compiling them; None where it is not.
        within: Which other constant operands it holds, so that the operation has them no more.
    """

    attributes: Any
    index: int
    key: Hashable
    make: Callable[[Callable[..., Array]], Array]
    filling: Callable[[], Filling] | None = None
    within: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
        name: As it is printed.
        infer: `(attributes, facts of the inputs)` to the facts of the outputs; refuses operands that do not fit.
        reference: `(attributes, arrays)` to the output arrays, by NumPy, independent of kernels.
        axes: `(attributes, facts of the inputs)` to what outputs depend on; None says nothing of it.
        view: `(attributes, where the only input lies, shape of the output)` to where the output lies, in the same
            memory; None where only a dense copy of the input has such a view.
        plan: `(attributes, views, target)` to a plan whose operands are the inputs, then two int64 where `extents` or
            `refuses` is given, then the outputs; `views` are those of the inputs, then of the outputs. Pure.
        takes: `(attributes, views)` to the shape, for each input, that it must be written out to as a dense copy first;
            None for one that is taken as it lies.
        extents: `(attributes, shapes of the inputs)` to what indices must be smaller than. Then the kernel sets the two
            int64 to (1, culprit) if an index is outside, or to (2 + its row-major place, culprit) where one task looks.
        refuses: `(attributes, shape of the first input, index)` to the error of an element that the operation refuses.
            Then there are two int64 as `extents` has them, which say (1, row-major index) of the first such element.
        packs: `(attributes, views, target)` to a plan that makes its one output, which is packed, of inputs that are
            not; None where they do not lie as it takes them. Views are of elements, the output's too.
        reads: `(attributes, views, numbers of inputs)` and a target to a plan that reads these inputs, of four bits, as
            they lie, two to a byte; None where they do not lie as it reads them. Views are of elements.
        picks: `(attributes, shape of the second input)` to how many leading axes of the first one indices pick along;
            the operation moves what lies behind them, and nothing else.
        keep: `(attributes, element formats of the inputs, those that are known, by number, target)` to a form that a
            constant is better kept in.
        asked: Attributes that hold sizes to what plans are asked for: the same without sizes, which views have.
        folds: Whether it is computed before a run where all that it reads is known.
        overwrites: Whether an output may lie where an input of the same layout does.
        any_order: Whether the axes of its outputs may lie in any order.
    """

    name: str
    infer: Callable[[Any, Sequence[Fact]], tuple[Fact, ...]]
    reference: Callable[[Any, Sequence[Array]], tuple[Array, ...]]
    axes: Callable[[Any, Sequence[Fact]], Axes] | None = None
    view: Callable[[Any, Strided, Shape], Strided | None] | None = None
    plan: Callable[[Any, tuple[View, ...], PlanTarget], Plan] | None = None
    takes: Callable[[Any, Sequence[View]], Sequence[Shape | None]] | None = None
    extents: Callable[[Any, Sequence[Shape]], Shape] | None = None
    refuses: Callable[[Any, Shape, int], SamebitsError] | None = None
    packs: Callable[[Any, tuple[View, ...], PlanTarget], Plan | None] | None = None
    reads: Callable[[Any, tuple[View, ...], tuple[int, ...], PlanTarget], Plan | None] | None = None
    picks: Callable[[Any, Shape], int] | None = None
    keep: Callable[[Any, Sequence[DType], Mapping[int, Known], PlanTarget], KeptConstant | None] | None = None
    asked: Callable[[Any], Any] | None = None
    folds: bool = True
    overwrites: bool = False
    any_order: bool = True

    def runs(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> bool:
        """Whether a plan has anything to do: it makes elements, or looks at indices, which are the second input."""
        return any(math.prod(shape) for shape in (*outputs, *(inputs[1:2] if self.extents else ())))

    @property
    def has_status(self) -> bool:
        """Whether plans have two int64 among their operands, in which kernels say what they refuse."""
        return self.extents is not None or self.refuses is not None


def outside(call: str, node: str, status: tuple[int, int], extents: Shape, indices: Shape) -> ShapeError:
    """The error of an index, by the two int64 of its kernel, what `extents` says, and the shape of the indices; `node`
    says of which node of a program it is."""
    operand, wanted = f"an index{node}", extents
    if status[0] > 1:
        place = [int(at) for at in np.unravel_index(status[0] - 2, indices)]
        operand, wanted = f"indices{place}{node}", (extents[place[-1] if len(extents) > 1 else 0],)
    expected = "in " + " and ".join(f"[{-extent}, {extent})" for extent in wanted)
    return ShapeError(call, operand, "", status[1], expected, "give indices that exist")


def shared_by(views: Sequence[tuple[DType, Shape, *tuple[object, ...]]], target: PlanTarget) -> int:
    """How many threads share work on these operands: one where a second would cost more than it gives."""
    return target.sized(max(math.prod(view[1]) for view in views), "elements")
