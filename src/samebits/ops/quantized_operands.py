"""Quantized operands of products: their elements, and the options that say what their parts belong to.

A format says how its blocks lie, so nothing is read from a shape. Start at `taken_apart`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from samebits.errors import OptionError, ShapeError
from samebits.kernels.functions import exact
from samebits.operations.names import LINEAR, PACK, Names
from samebits.tensor import Tensor

if TYPE_CHECKING:
    from samebits.ops.quantized import Quantized


def is_quantized(x: object) -> TypeGuard[Quantized]:
    """Whether x is a Quantized: where their module was not imported yet, nothing is."""
    module = sys.modules.get("samebits.ops.quantized")
    return module is not None and isinstance(x, module.Quantized)


def elements(x: Any) -> Any:
    """The elements of x, or x itself where it is no Quantized."""
    return x.elements if is_quantized(x) else x


def taken_apart(call: str, names: Names, side: str, x: Quantized, given: dict[str, Any]) -> dict[str, Any]:
    """The options of a product that a Quantized a or b stands for, by the names that `matmul` has for them.

    Args:    side: `a` or `b`.   given: the options of the call; None is not given.
    Raises:  OptionError if one of them is given too, or if the format is one that products do not sum;
             ShapeError if it is a vector of blocks.
    """
    called = getattr(names, side)
    for option in ("scale", "global_scale", "group", "zero_point"):
        key = f"{side}_{option}"
        if given.get(key) is not None:
            actual = f"given beside a Quantized {called}"
            raise OptionError(call, getattr(names, key, key), "", actual, "left out", f"pass {called}'s elements")
    zero = x.format.zero_point
    if x.format.codebook is not None or (zero is not None and not zero.is_integer):
        what = "a code book" if x.format.codebook is not None else "zero points that are no integers"
        expected = "a format whose elements are numbers, and zero points integers"
        raise OptionError(call, called, "format", f"{x.format}, which has {what}", expected, "pass its dequantize()")
    if x.ndim < 2 and x.format.block[1] is not None:
        remedy = "slice one row instead, which keeps its axis"
        raise ShapeError(call, called, "rank", x.ndim, f"at least 2 for blocks of {x.format}", remedy)
    found: dict[str, Any] = {f"{side}_scale": x.scales if x.format.unit == 1 else _in_units(x.scales, x.format.unit)}
    if x.zero_points is not None:
        found[f"{side}_zero_point"] = x.zero_points
    group = _group(x, names.turned or side == "a")
    if group is not None:
        found[f"{side}_group"] = group
    if x.global_scale is not None:
        found[f"{side}_global_scale"] = _multiplier(x.global_scale) if x.divides else x.global_scale
    return found


def _group(x: Quantized, lines_first: bool) -> tuple[int, int] | None:
    """Extents of a block along the last two axes; None where it is a line along K, or everything, and K is not 0."""
    across, along = x.format.block
    lies_last = x.axis == -1
    extents = [across, along] if lies_last else [along, across]
    k = 1 if lines_first else 0
    if extents[k] is None and extents[1 - k] in (1, None) and (x.ndim < 2 or 0 not in x.shape[-2:]):
        return None
    sizes = [max(1, whole) if extent is None else extent for extent, whole in zip(extents, x.shape[-2:], strict=True)]
    return sizes[0], sizes[1]


def _in_units(scales: Tensor, unit: float) -> Tensor:
    """Scales times what an element of 1 is, a power of two: float32 holds such powers exactly."""
    return Tensor.from_any(exact.widened(scales.numpy()) * np.float32(unit))


def _multiplier(divisor: Tensor) -> Tensor:
    """What multiplies in the stead of a divisor: its reciprocal, rounded to float32 once."""
    with np.errstate(all="ignore"):
        return Tensor.from_any(np.float32(1) / np.asarray(divisor.numpy(), np.float32))


def quantized_weight(call: str, x: Quantized, given: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
    """Elements of a matrix to pack, as [K, N], and its scales, zero points, group and global scale: K is the axis along
    which blocks lie.

    Args:    given: the options that say the same of an array.
    Raises:  OptionError, ShapeError.
    """
    names = ("scale", "zero_point", "group", "global_scale")
    for name, value in zip(names, given, strict=True):
        if value is not None:
            raise OptionError(call, name, "", "given beside a Quantized b", "left out", "pass b's elements")
    if x.ndim != 2:
        raise ShapeError(call, "b", "rank", x.ndim, "2 for a Quantized", "pack a matrix")
    turned = x.axis == -1
    parts = taken_apart(call, LINEAR if turned else PACK, "b", x, {})
    one = parts.get("b_global_scale")
    is_whole = one is None or one.size == 1
    if "b_group" not in parts or not is_whole:
        expected = "one of blocks along K, with one global scale at most"
        raise OptionError(call, "b", "format", f"{x.format}", expected, "pass it to the product unpacked")
    scales, zeros, elements, group = parts["b_scale"], parts.get("b_zero_point"), x.elements, parts["b_group"]
    if turned:
        scales, elements, group = scales.T, elements.T, group[::-1]
        zeros = None if zeros is None else zeros.T
    whole = None if one is None else float(np.asarray(one.numpy()).reshape(()))
    return elements, (scales, zeros, group, whole)
