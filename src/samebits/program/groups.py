"""Join maps and row expressions that walk over the same elements, whoever else reads what they make.

Random numbers join the maps that read them: a number follows from its place (numerics.md section 13).

requires: maps are maximal, which leaves what several nodes read.   ensures: of two that one makes what the other reads,
or that read the same, none could join; `refusal` says why. A value that is read elsewhere becomes one more result of
the joined node: it is computed once and keeps its rounding (numerics.md section 11). Start at `join_groups`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from samebits.frozen import dataclass
from samebits.operations.dim import SymbolicShape
from samebits.operations.elementwise import Map
from samebits.operations.fact import Fact
from samebits.operations.rows import RowWise, row_extents
from samebits.operations.views import text
from samebits.program.compose import Applied, itself, join
from samebits.program.fold import static_values
from samebits.program.fuse import LARGEST, excess, expression_size, joined_origin
from samebits.program.graph import Node, Program

__all__ = ["join_groups", "refusal"]

_KINDS = ("map", "rows")
# Operations that are joined: these two, and random numbers that they read.
_JOINED = (*_KINDS, "random")
# Nodes that are looked at between two that could join: what is read far away stays, so that time stays linear.
_FARTHEST = 256


@dataclass(frozen=True, slots=True)
class _Space:
    """What a node walks over: its elements, and the axes along which they are rows (none of a map)."""

    shape: SymbolicShape
    axes: tuple[int, ...]

    @property
    def row(self) -> SymbolicShape:
        """The shape of what is one value a row."""
        rank = len(self.shape)
        return tuple([1 if place - rank in self.axes else size for place, size in enumerate(self.shape)])


def join_groups(program: Program) -> Program:
    """Every map and row expression joined with those before it, and then with those beside it, as far as they go."""
    kinds = [node.operation for node in program.nodes if node.operation in _JOINED]
    if len(kinds) < 2 or not set(kinds) & set(_KINDS):
        return program
    groups = _Groups(program)
    for number in list(groups.nodes):
        while number in groups.nodes and groups.join_producer(number):
            pass
    for name in (*program.input_names, *program.facts):
        groups.join_readers(name)
    return program.replace(groups.ordered())


def refusal(program: Program, first: Node, second: Node) -> str:
    """Why two nodes of a transformed program, of which the second reads what the first makes, are not one kernel."""
    others = [first.operation] * (first.operation not in _JOINED)
    others += [second.operation] * (second.operation not in _KINDS)
    if others:
        if others == ["random"] and first.operation == "random":
            return "a kernel draws one sequence of numbers"
        return f"{' and '.join(dict.fromkeys(others))} is no work on elements or rows"
    found = _joined(program.facts, first, second, _read_elsewhere(program, first, second))
    return found if isinstance(found, str) else "other kernels lie between them"


def _read_elsewhere(program: Program, first: Node, second: Node) -> set[str]:
    readers = {name: [node for node in program.users[name] if node is not second] for name in first.outputs}
    return {name for name in first.outputs if readers[name] or name in program.output_names}


class _Groups:
    """Nodes by number, as they are joined: whatever a node reads is made by one with a smaller number.

    Maps and rows have the smallest numbers that they can have, so that few other nodes come between them. `places` has
    the place among the program's nodes that a node is put back to, where what it reads allows that.
    """

    def __init__(self, program: Program) -> None:
        self.facts, self.outputs = program.facts, frozenset(program.output_names)
        self.static = static_values(program)
        order = _maps_first(program)
        self.nodes = {number: program.nodes[place] for number, place in enumerate(order)}
        self.places = dict(enumerate(order))
        self.maker = {name: number for number, node in self.nodes.items() for name in node.outputs}
        self.readers: dict[str, set[int]] = {name: set() for name in program.facts}
        for number, node in self.nodes.items():
            for name in node.inputs:
                self.readers[name].add(number)

    def join_producer(self, number: int) -> bool:
        """Join a node with a producer of an input, random numbers as the last choice; whether there was one to join."""
        makers = sorted(self._makers(number), key=lambda maker: self.nodes[maker].operation == "random")
        return any(self._join(first, number) for first in makers)

    def join_readers(self, name: str) -> None:
        """Join nodes that read the same elements, each with the last one before it of every way to walk over them."""
        last: dict[_Space, int] = {}
        for number in sorted(self.readers[name]):
            if self.nodes[number].operation not in _KINDS or self._space(number).shape != self.facts[name].shape:
                continue
            for space, before in list(last.items()):
                if self._join(before, number):
                    del last[space]
            last[self._space(number)] = number

    def _space(self, number: int) -> _Space:
        return _space(self.facts, self.nodes[number])

    def _makers(self, number: int) -> list[int]:
        """The nodes that make what a node reads, each once."""
        return list(dict.fromkeys(self.maker[name] for name in self.nodes[number].inputs if name in self.maker))

    def _join(self, first: int, second: int) -> bool:
        """Whether the node that comes first became a part of the second one."""
        one, other = self.nodes[first], self.nodes[second]
        if one.operation not in _JOINED or other.operation not in _KINDS:
            return False
        if self._is_static(one) or self._is_static(other):
            return False
        elsewhere = {x: self.readers[x] - {second} for x in one.outputs}
        if any(number < second for readers in elsewhere.values() for number in readers):
            return False
        if self._is_between(first, second):
            return False
        made = _joined(self.facts, one, other, {x for x in one.outputs if x in self.outputs or elsewhere[x]})
        if isinstance(made, str):
            return False
        for number in (first, second):
            for name in self.nodes[number].inputs:
                self.readers[name].discard(number)
        del self.nodes[first]
        self.nodes[second] = made
        self.places[second] = max(self.places.pop(first), self.places[second])
        self.maker.update(dict.fromkeys(made.outputs, second))
        for name in made.inputs:
            self.readers[name].add(second)
        return True

    def _is_static(self, node: Node) -> bool:
        return self.static.issuperset(node.outputs)

    def _is_between(self, first: int, second: int) -> bool:
        """Whether a node that is neither of them runs after the first and before the second; so it is said too where
        finding out would take too long."""
        pending, seen = [number for number in self._makers(second) if number != first], set[int]()
        while pending:
            number = pending.pop()
            if number in seen or number < first:
                continue
            if number == first or len(seen) > _FARTHEST:
                return True
            seen.add(number)
            pending += self._makers(number)
        return False

    def ordered(self) -> list[Node]:
        """The nodes, each after what it reads, else in the order of their places."""
        found, done = [], set[int]()
        for start in sorted(self.nodes, key=self.places.__getitem__):
            stack = [start]
            while stack:
                number = stack[-1]
                waiting = [] if number in done else [maker for maker in self._makers(number) if maker not in done]
                if waiting:
                    stack += waiting
                    continue
                stack.pop()
                if number not in done:
                    done.add(number)
                    found.append(self.nodes[number])
        return found


def _maps_first(program: Program) -> list[int]:
    """The places of the nodes in an order that runs: maps and rows first wherever they can be."""
    waits = [len({name for name in node.inputs if name in program.producers}) for node in program.nodes]
    readers: dict[str, list[int]] = {}
    for place, node in enumerate(program.nodes):
        for name in set(node.inputs):
            readers.setdefault(name, []).append(place)
    early, late = deque[int](), deque[int]()
    order: list[int] = []

    def ready(place: int) -> None:
        (early if program.nodes[place].operation in _KINDS else late).append(place)

    for place, count in enumerate(waits):
        if not count:
            ready(place)
    while early or late:
        place = (early or late).popleft()
        order.append(place)
        for name in program.nodes[place].outputs:
            for reader in readers.get(name, ()):
                waits[reader] -= 1
                if not waits[reader]:
                    ready(reader)
    return order


def _space(facts: Mapping[str, Fact], node: Node) -> _Space:
    if isinstance(node.attributes, RowWise):
        shape, _ = row_extents([facts[name].shape for name in node.inputs], node.attributes.axes)
        return _Space(shape, tuple(sorted(node.attributes.axes)))
    return _Space(facts[node.outputs[0]].shape, ())


def _joined(facts: Mapping[str, Fact], first: Node, second: Node, keep: Collection[str]) -> Node | str:
    """Both as one node, of whose first results those in `keep` stay; or why they cannot be."""
    if first.operation == "random":
        return _drawn(facts, first, second, keep)
    space = _common(_space(facts, first), _space(facts, second))
    if isinstance(space, str):
        return space
    too_large = excess(first, second)
    if too_large:
        return too_large
    applied = []
    for node in (first, second):
        assert isinstance(node.attributes, Map | RowWise)  # by their operations
        applied.append(Applied(node.attributes.expression, node.inputs, node.outputs))
    both = join(applied[0], applied[1], keep)
    if any(facts[name].dtype.width_bits < 8 for name in both.outputs) and (space.axes or len(both.outputs) > 1):
        return "elements of fewer than 8 bits are packed as they are made by a kernel of nothing else"
    attributes = RowWise(both.expression, space.axes) if space.axes else Map(both.expression)
    operation = "rows" if space.axes else "map"
    made = Node(operation, both.inputs, both.outputs, attributes, joined_origin(first, second))
    found = [fact.shape for fact in made.inferred(facts)]
    if _space(facts, made).shape != space.shape or found != [facts[name].shape for name in both.outputs]:
        return "what is one value a row is a result that is repeated along it"
    return made


def _drawn(facts: Mapping[str, Fact], first: Node, second: Node, keep: Collection[str]) -> Node | str:
    """One node of random numbers, what is computed of them, and a map that reads that; or the reason why not."""
    from samebits.operations.random import Drawn  # which programs that draw nothing do without

    drawn, read = first.attributes, second.attributes
    assert isinstance(drawn, Drawn)  # by its operation
    if not isinstance(read, Map):
        return "numbers are drawn beside work on elements, not beside rows"
    made = facts[second.outputs[0]].shape
    if made != drawn.shape:
        return f"one makes {text(drawn.shape)}, the other {text(made)}"
    if expression_size(second) + len(drawn.after.nodes if drawn.after else ()) > LARGEST:
        return f"together they are more than {LARGEST} operations"
    own = Applied(drawn.after or itself(drawn.random.dtype), ("", *first.inputs[4:]), first.outputs)
    both = join(own, Applied(read.expression, second.inputs, second.outputs), keep)
    names = (*both.inputs[1:], *both.outputs)
    if any(facts[name].dtype.width_bits < 8 for name in names):
        return "elements of fewer than 8 bits are packed and taken apart by kernels that draw nothing"
    attributes = Drawn(drawn.random, drawn.shape, both.expression)
    origin = joined_origin(first, second)
    return Node("random", (*first.inputs[:4], *both.inputs[1:]), both.outputs, attributes, origin)


def _common(one: _Space, other: _Space) -> _Space | str:
    """What both walk over together; or why there is no such thing."""
    if one.axes and other.axes:
        if one.shape != other.shape:
            return f"one reduces {text(one.shape)}, the other {text(other.shape)}"
        return one if one.axes == other.axes else f"one reduces axes {list(one.axes)}, the other {list(other.axes)}"
    if not one.axes and not other.axes:
        return one if one.shape == other.shape else f"one makes {text(one.shape)}, the other {text(other.shape)}"
    rows, per_element = (one, other) if one.axes else (other, one)
    if per_element.shape in (rows.shape, rows.row):
        return rows
    return f"one has rows of {text(rows.shape)} along axes {list(rows.axes)}, the other makes {text(per_element.shape)}"
