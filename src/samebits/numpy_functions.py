"""What NumPy's functions do with a Tensor: those that move, compare or write get its array, those that compute refuse.

NumPy makes an array of whatever can be one and computes on it, so that `numpy.matmul(tensor, tensor)` would give bits
that no contract says. Its two protocols (NEP 13 and NEP 18) ask the class first: start at `called` and `refused`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from samebits.errors import message

__all__ = ["COMPUTED", "TAKEN", "called", "refused"]

# Functions that give elements back as they are, say what an array is, compare whole arrays, print or store them. What
# an older NumPy lacks is not missed; what a newer one gains is refused until it stands here. `pad` is not among them:
# some of its modes compute.
_GROUPS = {
    "shape and order": "reshape ravel transpose permute_dims matrix_transpose swapaxes moveaxis rollaxis expand_dims"
    " squeeze broadcast_to broadcast_arrays atleast_1d atleast_2d atleast_3d flip fliplr flipud rot90 roll tile repeat"
    " resize",
    "parts and wholes": "concatenate concat stack vstack row_stack hstack dstack column_stack block append insert"
    " delete split array_split hsplit vsplit dsplit unstack take take_along_axis compress extract diag diagonal"
    " diagflat tril triu where select choose",
    "copies, and arrays like one": "copy empty_like zeros_like ones_like full_like",
    "writing into one": "copyto put place putmask put_along_axis fill_diagonal",
    "what an array is": "shape ndim size iscomplexobj isrealobj may_share_memory shares_memory",
    "whole arrays": "array_equal array_equiv allclose array2string array_repr array_str save savez savez_compressed"
    " savetxt",
}
TAKEN = frozenset(name for names in _GROUPS.values() for name in names.split())
_WRITING = frozenset(_GROUPS["writing into one"].split())
# What computes and is here by another name or the same.
COMPUTED = {
    "abs": "abs", "absolute": "abs", "fabs": "abs", "add": "add", "add.reduce": "sum", "astype": "cast",
    "divide": "divide", "dot": "matmul", "exp": "exp", "linalg.matmul": "matmul", "matmul": "matmul", "max": "max",
    "amax": "max", "maximum": "maximum", "maximum.reduce": "max", "mean": "mean", "min": "min", "amin": "min",
    "minimum": "minimum", "minimum.reduce": "min", "multiply": "multiply", "negative": "negative",
    "reciprocal": "reciprocal", "sqrt": "sqrt", "subtract": "subtract", "sum": "sum", "true_divide": "divide",
    "equal": "Tensor.equal_values", "not_equal": "Tensor.equal_values", "isclose": "Tensor.equal_values",
}  # fmt: skip


@functools.cache
def _taken() -> dict[Any, str]:
    """The functions of those names that this NumPy has."""
    return {getattr(np, name): name for name in TAKEN if hasattr(np, name)}


def called(kind: type, function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """What a function of NumPy's gives for arguments some of which are of `kind`: on arrays of the same memory.

    Raises:
        TypeError: The function computes.
    """
    name = _taken().get(function)
    if name is None:
        module = getattr(function, "__module__", None) or "numpy"
        raise refused(kind, f"{module}.{getattr(function, '__name__', function)}")

    def array(x: Any, is_written: bool = name in _WRITING) -> Any:
        if isinstance(x, kind):
            # What is written must be this memory; else elements that are packed within bytes are copied out of them.
            tensor: Any = x
            return tensor.numpy(copy=not is_written and bool(tensor.layout.pitch_bits % 8))
        if type(x) in (list, tuple):
            return type(x)([array(item, is_written) for item in x])
        return x

    return function(*map(array, arguments), **{key: array(x, key == "out") for key, x in options.items()})


def refused(kind: type, name: str) -> TypeError:
    """That a function of NumPy's does not compute on `kind`, and which one of ours does."""
    ours = COMPUTED.get(name.removeprefix("numpy."))
    remedy = "pass numpy.asarray(tensor), for NumPy's bits"
    if ours:
        remedy = f"call samebits.{ours}, or {remedy}"
    return TypeError(message(name, "an argument", "", f"a {kind.__name__}", "an array of NumPy's", remedy))
