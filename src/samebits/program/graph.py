"""Programs: nodes that apply operations to named values, once each, in an order that runs.

A `Program` is immutable; transforms make new ones. Its text (`str`) is for reading, its `digest` covers the text and
every constant. Names are those of the model where it has them. Start at `Program`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from samebits.errors import ModelError, ShapeError, printable
from samebits.frozen import dataclass
from samebits.operations import dim, registry
from samebits.operations.fact import Fact
from samebits.operations.operation import Array, Operation
from samebits.program.constants import Constant, array_of
from samebits.tensor import Tensor

__all__ = ["Node", "Program", "live", "unused"]


@dataclass(frozen=True, slots=True)
class Node:
    """One application of an operation.

    Attributes:
        operation: The name of a row of `operations.registry.ROWS`.
        inputs: The values it reads.
        outputs: The values it makes.
        attributes: What the operation needs to know beside its operands; prints itself, compares by value.
        origin: The nodes of the model that it stands for, in their order.
    """

    operation: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Hashable = None
    origin: tuple[str, ...] = ()

    @property
    def row(self) -> Operation:
        """What its operation is."""
        return registry.ROWS[self.operation]

    @property
    def label(self) -> str:
        """What messages call it: the nodes of the model, or what it makes where it stands for none."""
        return "+".join(self.origin) or ", ".join(self.outputs)

    def inferred(self, facts: Mapping[str, Fact]) -> tuple[Fact, ...]:
        """The facts of its outputs, by those of its inputs.

        Raises:  ShapeError, DTypeError or PlanError if its operation does not take such operands.
        """
        return self.row.infer(self.attributes, [facts[name] for name in self.inputs])

    def computed(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Its outputs for these inputs, by its operation's reference; no symbol is left in its attributes."""
        return self.row.reference(self.attributes, arrays)

    def bind(self, symbols: Mapping[str, int]) -> Node:
        """This node with every symbol of its attributes replaced by its value."""
        attributes: Any = self.attributes
        if not hasattr(attributes, "bind"):
            return self
        return Node(self.operation, self.inputs, self.outputs, attributes.bind(symbols), self.origin)


@dataclass(frozen=True, eq=False)
class Program:
    """Nodes in an order that runs, the facts of every value, and the values that are known or given.

    Attributes:
        name: The model's name.
        facts: One for each value.
        nodes: Each reads inputs, constants and outputs of earlier nodes only.
        constants: Values known before anything runs, read-only.
        input_names: The values that a caller gives, in order.
        output_names: The values that a caller gets, in order.
        transforms: The names of the transforms that made it, for those that are not exact (numerics.md section 11).
    """

    name: str
    facts: Mapping[str, Fact]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Constant]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    transforms: tuple[str, ...] = ()
    _digests: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))

    @cached_property
    def inputs(self) -> Mapping[str, Fact]:
        """The facts of the values that a caller gives, in order."""
        return MappingProxyType({name: self.facts[name] for name in self.input_names})

    @cached_property
    def outputs(self) -> Mapping[str, Fact]:
        """The facts of the values that a caller gets, in order."""
        return MappingProxyType({name: self.facts[name] for name in self.output_names})

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """The node that makes each value; inputs and constants have none."""
        return {output: node for node in self.nodes for output in node.outputs}

    @cached_property
    def users(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each value, each once; a program output that no node reads has none."""
        found: dict[str, list[Node]] = {name: [] for name in self.facts}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The names of the sizes that the inputs leave open, in the order met."""
        names: dict[str, None] = {}
        for fact in self.inputs.values():
            for size in fact.shape:
                names.update(dict.fromkeys(sorted(dim.symbols(size))))
        return tuple(names)

    def index_limits(self, bindings: Mapping[str, int]) -> dict[str, int]:
        """For each input that indexes something, the first index that is too large with these sizes.

        An extent that is refused with them limits nothing: the run says why.
        """
        limits: dict[str, int] = {}
        for node in self.nodes:
            if node.operation != "gather":
                continue
            name = node.inputs[1]
            while name in self.producers and len(self.producers[name].inputs) == 1:
                (name,) = self.producers[name].inputs
            if name not in self.inputs:
                continue
            with contextlib.suppress(ShapeError):
                extent = dim.bind(self.facts[node.inputs[0]].shape[getattr(node.attributes, "axis", 0)], bindings)
                limits[name] = min(extent, limits.get(name, extent))
        return limits

    def replace(
        self,
        nodes: Iterable[Node],
        facts: Mapping[str, Fact] | None = None,
        constants: Mapping[str, Constant] | None = None,
    ) -> Program:
        """This program with other nodes; facts and constants that nothing mentions any more are dropped.

        Where nothing is other it is this very program, with what it knows of itself.
        """
        nodes = tuple(nodes)
        facts = self.facts if facts is None else facts
        constants = self.constants if constants is None else constants
        if nodes == self.nodes and facts == self.facts and constants.keys() == self.constants.keys():
            return self
        mentioned = {*self.input_names, *self.output_names}
        for node in nodes:
            mentioned.update(node.inputs, node.outputs)
        return Program(
            self.name,
            {name: fact for name, fact in facts.items() if name in mentioned},
            nodes,
            {name: array for name, array in constants.items() if name in mentioned},
            self.input_names,
            self.output_names,
            self.transforms,
        )

    def check(self) -> None:
        """Raise ModelError unless every value is made once, before it is read, and has a fact."""
        known = {*self.input_names, *self.constants}
        for node in self.nodes:
            for name in node.inputs:
                if name not in known:
                    raise _malformed(
                        f"input {name!r} of {_origin(node)}", "not made by then", "made by an earlier node"
                    )
            for name in node.outputs:
                if name in known:
                    raise _malformed(f"output {name!r} of {_origin(node)}", "made before", "made once")
                known.add(name)
        for name in self.output_names:
            if name not in known:
                raise _malformed(f"output {name!r}", "made by no node", "made by a node")
        for name in known:
            if name not in self.facts:
                raise _malformed(f"value {name!r}", "without a fact", "typed")

    def digest(self) -> str:
        """SHA-256 of the text and of every constant's bytes, in hexadecimal."""
        if "sha256" not in self._digests:
            import hashlib  # which a start does without

            state = hashlib.sha256("\n".join(self._lines()).encode())
            for name in sorted(self.constants):
                constant = self.constants[name]
                state.update(f"{name} {constant.dtype} {constant.shape}".encode())
                if isinstance(constant, Tensor):
                    state.update(constant.tobytes())
                    continue
                array = np.ascontiguousarray(array_of(constant))
                state.update(array.view(np.uint8).data if array.size and array.ndim else array.tobytes())
            self._digests["sha256"] = state.hexdigest()
        return self._digests["sha256"]

    def __str__(self) -> str:
        return "\n".join(map(printable, self._lines()))

    def _lines(self) -> list[str]:
        """The text, with names as they are."""
        lines = [f"program {self.name}"]
        lines += [f"  input {name}: {self.facts[name]}" for name in self.input_names]
        used = live(self.nodes, self.output_names)
        lines += [
            f"  constant {name}: {self.facts[name]}{' packed' if isinstance(constant, Tensor) else ''}"
            for name, constant in self.constants.items()
            if name in used
        ]
        for node in self.nodes:
            made = ", ".join(f"{name}: {self.facts[name]}" for name in node.outputs)
            words = [*node.inputs, *([str(node.attributes)] if node.attributes is not None else [])]
            lines.append(f"  {made} = {node.operation}({', '.join(words)})")
        lines += [f"  output {name}" for name in self.output_names]
        return [*lines, *(f"  transform {name}" for name in self.transforms)]


def unused(facts: Mapping[str, Fact], name: str) -> str:
    """A name like this one that no value has."""
    while name in facts:
        name += "'"
    return name


def live(nodes: Sequence[Node], outputs: Iterable[str]) -> set[str]:
    """The values that the outputs depend on, themselves included."""
    needed = set(outputs)
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
    return needed


def _origin(node: Node) -> str:
    return f"{node.operation} ({', '.join(node.origin) or 'no origin'})"


def _malformed(what: str, actual: str, expected: str) -> ModelError:
    return ModelError("Program.check", what, "", actual, expected, "report the transform that made it")
