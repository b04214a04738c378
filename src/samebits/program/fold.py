"""Constant folding, and which values data cannot change.

requires: nothing.   ensures: no node reads constants alone. Start at `fold_constants`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from samebits.program import registry
from samebits.program.graph import Array, Node, Program

__all__ = ["fold_constants", "static_values"]

# Elements of a block: a few arrays of float32 in the second cache.
_BLOCK = 1 << 15


def fold_constants(program: Program) -> Program:
    """Nodes that read constants alone are computed now, by their reference."""
    constants: dict[str, Array] = dict(program.constants)
    nodes = []
    for node in program.nodes:
        known = [constants[name] for name in node.inputs if name in constants]
        if not node.inputs or len(known) < len(node.inputs) or _is_open(node.description):
            nodes.append(node)
            continue
        for name, array in zip(node.outputs, _computed(node, known), strict=True):
            array = np.ascontiguousarray(array) if array.ndim else array
            array.flags.writeable = False
            constants[name] = array
    return program.replace(nodes, constants=constants)


def _computed(node: Node, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The node's outputs by its reference; a large map in blocks of rows, whose temporaries stay in the cache."""
    reference = registry.ROWS[node.primitive].reference
    shape = np.broadcast_shapes(*[array.shape for array in arrays]) if node.primitive == "map" else ()
    if math.prod(shape) <= _BLOCK or len(node.outputs) != 1:
        return reference(node.description, arrays)
    step = max(1, _BLOCK * shape[0] // math.prod(shape))
    result: Array | None = None
    for start in range(0, shape[0], step):
        (block,) = reference(node.description, [_rows(array, shape, start, start + step) for array in arrays])
        result = np.empty(shape, block.dtype) if result is None else result
        result[start : start + step] = block
    assert result is not None  # the shape is not empty
    return (result,)


def _rows(array: Array, shape: tuple[int, ...], start: int, stop: int) -> Array:
    """Rows of an operand of that shape; all of it where it repeats."""
    return array[start:stop] if array.ndim == len(shape) and array.shape[0] != 1 else array


def _is_open(description: Any) -> bool:
    """Whether symbols are left in it."""
    if not hasattr(description, "bind"):
        return False
    try:
        description.bind({})
    except KeyError:
        return True
    return False


def static_values(program: Program) -> set[str]:
    """The values that follow from constants and sizes alone."""
    found = set(program.constants)
    for node in program.nodes:
        if found.issuperset(node.inputs):
            found.update(node.outputs)
    return found
