"""Shapes, axes and indices as callers write them, checked once and made plain ints.

Anything with `__index__` counts as an integer; floats, and bools, which Python calls integers, do not. Every function
takes the name of the public call and of the argument, for its message.
"""

import math
import numbers
import operator
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import SupportsIndex, TypeGuard, cast

from samebits.errors import LayoutError, OptionError, OutOfRangeError, shown

__all__ = [
    "INTEGERS",
    "LIMIT",
    "MAX_RANK",
    "broadcast_extents",
    "check_axes",
    "check_extents",
    "check_flag",
    "check_index",
    "check_integers",
    "check_permutation",
    "check_seed",
    "check_size",
    "check_type",
    "check_word",
    "is_integer",
]

# NumPy's limit and cuda.core's; DLPack has none.
MAX_RANK = 64
# Sizes, strides and spans in bits stay within int64, so native code needs no wider arithmetic.
LIMIT = 1 << 63
# The types of plain integers, for the quickest check that a tuple holds nothing else.
INTEGERS = {int}


def check_integers(call: str, name: str, values: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """The values as ints; floats, bools and anything else without __index__ are refused."""
    if type(values) is tuple and {*map(type, values)} == INTEGERS:
        return values
    try:
        items = tuple(values)
    except TypeError:
        raise LayoutError(call, name, "", shown(values), "a tuple of integers", "write it as a tuple") from None
    try:
        if bool not in map(type, items):
            return tuple(map(operator.index, items))
    except TypeError:
        pass
    raise LayoutError(call, name, "", shown(items), "a tuple of integers", "convert it first")


def check_extents(call: str, name: str, values: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """The values as extents: not negative, at most MAX_RANK of them, fewer than 2**63 elements in all.

    Where one is 0, the others make fewer than 2**57, so that dense strides are within int64 for up to 64 bits.
    """
    shape = check_integers(call, name, values)
    if len(shape) > MAX_RANK:
        raise LayoutError(call, name, "length", len(shape), f"at most {MAX_RANK}", "merge axes")
    if shape and min(shape) < 0:
        raise LayoutError(call, name, "", shape, "extents of at least 0", "count elements")
    size = math.prod(shape)
    if not size and math.prod(filter(None, shape)) >= LIMIT >> 6:
        expected = "extents of fewer than 2**57 elements beside 0"
        raise LayoutError(call, name, "", shape, expected, "use less")
    if size >= LIMIT:
        raise LayoutError(call, name, "", shape, "fewer than 2**63 elements", "use less")
    return shape


def broadcast_extents(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that all broadcast to, None where there is none; NumPy's own function ends at 32 axes."""
    found = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for axis, extent in enumerate(shape, len(found) - len(shape)):
            if found[axis] == 1:
                found[axis] = extent
            elif extent not in (1, found[axis]):
                return None
    return tuple(found)


def check_index(call: str, name: str, value: object, extent: int) -> int:
    """value as an index into extent places, negative ones counted from the end."""
    try:
        index = operator.index(value)  # type: ignore[arg-type]  # what has no __index__ is told below
    except TypeError:
        index = None
    if index is None or isinstance(value, bool):
        raise LayoutError(call, name, "", shown(value), "an integer", "convert it first")
    if not -extent <= index < extent:
        raise OutOfRangeError(call, name, "", index, f"in [{-extent}, {extent})", "use an existing one")
    return index if index >= 0 else index + extent


def check_flag(call: str, name: str, value: object) -> bool:
    """value as a bool; numbers, text and arrays, whose truth Python would ask for, are refused."""
    if isinstance(value, bool) or type(value).__name__ == "bool":  # NumPy's own is called so too, and is not imported
        return bool(value)
    raise OptionError(call, name, "", shown(value), "True or False", "pass one of the two")


def check_word(call: str, name: str, value: object, bits: int = 64, *, meant: str = "") -> int:
    """value, an integer of Python or a scalar of NumPy and no array, as one of so many bits without a sign; `meant`:
    what else messages say of it."""
    if not isinstance(value, bool) and isinstance(value, int | numbers.Integral) and 0 <= int(value) < 1 << bits:
        return int(value)
    raise OptionError(call, name, "", shown(value), f"an integer in [0, 2**{bits}){meant}", f"pass {name}=0")


def check_size(call: str, name: str, value: object, remedy: str, fact: str = "") -> int:
    """value, an integer of Python or a scalar of NumPy, as the size of a symbol."""
    if not isinstance(value, bool) and isinstance(value, int | numbers.Integral) and 0 <= int(value) < LIMIT:
        return int(value)
    raise OptionError(call, name, fact, shown(value), "an integer in [0, 2**63)", remedy)


def check_seed(call: str, seed: object, is_drawn: bool) -> int | None:
    """The seed of stochastic rounding; None where nothing is drawn, and none may be given."""
    if is_drawn:
        return check_word(call, "seed", seed, meant=", which stochastic rounding draws from")
    if seed is not None:
        remedy = "pass rounding='stochastic', or leave seed away"
        raise OptionError(call, "seed", "", shown(seed), "left out where nothing is drawn", remedy)
    return None


def check_type(call: str, name: str, value: object, due: type, remedy: str) -> None:
    """Refuse what is of another class."""
    if not isinstance(value, due):
        raise OptionError(call, name, "type", type(value).__name__, due.__name__, remedy)


def is_integer(value: object) -> TypeGuard[SupportsIndex]:
    """Whether a value is meant as one integer and no sequence of them."""
    return isinstance(value, int) or hasattr(value, "__index__")


def check_axes(call: str, name: str, axes: SupportsIndex | Sequence[SupportsIndex], ndim: int) -> tuple[int, ...]:
    """One axis or several as a tuple, negative ones counted from the end, none twice."""
    if is_integer(axes):
        return (check_index(call, name, axes, ndim),)
    given = check_integers(call, name, cast(Sequence[SupportsIndex], axes))
    found = tuple([check_index(call, name, axis, ndim) for axis in given])
    if len(set(found)) < len(found):
        raise LayoutError(call, name, "", found, "distinct", "name each axis once")
    return found


def check_permutation(call: str, name: str, axes: Sequence[SupportsIndex], ndim: int) -> tuple[int, ...]:
    """The axes, negative ones counted from the end, each of ndim exactly once."""
    given = check_integers(call, name, axes)
    order = _permutation(given, ndim)
    if order is None:
        raise LayoutError(call, name, "", given, f"a permutation of {ndim} axes", "name each axis once")
    return order


@lru_cache(maxsize=1024)
def _permutation(given: tuple[int, ...], ndim: int) -> tuple[int, ...] | None:
    """The axes counted from the start, or None if one is missing or named twice."""
    order = tuple([axis + ndim if axis < 0 else axis for axis in given])
    return order if sorted(order) == list(range(ndim)) else None
