"""Eager random numbers, each a function of a seed, an offset and its index alone (numerics.md section 13).

Nothing is kept between calls: another offset gives other numbers. Start at `uniform`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from samebits import dtypes, elements
from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError, shown
from samebits.kernels.random import FORMATS, Distribution, Random
from samebits.operations.random import Drawn
from samebits.ops.call import WITHIN_FLOAT64, Call
from samebits.ops.launch import launch
from samebits.shapes import check_extents, check_word

__all__ = ["normal", "rand_like", "randn_like", "uniform"]


def uniform(
    low: float, high: float, shape: Sequence[SupportsIndex], *, seed: int, offset: int = 0, dtype: object = "float32",
    out: Any = None, threads: int | None = None,
) -> Any:  # fmt: skip
    """Numbers of the interval [low, high), each as likely as another.

    Args:    low, high: finite numbers, which are rounded to the dtype first; where they are one, all are that one.
             shape: extents.
             seed: of 64 bits; with the offset and an element's row-major index it says what the element is.
             offset: of 63 bits; numbers of one seed and different offsets have nothing to do with each other.
             dtype: float32, float64, float16 or bfloat16.   out: an array of that dtype and shape for the result.
             threads: at most so many; default every usable core.
    Returns: a NumPy array, or out.
    Raises:  OptionError if a number, the seed or the offset is none, or the bounds do not lie in order; LayoutError if
             the shape is none; DTypeError.   Bits: numerics.md section 13.
    """
    call, row = _call("uniform", dtype, out, threads)
    bounds = [_number(call, name, x, row) for name, x in (("low", low), ("high", high))]
    least, most = (float(x) for x in bounds)
    widest = (row if row is dtypes.float64 else dtypes.float32).max
    if not 0 <= most - least <= widest:
        expected = f"within [low, low + {widest!r}]"
        raise OptionError("uniform", "high", "", shown(high), expected, "give the bounds in order, or halve both")
    return _drawn(call, "uniform", row, check_extents("uniform", "shape", shape), bounds, seed, offset, out)


def normal(
    mean: float, std: float, shape: Sequence[SupportsIndex], *, seed: int, offset: int = 0, dtype: object = "float32",
    out: Any = None, threads: int | None = None,
) -> Any:  # fmt: skip
    """Normal numbers of a mean and a standard deviation: mean + std * z.

    Args:    mean, std: finite numbers, std at least 0.   The others: as `uniform`.
    Returns: a NumPy array, or out.
    Raises:  as `uniform`.   Bits: numerics.md section 13.
    """
    call, row = _call("normal", dtype, out, threads)
    given = [_number(call, name, x, row) for name, x in (("mean", mean), ("std", std))]
    if given[1] < 0:
        raise OptionError("normal", "std", "", shown(std), "at least 0", "pass its magnitude")
    return _drawn(call, "normal", row, check_extents("normal", "shape", shape), given, seed, offset, out)


def rand_like(x: Any, *, seed: int, offset: int = 0, out: Any = None, threads: int | None = None) -> Any:
    """Numbers of [0, 1), each as likely as another, of x's kind, shape and dtype: `uniform` of 0 and 1.

    Args:    x: an array of float32, float64, float16 or bfloat16, whose elements are not read.
             The others: as `uniform`.
    Returns: an array of x's kind, or out.
    Raises:  as `uniform`.   Bits: numerics.md section 13.
    """
    return _like("rand_like", "uniform", x, seed, offset, out, threads)


def randn_like(x: Any, *, seed: int, offset: int = 0, out: Any = None, threads: int | None = None) -> Any:
    """Normal numbers of mean 0 and standard deviation 1, of x's kind, shape and dtype: `normal` of 0 and 1.

    Args:    as `rand_like`.
    Returns: an array of x's kind, or out.
    Raises:  as `uniform`.   Bits: numerics.md section 13.
    """
    return _like("randn_like", "normal", x, seed, offset, out, threads)


def _like(name: str, distribution: Distribution, x: Any, seed: object, offset: object, out: Any, threads: Any) -> Any:
    call = Call(name, x, threads)
    given = call.operand("x", x, *FORMATS)
    unit = [np.asarray(elements.rounded(number, given.dtype)) for number in (0.0, 1.0)]
    return _drawn(call, distribution, given.dtype, given.shape, unit, seed, offset, out)


def _call(name: str, dtype: object, out: Any, threads: int | None) -> tuple[Call, DType]:
    """A call without arrays, and its dtype.

    Raises:  DTypeError if numbers are not made in it.
    """
    call = Call(name, out, threads)
    row = call.dtype("dtype", dtype)
    if row not in FORMATS:
        expected = " or ".join(each.name for each in FORMATS)
        raise DTypeError(name, "dtype", "", row.name, expected, "make float32, and cast it")
    return call, row


def _number(call: Call, name: str, value: object, dtype: DType) -> Any:
    """A finite number, rounded once to a dtype.

    Raises:  OptionError if it is none, or beyond the dtype.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise OptionError(call.name, name, "", shown(value), "a number", "pass a float")
    try:
        found = np.asarray(elements.rounded(value, dtype))
    except OverflowError:
        raise OptionError(call.name, name, "", "beyond float64", WITHIN_FLOAT64, "pass a smaller one") from None
    if not math.isfinite(float(found)):
        raise OptionError(call.name, name, "", shown(value), f"a finite {dtype.name}", "pass another number")
    return found


def _drawn(
    call: Call, distribution: Distribution, dtype: DType, shape: tuple[int, ...], given: Sequence[Any], seed: object,
    offset: object, out: Any,
) -> Any:  # fmt: skip
    """The numbers."""
    words = [check_word(call.name, "seed", seed), check_word(call.name, "offset", offset, 63)]
    operands = [call.constant(x) for x in (*given, *[np.asarray(word, np.uint64) for word in words])]
    (made,) = launch(call, "random", Drawn(Random(distribution, dtype), shape), operands, out)
    return call.result(made)
