"""Arithmetic on extents: constants fold as they are written, all else becomes operations on scalars.

Start at `sequence`, which takes what users give for a shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from samebits.errors import FusionError, FusionTypeError
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Fusion, Scalar, TensorView, Val, integer

__all__ = ["add", "clamp", "counted", "indices", "listed", "product", "quotient", "sequence", "subtract"]

_FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "minimum": min,
    "maximum": max,
    "div": lambda x, y: x // y,
}
# What leaves the other operand as it is, standing second.
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "div": 1}


def _applied(op: str, x: Scalar, y: Scalar) -> Scalar:
    fusion = x.fusion
    x, y = fusion.root(x), fusion.root(y)
    if x.value is not None and y.value is not None:
        return fusion.constant(_FOLDED[op](int(x.value), int(y.value)))
    if y.value is not None and y.value == _NEUTRAL.get(op):
        return x
    if op in ("minimum", "maximum") and x is y:
        return x
    return fusion.scalar(fusion.record(op, [x, y]), DataType.Int)


def add(x: Scalar, y: Scalar) -> Scalar:
    """x + y."""
    return _applied("add", y, x) if x.value == 0 else _applied("add", x, y)


def subtract(x: Scalar, y: Scalar) -> Scalar:
    """x - y."""
    fusion = x.fusion
    return fusion.constant(0) if fusion.root(x) is fusion.root(y) else _applied("sub", x, y)


def product(fusion: Fusion, sizes: Iterable[Scalar]) -> Scalar:
    """All of them multiplied; 1 of none."""
    return functools.reduce(lambda x, y: y if x.value == 1 else _applied("mul", x, y), sizes, fusion.constant(1))


def quotient(x: Scalar, y: Scalar) -> Scalar:
    """x / y, which leaves nothing."""
    return _applied("div", x, y)


def clamp(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """x, no less than `low` and no more than `high`."""
    return _applied("maximum", _applied("minimum", x, high), low)


def listed(call: str, what: str, given: object, expected: str = "a list", remedy: str = "write one") -> list[Any]:
    """A list that a user gives.

    Raises:  FusionTypeError if it is none.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise FusionTypeError(call, what, "", type(given).__name__, expected, remedy)
    return list(given)


def sequence(call: str, fusion: Fusion, given: object, *, least: int = -1) -> list[Scalar]:
    """Integers and scalars that a user lists as sizes.

    Raises:  FusionError if it is no list of them, or an integer is below `least`.
    """
    found: list[Scalar] = []
    expected, remedy = "a list of integers and scalars", "write one, such as [2, -1]"
    for place, each in enumerate(listed(call, "sizes", given, expected, remedy)):
        if isinstance(each, Scalar):
            found.append(each)
            continue
        number = integer(call, f"size {place}", each)
        if number < least:
            expected = "symbolic (-1), " * (least < 0) + "zero (0), broadcast (1) or static (more than 1)"
            raise FusionError(call, f"size {place}", "", number, expected, "give another size")
        found.append(fusion.constant(number))
    return found


def counted(call: str, given: Sequence[object], expected: int, what: str) -> None:
    """Raise FusionError unless there are so many."""
    if len(given) != expected:
        raise FusionError(call, what, "count", len(given), f"{expected}, one for each axis", "give all of them")


def indices(call: str, x: TensorView, given: object) -> list[int]:
    """Axes that a user names, one or several, from the front and sorted.

    Raises:  FusionError if there is no such axis, or one is named twice.
    """
    named = list(given) if isinstance(given, Iterable) else [given]
    found = [x.fusion.axis(call, x, each) for each in named]
    if len(set(found)) != len(found):
        raise FusionError(call, "dims", "", named, "different axes", "name each once")
    return sorted(found)


def number(call: str, operand: str, x: object) -> TensorView:
    """An operand that must be a tensor of one number of format Float, without axes.

    Raises:  FusionError if it is another tensor, a FusionTypeError if it is none.
    """
    found = tensor(call, operand, x)
    if found.ndim or found.dtype is not DataType.Float:
        kind = f"{found.dtype} of rank {found.ndim}"
        raise FusionError(call, operand, "", kind, "DataType.Float of rank 0", "cast it, and squeeze it")
    return found


def tensor(call: str, operand: str, x: object) -> TensorView:
    """An operand that must be a tensor.

    Raises:  FusionError if it is none.
    """
    if isinstance(x, TensorView):
        return x
    given = "a scalar" if isinstance(x, Val) else type(x).__name__
    raise FusionTypeError(call, operand, "", given, "a tensor of the fusion", "define it by define_tensor")
