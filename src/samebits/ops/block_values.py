"""The values of the parts of a quantised array: start at `values`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from samebits import dtypes, elements, ieee
from samebits.codegen import isa as isas
from samebits.dtypes import DType
from samebits.errors import DTypeError
from samebits.kernels.quantize import reference
from samebits.kernels.quantize.formats import BlockFormat
from samebits.native.table import check_threads
from samebits.ops import block_parts, block_run
from samebits.tensor import Tensor

__all__ = ["value_dtype", "values"]


def value_dtype(call: str, dtype: object) -> DType:
    """What values may be converted to.

    Raises:  DTypeError if it is none of float32, bfloat16 and float16.
    """
    made = dtypes.named(call, "dtype", dtype)
    if made not in (dtypes.float32, dtypes.bfloat16, dtypes.float16):
        raise DTypeError(call, "dtype", "", made, "float32, bfloat16 or float16", "cast the values then")
    return made


def values(
    parts: Mapping[str, Tensor],
    row: BlockFormat,
    divides: bool,
    axis: int,
    made: DType,
    target: Tensor | None = None,
    threads: int | None = None,
) -> Tensor:
    """element * scale, then the global scale, each rounded to float32, then one conversion to a float format."""
    target = Tensor.empty(parts["elements"].shape, made) if target is None else target
    if block_run.values(
        parts, row, divides, axis, target, isa=isas.current(), threads=check_threads("dequantize", threads)
    ):
        return target
    stored = reference.StoredParts(*[_array(name, parts.get(name)) for name in block_parts.PARTS])
    found = reference.dequantize(stored, row, divides, axis)
    codes = found.view(np.uint32) if made is dtypes.float32 else ieee.encode(found, made)
    elements.write(target.buffer.array(), target.layout, codes)
    return target


def _array(name: str, part: Tensor | None) -> Any:
    """A part as the reference has it: elements by code, an element a byte."""
    if part is None:
        return None
    codes = elements.read(part.buffer.array(), part.layout)
    return codes if name == "elements" or part.dtype.numpy is None else codes.view(part.dtype.numpy)
