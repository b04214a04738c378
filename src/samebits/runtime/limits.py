"""What a machine can hold: values that are larger are refused before anything is computed.

Start at `check_value`.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from samebits import driver
from samebits.dtypes import DType
from samebits.errors import ShapeError, message
from samebits.operations.fact import Fact
from samebits.program.graph import Node
from samebits.program.room import reach_bytes, size_bytes

__all__ = ["bytes_of", "check_total", "check_value", "no_memory"]

_memory_bytes = functools.cache(driver.memory_bytes)


def check_value(node: Node, name: str, fact: Fact, outputs: Container[str]) -> int:
    """The bytes that a value which `node` makes takes; no symbol is left in its fact.

    A view takes none, unless it is one of the program's outputs.

    Raises:  ShapeError if it is larger than the memory, or than NumPy's arrays are.
    """
    is_held = not node.row.view or name in outputs
    size, most = size_bytes(fact), _memory_bytes() if is_held else sys.maxsize
    for found, limit in ((size, most), (reach_bytes(fact), sys.maxsize)):
        if found > limit:
            what = f"value {name!r} of node {node.label!r}"
            raise ShapeError("run", what, "size in bytes", found, f"at most {limit}", "give smaller inputs")
    return size if is_held else 0


def bytes_of(shape: Sequence[int], kind: Any) -> int:
    """Bytes of an array of that shape and NumPy dtype, or of a Tensor whose elements of a DType are packed."""
    width = kind.width_bits if isinstance(kind, DType) else 8 * int(np.dtype(kind).itemsize)
    return -(-math.prod(shape) * width // 8)


def check_total(total_bytes: int) -> None:
    """Raise ShapeError if what lives at the same time is larger than the memory."""
    if total_bytes > _memory_bytes():
        what, expected = "memory of all values", f"at most {_memory_bytes()}"
        raise ShapeError("run", what, "size in bytes", total_bytes, expected, "give smaller inputs")


def no_memory(what: str) -> MemoryError:
    """The error for what the system refused to give."""
    expected, remedy = "what the system has left", "give smaller inputs, or a part at a time"
    return MemoryError(message("run", f"memory for {what}", "", "more", expected, remedy))
