"""Exchange nodes that commute: a map of one operand with the views before it or behind it, a gather with the map before
it.

requires: for `map_before_view`, scalars are in expressions.   ensures: nothing but the same bits; elements are computed
alone, so it does not matter where they lie. Start at `map_before_view`.
"""

from __future__ import annotations

from samebits.operations import dim
from samebits.operations.elementwise import Map
from samebits.operations.fact import Fact, dense
from samebits.operations.moves import AxisGather
from samebits.program.graph import Node, Program, unused

__all__ = ["gather_first", "map_before_view", "reshape_before_map"]

# A table smaller than this is folded whole; above it only the rows that are asked for are computed.
_TABLE = 1 << 16
# Views that a map moves before: in a long chain of views and maps each map would pass all views.
_FARTHEST = 16


def map_before_view(program: Program) -> Program:
    """map(view(x)) becomes view(map(x)) where a computed x is used only there: then the map can join what makes x.

    Each map moves before the views in front of it, one after the other, in one pass over the nodes.
    """
    facts, nodes, users = dict(program.facts), list(program.nodes), program.users
    makers = {output: at for at, node in enumerate(nodes) for output in node.outputs}
    alone = {name for name, readers in users.items() if len(readers) == 1}
    for place in range(len(nodes)):
        at = place
        for _ in range(_FARTHEST):
            node = nodes[at]
            if not _is_unary(node) or node.inputs[0] not in makers or node.inputs[0] in program.outputs:
                break
            (source,) = node.inputs
            before = makers[source]
            view = nodes[before]
            moves = view.operation in ("reshape", "transpose") and alone.issuperset((source, *view.inputs))
            if not moves or view.inputs[0] not in makers:
                break
            nodes[before], nodes[at] = _exchanged(facts, view, node)
            for each in (before, at):
                makers[nodes[each].outputs[0]] = each
            alone.add(nodes[before].outputs[0])
            at = before
    return program.replace(nodes, facts)


def reshape_before_map(program: Program) -> Program:
    """reshape(map(x)) becomes map(reshape(x)) where x is given and only maps and rows read the reshape, which the map
    can then join."""
    facts, nodes = dict(program.facts), list(program.nodes)
    makers = {output: at for at, node in enumerate(nodes) for output in node.outputs}
    for at, view in enumerate(nodes):
        before = makers.get(view.inputs[0]) if view.operation == "reshape" else None
        if before is None or not _is_unary(nodes[before]) or nodes[before].inputs[0] not in program.inputs:
            continue
        (source,), (result,) = view.inputs, view.outputs
        is_alone = len(program.users[source]) == 1 and not {source, result} & {*program.output_names}
        if not is_alone or not {"map", "rows"}.issuperset(user.operation for user in program.users[result]):
            continue
        nodes[before], nodes[at] = _exchanged(facts, nodes[before], view)
        for each in (before, at):
            makers[nodes[each].outputs[0]] = each
    return program.replace(nodes, facts)


def _is_unary(node: Node) -> bool:
    return node.operation == "map" and len(node.inputs) == 1 and len(node.outputs) == 1


def _exchanged(facts: dict[str, Fact], first: Node, second: Node) -> tuple[Node, Node]:
    """The second takes the first's operand, the first makes what the second made; the value between is new, like its
    name. The map stands for both."""
    (result,) = second.outputs
    middle = unused(facts, f"{result}@{first.outputs[0]}")
    both = (*first.origin, *second.origin)
    origins = [both if node.operation == "map" else node.origin for node in (second, first)]
    before = Node(second.operation, first.inputs, (middle,), second.attributes, origins[0])
    (facts[middle],) = before.inferred(facts)
    after = Node(first.operation, (middle,), (result,), first.attributes, origins[1])
    (facts[result],) = after.inferred(facts)
    return before, after


def gather_first(program: Program) -> Program:
    """gather(map(table, ...), i) becomes map(gather(table, i), ...) for large constant tables along axis 0."""
    facts = dict(program.facts)
    nodes: list[Node] = []
    for node in program.nodes:
        table = program.producers.get(node.inputs[0]) if isinstance(node.attributes, AxisGather) else None
        # A scalar index takes an axis away, which operands of one row would bring back.
        wanted = table is not None and node.attributes == AxisGather(0) and program.facts[node.inputs[1]].rank > 0
        chain = _table_chain(program, table) if wanted else []
        if not chain:
            nodes.append(node)
            continue
        nodes += _gathered(facts, chain, node)
    return program.replace(nodes, facts)


def _table_chain(program: Program, node: Node | None) -> list[Node]:
    """The maps of constants that make a large table, in order; each operand has the table's rows, or one row."""
    if node is None or not isinstance(node.attributes, Map) or len(node.outputs) != 1:
        return []
    fact = program.facts[node.outputs[0]]
    rows = fact.shape[0] if fact.rank else 1
    if not dim.are_known(*fact.shape) or not isinstance(rows, int) or rows < 2:
        return []
    chain: list[Node] = []
    for name in node.inputs:
        operand = program.facts[name]
        if operand.rank == fact.rank and operand.shape[0] not in (1, rows):
            return []
        if name not in program.constants:
            before = _table_chain(program, program.producers.get(name))
            if not before:
                return []
            chain += [each for each in before if each not in chain]
    return [*chain, node] if dim.bind(dim.product(fact.shape), {}) >= _TABLE else []


def _gathered(facts: dict[str, Fact], chain: list[Node], gather: Node) -> list[Node]:
    """The chain on gathered operands; the last node makes the gather's output."""
    indices = gather.inputs[1]
    rows, rank = facts[gather.inputs[0]].shape[0], facts[gather.inputs[0]].rank
    known: dict[str, str] = {}
    nodes: list[Node] = []
    for node in chain:
        for name in node.inputs:
            fact = facts[name]
            if name in known or fact.rank < rank or fact.shape[0] != rows:
                continue
            known[name] = unused(facts, f"{name}[{gather.outputs[0]}]")
            facts[known[name]] = dense(fact.dtype, (*facts[indices].shape, *fact.shape[1:]))
            nodes.append(Node("gather", (name, indices), (known[name],), AxisGather(0), gather.origin))
        last = node is chain[-1]
        output = gather.outputs[0] if last else unused(facts, f"{node.outputs[0]}[{gather.outputs[0]}]")
        known[node.outputs[0]] = output
        inputs = tuple(known.get(name, name) for name in node.inputs)
        origin = (*node.origin, *(gather.origin if last else ()))
        nodes.append(Node("map", inputs, (output,), node.attributes, origin))
        (facts[output],) = nodes[-1].inferred(facts)
    return nodes
