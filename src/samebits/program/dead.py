"""Remove what no output needs, and what is computed twice.

requires: nothing.   ensures: every node and every output of an expression is needed; with `merge_equal`, no two nodes
apply the same operation to the same values. Start at `remove_dead`.
"""

from __future__ import annotations

from samebits.frozen import replace
from samebits.kernels.expression import Chain, Expression
from samebits.operations.elementwise import Map
from samebits.operations.rows import RowWise
from samebits.program.graph import Node, Program

__all__ = ["merge_equal", "remove_dead"]


def remove_dead(program: Program) -> Program:
    """Without the nodes that no output depends on, and without outputs of expressions that nothing reads."""
    needed = set(program.outputs)
    kept: list[Node] = []
    for node in reversed(program.nodes):
        if needed.isdisjoint(node.outputs):
            continue
        node = _narrowed(node, needed)
        needed.update(node.inputs)
        kept.append(node)
    return program.replace(reversed(kept))


def _narrowed(node: Node, needed: set[str]) -> Node:
    """The node with the needed outputs alone; inputs stay, because they decide its shape."""
    attributes = node.attributes
    if all(name in needed for name in node.outputs) or not isinstance(attributes, Map | RowWise):
        return node
    places = [place for place, name in enumerate(node.outputs) if name in needed]
    expression = _selected(attributes.expression, places)
    return replace(
        node,
        outputs=tuple(node.outputs[place] for place in places),
        attributes=replace(attributes, expression=expression),
    )


def _selected(expression: Expression, places: list[int]) -> Expression:
    chain = Chain()
    made = chain.include(expression, *[chain.input(dtype) for dtype in expression.inputs])
    return chain.finish(*[made[place] for place in places])


def merge_equal(program: Program) -> Program:
    """With one node for all that apply the same operation to the same values."""
    seen: dict[object, Node] = {}
    renamed: dict[str, str] = {}
    kept: list[Node] = []
    for node in program.nodes:
        if not renamed.keys().isdisjoint(node.inputs):
            node = replace(node, inputs=tuple(renamed.get(name, name) for name in node.inputs))
        key = (node.operation, node.inputs, node.attributes)
        first = seen.setdefault(key, node)
        if first is node or not set(program.outputs).isdisjoint(node.outputs):
            kept.append(node)
        else:
            renamed.update(zip(node.outputs, first.outputs, strict=True))
    return program.replace(kept)
