"""How an input lies, in nvFuser's words: contiguity from the slowest axis on, and how many axes are faster than each.

Start at `define_tensor`; `compute_tensor_descriptor` reads both from sizes and strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from samebits.errors import FusionError, FusionTypeError, shown
from samebits.frozen import dataclass
from samebits.fusion import datatypes
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Fusion, TensorView, integer
from samebits.fusion.sizes import listed

__all__ = ["Description", "add_tensor", "compute_tensor_descriptor", "describe", "named"]

Contiguity = Sequence[bool | None] | bool


@dataclass(frozen=True, slots=True)
class Description:
    """An input.

    Attributes:
        shape: Extents in elements, -1 where they are open.
        contiguity: For each axis from the slowest on, whether it lies beside the next; None of a broadcast axis.
        dtype: The format of single elements.
        stride_order: For each axis how many are faster.
        is_cpu: Whether it was said to be a scalar on the host.
    """

    shape: tuple[int, ...]
    contiguity: tuple[bool | None, ...]
    dtype: DataType
    stride_order: tuple[int, ...]
    is_cpu: bool


def compute_tensor_descriptor(sizes: Sequence[int], strides: Sequence[int]) -> tuple[list[bool | None], list[int]]:
    """Contiguity and stride order of a tensor.

    An axis is contiguous if its stride is what the next faster axis spans, axes of extent 1 or stride 0 left out. Axes
    of stride 0 keep their places among the others.

    Raises:  FusionError if there are not as many strides as sizes, or one is negative.
    """
    if len(sizes) != len(strides):
        expected = f"{len(sizes)}, one for each size"
        raise FusionError("compute_tensor_descriptor", "strides", "count", len(strides), expected, "give all of them")
    for place, stride in enumerate(strides):
        if stride < 0:
            expected, remedy = "0 or more", "copy the tensor first"
            raise FusionError("compute_tensor_descriptor", f"stride {place}", "", stride, expected, remedy)
    order = sorted((axis for axis, stride in enumerate(strides) if stride), key=lambda axis: -strides[axis])
    for axis, stride in enumerate(strides):
        if not stride:
            order.insert(axis, axis)
    contiguity: list[bool | None] = []
    faster: int | None = None
    for axis in reversed(order):
        if strides[axis] == 0 or sizes[axis] == 1:
            contiguity.append(None)
            continue
        contiguity.append(strides[axis] == (1 if faster is None else strides[faster] * sizes[faster]))
        faster = axis
    return contiguity[::-1], [len(order) - 1 - order.index(axis) for axis in range(len(order))]


_SHAPED = ("shape", "contiguity", "dtype", "is_cpu", "stride_order")
_LYING = ("sizes", "strides", "dtype", "static_sizes", "is_cpu")


def named(args: Sequence[object], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `define_tensor` by name: a list of numbers in the second place is one of strides.

    Raises:  FusionTypeError if there are too many, or one is unknown or given twice.
    """
    names = _LYING if len(args) > 1 and _is_strides(args[1]) and "shape" not in kwargs else _SHAPED
    if len(args) > len(names):
        expected = f"at most {len(names)} in order"
        raise FusionTypeError("define_tensor", "arguments", "count", len(args), expected, "give the others by name")
    found = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in (*_SHAPED, *_LYING):
            expected = f"one of {', '.join(dict.fromkeys((*_SHAPED, *_LYING)))}"
            raise FusionTypeError("define_tensor", f"argument {name}", "", "unknown", expected, "leave it out")
        if name in found:
            raise FusionTypeError("define_tensor", name, "", "given twice", "given once", "leave one of them out")
        found[name] = value
    return found


def _is_strides(x: object) -> bool:
    """Whether a second argument of `define_tensor` is a list of strides: numbers, where contiguity has truths."""
    if isinstance(x, bool) or not isinstance(x, Sequence) or isinstance(x, str):
        return False
    return len(x) > 0 and all(isinstance(each, int) and not isinstance(each, bool) for each in x)


def describe(
    shape: Sequence[int] | None = None,
    contiguity: Contiguity | None = None,
    dtype: DataType = DataType.Float,
    is_cpu: bool = False,
    stride_order: Sequence[int] = (),
    *,
    sizes: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    static_sizes: bool = False,
) -> Description:
    """What `define_tensor` is given, checked; extents of packed formats become extents in elements.

    Raises:  FusionError if it does not fit together.
    """
    for name, flag in (("is_cpu", is_cpu), ("static_sizes", static_sizes)):
        if not isinstance(flag, bool | np.bool_):
            raise FusionTypeError("define_tensor", name, "", shown(flag), "True or False", "pass one of them")
    if strides is not None or sizes is not None:
        found = shape if sizes is None else sizes
        if found is None or strides is None:
            expected, remedy = "both sizes and strides", "pass both, or a shape"
            raise FusionError("define_tensor", "sizes and strides", "", "one of them", expected, remedy)
        own, steps = _integers("size", found), _integers("stride", strides)
        for place, size in enumerate(own):
            if size < 0:
                raise FusionError("define_tensor", f"size {place}", "", size, "0 or more", "write an open one in shape")
        if dtype is DataType.Float4_e2m1fn_x2:
            own, steps, dtype = *_unpacked(own, steps), DataType.Float4_e2m1fn
        pairs, order = compute_tensor_descriptor(own, steps)
        lengths = own if static_sizes else [1 if size == 1 else -1 for size in own]
        return _checked(lengths, pairs, dtype, is_cpu, order)
    if shape is None:
        raise FusionError("define_tensor", "shape", "", "missing", "a list of extents", "write -1 for open ones")
    return _checked(
        _integers("extent", shape), contiguity, dtype, is_cpu, _integers("entry of stride_order", stride_order)
    )


def _unpacked(sizes: list[int], strides: list[int]) -> tuple[list[int], list[int]]:
    """Sizes and strides in bytes of two elements each, in elements: the fastest axis is twice as long.

    Raises:  FusionError if no axis lies byte beside byte.
    """
    fast = compute_tensor_descriptor(sizes, strides)[1].index(0) if sizes else -1
    if fast < 0 or (sizes[fast] > 1 and strides[fast] != 1):
        expected, remedy = "an axis of stride 1", "copy the tensor first"
        raise FusionError("define_tensor", "strides", "of packed elements", strides, expected, remedy)
    places = range(len(sizes))
    return (
        [2 * sizes[axis] if axis == fast else sizes[axis] for axis in places],
        [1 if axis == fast else 2 * strides[axis] for axis in places],
    )


def _checked(
    shape: list[int], contiguity: Contiguity | None, dtype: DataType, is_cpu: bool, stride_order: list[int]
) -> Description:
    for place, size in enumerate(shape):
        if size < -1:
            expected = "symbolic (-1), zero (0), broadcast (1) or static (more than 1)"
            raise FusionError("define_tensor", f"extent {place}", "", size, expected, "give another extent")
    if is_cpu and shape:
        expected, remedy = "without axes", "leave is_cpu out"
        raise FusionError("define_tensor", "shape", "with is_cpu=True", shape, expected, remedy)
    order, was_single = _order(stride_order, len(shape)), False
    if dtype is DataType.Float4_e2m1fn_x2:
        if not shape:
            expected, remedy = "at least one axis", "define it as DataType.Float4_e2m1fn"
            raise FusionError("define_tensor", "shape", f"of {dtype}", [], expected, remedy)
        fast = order.index(0)
        was_single = shape[fast] == 1
        if shape[fast] > 0:
            shape[fast] *= 2
        dtype = DataType.Float4_e2m1fn
    datatypes.row_of("define_tensor", "dtype", dtype)
    dtype = DataType.Int if dtype is DataType.Index else dtype
    if contiguity is None or isinstance(contiguity, bool):
        flags: list[bool | None] = [bool(contiguity)] * len(shape)
        for faster, size in zip(order, shape, strict=True):
            if size == 1:
                flags[-1 - faster] = None
    else:
        flags = _flags(contiguity)
    if len(flags) != len(shape):
        expected = f"{len(shape)}, one for each extent"
        raise FusionError("define_tensor", "contiguity", "count", len(flags), expected, "give all of them")
    if was_single:
        flags[-1] = True  # a byte has two elements, which are no broadcast axis
    for axis, (faster, size) in enumerate(zip(order, shape, strict=True)):
        if size == 1 and flags[-1 - faster] is not None:
            expected, remedy = f"None, as axis {axis} has extent 1", "write None for broadcast axes"
            what = f"contiguity {len(shape) - 1 - faster}"
            raise FusionError("define_tensor", what, "", flags[-1 - faster], expected, remedy)
    return Description(tuple(shape), tuple(flags), dtype, tuple(order), is_cpu)


def _integers(what: str, given: object) -> list[int]:
    """Extents, strides or places that a user lists.

    Raises:  FusionTypeError if it is no list of integers.
    """
    found = listed("define_tensor", f"{what}s", given, "a list of integers")
    return [integer("define_tensor", f"{what} {place}", each) for place, each in enumerate(found)]


def _flags(given: object) -> list[bool | None]:
    """Contiguity that a user lists.

    Raises:  FusionTypeError if it is no list of truths and None.
    """
    expected, remedy = "True, False, or None of a broadcast axis", "write one for each axis, the slowest first"
    flags = listed("define_tensor", "contiguity", given, f"a list of {expected}", remedy)
    for place, flag in enumerate(flags):
        if not isinstance(flag, bool | None):
            raise FusionTypeError("define_tensor", f"contiguity {place}", "", shown(flag), expected, remedy)
    return flags


def _order(given: list[int], rank: int) -> list[int]:
    """A stride order with numbers from 0 on; that of row-major where none is given."""
    if not given:
        return [*range(rank)][::-1]
    if len(given) != rank:
        expected = f"0 or {rank}, one for each extent"
        raise FusionError("define_tensor", "stride_order", "count", len(given), expected, "give all of them")
    for each in given:
        if not -rank <= each < rank:
            expected = f"in [{-rank}, {rank})"
            raise FusionError("define_tensor", "stride_order", "entry", each, expected, "count from the fastest axis")
    found = [each % rank for each in given]
    if len(set(found)) != rank:
        raise FusionError("define_tensor", "stride_order", "", given, "different entries", "name each place once")
    return found


def add_tensor(fusion: Fusion, given: Description) -> TensorView:
    """The tensor of a description, as an input of a fusion."""
    axes, order = [], given.stride_order
    for faster, size in zip(order, given.shape, strict=True):
        length = fusion.open_size() if size == -1 else fusion.constant(size)
        is_expanded = given.contiguity[-1 - faster] is None and size != 1
        axes.append(fusion.new_axis(fusion.constant(1), expanded=length) if is_expanded else fusion.new_axis(length))
    shown = order if order != tuple(_order([], len(order))) else None
    made = TensorView(fusion, given.dtype, axes, contiguity=given.contiguity, stride_order=shown, is_cpu=given.is_cpu)
    fusion.inputs.append(made)
    return made
