"""Constant folding, and which values data cannot change.

requires: nothing.   ensures: no node reads constants alone, unless what it makes has no room (`room.Room`) or it is a
view of a packed constant. Weights that products pack are computed when they do, where they take more memory than what
they follow from: they are held in no other form than panels. What folding holds at any time, beside the model's own
constants, is at most 64 MiB and eight times these: results that nodes still read, and what one reference needs; what
needs up to 4 KiB is computed even beyond that. Start at `fold_constants`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from samebits import driver
from samebits.memory.chunks import Chunks
from samebits.memory.pages import MAPPED
from samebits.operations import dim
from samebits.operations.fact import Fact
from samebits.operations.operation import Array, Source
from samebits.program.constants import Constant, Deferred, array_of, sees_packed
from samebits.program.graph import Node, Program
from samebits.program.room import BYTES, GROWTH, Room, size_bytes

__all__ = ["fold_constants", "static_values"]


@driver.default_float_environment()
def fold_constants(program: Program) -> Program:
    """Nodes that read constants alone are computed now, by their reference, as long as there is room."""
    constants: dict[str, Constant] = dict(program.constants)
    room = Room(BYTES + GROWTH * sum(array.nbytes for array in constants.values()))
    static, lasting = static_values(program), set(program.outputs)
    for node in program.nodes:
        if not static.issuperset(node.outputs):
            lasting.update(node.inputs)
    chunks = Chunks()
    readers = {name: len(users) for name, users in program.users.items()}
    nodes = []
    for node in program.nodes:
        known = [constants[name] for name in node.inputs if name in constants]
        is_known = node.inputs and static.issuperset(node.outputs) and len(known) == len(node.inputs)
        is_known = is_known and not _is_open(node.attributes)
        if not is_known or sees_packed(node.operation, known) or not room.take(node, program.facts):
            nodes.append(node)
            continue
        if _is_packed_later(program, node, known):
            constants[node.outputs[0]] = _deferred(node, program.facts[node.outputs[0]], known)
        else:
            made = node.computed([array_of(x) for x in known])
            for name, array in zip(node.outputs, made, strict=True):
                constants[name] = _owned(array, chunks if name in lasting else None)
        for name in dict.fromkeys(node.inputs):
            readers[name] -= 1
            if not readers[name] and name not in program.constants and name not in program.outputs:
                room.give(constants.pop(name).nbytes)
    return program.replace(nodes, constants=constants)


def _is_packed_later(program: Program, node: Node, known: Sequence[Constant]) -> bool:
    """Whether a map dequantises a weight that only products read: they pack it from codes that take half its memory."""
    (output,), held = node.outputs[:1], sum(x.nbytes for x in known)
    if node.operation != "map" or len(node.outputs) > 1 or output in program.outputs:
        return False
    is_read_by_products = all(user.row.keep for user in program.users[output])
    needed = size_bytes(program.facts[output])
    return is_read_by_products and needed >= MAPPED and 2 * held <= needed and not any(map(_has_no_elements, known))


def _has_no_elements(value: Constant) -> bool:
    """Whether its elements are yet to be computed, or unpacked."""
    return not isinstance(value, np.ndarray)


def _deferred(node: Node, fact: Fact, known: Sequence[Constant]) -> Deferred:
    """The node's output, computed when somebody asks."""
    source = Source(node.operation, node.attributes, tuple(map(array_of, known)))
    return Deferred(np.dtype(fact.dtype.numpy), dim.bind_shape(fact.shape, {}), source)


def _owned(array: Array, chunks: Chunks | None) -> Array:
    """A read-only dense array, in chunks or with no more memory than its own."""
    kept = chunks.keep(array) if chunks else array
    if kept is array:
        kept = np.ascontiguousarray(array) if array.ndim else array
        if isinstance(kept.base, np.ndarray) and kept.base.nbytes > kept.nbytes:
            kept = kept.copy()
    kept.flags.writeable = False
    return kept


def _is_open(attributes: Any) -> bool:
    """Whether symbols are left in them."""
    if not hasattr(attributes, "bind"):
        return False
    try:
        attributes.bind({})
    except KeyError:
        return True
    return False


def static_values(program: Program) -> set[str]:
    """The values that follow from constants and sizes alone."""
    found = set(program.constants)
    for node in program.nodes:
        if found.issuperset(node.inputs) and node.row.folds:
            found.update(node.outputs)
    return found
