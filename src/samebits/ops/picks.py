"""Eager sorting, and moves by indices along one axis. Bits are copied, never computed."""

from __future__ import annotations

from typing import Any

from samebits import dtypes
from samebits.errors import OptionError, shown
from samebits.operations.picks import PickAlong, SortedPlaces
from samebits.ops.call import Call
from samebits.ops.elementwise import taken
from samebits.ops.launch import launch
from samebits.shapes import check_flag, check_index

__all__ = ["argsort", "scatter", "sort", "take_along_axis", "topk"]


def argsort(x: Any, axis: int = -1, *, descending: bool = False, threads: int | None = None) -> Any:
    """The places of x's elements along an axis, sorted; of equal ones the first comes first.

    Args:    x: any array; -0 equals +0, and NaN is above every number.   axis: counted from the end if negative.
             descending: the largest first.   threads: at most so many; default every usable core.
    Returns: an array of int64 of x's kind and shape.
    Raises:  LayoutError if there is no such axis.   Bits: numerics.md section 6.
    """
    call = Call("argsort", x, threads)
    given = taken(call, "x", x, "copy")
    place = check_index("argsort", "axis", axis, len(given.shape))
    check_flag("argsort", "descending", descending)
    return call.result(launch(call, "order", SortedPlaces(place, descending), [given])[0])


def sort(x: Any, axis: int = -1, *, descending: bool = False, threads: int | None = None) -> Any:
    """x's elements along an axis in the order of `argsort`, bits copied.

    Args:    as `argsort`.   Returns: an array of x's kind, shape and dtype.
    """
    return _first("sort", x, None, axis, descending, threads)[0]


def topk(x: Any, k: int, axis: int = -1, *, largest: bool = True, threads: int | None = None) -> tuple[Any, Any]:
    """The k largest elements along an axis, or the smallest, and their places; of equal ones the first comes first.

    Args:    as `argsort`.   k: at most x's extent there.   largest: false for the smallest.
    Returns: elements of x's dtype, bits copied, and int64, in the order of `argsort`.
    Raises:  also OptionError if there are not so many.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        raise OptionError("topk", "k", "", shown(k), "a count", "pass 0 or more")
    return _first("topk", x, k, axis, largest, threads)


def _first(name: str, x: Any, k: int | None, axis: int, descending: bool, threads: int | None) -> tuple[Any, Any]:
    call = Call(name, x, threads)
    given = taken(call, "x", x, "copy")
    place = check_index(name, "axis", axis, len(given.shape))
    check_flag(name, "largest" if k is not None else "descending", descending)
    if k is not None and k > given.shape[place]:
        raise OptionError(name, "k", "", k, f"at most {given.shape[place]}, x's extent there", "ask for fewer")
    (places,) = launch(call, "order", SortedPlaces(place, descending, k), [given])
    (found,) = launch(call, "gather_along", PickAlong(place), [given, places])
    return call.result(found), call.result(places)


def take_along_axis(x: Any, indices: Any, axis: int = -1, *, threads: int | None = None) -> Any:
    """x[..., indices[..., i, ...], ...] along an axis, bits copied.

    Args:    x: any array.   indices: int64, of x's rank, no longer than it along other axes; a negative one counts
                from the end.   axis: counted from the end if negative.   threads: at most so many.
    Returns: an array of x's kind, of the shape of the indices.
    Raises:  ShapeError if an index is out of range, or shapes do not fit; DTypeError; LayoutError without such an axis.
    """
    call = Call("take_along_axis", x, threads)
    operands = [taken(call, "x", x, "copy"), call.operand("indices", indices, dtypes.int64)]
    place = check_index("take_along_axis", "axis", axis, len(operands[0].shape))
    return call.result(launch(call, "gather_along", PickAlong(place), operands)[0])


def scatter(x: Any, indices: Any, updates: Any, axis: int = -1, *, threads: int | None = None) -> Any:
    """x with updates[..., i, ...] at [..., indices[..., i, ...], ...]; of several for one place the last in row-major
    order stays. Bits copied.

    Args:    as `take_along_axis`.   updates: of x's dtype and the shape of the indices.
    Returns: an array of x's kind and shape.
    Raises:  as `take_along_axis`.
    """
    call = Call("scatter", x, threads)
    given = taken(call, "x", x, "copy")
    operands = [given, call.operand("indices", indices, dtypes.int64), call.operand("updates", updates, given.dtype)]
    place = check_index("scatter", "axis", axis, len(given.shape))
    return call.result(launch(call, "scatter_along", PickAlong(place), operands)[0])
