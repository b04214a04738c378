"""Eager sums, products and extremes that run along an axis (numerics.md section 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samebits.kernels.scan import ScanKind
from samebits.operations.scans import Along
from samebits.ops.call import Call
from samebits.ops.elementwise import summed, taken
from samebits.ops.launch import launch
from samebits.ops.memo import remembered
from samebits.shapes import check_index

__all__ = ["cummax", "cummin", "cumprod", "cumsum"]


def _function(name: str, kind: ScanKind, meaning: str, result: str) -> Callable[..., Any]:
    def function(x: Any, axis: int = -1, *, threads: int | None = None) -> Any:
        call = Call(name, x, threads)
        given = summed(call, x) if kind in ("sum", "prod") else taken(call, "x", x, "copy")
        place = check_index(name, "axis", axis, len(given.shape))
        return call.result(launch(call, "scan", Along(kind, place), [given])[0])

    function.__name__ = function.__qualname__ = name
    function.__module__ = "samebits"
    function.__doc__ = f"""{meaning} of the elements up to each along an axis, one after the other from the first.

    Args:    x: an array.   axis: counted from the end if negative.   threads: at most so many; default all cores.
    Returns: an array of x's kind and shape, {result}.
    Raises:  DTypeError, LayoutError if there is no such axis.   Bits: numerics.md section 6.
    """
    return remembered(function)


_TOTAL = "of x's dtype; integers and bools in int64 (uint64 in uint64), modulo 2 to the 64"
cumsum = _function("cumsum", "sum", "The sum", _TOTAL)
cumprod = _function("cumprod", "prod", "The product", _TOTAL)
cummax = _function("cummax", "max", "The largest", "of x's dtype; NaN propagates, +0 > -0")
cummin = _function("cummin", "min", "The smallest", "of x's dtype; NaN propagates, -0 < +0")
