"""Shapes, axes and indices as callers write them, checked once and made plain ints.

Anything with `__index__` counts as an integer; floats, and bools, which Python calls integers, do not. Every function
takes the name of the public call and of the argument, for its message.
"""

import math
import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

from samebits.errors import LayoutError, message

__all__ = ["LIMIT", "MAX_RANK", "check_extents", "check_index", "check_integers", "check_permutation"]

# NumPy's limit and cuda.core's; DLPack has none.
MAX_RANK = 64
# Sizes, strides and spans in bits stay within int64, so native code needs no wider arithmetic.
LIMIT = 1 << 63


def check_integers(call: str, name: str, values: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """The values as ints; floats, bools and anything else without __index__ are refused."""
    try:
        items = tuple(values)
    except TypeError:
        raise LayoutError(message(call, name, "", repr(values), "a tuple of integers", "write it as a tuple")) from None
    try:
        if bool not in map(type, items):
            return tuple(map(operator.index, items))
    except TypeError:
        pass
    raise LayoutError(message(call, name, "", repr(items), "a tuple of integers", "convert it first"))


def check_extents(call: str, name: str, values: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """The values as extents: not negative, at most MAX_RANK of them, fewer than 2**63 elements in all."""
    shape = check_integers(call, name, values)
    if len(shape) > MAX_RANK:
        raise LayoutError(message(call, name, "length", len(shape), f"at most {MAX_RANK}", "merge axes"))
    if shape and min(shape) < 0:
        raise LayoutError(message(call, name, "", shape, "extents of at least 0", "count elements"))
    if math.prod(shape) >= LIMIT or max(shape, default=0) >= LIMIT:
        raise LayoutError(message(call, name, "", shape, "fewer than 2**63 elements", "use less"))
    return shape


def check_index(call: str, name: str, value: object, extent: int) -> int:
    """value as an index into extent places, negative ones counted from the end."""
    try:
        index = operator.index(value)  # type: ignore[arg-type]  # what has no __index__ is told below
    except TypeError:
        index = None
    if index is None or isinstance(value, bool):
        raise LayoutError(message(call, name, "", repr(value), "an integer", "convert it first"))
    if not -extent <= index < extent:
        raise LayoutError(message(call, name, "", index, f"in [{-extent}, {extent})", "use an existing one"))
    return index if index >= 0 else index + extent


def check_permutation(call: str, name: str, axes: Sequence[SupportsIndex], ndim: int) -> tuple[int, ...]:
    """The axes, negative ones counted from the end, each of ndim exactly once."""
    given = check_integers(call, name, axes)
    order = given if min(given, default=0) >= 0 else tuple([axis + ndim if axis < 0 else axis for axis in given])
    if sorted(order) != list(range(ndim)):
        raise LayoutError(message(call, name, "", given, f"a permutation of {ndim} axes", "name each axis once"))
    return order
