"""A gather of places that follow each other is a view: a slice, under the shape that the indices give it.

Models look up positions so (rows 0 to n of a table), and exporters write a mask that is read at every place as a gather
of all its indices.

requires: nothing.   ensures: no gather reads places that are known to count up by one along axes of its indices, and to
be there, unless what it reads is a large table that is yet to be computed. Start at `gather_as_view`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np

from samebits.errors import ShapeError
from samebits.frozen import dataclass
from samebits.operations import dim
from samebits.operations.dim import Size
from samebits.operations.fact import Fact
from samebits.operations.moves import AxisGather, Concat, GatherND, Range
from samebits.operations.views import Expand, Reshape, Slice
from samebits.program.constants import Constant
from samebits.program.fold import static_values
from samebits.program.graph import Node, Program, unused
from samebits.program.room import size_bytes

__all__ = ["gather_as_view"]

# Views between a gather and the numbers that count up, and how many of these are looked at.
_FARTHEST, _NUMBERS = 16, 1 << 16
# Bytes of a table that follows from constants: all rows of a smaller one are computed, once for every size.
_TABLE = 1 << 22


@dataclass(frozen=True, slots=True)
class _Counted:
    """Integers that are `start` plus their index along `axis`, or all `start` where that is None."""

    start: int
    axis: int | None


def gather_as_view(program: Program) -> Program:
    """Gathers of places that follow each other become views."""
    if not any(isinstance(node.attributes, AxisGather | GatherND) for node in program.nodes):
        return program
    facts, static = dict(program.facts), static_values(program)
    nodes: list[Node] = []
    for node in program.nodes:
        views = list[Node]()
        if _is_wanted(program, static, node):
            with contextlib.suppress(ShapeError):  # of sizes that are too large to be computed with
                views = _viewed(program, facts, node)
        nodes += views or [node]
    return program.replace(nodes, facts)


def _is_wanted(program: Program, static: set[str], node: Node) -> bool:
    """Whether a node gathers by indices that follow from constants and sizes, from what is no large table that is yet
    to be computed."""
    if not isinstance(node.attributes, AxisGather | GatherND) or node.inputs[1] not in static:
        return False
    (source, _), table = node.inputs, program.facts[node.inputs[0]]
    if source not in static or source in program.constants:
        return True
    return dim.are_known(*table.shape) and size_bytes(table) <= _TABLE


def _viewed(program: Program, facts: dict[str, Fact], node: Node) -> list[Node]:
    """The views that make what the node makes; none if there are no such."""
    source, index = node.inputs
    shape, indices = facts[source].shape, facts[index].shape
    if isinstance(node.attributes, AxisGather):
        first, columns = node.attributes.axis, [index]
    else:
        first, columns, indices = 0, _columns(program, index), indices[:-1]
    starts: list[Size] = [0] * len(shape)
    block: list[Size] = [1] * len(indices)
    counts, last = list(shape), -1
    for place, name in enumerate(columns, first):
        found = _counted(program, name)
        if found is None or found.start < 0 or (found.axis is not None and found.axis <= last):
            return []
        count: Size = 1
        if found.axis is not None:
            last, count = found.axis, indices[found.axis]
            block[last] = count
        if not _is_within(found.start, count, shape[place]):
            return []
        starts[place], counts[place] = found.start, count
    if not columns:
        return []
    behind = shape[first + len(columns) :]
    views: list[Slice | Reshape | Expand] = []
    if tuple(counts) != shape:
        views.append(Slice(tuple(starts), tuple(counts), (1,) * len(shape)))
    views.append(Reshape((*shape[:first], *block, *behind)))
    if tuple(block) != indices:
        views.append(Expand((*shape[:first], *indices, *behind)))
    return _chain(facts, node, views)


def _chain(facts: dict[str, Fact], node: Node, views: Sequence[Slice | Reshape | Expand]) -> list[Node]:
    """One view after the other; the last makes the node's output."""
    source, nodes = node.inputs[0], list[Node]()
    for number, view in enumerate(views, 1):
        output = node.outputs[0] if number == len(views) else unused(facts, f"{node.outputs[0]}@{number}")
        nodes.append(Node(type(view).__name__.lower(), (source,), (output,), view, node.origin))
        (facts[output],) = nodes[-1].inferred(facts)
        source = output
    return nodes


def _is_within(start: int, count: Size, extent: Size) -> bool:
    """Whether so many places from `start` on are sure to be there."""
    if start and isinstance(extent, int):
        return dim.is_at_most(count, extent - start)
    return not start and dim.is_at_most(count, extent)


def _columns(program: Program, index: str) -> list[str]:
    """The values that a last axis of indices is made of, each of extent 1 there; none if it is not made so."""
    node, rank = program.producers.get(index), program.facts[index].rank
    if node is None or node.attributes != Concat(rank - 1):
        return []
    return list(node.inputs) if all(program.facts[name].shape[-1] == 1 for name in node.inputs) else []


def _counted(program: Program, name: str) -> _Counted | None:
    """What a value counts up from, and along which axis; None if it is not known to."""
    views = list[Node]()
    while name in program.producers and len(views) < _FARTHEST:
        node = program.producers[name]
        if not isinstance(node.attributes, Reshape | Slice | Expand):
            break
        views.append(node)
        (name,) = node.inputs
    found: _Counted | None = None
    if name in program.constants:
        found = _of_constant(program.constants[name])
    elif name in program.producers and isinstance(numbers := program.producers[name].attributes, Range):
        found = _Counted(numbers.start, 0) if isinstance(numbers.start, int) and numbers.step == 1 else None
    for node in reversed(views):
        if found is None or found.axis is None:
            return found
        found = _through(found.start, found.axis, node, program.facts)
    return found


def _of_constant(constant: Constant) -> _Counted | None:
    """The same of integers in memory."""
    if not isinstance(constant, np.ndarray) or not 1 <= constant.size <= _NUMBERS:
        return None
    start, axes = int(constant.flat[0]), [axis for axis, extent in enumerate(constant.shape) if extent > 1]
    for axis in axes:
        along = start + np.arange(constant.shape[axis]).reshape(-1, *[1] * (constant.ndim - axis - 1))
        if (constant == along).all():
            return _Counted(start, axis)
    return _Counted(start, None) if (constant == start).all() else None


def _through(start: int, axis: int, node: Node, facts: Mapping[str, Fact]) -> _Counted | None:
    """What a view makes of integers that count up along an axis."""
    view, shape, wanted = node.attributes, facts[node.inputs[0]].shape, facts[node.outputs[0]].shape
    if isinstance(view, Slice):
        first = view.starts[axis]
        return _Counted(start + first, axis) if isinstance(first, int) and view.steps[axis] == 1 else None
    if isinstance(view, Expand):
        moved = axis + len(wanted) - len(shape)
        return _Counted(start, moved) if wanted[moved] == shape[axis] else None
    if shape[axis] == 1:
        return _Counted(start, None)
    before, after = ([place for place, size in enumerate(each) if size != 1] for each in (shape, wanted))
    if [shape[place] for place in before] != [wanted[place] for place in after]:
        return None
    return _Counted(start, after[before.index(axis)])
