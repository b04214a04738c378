"""Expression: a chain of per-element operations as one frozen value; the form that elementwise kernels, reductions
over rows and matmul epilogues share; and `Chain`, which builds one.

Values are numbered: 0 .. len(inputs)-1 are the inputs, then one value a node. Operations are rows of
`functions.ROWS`; these node kinds are not: `constant` (attribute `(code,)`: the element's bits as an int, so that
-0 and NaN are keys too), `number` (the same, of what callers choose), `argument` (what a kernel reads in place of a
number; attribute: which one), `table` (what is looked up by the codes that are its arguments, in place of nodes that
`code_tables` cut out), and `count` (the row length as a float) and the row reductions `row_sum row_prod row_max
row_min`, which only `reduce` accepts. Start at `Expression`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field

from samebits import dtypes, elements
from samebits.conversions import SB1, Conversion
from samebits.dtypes import DType
from samebits.errors import DTypeError
from samebits.frozen import dataclass
from samebits.kernels import convert, functions

Attribute = tuple[float | int | bool | str | Conversion, ...]


@dataclass(frozen=True, slots=True)
class Term:
    """`op` applied to earlier values; `dtype` is the result's; `attribute` holds plain constants of the op, of a cast
    its conversion unless that is `conversions.SB1`."""

    op: str
    arguments: tuple[int, ...]
    dtype: DType
    attribute: Attribute = ()


@dataclass(frozen=True, slots=True)
class Expression:
    """Inputs by dtype, nodes in order, and which values are the outputs.

    It is a part of what plans and kernels are looked up by, so its hash is computed once, when it is first asked for.
    """

    inputs: tuple[DType, ...]
    nodes: tuple[Term, ...]
    outputs: tuple[int, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash((self.inputs, self.nodes, self.outputs))
            object.__setattr__(self, "_hash", found)
            return found

    def __reduce__(self) -> tuple[type[Expression], tuple[object, ...]]:
        return Expression, (self.inputs, self.nodes, self.outputs)  # another process hashes otherwise

    def dtype(self, value: int) -> DType:
        """The dtype of a value by its number."""
        n = len(self.inputs)
        return self.inputs[value] if value < n else self.nodes[value - n].dtype

    def node(self, value: int) -> Term | None:
        """The node that computes a value; None for an input."""
        n = len(self.inputs)
        return None if value < n else self.nodes[value - n]

    def term(self, value: int) -> Term:
        """The node that computes a value, which is no input."""
        return self.nodes[value - len(self.inputs)]


REDUCTIONS = ("row_sum", "row_prod", "row_max", "row_min")
# What has its value in the expression.
CONSTANTS = ("constant", "number")
# What is looked up.
TABLE = "table"
# What has no arguments.
LEAVES = (*CONSTANTS, "argument", "count")


@dataclass(frozen=True, slots=True, eq=False)
class ExpressionValue:
    """A value of a chain under construction, by identity."""

    dtype: DType
    node: tuple[str, tuple[ExpressionValue, ...], Attribute] | None


class Chain:
    """Builds an expression: `c = Chain(); x = c.input(float32); e = c.finish(c.apply("exp", x))`.

    Inputs may be added at any time; `finish` numbers them in the order they were added and drops what no output needs,
    inputs excepted.
    """

    def __init__(self) -> None:
        self._inputs: list[ExpressionValue] = []
        self._nodes: list[ExpressionValue] = []

    def input(self, dtype: DType) -> ExpressionValue:
        """The next input."""
        self._inputs.append(ExpressionValue(dtype, None))
        return self._inputs[-1]

    def constant(self, value: float | int | bool, dtype: DType) -> ExpressionValue:
        """A constant by value, rounded once to `dtype` (a NaN is canonical)."""
        return self.constant_code(_code(value, dtype), dtype)

    def constant_code(self, code: int, dtype: DType) -> ExpressionValue:
        """A constant by its bits."""
        return self._add("constant", (), dtype, (code,))

    def number(self, value: float, dtype: DType) -> ExpressionValue:
        """A constant that callers choose, such as an epsilon: kernels take it as an argument, and one does for all."""
        return self.number_code(_code(value, dtype), dtype)

    def number_code(self, code: int, dtype: DType) -> ExpressionValue:
        """The same by its bits."""
        return self._add("number", (), dtype, (code,))

    def leaf(self, node: Term) -> ExpressionValue:
        """A node without arguments of another expression."""
        return self._add(node.op, (), node.dtype, node.attribute)

    def count(self, dtype: DType = dtypes.float32) -> ExpressionValue:
        """The row length as float32 or float64 (`reduce` only)."""
        return self._add("count", (), dtype)

    def apply(
        self, op: str, *arguments: ExpressionValue, dtype: DType | None = None, conversion: Conversion = SB1
    ) -> ExpressionValue:
        """An operation of `functions.ROWS`, or a row reduction; `dtype` is what a cast converts to, `conversion` how.

        Raises:  OptionError if there is no such operation, DTypeError if it does not take these arguments.
        """
        if op in REDUCTIONS:
            (x,) = arguments
            if convert.is_coded(x.dtype) or x.dtype.kind == "bool":
                expected = "float32, float64 or an integer of whole bytes"
                raise DTypeError(op, "the argument", "dtype", x.dtype, expected, "cast it first")
            return self._add(op, arguments, x.dtype)
        found = functions.result_dtype(op, tuple(x.dtype for x in arguments), dtype)
        return self._add(op, arguments, found, () if conversion == SB1 else (conversion,))

    def include(self, expression: Expression, *arguments: ExpressionValue) -> list[ExpressionValue]:
        """The outputs of another expression over values of this chain."""
        values = list(arguments)
        for node in expression.nodes:
            values.append(self._add(node.op, tuple(values[i] for i in node.arguments), node.dtype, node.attribute))
        return [values[i] for i in expression.outputs]

    def finish(self, *outputs: ExpressionValue) -> Expression:
        """The expression of these outputs."""
        needed = set(outputs)
        for value in reversed(self._nodes):
            if value in needed and value.node:
                needed.update(value.node[1])
        order = self._inputs + [value for value in self._nodes if value in needed]
        number = {value: i for i, value in enumerate(order)}
        nodes = tuple(
            Term(op, tuple(number[x] for x in arguments), value.dtype, attribute)
            for value in order
            if value.node
            for op, arguments, attribute in [value.node]
        )
        return Expression(tuple(x.dtype for x in self._inputs), nodes, tuple(number[x] for x in outputs))

    def _add(
        self,
        op: str,
        arguments: tuple[ExpressionValue, ...],
        dtype: DType,
        attribute: Attribute = (),
    ) -> ExpressionValue:
        self._nodes.append(ExpressionValue(dtype, (op, arguments, attribute)))
        return self._nodes[-1]


def _code(value: float | int | bool, dtype: DType) -> int:
    """The bits of a constant."""
    found = elements.rounded(value, dtype)
    return int(found.view(f"u{found.dtype.itemsize}"))


@functools.lru_cache(maxsize=1024)
def with_arguments(e: Expression) -> tuple[Expression, Mapping[str, int]]:
    """The expression that a kernel computes, which is the same whatever its numbers are; and those, as words by the
    names of the kernel's arguments."""
    words: dict[str, int] = {}

    def taken(node: Term) -> Term:
        if node.op != "number":
            return node
        (code,) = node.attribute
        assert isinstance(code, int)
        place = len(words)
        words[argument_name(place)] = code - (code >> 63 << 64)
        return Term("argument", (), node.dtype, (place,))

    nodes = tuple(map(taken, e.nodes))
    return (Expression(e.inputs, nodes, e.outputs) if words else e), words


def matched(e: Expression, value: int, pattern: Expression) -> tuple[int, ...] | None:
    """The values that a pattern of one output is computed from, where a value of e is that; else None."""
    found = dict[int, int]()

    def fits(value: int, k: int) -> bool:
        wanted, node = pattern.node(k), e.node(value)
        if wanted is None:
            return e.dtype(value) is pattern.inputs[k] and found.setdefault(k, value) == value
        same = node is not None and (node.op, node.dtype, node.attribute) == (wanted.op, wanted.dtype, wanted.attribute)
        return node is not None and same and all(map(fits, node.arguments, wanted.arguments))

    return tuple([found[k] for k in range(len(pattern.inputs))]) if fits(value, pattern.outputs[0]) else None


def argument_name(place: int) -> str:
    """What the argument is called that is one of a kernel's numbers."""
    return f"number{place}"


def constant_value(node: Term) -> float | int | bool:
    """The value of a `constant` or `number` node; what only has bits (a NaN's payload) is lost."""
    (code,) = node.attribute
    assert isinstance(code, int)
    return node.dtype.decode(code)
