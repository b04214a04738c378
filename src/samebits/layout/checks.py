"""What a layout may be: its facts, checked before one is made.

Every message names the call that the facts were given to. Start at `checked`.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, SupportsIndex, cast

from samebits.errors import LayoutError, shown
from samebits.layout import strides as arithmetic
from samebits.layout.strides import Shape
from samebits.shapes import check_extents, check_permutation

__all__ = ["Order", "Storage", "check_pitch", "checked", "is_named", "ordered", "too_far", "whole"]

Storage = Literal["packed", "padded"]
Order = Literal["C", "F", "K"] | Sequence[SupportsIndex]


@lru_cache(maxsize=1024)
def checked(
    shape: Shape, strides: Shape, width: int, storage: Storage
) -> tuple[Shape, Shape, Storage, tuple[int, int]]:
    """The facts of a layout but where it begins, from integers; and the bits that it spans, counted from there."""
    check_extents("Layout", "shape", shape)
    if len(strides) != len(shape):
        expected = len(shape)
        raise LayoutError("Layout", "strides_bits", "length", len(strides), expected, "give one for each axis")
    pitch = check_pitch("Layout", width, storage)
    strides = arithmetic.settled(shape, strides, pitch)
    return shape, strides, "packed" if pitch == width else storage, arithmetic.span(shape, strides, 0, width)


def too_far(low: int, high: int) -> LayoutError:
    """What is said where the bits from low up to high are not all within int64."""
    return LayoutError("Layout", "span", "", f"[{low}, {high}) bits", "within 64-bit integers", "use less")


def whole(fact: str, bits: int, unit: int, units: str) -> int:
    """bits / unit, which must be whole; `fact` is the property of a layout that is asked for."""
    if bits % unit:
        actual, expected = f"{bits} bits", f"whole {units} of {unit} bits"
        raise LayoutError(f"Layout.{fact}", "layout", "", actual, expected, "use the count in bits")
    return bits // unit


def ordered(call: str, order: object, ndim: int, strides: Shape | None) -> Shape | None:
    """The axes from slowest to fastest, or None for row-major; `K` is known where strides are given."""
    if not isinstance(order, str):
        return check_permutation(call, "order", cast(Sequence[SupportsIndex], order), ndim)
    if order == "C":
        return None
    if order == "F":
        return tuple(range(ndim))[::-1]
    if order != "K" or strides is None:
        expected = "'C', 'F' or axes" if strides is None else "'C', 'F', 'K' or axes"
        raise LayoutError(call, "order", "", shown(order), expected, "give one of these")
    return arithmetic.stride_order(strides)


def check_pitch(call: str, width_bits: int, storage: object) -> int:
    """Bits from one dense element to the next, of a width and storage that exist."""
    if width_bits < 1:
        raise LayoutError(call, "width_bits", "", width_bits, "at least 1", "use DType.width_bits")
    if not is_named(storage, ("packed", "padded")):
        raise LayoutError(call, "storage", "", shown(storage), "'packed' or 'padded'", "name one of the two")
    return width_bits if storage == "packed" else -(-width_bits // 8) * 8


def is_named(value: object, names: tuple[str, ...]) -> bool:
    """Whether a value is one of the names; what compares in another way, as arrays do, is not."""
    return type(value) is str and value in names
