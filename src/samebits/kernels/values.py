"""The values of an expression: as a kernel text computes them (`Values`), and as NumPy means them (`reference`).

Every text that evaluates an expression does it here, so one place decides where a NaN becomes canonical: what is
computed may hold any NaN until it is stored, its bits are copied, or a conversion takes its sign or fraction
(numerics.md section 1).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes, ieee
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Vector
from samebits.conversions import Conversion
from samebits.dtypes import DType
from samebits.kernels import convert, functions, gelu
from samebits.kernels.expression import (
    CONSTANTS,
    LEAVES,
    REDUCTIONS,
    TABLE,
    Expression,
    Term,
    argument_name,
    constant_value,
    matched,
)

Array = npt.NDArray[Any]

# What the text of an operation computes of some of its arguments alone (`functions.texts.FIRST`).
First = tuple[Vector, ...]

# Operations that copy the bits of a NaN, or all but its sign.
_COPIES = ("where", "neg", "abs", "copy")


class Values:
    """Vectors of one width for the values of an expression, computed when first asked for.

    Args:
        b: The builder.
        expression: What to compute.
        width: Lanes of every vector.
        load: Gives a value that is not computed here: an input, or whatever `given` names; never a constant.
        given: Values besides the inputs that `load` provides, each with whether its NaNs may be uncanonical.
        found: What `first` gave for some of the values.
    """

    def __init__(
        self,
        b: Builder,
        expression: Expression,
        width: int,
        load: Callable[[int], Vector],
        given: Mapping[int, bool] | None = None,
        found: Mapping[int, First] | None = None,
    ) -> None:
        self._b, self._expression, self._width, self._load = b, expression, width, load
        self._given, self._first = given or {}, found or {}
        self._found: dict[int, Vector] = {}
        self._canonical: dict[int, Vector] = {}

    def get(self, value: int) -> Vector:
        """The value, its NaNs of any code where it was computed."""
        if value not in self._found:
            self._found[value] = self._compute(value)
        return self._found[value]

    def stored(self, value: int) -> Vector:
        """The value as it is stored and copied: a computed NaN is canonical."""
        if not self._uncanonical(value):
            return self.get(value)
        if value not in self._canonical:
            self._canonical[value] = self._b.canonical(self.get(value))
        return self._canonical[value]

    def _uncanonical(self, value: int) -> bool:
        """Whether a NaN of this value may have another code than the canonical one by right of computation."""
        if value in self._given:
            return self._given[value]
        return may_need_canonical(self._expression, value, self._b.isa)

    def _compute(self, value: int) -> Vector:
        node = self._expression.node(value)
        if node is None or value in self._given:
            return self._load(value)
        if node.op in CONSTANTS:
            return constant(self._b, node, self._width)
        if node.op == "argument":
            (place,) = node.attribute
            assert isinstance(place, int)
            return self._b.splat(self._b.scalar(argument_name(place), node.dtype), self._width)
        grown = self._beside_one(node)
        if grown is not None:
            text, argument = grown
            return text(self._b, self.get(argument))
        rounded = self._bounded(node)
        if rounded is not None:
            return rounded
        row = functions.row(node.op)
        computes = row.arithmetic and not _reads_nan(node)
        take = self.get if computes or self._is_only_computed_with(value) else self.stored
        attribute = (*node.attribute, *self._first.get(value, ()))
        return row.lanes(self._b, node.dtype, *[take(x) for x in node.arguments], attribute=attribute)

    def _is_only_computed_with(self, value: int) -> bool:
        """Whether the value copies others, but for a sign, and whatever takes it makes its NaN canonical."""
        e = self._expression
        node = e.node(value)
        takers = [other for other in e.nodes if value in other.arguments]
        return (
            node is not None
            and node.op in _COPIES
            and value not in e.outputs
            and all(x.op not in REDUCTIONS and functions.row(x.op).arithmetic and not x.attribute for x in takers)
        )

    def _beside_one(self, node: Term) -> tuple[Callable[[Builder, Vector], Vector], int] | None:
        """The text of 1 + f(x), and x, where the node is that, nothing else takes f(x), and there is such a text."""
        e = self._expression
        if node.op != "add" or node.dtype is not dtypes.float32 or self._b.isa.lanes < 16:
            return None
        for one, other in (node.arguments, node.arguments[::-1]):
            first, function = e.node(one), e.node(other)
            is_one = first is not None and first.op == "constant" and constant_value(first) == 1
            if is_one and function is not None and other not in self._given:
                from samebits.kernels.functions import texts

                text = texts.ONE_MORE.get(function.op)
                return (text, function.arguments[0]) if text is not None and _uses(e, other) == 1 else None
        return None

    def _bounded(self, node: Term) -> Vector | None:
        """A value as bfloat16, where there is a text of what is rounded to that."""
        b, e = self._b, self._expression
        if node.op != "cast" or node.dtype is not dtypes.bfloat16 or node.attribute or b.isa.lanes < 16 or self._given:
            return None
        for name, pattern in gelu.patterns().items():
            operands = matched(e, node.arguments[0], pattern)
            if operands is not None:
                from samebits.kernels.functions import texts

                given = [self.get(k) for k in operands]
                steps = functools.partial(self._steps, pattern, given)
                return texts.BOUNDED[name](b, steps, *given)
        return None

    def _steps(self, pattern: Expression, given: Sequence[Vector]) -> Vector:
        """A pattern of given vectors step by step, and its result as bfloat16; nothing of it is found elsewhere."""
        (found,) = emit(self._b, pattern, given, self._width)
        return convert.cast(self._b, found, dtypes.bfloat16)


def _uses(expression: Expression, value: int) -> int:
    """How often a value is taken, as an output too."""
    taken = [x for node in expression.nodes for x in node.arguments]
    return taken.count(value) + expression.outputs.count(value)


def may_need_canonical(expression: Expression, value: int, isa: Isa) -> bool:
    """True for the float result of an arithmetic operation on an Isa row, unless the operation's text settles it; what
    is rounded to a narrower float is canonical."""
    node = expression.node(value)
    if (
        node is None
        or node.op in (*LEAVES, TABLE)
        or _is_settled(node)
        or node.dtype not in (dtypes.float32, dtypes.float64)
    ):
        return False
    if node.op.startswith("row_"):
        return True
    row = functions.row(node.op)
    return row.arithmetic and not row.is_paired(node.dtype, isa)


def _is_settled(node: Term) -> bool:
    """Whether a cast's conversion has said what NaN becomes."""
    return node.op == "cast" and bool(node.attribute)


def _reads_nan(node: Term) -> bool:
    """Whether a cast's conversion takes a NaN's sign or fraction."""
    return _is_settled(node) and any(isinstance(how, Conversion) and how.reads_nan for how in node.attribute)


def constant(b: Builder, node: Term, width: int) -> Vector:
    """A `constant` or `number` node, bit for bit."""
    if convert.is_coded(node.dtype):
        (code,) = node.attribute
        assert isinstance(code, int)
        return b.bitcast(b.constant(code, convert.stored(node.dtype), width), node.dtype)
    value = constant_value(node)
    if value == value:
        return b.constant(bool(value) if node.dtype.kind == "bool" else value, node.dtype, width)
    (code,) = node.attribute
    signed = {32: dtypes.int32, 64: dtypes.int64}[node.dtype.width_bits]
    top = 1 << (node.dtype.width_bits - 1)
    assert isinstance(code, int)
    return b.bitcast(b.constant((code ^ top) - top, signed, width), node.dtype)


def emit(
    b: Builder, expression: Expression, inputs: Sequence[Vector], width: int,
    found: Mapping[int, First] | None = None,
) -> list[Vector]:  # fmt: skip
    """The outputs of an expression of given vectors, ready to be stored (an epilogue in a kernel text).

    Args:    found: what `first` gave for some of its values.
    """
    values = Values(b, expression, width, lambda k: inputs[k], found=found)
    return [values.stored(k) for k in expression.outputs]


def first(b: Builder, expression: Expression, inputs: Sequence[Vector | None]) -> dict[int, First]:
    """By value, what its text computes of some arguments alone, where these are among the inputs that are given."""
    from samebits.kernels.functions import texts

    known, found = {k: x for k, x in enumerate(inputs) if x is not None}, dict[int, First]()
    for value, node in enumerate(expression.nodes, len(inputs)):
        places, text = texts.FIRST.get(node.op, ((), None))
        taken = [known[k] for k in (node.arguments[i] for i in places) if k in known]
        if text is not None and len(taken) == len(places):
            found[value] = text(b, node.dtype, *taken)
    return found


Special = Callable[[Term, list[Array]], Array]


def reference(expression: Expression, inputs: Sequence[npt.ArrayLike], special: Special | None = None) -> list[Array]:
    """The outputs by NumPy, one operation after the other, arrays broadcasting.

    Args:    special: the meaning of nodes that are no rows of `functions` (`count`, row reductions).
    """
    values = [np.asarray(x) for x in inputs]
    for node in expression.nodes:
        arguments = [values[k] for k in node.arguments]
        if node.op in CONSTANTS:
            result = _constant_array(node)
        elif node.op == "count" or node.op.startswith("row_"):
            assert special is not None  # only `reduce` accepts these nodes, and it passes their meaning
            with np.errstate(all="ignore"):
                result = ieee.canonical(special(node, arguments))
        else:
            row = functions.row(node.op)
            with np.errstate(all="ignore"):
                result = row.meaning(node.dtype, *arguments, attribute=node.attribute)
            computed = row.arithmetic and node.dtype.kind == "float" and not _is_settled(node)
            result = ieee.canonical(result) if computed else result
        values.append(result)
    found: list[Array] = []
    for k in expression.outputs:
        # What shares memory with an operand or another output is copied.
        others = [*map(np.asarray, inputs), *found]
        found.append(np.array(values[k]) if any(np.may_share_memory(values[k], x) for x in others) else values[k])
    return found


def _constant_array(node: Term) -> Array:
    (code,) = node.attribute
    size = convert.stored(node.dtype).size_bytes
    return np.array([code], np.uint64).astype(f"u{size}").view(_numpy(node.dtype))[0:1].reshape(())


def _numpy(dtype: DType) -> np.dtype[Any]:
    assert dtype.numpy is not None  # every format that operations take has a NumPy dtype
    return dtype.numpy
