"""Eager decoding of GGUF's blocks: start at `decode_gguf`."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits import dtypes, elements
from samebits.errors import OptionError, ShapeError
from samebits.kernels.quantize import gguf
from samebits.ops.call import Call
from samebits.tensor import Tensor

__all__ = ["decode_gguf"]


def decode_gguf(data: Any, type: object, *, threads: int | None = None) -> Any:
    """The values of GGUF's blocks: (d * scale) * element, minus dmin * minimum where the type has one.

    Args:    data: uint8 [..., bytes], whole blocks along the last axis.   type: such as "Q4_K"; the page of formats
             lists them.   threads: at most so many; default every usable core.
    Returns: float32 [..., elements] of data's kind.
    Raises:  OptionError if there is no such type; DTypeError; ShapeError if the last axis is no whole number of blocks.
    """
    call = Call("decode_gguf", data, threads)
    try:
        row = gguf.of(type)
    except OptionError as error:
        raise error.renamed("decode_gguf", "type") from None
    given = call.operand("data", data, dtypes.uint8).tensor
    if not given.shape:
        raise ShapeError("decode_gguf", "data", "rank", 0, "at least 1", "reshape it to one row")
    if given.shape[-1] % row.size_bytes:
        expected = f"a multiple of {row.size_bytes}, the bytes of a block of {row}"
        last = f"extent of axis {given.ndim - 1}"
        raise ShapeError("decode_gguf", "data", last, given.shape[-1], expected, "pass whole blocks")
    found = gguf.decode(elements.read(given.buffer.array(), given.layout), row)
    return call.result(call.own(Tensor.from_any(np.ascontiguousarray(found))))
