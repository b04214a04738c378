"""What a run is given: one value for each input, of the format, rank and extents that were defined.

Start at `taken`, which asks what is asked of each run; `check` asks the rest, once for arrays that are alike.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from samebits.errors import DTypeError, FusionError, FusionTypeError, SamebitsError
from samebits.fusion import datatypes, promotion, tiles
from samebits.fusion.graph import Fusion, Scalar, TensorView, Val
from samebits.fusion.refusals import refused
from samebits.tensor import Tensor

__all__ = ["check", "check_fits", "check_listed", "check_written", "taken"]


def check_listed(given: object) -> None:
    """Raise FusionTypeError unless inputs are a list or a tuple."""
    if not isinstance(given, list | tuple):
        expected, remedy = "a list with a value for each input", "write [x] for one tensor"
        raise FusionTypeError("execute", "inputs", "", type(given).__name__, expected, remedy)


def taken(inputs: Sequence[Val], given: Sequence[Any], written: Collection[int]) -> list[Any]:
    """One value for each input, vectors taken apart: arrays without gradients, numbers of the kind of their format.

    Args:    inputs: the definition's.   given: a run's.   written: the places of those that are, which must have no
             gradients.
    Raises:  FusionError unless there are as many as inputs, tensors and numbers where they were defined.
    """
    check_listed(given)
    found: list[Any] = []
    for x in given:
        if isinstance(x, list | tuple):
            found += x
        else:
            found.append(x)
    if len(found) != len(inputs):
        remedy = "pass one for each that is defined"
        raise FusionError("execute", "inputs", "count", len(found), len(inputs), remedy)
    return [_value(place, x, value, written) for place, (x, value) in enumerate(zip(inputs, found, strict=True))]


def _value(place: int, x: Val, value: Any, written: Collection[int]) -> Any:
    name = f"Expected input {place}, {x},"
    if isinstance(x, TensorView):
        if not _is_array(value):
            actual = f"scalar {value}" if isinstance(value, bool | int | float | complex) else type(value).__name__
            words = f"{name} to be an at::Tensor but got {actual}"
            raise _wrong(place, "a tensor", actual, "pass a tensor", words)
        if not _has_shape(value):
            return _tensor(place, value)
        return value.detach() if getattr(value, "requires_grad", False) and place not in written else value
    if _is_array(value):
        tensor = _tensor(place, value)
        actual = f"{_name(tensor)} tensor of rank {tensor.ndim}"
        raise _wrong(place, "a number", actual, "pass one", f"{name} to be a scalar but got {actual}")
    if isinstance(value, complex):
        actual = f"({value.real:g},{value.imag:g})"
        words = f"Scalar value {actual} is not compatible with the expected data type: {x.dtype.value}."
        raise _wrong(place, "a real number", actual, "pass its real part", words)
    if not isinstance(value, bool | int | float) and getattr(value, "dtype", np.dtype(object)).kind not in "biufV":
        actual = type(value).__name__
        raise _wrong(place, "a number", actual, "pass one", f"{name} to be a scalar but got {actual}")
    return promotion.converted("execute", value, x.dtype)


def check(fusion: Fusion, given: Sequence[Any]) -> None:
    """Raise FusionError unless tensors have the formats, ranks and extents that were defined.

    Extents that operations take together must be equal, those that a number decides must be that number, and scales of
    blocks must be whole tiles.
    """
    numbers = {x: value for x, value in zip(fusion.inputs, given, strict=True) if isinstance(x, Scalar)}
    extents: dict[Scalar, tuple[int, str]] = {x: (value, f"input {x}") for x, value in numbers.items()}
    for place, (x, value) in enumerate(zip(fusion.inputs, given, strict=True)):
        if not isinstance(x, TensorView):
            continue
        tensor = _tensor(place, value)
        _check_format(place, x, tensor)
        for axis, extent in enumerate(tensor.shape):
            own = x.axes[axis].length
            size = fusion.root(own)
            due = extents.setdefault(size, (extent, f"extent {axis} of input {place}"))
            if size.value is not None:
                due = int(size.value), "defined" if own.value is not None else "what it is computed with"
            if due[0] != extent:
                expected, remedy = f"{due[0]} as {due[1]}", "pass tensors of extents that fit"
                raise FusionError("execute", f"input {place}", f"extent {axis}", extent, expected, remedy)
    tiles.check_inputs(fusion, {size: extent for size, (extent, _) in extents.items() if isinstance(extent, int)})


def check_written(place: int, value: Any) -> None:
    """Raise FusionError if an input that is written requires gradients: torch would not know that it was."""
    if getattr(value, "requires_grad", False):
        actual, expected = "a tensor that requires gradients", "one that does not, as it is written"
        raise FusionError("execute", f"input {place}", "", actual, expected, "pass its detach()")


def check_fits(place: int, made: Any, target: Any) -> None:
    """Raise FusionError unless an input that is written has the extents of what is written into it."""
    due, found = Tensor.from_any(made).shape, _tensor(place, target)
    if found.shape != due:
        expected, remedy = f"{due} as the output that is written into it", "pass a tensor of that shape"
        raise FusionError("execute", f"input {place}", "shape", found.shape, expected, remedy)
    if found.read_only:
        expected, remedy = "writable, as an output is written into it", "pass a copy"
        raise FusionError("execute", f"input {place}", "memory", "read-only", expected, remedy)


def _check_format(place: int, x: TensorView, tensor: Tensor) -> None:
    """Raise FusionError unless a tensor has the element format and the rank that were defined."""
    name = f"Expected input {place}, {x}, to be bound to a tensor of"
    if tensor.dtype is not datatypes.row_of("execute", str(x), x.dtype):
        actual, expected = _name(tensor), x.dtype.value
        words = f"{name} dtype {expected}, but got a tensor of dtype {actual}"
        raise _wrong(place, f"of dtype {expected}", f"of dtype {actual}", "convert it first", words)
    if tensor.ndim != x.ndim:
        words = f"{name} rank {x.ndim}, but got a tensor of rank {tensor.ndim}"
        raise _wrong(place, f"of rank {x.ndim}", f"of rank {tensor.ndim}", "reshape it first", words)


def _tensor(place: int, value: Any) -> Tensor:
    """An array as a Tensor.

    Raises:  FusionError if it is on a device, of a format that there is not, or not shared by its library.
    """
    try:
        found = Tensor.from_any(value)
    except SamebitsError as error:
        raise refused("execute", error, f"input {place}") from None
    if not found.device.is_host:
        raise FusionError("execute", f"input {place}", "device", found.device, "the host", "copy it to the host")
    if found.buffer.is_closed:
        raise FusionError("execute", f"input {place}", "buffer", "closed", "open", "close it after its last use")
    return found


def _is_array(x: object) -> bool:
    return (
        isinstance(x, np.ndarray | Tensor)
        or hasattr(type(x), "__dlpack__")
        or hasattr(type(x), "__cuda_array_interface__")
    )


def _has_shape(x: object) -> bool:
    """Whether an array says its shape: torch's nested ones refuse to."""
    try:
        return hasattr(x, "shape")
    except RuntimeError:
        return False


def _name(tensor: Tensor) -> str:
    """A tensor's format as nvFuser's messages call it."""
    try:
        return datatypes.data_type_of(tensor.dtype).value
    except DTypeError:
        return tensor.dtype.name


def _wrong(place: int, expected: str, actual: str, remedy: str, words: str) -> FusionError:
    """The error of an input, which ends in nvFuser's words."""
    return FusionError("execute", f"input {place}", "", actual, expected, f"{remedy}: {words}")
