"""Constant folding, and which values data cannot change.

requires: nothing.   ensures: no node reads constants alone. Start at `fold_constants`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.program import registry
from samebits.program.graph import Array, Program

__all__ = ["fold_constants", "static_values"]


def fold_constants(program: Program) -> Program:
    """Nodes that read constants alone are computed now, by their reference."""
    constants: dict[str, Array] = dict(program.constants)
    nodes = []
    for node in program.nodes:
        known = [constants[name] for name in node.inputs if name in constants]
        if not node.inputs or len(known) < len(node.inputs) or _is_open(node.description):
            nodes.append(node)
            continue
        for name, array in zip(
            node.outputs, registry.ROWS[node.primitive].reference(node.description, known), strict=True
        ):
            array = np.ascontiguousarray(array) if array.ndim else array
            array.flags.writeable = False
            constants[name] = array
    return program.replace(nodes, constants=constants)


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
