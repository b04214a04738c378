"""Let what is computed of row results, and repeated along the rows again, be seen for what it is.

requires: scalars are in expressions.   ensures: maps and row expressions read values that are not written out to a
shape that the reading broadcasts them to anyway; maps of row results have their axes, those of extent 1 too, where a
front end drops these axes and puts them back. Only views change. Start at `read_before_expand` and `keep_row_axes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samebits.frozen import replace
from samebits.operations import dim
from samebits.operations.dim import SymbolicShape
from samebits.operations.fact import Fact
from samebits.operations.views import Reshape
from samebits.program.graph import Node, Program, unused

__all__ = ["keep_row_axes", "read_before_expand"]


def read_before_expand(program: Program) -> Program:
    """Maps and row expressions read what was expanded, not the expansion, where that makes the same shapes."""
    sources = {node.outputs[0]: node.inputs[0] for node in program.nodes if node.operation == "expand"}
    if not sources:
        return program
    return program.replace([_narrowed(program, node, sources) for node in program.nodes])


def _narrowed(program: Program, node: Node, sources: Mapping[str, str]) -> Node:
    if node.operation not in ("map", "rows"):
        return node
    for place, name in enumerate(node.inputs):
        if name not in sources:
            continue
        source = sources[name]
        while source in sources:
            source = sources[source]
        inputs = (*node.inputs[:place], source, *node.inputs[place + 1 :])
        if _are_same_shapes(node, *[[program.facts[each] for each in names] for names in (inputs, node.inputs)]):
            node = replace(node, inputs=inputs)
    return node


def _are_same_shapes(node: Node, given: Sequence[Fact], others: Sequence[Fact]) -> bool:
    """Whether the node has the same shapes of results, and of what they are computed over, from either operands."""
    if _shared(given) != _shared(others):  # which may be of fewer axes than the node names
        return False
    results = [[fact.shape for fact in node.row.infer(node.attributes, facts)] for facts in (given, others)]
    return results[0] == results[1]


def _shared(facts: Sequence[Fact]) -> SymbolicShape:
    """The shape that operands broadcast to: that of a map's results, and of the rows that are reduced."""
    return dim.broadcast_shapes([fact.shape for fact in facts])


def keep_row_axes(program: Program) -> Program:
    """map(reshape(r), ...) becomes reshape(map(r, ...)) where r has extent 1 along the axes that were reduced, and the
    reshape takes these away; a reshape that puts them back is then the map itself."""
    if not any(node.operation == "rows" for node in program.nodes):
        return program
    return _RowAxes(program).run()


class _RowAxes:
    """One pass over the nodes.

    `made` has the node behind each value as it is by then, `kept` the values that have the axes of rows, `same` those
    that turned out to be another value.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.facts = program, dict(program.facts)
        self.nodes: list[Node] = []
        self.made: dict[str, Node] = {}
        self.kept: set[str] = set()
        self.same: dict[str, str] = {}

    def run(self) -> Program:
        """The program with row axes kept."""
        for node in self.program.nodes:
            node = replace(node, inputs=tuple([self.same.get(name, name) for name in node.inputs]))
            if node.operation == "reshape" and self._is_undone(node):
                continue
            if node.operation == "map" and (pattern := self._pattern(node)) is not None:
                self._lift(node, *pattern)
                continue
            self._append(node)
            if node.operation == "rows":
                self.kept.update(node.outputs)
        return self.program.replace(self.nodes, self.facts)

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        self.made.update(dict.fromkeys(node.outputs, node))

    def _is_undone(self, node: Node) -> bool:
        """Whether a reshape undoes the one before it; then its output is noted as the same as the first operand."""
        (name,), (output,) = node.inputs, node.outputs
        source = self._source(name)
        if source is None or output in self.program.outputs or self.facts[source].shape != self.facts[output].shape:
            return False
        self.same[output] = source
        return True

    def _source(self, name: str) -> str | None:
        """The value with the axes of rows that a value is a reshape of."""
        node = self.made.get(name)
        if node is None or node.operation != "reshape" or node.inputs[0] not in self.kept:
            return None
        return node.inputs[0]

    def _pattern(self, node: Node) -> tuple[SymbolicShape, tuple[int, ...]] | None:
        """The shape with row axes that the map would have, and where it has more axes than the map's; or None."""
        shape = self.facts[node.outputs[0]].shape
        for name in node.inputs:
            source = self._source(name)
            if source is None or self.facts[name].shape != shape:
                continue
            places = _added(shape, self.facts[source].shape)
            if places is not None:
                return self.facts[source].shape, places
        return None

    def _lift(self, node: Node, shape: SymbolicShape, places: tuple[int, ...]) -> None:
        inputs = tuple([self._with_axes(name, len(shape), places) for name in node.inputs])
        outputs = tuple([unused(self.facts, f"{name}@rows") for name in node.outputs])
        made = replace(node, inputs=inputs, outputs=outputs)
        self.facts.update(zip(outputs, made.inferred(self.facts), strict=True))
        self.kept.update(outputs)
        self._append(made)
        for name, lifted in zip(node.outputs, outputs, strict=True):
            self._append(Node("reshape", (lifted,), (name,), Reshape(self.facts[name].shape), node.origin))

    def _with_axes(self, name: str, rank: int, places: tuple[int, ...]) -> str:
        """An operand of the map with axes of extent 1 where rows have them."""
        own = self.facts[name].shape
        if not own:
            return name
        rest = iter((1,) * (rank - len(places) - len(own)) + own)
        wanted: SymbolicShape = tuple([1 if place in places else next(rest) for place in range(rank)])
        source = self._source(name)
        if source is not None and self.facts[source].shape == wanted:
            return source
        made = unused(self.facts, f"{name}@rows")
        self.facts[made] = replace(self.facts[name], shape=wanted, stride_order=tuple(range(rank)))
        self._append(Node("reshape", (name,), (made,), Reshape(wanted)))
        return made


def _added(shape: SymbolicShape, wide: SymbolicShape) -> tuple[int, ...] | None:
    """The places of axes of extent 1 that `wide` has beside those of `shape`; None if it has other axes."""
    found, rest = [], list(shape)
    for place, size in enumerate(wide):
        if rest and rest[0] == size:
            rest.pop(0)
        elif size == 1:
            found.append(place)
        else:
            return None
    return None if rest else tuple(found)
