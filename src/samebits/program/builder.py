"""Making a program node by node; every value is typed as it is added.

Shape arithmetic folds on the way: a node whose integers are known (`integers`) becomes `dims`, a node of small
constants becomes a constant. Values get numbers for names (`%7`) until `build`, which gives them the model's. Start at
`ProgramBuilder`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Hashable, Mapping, Sequence

import numpy as np

from samebits import driver, dtypes, elements
from samebits.conversions import SB1, Conversion
from samebits.dtypes import DType
from samebits.errors import OptionError, shown
from samebits.kernels.expression import Expression
from samebits.operations import dim, registry
from samebits.operations.dim import Size, SymbolicShape
from samebits.operations.elementwise import Map, single
from samebits.operations.fact import Fact, check_extents, dense
from samebits.operations.matmul import MatrixProduct
from samebits.operations.moves import AxisGather, Concat, Dims
from samebits.operations.operation import Array
from samebits.operations.product import PLAIN, Options
from samebits.operations.rows import RowWise
from samebits.operations.views import Expand, Reshape, Slice, Transpose
from samebits.program import integers
from samebits.program.constants import Value, array_of, given, sees_packed
from samebits.program.graph import Node, Program
from samebits.program.room import Room, reach_bytes, size_bytes
from samebits.tensor import Tensor

__all__ = ["ProgramBuilder"]

# Constants of at most this many elements fold as they are added; larger ones wait for the transform.
_SMALL = 1024


class ProgramBuilder:
    """A program under construction.

    Attributes:
        facts: Of every value so far.
        origin: What nodes are added for, from now on: the names of the model's nodes.
        room: What constants that are computed as the program is built may take.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.facts: dict[str, Fact] = {}
        self.origin: tuple[str, ...] = ()
        self.room = Room()
        self._nodes: list[Node] = []
        self._constants: dict[str, Value] = {}
        self._inputs: list[str] = []
        self._known: dict[str, SymbolicShape] = {}
        self._fresh: set[str] = set()
        # Each fact once; and what nodes make, by what they are asked for of facts, which are kept beside.
        self._shared: dict[Fact, Fact] = {}
        self._inferred: dict[tuple[Hashable, ...], tuple[Sequence[Fact], tuple[Fact, ...]]] = {}

    # -- values that no node makes ------------------------------------------------------------------------------
    def input(self, name: str, dtype: DType, shape: SymbolicShape) -> str:
        """A value that the caller gives; its name, like that of a constant, must be new."""
        self.facts[name] = dense(dtype, shape)
        self._inputs.append(name)
        return name

    def constant(self, value: Value, name: str | None = None) -> str:
        """A value that is known: an array, or a Tensor, which stays packed if it is."""
        name = name or self._name()
        array = given(value) if isinstance(value, Tensor) else value
        if isinstance(array, Tensor):
            self._constants[name] = array
            self.facts[name] = dense(array.dtype, array.shape)
            return name
        # A view: the caller's own array stays writeable.
        array = (np.ascontiguousarray(array) if array.ndim else np.array(array)).view()
        array.flags.writeable = False
        self._constants[name] = array
        self.facts[name] = dense(dtypes.of(array.dtype), array.shape)
        if array.dtype.kind in "iub" and array.ndim <= 1 and array.size <= integers.LIMIT:
            self._known[name] = tuple(int(value) for value in array.ravel())
        return name

    def scalar(self, value: float | int | bool, dtype: DType) -> str:
        """A known scalar, rounded once to `dtype`."""
        return self.constant(elements.rounded(value, dtype))

    def integers(self, name: str) -> SymbolicShape | None:
        """The integers of a value of rank 0 or 1 if they are known, symbols allowed."""
        return self._known.get(name)

    def array(self, name: str) -> Array | None:
        """The elements of a constant."""
        found = self._constants.get(name)
        return None if found is None else array_of(found)

    # -- nodes -----------------------------------------------------------------------------------------------------
    def add(self, operation: str, inputs: Sequence[str], attributes: Hashable = None) -> tuple[str, ...]:
        """A node; gives its outputs' names.

        Raises:  ShapeError or DTypeError if the operation does not take these operands.
        """
        row, facts = registry.ROWS[operation], self._results(operation, attributes, inputs)
        if len(facts) == 1 and operation != "dims":
            known = integers.propagate(operation, attributes, [self._known.get(name) for name in inputs], facts[0].rank)
            if known is not None and facts[0].dtype is dtypes.int64:
                return (self.dims(known, scalar=facts[0].rank == 0),)
        else:
            known = None
        arrays = [self._constants.get(name) for name in inputs]
        small = inputs and all(array is not None and array.size <= _SMALL for array in arrays) and _is_small(facts)
        small = small and row.folds and not sees_packed(operation, arrays)
        if small and self.room.take_bytes(sum(map(size_bytes, facts))):
            with driver.default_float_environment():
                made = row.reference(attributes, [array_of(array) for array in arrays if array is not None])
            return tuple(self.constant(array) for array in made)
        outputs = tuple(self._name() for _ in facts)
        self._nodes.append(Node(operation, tuple(inputs), outputs, attributes, self.origin))
        self.facts.update(zip(outputs, facts, strict=True))
        if known is not None:
            self._known[outputs[0]] = known
        return outputs

    def _results(self, operation: str, attributes: Hashable, inputs: Sequence[str]) -> tuple[Fact, ...]:
        """The facts of a node's outputs; equal ones are one object, by which a node like one before is known."""
        try:
            operands = [self.facts[name] for name in inputs]
        except KeyError as error:
            actual, remedy = shown(error.args[0]), "define it first"
            raise OptionError(operation, "operand", "", actual, "a value of this program", remedy) from None
        key = (operation, attributes, *map(id, operands))
        found = self._inferred.get(key)
        if found is None:
            made = registry.ROWS[operation].infer(attributes, operands)
            check_extents(operation, made)
            found = self._inferred[key] = operands, tuple([self._shared.setdefault(fact, fact) for fact in made])
        return found[1]

    def dims(self, sizes: SymbolicShape, scalar: bool = False) -> str:
        """Known integers as an int64 value."""
        if all(isinstance(size, int) for size in sizes):
            array = np.array(sizes, np.int64)
            return self.constant(array.reshape(()) if scalar else array)
        (name,) = self.add("dims", (), Dims(sizes, scalar))
        self._known[name] = sizes
        return name

    def apply(self, op: str, *inputs: str, cast_to: DType | None = None, conversion: Conversion = SB1) -> str:
        """One per-element operation; a cast says to what, and how."""
        expression = single(op, *[self.facts[name].dtype for name in inputs], cast_to=cast_to, conversion=conversion)
        return self.map(expression, *inputs)[0]

    def cast(self, x: str, to: DType, conversion: Conversion = SB1, seed: str | None = None) -> str:
        """x in another format; stochastic rounding draws by `seed`, one uint64."""
        conversion = conversion.normal(to)
        if not conversion.is_placed:
            return self.apply("cast", x, cast_to=to, conversion=conversion)
        from samebits.operations.conversion import Converted  # which few programs need

        attributes = Converted(self.facts[x].dtype, to, conversion)
        operands = (x, seed) if attributes.placed.is_drawn and seed is not None else (x,)
        return self.add(attributes.operation, operands, attributes)[0]

    def as_dtype(self, x: str, to: DType) -> str:
        """x in a format; x itself if it has that format."""
        return x if self.facts[x].dtype is to else self.cast(x, to)

    def map(self, expression: Expression, *inputs: str) -> tuple[str, ...]:
        """An expression per element."""
        return self.add("map", inputs, Map(expression))

    def rows(self, expression: Expression, *inputs: str, axes: tuple[int, ...] = (-1,)) -> tuple[str, ...]:
        """An expression with reductions along some axes, counted from the end."""
        return self.add("rows", inputs, RowWise(expression, axes))

    def contract(self, a: str, b: str, options: Options = PLAIN, **given: str) -> str:
        """The product of two values of rank 2 or more, and of others by the names that `matmul` has for them."""
        attributes = MatrixProduct(names=("a", "b", *given), options=options)
        return self.add("contract", (a, b, *given.values()), attributes)[0]

    def concat(self, values: Sequence[str], axis: int) -> str:
        """Values one after the other along an axis, counted from the front; one alone is itself."""
        if len(values) != 1:
            return self.add("concat", values, Concat(axis))[0]
        self._results("concat", Concat(axis), values)  # which refuses what is no value, and an axis that it has not
        return values[0]

    def gather(self, x: str, indices: str, axis: int) -> str:
        """The places of an axis, counted from the front, that int64 indices name, in the stead of it."""
        return self.add("gather", (x, indices), AxisGather(axis))[0]

    def reshape(self, x: str, shape: SymbolicShape) -> str:
        """x under another shape; x itself if it has that shape."""
        return x if self.facts[x].shape == shape else self.add("reshape", (x,), Reshape(shape))[0]

    def transpose(self, x: str, order: Sequence[int]) -> str:
        """x with its axes in another order; x itself if it is the same."""
        order = tuple(order)
        return x if order == tuple(range(len(order))) else self.add("transpose", (x,), Transpose(order))[0]

    def slice(self, x: str, starts: SymbolicShape, counts: SymbolicShape, steps: tuple[int, ...]) -> str:
        """A part of x."""
        return self.add("slice", (x,), Slice(starts, counts, steps))[0]

    def expand(self, x: str, shape: Sequence[Size]) -> str:
        """x repeated to a shape; x itself if it has that shape."""
        shape = tuple(shape)
        return x if self.facts[x].shape == shape else self.add("expand", (x,), Expand(shape))[0]

    def fitted(self, x: str, shape: SymbolicShape) -> str:
        """x as an operand that does not make `shape` larger: x itself where that is certain, else expanded to it.

        Raises:  ShapeError if it does not broadcast to it. Where symbols are left, binding them raises it.
        """
        own = self.facts[x].shape
        certain = len(own) <= len(shape) and all(
            size in (1, extent) for size, extent in zip(own[::-1], shape[::-1], strict=False)
        )
        return x if certain else self.expand(x, shape)

    # -- the end ------------------------------------------------------------------------------------------------------
    def build(self, outputs: Mapping[str, str], names: Mapping[str, str] | None = None) -> Program:
        """The program whose outputs are called by the keys of `outputs`.

        Args:
            outputs: The value behind each public name.
            names: The model's names for values, where it has them.
        """
        renamed: dict[str, str] = {}
        for public, value in outputs.items():
            if value == public and value not in self._fresh:
                # An input or a constant given back under its own name.
                continue
            if value not in self._fresh or value in renamed:
                # The same value twice, or an input given back: a view carries the second name.
                self.origin = (public,)
                value = self._view(value)
            renamed[value] = public
        taken = {*renamed.values(), *(name for name in self.facts if name not in self._fresh)}
        for name, value in (names or {}).items():
            if value in self._fresh and value not in renamed and name not in taken:
                renamed[value] = name
                taken.add(name)
        for value in sorted(self._fresh - renamed.keys(), key=lambda name: (len(name), name)):
            if value in taken:
                # The model has this name for another value.
                renamed[value] = self._name(taken)
                taken.add(renamed[value])
        program = Program(
            self.name,
            {renamed.get(name, name): fact for name, fact in self.facts.items()},
            tuple(
                Node(
                    node.operation,
                    tuple([renamed.get(name, name) for name in node.inputs]),
                    tuple([renamed.get(name, name) for name in node.outputs]),
                    node.attributes,
                    node.origin,
                )
                for node in self._nodes
            ),
            {renamed.get(name, name): array for name, array in self._constants.items()},
            tuple(self._inputs),
            tuple(outputs),
        )
        program.check()
        return program

    def _view(self, value: str) -> str:
        fact, name = self.facts[value], self._name()
        self._nodes.append(Node("reshape", (value,), (name,), Reshape(fact.shape), self.origin))
        self.facts[name] = fact
        return name

    def _name(self, taken: Collection[str] = ()) -> str:
        """A number that no value has for a name."""
        number = len(self._fresh) + 1
        while (name := f"%{number}") in self.facts or name in self._fresh or name in taken:
            number += 1
        self._fresh.add(name)
        return name


def _is_small(facts: Sequence[Fact]) -> bool:
    if not all(dim.are_known(*fact.shape) and reach_bytes(fact) <= sys.maxsize for fact in facts):
        return False
    return sum(dim.bind(dim.product(fact.shape), {}) for fact in facts) <= _SMALL
