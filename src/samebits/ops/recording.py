"""An eager call recorded: made on arrays whose sizes are numbers of a tape, and that have no elements.

The public function runs as it is written, with tensors that stand in for its arrays, and its `Call` asks a `Recording`
in the stead of memory. What it decides by sizes is written down, and what it would have run is a plan on the tape. A
function that needs a number itself, or an element, ends with an exception. Start at `recorded`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from samebits.dtypes import DType
from samebits.kernels.plan import Plan
from samebits.kinds import ArrayKind
from samebits.layout import Layout, Shape
from samebits.layout.recorded import RecordedLayout, dense
from samebits.memory import Buffer
from samebits.native.table import RESULT, CallPlace
from samebits.ops.recipe import CallOperand, Prepared, alignment, places_of
from samebits.shapes import INTEGERS
from samebits.tensor import Tensor

__all__ = ["RecordedCall", "Recording", "asked", "is_stand_in", "recorded", "stand_in"]


class Numbering(Protocol):
    """Who tells arrays apart by the numbers that they have among the arguments of a call."""

    def number(self, x: object) -> int | None: ...


class _Asked(threading.local):
    """Who asks for the call that is about to be made, for its `Call` to pick up, and what that kept with its result."""

    by: Numbering | None = None
    kept: tuple[Any, ArrayKind, Any] | None = None
    # What emitted code knew of calls that a function made for which `as_one` asks: each with its result.
    recalls: list[tuple[Any, Any, Any, Any]] | None = None


asked = _Asked()


class RecordedCall(NamedTuple):
    """What a call runs, on a tape.

    Attributes:
        plan: Its plan.
        places: Of the plan's operands.
        misaligned: Bits that no address may have.
        shape, dtype: Those of its result, which is new.
    """

    plan: Plan
    places: list[CallPlace]
    misaligned: int
    shape: Shape
    dtype: DType


class Recording:
    """A call on stand-ins.

    Attributes:
        kind: That of its result.
        arrays: The stand-ins, in the order in which the arrays came.
        found: What it runs, once that is known.
    """

    def __init__(self, kind: ArrayKind, arrays: Sequence[Tensor]) -> None:
        self.kind, self.arrays = kind, arrays
        self.found: RecordedCall | None = None

    def number(self, x: object) -> int | None:
        """Which of the arrays x is."""
        return next((number for number, array in enumerate(self.arrays) if array is x), None)

    def output(self, shape: Sequence[int], dtype: DType) -> CallOperand:
        """What stands in for a new result."""
        return CallOperand(stand_in(tuple(shape), None, dtype), RESULT)

    def finish(self, ran: Sequence[tuple[Prepared, tuple[CallOperand, ...]]], made: CallOperand) -> None:
        """Note what the call ran for its result, if that is one plan on its arrays."""
        if len(ran) != 1 or made.number != RESULT or made.dtype.numpy is None or made.dtype.width_bits < 8:
            return
        ((prepared, operands),) = ran
        places = places_of(operands, {RESULT: made.start})
        if places is not None:
            misaligned, shape = alignment(operands) - 1, made.tensor.layout.shape
            self.found = RecordedCall(prepared.plan, places, misaligned, shape, made.dtype)


@functools.cache
def _nowhere() -> Buffer:
    """The memory of stand-ins, of which every use is refused."""
    buffer = Tensor.empty(()).buffer
    buffer.close()
    return buffer


def stand_in(shape: Shape, strides_bits: Shape | None, dtype: DType) -> Tensor:
    """A tensor that says how an array lies, and has no elements; dense if no strides are given."""
    if strides_bits is None:
        layout = dense(shape, width_bits=dtype.width_bits)
    elif {*map(type, (*shape, *strides_bits))} <= INTEGERS:
        layout = Layout(shape, strides_bits, 0, dtype.width_bits)
    else:
        layout = RecordedLayout.of(shape, strides_bits, 0, dtype.width_bits)
    return Tensor._trusted(_nowhere(), layout, dtype)


def is_stand_in(x: object) -> bool:
    """Whether it stands in for an array of a call that is being recorded."""
    return type(x) is Tensor and x.buffer is _nowhere()


def recorded(
    function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], kind: ArrayKind,
    arrays: Sequence[Tensor],
) -> RecordedCall | None:  # fmt: skip
    """What a call runs whose arrays these are; None where it is no one plan.

    Raises:  whatever the function raises where it needs more than stand-ins tell.
    """
    recording = asked.by = Recording(kind, arrays)
    try:
        function(*arguments, **options)
    finally:
        asked.by = None
    return recording.found
