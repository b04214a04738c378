"""What makes the results of calls like one before. Start at `maker_of`."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from samebits.dtypes import DType
from samebits.kinds import ArrayKind
from samebits.layout import Layout, Shape
from samebits.memory import new_array
from samebits.memory.pages import MAPPED
from samebits.tensor import in_new_memory

__all__ = ["Maker", "emitted", "maker_of"]


class Maker(NamedTuple):
    """What makes a result: a function of a shape and a dtype of NumPy's, or of a layout and a dtype of ours."""

    make: Any
    form: Shape | Layout
    dtype: Any


def maker_of(kind: ArrayKind, shape: Shape, dtype: DType) -> Maker:
    """What makes an array of that kind, of a dtype that NumPy has, of whole bytes."""
    if kind == "numpy":
        is_large = math.prod(shape) * dtype.width_bits >= MAPPED * 8
        return Maker(new_array if is_large else np.empty, shape, dtype.numpy)
    layout = Layout.dense(shape, width_bits=dtype.width_bits)
    make = _torch if kind == "torch" else in_new_memory
    return Maker(functools.partial(make, layout.required_bytes), layout, dtype)


def _torch(size_bytes: int, layout: Layout, dtype: DType) -> Any:
    """A new torch tensor."""
    return in_new_memory(size_bytes, layout, dtype).torch()


def emitted(maker: Maker) -> tuple[Any, Any, Any]:
    """What makes a result, as emitted code takes it."""
    from samebits.native import calls

    make, form, dtype = maker
    if isinstance(form, Layout) and make.func is _torch and make.args[0] < MAPPED:
        return None, calls.like(form, dtype), None
    return maker
