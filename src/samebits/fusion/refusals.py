"""What other rooms refuse while a fusion is made into a program or runs, as errors of fusions.

Start at `refused`.
"""

from __future__ import annotations

from samebits.errors import (
    ClosedError,
    DeviceError,
    DTypeError,
    ExchangeError,
    FusionError,
    FusionTypeError,
    LayoutError,
    OptionError,
    PlanError,
    SamebitsError,
    ShapeError,
)

__all__ = ["REFUSALS", "refused"]

# What is raised of operands; FusionTypeError is one of them, and stays what it is.
REFUSALS = (ClosedError, DTypeError, DeviceError, ExchangeError, LayoutError, OptionError, PlanError, ShapeError)


def refused(call: str, error: SamebitsError, operand: str = "") -> FusionError:
    """The error of a fusion with another's facts: a FusionTypeError of formats, else a FusionError.

    Args:    call: what the user called.   operand: its name there; as the error has it where it is left out.
    """
    if isinstance(error, FusionError):
        return error
    kind = FusionTypeError if isinstance(error, DTypeError) else FusionError
    node = error.call.partition(": ")[2]  # which a run says of the node at fault
    return kind(
        f"{call}: {node}" if node else call,
        operand or error.operand,
        error.fact,
        error.actual,
        error.expected,
        error.remedy,
    )
