"""What the functions look at before torch's dispatcher does, whose own refusals are not one sentence."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from samebits.errors import DTypeError, LayoutError, OptionError, shown
from samebits.ops.call import WITHIN_FLOAT64

__all__ = ["are_tensors", "check_tensors", "eagerly", "listed", "number"]


_PLAIN = frozenset((Tensor, Parameter))
P = ParamSpec("P")
R = TypeVar("R")


def eagerly(call: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator of what writes into tensors by calls that torch has no operators of: compiled functions break off
    before it and go on behind it, and those that must be one graph are told so."""
    remedy = f"call {call} outside of the compiled function"
    return torch.compiler.disable(reason=f"{call}: fullgraph is True, must be False around it; {remedy}")  # type: ignore[no-any-return]


def are_tensors(*operands: object) -> bool:
    """Whether operands are of torch's own types: what a call whose rank is looked at asks before `check_tensors`, in a
    third of its time. Operators ask themselves."""
    return _PLAIN.issuperset(map(type, operands))


def check_tensors(call: str, **operands: object) -> None:
    """Raise unless every operand is one tensor.

    Raises:  DTypeError; LayoutError for one that is several tensors nested.
    """
    for name, x in operands.items():
        if not isinstance(x, Tensor):
            raise DTypeError(call, name, "type", type(x).__name__, "a torch.Tensor", "convert it first")
        if x.is_nested:
            actual, remedy = "that of a nested tensor", "call its to_padded_tensor(0.0) first"
            raise LayoutError(call, name, "layout", actual, "torch.strided", remedy)


def listed(call: str, name: str, tensors: Iterable[Tensor]) -> list[Tensor]:
    """Several tensors, such as a module's parameters, as a list.

    Raises:  DTypeError if one of them is none, or if they are not several.
    """
    if isinstance(tensors, Tensor) or not isinstance(tensors, Iterable):
        actual, remedy = type(tensors).__name__, "put it into a list"
        raise DTypeError(call, name, "type", actual, "several tensors", remedy)
    found = list(tensors)
    for i, x in enumerate(found):
        check_tensors(call, **{f"{name}[{i}]": x})
    return found


def number(call: str, name: str, value: object) -> float:
    """value as a float.

    Raises:  OptionError if it is no real number, or beyond float64.
    """
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise OptionError(call, name, "", shown(value), "a number", "pass a float")
    try:
        return float(value)
    except OverflowError:
        remedy = "pass float('inf') for more"
        raise OptionError(call, name, "", "beyond float64", WITHIN_FLOAT64, remedy) from None
